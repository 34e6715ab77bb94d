"""A pair over 400 Mbit/s at round trips of 2, 50 and 100 ms: the gate and plain nanomsg beside iperf3 with as many
streams, both ways at once, on the same links in the same run (docs/design/pool.md#goals). By hand, on a quiet machine; no test.

  NODE=build/net_node RELAY=build/net_relay python3 tests/net/measure_pair.py [--rtt MS ...] [--rate MBIT] [--raised]

--raised: tcp_rmem and tcp_wmem up to 32 MiB; else what most hosts have, 6 and 4 MiB. Always cubic, two streams.
Prints the share of the machine's cores that was idle meanwhile: where it is near 0, the machine was the limit.
"""
import argparse
import json
import os
import subprocess
import sys
import threading

import rig

NODE = os.environ.get("NODE", "build/net_node")
PART, STREAMS = 256 * 1024, 2
STOCK = {"net.ipv4.tcp_rmem": "4096 131072 6291456", "net.ipv4.tcp_wmem": "4096 16384 4194304"}
RAISED = {"net.ipv4.tcp_rmem": "4096 131072 33554432", "net.ipv4.tcp_wmem": "4096 65536 33554432"}


def ticks():
    with open("/proc/stat", encoding="ascii") as file:
        return [int(x) for x in file.readline().split()[1:]]


class Idle:
    """Cores idle between with and out."""

    def __enter__(self):
        self.before = ticks()
        return self

    def __exit__(self, *_):
        spent = [b - a for a, b in zip(self.before, ticks())]
        self.cores = os.cpu_count() * (spent[3] + spent[4]) / max(1, sum(spent))


def iperf_both(a, b, seconds):
    """(a to b, b to a) in Mbit/s as the receivers count it."""
    server = b.start(["iperf3", "-s", "-1", "--forceflush"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                     text=True)
    server.stdout.readline()
    server.stdout.readline()
    threading.Thread(target=server.stdout.read, daemon=True).start()
    done = a.run(["iperf3", "-c", b.address, "-t", seconds, "-P", STREAMS, "--bidir", "-J"], timeout=seconds + 30)
    end = json.loads(done.stdout)["end"]
    server.wait(timeout=20)
    return end["sum_received"]["bits_per_second"] / 1e6, end["sum_received_bidir_reverse"]["bits_per_second"] / 1e6


def node_both(a, b, transport, bulk):
    names = [f"{i}@{h.address}:{4400 + i}" for i, h in enumerate((a, b))]
    running = [h.start([NODE, i, names[i].split("@")[1], 60, 10, bulk, PART, transport, names[1 - i]],
                       stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) for i, h in enumerate((a, b))]
    reports = [json.loads(p.communicate(timeout=90)[0]) for p in running]
    if any(not r["finished"] or r["wrong"] or r["twice"] for r in reports):
        sys.exit(f"not everything came, whole and once: {reports}")
    return reports[1]["mbit_per_s"], reports[0]["mbit_per_s"]


def main():
    ask = argparse.ArgumentParser()
    ask.add_argument("--rtt", type=float, nargs="*", default=[2, 50, 100])
    ask.add_argument("--rate", type=float, default=400)
    ask.add_argument("--seconds", type=float, default=8)
    ask.add_argument("--raised", action="store_true")
    ask.add_argument("--transports", nargs="*", default=["gate", "plain"])
    asked = ask.parse_args()
    print("rtt ms  limits   what     there  back  Mbit/s  of iperf3  idle cores  TCP")
    for rtt in asked.rtt:
        base = None
        for what in ["iperf3"] + asked.transports:
            net = rig.Rig("relay")
            a, b = hosts = [net.host(), net.host()]
            net.delay(a, b, rtt)
            for host in hosts:
                control = host.congestion_control("cubic")
                for key, value in (RAISED if asked.raised else STOCK).items():
                    host.sysctl(key, value)
                host.shape(asked.rate, queue_ms=50 + rtt)
            with Idle() as idle:
                there, back = iperf_both(a, b, asked.seconds) if what == "iperf3" else \
                    node_both(a, b, what, int(asked.seconds * asked.rate * 1e6 / 8 / PART))
            net.close()
            base = base or (there + back) / 2
            print(f"{rtt:6.0f}  {'raised' if asked.raised else 'stock ':7}  {what:7} {there:6.0f} {back:5.0f}  "
                  f"{(there + back) / 2:6.0f}  {(there + back) / 2 / base:9.3f}  {idle.cores:10.2f}  {control}", flush=True)


if __name__ == "__main__":
    rig.inside(seconds=600)
    main()
