"""A joiner's state over a network with rates: three members go on with their rounds and give it anchor and momentum
together; it ends with their bits.

  test_state.py                 for CI: what is asserted is equality, not time
  MIB=128 SECONDS=60 test_state.py   by hand; prints what docs/design/pool.md#goals counts: state time / (bytes / rate), the others' loss
"""
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
import unittest

import rig

MEMBER = os.environ["MEMBER"]
MIB = int(os.environ.get("MIB", "24"))
FLOATS = int(os.environ.get("FLOATS", "200000"))  # of a round's payload
PAUSE_MS = int(os.environ.get("PAUSE_MS", "700"))
SECONDS = float(os.environ.get("SECONDS", "6"))  # of rounds before the joiner
RATE_MBIT = int(os.environ.get("RATE_MBIT", "100"))
PARTS, HEARTBEAT_MS, FRAGMENTS, PATIENCE = 16, 100, 8, 90
STATE_FLOATS = MIB * 1024 * 1024 // 4 // FRAGMENTS


class Member:
    def __init__(self, test, number, host):
        self.test, self.number, self.host = test, number, host
        self.dir = os.path.join(test.dir, str(number))
        os.mkdir(self.dir)
        self.lines, self.process = [], None

    def name(self):
        return f"{self.number}@{self.host.address}:{4400 + self.number}"

    def start(self):
        others = [m.name() for m in self.test.members if m is not self]
        self.process = self.host.start(
            [MEMBER, self.number, self.name().split("@")[1], self.dir, 3600, FLOATS, PARTS, PAUSE_MS, HEARTBEAT_MS] +
            others, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env=dict(os.environ, STATE_FLOATS=str(STATE_FLOATS)))
        threading.Thread(target=self.read, args=(self.process.stdout,), daemon=True).start()

    def read(self, pipe):
        for line in pipe:
            with self.test.lock:
                self.lines.append(json.loads(line))

    def all(self, key):
        with self.test.lock:
            return [line for line in self.lines if key in line]

    def version(self):
        done = self.all("version")
        return done[-1]["version"] if done else 0

    def roster(self):
        done = self.all("version")
        return done[-1]["roster"] if done else 0


