"""atom pool selftest over a shaped link: what it measures is what the link is; what it cannot reach it says."""
import json
import os
import subprocess
import unittest

import rig

ATOM = os.environ["ATOM"]


class Selftest(unittest.TestCase):
    def test_rates_and_reach(self):
        net = rig.Rig("relay")
        self.addCleanup(net.close)
        a, b = net.host(), net.host()
        net.delay(a, b, 40)
        a.shape(20, 60)
        b.shape(200)
        serve = b.start([ATOM, "pool", "selftest", "--serve", "--listen", f"{b.address}:4400", "--json"],
                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        ticket = json.loads(serve.stdout.readline())["ticket"]
        ask = [ATOM, "pool", "selftest", "--listen", f"{a.address}:4400", "--via", ticket, "--json"]
        report = json.loads(a.run(ask).stdout)
        peer = report["peer"]
        up, down = peer["up_bytes_per_s"] * 8e-6, peer["down_bytes_per_s"] * 8e-6
        print(f"net: selftest, 20 Mbit/s up, 60 down, 40 ms: up {up:.1f}, down {down:.1f} Mbit/s, round trip "
              f"{peer['rtt_s'] * 1e3:.1f} ms")
        self.assertTrue(peer["reachable"])
        self.assertEqual(peer["seen"], f"{a.address}:4400")
        self.assertGreaterEqual(peer["rtt_s"], 0.04)
        self.assertTrue(0 < up < 25, up)  # a busy machine is slower
        self.assertTrue(0 < down < 75, down)
        b.cut()
        gone = a.run(ask, check=False)
        self.assertEqual(gone.returncode, 1, gone.stderr)
        self.assertFalse(json.loads(gone.stdout)["can_take_part"])


if __name__ == "__main__":
    rig.main(seconds=200)
