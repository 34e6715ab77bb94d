"""Muon in the trainer: the same bits wherever it runs, a way back after every kind of end, and what it refuses."""
import json
import os
import random
import struct
import time

import tool
from test_train import CONFIG, SHAPE, TrainCase

MUON = ["--optimizer", "muon"]
DISK = ["--optimizer-state", "disk"]
CONSTANT = ["--lr-scheduler", "constant"]
HIDDEN = ("attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight")


class Muon(TrainCase):
    def tensors(self, out, step):
        data = self.read(out, f"checkpoint-{step}", "optimizer.safetensors")
        size = struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8:8 + size])
        header.pop("__metadata__", None)
        return {name: tensor["dtype"] for name, tensor in header.items()}

    def same(self, one, other, step):
        for name in ("model.safetensors", "optimizer.safetensors"):
            self.assertEqual(self.read(one, f"checkpoint-{step}", name), self.read(other, f"checkpoint-{step}", name),
                             (one, other, name))

    def test_the_same_bits_everywhere(self):
        for more in ([], ["--moments-dtype", "bf16"], ["--max-grad-norm", 0]):
            whole = "-".join(map(str, ["whole", *more]))
            told = self.ok(*self.args(whole, *MUON, *more, memory=None))
            self.assertIn("Muon trains", told.err + told.out)
            for name, how in (("swapped", []), ("threads", ["--threads", 1]), ("text", ["--execute", "interpreted"])):
                self.train(f"{name}-{whole}", *MUON, *more, *how)
                self.assertEqual(self.losses(f"{name}-{whole}"), self.losses(whole), name)
                self.same(f"{name}-{whole}", whole, 6)
        self.train("adamw")
        self.assertEqual(self.losses("adamw")[1], self.losses("whole")[1])
        self.assertNotEqual(self.losses("adamw")[2], self.losses("whole")[2])
        self.train("momentum", *MUON, "--muon-momentum", 0.5)
        self.assertNotEqual(self.losses("momentum")[3], self.losses("whole")[3])

    def test_what_a_checkpoint_holds(self):
        self.train("run", *MUON)
        names = self.tensors("run", 6)
        for kind in ("momentum_buffer", "exp_avg", "exp_avg_sq"):
            of = {name[len(kind) + 1:] for name in names if name.startswith(kind + ".")}
            self.assertEqual(any(name.endswith(HIDDEN) for name in of), kind == "momentum_buffer", kind)
            self.assertEqual("wte.weight" in of, kind != "momentum_buffer", kind)
            self.assertEqual("h.0.ln_1.weight" in of, kind != "momentum_buffer", kind)
        self.assertEqual(sum(name.startswith("momentum_buffer.") for name in names), len(HIDDEN) * CONFIG["n_layer"])
        self.assertEqual(json.loads(self.read("run", "checkpoint-6", "atom_state.json"))["optimizer"], "muon")
        self.ok("generate", "--model", "run/checkpoint-6", "--prompt", "a", "--max-tokens", 3)

    def test_what_it_takes(self):
        """10 bytes of host memory for a hidden parameter in bf16, 14 for the others; 12 and 16 in fp32."""
        host = {}
        for name, how in (("muon", [*MUON, "--no-clip"]), ("adamw", []), ("card", MUON)):
            plan = self.ok("plan", "--model", "gpt2-124m", "--device-spec", "rtx-4090", "--sequence-len", 512,
                           "--recompute", "always", "--gradient-accumulation-steps", 1, *how, "--json").json()
            host[name] = plan["host_peak_bytes"]
        hidden, scratch = 12 * 12 * 768 ** 2, 2 * 784 * (3072 + 784) * 4  # of the largest matrix
        self.assertAlmostEqual(host["adamw"] - host["muon"], 4 * hidden - scratch, delta=1e5)
        self.assertAlmostEqual(host["adamw"] - host["card"], 4 * hidden, delta=1e5)  # the scratch is on the device
        state = {name: self.train(name, *how)["model_state_bytes"] for name, how in (("muon", MUON), ("adamw", []))}
        self.assertEqual(state["adamw"] - state["muon"], 4 * 12 * 48 ** 2 * CONFIG["n_layer"])

    def test_a_checkpoint_resumes_to_the_same_bits(self):
        for more in ([], ["--save-dtype", "bf16"], ["--moments-dtype", "bf16"]):
            at = "at" + "".join(more)
            self.train("w" + at, *MUON, *CONSTANT, *more)
            self.train(at, *MUON, *CONSTANT, *more, steps=3)
            self.train(at, *MUON, *CONSTANT, *more, "--resume-from-checkpoint", "auto")
            self.same(at, "w" + at, 6)

    def test_checkpoints_while_updates_go_on(self):
        """Of a model that takes longer to write than to update: what is written is of its step all the same."""
        self.config = self.write("wide.json", json.dumps({**CONFIG, "n_embd": 256, "n_head": 4, "n_layer": 3}))
        more = ["--model", self.config, "--data", self.data, *MUON, *CONSTANT, "--micro-batch-size", 1,
                "--gradient-accumulation-steps", 1, "--sequence-len", 8, "--warmup-steps", 0, "--dtype", "fp32",
                "--max-grad-norm", 0, "--save-total-limit", 0, "--eval-steps", 0]
        self.ok("train", *more, "-o", "short", "--max-steps", 4)
        self.ok("train", *more, "-o", "long", "--save-steps", 1, "--max-steps", 7)
        self.same("long", "short", 4)

    def test_killed_and_resumed(self):
        process = self.start_atom(*self.args("killed", *MUON, *CONSTANT, "--save-steps", 2, steps=100000))
        end = time.monotonic() + 60
        while self.last_step("killed") < 7 and process.poll() is None and time.monotonic() < end:
            time.sleep(0.005)
        process.kill()
        process.communicate()
        steps = self.last_step("killed") + 3
        self.ok(*self.args("killed", *MUON, *CONSTANT, "--resume-from-checkpoint", "auto", steps=steps))
        self.train("whole", *MUON, *CONSTANT, steps=steps)
        self.same("killed", "whole", steps)

    def test_the_same_bits_from_disk(self):
        """Whatever is updated ahead and whoever reads meanwhile; and a checkpoint goes on in either place."""
        for more in ([], ["--moments-dtype", "bf16"], ["--max-grad-norm", 0]):
            at = "".join(map(str, more))
            self.train("memory" + at, *MUON, *more)
            self.train("disk" + at, *MUON, *DISK, *more, "--save-steps", 2, "--save-total-limit", 0)
            self.assertEqual(self.losses("disk" + at), self.losses("memory" + at))
            self.same("disk" + at, "memory" + at, 6)
            if more[:1] != ["--max-grad-norm"]:
                ahead = self.train("ahead" + at, *MUON, *DISK, *more, "--max-grad-norm", 1e9, "--update-ahead", "always")
                self.assertEqual(ahead["ahead_steps"], 6)
                self.train("free" + at, *MUON, *more, "--max-grad-norm", 1e9)
                self.same("ahead" + at, "free" + at, 6)
        self.train("whole", *MUON, *CONSTANT)
        for first, second in (("disk", "memory"), ("memory", "disk"), ("disk", "disk")):
            out = f"{first}-{second}"
            self.train(out, *MUON, *CONSTANT, "--optimizer-state", first, steps=3)
            self.train(out, *MUON, *CONSTANT, "--optimizer-state", second, "--resume-from-checkpoint", "auto")
            self.same(out, "whole", 6)

    def test_the_disk_holds_no_second_moment_of_a_matrix(self):
        """8 bytes for each hidden parameter and generation, 12 for the others; and a plan says so beforehand."""
        bytes_of = {}
        for name, how in (("muon", MUON), ("adamw", [])):
            process = self.start_atom(*self.args(name, *how, *DISK, *CONSTANT, steps=100000))
            self.wait_for_step(name, process, 2)
            process.kill()
            process.communicate()
            bytes_of[name] = os.path.getsize(self.path(name, "optimizer.store"))
        hidden = 12 * 48 ** 2 * CONFIG["n_layer"]  # parts of blocks are whole sectors
        self.assertAlmostEqual(bytes_of["adamw"] - bytes_of["muon"], 3 * 4 * hidden, delta=0.35 * 3 * 4 * hidden)
        card = ["plan", "--model", "gpt2-124m", "--device-spec", "rtx-4090", "--sequence-len", 512, *MUON,
                "--gradient-accumulation-steps", 1, "--json"]
        memory, disk = self.ok(*card).json(), self.ok(*card, "--optimizer-state", "disk").json()
        self.assertLess(disk["host_peak_bytes"], memory["host_peak_bytes"] - 500e6)
        self.assertEqual((memory["muon_products"], disk["muon_products"]), ("device", "device"))
        memory, disk = self.ok(*card, "--no-clip").json(), self.ok(*card, "--no-clip", "--optimizer-state", "disk").json()
        for plan in (memory, disk):  # what Muon takes of the host is about the same, and most of it
            self.assertLess(plan["predicted_step_seconds"], 2 * memory["predicted_step_seconds"])
        self.assertTrue(self.ok(*card, "--host-memory", disk["host_peak_bytes"]).json()["disk"])
        self.fails(4, *card, "--host-memory", disk["host_peak_bytes"], "--optimizer-state", "memory")

    def wait_for_step(self, out, process, step):
        end = time.monotonic() + 60
        while self.last_step(out) < step and process.poll() is None and time.monotonic() < end:
            time.sleep(0.005)

    def test_killed_and_resumed_from_disk(self):
        """Killed at some moment, some times over, with no checkpoint: the state on disk is whole, and goes on to the same bits."""
        pick, from_disk = random.Random(11), 0
        more = [*MUON, *DISK, *CONSTANT, "--save-steps", 0, "--max-grad-norm", 1.0, "--resume-from-checkpoint", "auto"]
        for i in range(6):
            process = self.start_atom(*self.args("killed", *more, "--update-ahead", pick.choice(["always", "never"]), steps=100000))
            self.wait_for_step("killed", process, self.last_step("killed") + pick.randint(1, 4))
            time.sleep(pick.random() * 0.03)
            process.kill()
            from_disk += "resumed from the optimizer's state on disk" in "".join(map(str, process.communicate()))
        steps = self.last_step("killed") + 3
        self.ok(*self.args("killed", *more, steps=steps))
        self.assertGreater(from_disk, 3)
        self.train("whole", *MUON, *CONSTANT, "--max-grad-norm", 1.0, steps=steps)
        self.same("killed", "whole", steps)
        # What AdamW left on disk is not Muon's.
        process = self.start_atom(*self.args("other", *DISK, *CONSTANT, steps=100000))
        self.wait_for_step("other", process, 2)
        process.kill()
        process.communicate()
        self.fails(3, *self.args("other", *more), says="optimizer.store")

    def test_adapters(self):
        """Both factors of each are matrices: the same bits everywhere, and a way back."""
        self.train("base", steps=2)
        lora = [*MUON, *CONSTANT, "--model", self.path("base", "checkpoint-2"), "--lora-r", 4]
        told = self.ok(*self.args("whole", *lora, memory=None))
        self.assertRegex(told.err + told.out, r"Muon trains (\d+) of \1 parameters")
        names = self.tensors("whole", 6)
        self.assertEqual({name.split(".")[0] for name in names}, {"momentum_buffer"})
        for name, how in (("swapped", []), ("disk", DISK), ("threads", ["--threads", 1])):
            self.train(name, *lora, *how)
            self.assertEqual(self.losses(name), self.losses("whole"), name)
            for file in ("adapter_model.safetensors", "optimizer.safetensors"):
                self.assertEqual(self.read(name, "checkpoint-6", file), self.read("whole", "checkpoint-6", file), (name, file))
        self.train("resumed", *lora, *DISK, steps=3)
        self.train("resumed", *lora, "--resume-from-checkpoint", "auto")
        for file in ("adapter_model.safetensors", "optimizer.safetensors"):
            self.assertEqual(self.read("resumed", "checkpoint-6", file), self.read("whole", "checkpoint-6", file), file)
        self.train("adamw", *CONSTANT, "--model", self.path("base", "checkpoint-2"), "--lora-r", 4)
        self.assertNotEqual(self.losses("adamw")[3], self.losses("whole")[3])

    def test_one_optimizers_checkpoint_is_not_the_others(self):
        self.train("muon", *MUON, *CONSTANT, steps=3)
        self.train("adamw", *CONSTANT, steps=3)
        again = [*CONSTANT, "--resume-from-checkpoint", "auto"]
        self.fails(2, *self.args("muon", *again), says=["optimizer: muon", "--optimizer muon", "--model"])
        self.fails(2, *self.args("adamw", *MUON, *again), says=["optimizer: adamw", "--optimizer adamw", "--model"])
        # One of before there was a choice is AdamW's.
        state = json.loads(self.read("adamw", "checkpoint-3", "atom_state.json"))
        del state["optimizer"]
        with open(self.path("adamw", "checkpoint-3", "atom_state.json"), "w", encoding="utf-8") as f:
            json.dump(state, f)
        self.fails(2, *self.args("adamw", *MUON, *again), says="optimizer: adamw")
        self.train("adamw", *again, steps=4)

    def test_plans_and_profiles_say_whose_they_are(self):
        self.ok("profile", "--model", self.config, *SHAPE, "--dtype", "fp32", *MUON, "-o", "m.json")
        self.ok("profile", "--model", self.config, *SHAPE, "--dtype", "fp32", "-o", "a.json")
        for name in ("m", "a"):
            self.ok("plan", "--profile", f"{name}.json", "--gradient-accumulation-steps", 2, "-o", f"{name}plan.json")
        self.assertIn("with muon", self.ok("inspect", "mplan.json").out)
        self.assertIn("with muon", self.ok("inspect", "m.json").out)
        self.assertNotIn("muon", self.ok("inspect", "aplan.json").out)
        self.ok(*self.args("run", *MUON, "--plan", "mplan.json", memory=None))
        self.fails(2, *self.args("no", "--plan", "mplan.json", memory=None), says=["optimizer: muon", "--optimizer muon"])
        self.fails(2, *self.args("no", *MUON, "--plan", "aplan.json", memory=None), says="--optimizer adamw")
        self.fails(2, *self.args("no", *MUON, "--profile", "a.json"), says="--optimizer adamw")
        self.fails(2, "plan", "--profile", "m.json", *MUON, says="atom profile")

    def test_bench(self):
        bench = ["bench", "train", "--model", self.config, "--micro-batch-size", 1, "--sequence-len", 16, "--steps", 2, "--json"]
        self.assertIsNone(self.ok(*bench, "--only", "resident").json()["resident"]["muon"])
        muon = self.ok(*bench, "--only", "resident", "--optimizer", "muon").json()["resident"]["muon"]
        self.assertEqual(muon["products"], "host")
        self.assertGreater(muon["predicted_seconds"], 0)

    def test_what_is_refused(self):
        self.fails(2, *self.args("no", *MUON, "--muon-momentum", 1), says="--muon-momentum")
        self.fails(2, *self.args("no", "--muon-momentum", 0.9), says="optimizer: muon")
        self.fails(2, *self.args("no", "--optimizer", "lion"), says="muon")
        card = ["plan", "--model", "gpt2-124m", "--device-spec", "rtx-4090", "--sequence-len", 512, *MUON]
        self.ok(*card)
        self.ok(*card, "--what-if")
        self.assertRegex(self.ok(*card).out, r"Muon +\S+ m?s on the device, whatever")
        self.assertRegex(self.ok(*card, "--no-clip").out, r"Muon +\S+ m?s on the host")
        self.assertRegex(self.ok(*card, "--device-memory", "712MiB", "--recompute", "always").out, r"Muon +\S+ m?s on the host")
        self.ok(*card, "--lora-r", 4)


if __name__ == "__main__":
    tool.main()