class State(unittest.TestCase):
    def setUp(self):
        self.lock = threading.Lock()
        self.dir = tempfile.mkdtemp(prefix="atom-net-state-")
        self.rig = rig.Rig("bridge")
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        self.addCleanup(self.rig.close)
        self.members = []
        for i in range(4):
            host = self.rig.host()
            host.shape(RATE_MBIT)
            self.members.append(Member(self, i, host))

    def wait(self, condition, what):
        if not rig.wait_until(condition, PATIENCE, 0.01):
            self.fail(what + ": " + "; ".join(str(m.lines[-1:]) for m in self.members))

    def rounds(self, since_ns, until_ns):
        """Milliseconds from a round's freezing to its application, at the founder."""
        froze = {line["froze"]: line["ns"] for line in self.members[0].all("froze")}
        return [(line["ns"] - froze[line["version"]]) / 1e6 for line in self.members[0].all("version")
                if line["version"] in froze and since_ns <= line["ns"] < until_ns]

    def rate(self, since_ns, until_ns):
        """Versions a second at the founder, between the first and the last in that time."""
        at = [line["ns"] for line in self.members[0].all("version") if since_ns <= line["ns"] < until_ns]
        return (len(at) - 1) / (at[-1] - at[0]) * 1e9 if len(at) > 1 else float("nan")

    def staged(self, member):
        names = [n for n in os.listdir(member.dir) if n.startswith("state.")]
        return sum(os.stat(os.path.join(member.dir, n)).st_blocks * 512 for n in names)

    def test_killed_midway(self):
        """A joiner that is killed in its download goes on with what it has."""
        three, joiner = self.members[:3], self.members[3]
        for member in three:
            member.start()
        self.wait(lambda: all(m.roster() == 3 for m in three), "three members")
        joiner.start()
        self.wait(lambda: joiner.all("fetching"), "a state on its way")
        whole = joiner.all("fetching")[0]["fetching"]
        self.wait(lambda: self.staged(joiner) > 0.5 * whole, "half of it")
        joiner.process.kill()
        joiner.process.wait()
        self.assertFalse(joiner.all("adopted"))
        half = self.staged(joiner)
        with self.lock:
            joiner.lines.clear()
        joiner.start()
        self.wait(lambda: joiner.all("adopted"), "the rest")
        here = joiner.all("fetching")[0]["here"]
        print(f"killed with {half / whole:.0%} on the disk; began again with {here / whole:.0%}")
        self.assertGreater(here, 0.25 * whole)
        self.wait(lambda: all(m.roster() == 4 for m in self.members), "four members")

    def test_joiner(self):
        three, joiner = self.members[:3], self.members[3]
        for member in three:
            member.start()
        self.wait(lambda: all(m.roster() == 3 for m in three), "three members")
        time.sleep(SECONDS)
        begun_ns, before = time.monotonic_ns(), three[0].version()
        joiner.start()
        self.wait(lambda: joiner.all("adopted"), "a state")
        adopted = joiner.all("adopted")[0]
        self.wait(lambda: all(m.roster() == 4 for m in self.members), "four members")
        newest = max(m.version() for m in self.members)
        self.wait(lambda: all(m.version() > newest for m in self.members), "rounds of four")
        fetching = joiner.all("fetching")[0]
        best = fetching["fetching"] / (RATE_MBIT * 125000)
        took = (adopted["ns"] - fetching["ns"]) / 1e9
        waited = (adopted["ns"] - begun_ns) / 1e9
        quiet = self.rounds(0, begun_ns)
        busy = self.rounds(begun_ns, adopted["ns"])
        print(f"state of {fetching['fetching'] / 2**20:.0f} MiB: {took:.2f} s from its first word, {waited:.2f} s from "
              f"the start of the process, {best:.2f} s at {RATE_MBIT} Mbit/s: {took / best:.2f} and {waited / best:.2f}")
        if waited > 2 * took:
            for member in self.members:
                print(member.number, [(round((line["ns"] - begun_ns) / 1e9, 1), line["applied"], line["why"])
                                      for line in member.all("waits") if line["ns"] > begun_ns])
        if quiet and busy:
            print(f"rounds of the others: median {rig.median(quiet):.0f} ms before, {rig.median(busy):.0f} ms meanwhile "
                  f"({len(busy)} versions of {adopted['adopted'] - before})")
            rate_before = self.rate(begun_ns - int(SECONDS * 1e9), begun_ns)
            rate_busy = self.rate(fetching["ns"], adopted["ns"])
            print(f"versions a second: {rate_before:.3f} before, {rate_busy:.3f} meanwhile: "
                  f"{1 - rate_busy / rate_before:.1%} lost")
        # The same version everywhere, then its bits.
        for member in self.members:
            member.process.terminate()
        for member in self.members:
            self.assertEqual(member.process.wait(timeout=20), 0)
        self.wait(lambda: all(m.all("end") for m in self.members), "the last words")
        last = {m.number: m.all("end")[0] for m in self.members}
        print("sent", [last[i]["sent_bytes"] for i in range(4)], "of former states",
              [last[i]["kept_bytes"] for i in range(4)])
        sums = {}
        for end in last.values():
            sums.setdefault(end["applied"], set()).add(end["sum"])
        self.assertTrue(all(len(s) == 1 for s in sums.values()), sums)
        self.assertTrue(any(end["applied"] == last[3]["applied"] for i, end in last.items() if i != 3))
        self.assertGreaterEqual(sum(last[i]["sent_bytes"] > 0 for i in range(3)), 2)


if __name__ == "__main__":
    rig.main()
