"""Real processes over the gate through a shaped link: everything arrives, whole, once and in order. Rates are printed
beside iperf3's on the same link; nothing asserts them."""
import json
import os
import subprocess
import unittest

import rig

NODE = os.environ["NODE"]
PART = 256 * 1024


def talk(hosts, seconds, control, bulk, part=PART, transport="gate", during=None):
    """Runs one node per host, all linked to all; returns their reports."""
    names = [f"{i}@{h.address}:{4400 + i}" for i, h in enumerate(hosts)]
    running = []
    for i, host in enumerate(hosts):
        others = [name for j, name in enumerate(names) if j != i]
        running.append(host.start([NODE, i, names[i].split("@")[1], seconds, control, bulk, part, transport] + others,
                                  stdout=subprocess.PIPE, text=True))
    if during:
        during(running)
    reports = []
    for process in running:
        out, _ = process.communicate(timeout=seconds + 30)
        reports.append(dict(json.loads(out), code=process.returncode))
    return reports


class Gate(unittest.TestCase):
    def check(self, reports, hosts, control, bulk):
        for report in reports:
            others = len(hosts) - 1
            self.assertTrue(report["finished"], report)
            self.assertEqual(report["control"], others * control, report)
            self.assertEqual(report["bulk"], others * bulk, report)
            self.assertEqual((report["wrong"], report["twice"], report["downs"], report["code"]), (0, 0, 0, 0), report)

    def test_two_over_100_mbit_50_ms(self):
        net = rig.Rig("relay")
        self.addCleanup(net.close)
        a, b = hosts = [net.host(), net.host()]
        net.delay(a, b, 50)
        for host in hosts:
            host.shape(100)
        raw = rig.iperf(a, b, seconds=4, streams=4)
        before = a.wire()[0]
        reports = talk(hosts, 90, 200, 160)
        sent = a.wire()[0] - before
        self.check(reports, hosts, 200, 160)
        raw = f"{raw:.1f}" if raw else "not measured"
        print(f"net: gate, 2 hosts, 100 Mbit/s, 50 ms, both ways at once: {reports[0]['mbit_per_s']} and "
              f"{reports[1]['mbit_per_s']} Mbit/s of payload; iperf3 (4 streams, one way) {raw}; "
              f"wire/payload {sent / (160 * PART):.3f}; peak RSS {reports[0]['rss_bytes'] / 2**20:.0f} MiB")

    def test_three_on_a_bridge(self):
        net = rig.Rig("bridge")
        self.addCleanup(net.close)
        hosts = [net.host() for _ in range(3)]
        for host in hosts:
            host.shape(100)
        for transport in ("gate", "plain"):
            reports = talk(hosts, 90, 100, 80, transport=transport)
            self.check(reports, hosts, 100, 80)
            print(f"net: {transport}, 3 hosts all to all, 100 Mbit/s: " +
                  ", ".join(f"{r['mbit_per_s']}" for r in reports) + " Mbit/s received")

    def test_loss(self):
        net = rig.Rig("relay")
        self.addCleanup(net.close)
        a, b = hosts = [net.host(), net.host()]
        net.delay(a, b, 20)
        net.lose(a, b, 0.01)
        for host in hosts:
            host.shape(100)
        reports = talk(hosts, 90, 100, 40)
        self.check(reports, hosts, 100, 40)
        print(f"net: gate, 100 Mbit/s, 20 ms, 1 % loss each way: {reports[0]['mbit_per_s']} Mbit/s")


if __name__ == "__main__":
    rig.main(seconds=280)
