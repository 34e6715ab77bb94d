"""iperf3 on the links of `atom bench allreduce`: N hosts on a bridge, every one sends to the next at once, so that all
links are full both ways. Its payload rate is what an all-reduce over the same links could have at best. By hand.

  python3 tests/net/measure_ring.py [--peers N] [--rate MBIT] [--seconds S]
"""
import argparse
import json
import os
import subprocess
import threading

import rig
from measure_pair import Idle


def main():
    ask = argparse.ArgumentParser()
    ask.add_argument("--peers", type=int, default=8)
    ask.add_argument("--rate", type=float, nargs="*", default=[100, 200])
    ask.add_argument("--seconds", type=float, default=8)
    asked = ask.parse_args()
    for rate in asked.rate:
        net = rig.Rig("bridge")
        hosts = [net.host() for _ in range(asked.peers)]
        for host in hosts:
            control = host.congestion_control("cubic")
            host.shape(rate)
            server = host.start(["iperf3", "-s", "-1", "--forceflush"], stdout=subprocess.PIPE,
                                stderr=subprocess.DEVNULL, text=True)
            server.stdout.readline()
            server.stdout.readline()
            threading.Thread(target=server.stdout.read, daemon=True).start()
        with Idle() as idle:
            clients = [host.start(["iperf3", "-c", hosts[(i + 1) % len(hosts)].address, "-t", asked.seconds, "-J"],
                                  stdout=subprocess.PIPE, text=True) for i, host in enumerate(hosts)]
            rates = [json.loads(c.communicate(timeout=asked.seconds + 40)[0])["end"]["sum_received"]["bits_per_second"]
                     for c in clients]
        net.close()
        print(f"iperf3 ({control}), {asked.peers} hosts in a ring, {rate:.0f} Mbit/s: mean {sum(rates) / len(rates) / 1e4 / rate:.1f}"
              f" %, least {min(rates) / 1e4 / rate:.1f} % of the rate; {idle.cores:.2f} of {os.cpu_count()} cores idle",
              flush=True)


if __name__ == "__main__":
    rig.inside(seconds=300)
    main()
