"""What `atom plan` suggests where a plan does not fit: every suggestion can be typed, and helps."""
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

    def test_a_limit_that_limits_nothing_is_said(self):
        args = ["plan", "--model", "gpt2-124m", "--device-spec", "rtx-4090", "--device-memory"]
        self.assertIn("more than the 23.2 GiB of NVIDIA GeForce RTX 4090", self.ok(*args, "48GiB").err)
        self.assertEqual(self.ok(*args, "20GiB").err, "")


if __name__ == "__main__":
    tool.main()
