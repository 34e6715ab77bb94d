"""A host's whole life in a pool: created, joined, killed, restarted, left, banned; on loopback, real processes.

What is asserted is what members hold (a hash of the vector per version, equal at all hosts) and what they say;
waiting has generous limits and ends as soon as there is something to see.
"""
import base64
import json
import os
import shutil
import signal
import subprocess
import unittest

from life import PATIENCE_S, Host, PoolCase, free_port, ticket_of


class Life(PoolCase):
    def test_kills_and_restarts(self):
        path = os.path.join(self.place, "config.json")
        with open(path, "wb") as f:
            f.write(os.urandom(1_500_000))
        a, ticket = self.create(3, POOL_NODE_FILE=path)
        b, c = self.join("b", ticket), self.join("c", ticket)
        self.go_on(a, b, c)
        with open(path, "rb") as f, open(os.path.join(b.dir, "files", "config.json"), "rb") as g:
            self.assertEqual(f.read(), g.read())
        self.roster(a, 3)  # who comes in applies versions before it is on it
        status = a.status()
        self.assertEqual(sum(m["on_roster"] for m in status["members"]), 3)
        self.assertTrue(status["owner"] and status["is_member"])
        self.assertGreater(status["bytes_out"], 0)
        self.assertGreater(len(status["rounds"]), 0)
        self.assertEqual(oct(os.stat(os.path.join(a.dir, "control.sock")).st_mode & 0o777), "0o600")
        c.end(signal.SIGKILL)
        self.roster(a, 3)
        # What is due needs samples of three here; two bring them too.
        self.go_on(a, b)
        again = Host(self, "c", "open", "127.0.0.1:0", "200")
        self.go_on(a, b, again)
        self.equal(a, b, c, again)
        # The owner's box dies and comes back, on another port.
        a.end(signal.SIGKILL)
        a2 = Host(self, "a", "open", "127.0.0.1:0", "200")
        self.go_on(a2, b, again)
        self.equal(a2, b, again)
        # Who comes late gets the state from the others.
        d = self.join("d", ticket_of(a2))
        self.go_on(a2, d)
        self.assertIsNotNone(d.find("adopted"))
        self.equal(a2, b, again, d)
        for host in (a2, b, again, d):
            self.assertEqual(host.end(), 0)

    def test_the_owner_resets(self):
        a, ticket = self.create(3)
        b, c = self.join("b", ticket), self.join("c", ticket)
        self.go_on(a, b, c)
        self.roster(a, 3)
        refused = b.ask(do="reset")
        self.assertFalse(refused["ok"])
        self.assertIn("only the pool's owner", refused["error"])
        before, certified = a.status()["lineage"], a.status()["certified_samples"]
        self.assertGreater(certified, 0)
        done = a.ask(do="reset")
        self.assertTrue(done["ok"], done)
        self.assertNotIn("ticket", done)
        self.assertIn("continues from version", done["note"])
        self.until(lambda: a.status()["lineage"] != before, "a's new lineage", a)
        self.until(lambda: all(h.status()["lineage"] == a.status()["lineage"] for h in (b, c)), "all in the new lineage", a, b, c)
        self.roster(a, 3)
        for host in (a, b, c):  # what the pool has done is still done
            self.assertGreaterEqual(host.status()["certified_samples"], certified)
        # The order outlives its giver: killed and opened again, nobody goes back.
        a.end(signal.SIGKILL)
        again = Host(self, "a", "open", "127.0.0.1:0", "200")
        self.go_on(again, b, c)
        self.assertNotEqual(again.status()["lineage"], before)
        self.equal(again, b, c)

    def test_a_ban_that_leaves_no_quorum(self):
        a, ticket = self.create(3)
        b, c = self.join("b", ticket), self.join("c", ticket)
        self.go_on(a, b, c)
        self.roster(a, 3)
        answer = a.ask(do="ban", key=b.status()["key"], whole_invite=True)
        self.assertTrue(answer["ok"], answer)
        self.assertIn("atom pool reset", answer["note"])
        for host in (b, c):
            self.assertEqual(host.process.wait(timeout=PATIENCE_S), 1)
        self.assertTrue(a.ask(do="reset")["ok"])
        self.go_on(a)

    def test_leaving_and_banning(self):
        a, ticket = self.create(3)
        b, c = self.join("b", ticket), self.join("c", ticket, "-")
        self.go_on(a, b, c)
        self.assertTrue(b.ask(do="pause")["ok"])
        self.until(lambda: b.status()["wish"] == "pause", "b pauses")
        self.assertTrue(b.ask(do="resume")["ok"])
        self.assertFalse(b.ask(do="ticket")["ok"])
        self.assertFalse(b.ask(do="invite", count=1, days=1)["ok"])
        self.assertFalse(a.ask(do="invite", count=0, days=1)["ok"])
        self.assertFalse(a.ask(do="nonsense")["ok"])
        self.assertTrue(c.ask(do="leave")["ok"])
        self.assertEqual(c.process.wait(timeout=PATIENCE_S), 0, c.words())
        self.roster(a, 2)
        # One invite for one host: a second one is told.
        one = a.ask(do="invite", count=1, days=1)["ticket"]
        d = self.join("d", one)
        self.go_on(a, b, d)
        e = self.join("e", one)
        self.assertEqual(e.process.wait(timeout=PATIENCE_S), 1)
        self.assertIn("ask for a new ticket", e.words())
        # A new key: old tickets are void, who is here stays, a new ticket works.
        after = a.ask(do="rotate")["ticket"]
        self.until(lambda: all(h.status()["manifest"] == 2 for h in (a, b, d)), "manifest 2 at all")
        self.go_on(a, b, d)
        f = self.join("f", ticket)
        self.assertEqual(f.process.wait(timeout=PATIENCE_S), 1)
        g = self.join("g", after)
        self.go_on(a, b, d, g)
        # A ban: it ends, the others go on, it does not come back.
        key = g.status()["key"]
        # It may have met the others first; a short key is looked up among those whom the host knows.
        self.until(lambda: any(m["key"] == key for m in a.status()["members"]), "the owner sees it", a, g)
        g.process.send_signal(signal.SIGSTOP)  # it could not end by itself
        answer = a.ask(do="ban", key=key[:12])
        self.assertNotIn("atom pool reset", answer["note"])
        self.assertTrue(answer["ok"], (answer, key, [m["key"] for m in a.status()["members"]]))
        self.until(lambda: not any(m["key"] == key and m["up"] for m in a.status()["members"] + b.status()["members"]),
                   "nobody is linked with who is banned", a, b)
        g.process.send_signal(signal.SIGCONT)
        self.assertEqual(g.process.wait(timeout=PATIENCE_S), 1)
        self.assertIn("banned", g.words())
        self.go_on(a, b, d)
        self.assertEqual(Host(self, "g", "open", "127.0.0.1:0", "5").process.wait(timeout=PATIENCE_S), 1)
        self.roster(a, 3)
        self.equal(a, b, d)
        # Back after leaving, two keys later: a new ticket, no new admission; the state from the others.
        back = self.join("c", a.ask(do="ticket")["ticket"], "-")
        self.go_on(a, b, d, back)
        self.equal(a, b, d, back)
        for host in (a, b, d, back):
            self.assertEqual(host.end(), 0)

    def test_lying_owner(self):
        """One of four gives false sums: it is found, the others throw it out, and anybody can check why."""
        a, ticket = self.create(4)
        b, c = self.join("b", ticket), self.join("c", ticket)
        liar = self.join("d", ticket, node=os.environ["FALSE_OWNER"])
        honest = (a, b, c)
        for host in honest:
            self.until(lambda: host.find("started") and host.status()["banned"], f"{host.name} bans somebody", *honest)
        key = liar.status()["key"]
        for host in honest:
            self.roster(host, 3)
            status = host.status()
            self.assertEqual([b["key"] for b in status["banned"]], [key])
            event = host.event("banned")
            self.assertEqual((event["key"], event["evidence"]), (key, status["banned"][0]["evidence"]))
        self.go_on(*honest)
        self.equal(*honest)
        atom, evidence = os.environ.get("ATOM"), b.status()["banned"][0]["evidence"]
        if atom:
            run = lambda *args: subprocess.run([atom, "pool", "evidence", *args], capture_output=True, text=True)
            done = run(evidence, c.dir)  # with another host's manifest
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(f"member {key} lied", done.stdout)
            said = json.loads(run(evidence, a.dir, "--json").stdout)
            self.assertTrue(said["lied"] and said["member"] == key)
            with open(evidence, "rb") as f:
                bad = bytearray(f.read())
            bad[len(bad) // 2] ^= 1
            with open(evidence, "wb") as f:
                f.write(bad)
            self.assertEqual(run(evidence, a.dir).returncode, 3)

    def test_plain(self):
        a, ticket = self.create(2, free_port(), POOL_NODE_PLAIN="1")
        b = self.join("b", ticket, free_port())
        self.go_on(a, b)
        self.equal(a, b)
        self.assertFalse(a.ask(do="rotate")["ok"])
        b.end(signal.SIGKILL)
        again = Host(self, "b", "open", free_port(), "200")
        self.go_on(a, again)
        self.equal(a, b, again)
        # Of two, the one who leaves has to vote for it.
        self.assertTrue(again.ask(do="leave")["ok"])
        self.assertEqual(again.process.wait(timeout=PATIENCE_S), 0, again.words())
        self.roster(a, 1)

    def test_files(self):
        """A download goes on where it ended; what a donor spoiled is fetched from another one."""
        path, data = os.path.join(self.place, "config.json"), os.urandom(3_000_000)
        with open(path, "wb") as f:
            f.write(data)
        a, ticket = self.create(2, POOL_NODE_FILE=path)
        chunk, files = 256 * 1024, os.path.join(self.place, "b", "files")
        os.makedirs(files)
        with open(os.path.join(files, ".config.json.part"), "wb") as f:
            f.write(data[:5 * chunk + 100])  # the last chunk is cut: fetched again
        b = self.join("b", ticket)
        b.wait_for("started")
        with open(os.path.join(files, "config.json"), "rb") as f:
            self.assertEqual(f.read(), data)
        self.assertEqual(b.event("file")["resumed"], 5 * chunk)
        with open(os.path.join(a.dir, "files", "config.json"), "r+b") as f:
            f.seek(2_000_000)
            f.write(b"spoiled")
        c = self.join("c", ticket)
        c.wait_for("started")
        with open(os.path.join(c.dir, "files", "config.json"), "rb") as f:
            self.assertEqual(f.read(), data)

    def make_data(self, *sizes):
        """A directory with 0.bin, 1.bin, ..."""
        place = os.path.join(self.place, "data-a")
        os.makedirs(place)
        for i, size in enumerate(sizes):
            with open(os.path.join(place, f"{i}.bin"), "wb") as f:
                f.write(os.urandom(size))
        return place

    def same_data(self, a, b):
        for name in os.listdir(a):
            with open(os.path.join(a, name), "rb") as f, open(os.path.join(b, name), "rb") as g:
                self.assertEqual(f.read(), g.read(), name)
        self.assertEqual(sorted(os.listdir(a)), sorted(os.listdir(b)))

    def test_data(self):
        """The pool's data from its members: a download that is killed goes on, a donor that lies is found out."""
        chunk = 256 * 1024
        mine = self.make_data(5 * chunk, 30_000_000, 1000)
        at = lambda name: os.path.join(self.place, f"data-{name}")
        a, ticket = self.create(1, POOL_NODE_DATA=mine)
        self.assertEqual((a.find("data")["data"], a.find("data")["of"]), (3, 3))
        # Killed in the middle: what was there counts.
        slow = self.join("b", ticket, POOL_NODE_DATA=at("b"), POOL_NODE_DOWN=str(10_000_000))
        part = os.path.join(at("b"), ".1.bin.part")
        self.until(lambda: os.path.exists(part) and os.stat(part).st_blocks * 512 > 20 * chunk, "a part of it", slow)
        slow.end(signal.SIGKILL)
        self.assertIsNone(slow.find("started"))
        with open(part, "r+b") as f:  # a disk that lost some of it
            f.seek(2 * chunk + 5)
            f.write(b"lost")
        b = Host(self, "b", "open", "127.0.0.1:0", "200", POOL_NODE_DATA=at("b"))
        b.wait_for("started")
        self.same_data(mine, at("b"))
        whole = sum(-(-os.path.getsize(os.path.join(mine, n)) // chunk) for n in os.listdir(mine))
        self.assertLess(b.event("data")["pieces"], whole - 10)
        # What is there is not fetched again; what was spoiled is.
        with open(os.path.join(at("b"), "0.bin"), "r+b") as f:
            f.write(b"spoiled")
        b.end()
        b = Host(self, "b", "open", "127.0.0.1:0", "200", POOL_NODE_DATA=at("b"))
        b.wait_for("started")
        self.assertEqual(b.find("data")["wrong"], "0.bin")
        self.same_data(mine, at("b"))
        # From two at once; and beside one that lies, whoever is asked.
        shutil.copytree(mine, at("liar"))
        liar = self.join("liar", ticket, node=os.environ["FALSE_DONOR"], POOL_NODE_DATA=at("liar"))
        liar.wait_for("started")
        self.roster(a, 3)
        c = self.join("c", ticket, POOL_NODE_DATA=at("c"), POOL_NODE_DOWN=str(6_000_000))
        c.wait_for("started")
        self.same_data(mine, at("c"))
        told = c.event("data")
        self.assertGreater(told["donors"], 1)
        self.assertEqual(told["wrong"], 1)
        self.assertEqual(c.event("bad_piece")["key"], liar.status()["key"])
        # A donor whose file is not what it was says so: nobody is called a liar.
        with open(os.path.join(mine, "1.bin"), "r+b") as f:
            f.seek(1_000_000)
            f.write(b"spoiled")
        liar.end(signal.SIGKILL)
        d = self.join("d", ticket, POOL_NODE_DATA=at("d"))
        d.wait_for("started")
        self.assertEqual(d.event("data")["wrong"], 0)
        self.same_data(at("c"), at("d"))
        self.go_on(a, b, c, d)
        for host in (a, b, c, d):
            self.assertEqual(host.end(), 0)

    def test_claims_beyond_belief(self):
        """One of four accuses with weights whose sum wraps: nobody aborts, also after a restart, and nobody is banned."""
        a, ticket = self.create(4)
        b, c = self.join("b", ticket), self.join("c", ticket)
        d = self.join("d", ticket, node=os.environ["FALSE_ACCUSER"])
        self.go_on(a, b, c, d, by=8)
        c.end(signal.SIGKILL)
        c = Host(self, "c", "open", "127.0.0.1:0", "200")
        self.go_on(a, b, c, d, by=6)
        self.equal(a, b, c)
        for host in (a, b, c):
            self.assertEqual(host.status().get("bans", []), [])
            self.assertFalse([name for name in os.listdir(os.path.join(host.dir, "member")) if "evidence" in name])
            self.assertEqual(host.end(), 0)

    def test_relayed(self):
        """Two members that accept nobody are brought together by the one that does."""
        a, ticket = self.create(3)
        b, c = self.join("b", ticket, "-"), self.join("c", ticket, "-")
        self.go_on(a, b, c)
        me = b.status()["key"]
        self.until(lambda: any(m["key"] == me and m["up"] and m["relayed"] for m in c.status()["members"]),
                   "c is linked with b through a", b, c)
        self.equal(a, b, c)

    def test_one_of_two_dies(self):
        """The lower key goes on at once; the other one waits a little, says so, and goes on; they meet again."""
        a, ticket = self.create(1, POOL_NODE_FORK_S="100")  # of two: 6 silences of 0.8 s
        b = self.join("b", ticket)
        self.roster(a, 2)
        self.go_on(a, b)
        low, high = sorted((a, b), key=lambda h: base64.urlsafe_b64decode(h.status()["key"] + "="))
        lineage = high.status()["lineage"]
        low.end(signal.SIGKILL)
        self.until(lambda: high.event("no_quorum"), "who is left says that it waits", high)
        self.assertLessEqual(high.event("no_quorum")["goes_on_in_s"], 5)
        self.assertIn("going on alone in", high.status()["text"])
        self.until(lambda: high.status()["lineage"] != lineage, "it goes on by itself", high)
        self.assertIn("no quorum; waiting for", high.words())
        again = Host(self, low.name, "open", "127.0.0.1:0", "200")
        again.wait_for("started")
        self.until(lambda: again.status()["lineage"] == high.status()["lineage"], "both in one lineage", again, high)
        self.roster(high, 2)
        self.go_on(again, high)

        def newest():
            both = again.hashes(), high.hashes()
            return [h[max(both[0].keys() & both[1].keys())] for h in both]
        # A machine that is busy for a second parts them once more: it is the end that counts.
        self.until(lambda: len(set(newest())) == 1, "both have the same anchor", again, high)
        high.end(signal.SIGKILL)
        self.go_on(again)
        again.end()

    def test_wrong_ways(self):
        a, ticket = self.create(1)
        # The directory has an owner already; a second process must not speak for the first.
        self.assertEqual(Host(self, "a", "open", "127.0.0.1:0", "5").process.wait(timeout=PATIENCE_S), 2)
        second = Host(self, "a", "create", "127.0.0.1:0", "5")
        self.assertEqual(second.process.wait(timeout=PATIENCE_S), 2)
        for text in ("atom1-nonsense", ticket[:-5], ""):
            self.assertEqual(self.join("x", text).process.wait(timeout=PATIENCE_S), 2)
        self.assertEqual(Host(self, "y", "open", "127.0.0.1:0", "5").process.wait(timeout=PATIENCE_S), 3)
        self.go_on(a, by=2)  # a pool of one goes on too


if __name__ == "__main__":
    unittest.main()
