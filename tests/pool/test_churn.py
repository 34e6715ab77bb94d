"""Sixteen hosts train along in one pool while they are killed, frozen, cut off, filled up and robbed; a supervisor
starts again what ended, and does nothing else.

  test_churn.py                              a scaled piece for CI: all kinds of faults, asserts life and equal anchors
  SECONDS=1800 FAULTS=62 test_churn.py       the churn of docs/design/pool.md#goals, by hand; FAULTS=0 beside it is the fault-free run
  SEED=N MEMBERS=N STEP=S FLOATS=N           prints one line of JSON with the numbers; KEEP=DIR keeps the logs

Computing is a pause (timed.c); pool, agreement, gates, seam, checkpoints and disks are real, in network namespaces of
their own (tests/net/rig.py). Faults, all from one seed:
  kill   kill -9
  stop   SIGSTOP for some seconds: the kernel answers, the program does not
  cut    the link carries nothing for some seconds, and nobody is told
  disk   the host's disk is full for some seconds
  lost   kill -9, and the directory is damaged: the anchor is gone, the member's memory, or all of it
Work is what the pool has certified: samples in the newest certificate. Nothing is asserted about rates.
"""
import collections
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "net"))
import rig  # noqa: E402  pylint: disable=wrong-import-position

TIMED = os.environ["TIMED"]
MEMBERS = int(os.environ.get("MEMBERS", "16"))
SECONDS = float(os.environ.get("SECONDS", "40"))
FAULTS = int(os.environ.get("FAULTS", "12"))
SEED = int(os.environ.get("SEED", "1"))
STEP = float(os.environ.get("STEP", "0.5"))
FLOATS = int(os.environ.get("FLOATS", "262144"))
PATIENCE = float(os.environ.get("PATIENCE", "180"))  # for anything to happen; nothing is asserted about less
DISK_MIB = 16 + 56 * FLOATS * 4 // (1 << 20)
# How many of each kind among 62.
MIX = {"kill": 26, "stop": 12, "cut": 12, "disk": 6, "lost": 6}
LOSSES = ("anchor", "member", "all")
# As tools/atom-pool@.service: what ended is started again after five seconds.
RESTART = float(os.environ.get("RESTART", "5"))


def schedule(rng):
    """(second, kind, member, seconds or what is lost), ascending; never two at one member at once."""
    kinds = [k for k, n in MIX.items() for _ in range(max(1, round(n * FAULTS / 62)))] if FAULTS else []
    rng.shuffle(kinds)
    kinds = kinds[:FAULTS] if FAULTS >= len(MIX) else kinds
    begin, end = 0.03 * SECONDS, 0.93 * SECONDS
    times = sorted(rng.uniform(begin, end) for _ in kinds)
    busy, faults, losses = [0.0] * MEMBERS, [], 0
    for at, kind in zip(times, kinds):
        lasts = min(20.0, max(2.0, rng.expovariate(1 / 8)))
        what = lasts
        free = [m for m in range(MEMBERS) if busy[m] <= at]
        if kind == "lost":
            what = LOSSES[losses % len(LOSSES)]
            losses += 1
        if what == "all":
            free = [m for m in free if m > 0]  # the owner's key exists once: its owner keeps a copy
        member = rng.choice(free or list(range(1, MEMBERS)))
        if kind == "lost" and losses == 1:
            member = 0  # the founder is not spared: it comes back to a pool that went on
        busy[member] = max(busy[member], at + lasts + 10)
        faults.append((at, kind, member, what))
    return faults


