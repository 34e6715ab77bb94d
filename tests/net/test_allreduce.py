"""atom bench allreduce between hosts that are given by address: each runs one peer, as real hosts do; and with
namespaces of its own. What it measures is not asserted, but that all hold the same, right sum and say what it cost."""
import json
import os
import subprocess
import unittest

import rig

ATOM = os.environ["ATOM"]
FLOATS = 1 << 20


class Allreduce(unittest.TestCase):
    def check(self, report, here):
        self.assertTrue(report["equal"] and report["right"], report)
        self.assertEqual(len(report["rounds_seconds"]), 2)
        self.assertTrue(0 < report["efficiency"] <= 1, report)
        least = 4 * FLOATS  # sends its contribution but for its own part, and its part's result
        for i, sent in enumerate(report["wire_bytes_per_peer"]):
            self.assertEqual(sent is not None, i in here)
            if sent is not None:
                self.assertTrue(least < sent < 3 * least, sent)

    def test_given_addresses(self):
        net = rig.Rig("bridge")
        self.addCleanup(net.close)
        hosts = [net.host() for _ in range(3)]
        for host in hosts:
            host.shape(100)
        addresses = ",".join(f"{host.address}:4400" for host in hosts)
        common = [ATOM, "bench", "allreduce", "--addresses", addresses, "--secret", "three odd words", "--bytes",
                  4 * FLOATS, "--rounds", 2, "--rate", 100, "--json"]
        stranger = hosts[0].run([ATOM, "bench", "allreduce", "--addresses", addresses, "--self", 3, "--secret",
                                 "three odd words"], check=False)
        self.assertEqual(stranger.returncode, 2, stranger.stderr)
        runs = [host.start(common + ["--self", i], stdout=subprocess.PIPE, text=True) for i, host in enumerate(hosts)]
        for i, run in enumerate(runs):
            out, _ = run.communicate(timeout=100)
            self.assertEqual(run.returncode, 0)
            report = json.loads(out)
            self.check(report, [i])
            print(f"net: allreduce, host {i} of 3, 100 Mbit/s: {report['seconds']:.2f} s, "
                  f"{report['efficiency']:.2f} of the rate")

    def test_namespaces(self):
        done = subprocess.run([ATOM, "bench", "allreduce", "--peers", "3", "--bytes", str(4 * FLOATS), "--rounds", "2",
                               "--rate", "100", "--codec", "bf16", "--json"], capture_output=True, text=True, timeout=100,
                              check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads(done.stdout)
        self.assertTrue(report["equal"] and report["right"], report)
        self.assertEqual(report["codec"], "bf16")
        self.assertEqual(len(report["wire_bytes_per_peer"]), 3)


if __name__ == "__main__":
    rig.main(seconds=200)
