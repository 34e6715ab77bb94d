"""The rig keeps its promises: rates, delays, loss, cuts, chaos; and nothing is left behind."""
import os
import subprocess
import sys
import unittest

import rig


class BridgeRig(unittest.TestCase):
    def test_rate_and_cuts(self):
        net = rig.Rig("bridge")
        a, b, c = net.host(), net.host(), net.host()
        self.addCleanup(net.close)
        free = rig.ping(a, b)
        self.assertEqual(len(free), 20)
        self.assertLess(rig.median(free), 20)
        for host in (a, b, c):
            host.shape(100)
        rate = rig.iperf(a, b, seconds=2)
        if rate is not None:
            print(f"net: bridge, tbf 100 Mbit/s: iperf3 {rate:.1f} Mbit/s")
            self.assertLess(rate, 101)
            self.assertGreater(rate, 50)  # a busy machine is slower, never faster
            sent, received = b.wire()
            self.assertGreater(received, rate * 1e6 / 8 * 1.5)
            self.assertGreater(sent, 1000)
        net.cut(a, b)
        self.assertEqual(rig.ping(a, b, 2, 0.2), [])
        self.assertEqual(len(rig.ping(a, c, 2)), 2)
        net.mend(a, b)
        self.assertEqual(len(rig.ping(a, b, 2)), 2)
        net.partition([a, b], [c])
        self.assertEqual(rig.ping(a, c, 2, 0.2), [])
        self.assertEqual(len(rig.ping(a, b, 2)), 2)
        net.heal([a, b], [c])
        self.assertEqual(len(rig.ping(c, a, 2)), 2)
        c.cut()
        self.assertEqual(rig.ping(a, c, 2, 0.2), [])
        c.mend()
        self.assertEqual(len(rig.ping(a, c, 2)), 2)


class RelayRig(unittest.TestCase):
    def test_delay_loss_rate_cuts(self):
        net = rig.Rig("relay")
        a, b, c = net.host(), net.host(), net.host()
        self.addCleanup(net.close)
        self.assertEqual(len(rig.ping(a, b)), 20)
        net.delay(a, b, 50)
        times = rig.ping(a, b)
        print(f"net: relay, 50 ms: round trip {rig.median(times):.2f} ms")
        self.assertEqual(len(times), 20)
        self.assertGreaterEqual(min(times), 50)
        self.assertLess(rig.median(times), 75)
        self.assertLess(rig.median(rig.ping(a, c)), 25)
        for host in (a, b, c):
            host.shape(100)
        rate = rig.iperf(a, b, seconds=3)
        if rate is not None:
            print(f"net: relay, 100 Mbit/s, 50 ms: iperf3 {rate:.1f} Mbit/s")
            self.assertLess(rate, 101)
            self.assertGreater(rate, 30)
        net.lose(a, c, 0.3)
        back = len(rig.ping(a, c, 200, 0.05))
        print(f"net: relay, 30 % loss each way: {back} of 200 came back")
        self.assertTrue(40 < back < 160, back)
        net.lose(a, c, 0)
        net.partition([a], [b, c])
        self.assertEqual(rig.ping(a, b, 2, 0.3), [])
        self.assertEqual(len(rig.ping(b, c, 2)), 2)
        net.heal([a], [b, c])
        b.cut()
        self.assertEqual(rig.ping(c, b, 2, 0.3), [])
        b.mend()
        self.assertEqual(len(rig.ping(c, b, 2)), 2)
        carried, lost, cut, _ = map(int, net.net.say("stats").split())
        self.assertTrue(carried > 100 and lost > 20 and cut >= 4)


class Chaos(unittest.TestCase):
    def test_disk_fills(self):
        disk = rig.SmallDisk(4)
        self.addCleanup(disk.close)
        disk.fill()
        with self.assertRaises(OSError):
            with open(os.path.join(disk.path, "more"), "wb", buffering=0) as file:
                file.write(bytes(8192))
        disk.empty()
        with open(os.path.join(disk.path, "more"), "wb") as file:
            file.write(bytes(8192))

    def test_stop_resume_kill(self):
        count = [sys.executable, "-uc", "import time\nwhile True:\n print(1)\n time.sleep(.01)"]
        process = subprocess.Popen(count, stdout=subprocess.PIPE)
        process.stdout.readline()
        rig.stop(process)
        state = f"/proc/{process.pid}/stat"

        def letter():
            with open(state, encoding="ascii") as file:
                return file.read().rsplit(")", 1)[1].split()[0]

        self.assertTrue(rig.wait_until(lambda: letter() == "T", 5))
        rig.resume(process)
        self.assertTrue(rig.wait_until(lambda: letter() != "T", 5))
        rig.kill(process)
        process.stdout.close()
        self.assertEqual(process.returncode, -9)


if __name__ == "__main__":
    rig.main(seconds=240)
