"""Several devices in one box: what one trains alone, bit for bit; plans for them; and what is refused."""
import json
import os

import tool
from test_train import SHAPE, TrainCase

SEVERAL = ["--gradient-accumulation-steps", 5, "--lr-scheduler", "constant"]


class Devices(TrainCase):
    def on(self, n, out, *more, **options):
        return self.train(out, *SEVERAL, "--devices", n, *more, **options)

    def same(self, one, other, step=4):
        self.assertEqual(self.losses(one), self.losses(other), (one, other))
        for name in ("model.safetensors", "optimizer.safetensors", "adapter_model.safetensors"):
            path = os.path.join(f"checkpoint-{step}", name)
            self.assertEqual(os.path.exists(self.path(one, path)), os.path.exists(self.path(other, path)))
            if os.path.exists(self.path(one, path)):
                self.assertEqual(self.read(one, path), self.read(other, path), (one, other, name))

    def test_the_bits_of_one(self):
        ways = {"plain": [], "unclipped": ["--max-grad-norm", 0], "muon": ["--optimizer", "muon"],
                "disk": ["--optimizer-state", "disk"],
                "lora": ["--lora-r", 4, "--model", "plain-1/checkpoint-4"],
                "half": ["--moments-dtype", "bf16", "--recompute", "always"]}
        for at, (name, how) in enumerate(ways.items()):
            self.on(1, f"{name}-1", *how, steps=4)
            done = self.on(2 + at % 4, f"{name}-n", *how, steps=4)
            self.assertGreater(done["bytes_copied"]["d2h"], 0)
            self.same(f"{name}-1", f"{name}-n")

    def test_a_checkpoint_knows_no_devices(self):
        self.on(1, "whole", steps=6)
        self.on(3, "moves", "--save-steps", 2, "--eval-steps", 2, steps=4)
        self.on(2, "moves", "--resume-from-checkpoint", "auto", steps=6)
        self.assertEqual(self.weights("whole", 6), self.weights("moves", 6))

    def test_plans(self):
        self.ok("profile", "--model", self.config, *SHAPE, "--dtype", "fp32", "-o", "p.json")
        plan = ["plan", "--profile", "p.json", "--device-memory", "2300KiB", *SEVERAL[:2]]
        one = self.ok(*plan, "--json").json()
        two = self.ok(*plan, "--devices", 2, "-o", "two.json", "--json").json()
        self.assertNotIn("devices", one)
        self.assertEqual((two["devices"], two["micro_batches"]), (2, 5))
        self.assertLessEqual(two["device_peak_bytes"], two["device_budget_bytes"])
        people = self.ok(*plan, "--devices", 2).out
        for words in ("shared by 2 devices", "on each device", "sums on their way", "device 1"):
            self.assertIn(words, people)
        self.assertEqual(self.ok("inspect", "two.json", "--json").json(), two)
        self.on(1, "alone", steps=4)
        self.on(2, "planned", "--plan", "two.json", steps=4)
        self.same("alone", "planned")
        self.fails(2, *self.args("x", *SEVERAL, "--plan", "two.json"), says="is a plan for 2 devices, but devices is 1")

    def test_refusals(self):
        train = self.args("x", *SEVERAL, memory=None)
        self.fails(2, *train, "--device-memory", "4MiB", "--devices", 6,
                   says="raise gradient_accumulation_steps to 6 or more")
        self.fails(2, *train, "--devices", 2, says="set device_memory, or leave devices out")
        for wrong in (0, 9, "two"):
            self.fails(2, *train, "--devices", wrong, says="devices")
        self.fails(2, "plan", "--model", "gpt2-124m", "--device-spec", "rtx-4090", "--devices", 4,
                   "--gradient-accumulation-steps", 2, says="raise gradient_accumulation_steps to 4")
        self.assertFalse(os.path.exists(self.path("x")))

    def test_trace(self):
        self.on(2, "traced", "--trace", "trace.json", steps=2)
        with open(self.path("trace.json"), encoding="utf-8") as f:
            events = json.load(f)["traceEvents"]
        names = {e["args"]["name"]: e["tid"] for e in events if e["ph"] == "M"}
        self.assertIn("compute of device 1", names)
        self.assertEqual(len(names), len(set(names.values())))
        codes = {e["name"] for e in events if e.get("tid") == names["device to host of device 1"]}
        self.assertIn("SPILL", codes)
        self.assertIn("HAND", {e["name"] for e in events})


if __name__ == "__main__":
    tool.main()
