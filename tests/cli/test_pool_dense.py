"""A pool whose first steps sum gradients and whose later ones are its members' own, of processes on loopback."""
import json
import os
import time

import tool

CONFIG = {"model_type": "gpt2", "vocab_size": 257, "n_positions": 48, "n_embd": 48, "n_layer": 2,
          "n_head": 3, "resid_pdrop": 0.1, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
RUN = """
micro_batch_size: 2
gradient_accumulation_steps: 2
sequence_len: 32
max_steps: {steps}
learning_rate: 2e-3
warmup_steps: 5
max_grad_norm: 0.5
dtype: fp32
threads: 1
execute: interpreted
eval_steps: 0
save_steps: 4
"""
POOL = """
pool:
  dense_steps: {dense}
  min_peers: {peers}
  sync_steps: 4
  outer_momentum: 0.8
  heartbeat_seconds: {beat}
{more}"""
ALONE = ["--no-lan", "--no-directory", "--json", "--quiet"]
PATIENCE = 120  # seconds; nothing here takes a tenth of it
TOGETHER = 12   # samples of a common step: 3 members with 4 each


class PoolDense(tool.DataCase):
    MODEL = CONFIG

    def start(self, *args):
        process = self.start_atom("pool", *args, *ALONE)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def describe(self, steps, dense, peers=3, more="", run=RUN, beat=0.2):
        pool = POOL.format(dense=dense, peers=peers, more=more, beat=beat)
        return self.write("pool.yml", run.format(steps=steps) + pool)

    def create(self, config):
        process = self.start("create", "--config", config, "--model", self.config, "--data", self.data, "-o", "p0",
                             "--listen", "127.0.0.1:0")
        line = process.stdout.readline()
        self.assertTrue(line, process.stderr.read() if process.poll() is not None else "")
        return process, json.loads(line)["ticket"]

    def join(self, i, ticket=None, more=()):
        ticket = [ticket, "--data", self.data, "--listen", "127.0.0.1:0"] if ticket else []
        return self.start("join", *ticket, "-o", f"p{i}", *more)

    def until(self, what, i=0):
        """Waits until the status of member i satisfies `what`."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            status = self.run_atom("pool", "status", f"p{i}", "--json")
            if status.code == 0 and what(status.json()):
                return status.json()
            time.sleep(0.1)
        self.fail("it never came so far")

    def end(self, process):
        out, err = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, 0, out + err)
        return json.loads(out.splitlines()[-1])

    def check_anchors(self, ends):
        """Equal versions are equal weights. A member that left early has an earlier one, with the same weights if nobody
        contributed to what came later."""
        self.assertEqual(len({(e["version"], e["anchor"]) for e in ends}), len({e["version"] for e in ends}), ends)

    def events(self, i):
        """(samples so far, contributors) of each version that member i saw."""
        with open(self.path(f"p{i}", "pool", "events.jsonl")) as f:
            lines = [json.loads(line) for line in f]
        return [(e["tokens"] // 32, e["brought"]) for e in lines if e["event"] == "certified"]

    def rates(self, i):
        with open(self.path(f"p{i}", "metrics.jsonl")) as f:
            return [json.loads(line) for line in f if '"train"' in line]

    def test_three_switch_together(self):
        run = RUN.replace("warmup_steps: 5", "warmup_steps: 0") + "optimizer: muon\nlr_scheduler: constant\n"
        # A member that is late in every common step computes none of them. A long heartbeat lets a busy machine be late in some.
        first, ticket = self.create(self.describe(60, "40%", run=run, beat=1))
        members = [first, self.join(1, ticket), self.join(2, ticket)]
        ends = [self.end(m) for m in members]
        self.check_anchors(ends)
        dense = 24 * 4  # samples: 8 common steps
        totals = [samples for samples, _ in self.events(0)]
        self.assertIn(dense, totals)
        for i in range(3):
            steps = self.rates(i)
            common = [s for s in steps if s["step"] <= dense // TOGETHER]
            self.assertEqual([s["step"] for s in common][-1], dense // TOGETHER)
            self.assertGreater(len(steps), len(common) + 3)
        # Common steps are those of one trainer with the batch of all; own ones are each member's own.
        last = {i: {s["step"]: s["grad_norm"] for s in self.rates(i)} for i in range(3)}
        one = run.replace("gradient_accumulation_steps: 2", "gradient_accumulation_steps: 6").format(steps=8)
        self.ok("train", self.write("one.yml", one), "--model", self.config, "--data", self.data, "-o", "one", "--quiet")
        with open(self.path("one", "metrics.jsonl")) as f:
            alone = {s["step"]: s["grad_norm"] for s in map(json.loads, f) if s["split"] == "train"}
        both = [step for step in alone if step in last[0]]  # who catches up makes several at once
        self.assertIn(8, both)
        for step in both:
            self.assertAlmostEqual(last[0][step] / alone[step], 1, delta=0.02)
        self.assertEqual(last[0][8], last[1][8])
        self.assertNotEqual(last[0][10], last[1][10])
        self.assertNotEqual(last[1][10], last[2][10])

    def test_killed_and_joined_on_both_sides(self):
        first, ticket = self.create(self.describe(800, "15%", peers=3))  # long enough for the one that joins late
        several = ["--devices", 2, "--device-memory", "2300KiB"]  # it comes back with them each time
        members = [first, self.join(1, ticket), self.join(2, ticket, several)]
        dense = 120 * 4
        samples = lambda s: s["certified_samples"] if "certified_samples" in s else s["certified_tokens"] // 32
        self.until(lambda s: samples(s) >= dense // 4)
        members[2].kill()  # in the middle of common steps
        members[2].wait()
        members[2] = self.join(2)
        self.until(lambda s: samples(s) >= dense)
        members[1].kill()  # at the switch; its newest checkpoint is of a common step, or of none
        members[1].wait()
        members[1] = self.join(1)
        members.append(self.join(3, ticket))  # somebody new, whose first step is one of its own
        self.until(lambda s: samples(s) >= dense + 200)
        members[2].kill()
        members[2].wait()
        members[2] = self.join(2)
        ends = [self.end(m) for m in members]
        self.check_anchors(ends)
        self.assertTrue(all(e["final_loss"] < 4 for e in ends if e["final_loss"]), ends)
        own = self.rates(3)
        self.assertGreaterEqual(min(s["step"] for s in own), dense // TOGETHER)
        self.assertEqual((ends[3]["first_step"], ends[3]["first_loss"]), (own[0]["step"], own[0]["loss"]))

    def test_back_alone_to_a_finished_run(self):
        """It paused in the common steps and has no step of its own, nor a checkpoint: there is nothing to wait for."""
        run = RUN.replace("save_steps: 4", "save_steps: 0")
        first, ticket = self.create(self.describe(120, "20%", run=run, more="  fork_seconds: 3600\n", beat=0.3))
        members = [first, self.join(1, ticket), self.join(2, ticket)]
        self.until(lambda s: s["roster"] == 3 and s["is_member"] and s["applied"] >= 3, 2)
        self.ok("pool", "pause", "p2")
        ends = [self.end(m) for m in members[:2]]
        self.until(lambda s: s["applied"] >= ends[0]["version"], 2)
        members[2].kill()
        members[2].communicate()
        self.ok("pool", "resume", "p2")
        back = self.end(self.join(2))
        self.assertEqual((back["done"], back["anchor"]), (True, ends[0]["anchor"]))
        self.assertTrue(os.path.exists(self.path("p2", "pool", "done")))

    def loss(self, model):
        found = self.ok("eval", "--model", self.path(model), "--data", self.data, "--sequence-len", 32, "--dtype", "fp32", "--json")
        return round(found.json()["loss"], 4)

    def test_paused_until_the_run_has_ended(self):
        """Its last checkpoint has the weights that the pool leaves, not those of the common step at which it paused."""
        first, ticket = self.create(self.describe(120, "20%", more="  fork_seconds: 3600\n", beat=0.3))
        members = [first, self.join(1, ticket), self.join(2, ticket)]
        self.until(lambda s: s["roster"] == 3 and s["is_member"] and s["applied"] >= 3, 2)
        self.ok("pool", "pause", "p2")
        ends = [self.end(m) for m in members[:2]]
        self.until(lambda s: s["applied"] >= ends[0]["version"], 2)
        self.ok("pool", "resume", "p2")
        back = self.end(members[2])
        self.check_anchors(ends + [back])
        self.assertEqual(back["done"], True)
        self.ok("pool", "export", "p2", "-o", "model")
        self.assertEqual([self.loss(end["checkpoint"]) for end in ends + [back]], [self.loss("model")] * 3)

    def test_back_alone_to_common_steps(self):
        """It cannot make one, says what that may mean, and makes the rest when it has waited long enough to go on by itself."""
        first, ticket = self.create(self.describe(60, "80%", more="  fork_seconds: 6\n", beat=0.3))
        members = [first, self.join(1, ticket), self.join(2, ticket)]
        self.until(lambda s: s["roster"] == 3 and s["is_member"] and s["applied"] >= 3, 2)
        members[2].kill()
        members[2].communicate()
        for member in members[:2]:
            self.end(member)
        member = self.join(2)
        seen = self.until(lambda s: "nobody answers" in s["text"], 2)
        self.assertIn("if the others have ended with the run, they have its model; no quorum", seen["text"])
        self.assertLess(seen["applied"], 60)
        end = self.end(member)
        self.assertEqual((end["done"], end["pool_step"]), (True, 60))

    def test_what_does_not_go_together(self):
        def refused(config, *says):
            self.fails(2, "pool", "create", "--config", config, "--model", self.config, "--data", self.data, "-o", "p9",
                       "--listen", "127.0.0.1:0", *ALONE, says=says)
        for dense in ("100%", "0", "x", "-3", "60", "1e3"):
            refused(self.describe(60, dense), "dense_steps", "10%")
        config = self.describe(60, "60")  # all of max_steps: known only when the run is
        with open(config, encoding="utf-8") as f:
            line = next(n for n, text in enumerate(f, 1) if "dense_steps" in text)
        refused(config, f"{config}:{line}: dense_steps", "max_steps - 1")
        refused(self.describe(60, "10%", more="  sync: gradients\n"), "dense_steps", "gradients")
        refused(self.describe(60, "10%", more="  sync: slices\n"), "dense_steps", "slices")
        refused(self.describe(60, "10%", more="  fragments: 8\n"), "fragments", "dense_steps")
        refused(self.describe(60, "10%", more="  trust: strangers\n"), "dense_steps", "strangers")
        refused(self.describe(60, "10%", more="  data: own\n"), "dense_steps", "data")
        refused(self.describe(60, "10%", peers=1), "dense_steps", "global_batch_size")
        refused(self.describe(60, "10%", more="  global_batch_size: 7\n"), "global_batch_size", "multiple")
        refused(self.describe(60, "90%", more="  global_batch_size: 240\n"), "dense_steps", "sync: gradients")
        refused(self.describe(60, "10%", run=RUN + "optimizer_state: disk\n"), "optimizer_state", "dense_steps")
        refused(self.describe(60, "10%", run=RUN + "moments_dtype: bf16\n"), "moments_dtype", "dense_steps")


if __name__ == "__main__":
    tool.main()
