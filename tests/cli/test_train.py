"""Profile, plan, train, eval, generate, inspect: the contract, and what happens on bad days."""
import json
import os
import random
import signal
import shutil
import struct
import time

import tool

CONFIG = {"model_type": "gpt2", "vocab_size": 257, "n_positions": 48, "n_embd": 48, "n_layer": 4,
          "n_head": 3, "resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1}
SHAPE = ["--micro-batch-size", 2, "--sequence-len", 32]
BATCH = SHAPE + ["--gradient-accumulation-steps", 2]
# enough for two neighbours of this model and their gradients, not for all of it
BUDGET, BUDGET_BYTES = "2300KiB", 2300 * 1024

SUMMARY_KEYS = {"steps", "final_loss", "device_peak_bytes", "host_peak_bytes", "process_peak_bytes", "busy_seconds", "bytes_copied",
                "predicted_step_seconds", "median_step_seconds"}
METRIC_KEYS = {"step", "loss", "grad_norm", "learning_rate", "tokens_per_second", "seconds"}
PLAN_KEYS = {"sub_models", "micro_batches", "recommended_micro_batches", "predicted_step_seconds", "bound",
             "device_peak_bytes", "host_peak_bytes", "cut_bytes"}


class TrainCase(tool.DataCase):
    """All tests of a class share one data set and one cache; each has its own directory."""

    MODEL = CONFIG

    def args(self, out, *more, steps=6, memory=BUDGET):
        budget = ["--device-memory", memory] if memory else []
        return ["train", "--model", self.config, "--data", self.data, "--output-dir", out, "--dtype", "fp32",
                "--max-steps", steps, "--warmup-steps", 0, "--eval-steps", 0, *BATCH, *budget, *more]

    def train(self, out, *more, **options):
        return self.ok(*self.args(out, *more, "--json", **options)).json()

    def metrics(self, out):
        return [json.loads(line) for line in self.read(out, "metrics.jsonl").splitlines()]

    def losses(self, out):
        return {m["step"]: (m["loss"], m["grad_norm"]) for m in self.metrics(out) if m.get("split") != "val"}

    def last_step(self, out):
        try:
            with open(self.path(out, "metrics.jsonl"), "rb") as f:
                lines = f.read().split(b"\n")[:-1]
            return json.loads(lines[-1])["step"] if lines else 0
        except (FileNotFoundError, ValueError):
            return 0

    def weights(self, out, step):
        return self.read(out, f"checkpoint-{step}", "model.safetensors")


class Contract(TrainCase):
    def test_profile_and_plan(self):
        made = self.ok("profile", "--model", self.config, *SHAPE, "--dtype", "fp32", "-o", "p.json", "--json")
        profile = made.json()
        self.assertEqual(profile["micro_batch"], 2)
        with open(self.path("p.json"), encoding="utf-8") as f:
            self.assertEqual(json.load(f), profile)
        plan = self.ok("plan", "--profile", "p.json", "--device-memory", BUDGET, "-o", "plan.json", "--json").json()
        self.assertLessEqual(PLAN_KEYS, set(plan))
        self.assertGreater(len(plan["sub_models"]), 1)
        at = 0
        for sub_model in plan["sub_models"]:
            self.assertEqual(sub_model["first_node"], at)
            at = sub_model["last_node"] + 1
            self.assertGreater(sub_model["param_bytes"], 0)
        self.assertEqual(at, len(profile["nodes"]))
        self.assertLessEqual(plan["device_peak_bytes"], BUDGET_BYTES)
        with open(self.path("plan.json"), encoding="utf-8") as f:
            self.assertEqual(json.load(f), plan)
        people = self.ok("plan", "--profile", "p.json", "--device-memory", BUDGET).out
        for words in ("predicted step", "bound by", "micro-batches", "memory map", "timeline"):
            self.assertIn(words, people)
        for name in ("p.json", "plan.json"):
            self.assertEqual(self.ok("inspect", name, "--json").json(), profile if name == "p.json" else plan)
            self.ok("inspect", name)

    def test_what_one_change_would_buy(self):
        """In one screen, or one object; every figure is a plan's own."""
        card = ["plan", "--model", "gpt2-124m", "--device-spec", "rtx-4090", "--device-memory", "700MiB", "--dtype", "bf16",
                "--sequence-len", 512, "--micro-batch-size", 1, "--gradient-accumulation-steps", 4]
        plan = self.ok(*card, "--host-memory", "1GiB", "--json").json()
        told = self.ok(*card, "--host-memory", "1GiB", "--what-if", "--json").json()
        for key in ("predicted_step_seconds", "micro_batches", "bound", "disk", "device_peak_bytes", "host_peak_bytes"):
            self.assertEqual(told[key], plan[key], key)
        self.assertTrue(told["fits"])
        narrow = next(c for c in told["changes"] if c.get("option") == "--moments-dtype bf16")
        again = self.ok(*card, "--host-memory", "1GiB", "--moments-dtype", "bf16", "--json").json()
        self.assertEqual(narrow["predicted_step_seconds"], again["predicted_step_seconds"])
        people = self.ok(*card, "--host-memory", "1GiB", "--what-if", "-o", "kept.json").out
        self.assertLessEqual(len(people.splitlines()), 24)
        for words in ("fits              yes", "predicted", "bound by", "bf16 moments", "--moments-dtype bf16"):
            self.assertIn(words, people)
        with open(self.path("kept.json"), encoding="utf-8") as f:
            self.assertEqual(json.load(f), plan)
        roomy = self.ok(*card, "--host-memory", "64GiB", "--what-if").out
        row = next(line for line in roomy.splitlines() if "128 GiB of host memory" in line)
        self.assertIn("no gain", row)
        self.assertNotIn("--host-memory 128GiB", roomy, "what to type for nothing")
        short = self.fails(4, *card, "--host-memory", "1GiB", "--optimizer-state", "memory", "--what-if",
                           says="not enough host memory")
        self.assertIn("fits              no: not enough host memory", short.out)
        self.assertIn("--optimizer-state disk", short.out)

    def test_plan_for_a_card_that_is_not_here(self):
        plan = self.ok("plan", "--model", "gpt2-774m", "--device-spec", "rtx-4090", "--device-memory", "4GiB",
                       "--sequence-len", 512, "--json").json()
        self.assertLessEqual(plan["device_peak_bytes"], 4 << 30)
        self.assertEqual(plan["dtype"], "bf16")
        self.assertNotIn("updates", plan, "on the host, as what a plan does not say")
        roomy = ["plan", "--model", "gpt2-774m", "--device-spec", "h100", "--sequence-len", 512]
        self.assertEqual(self.ok(*roomy, "--json").json()["updates"], "device", "as atom train would on such a card")
        self.assertIn("AdamW           on the device", self.ok(*roomy).out)
        self.assertNotIn("updates", self.ok(*roomy, "--updates", "host", "--json").json())
        old = self.ok("plan", "--model", "gpt2-124m", "--device-spec", "gtx-1080-ti", "--sequence-len", 256, "--json").json()
        self.assertEqual(old["dtype"], "fp32", "that card has no bf16")
        self.fails(4, "plan", "--model", "gpt2-774m", "--device-spec", "rtx-4090", "--device-memory", "100MiB",
                   says=["missing", "--device-memory"])
        self.fails(4, "plan", "--model", "gpt3-175b", "--device-spec", "rtx-4090", "--host-memory", "64GiB",
                   says="missing")
        self.fails(2, "plan", "--model", "gpt2-774m", "--device-spec", "rtx-4091", says="rtx-4090")
        self.fails(2, "plan", "--model", "gpt2-775m", "--device-spec", "rtx-4090", says="gpt2-774m")
        self.fails(2, "plan", says="--profile")
        here = self.ok("plan", "--model", self.config, *SHAPE, "--device-memory", "3MiB", "--json").json()
        self.assertLessEqual(here["device_peak_bytes"], 3 << 20)

    def test_train_and_what_it_leaves(self):
        summary = self.train("run", "--eval-steps", 3, "--save-steps", 2, "--save-total-limit", 2, steps=7)
        self.assertLessEqual(SUMMARY_KEYS, set(summary))
        self.assertEqual(summary["steps"], 7)
        self.assertLessEqual(summary["device_peak_bytes"], BUDGET_BYTES)
        self.assertGreater(summary["bytes_copied"]["h2d"], 0)
        self.assertGreater(summary["busy_seconds"]["compute"], 0)
        lines = self.metrics("run")
        steps = [m for m in lines if m.get("split") != "val"]
        self.assertEqual([m["step"] for m in steps], list(range(1, 8)))
        for m in steps:
            self.assertLessEqual(METRIC_KEYS, set(m))
        self.assertAlmostEqual(summary["final_loss"], steps[-1]["loss"], 12)
        self.assertLess(steps[-1]["loss"], steps[0]["loss"])
        validations = [m for m in lines if m.get("split") == "val"]
        self.assertEqual([m["step"] for m in validations], [3, 6, 7])
        kept = sorted(n for n in os.listdir(self.path("run")) if n.startswith("checkpoint-"))
        self.assertEqual(kept, ["checkpoint-6", "checkpoint-7"])
        for name in ("config.json", "model.safetensors", "tokenizer.json"):
            self.assertTrue(os.path.exists(self.path("run", "checkpoint-7", name)), name)
        inspected = self.ok("inspect", "run/checkpoint-7", "--json").json()
        self.assertEqual((inspected["kind"], inspected["step"]), ("checkpoint", 7))
        tensors = self.ok("inspect", "run/checkpoint-7/model.safetensors", "--json").json()
        self.assertEqual(tensors["elements"], inspected["parameters"])
        shard = self.ok("inspect", os.path.join(self.data, "train_000000.bin"), "--json").json()
        self.assertEqual(shard["kind"], "shard")
        self.evaluate_and_generate()

    def evaluate_and_generate(self):
        model = ["--model", "run/checkpoint-7", "--dtype", "fp32"]
        where = ["--data", self.data, *SHAPE]
        result = self.ok("eval", *model, *where, "--json").json()
        self.assertGreater(result["tokens"], 1000)
        self.assertGreater(result["loss"], 1)
        swapped = self.ok("eval", *model, *where, "--device-memory", BUDGET, "--json").json()
        self.assertEqual(swapped["loss"], result["loss"])
        made = self.ok("generate", *model, "--prompt", "the king", "--max-tokens", 20, "--json").json()
        self.assertEqual(made["tokens"], 20)
        again = self.ok("generate", *model, "--prompt", "the king", "--max-tokens", 20)
        self.assertEqual(again.out, "the king" + made["text"] + "\n")
        self.assertEqual(again.err, "")
        other = self.ok("generate", *model, "--prompt", "the king", "--max-tokens", 20, "--seed", 7, "--json").json()
        self.assertNotEqual(other["text"], made["text"])

    def test_trace(self):
        self.train("run", "--trace", "trace.json", steps=3)
        with open(self.path("trace.json"), encoding="utf-8") as f:
            trace = json.load(f)
        events = [e for e in trace["traceEvents"] if e["ph"] == "X"]
        names = {e["name"].split()[0] for e in events}
        self.assertLessEqual({"FETCH", "FWD", "BWD", "SPILL", "UPDATE"}, names)
        self.assertTrue(all(e["dur"] >= 0 for e in events))

    def test_streams_stay_clean(self):
        quiet = self.ok(*self.args("run", "--json", "--quiet"))
        self.assertEqual(quiet.err, "")
        quiet.json()
        plain = self.ok(*self.args("run2"))
        self.assertIn("step 6/6", plain.err)
        self.assertNotIn("\r", plain.err)
        self.assertIn("loss", plain.out)
        self.assertRegex(plain.out, r"host memory [0-9.]+ [KM]iB \(the whole process: [0-9.]+ MiB\)\n")

    def test_config_file(self):
        self.write("run.yml", f"model: {self.config}\ndata: {self.data}\noutput_dir: a\ndevice_memory: {BUDGET}\n"
                   "dtype: fp32\nmicro_batch_size: 2\nsequence_len: 32\ngradient_accumulation_steps: 2\n"
                   "max_steps: 5\nwarmup_steps: 0\neval_steps: 0\n")
        self.ok("train", "run.yml")
        self.train("b", steps=5)
        self.assertEqual(self.losses("a"), self.losses("b"))
        printed = self.ok("train", "run.yml", "--output_dir=c", "--print-config").out
        self.write("again.yml", "\n".join(line.split("  # ")[0] for line in printed.splitlines()))
        self.ok("train", "again.yml")
        self.assertEqual(self.losses("a"), self.losses("c"))
        self.assertFalse(os.path.exists(self.path("d")))
        dry = self.ok("train", "run.yml", "--output-dir", "d", "--dry-run", "--json").json()
        self.assertLessEqual(PLAN_KEYS, set(dry))
        self.assertFalse(os.path.exists(self.path("d", "metrics.jsonl")))


class Bench(TrainCase):
    """Rates beside ceilings. Numbers are not asserted: machines differ, and drift."""

    def test_rates(self):
        adamw = self.ok("bench", "adamw", "--params", 100000, "--rounds", 3, "--json").json()
        self.assertAlmostEqual(adamw["ratio"], adamw["rate"]["bytes_per_second"] /
                               adamw["ceiling"]["bytes_per_second"])
        copy = self.ok("bench", "copy", "--bytes", "1MiB", "--rounds", 3, "--json").json()
        for key in ("h2d", "d2h", "h2d_both", "d2h_both", "ceiling"):
            self.assertGreater(copy[key]["bytes_per_second"], 0)
        codec = self.ok("bench", "codec", "--bytes", "1MiB", "--rounds", 3, "--json").json()
        for rate in (codec["hash_bytes_per_second"], codec["encode_bytes_per_second"]["int8"],
                     *(codec["boundary_bytes_per_second"][c] for c in ("int8", "int4", "int2", "topk:0.1", "randomk:0.1"))):
            self.assertGreater(rate, 0)
        matmul = self.ok("bench", "matmul", "--model", self.config, *SHAPE, "--rounds", 3, "--json").json()
        self.assertEqual(len(matmul["nodes"]), 6)
        self.assertGreater(matmul["flops_per_second"], 0)
        plan = self.ok("bench", "plan", "--model", self.config, "--dtype", "fp32", "--json").json()
        self.assertGreaterEqual(plan["rows"], 3 * 5 * 9)
        self.assertLessEqual(plan["min_seconds"], plan["median_seconds"])
        self.assertLessEqual(plan["median_seconds"], plan["max_seconds"])
        self.assertGreater(self.ok(*plan["slowest"].split()[1:], "--json").json()["predicted_step_seconds"], 0)
        for what in ("adamw", "copy"):
            size = ("--params", 100000) if what == "adamw" else ("--bytes", "1MiB")
            self.assertIn("ceiling", self.ok("bench", what, *size, "--rounds", 1).out)
        self.fails(2, "bench", "adam", says="did you mean 'adamw'")
        for what, key in ("adamw", "--model"), ("copy", "--steps"), ("train", "--rounds"), ("disk", "--params"), ("plan", "--steps"):
            self.fails(2, "bench", what, key, 2000, says=f"bench {what} does not use {key[2:]}")

    def test_train(self):
        args = ["bench", "train", "--model", self.config, *BATCH, "--steps", 3, "--device-memory", "3MiB"]
        result = self.ok(*args, "--json").json()
        self.assertLessEqual(result["capped"]["device_peak_bytes"], 3 << 20)
        self.assertGreater(result["resident"]["tokens_per_second"], 0)
        self.assertGreater(result["kept"], 0)
        self.assertIn("kept", self.ok(*args).out)


def events(data):
    """Steps and scalars of a TensorBoard file, by the formats' own rules and nothing of ours."""
    def varint(at):
        value = shift = 0
        while True:
            value |= (data[at] & 0x7f) << shift
            shift, at = shift + 7, at + 1
            if not data[at - 1] & 0x80:
                return value, at

    def fields(at, end):
        while at < end:
            key, at = varint(at)
            if key & 7 == 0:
                value, at = varint(at)
            elif key & 7 == 2:
                size, at = varint(at)
                value, at = (at, at + size), at + size
            else:
                size = 8 if key & 7 == 1 else 4
                value, at = struct.unpack("<d" if size == 8 else "<f", data[at:at + size])[0], at + size
            yield key >> 3, value

    def crc(part):
        value = 0xffffffff
        for byte in part:
            value ^= byte
            for _ in range(8):
                value = value >> 1 ^ (0x82f63b78 if value & 1 else 0)
        value ^= 0xffffffff
        return ((value >> 15 | value << 17) + 0xa282ead8) & 0xffffffff

    at, out = 0, []
    while at < len(data):
        size, head = struct.unpack("<QI", data[at:at + 12])
        assert head == crc(data[at:at + 8])
        begin, end = at + 12, at + 12 + size
        assert struct.unpack("<I", data[end:end + 4])[0] == crc(data[begin:end])
        event = dict(fields(begin, end))
        for _, value in fields(*event[5]) if 5 in event else ():
            scalar = dict(fields(*value))
            out.append((event[2], data[slice(*scalar[1])].decode(), scalar[2]))
        at = end + 4
    return out


class Same(TrainCase):
    """Swapping, code, threads and crashes change nothing but time."""

    def test_swapped_is_resident(self):
        self.train("resident", memory=None)
        for name, more in (("swapped", ["--execute", "interpreted"]), ("generated", ["--execute", "generated"]),
                           ("threads", ["--threads", 1]), ("recompute", ["--recompute", "always"])):
            self.train(name, *more)
            self.assertEqual(self.losses(name), self.losses("resident"), name)
            self.assertEqual(self.weights(name, 6), self.weights("resident", 6), name)

    def test_checkpoints_are_written_while_it_trains(self):
        """A checkpoint in the middle is the one that a run to there ends with, clipping or not."""
        for clip in (1, 0):
            more = ["--lr-scheduler", "constant", "--max-grad-norm", clip, "--save-total-limit", 0]
            self.train(f"short{clip}", *more, steps=4)
            self.train(f"long{clip}", *more, "--save-steps", 1, steps=7)
            for name in ("model.safetensors", "optimizer.safetensors"):
                self.assertEqual(self.read(f"long{clip}", "checkpoint-4", name),
                                 self.read(f"short{clip}", "checkpoint-4", name), (clip, name))

    def test_rounded_checkpoints_resume_exactly(self):
        more = ["--lr-scheduler", "constant"]
        self.train("whole", *more)
        self.train("cut", *more, "--save-dtype", "bf16", steps=3)
        size = [len(self.read(run, "checkpoint-" + at, "model.safetensors")) for run, at in (("cut", "3"), ("whole", "6"))]
        self.assertLess(size[0], 0.6 * size[1])
        self.ok(*self.args("cut", *more, "--resume-from-checkpoint", "auto"))
        self.assertEqual(self.weights("cut", 6), self.weights("whole", 6))

    def test_shards_of_others(self):
        """What llm.c and nanoGPT made, as it is: the same tokens, the same losses."""
        shard = self.read(self.data, "train_000000.bin")
        for name, out, data in (("tiny_shakespeare_train.bin", "llmc", shard), ("train.bin", "nanogpt", shard[1024:])):
            os.mkdir(self.path(out + "-data"))
            self.write(f"{out}-data/{name}", data)
            self.write(f"{out}-data/meta.pkl", b"never read")
        self.train("ours")
        for out in ("llmc", "nanogpt"):
            self.ok(*self.args(out, "--data", out + "-data"))
            self.assertEqual(self.losses(out), self.losses("ours"), out)
            self.ok("eval", "--model", f"{out}/checkpoint-6", "--data", out + "-data", "--split", "train")
        wide = b"".join(struct.pack("<I", 40000 + i) for i in range(2000))
        self.write("nanogpt-data/train.bin", wide)
        self.fails(3, *self.args("wide", "--data", "nanogpt-data"), says=["train.bin", "40000", "257", "uint16"])

    def test_preset(self):
        """The program gives the defaults of sft where nothing else is said."""
        args = self.args("run", "--preset", "sft", "--weight-decay", 0.01, "--print-config")
        shown = self.ok(*args).out
        for line in ("learning_rate: 2e-05  # preset", "adam_beta2: 0.999  # preset", "weight_decay: 0.01  # command line"):
            self.assertIn(line, shown)

    def test_epochs(self):
        """As many whole steps as are in the passes."""
        tokens = struct.unpack("<I", self.read(self.data, "train_000000.bin")[8:12])[0]
        steps = (tokens - 1) // 1024 // 4  # windows of 1024, 2 a micro-batch, 2 of them a step
        with open(self.path("long.json"), "w", encoding="ascii") as f:
            json.dump(dict(CONFIG, n_positions=1024), f)
        args = self.args("run", "--sequence-len", 1024, memory=None)
        args[args.index("--max-steps"):args.index("--max-steps") + 2] = ["--num-train-epochs", 0.5]
        args[args.index("--model") + 1] = self.path("long.json")
        self.assertIn(f"num_train_epochs 0.5: {max(1, steps // 2)} step", self.ok(*args).err)
        self.assertEqual(self.metrics("run")[-1]["step"], max(1, steps // 2))
        self.fails(2, *self.args("run", "--epochs", 1), says=["max-steps", "num-train-epochs"])

    def test_tensorboard_tells_the_same(self):
        self.train("run", "--report-to", "tensorboard", "--eval-steps", 3, "--eval-batches", 1, "--lr-scheduler", "wsd")
        names = [n for n in os.listdir(self.path("run")) if n.startswith("events.out.tfevents.")]
        self.assertEqual(len(names), 1)
        told = events(self.read("run", names[0]))
        for line in self.metrics("run"):
            val = line.get("split") == "val"
            for tag, key in [("eval/loss", "loss")] if val else [("train/loss", "loss"), ("train/grad_norm", "grad_norm"),
                                                                 ("train/learning_rate", "learning_rate")]:
                found = [v for step, t, v in told if step == line["step"] and t == tag]
                self.assertEqual(len(found), 1, (line, tag))
                self.assertAlmostEqual(found[0], line[key], delta=1e-6 * max(1, abs(line[key])))

    def test_killed_and_resumed(self):
        steps = 40
        self.train("whole", steps=steps)
        pick = random.Random(5)
        budgets = [None, BUDGET, "2600KiB"]
        for i in range(12):
            more = ["--save-steps", pick.choice([1, 3]), "--resume-from-checkpoint", "auto", "--save-total-limit", 3,
                    "--threads", pick.choice([1, 2]), "--execute", pick.choice(["generated", "interpreted"])]
            process = self.start_atom(*self.args("killed", *more, steps=steps, memory=pick.choice(budgets)))
            deadline = time.monotonic() + 60
            target = pick.randint(1, 4) + self.last_step("killed")
            while process.poll() is None and time.monotonic() < deadline and self.last_step("killed") < target:
                time.sleep(0.002)
            time.sleep(pick.random() * 0.02)
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            _, err = process.communicate()
            self.assertIn(process.returncode, (0, -signal.SIGKILL), err)
            if i == 11 or process.returncode == 0:
                break
        if not os.path.exists(self.path("killed", f"checkpoint-{steps}")):  # else the last kill came behind the end
            self.ok(*self.args("killed", "--resume-from-checkpoint", "auto", steps=steps))
        self.assertEqual(self.weights("killed", steps), self.weights("whole", steps))
        self.assertEqual(self.losses("killed"), self.losses("whole"))

    def test_signals_save_and_say_so(self):
        self.addCleanup(signal.signal, signal.SIGHUP, signal.signal(signal.SIGHUP, signal.SIG_DFL))  # under nohup it is ignored
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)):
            out = f"run{code}"
            process = self.start_atom(*self.args(out, "--json", steps=1000000))
            deadline = time.monotonic() + 60
            while self.last_step(out) < 2 and time.monotonic() < deadline and process.poll() is None:
                time.sleep(0.01)
            for _ in range(2 if number == signal.SIGHUP else 1):  # a terminal that goes sends two
                process.send_signal(number)
            stdout, err = process.communicate(timeout=60)
            self.assertEqual(process.returncode, code, err)
            summary = json.loads(stdout)
            self.assertTrue(summary["interrupted"])
            self.assertIn("--resume-from-checkpoint auto", err)
            self.assertEqual(summary["steps"], step := self.last_step(out))
            self.assertTrue(os.path.exists(self.path(out, f"checkpoint-{step}", "model.safetensors")))
            more = self.ok(*self.args(out, "--resume-from-checkpoint", "auto", "--json", steps=step + 2)).json()
            self.assertEqual((more["first_step"], more["steps"]), (step + 1, step + 2))


class Unhappy(TrainCase):
    """One clear line with the fix, the right exit code, and no lost checkpoint."""

    def test_usage(self):
        self.fails(2, *self.args("run", "--learing-rate", 1), says="did you mean '--learning-rate'")
        self.fails(2, *self.args("run", "--resume"), says="did you mean '--resume-from-checkpoint'")
        self.fails(2, *self.args("run", "--max-steps", "many"), says="--max-steps")
        self.fails(2, *self.args("run", "--device", "cuda"), says="CUDA")
        self.fails(2, *self.args("run", "--device", "tpu"), says="tpu")
        self.fails(2, *self.args("run", "--sequence-len", 400), says="48")
        self.fails(2, *self.args("run", "--warmup-steps", 100), says="warmup_steps")
        for key in "--adam-epsilon", "--learning-rate", "--weight-decay", "--max-grad-norm":
            self.fails(2, *self.args("run", key, "1e-46"), says=[key, "1e-46 is too small", "fp32"])
        self.write("bad.yml", "data: d\noutput_dir: o\nlearing_rate: 1\n")
        self.fails(2, "train", "bad.yml", says=["bad.yml:3", "did you mean 'learning_rate'"])
        self.write("twice.yml", "seed: 1\nseed: 2\n")
        self.fails(2, "train", "twice.yml", says="twice.yml:2")
        self.fails(2, "train", "missing.yml", says="missing.yml")
        self.fails(2, "train", "--data", self.data, says="--output-dir")
        for key in "--trace", "--plan", "--profile", "--data", "--store-dir", "--output-dir", "--model":
            self.fails(2, *self.args("run", key, ""), says=key + ": it is empty; name ")
        self.assertFalse(os.path.exists(self.path("run")))

    def test_missing_and_damaged_inputs(self):
        self.fails(3, *self.args("run", "--data", "nowhere"), says="nowhere")
        self.fails(2, *self.args("run", "--model", "gpt2-125"), says="gpt2-124m")
        self.fails(2, *self.args("run", "--model", "gpt2"), says="gpt2-124m")
        self.write("book.txt", "In the beginning\n")
        self.fails(3, *self.args("run", "--model", "book.txt"), says="book.txt is not a model")
        self.write("model.safetensors", b"\x10\0\0\0\0\0\0\0{}              ")
        self.fails(2, *self.args("run", "--model", "model.safetensors"), says="give the directory that contains it")
        for word in "nowhere", "true", "latest":
            self.fails(2, *self.args("run", "--resume-from-checkpoint", word), says=["no directory " + word, "auto"])
        self.fails(2, "profile", "--model", self.config, "-o", "nowhere/p.json", says="no directory nowhere")
        # Who is told of an error is not given half of an answer.
        self.assertEqual(self.fails(3, "generate", "--model", "book.txt", "--prompt", "In").out, "")
        self.write("config.json", "{\"model_type\": \"gpt2\", \"n_head\": 3, \"n_embd\": 32}")
        self.fails(3, *self.args("run", "--model", "config.json"), says="config.json")
        self.write("config.json", b"\xef\xbb\xbf" + json.dumps(CONFIG).encode())
        for model in "config.json", self.dir:
            self.fails(3, *self.args("run", "--model", model), says=["config.json: it begins with a byte order mark", "sed -i"])
        self.fails(3, *self.args("run", "--plan", "none.json"), says="none.json")
        self.fails(3, *self.args("run", "--profile", self.config), says="tiny.json")
        shutil.copytree(self.data, self.path("d"))
        shard = self.read("d", "train_000000.bin")
        self.write("d/train_000000.bin", shard[:2001])
        self.fails(3, *self.args("run", "--data", "d"), says="train_000000.bin")

    def test_too_little_memory(self):
        result = self.fails(4, *self.args("run", memory="64KiB"), says=["missing", "--device-memory"])
        self.assertRegex(result.err, r"[0-9]+ bytes")
        self.fails(4, *self.args("run", "--host-memory", "100KiB"), says=["missing"])
        self.assertFalse(os.path.exists(self.path("run", "metrics.jsonl")))

    def test_a_plan_fixes_c(self):
        self.ok("profile", "--model", self.config, *SHAPE, "--dtype", "fp32", "-o", "p.json")
        self.ok("plan", "--profile", "p.json", "--device-memory", BUDGET, "--gradient-accumulation-steps", 3, "-o",
                "plan.json")
        self.fails(2, *self.args("run", "--plan", "plan.json"), says="gradient_accumulation_steps")
        self.ok("plan", "--profile", "p.json", "--device-memory", "3MiB", "--gradient-accumulation-steps", 2, "-o", "more.json")
        self.fails(2, *self.args("run", "--plan", "more.json"), says=["more.json needs", "device_memory allows only 2.2 MiB"])

    def test_what_this_run_does_not_use_is_said(self):
        said = self.ok(*self.args("out", "--dry-run", "--store-dir", "/no", "--store", "threads", "--update-ahead", "never", memory=None)).err
        for key in "store_dir", "store", "update_ahead":
            self.assertIn(f"note: {key} is not used, because the optimizer's state fits in memory", said)
        said = self.ok(*self.args("out", "--dry-run", memory=None)).err
        self.assertNotIn("not used", said)
        self.assertNotIn("no tokenizer.json", said)
        shutil.copytree(self.data, self.path("bare"))
        os.remove(self.path("bare", "tokenizer.json"))
        said = self.ok(*self.args("out", "--dry-run", "--data", "bare", memory=None)).err
        self.assertIn("bare has no tokenizer.json, so the checkpoints will have none", said)

    def test_a_batch_that_no_memory_holds(self):
        wide = self.write("wide.json", json.dumps(dict(CONFIG, vocab_size=50257, n_positions=2048)))
        self.fails(4, "profile", "--model", wide, "--micro-batch-size", 65536, "--sequence-len", 512, "-o", "p.json",
                   says=("65536 x 512 tokens", "use a smaller micro_batch_size"))

    def test_second_run_on_an_output_dir(self):
        self.train("run")
        before = self.weights("run", 6)
        self.fails(2, *self.args("run"), says=["run", "--resume-from-checkpoint", "--overwrite"])
        self.assertEqual(self.weights("run", 6), before)
        self.train("run", "--overwrite", steps=3)
        self.assertEqual([m["step"] for m in self.metrics("run")], [1, 2, 3])
        self.assertFalse(os.path.exists(self.path("run", "checkpoint-6")))

    def test_two_runs_on_one_output_dir(self):
        first = self.start_atom(*self.args("run", "--save-steps", 1, steps=100000))
        try:
            deadline = time.monotonic() + 60
            while self.last_step("run") < 2 and time.monotonic() < deadline:
                time.sleep(0.01)
            for more in (["--overwrite"], ["--resume-from-checkpoint", "auto"], []):
                self.fails(2, *self.args("run", *more), says=["run", f"another run (process {first.pid}) is writing there;"])
            self.assertIsNone(first.poll())
        finally:
            first.kill()
            first.communicate()
        at = self.last_step("run")  # nobody took anything away, and the lock died with its process
        self.assertEqual([m["step"] for m in self.metrics("run")][: at], list(range(1, at + 1)))
        self.train("run", "--resume-from-checkpoint", "auto", steps=at + 3)

    def test_a_directory_without_weights_is_not_a_random_start(self):
        self.train("run")
        os.mkdir(self.path("model"))
        for name in ("config.json", "model.safetensors"):
            shutil.copy(self.path("run", "checkpoint-6", name), self.path("model", name))
        start = ["--model", "model"]
        os.rename(self.path("model", "model.safetensors"), self.path("model", "weights.safetensors"))
        self.fails(2, *self.args("b", *start), says=["model has no weights", "weights.safetensors", "--init random"])
        self.fails(2, *self.args("b", *start, "--preset", "sft"), says="model has no weights")
        os.rename(self.path("model", "weights.safetensors"), self.path("model", "weights.bin"))
        self.fails(2, *self.args("b", *start), says=["pytorch_model.bin", "weights.bin", "--init random"])
        os.rename(self.path("model", "weights.bin"), self.path("model", "pytorch_model.bin"))
        self.fails(3, *self.args("d", *start), says=["pytorch_model.bin", "not one of torch.save"])
        os.remove(self.path("model", "pytorch_model.bin"))
        self.fails(2, *self.args("b", *start), says=["no weights", "--init random"])
        self.fails(2, *self.args("c", *start, "--resume-from-checkpoint", "auto"), says=["no weights", "--init random"])
        self.assertFalse(os.path.exists(self.path("b")))
        self.train("b", *start, "--init", "random", steps=3)
        with open(self.path("model", "model.safetensors"), "w", encoding="ascii") as f:
            f.write("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 123\n")
        self.fails(3, *self.args("c", *start), says="Git LFS pointer")
        shutil.copy(self.path("model", "model.safetensors"), self.path("model", "config.json"))
        self.fails(3, *self.args("c", *start), says="Git LFS pointer")
        self.fails(2, *self.args("c", "--model", "Qwen/Qwen2.5-0.5B"), says=["hf download Qwen/Qwen2.5-0.5B"])

    def test_damaged_checkpoints(self):
        self.train("run")
        for name in ("model.safetensors", "optimizer.safetensors", "atom_state.json"):
            shutil.copytree(self.path("run"), self.path("bad"))
            whole = self.read("bad", "checkpoint-6", name)
            self.write(f"bad/checkpoint-6/{name}", whole[:len(whole) // 2])
            more = ["--resume-from-checkpoint", "bad/checkpoint-6"]
            self.fails(3, *self.args("bad", *more, steps=8), says=name)
            shutil.rmtree(self.path("bad"))
        shutil.copytree(self.path("run"), self.path("bad"))
        header = self.read("bad", "checkpoint-6", "model.safetensors")
        self.write("bad/checkpoint-6/model.safetensors", b"\xff" * 8 + header[8:])
        self.fails(3, "inspect", "bad/checkpoint-6/model.safetensors", says="model.safetensors")
        self.fails(3, "eval", "--model", "bad/checkpoint-6", "--data", self.data, says="model.safetensors")
        self.fails(3, "generate", "--model", "bad/checkpoint-6", says="model.safetensors")
        self.fails(2, *self.args("bad", "--resume-from-checkpoint", "bad/nothing"), says="nothing")

    def test_nan_loss(self):
        self.train("run")
        poisoned = bytearray(self.weights("run", 6))
        header = struct.unpack("<Q", poisoned[:8])[0]
        tensors = json.loads(poisoned[8:8 + header])
        key = next(k for k in tensors if k.endswith("ln_f.weight"))
        at = 8 + header + tensors[key]["data_offsets"][0]
        poisoned[at:at + 4] = struct.pack("<f", float("nan"))
        shutil.copytree(self.path("run"), self.path("nan"))
        self.write("nan/checkpoint-6/model.safetensors", bytes(poisoned))
        good, which = self.weights("run", 6), ["nan/checkpoint-6/model.safetensors", key, "NaN"]
        told = self.fails(5, *self.args("out", "--model", "nan/checkpoint-6"), says=["step 1: ", *which]).err
        self.assertNotRegex(told, "the device|learning_rate")
        for more in ["eval", "--data", self.data, *SHAPE], ["generate"]:
            self.fails(5, *more, "--model", "nan/checkpoint-6", says=which)
        self.assertEqual(os.listdir(self.path("out")).count("checkpoint-1"), 0)
        self.assertEqual(self.weights("run", 6), good)

    def test_full_disk(self):
        self.train("run", "--save-steps", 3)
        before = {n: self.weights("run", n) for n in (3, 6)}
        args = self.args("run", "--resume-from-checkpoint", "auto", "--save-steps", 1, steps=9)
        said = self.fails_at_last(*args, prefix=("bash", "-c", 'ulimit -f 40; exec "$@"', "limited"), says=["checkpoint-6"])
        self.assertTrue(all(f"checkpoint-{n}" in said for n in (7, 8, 9)), said)
        for n, weights in before.items():
            self.assertEqual(self.weights("run", n), weights)
        self.assertEqual(sorted(n for n in os.listdir(self.path("run")) if n.startswith("checkpoint")), ["checkpoint-3", "checkpoint-6"])
        self.ok(*self.args("run", "--resume-from-checkpoint", "auto", steps=9))
        self.fails(4, "plan", "--model", "gpt2-124m", "--device-spec", "h100", "-o", "/dev/full")


if __name__ == "__main__":
    tool.main()
