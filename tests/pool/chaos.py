"""Whether a pool of processes ever stands still while somebody in it works.

  ATOM=$PWD/build/release/atom python3 tests/pool/chaos.py [--seed N] [--runs N] [--sync MODE] [--more "key: value" ...]

Three to five members on loopback are paused, resumed, killed, started again, stopped and continued at random, so that more
than half of them are always there and one computes. A run fails if for --limit seconds nothing is certified; then every member's
status is shown. By hand, no test: it is as long as it is asked to be, and a busy machine makes it slow.
"""
import argparse
import os
import random
import signal
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "cli"))

import test_pool_gradients  # noqa: E402

ASKED = None
WORKS, PAUSED, STOPPED, GONE = "works", "paused", "stopped", "gone"


class Chaos(test_pool_gradients.Members):
    def begin(self, rng):
        run = test_pool_gradients.RUN.replace("gradient_accumulation_steps: 6", f"gradient_accumulation_steps: {rng.choice([1, 2, 6])}")
        test_pool_gradients.POOL = test_pool_gradients.POOL.replace("sync: gradients", f"sync: {ASKED.sync}")
        first, ticket = self.create(1000000, 2, "".join(f"  {line}\n" for line in ASKED.more), run=run)
        self.members = [first, *(self.join(i, ticket) for i in range(1, rng.choice([3, 4, 5])))]
        self.states = [WORKS] * len(self.members)

    def here(self, states):
        """More than half are there, and one of them computes."""
        return 2 * sum(s in (WORKS, PAUSED) for s in states) > len(states) and WORKS in states

    def order(self, word, i):
        return self.run_atom("pool", word, f"p{i}").code == 0

    def change(self, rng):
        """One member's state, if enough stay; says which."""
        i = rng.randrange(len(self.members))
        to = WORKS if self.states[i] != WORKS else rng.choice([PAUSED, PAUSED, GONE, STOPPED])
        if not self.here([to if k == i else s for k, s in enumerate(self.states)]):
            return
        process, was = self.members[i], self.states[i]
        if to == PAUSED or was == PAUSED:
            if not self.order("pause" if to == PAUSED else "resume", i):
                return  # it has only just begun, and does not listen yet
        elif to == GONE:
            process.kill()
            process.communicate()
        elif was == GONE:
            self.members[i] = self.start("join", "-o", f"p{i}", "--listen", "127.0.0.1:0")
        else:
            process.send_signal(signal.SIGSTOP if to == STOPPED else signal.SIGCONT)
        self.states[i] = to
        print(f"  member {i}: {was}, now {to}", flush=True)

    def statuses(self, *more):
        return [self.run_atom("pool", "status", f"p{i}", *more) for i, s in enumerate(self.states) if s in (WORKS, PAUSED)]

    def certified(self):
        return max([s.json()["certified_samples"] for s in self.statuses("--json") if s.code == 0], default=0)

    def run_once(self, seed):
        rng = random.Random(seed)
        self.begin(rng)
        end, most, longest = time.monotonic() + ASKED.seconds, 0, 0
        since = following = time.monotonic()
        while time.monotonic() < end:
            samples, now = self.certified(), time.monotonic()
            if samples > most:
                longest, most, since = max(longest, now - since), samples, now
            if now - since > ASKED.limit:
                for s in self.statuses():
                    print(s.out)
                self.fail(f"seed {seed}: nothing was certified for {now - since:.0f} s: {self.states}")
            if now >= following:
                following = now + rng.choice([0.2, 1, 3, 8])
                self.change(rng)
            time.sleep(0.2)
        print(f"seed {seed}: {most} samples; at most {longest:.1f} s without any", flush=True)

    def test_it(self):
        self.run_once(ASKED.seed)


def main():
    global ASKED
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--runs", type=int, default=1, help="with this seed and those after it")
    p.add_argument("--seconds", type=float, default=60)
    p.add_argument("--limit", type=float, default=30)
    p.add_argument("--sync", default="gradients", choices=["gradients", "parameters", "slices"])
    p.add_argument("--more", nargs="*", default=[], help="lines of the pool's settings")
    ASKED = p.parse_args()
    for _ in range(ASKED.runs):
        if not unittest.main(argv=[sys.argv[0]], exit=False).result.wasSuccessful():
            sys.exit(1)
        ASKED.seed += 1


if __name__ == "__main__":
    main()
