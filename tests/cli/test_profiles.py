"""Profiles that are kept: what they do not keep, and that a run which denies one has it measured again."""
import glob
import json

import tool
from test_train import SHAPE, TrainCase


class Profiles(TrainCase):
    def setUp(self):
        super().setUp()
        self.env["XDG_CACHE_HOME"] = self.path("cache")

    def kept(self):
        """The file of the one profile that there is; None: the machine was too busy to keep one."""
        found = [name for name in glob.glob(self.path("cache", "atom", "profiles", "*")) if "rates-" not in name]
        self.assertLessEqual(len(found), 1)
        return found[0] if found else None

    def profile(self):
        return json.loads(self.read(self.kept()))

    def test_what_was_free_is_not_kept(self):
        """Profiled while memory was scarce: an hour later the plan is made for what is free then, as training does."""
        model = self.write("c.json", json.dumps(dict(model_type="gpt2", n_embd=48, n_layer=2, n_head=2, n_positions=32, vocab_size=257)))
        args = ["plan", "--model", model, "--sequence-len", 16, "--micro-batch-size", 1, "--dtype", "fp32", "--json"]
        before = self.ok(*args).json()
        if not self.kept():
            self.skipTest("too busy")
        profile = self.profile()
        self.assertEqual(profile["graph_hash"], before["graph_hash"])
        profile["device"]["host_bytes"] = before["host_peak_bytes"] * 3 // 4
        self.write(self.kept(), json.dumps(profile))
        self.assertFalse(self.ok(*args).json()["disk"])
        self.assertTrue(self.ok("plan", "--profile", self.kept(), "--json").json()["disk"])

    def test_a_run_that_denies_it(self):
        """The run says so, and the next command measures again."""
        long = ["--gradient-accumulation-steps", 64, "--no-quiet"]
        self.train("first", steps=1)
        if not self.kept():
            self.skipTest("too busy")
        profile = self.profile()
        for node in profile["nodes"]:  # of a machine that was slower than any other work on this one can make it
            node.update({key: 1000 * node[key] for key in node if key.endswith("_seconds")})
        self.write(self.kept(), json.dumps(profile))
        self.assertNotIn("measures this machine again", self.ok(*self.args("short", *long, steps=2)).err)
        self.assertIn("were predicted; the next command that needs the profile measures this machine again", self.ok(*self.args("long", *long, steps=11)).err)
        self.assertLess(self.profile()["doubt"], 0.5)
        again = self.ok("plan", "--model", self.config, *SHAPE, "--dtype", "fp32", "--gradient-accumulation-steps", 64).err
        if "the machine was busy" not in again:
            self.assertIn("profile: measured again, because a step took 0.", again)
            self.assertEqual(self.profile()["measured_again"], 1)


if __name__ == "__main__":
    tool.main()
