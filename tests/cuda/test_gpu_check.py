#!/usr/bin/python3
"""What tools/gpu-check makes of outputs, failures, earlier results and other cards. Programs that say what a card's would
take the place of a card."""
import importlib.machinery
import importlib.util
import json
import os
import shutil
import sys
import tarfile
import tempfile
import time
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True  # beside the scripts
sys.path.insert(0, os.path.join(ROOT, "tools"))
import gpu_machine


def load(name):
    loader = importlib.machinery.SourceFileLoader(name.replace("-", "_"), os.path.join(ROOT, "tools", name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


tool, bundle = load("gpu-check"), load("gpu-bundle")
SXM, PCIE = "NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe"
STEPS = "resident: step 1 of 6: 9.0000 s\nresident: step 2 of 6: 2.0000 s\nresident: step 3 of 6: 4.0000 s\nresident: step 4 of 6: 3.0000 s\n"


class Case(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="atom-gpu-check-")
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)

    def check(self, *words):
        made = tool.Check(tool.arguments(["--out", os.path.join(self.dir, "out"), "--results", os.path.join(self.dir, "results"),
                                          "--bundle", "", "--tree", self.dir, *words]))
        made.deadline = time.time() + 1000
        return made

    def program(self, name, script):
        path = os.path.join(self.dir, name)
        with open(path, "w") as f:
            f.write("#!/bin/sh\n" + script)
        os.chmod(path, 0o755)
        return path

    def write(self, name, result):
        path = os.path.join(self.dir, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as f:
            json.dump(result, f)
        return path


class Outputs(Case):
    def test_json_between_words(self):
        self.assertEqual(tool.last_json('a {\n{"a": 1}\n{"a": 2}\nwarning: {late}\n'), {"a": 2})
        with self.assertRaises(IndexError):
            tool.last_json("nothing\n")

    def test_cut_off(self):
        got = tool.cut_off(STEPS + "resident: step 5 of 6: 0.5", 12)["resident"]
        self.assertEqual((got["median_step_seconds"], got["tokens_per_second"], got["steps"]), (3, 4, 3))
        self.assertIsNone(tool.cut_off(STEPS.splitlines()[0], 12))

    def test_libraries_that_lack(self):
        bundle.needed = lambda path: {"a": ["libb.so.1", "libc.so.6"], "b": ["libOpenCL.so.1", "libcublasLt.so.13"]}[path]
        names = [bundle.LIB + "/libb.so.1", "usr/lib/else/libOpenCL.so.1"]
        self.assertEqual(list(bundle.lacking(["a", "b"], names)), ["b needs libOpenCL.so.1"])


class Steps(Case):
    def test_time_over_ends_all_of_it(self):
        check, pid = self.check(), os.path.join(self.dir, "pid")
        slow = self.program("slow", f"sleep 600 & echo $! > {pid}\nprintf '{STEPS}' >&2\nwait\n")
        self.assertFalse(check.step("bench-7b", "capped", [slow], limit=4, parse=tool.last_json, cut=lambda text: tool.cut_off(text, 12)))
        with open(pid) as f:
            status = f"/proc/{f.read().strip()}/stat"
        if os.path.exists(status):
            with open(status) as f:
                self.assertEqual(f.read().split()[2], "Z", "it still runs")
        with open(os.path.join(self.dir, "results", "gpu-check.txt")) as f:
            self.assertRegex(f.read(), r"bench-7b +capped +cut off  resident 4 tokens/s")
        with tarfile.open(os.path.join(self.dir, "results", "logs.tar.gz")) as tar:
            self.assertIn("logs/bench-7b-capped.log", tar.getnames())

    def test_only_good_ones_are_done(self):
        check = self.check()
        count = os.path.join(self.dir, "count")
        for code, runs in ((0, 1), (77, 2), (1, 2)):
            step = self.program("step", f"echo >> {count}\nexit {code}\n")
            for _ in range(2):
                self.assertEqual(check.step("equal", f"exit {code}", [step]), code != 1)
            with open(count) as f:
                self.assertEqual(len(f.read()), runs, code)
            os.remove(count)
        self.assertEqual(check.run("none", [os.path.join(self.dir, "not there")])[0], 127)

    def test_each_op_has_a_verdict(self):
        check = self.check()
        self.program("check_cuda", 'case "$*" in *lora*) exit 77;; "host"|*add*|*sums*|"fp32 real") exit 0;; esac\n'
                     '[ "$2" = real ] && set -- "$1" "$3"\n[ -n "$2" ] && [ "$2" != linear ] || exit 1\n')
        self.assertFalse(check.stage_ops())
        ops = {name: r["exit"] for name, r in check.result["ops"].items()}
        self.assertEqual((ops["bf16-real"], ops["bf16-real-linear"], ops["bf16-real-gelu"], ops["bf16-real-lora"]), (1, 1, 0, 77))
        self.assertEqual((ops["fp32-real"], "fp32-real-linear" in ops), (0, False))
        self.assertEqual((ops["host"], ops["bf16"], ops["bf16-linear"], ops["bf16-linear-log"], ops["bf16-linear-plain"]), (0, 1, 1, 1, 1))
        self.assertEqual((ops["fp32-gelu"], ops["fp32-sums"], ops["fp32-lora"]), (0, 0, 77))
        self.assertNotIn("bf16-gelu-log", ops)

    def test_only_ops_that_are_named_are_tried_again(self):
        check = self.check()
        self.program("check_cuda", 'echo "FAIL cuda bf16 linear 2x3x5 v1 bwd: dw is off"\necho "cuda bf16: 9 cases, 1 failures, 0 entries missing"\n'
                     '[ "$1" = host ]\n')
        self.assertFalse(check.stage_ops())
        self.assertEqual(sorted(name for name in check.result["ops"] if name.startswith("bf16-") and "real" not in name),
                         ["bf16-linear", "bf16-linear-bare", "bf16-linear-log", "bf16-linear-plain"])

    def test_no_room_for_a_resident_run(self):
        self.program("atom", "echo 'atom: bench: 4 GiB of device memory are missing'\nexit 4\n")
        check, host_bytes = self.check(), tool.host_bytes
        self.addCleanup(setattr, tool, "host_bytes", host_bytes)
        tool.host_bytes = lambda field: 64 * tool.GIB
        self.assertTrue(check.bench("bench-resident", "m", "m", 1, 1, 1, ["--only", "resident"]))
        self.assertFalse(check.bench("bench-retention", "64k-1/8", "m", 1, 1, 1, ["--only", "capped"]))
        self.assertTrue(check.bench("bench-7b", "capped", "m", 1, 1, 1, ["--only", "capped"]), "94 GB in a machine of 64")
        self.assertRegex("\n".join(check.table()), r"bench-resident +m +does not fit")

    def test_what_is_promised_comes_first(self):
        check, order = self.check(), []
        check.bench = lambda stage, name, *_: order.append(name) or True
        self.assertTrue(check.stage_bench_retention())
        self.assertEqual(order, ["64k-resident", "64k-1/8", "16k-resident", "16k-1/8", "64k-resident-recompute", "64k-1/4", "64k-1/2",
                                 "16k-1/4", "16k-1/2", "16k-1/8-muon"])

    def test_the_architecture_is_the_cards(self):
        path = os.environ["PATH"]
        self.addCleanup(os.environ.__setitem__, "PATH", path)
        os.environ["PATH"] = self.dir + ":" + path
        self.program("nvidia-smi", 'case "$*" in *compute_cap*) echo 8.9; echo 8.9;; esac\n')
        self.assertIn("-DATOM_CUDA_ARCHS=89-real", self.check().configure())
        self.assertIn("-DATOM_CUDA_ARCHS=100-real", self.check("--arch", "100").configure())
        self.program("nvidia-smi", "exit 9\n")
        self.assertIn("-DATOM_CUDA_ARCHS=90-real", self.check().configure())

    def test_sanitizers_that_are_refused(self):
        path = os.environ["PATH"]
        self.addCleanup(os.environ.__setitem__, "PATH", path)
        os.environ["PATH"] = self.dir + ":" + path
        tool_says = 'echo "operation not supported"\necho "more\nand\nmore"\n[ "$2 $ATOM_CUDA_BLAS" = "racecheck plain" ] && exit 9\nexit 1\n'
        self.program("compute-sanitizer", tool_says)
        check = self.check()
        self.assertFalse(check.stage_sanitize())
        codes = {name: r["exit"] for name, r in check.result["sanitize"].items()}
        self.assertEqual(codes, {"memcheck-bf16": 77, "memcheck-fp32": 77, "racecheck-bf16": 9, "racecheck-fp32": 9})

    def test_a_stage_that_breaks_and_later_does_not(self):
        check = self.check()
        check.stage_equal = lambda: {}["none"]
        self.assertFalse(tool.run_stage(check, "equal"))
        self.assertEqual(check.result["equal"]["script"]["exit"], 1)
        check.stage_equal = lambda: True
        self.assertTrue(tool.run_stage(check, "equal"))
        self.assertNotIn("script", check.result["equal"])

    def test_programs_that_do_not_run_are_built(self):
        self.program("cuda_load", "exit 0\n")
        self.program("atom", "echo 'atom: error while loading shared libraries: libx.so.1: cannot open'\nexit 127\n")
        for name in ("check_cuda", "swapeq"):
            self.program(name, "exit 0\n")
        check = self.check("--tiny")
        check.a.tree = None  # as if from a bundle
        check.stage_build = lambda: "built"
        self.assertEqual(check.stage_start(), "built")
        self.assertEqual(check.build, os.path.join(self.dir, "out", "tree"))


class Results(Case):
    def test_merge_and_resume(self):
        merged = self.write("earlier.json", {"machine": {"card": "old"}, "start": {"doctor": {"exit": 0}}, "build": {"compile": {"exit": 0}},
                                             "ops": {"host": {"exit": 0}, "bf16": {"exit": 0}}})
        self.write("out/gpu-check.json", {"ops": {"host": {"exit": None}, "bf16": {"exit": 1}, "fp32": {"exit": None}}})
        check = self.check("--merge", merged)
        self.assertEqual(check.result, {"ops": {"host": {"exit": 0}, "bf16": {"exit": 1}, "fp32": {"exit": None}}})
        with open(merged, "w") as f:
            f.write("{")
        self.check("--merge", merged)

    def test_what_was_built_must_be_there(self):
        self.write("out/gpu-check.json", {"build": {"configure": {"exit": 0}, "compile": {"exit": 0}, "doctor": {"exit": 0}}})
        check = self.check()
        check.prebuilt = None
        check.step = lambda stage, name, *_: not check.result.get(stage)
        self.assertTrue(check.stage_build())

    def test_table_of_two_cards(self):
        def run(card, which, rate, exit_code=0, **more):
            return {"exit": exit_code, "card": card, "result": {which: {"tokens_per_second": rate, "median_step_seconds": 1, **more}}}
        check = self.check()
        check.result = {
            "bench-resident": {"gpt2-124m": run(SXM, "resident", 100000, compute_busy=None, device_peak_bytes=None),
                               "torch-gpt2-124m": {"exit": 0, "card": PCIE, "result": {"torch_tokens_per_second": 1000, "how": "so"}},
                               "copies": {"exit": 0, "result": {"h2d": {"bytes_per_second": 5e10}, "d2h_both": {"bytes_per_second": 4e10}}}},
            "bench-retention": {"64k-resident": run(SXM, "resident", 200), "64k-resident-recompute": run(SXM, "resident", 160),
                                "64k-1/2": run(SXM, "capped", 120), "64k-1/4": run(PCIE, "capped", 100)},
            "bench-7b": {"capped": run(PCIE, "capped", None), "resident": {"exit": 0, "result": {"resident": 7}}},
        }
        table = "\n".join(check.table())
        self.assertIn(f"[{SXM}]  resident 100000 tokens/s, MFU 0.08", table)
        self.assertIn("h2d 50.0 GB/s alone", table)
        self.assertIn("kept 0.600 of the best resident, 0.750 of the one that recomputes", table)
        self.assertEqual(table.count("kept"), 1, "beside another card")
        self.assertNotIn("of PyTorch", table)
        self.assertIn("cannot be shown", table)
        check.save()


class Memory(Case):
    def test_only_what_stages_need(self):
        goals = []
        self.addCleanup(setattr, tool, "touch_memory", tool.touch_memory)
        self.addCleanup(setattr, tool, "host_bytes", tool.host_bytes)
        tool.touch_memory, tool.host_bytes = lambda goal, seconds: goals.append(goal) or goal, lambda field: 1 << 30
        check = self.check()
        for stage, grown in (("equal", []), ("ops", [16]), ("bench-resident", [16, 48]), ("bench-retention", [16, 48]),
                             ("bench-7b", [16, 48, 112]), ("ops", [16, 48, 112])):
            check.grow(stage)
            self.assertEqual([goal >> 30 for goal in goals], grown, stage)
        tool.host_bytes = lambda field: 1 << 40
        check.result["start"] = {}
        check.grow("bench-7b")
        self.assertEqual(len(goals), 3, "there was enough")

    def test_touched(self):
        self.assertEqual(gpu_machine.touch_memory(gpu_machine.TOUCHERS, 0), 0)
        self.assertGreater(gpu_machine.host_bytes("MemTotal"), 0)
        gpu_machine.TOUCHERS, gpu_machine.SPARE_BYTES = 1, 0
        self.assertEqual(gpu_machine.touch_memory(gpu_machine.TOUCH_BYTES, 50), gpu_machine.TOUCH_BYTES)


if __name__ == "__main__":
    unittest.main()