class Member:
    """A host, its disk and its process, and who starts that again."""

    def __init__(self, pool, number):
        self.pool, self.number = pool, number
        self.host = pool.rig.host()
        self.disk = rig.SmallDisk(DISK_MIB)
        self.dir = os.path.join(self.disk.path, "run")
        self.process = self.seen = None
        self.lines, self.reports = [], []  # reports: (time, line) of versions
        self.ended_at = None
        self.restarts, self.quick = 0, 0
        self.full = False

    def start(self):
        where = f"{self.host.address}:4400"
        if self.number == 0 and self.pool.ticket is None:
            args = ["create", self.dir, where, f"floats={FLOATS}", "heartbeat=1", "sync=40", "fragments=4"]
        elif self.number == 0:
            args = ["open", self.dir, where]
        else:
            args = ["join", self.dir, where, self.pool.ticket]
        self.process = self.host.start([TIMED] + args + [f"step={STEP}", f"save={int(20 / STEP)}"],
                                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
        self.ended_at = None
        threading.Thread(target=self.read, args=(self.process,), daemon=True).start()

    def read(self, process):
        for line in process.stdout:
            now = time.monotonic()
            with self.pool.lock:
                self.lines.append(f"{now - self.pool.begun:8.2f} {line.rstrip()}")
                try:
                    said = json.loads(line)
                except ValueError:
                    continue  # words of the log, or cut by a kill
                if "version" in said or "end" in said:
                    self.reports.append((now, said))
                elif "ticket" in said:
                    self.pool.ticket = said["ticket"]

    def watch(self):
        """The supervisor: nothing but starting again what ended."""
        now = time.monotonic()
        if self.process.poll() is None:
            return
        if self.ended_at is None:
            self.ended_at = now
            self.pool.exits[self.process.returncode] += 1
        elif now - self.ended_at >= RESTART:
            self.restarts += 1
            self.start()

    def newest(self, key):
        with self.pool.lock:
            return self.reports[-1][1].get(key, 0) if self.reports else 0


class Pool:
    def __init__(self):
        self.lock = threading.Lock()
        self.begun = time.monotonic()
        self.rig = rig.Rig("bridge")
        self.ticket = None
        self.exits = collections.Counter()
        self.undo = []  # (when, what)
        self.members = []
        for number in range(MEMBERS):
            self.members.append(Member(self, number))

    def close(self):
        keep = os.environ.get("KEEP")
        for m in self.members:
            if keep:
                os.makedirs(keep, exist_ok=True)
                with open(os.path.join(keep, f"{m.number}.log"), "w", encoding="utf-8") as file:
                    file.write("\n".join(m.lines))
                events = os.path.join(m.dir, "events.jsonl")
                if os.path.exists(events):
                    shutil.copy(events, os.path.join(keep, f"{m.number}.events"))
        self.rig.close()
        for m in self.members:
            m.disk.close()

    def turn(self):
        """One turn of the supervisor, and what was done for a while is undone."""
        now = time.monotonic()
        for m in self.members:
            m.watch()
        for entry in [e for e in self.undo if e[0] <= now]:
            self.undo.remove(entry)
            entry[1]()
        time.sleep(0.05)

    def until(self, test, what, seconds=PATIENCE):
        end = time.monotonic() + seconds
        while not test():
            if time.monotonic() > end:
                raise AssertionError(f"not in time: {what}\n{self.explain()}")
            self.turn()

    def explain(self):
        with self.lock:
            return "\n".join(f"-- {m.number}, pid {m.process.pid}, exit {m.process.poll()}:\n" + "\n".join(m.lines[-4:])
                             for m in self.members)

    def fault(self, kind, number, what):
        m, now = self.members[number], time.monotonic()
        alive = m.process.poll() is None
        if kind == "kill" and alive:
            rig.kill(m.process)
        elif kind == "stop" and alive:
            process = m.process
            rig.stop(process)
            self.undo.append((now + what, lambda: process.poll() is None and rig.resume(process)))
        elif kind == "cut":
            m.host.cut()
            self.undo.append((now + what, m.host.mend))
        elif kind == "disk":
            m.disk.fill()
            self.undo.append((now + what, m.disk.empty))
        elif kind == "lost":
            if alive:
                rig.kill(m.process)
            for name in {"anchor": ["anchor"], "member": ["member"], "all": [""]}[what]:
                shutil.rmtree(os.path.join(m.dir, name), ignore_errors=True)

    def certified(self):
        return max(m.newest("certified") for m in self.members)

    def conflicts(self):
        """Versions that two members hold with different anchors."""
        held, wrong = {}, []
        with self.lock:
            for m in self.members:
                for _, said in m.reports:
                    version = said.get("version", said.get("end"))
                    if held.setdefault(version, said["anchor"]) != said["anchor"]:
                        wrong.append((m.number, version))
        return wrong

    def common(self, since):
        """The newest version above `since` that all have reported; 0: none."""
        with self.lock:
            sets = [{s["version"] for _, s in m.reports if s.get("version", 0) > since} for m in self.members]
        return max(set.intersection(*sets), default=0)


def back_after(pool, at, number):
    """Seconds from a fault until the member's next report; None: never."""
    with pool.lock:
        return next((t - at for t, s in pool.members[number].reports if t > at and "version" in s), None)


class Churn(unittest.TestCase):
    def setUp(self):
        self.pool = Pool()
        self.addCleanup(self.pool.close)

    def test_churn(self):
        pool, rng = self.pool, random.Random(SEED)
        faults = schedule(rng)
        pool.members[0].start()
        while pool.ticket is None:
            time.sleep(0.05)
            self.assertIsNone(pool.members[0].process.poll(), pool.members[0].lines)
        for m in pool.members[1:]:
            m.start()
        pool.until(lambda: all(m.newest("roster") == MEMBERS for m in pool.members), "all are members")
        begun = time.monotonic()
        came_in = begun - pool.begun
        before, version_before = pool.certified(), pool.members[0].newest("version")
        applied, waiting = [], list(faults)
        while time.monotonic() < begun + SECONDS:
            while waiting and time.monotonic() >= begun + waiting[0][0]:
                _, kind, number, what = waiting.pop(0)
                applied.append((time.monotonic(), kind, number, what))
                pool.fault(kind, number, what)
            pool.turn()
        work = pool.certified() - before
        version_after = max(m.newest("version") for m in pool.members)
        # By themselves, and with what the supervisor did: all come back, and all hold the same.
        pool.until(lambda: not pool.undo, "all faults are over")
        since = max(m.newest("version") for m in pool.members)
        pool.until(lambda: pool.common(since) > 0, "a version that all hold")
        self.assertEqual(pool.conflicts(), [])
        pool.until(lambda: pool.members[0].newest("version") > version_before + 2, "the pool goes on")
        self.report(applied, work, version_after - version_before, came_in)

    def report(self, applied, work, versions, came_in):
        pool, ideal = self.pool, MEMBERS * SECONDS / STEP * 8
        backs = collections.defaultdict(list)
        for at, kind, number, _ in applied:
            backs[kind].append(back_after(pool, at, number))
        failed = collections.Counter(line.split('"failed":"')[1][:100] for m in pool.members for line in m.lines
                                     if '"failed"' in line)
        for m in pool.members:
            if m.process.poll() is None:
                m.process.terminate()
        for m in pool.members:
            m.process.wait(timeout=PATIENCE)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        print(json.dumps({
            "seed": SEED, "members": MEMBERS, "seconds": SECONDS, "faults": collections.Counter(a[1] for a in applied),
            "versions": versions, "work": work, "of_ideal": round(work / ideal, 4), "came_in_s": round(came_in, 1),
            "back_s": {k: sorted(round(b, 1) if b is not None else -1 for b in v) for k, v in backs.items()},
            "restarts": sum(m.restarts for m in pool.members), "exits": pool.exits, "failed": failed,
            "busy": [m.newest("busy") for m in pool.members][:4],
            "cores": round((used.ru_utime + used.ru_stime) / (time.monotonic() - pool.begun), 2)}), flush=True)


if __name__ == "__main__":
    rig.main(seconds=SECONDS + 3 * PATIENCE + 60)
