"""What shares a box keeps that takes turns between two pools while processes are killed. By hand:

    ATOM=build/release/atom SECONDS=480 KILLS=12 SLICE=8 tests/pool/measure_host.py

Each pool has one other member, which keeps it going. Every SECONDS / KILLS seconds the process that computes or the host itself
is killed with SIGKILL, as a seeded draw says; a host is started again at once. Prints what each pool got beside its share, how
many turns there were, and what certificates say: versions of both pools, contributions of the box, and the keys it had.
"""
import json
import os
import random
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import test_host  # noqa: E402
import tool  # noqa: E402

SECONDS, KILLS, SLICE = (float(os.environ.get(k, d)) for k, d in (("SECONDS", 480), ("KILLS", 12), ("SLICE", 8)))
SHARES = {"a": 2, "b": 1}


class Measure(test_host.Host):
    def kill(self, host, draw, kills):
        seen = self.asked()
        if not seen:
            return host
        if draw.random() < 0.5:
            kills["host"] += 1
            host.kill()
            host.wait()
            return self.host()
        if seen["process"]:
            kills[seen["state"]] = kills.get(seen["state"], 0) + 1
            os.kill(seen["process"], signal.SIGKILL)
        return host

    def test_shares(self):
        draw, kills, most = random.Random(1), {"host": 0}, 0
        self.pools(SHARES, slice_seconds=SLICE)
        host = self.host()
        self.keys = {self.until(f"other-{n}", "it runs", lambda s: True)["key"][:8] for n in SHARES}
        self.both_compute({}, "both have had a turn")
        began, next_kill = time.monotonic(), SECONDS / KILLS
        while time.monotonic() - began < SECONDS:
            most = max(most, len(self.processes()))
            if time.monotonic() - began > next_kill:
                host = self.kill(host, draw, kills)
                next_kill += SECONDS / KILLS
            time.sleep(0.2)
        seen = self.until_asked("it answers", lambda s: True)
        host.send_signal(signal.SIGINT)
        self.ended(host, 130)
        log, total = self.log(), sum(self.turns_of(seen).values())
        result = {"turns": log.count("its turn begins"), "kills": kills, "processes_at_once": most,
                  "hours_of_clock": (time.monotonic() - began) / 3600, "computed_part": total / (time.monotonic() - began)}
        for p in seen["pools"]:
            name, versions = p["name"], [v for v, _ in self.brought(p["name"])]
            mine = {k for _, b in self.brought(name) for k in b} - self.keys
            result[name] = {"share": p["due"], "got": p["got"], "off_percent": 100 * (p["got"] / p["due"] - 1),
                            "switch_s": p["switch_s"], "first_round_s": p["first_round_s"], "versions": len(versions),
                            "only_grow": versions == sorted(set(versions)),
                            "missing": versions[-1] - versions[0] + 1 - len(set(versions)), "keys_of_the_box": len(mine),
                            "contributed_to": sum(1 for _, b in self.brought(name) if mine & b.keys())}
        print(json.dumps(result, indent=1), flush=True)


if __name__ == "__main__":
    sys.argv[1:] = ["Measure.test_shares"]
    tool.main()
