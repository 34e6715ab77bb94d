"""What a member that stops for 20 s costs a pool that sums gradients, beside what it would have brought itself.

  ATOM=$PWD/build/release/atom ATOM_SLOW=$PWD/build/release/tests/pool/atom_slow python3 tests/pool/measure_stopped.py [--pauses MS ...]

Members are processes on loopback whose micro-batches sleep (slow.c). The pool's rate is taken while all run; then the last
member is stopped and continued, --times times, with as long in between as a stop lasts, twice. "Cost" is the
samples that are missing at the end beside that rate, in units of what the stopped member brings in the time that it stood
still. 1 is its own work and no more. By hand, no test: what is measured depends on the clock.
"""
import argparse
import json
import os
import signal
import sys
import time
import unittest

import test_speeds

ASKED = None


class Stopped(test_speeds.Speeds):
    def rows(self):
        """Seconds and samples of each version that member 0 applied."""
        with open(self.path("p0", "pool", "events.jsonl"), encoding="ascii") as f:
            events = [json.loads(line) for line in f.read().split("\n")[:-1]]
        return [(e["time"], e["brought"]) for e in events if e["event"] == "certified"]

    def wait(self, members, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.assertTrue(all(m.poll() is None for m in members), "a member ended")
            time.sleep(0.1)

    def test_cost(self):
        members = self.pool(batch=ASKED.batch, steps=100000, pauses=ASKED.pauses)
        self.until(lambda: self.status(0)["roster"] == len(members), "all are members")
        key = self.status(len(members) - 1)["key"][:8]
        self.wait(members, ASKED.settle)
        began = time.time()
        self.wait(members, ASKED.settle)
        middle = time.time()
        for _ in range(ASKED.times):
            members[-1].send_signal(signal.SIGSTOP)
            self.wait(members, ASKED.seconds)
            members[-1].send_signal(signal.SIGCONT)
            self.wait(members, 2 * ASKED.seconds)
        end = time.time()
        for m in members:
            m.kill()

        def brought(a, b):
            """Samples between the first and the last version of that time, those of the stopped member, seconds."""
            rows = [r for r in self.rows() if a <= r[0] <= b]
            counted = [sum(v.values()) for _, v in rows[1:]], [v.get(key, 0) for _, v in rows[1:]]
            return sum(counted[0]), sum(counted[1]), rows[-1][0] - rows[0][0], len(rows) - 1

        samples, own, seconds, versions = brought(began, middle)
        rate, own_rate = samples / seconds, own / seconds
        samples, own, seconds, versions_after = brought(middle, end)
        missing = rate * seconds - samples
        stood = own_rate * ASKED.seconds * ASKED.times
        print(json.dumps({"rate": round(rate, 2), "own_rate": round(own_rate, 2), "versions": versions,
                          "rate_with_stops": round(samples / seconds, 2), "own_with_stops": round(own / seconds, 2),
                          "versions_with_stops": versions_after, "seconds": round(seconds, 1), "missing": round(missing, 1),
                          "own_work": round(stood, 1), "cost": round(missing / stood, 2), "load": os.getloadavg()}))


if __name__ == "__main__":
    ask = argparse.ArgumentParser()
    ask.add_argument("--pauses", type=int, nargs="*", default=[100, 100, 100], help="ms of a micro-batch of each member")
    ask.add_argument("--batch", type=int, default=48, help="micro-batches of a step")
    ask.add_argument("--settle", type=float, default=60, help="seconds until it counts, and that all run together")
    ask.add_argument("--seconds", type=float, default=20, help="that the last member stands still")
    ask.add_argument("--times", type=int, default=2)
    ASKED = ask.parse_args()
    test_speeds.SLOW = os.path.abspath(test_speeds.SLOW)
    suite = unittest.TestSuite([Stopped("test_cost")])
    sys.exit(not unittest.TextTestRunner().run(suite).wasSuccessful())
