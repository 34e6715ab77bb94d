"""Adam's moments in bf16: less memory, the same bits wherever they are, and a way in and out."""
import json
import re
import struct
import time

import tool
from test_train import BUDGET, SHAPE, TrainCase

HALF = ["--moments-dtype", "bf16"]
CONSTANT = ["--lr-scheduler", "constant"]


class Moments(TrainCase):
    def kinds(self, out, step):
        """Dtypes of the optimizer's file by the first word of tensors' names, and all its bytes."""
        data = self.read(out, f"checkpoint-{step}", "optimizer.safetensors")
        size = struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8:8 + size])
        return {(name.split(".")[0], tensor["dtype"]) for name, tensor in header.items() if name != "__metadata__"}, data

    def test_the_same_bits_everywhere(self):
        more = ["--max-grad-norm", 0.5]
        whole = self.train("whole", *HALF, *more, memory=None)
        wide = self.train("wide", *more, memory=None)
        self.assertNotEqual(self.weights("whole", 6), self.weights("wide", 6), "they are rounded")
        for at in (1, 6):  # the first step knows nothing of moments; later ones differ little
            self.assertAlmostEqual(self.losses("whole")[at][0], self.losses("wide")[at][0], delta=0 if at == 1 else 0.02)
        self.assertEqual(wide["model_state_bytes"] - whole["model_state_bytes"], wide["param_bytes"], "fp32: 4 bytes each")
        for name, how in (("swapped", []), ("threads", ["--threads", 1]), ("text", ["--execute", "interpreted"]),
                          ("disk", ["--optimizer-state", "disk"]),
                          ("ahead", ["--optimizer-state", "disk", "--update-ahead", "always"])):
            self.train(name, *HALF, *more, *how)
            self.assertEqual(self.losses(name), self.losses("whole"), name)
            self.assertEqual(self.weights(name, 6), self.weights("whole", 6), name)
            self.assertEqual(self.kinds(name, 6), self.kinds("whole", 6), name)
        self.assertEqual(self.kinds("whole", 6)[0], {("exp_avg", "BF16"), ("exp_avg_sq", "BF16")})
        self.train("seed", *HALF, *more, "--resume-from-checkpoint", self.path("whole", "checkpoint-6"), "--seed", 7, steps=7)

    def test_a_model_whose_files_are_packed(self):
        """Phi-3 says more of its graph behind the moments' dtype, which a profile has to find all the same."""
        phi = dict(model_type="phi3", vocab_size=257, max_position_embeddings=48, hidden_size=32, num_hidden_layers=2,
                   num_attention_heads=4, num_key_value_heads=2, intermediate_size=64, pad_token_id=0)
        self.write("phi.json", json.dumps(phi))
        for more in [], ["--optimizer", "muon"]:
            for dtype in "fp32", "bf16", "fp32":
                self.train("run", "--model", "phi.json", "--moments-dtype", dtype, *more, "--overwrite", memory=None, steps=2)

    def test_a_checkpoint_resumes_to_the_same_bits(self):
        self.train("whole", *HALF, *CONSTANT)
        for first, second in (("memory", "disk"), ("disk", "memory")):
            out = f"{first}-{second}"
            self.train(out, *HALF, *CONSTANT, "--optimizer-state", first, steps=3)
            run = self.ok(*self.args(out, *HALF, *CONSTANT, "--optimizer-state", second, "--resume-from-checkpoint", "auto"))
            self.assertNotIn("moments_dtype", run.err + run.out)
            self.assertEqual(self.weights(out, 6), self.weights("whole", 6), out)

    def test_checkpoints_while_updates_go_on(self):
        for clip in (1, 0):
            more = [*HALF, *CONSTANT, "--max-grad-norm", clip, "--save-total-limit", 0]
            self.train(f"short{clip}", *more, steps=4)
            self.train(f"long{clip}", *more, "--save-steps", 1, steps=7)
            for name in ("model.safetensors", "optimizer.safetensors"):
                self.assertEqual(self.read(f"long{clip}", "checkpoint-4", name),
                                 self.read(f"short{clip}", "checkpoint-4", name), (clip, name))

    def test_from_one_kind_to_the_other(self):
        self.train("run", *CONSTANT, steps=3)
        narrow = self.ok(*self.args("run", *HALF, *CONSTANT, "--resume-from-checkpoint", "auto", steps=4))
        self.assertIn("moments are fp32, but from now on they are kept in bf16", narrow.err + narrow.out)
        self.assertEqual(self.kinds("run", 4)[0], {("exp_avg", "BF16"), ("exp_avg_sq", "BF16")})
        wide = self.ok(*self.args("run", *CONSTANT, "--resume-from-checkpoint", "auto", steps=5))
        self.assertIn("moments are bf16, but from now on they are kept in fp32", wide.err + wide.out)
        self.assertEqual(self.kinds("run", 5)[0], {("exp_avg", "F32"), ("exp_avg_sq", "F32")})

    def test_a_state_on_disk_is_of_one_kind(self):
        """It is not lost by mistake: who comes with the other kind is told, and so is who leaves it behind."""
        again = [*CONSTANT, "--resume-from-checkpoint", "auto"]
        disk = [*again, "--optimizer-state", "disk", "--save-steps", 0]
        self.train("store", *CONSTANT, steps=3)
        self.kill_at(8, *self.args("store", *disk, steps=100000))
        reached = self.last_step("store")
        self.fails(3, *self.args("store", *HALF, *disk, steps=reached + 3),
                   says=["optimizer.store", "this run's state with moments in fp32", "--moments-dtype fp32"])
        memory = self.ok(*self.args("store", *HALF, *again, steps=4))
        self.assertIn("which is not used", memory.err + memory.out)
        disk = self.ok(*self.args("store", *disk, steps=reached + 3))
        self.assertIn("resumed from the optimizer's state on disk", disk.err + disk.out)

    def test_rounded_checkpoints_keep_exact_weights(self):
        self.train("whole", *HALF, *CONSTANT)
        self.train("cut", *HALF, *CONSTANT, "--save-dtype", "bf16", steps=3)
        self.assertEqual(self.kinds("cut", 3)[0], {("exp_avg", "BF16"), ("exp_avg_sq", "BF16"), ("master", "F32")})
        self.train("cut", *HALF, *CONSTANT, "--resume-from-checkpoint", "auto")
        self.assertEqual(self.weights("cut", 6), self.weights("whole", 6))

    def kill_at(self, step, *args):
        process = self.start_atom(*args)
        end = time.monotonic() + 60
        while self.last_step("store") < step and process.poll() is None and time.monotonic() < end:
            time.sleep(0.005)
        process.kill()
        process.communicate()

    def test_plans_count_them(self):
        card = ["--model", "gpt2-774m", "--device-spec", "rtx-4090", "--sequence-len", 512, "--device-memory", "4GiB",
                "--gradient-accumulation-steps", 8]
        wide = self.ok("plan", *card, "--json").json()
        narrow = self.ok("plan", *card, *HALF, "--json").json()
        self.assertNotIn("moments_dtype", wide)
        self.assertEqual(narrow["moments_dtype"], "bf16")
        self.assertAlmostEqual((wide["host_peak_bytes"] - narrow["host_peak_bytes"]) / 774030080, 4, delta=0.02)
        # Whoever is sent to the disk by fp32 moments alone is told.
        between = (wide["host_peak_bytes"] + narrow["host_peak_bytes"]) // 2
        told = self.ok("plan", *card, "--host-memory", between).out
        self.assertIn("with --moments-dtype bf16 it needs no disk", told)
        self.assertNotIn("on disk", self.ok("plan", *card, *HALF, "--host-memory", between).out)
        self.fails(4, "plan", *card, "--host-memory", between, "--optimizer-state", "memory", says="--moments-dtype bf16")
        # Muon keeps one moment of most weights, so bf16 saves less with it.
        muon = [*card, "--optimizer", "muon"]
        wide, narrow = (int(re.search(r"needs at least .*?\((\d+) bytes\)", self.run_atom(
            "plan", *muon, *more, "--host-memory", "1GiB", "--optimizer-state", "memory").err).group(1)) for more in ([], HALF))
        for host, less in ((wide + narrow) // 2, True), (narrow - (wide - narrow) // 2, False):
            told = self.ok("plan", *muon, "--host-memory", host).out
            self.assertIn("on disk, in blocks of", told)
            self.assertEqual("with --moments-dtype bf16 it needs no disk" in told, less, told)
        # A plan and a profile say what they are of.
        self.ok("profile", "--model", self.config, *SHAPE, "--dtype", "fp32", *HALF, "-o", "p.json")
        self.ok("plan", "--profile", "p.json", "-o", "plan.json")
        self.assertIn("with bf16 moments", self.ok("inspect", "plan.json").out)
        self.assertIn("with bf16 moments", self.ok("inspect", "p.json").out)
        self.fails(2, "plan", "--profile", "p.json", *HALF, says="atom profile")
        self.fails(2, *self.args("run", "--profile", "p.json"), says="moments in bf16, not in fp32")
        # Advice only where it helps.
        self.assertNotIn("moments", self.fails(4, "plan", *card, "--host-memory", "1GiB", "--optimizer-state", "memory").err)
        self.assertNotIn("moments", self.ok("plan", *card, "--host-memory", "64GiB", "--optimizer-state", "disk").out)
        self.fails(2, *self.args("run", "--plan", "plan.json", memory=None), says=["moments", "--moments-dtype bf16"])

    def test_little_memory_says_what_would_do(self):
        small = ["--recompute", "always", "--micro-batch-size", 1, "--gradient-accumulation-steps", 1]  # little but the state
        refused = self.fails(4, *self.args("none", *small, "--host-memory", 1, "--optimizer-state", "memory"), says="at least")
        limit = int(re.search(r"at least [^(]*\((\d+) bytes\)", refused.err).group(1)) - 1  # of any plan with fp32 moments
        told = self.ok(*self.args("disk", *small, "--host-memory", limit))
        self.assertIn("with --moments-dtype bf16 it would fit in memory", told.err + told.out)
        told = self.ok(*self.args("narrow", *small, *HALF, "--host-memory", limit))
        self.assertNotIn("on disk", told.err + told.out)
        # A plan that was asked to go to disk did not go there for want of memory.
        self.ok("profile", "--model", self.config, *SHAPE, "--dtype", "fp32", "-o", "p.json")
        self.ok("plan", "--profile", "p.json", "--optimizer-state", "disk", "--host-memory", "1GiB", "--device-memory", BUDGET,
                "--gradient-accumulation-steps", 2, "-o", "plan.json")
        told = self.ok(*self.args("asked", "--plan", "plan.json", memory=None))
        self.assertIn("optimizer state: on disk", told.err + told.out)
        self.assertNotIn("moments", told.err + told.out)


if __name__ == "__main__":
    tool.main()
