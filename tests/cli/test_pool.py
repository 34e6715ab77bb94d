"""atom pool selftest: alone, with a second process on loopback, and on bad days."""
import json
import socket
import threading

import tool

LOOPBACK = "127.0.0.1:0"


class Selftest(tool.Case):
    def serve(self):
        process = self.start_atom("pool", "selftest", "--serve", "--listen", LOOPBACK, "--json", "--minutes", "2")
        self.addCleanup(process.communicate)
        self.addCleanup(process.terminate)
        return process, json.loads(process.stdout.readline())

    def findings(self, report):
        return {f["name"]: f for f in report["findings"]}

    def test_alone(self):
        report = self.ok("pool", "selftest", "--listen", LOOPBACK, "--json").json()
        self.assertTrue(report["can_take_part"])
        self.assertIsNone(report["peer"])
        self.assertGreater(report["port"], 0)
        found = self.findings(report)
        for name in ("port", "addresses", "ipv6", "reachable", "tcp buffers", "congestion control", "clock",
                     "open files", "disk"):
            self.assertIn(name, found)
        for finding in report["findings"]:
            self.assertIn(finding["state"], ("good", "note", "bad"))
            self.assertEqual(finding["state"] != "good" and not finding["fix"] and finding["name"] != "ipv6" and
                             finding["name"] != "addresses", False, finding)
        self.assertIn("--serve", found["reachable"]["fix"])
        text = self.ok("pool", "selftest", "--listen", LOOPBACK).out
        self.assertIn("This host can take part.", text)

    def test_two(self):
        _, served = self.serve()
        report = self.ok("pool", "selftest", "--listen", LOOPBACK, "--via", served["ticket"], "--seconds", "0.3",
                         "--bytes", "8MiB", "--json").json()
        peer = report["peer"]
        self.assertTrue(peer["dialled"] and peer["reachable"], report)
        self.assertEqual(peer["seen"], f"127.0.0.1:{report['port']}")
        self.assertGreater(peer["up_bytes_per_s"], 0)
        self.assertGreater(peer["down_bytes_per_s"], 0)
        self.assertLessEqual(peer["up_bytes"], 8 << 20)
        self.assertLess(abs(peer["clock_off_s"]), 5)
        self.assertEqual(self.findings(report)["reachable"]["state"], "good")
        # The same by host and ticket; and for people.
        result = self.ok("pool", "selftest", "--listen", LOOPBACK, "--via", f"127.0.0.1:{served['port']}", "--ticket",
                         served["ticket"], "--seconds", "0.2", "--bytes", "1MiB")
        self.assertRegex(result.out, r"rates +up [0-9.]+ Mbit/s")

    def test_serve_ends_on_a_signal(self):
        process, _ = self.serve()
        process.terminate()
        process.communicate(timeout=30)
        self.assertEqual(process.returncode, 0)

    def test_evidence_without_a_pool(self):
        """Exit code 3 says that a file proves nothing; here there is nothing to prove it with."""
        self.fails(2, "pool", "evidence", "file", says=(". holds no pool", "--manifest"))
        self.fails(2, "pool", "evidence", "file", self.dir, says=(self.dir + " holds no pool", "--manifest"))

    def test_bad_days(self):
        _, served = self.serve()
        ticket = served["ticket"]
        self.fails(2, "pool", "selftest", "--via", "127.0.0.1:9", says=("--ticket", "--serve"))
        self.fails(2, "pool", "selftest", "--via", "atom1-junk", says="ticket")
        self.fails(2, "pool", "selftest", "--listen", "nowhere", says="nowhere")
        self.fails(2, "pool", "selftest", "--seconds", "0")
        self.fails(1, "pool", "selftest", "--listen", LOOPBACK, "--dir", self.path("no"), says="disk")
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            result = self.fails(1, "pool", "selftest", "--listen", f"127.0.0.1:{port}", says="in use")
            self.assertIn(f"ss -ltnp 'sport = :{port}'", result.out)
            self.assertIn("cannot take part yet", result.out)
            report = self.run_atom("pool", "selftest", "--listen", f"127.0.0.1:{port}", "--json").json()
            self.assertFalse(report["can_take_part"])
            # Somebody who listens there, but is no member.
            result = self.run_atom("pool", "selftest", "--listen", LOOPBACK, "--via", f"127.0.0.1:{port}", "--ticket",
                                   ticket, "--json")
            self.assertEqual(result.code, 1, str(result))
            finding = self.findings(result.json())["peer"]
            self.assertEqual(finding["state"], "bad")
            self.assertIn(f"</dev/tcp/127.0.0.1/{port}", finding["fix"])  # the very line


class Status(tool.Case):
    """What a running member answers is shown, here by a stand-in at its socket."""

    def answer(self, **more):
        said = {"ok": True, "name": "ours", "version": 7, "roster": 3, "certified_tokens": 1000, "wish": "go",
                "state": "running", "text": "training", "members": [], "rounds": [], "banned": [], "bytes_out": 1,
                "bytes_in": 2, "up_s": 60, "faults": 4, "month": {"text": ""}, "settings": "", **more}
        server = socket.socket(socket.AF_UNIX)
        self.addCleanup(server.close)
        server.bind(self.path("control.sock"))
        server.listen()

        def serve():
            for _ in range(2):
                with server.accept()[0] as link, link.makefile("rb") as line:
                    line.readline()
                    link.sendall(json.dumps(said).encode() + b"\n")
        threading.Thread(target=serve, daemon=True).start()
        text = self.ok("pool", "status", self.dir).out
        return text, self.ok("pool", "status", self.dir, "--json").json()

    def test_questions_that_were_not_answered(self):
        text, said = self.answer(unanswered=139)
        self.assertIn("4 messages and connections of strangers refused; 139 questions left unanswered because members ask too often",
                      text)
        self.assertEqual(said["unanswered"], 139)

    def test_nothing_is_said_of_none(self):
        text, said = self.answer(unanswered=0)
        self.assertIn("4 messages and connections of strangers refused\n", text)
        self.assertEqual(said["unanswered"], 0)


if __name__ == "__main__":
    tool.main()
