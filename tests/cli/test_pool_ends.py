"""The end of a run: all leave at once, and a member that is alone there."""
import json
import os
import socket
import subprocess
import time

import test_pool_train
import tool
from test_pool_train import RUN, Members


class Ends(Members):
    """The end of a run, its last average, and a member that is alone there."""

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
        a, ticket = self.make("a", self.steps_and_fork(1500, 8))
        b = self.join("b", ticket, "--data", self.data)
        c = self.join("c", ticket, "--data", self.data)
        # What is left for it must be made before it goes on alone, three forks after it comes back, also on a busy machine.
        half = 1500 * 16 * 32 / 2
        self.until("c", "three members", lambda s: s["roster"] == 3 and s["is_member"] and s["certified_tokens"] >= half, [a, b, c])
        c.kill()
        c.communicate()
        self.end(a, 0)
        self.end(b, 0)
        c = self.join("c")
        seen = self.until("c", "it waits", lambda s: "in no version" in s["text"], [c])
        self.assertIn("no quorum", seen["text"])
        self.assertIn("going on alone in", seen["text"])
        # Stopped now, it has not ended the run: what its directory has is not the pool's model.
        c.terminate()
        stopped = json.loads(self.end(c, 143)[0])
        self.assertEqual((stopped["done"], stopped["pool_step"]), (False, stopped["pool_steps"]))
        self.assertLess(stopped["certified_samples"], 1500 * 16)
        self.assertLess(stopped["certified_step"], 1500)
        c = self.start_loud("join", "-o", "c", "--listen", "127.0.0.1:0", "--no-lan", "--no-directory")
        self.until("c", "it waits again", lambda s: "in no version" in s["text"], [c])
        end = time.monotonic() + 60
        while b"nobody of the pool has answered since this member came back" not in os.pread(c.said.fileno(), 10**6, 0):
            self.assertLess(time.monotonic(), end)
            time.sleep(0.1)
        c.terminate()
        out, err = self.heard(c, 60)
        self.assertEqual(c.returncode, 143, out + err)
        self.assertEqual(err.count("nobody of the pool has answered"), 1)
        self.assertIn("are in no version of the pool", out)
        self.assertIn("back to the pool: atom pool join -o c", out)
        self.assertNotIn("the pool is done", out)
        # Then it is a pool of its own, which it says, and what it made is in the weights that it exports.
        c = self.start_loud("join", "-o", "c", "--listen", "127.0.0.1:0", "--no-lan", "--no-directory")
        alone = self.until("c", "it is alone", lambda s: s["alone_from"] is not None, [c])
        self.assertIn(f"alone from version {alone['alone_from']} on", alone["text"])
        self.assertGreaterEqual(alone["alone_from"], seen["applied"])
        said = f"this member trained alone from version {alone['alone_from']} on"
        out = self.end(c, 0)[0]
        self.assertIn(said, out)
        self.assertIn("they have another model", out)
        self.assertNotIn("the pool is done", out)
        self.assertIn("atom pool export c -o model", out)
        done = self.ok("pool", "join", "-o", "c", *test_pool_train.ALONE).json()
        self.assertEqual((done["done"], done["pool_step"]), (True, done["pool_steps"]))
        self.assertGreaterEqual(done["version"], seen["applied"] + 3)
        self.assertEqual(done["alone_from"], alone["alone_from"])
        self.assertIn(said, self.ok("pool", "join", "-o", "c", "--no-lan", "--no-directory").out)
        result = self.ok("pool", "export", "c", "-o", "model", "--json")
        self.assertIn(said, result.err)
        self.assertEqual(result.json()["version"], done["version"])
        # Those who were there at the end say nothing of the kind.
        self.assertNotIn("alone", self.ok("pool", "join", "-o", "a", "--no-lan", "--no-directory").out)

    def test_before_the_first_version(self):
        """Nothing was averaged yet: the model is the one that the run began with, and that is said."""
        a, _ = self.make("a", self.steps_and_fork(100, 3600) + "  min_peers: 2\n")
        self.until("a", "it waits", lambda s: "waiting for 1 more" in s["text"], [a])
        a.terminate()
        self.assertEqual(json.loads(self.end(a, 143)[0])["version"], 0)
        out = self.ok("pool", "export", "a", "-o", "model")
        self.assertIn("version 0", out.out)
        self.assertIn("nothing that its members have learned is in them", out.err)
        # Killed and back, it says whom it waits for and how they come; the founder knows its ticket.
        a = self.start_loud("join", "-o", "a", "--listen", "127.0.0.1:0", "--no-lan", "--no-directory")
        self.until("a", "it waits again", lambda s: "waiting for 1 more" in s["text"], [a])
        a.terminate()
        err = self.heard(a, 60)[1]
        self.assertEqual(err.count("no version of this pool is made yet"), 1, err)
        self.assertIn("begins once 2 members run at the same time", err)
        self.assertIn("the ticket that atom pool ticket a prints", err)

    def test_a_run_of_one_step(self):
        """It was over before its first version, and is in the model all the same: in each of three fragments."""
        a, _ = self.make("a", self.steps_and_fork(1, 3600).replace("warmup_steps: 5", "warmup_steps: 0"))
        done = json.loads(self.end(a, 0)[0])
        self.assertEqual((done["steps"], done["lacking"]), (1, 0))
        self.assertGreaterEqual(done["version"], 3)
        out = self.ok("pool", "export", "a", "-o", "model")
        self.assertNotIn("nothing that its members have learned", out.err)
        for model in ("model", done["checkpoint"]):
            found = self.ok("eval", "--model", self.path(model), "--data", self.data, "--sequence-len", 32, "--json").json()
            self.assertAlmostEqual(found["loss"], done["final_loss"], delta=1)
        self.assertEqual(self.loss("model"), self.loss(done["checkpoint"]))

    def loss(self, model):
        found = self.ok("eval", "--model", self.path(model), "--data", self.data, "--sequence-len", 32, "--dtype", "fp32", "--json")
        return round(found.json()["loss"], 4)

    def pair(self, steps, fragments):
        """Two members of a run with an exact codec."""
        text = self.steps_and_fork(steps, 3).replace("int8", "fp32").replace("fragments: 3", f"fragments: {fragments}")
        text = text.replace("heartbeat_seconds: 0.1", "heartbeat_seconds: 0.3")  # a busy machine is not late
        a, ticket = self.make("a", text + "  min_peers: 2\n")
        return a, self.join("b", ticket, "--data", self.data)

    def test_the_last_average(self):
        """Both end with the same version, and their last checkpoints have the weights that the pool leaves."""
        members = self.pair(400, 3)
        ends = [json.loads(self.end(member, 0)[0].splitlines()[-1]) for member in members]
        for end in ends:
            self.assertEqual((end["lacking"], end["pool_step"]), (0, 400))
            self.assertEqual((end["version"], end["anchor"]), (ends[0]["version"], ends[0]["anchor"]))
        model = self.ok("pool", "export", "b", "-o", "model", "--json").json()
        self.assertEqual((model["version"], model["anchor"]), (ends[0]["version"], ends[0]["anchor"]))
        self.assertEqual([self.loss(end["checkpoint"]) for end in ends], [self.loss("model")] * 2)

    def test_one_is_killed_meanwhile(self):
        """The other one averages alone what is left, and ends."""
        a, b = self.pair(200, 12)
        tokens = 200 * 16 * 32
        self.until("a", "two members", lambda s: s["roster"] == 2 and s["applied"] > 0, [a, b])

        def certified():
            return [e for e in self.events("a") if e["event"] == "certified"]
        while not certified() or certified()[-1]["tokens"] < tokens:
            self.assertIsNone(b.poll())
            time.sleep(0.01)
        b.kill()
        b.communicate()
        killed_at = certified()[-1]["version"]
        end = json.loads(self.end(a, 0)[0].splitlines()[-1])
        first = next(e["version"] for e in certified() if e["tokens"] >= tokens)
        self.assertEqual((end["lacking"], end["pool_step"]), (0, 200))
        self.assertLess(killed_at, first + 12)
        self.assertGreaterEqual(end["version"], first + 12)


if __name__ == "__main__":
    tool.main()
