"""The end of a run: all leave at once, and a member that is alone there."""
import json
import socket
import subprocess

import tool
from test_pool_train import RUN, Members


class Ends(Members):
    """The end of a run, and of a member that is alone there."""

    def steps_and_fork(self, steps, fork):
        text = RUN.format(steps=steps, codec="int8").replace("  heartbeat", f"  fork_seconds: {fork}\n  heartbeat")
        return text.replace("accumulation_steps: 1", "accumulation_steps: 4")

    def make(self, out, text, at="127.0.0.1:0"):
        process = self.start("create", "--config", self.write("run.yml", text), "--model", self.config, "--data", self.data, "-o", out,
                             "--listen", at)
        return process, json.loads(process.stdout.readline())["ticket"]

    def test_all_leave_at_once(self):
        """Nobody waits to be let go, and each comes back with what they agreed on."""
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            place = f"127.0.0.1:{one.getsockname()[1]}"
        a, ticket = self.make("a", self.steps_and_fork(10**6, 3600), place)
        b = self.join("b", ticket, "--data", self.data)
        for time_of_day in ("evening", "night"):
            self.until("b", "two members", lambda s: s["roster"] == 2 and s["is_member"], [a, b])
            seen = self.until("a", "versions", lambda s: s["applied"] >= 6, [a, b])
            leaving = [subprocess.Popen([tool.ATOM, "pool", "leave", out], cwd=self.dir, env=self.env, stdout=subprocess.DEVNULL) for out in ("a", "b")]
            for process in leaving:
                self.assertEqual(process.wait(), 0, time_of_day)
            for process in (a, b):
                self.assertNotIn("too few members heard the goodbye", self.end(process, 0)[1])
            a, b = self.start("join", "-o", "a", "--listen", place), self.join("b")
            self.until("a", "further", lambda s: s["applied"] > seen["applied"] and s["is_member"], [a, b])

    def test_the_last_steps_alone(self):
        """A member that comes back when all others have ended does not call its own steps the pool's."""
        a, ticket = self.make("a", self.steps_and_fork(1500, 3))
        b = self.join("b", ticket, "--data", self.data)
        c = self.join("c", ticket, "--data", self.data)
        self.until("c", "three members", lambda s: s["roster"] == 3 and s["is_member"] and s["applied"] > 2, [a, b, c])
        c.kill()
        c.communicate()
        self.end(a, 0)
        self.end(b, 0)
        c = self.join("c")
        seen = self.until("c", "it waits", lambda s: "in no version" in s["text"], [c])
        self.assertIn("no quorum", seen["text"])
        self.assertIn("going on alone in", seen["text"])
        # Then it is a pool of its own, and what it made is in the weights that it exports.
        done = json.loads(self.end(c, 0)[0])
        self.assertEqual(done["pool_step"], done["pool_steps"])
        self.assertGreaterEqual(done["version"], seen["applied"] + 3)
        self.assertGreaterEqual(done["certified_samples"], 1500 * 16)
        model = self.ok("pool", "export", "c", "-o", "model", "--json").json()
        self.assertEqual(model["version"], done["version"])

    def test_before_the_first_version(self):
        """A run that is over before anything was averaged: its model is the one that it began with, and that is said."""
        a, _ = self.make("a", self.steps_and_fork(1, 3600).replace("warmup_steps: 5", "warmup_steps: 0"))
        done = json.loads(self.end(a, 0)[0])
        self.assertEqual(done["version"], 0)
        out = self.ok("pool", "export", "a", "-o", "model")
        self.assertIn("version 0", out.out)
        self.assertIn("nothing that its members have learned is in them", out.err)


if __name__ == "__main__":
    tool.main()
