"""A pool that sums gradients, of members of unequal speed: the program itself, in processes on loopback, some of them on
slower machines (slow.c).

What is asserted is what certificates say: who brought how many samples to which version, that all of them together are
the run's and no more, and that the weights are those of one trainer. No clock is looked at.
"""
import json
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
import tool  # noqa: E402
from test_pool_gradients import CONFIG, POOL, RUN, distance, floats  # noqa: E402

SLOW = os.environ.get("ATOM_SLOW", "build/release/tests/pool/atom_slow")
RUN = RUN.replace("gradient_accumulation_steps: 6", "gradient_accumulation_steps: {batch}")
HERE = ["--listen", "127.0.0.1:0", "--no-lan", "--no-directory", "--json", "--quiet"]
PATIENCE = 120  # seconds; a fifth of it is usual


class Speeds(tool.DataCase):
    MODEL = CONFIG

    def start(self, i, pause_ms, *args):
        """Member i: each micro-batch takes it so long."""
        process = subprocess.Popen([SLOW, "pool", *args, "--data", self.data, "-o", f"p{i}", *HERE], cwd=self.dir,
                                   env={**self.env, "ATOM_SLOW_MS": str(pause_ms)}, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def pool(self, batch, steps, pauses):
        """Members with these pauses train so many steps of so many micro-batches."""
        self.batch, self.steps = batch, steps
        self.settings = RUN.format(batch=batch, steps=steps)
        more = f"  global_batch_size: {2 * batch}\n"
        run = self.write("pool.yml", self.settings + POOL.format(peers=len(pauses), more=more).replace("0.2", "0.05"))
        first = self.start(0, pauses[0], "create", "--config", run, "--model", self.config)
        line = first.stdout.readline()
        self.assertTrue(line, first.stderr.read() if first.poll() is not None else "")
        ticket = json.loads(line)["ticket"]
        return [first] + [self.start(i, ms, "join", ticket) for i, ms in enumerate(pauses) if i > 0]

    def versions(self, i):
        """What certificates counted, in order, as member i applied them: version, {start of a key: samples}."""
        path = self.path(f"p{i}", "pool", "events.jsonl")
        if not os.path.exists(path):
            return []
        with open(path, encoding="ascii") as f:
            events = [json.loads(line) for line in f.read().split("\n")[:-1]]
        return [(e["version"], e["brought"]) for e in events if e["event"] == "certified"]

    def status(self, i):
        result = self.run_atom("pool", "status", f"p{i}", "--json")
        return result.json() if result.code == 0 else {"applied": 0, "roster": 0, "key": ""}

    def until(self, true, what):
        end = time.monotonic() + PATIENCE
        while not true():
            self.assertLess(time.monotonic(), end, f"waited too long until {what}; versions of p0: {self.versions(0)[-9:]}")
            time.sleep(0.1)

    def end(self, members):
        for process in members:
            out, err = process.communicate(timeout=PATIENCE)
            self.assertEqual(process.returncode, 0, out + err)

    def as_one_trainer(self, n):
        """Every sample was counted once, in versions that all saw alike, and all n have the weights of one trainer."""
        seen = [dict(self.versions(i)) for i in range(n)]
        for other in seen[1:]:
            shared = seen[0].keys() & other.keys()
            self.assertTrue(shared)
            self.assertEqual([seen[0][v] for v in shared], [other[v] for v in shared])
        self.assertEqual(sum(sum(b.values()) for b in seen[0].values()), 2 * self.batch * self.steps)
        self.ok("train", self.write("run.yml", self.settings), "--model", self.config, "--data", self.data, "-o", "alone",
                "--quiet")
        last = f"checkpoint-{self.steps}", "model.safetensors"
        alone, first = floats(self.path("alone", *last)), floats(self.path("p0", *last))
        self.assertLess(distance(first, alone), 1e-5)
        for i in range(1, n):
            self.assertEqual(floats(self.path(f"p{i}", *last)), first)

    def test_shares_follow_speeds(self):
        """Speeds 1, 1, 1/2, 1/10: the slow bring little, the fast bring the rest."""
        members = self.pool(batch=48, steps=40, pauses=[30, 30, 60, 300])
        self.until(lambda: self.status(0)["roster"] == 4, "all are members")
        keys = {self.status(i)["key"][:8]: i for i in range(4)}
        self.end(members)
        self.as_one_trainer(4)
        versions = [b for _, b in self.versions(0)]
        brought = [0] * 4
        for version in versions[len(versions) // 3:]:  # until then shares are found
            for key, samples in version.items():
                brought[keys[key]] += samples
        share = [b / sum(brought) for b in brought]
        self.assertLess(len(versions), 64, "what is late costs a second version of nearly every step")
        self.assertGreater(share[3], 0, "the slowest is leased what it can do in time")
        self.assertLess(share[3], 0.125, share)  # half of an equal part
        self.assertGreater(share[0] + share[1], 0.55, share)
        self.assertGreater(min(share[:2]), share[2], share)
        self.assertGreater(share[2], share[3], share)

    def test_one_stops_for_a_while(self):
        """SIGSTOP for some versions: they are made without it, its part is brought by others, and it comes back."""
        members = self.pool(batch=12, steps=100, pauses=[15, 15, 15])
        applied = lambda i: self.status(i)["applied"]
        self.until(lambda: applied(0) >= 10, "ten versions are there")
        key = self.status(2)["key"][:8]
        members[2].send_signal(signal.SIGSTOP)
        stopped = applied(0)
        self.until(lambda: applied(0) >= stopped + 8, "others go on without the one that is stopped")
        without = [b for v, b in self.versions(0) if v > stopped + 3]
        self.assertEqual([b for b in without if key in b], [], "who is stopped brings nothing")
        self.assertTrue(all(len(b) for b in without), "versions that count nothing")
        members[2].send_signal(signal.SIGCONT)
        again = applied(0)
        self.until(lambda: any(key in b for v, b in self.versions(0) if v > again) or members[0].poll() is not None,
                   "it brings something again")
        self.assertTrue(any(key in b for v, b in self.versions(0) if v > again), "it came back too late")
        self.end(members)
        self.as_one_trainer(3)


if __name__ == "__main__":
    SLOW = os.path.abspath(SLOW)
    tool.main()
