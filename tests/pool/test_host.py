"""Several pools on one box: the program itself, in processes on loopback. Two pools of one other member each, a box that takes
turns between them, and kills of whatever computes.

What is asserted is what certificates say, as the other members applied them, and which processes there are.
"""
import json
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
import tool  # noqa: E402
from test_pool_train import Members  # noqa: E402

PATIENCE = 150  # seconds; a third of it is usual
HERE = 'no_lan: true\nno_directory: true\nlisten: ["127.0.0.1:0"]\n'


class Host(Members):
    def pools(self, names, slice_seconds=3, steps=10**6, more=""):
        """A pool of each name, with a member that keeps it, and the box's list of them."""
        os.mkdir(self.path("box"))
        items = ""
        for name, share in names.items():
            _, ticket = self.create(f"other-{name}", steps=steps)
            os.makedirs(self.path("box", name))
            self.write(os.path.join("box", name, "host.yml"), HERE)
            os.chmod(self.write(os.path.join("box", f"{name}.txt"), ticket + "\n"), 0o600)
            items += f"  - dir: {name}\n    share: {share}\n    ticket: {name}.txt\n{more}"
        self.write(os.path.join("box", "pools.yml"), f"slice_seconds: {slice_seconds}\npools:\n{items}")

    def joined(self, name):
        """A directory that looks like a membership."""
        os.makedirs(self.path("box", name, "pool"))
        for file in ("keys", "manifest.json"):
            self.write(os.path.join("box", name, "pool", file), "{}")

    def host(self):
        with open(self.path("host.log"), "a", encoding="utf-8") as log:
            process = subprocess.Popen([tool.ATOM, "host", "run", "box", "--quiet"], stdin=subprocess.DEVNULL,
                                       stdout=subprocess.DEVNULL, stderr=log, env=self.env, cwd=self.dir)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def ended(self, host, code):
        try:
            self.assertEqual(host.wait(PATIENCE), code, self.log()[-3000:])
        except subprocess.TimeoutExpired:
            self.fail(f"it did not end: {json.dumps(self.asked())}\n{self.log()[-3000:]}")

    def log(self):
        with open(self.path("host.log"), encoding="utf-8") as f:
            return f.read()

    def asked(self):
        result = self.run_atom("host", "status", "box", "--json")
        return result.json() if result.code == 0 else None

    def until_asked(self, what, test):
        end, seen = time.monotonic() + PATIENCE, None
        while time.monotonic() < end:
            self.assertLessEqual(len(self.processes()), 1, "two processes compute on this box")
            seen = self.asked()
            if seen and test(seen):
                return seen
            time.sleep(0.1)
        self.fail(f"{what}: not in time: {json.dumps(seen, indent=1)}\n{self.log()[-3000:]}")

    def processes(self):
        """Members that the box runs now: /proc, and not what it says."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as f:
                    words = f.read().split(b"\0")
                with open(f"/proc/{pid}/environ", "rb") as f:
                    mine = f"XDG_CACHE_HOME={self.env['XDG_CACHE_HOME']}".encode() in f.read().split(b"\0")
            except OSError:
                continue
            if mine and words[1:4] == [b"pool", b"join", b"-o"] and words[4].startswith(b"box/"):
                found.append(int(pid))
        return found

    def brought(self, name):
        """Versions in order, and samples of each member: as the other member applied them."""
        return [(e["version"], e["brought"]) for e in self.events(f"other-{name}") if e["event"] == "certified"]

    def key(self, name):
        """The start of the box's key in a pool."""
        return next(key for _, b in self.brought(name) for key in b if key not in self.keys)

    def came_back(self, name, after):
        """Versions behind `after` that the box contributed to."""
        key = self.key(name)
        return [v for v, b in self.brought(name) if v > after and b.get(key, 0) > 0]

    def last(self, name):
        return self.brought(name)[-1][0]

    def turns_of(self, s):
        return {p["name"]: p["computed_s"] for p in s["pools"]}

    def both_compute(self, before, what):
        """Each pool gets computing time beyond what it had."""
        return self.until_asked(what, lambda s: all(v > before.get(n, 0) + 2 for n, v in self.turns_of(s).items()))

    def test_turns_and_kills(self):
        self.pools({"a": 2, "b": 1})
        host = self.host()
        self.keys = set()
        for name in "ab":
            self.keys.add(self.until(f"other-{name}", "it runs", lambda s: True)["key"][:8])
        seen = self.both_compute({}, "both have had a turn")
        marks = {n: self.last(n) for n in "ab"}
        first = {n: self.key(n) for n in "ab"}

        # The process that computes is killed: the other pool's turn begins, and it comes back.
        pid = seen["process"] or self.until_asked("somebody computes", lambda s: s["process"])["process"]
        os.kill(pid, signal.SIGKILL)
        seen = self.until_asked("the kill is seen", lambda s: s["failures"] == 1)
        self.assertIn("signal 9", "".join(p["text"] for p in seen["pools"] if p["failures"]))
        seen = self.both_compute(self.turns_of(seen), "both after the kill of one")
        for n in "ab":
            self.assertTrue(self.came_back(n, marks[n]), f"{n}: no contribution behind version {marks[n]}")

        # A second host from the same file is refused, and the first goes on.
        self.fails(2, "host", "run", "box", says=("another atom host", str(host.pid)))

        # The host is killed: what it ran ends by itself, and nothing runs beside it.
        self.until_asked("somebody computes", lambda s: s["state"] == "computing")
        host.kill()
        host.wait()
        self.assertLessEqual(len(self.processes()), 1)
        host = self.host()
        marks = {n: self.last(n) for n in "ab"}
        again = self.until_asked("it is back", lambda s: True)
        for n, was in self.turns_of(seen).items():
            self.assertGreater(self.turns_of(again)[n], was - 3, "what was used is forgotten")
        seen = self.both_compute(self.turns_of(again), "both after the kill of the host")
        for n in "ab":
            self.assertTrue(self.came_back(n, marks[n]), f"{n}: no contribution behind version {marks[n]}")
            versions = [v for v, _ in self.brought(n)]
            self.assertEqual(versions, sorted(set(versions)), "certified versions only grow")
            keys = {key for _, b in self.brought(n) for key in b} - self.keys
            self.assertEqual(keys, {first[n]}, "the box is one member of each pool, always the same")

        # Ctrl-C: saved, nothing left behind.
        host.send_signal(signal.SIGINT)
        self.ended(host, 130)
        self.assertEqual(self.processes(), [])
        self.fails(1, "host", "status", "box", says="no atom host that runs with")

    def test_what_is_over_leaves_its_share(self):
        self.pools({"a": 1, "b": 1}, slice_seconds=4)
        host = self.host()
        seen = self.until_asked("one computes", lambda s: s["state"] == "computing")
        name = seen["running"]
        self.ok("pool", "leave", self.path("box", name))
        seen = self.until_asked("it is out", lambda s: any(p["state"] == "over" for p in s["pools"]))
        out, other = sorted(seen["pools"], key=lambda p: p["name"] != name)
        self.assertEqual((out["due"], other["due"]), (0, 1))
        self.assertIn("taken out by atom pool leave", out["text"])
        self.until_asked("the other one computes", lambda s: s["running"] == other["name"] and s["state"] == "computing")
        self.assertIn(out["name"], self.ok("host", "status", "box").out)
        self.ok("host", "stop", "box")
        self.ended(host, 0)
        self.assertEqual(self.processes(), [])

    def test_a_paused_pool_has_no_turn(self):
        self.pools({"a": 1, "b": 1}, slice_seconds=4)
        host = self.host()
        seen = self.both_compute({}, "both have had a turn")
        seen = self.until_asked("one computes", lambda s: s["state"] == "computing")
        other = next(p["name"] for p in seen["pools"] if p["name"] != seen["running"])
        self.assertIn("no member runs here now", self.ok("pool", "pause", self.path("box", other)).out)
        seen = self.until_asked("it is known", lambda s: any(p["state"] == "paused" for p in s["pools"]))
        had = self.turns_of(seen)[other]
        self.until_asked("the turn goes on", lambda s: s["turn_used_s"] > 10)
        self.assertEqual(self.turns_of(self.asked())[other], had)
        self.ok("pool", "resume", self.path("box", other))
        self.until_asked("it has a turn again", lambda s: s["running"] == other and s["state"] == "computing")
        self.ok("host", "stop", "box")
        self.ended(host, 0)

    def test_a_pool_that_is_done(self):
        """Its steps are made: the host has nothing else to do, and says so."""
        self.pools({"a": 1}, steps=6000, more="    devices: 1\n")
        host = self.host()
        seen = self.until_asked("it has a process", lambda s: s["process"])
        with open(f"/proc/{seen['process']}/cmdline", "rb") as f:
            self.assertIn(b"\0--devices\x001\0", f.read())
        self.ended(host, 0)
        self.assertIn("a: the pool is done", self.log())
        self.assertEqual(self.processes(), [])

    def test_refusals(self):
        self.joined("a")
        self.fails(2, "host", "run", "box", says="there is no box/pools.yml")
        self.fails(2, "host", "status", "box", says="atom host never ran with")
        os.mkdir(self.path("box", "host-state"))
        for word in ("status", "stop"):
            self.fails(1, "host", word, "box", says=("no atom host that runs with", "answers"))
        os.rmdir(self.path("box", "host-state"))

        def wrong(text, *says):
            self.write(os.path.join("box", "pools.yml"), text)
            self.fails(2, "host", "run", "box", says=says)
        wrong("pools:\n  - dir: a\n    wieght: 2\n", "box/pools.yml:3:5", "unknown key 'wieght'")
        wrong("pools:\n  - dir: a\n    share: 0\n", "box/pools.yml:3", "share")
        wrong("pools:\n  - dir: nowhere\n", "box/pools.yml:2", "holds no membership in a pool; join the pool once")
        wrong("pools:\n  - dir: a\n  - dir: ./a\n    name: b\n", "box/pools.yml:3", "also the directory of the pool in line 2")
        self.write(os.path.join("box", "pools.yml"), "pools:\n  - dir: a\n")
        os.makedirs(self.path("box", "host-state"))
        self.write(os.path.join("box", "host-state", "ledger.json"), "{}")
        self.fails(3, "host", "run", "box", says=("ledger.json is damaged", "remove it"))

    def test_a_member_that_cannot_start(self):
        """It is said, tried again later, and not spun."""
        self.joined("a")
        self.write(os.path.join("box", "pools.yml"), "pools:\n  - dir: a\n")
        host = self.host()
        seen = self.until_asked("it failed", lambda s: s["failures"] == 1)
        pool = seen["pools"][0]
        self.assertEqual(pool["state"], "backed off")
        self.assertIn("exit code", pool["text"])
        self.assertGreater(pool["retry_s"], 10)
        self.assertEqual(seen["turns"], 1)
        host.send_signal(signal.SIGTERM)
        self.ended(host, 143)


if __name__ == "__main__":
    tool.main()
