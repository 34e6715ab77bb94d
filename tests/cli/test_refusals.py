"""What `atom plan` suggests where a plan does not fit: every suggestion can be typed, and helps."""
import json
import os
import random
import re

import tool


class Refusals(tool.Case):
    def refused(self, *args, says, silent=()):
        told = self.fails(4, "plan", *args).err
        self.assertRegex(told, r"bytes\) are missing; use ")
        advice = told.partition("are missing; use ")[2]
        for words in says:
            self.assertIn(words, advice)
        for words in silent:
            self.assertNotIn(words, advice)
        return advice

    def test_no_more_memory_than_the_card_has(self):
        large = ["--model", "gpt3-175b", "--device-spec", "gtx-1080-ti", "--dtype", "fp32", "--host-memory", "4TiB"]
        self.refused(*large, says=["a smaller --micro-batch-size", "a device with more memory"], silent=["--device-memory"])
        self.refused(*large, "--micro-batch-size", 1, says=["a shorter --sequence-len", "a device with more memory"],
                     silent=["--device-memory", "--micro-batch-size"])
        told = self.refused("--model", "gpt2-124m", "--device-spec", "rtx-4090", "--device-memory", "100MiB",
                            says=["--device-memory"], silent=["more memory"])
        enough = re.search(r"--device-memory (\d+MiB)", told).group(1)
        self.ok("plan", "--model", "gpt2-124m", "--device-spec", "rtx-4090", "--device-memory", enough)

    def test_what_was_asked_for_is_what_is_too_much(self):
        small = ["--model", "gpt2-124m", "--device-spec", "rtx-4090", "--device-memory", "600MiB"]
        self.refused(*small, "--gradient-accumulation-steps", 65536, says=["fewer --gradient-accumulation-steps"],
                     silent=["--device-memory", "--recompute"])
        told = self.refused(*small, "--recompute", "never", says=["--recompute auto"],
                            silent=["fewer --gradient-accumulation-steps"])
        enough = re.search(r"--device-memory (\d+MiB)", told).group(1)
        plan = self.ok("plan", *small[:-1], enough, "--recompute", "never", "--json").json()
        keeps = {sub["keep"] for sub in plan["sub_models"][:-1]}
        self.assertNotIn("recompute", keeps)
        self.refused("--model", "gpt2-124m", "--device-spec", "rtx-4090", "--host-memory", "1GiB",
                     "--gradient-accumulation-steps", 1, "--optimizer-state", "memory", says=["--optimizer-state disk"])
        self.ok("plan", "--model", "gpt2-124m", "--device-spec", "rtx-4090", "--host-memory", "1GiB",
                "--gradient-accumulation-steps", 1, "--optimizer-state", "disk")

    def test_a_disk_that_is_not_there_or_not_used(self):
        store = ["plan", "--model", "gpt2-124m", "--device-spec", "rtx-4090", "--store-dir"]
        self.write("file", "")
        for place in "nowhere", "file":
            self.fails(2, *store, self.path(place), says=[place, "no such directory"])
        self.fails(2, *store, self.dir, "--optimizer-state", "memory", says="would have no effect")
        self.assertIn("store_dir is not used, because the optimizer's state fits in memory", self.ok(*store, self.dir).err)
        self.assertNotIn("not used", self.ok(*store, self.dir, "--optimizer-state", "disk").err)

    def test_what_a_described_device_is_not_asked(self):
        profile = ["profile", "--model", "gpt2-124m", "--device-spec", "rtx-4090"]
        for more in ["--threads", 2], ["--link-bandwidth", "1GB"], ["--data", self.dir]:
            self.fails(2, *profile, *more, says=[more[0] + " ", "no effect"])

    def test_no_more_than_all_parameters_on_the_device(self):
        """Slots of small models hold more room between parameters than parameters."""
        self.write("c.json", json.dumps(dict(model_type="gpt2", vocab_size=300, n_positions=32, n_embd=16, n_layer=2, n_head=2)))
        told = self.ok("plan", "--model", "c.json", "--device-spec", "rtx-4090", "--device-memory", "1MiB").out
        self.assertRegex(told, r"parameters +11\.9 k; at most 23\.2 KiB of them \(100 %\) on the device at once")

    def test_files_of_another_machine_are_said(self):
        model = self.write("c.json", json.dumps(dict(model_type="gpt2", n_embd=48, n_layer=2, n_head=2, n_positions=32, vocab_size=257)))
        self.write("t.txt", tool.english(3000))
        self.ok("data", "prepare", "-i", "t.txt", "-o", "data")
        shape = ["--model", model, "--sequence-len", 16, "--micro-batch-size", 1, "--dtype", "fp32"]
        train = ["train", *shape, "--data", "data", "-o", "run", "--gradient-accumulation-steps", 2, "--dry-run", "--quiet"]
        profile = self.ok("profile", *shape, "-o", "here.json", "--json").json()
        profile["device"]["name"] = "cpu: of a friend, 9 threads"
        self.write("there.json", json.dumps(profile))
        for place in "here", "there":
            self.ok("plan", "--profile", place + ".json", "--gradient-accumulation-steps", 2, "-o", f"plan-{place}.json")
            for key, file in ("profile", place + ".json"), ("plan", f"plan-{place}.json"):
                said = f"note: the {key} is for 'cpu: of a friend, 9 threads', but this is '"
                self.assertEqual(said in self.ok(*train, "--" + key, file).err, place == "there", (key, place))

    def test_both_steps_of_a_state_on_disk_stand_together(self):
        told = self.ok("plan", "--model", "gpt2-124m", "--device-spec", "rtx-4090", "--optimizer-state", "disk",
                       "--gradient-accumulation-steps", 16).out
        self.assertRegex(told, r"predicted step .* tokens/s, where a gradient is clipped\n +\S+ m?s while none is clipped, .* tokens/s\n")
        plan = self.ok("plan", "--model", "gpt2-124m", "--device-spec", "rtx-4090", "--optimizer-state", "disk",
                       "--gradient-accumulation-steps", 16, "--json", "-o", "plan.json").json()
        self.assertLess(0, plan["predicted_ahead_seconds"])
        self.assertLess(plan["predicted_ahead_seconds"], plan["predicted_step_seconds"])
        self.assertEqual(json.loads(self.read("plan.json")), plan)

    def test_a_limit_that_limits_nothing_is_said(self):
        args = ["plan", "--model", "gpt2-124m", "--device-spec", "rtx-4090", "--device-memory"]
        self.assertIn("more than the 23.2 GiB of NVIDIA GeForce RTX 4090", self.ok(*args, "48GiB").err)
        self.assertEqual(self.ok(*args, "20GiB").err, "")

    def test_inspect_nothing(self):
        self.write("empty", "")
        self.write("noise", bytes(random.Random(1).randbytes(5000)))
        self.write("other.json", "{}")
        for name in ("empty", "noise", "other.json", "missing"):
            self.fails(3, "inspect", name, says=name)
        self.fails(2, "inspect", says="FILE")


if __name__ == "__main__":
    tool.main()
