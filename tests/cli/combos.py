#!/usr/bin/env python3
"""Random combinations of what `atom train` can do, and relations that must hold between runs of each.

  combos.py [--first S] [--seeds N] [--only RELATION] [--all] [--keep DIR] [--canary]     ATOM: the program

A seed draws a small model, data and options (combos_draw.py). The combination is refused at once, with one line and exit code 2 or 4,
or it trains. If it trains, the relations below are checked: the first ones for every seed, of the others three that the seed draws
(--all: every one). What fails is shown with the commands that led to it; --keep copies each seed's directory to DIR.
--canary: all runs but the first have another learning rate; succeeds if that is noticed in every seed.
"""
import json
import math
import os
import random
import re
import shutil
import signal
import sys
import time

import combos_draw
import seeded
import tool
from combos_draw import AT, STEPS, close, rate, targets, train_windows, words
from seeded import Refused

AUTO = {"resume_from_checkpoint": "auto"}
TIMES = {"tokens_per_second", "seconds", "time", "host_bytes", "device_bytes"}
QUIET = {"execute": "interpreted"}


class Seed(tool.Case):
    """One combination in a directory of its own. The relations that are checked are in ALWAYS and SOMETIMES."""

    def runTest(self):
        pass

    def begin(self, seed, canary):
        self.combo, self.commands, self.canary = combos_draw.Combo(seed), [], canary
        self.pick = random.Random(seed + 1000)
        self.combo.prepare(self)
        self.start = ["--model", "model.json"]
        if self.combo.lora or self.pick.random() < 0.25:
            self.begin_trained()
        self.whole()

    def begin_trained(self):
        """The run begins with a checkpoint, or with what was exported from it."""
        shape = {k: self.combo.options[k] for k in ("sequence_len", "micro_batch_size", "dtype")}
        self.ok("train", *self.start, "--data", "data", "-o", "base", "--max-steps", 2, "--warmup-steps", 0, "--eval-steps", 0,
                "--learning-rate", 0.01, *words({**shape, **QUIET}))
        self.start = ["--model", "base/checkpoint-2"]
        gguf = ("base.gguf", "--type", self.pick.choice(["f32", "f16", "bf16", "q8_0"]))
        for out, *more in self.pick.choice([[], [], [("bf16", "--to", "hf", "--dtype", "bf16")],
                                            [("fp16", "--to", "hf", "--dtype", "fp16")], [gguf]]):
            done = self.run_atom("export", *self.start, *more, "-o", out)
            assert done.code in (0, 2), str(done)
            self.start = ["--model", out] if done.code == 0 else self.start

    def run_atom(self, *args, **more):
        self.commands.append(" ".join(str(a) for a in args))
        return super().run_atom(*args, **more)

    def args(self, out, options, places=None):
        o = {**self.combo.options, "save_steps": AT, "save_total_limit": 0, **QUIET, **(places or {}), **options}
        if self.canary and out != "whole":
            o["learning_rate"] *= 1.001
        start = [] if "model" in o else self.start
        return ["train", *start, "--data", "data", "-o", out, *words({k: v for k, v in o.items() if v is not None})]

    def train(self, out, options=None, places=None):
        """Where a place has too little memory for the rest of it, it gets as much as it asks for."""
        done = self.run_atom(*self.args(out, options or {}, places))
        for _ in range(2):
            if done.code != 4 or not places:
                break
            needs = re.search(r"not enough device memory.*needs at least .*?\((\d+) bytes\)", done.err)
            if needs:
                places["device_memory"] = int(needs.group(1))
            else:
                places.pop("host_memory", None)
            done = self.run_atom(*self.args(out, options or {}, places))
        assert done.code == 0, str(done)
        return done

    def whole(self):
        """The run that the others are compared with; or a refusal that says why, at once and in one line."""
        began = time.monotonic()
        args = self.args("whole", {})
        self.told = self.run_atom(*args)
        if self.told.code:
            errors = [line for line in self.told.err.splitlines() if line.startswith("atom: error: ")]
            assert self.told.code in (2, 4) and len(errors) == 1, str(self.told)
            assert time.monotonic() - began < 60 and not os.path.exists(self.path("whole", "metrics.jsonl")), str(self.told)
            dry = self.run_atom(*args, "--dry-run")
            assert (dry.code, dry.err.splitlines()[-1]) == (self.told.code, errors[0]), f"{self.told}\n{dry}"
            raise Refused(errors[0])
        least = self.run_atom(*self.args("least", {"device_memory": "1KiB"}), "--dry-run")
        found = re.search(r"needs at least .*?\((\d+) bytes\)", least.err)
        self.least = int(found.group(1)) if found else None

    # -- what a run left

    def lines(self, out):
        """metrics.jsonl without what depends on time and place."""
        lines = [json.loads(line) for line in self.read(out, "metrics.jsonl").splitlines()]
        return [{k: v for k, v in line.items() if k not in TIMES} for line in lines]

    def steps(self, out):
        return [line for line in self.lines(out) if line["split"] == "train"]

    def state(self, out, step=STEPS):
        return json.loads(self.read(out, f"checkpoint-{step}", "atom_state.json"))

    def same(self, out, step=STEPS, other="whole", but=()):
        """Checkpoints are equal, byte by byte."""
        a, b = self.path(other, f"checkpoint-{step}"), self.path(out, f"checkpoint-{step}")
        names = sorted(os.listdir(a))
        assert names == sorted(os.listdir(b)), (out, names, os.listdir(b))
        different = [name for name in names if name not in but and self.read(a, name) != self.read(b, name)]
        assert not different, f"{out}/checkpoint-{step} differs from {other}'s in {different}"

    def same_run(self, out):
        for step in (AT, 2 * AT, STEPS):
            self.same(out, step)
        self.same_lines(out)

    def same_lines(self, out, validation=True):
        a, b = self.lines("whole"), self.lines(out)
        if not validation:
            a, b = ([line for line in x if line["split"] == "train"] for x in (a, b))
        assert a == b, "metrics differ: " + str(next(((x, y) for x, y in zip(a, b) if x != y), (len(a), len(b))))

    # -- relations of every seed

    def places(self):
        """Where it is trained changes no bit."""
        for i in range(2):
            place = self.combo.places(self.pick, self.least)
            self.train("place", {"overwrite": "true"} if i else {}, place)
            for step in (AT, 2 * AT, STEPS):
                self.same("place", step)
            self.same_lines("place", validation="eval_steps" not in place)

    def resumed(self):
        """From a checkpoint in the middle, in another place and directory."""
        self.train("resumed", {"resume_from_checkpoint": f"whole/checkpoint-{AT}"}, self.combo.places(self.pick, self.least))
        for step in (2 * AT, STEPS):
            self.same("resumed", step)
        a, b = [line for line in self.steps("whole") if line["step"] > AT], self.steps("resumed")
        assert a == b, f"metrics differ: {a}\n{b}"

    def stopped(self):
        """Stopped and killed at any moment, each time in another place, it ends as the whole run."""
        for i in range(3):
            if os.path.exists(self.path("stopped", f"checkpoint-{STEPS}")):
                break
            kill = self.pick.choice([signal.SIGINT, signal.SIGKILL])
            place = self.combo.places(self.pick, 2 * self.least if self.least else None)
            args = self.args("stopped", AUTO, {**place, "execute": "interpreted", "host_memory": None})
            self.commands.append(f"({kill.name}) " + " ".join(str(a) for a in args))
            target = self.last_step("stopped") + self.pick.randint(0, 3)
            process = self.start_atom(*args)
            deadline = time.monotonic() + 60
            while process.poll() is None and self.last_step("stopped") < target and time.monotonic() < deadline:
                time.sleep(0.001)
            time.sleep(self.pick.random() * 0.01)
            process.send_signal(kill)
            _, err = process.communicate(timeout=120)
            assert process.returncode in (0, -kill, 128 + kill), (i, process.returncode, err)
        if not os.path.exists(self.path("stopped", f"checkpoint-{STEPS}")):
            self.train("stopped", AUTO)
        self.same("stopped")
        steps = {line["step"]: line for line in self.steps("stopped")}
        assert list(steps.values()) == self.steps("whole"), f"{steps}"
        assert len(steps) == len(self.steps("stopped")), "a step is there twice"

    def last_step(self, out):
        try:
            lines = self.read(out, "metrics.jsonl").split(b"\n")[:-1]
            return max([0] + [json.loads(line)["step"] for line in lines])
        except (FileNotFoundError, ValueError):
            return 0

    def told_numbers(self):
        """Learning rates, positions and tokens are those that follow from options and data; the screen says what the files say."""
        o, steps, state = self.combo.options, self.steps("whole"), self.state("whole")
        assert [line["step"] for line in steps] == list(range(1, STEPS + 1)), steps
        for line in steps:
            want = rate(o, line["step"])
            assert abs(line["learning_rate"] - want) < 1e-12, (line, want)
        batch = self.combo.B * self.combo.C
        assert state["samples"] == STEPS * batch and state["tokens_seen"] == steps[-1]["tokens"], state
        masks = [name for name in os.listdir(self.path("data")) if name.endswith(".mask")]
        if not masks:
            assert [line["tokens"] for line in steps] == [n * batch * self.combo.T for n in range(1, STEPS + 1)], steps
        validated = [line["step"] for line in self.lines("whole") if line["split"] == "val"]
        every = o["eval_steps"]
        assert validated == [n for n in range(1, STEPS + 1) if every and (n % every == 0 or n == STEPS)], validated
        saved = sorted(int(n[11:]) for n in os.listdir(self.path("whole")) if n.startswith("checkpoint-"))
        assert saved == [AT, 2 * AT, STEPS], saved
        self.told_on_screen(steps)

    def told_on_screen(self, steps):
        shown = {int(n): rest for n, rest in re.findall(r"^step (\d+)/\d+ (loss .*)$", self.told.err, re.M)}
        for line in steps:
            words_ = dict(zip(shown[line["step"]].split()[::2], shown[line["step"]].split()[1::2]))
            for key, name in (("loss", "loss"), ("norm", "grad_norm"), ("lr", "learning_rate")):
                want = float("nan") if line[name] is None else line[name]
                got = float(words_[key])
                assert abs(got - want) <= 0.006 * abs(want) or (math.isnan(got) and math.isnan(want)), (key, line, shown[line["step"]])
        learned = [line for line in steps if line["loss"] is not None]
        said = re.search(r"steps 1 to (\d+) in .*: loss (\S+) to (\S+)", self.told.out)
        assert said and int(said.group(1)) == STEPS, self.told.out
        for text, line in ((said.group(2), learned[0]), (said.group(3), learned[-1])):
            assert abs(float(text) - line["loss"]) < 1e-4, (self.told.out, line)

    # -- relations of some seeds

    def evaluated(self):
        """`atom eval` of a checkpoint says what training said, however it is computed; of adapters within their rounding."""
        o = self.combo.options
        base = ["--data", "data", "--sequence-len", self.combo.T, "--dtype", o["dtype"], "--json"]
        exact = ["--micro-batch-size", self.combo.B, "--batches", o.get("eval_batches", 0)]
        model = ["--model", f"whole/checkpoint-{STEPS}"]
        said = [line["loss"] for line in self.lines("whole") if line["split"] == "val"]
        done = self.run_atom("eval", *model, *base, *exact)
        if done.code in (2, 3) and "no token to measure" in done.err:
            assert not said or said[-1] is None, (said, done)
            return
        assert done.code == 0, str(done)
        loss = done.json()["loss"]
        if said and said[-1] is not None and not self.has_codec():
            rounded = self.combo.lora or "save_dtype" in o
            assert close(loss, said[-1], 0.02 if o["dtype"] == "bf16" and rounded else 2e-3 if rounded else 0), (loss, said)
        little = self.run_atom("eval", *model, *base, *exact, "--device-memory", "1KiB")
        found = re.search(r"needs at least .*?\((\d+) bytes\)", little.err)
        if found:
            swapped = self.ok("eval", *model, *base, *exact, "--device-memory", found.group(1), "--threads", 1).json()["loss"]
            assert swapped == loss, (swapped, loss)
        shown = self.ok("eval", *model, *base[:-1], *exact).out
        assert abs(float(shown.split()[1]) - loss) < 1e-4 and int(shown.split()[3]) == done.json()["tokens"], (shown, done)
        whole = self.ok("eval", *model, *base, "--split", "train").json()
        assert whole["tokens"] == targets(self.path("data"), self.combo.T), (whole, targets(self.path("data"), self.combo.T))

    def has_codec(self):
        return self.combo.options.get("compress_boundaries", "bottleneck").split(":")[0] not in ("bottleneck", "maxout")

    def planned(self):
        """With a profile and a plan in files it is the same run."""
        o = self.combo.options
        keys = {k: o[k] for k in o if k.startswith("lora") or k in (
            "micro_batch_size", "gradient_accumulation_steps", "sequence_len", "dtype", "optimizer", "moments_dtype")}
        if "compress_boundaries" in o or "dropout" in o:
            return  # a profile has neither
        profile = {k: v for k, v in keys.items() if k != "gradient_accumulation_steps"}
        made = self.run_atom("profile", *self.start, *words(profile), "-o", "profile.json")
        assert made.code == 0, str(made)
        place = {"device_memory": int(self.least * 1.1)} if self.least else {}
        clip = "--clip" if o.get("max_grad_norm", 1) else "--no-clip"
        made = self.run_atom("plan", "--profile", "profile.json", "--gradient-accumulation-steps", self.combo.C, clip, *words(place), "-o",
                             "plan.json")
        assert made.code in (0, 4), str(made)
        done = self.run_atom(*self.args("planned", {"plan": "plan.json"} if made.code == 0 else {}, {**place, "profile": "profile.json"}))
        assert done.code == 0, str(done)
        self.same_run("planned")

    def branched(self):
        """A run that goes on with other options does so in the same way everywhere; one that is only made longer is the longer run."""
        change = self.pick.choice([{"sequence_len": self.combo.T - 1}, {"micro_batch_size": self.combo.B + 1}, {"seed": 5},
                                   {"gradient_accumulation_steps": 5}, {"packing": "apart"}, {"packing": "across"}, {"dropout": 0.3},
                                   {"learning_rate": 0.02}, {"dtype": "bf16"}, {"moments_dtype": "bf16"}, {"max_grad_norm": 0.1}])
        change = {**change, "resume_from_checkpoint": f"whole/checkpoint-{AT}"}
        for out in "branch0", "branch1":
            self.train(out, change, self.combo.places(self.pick, self.least))
        for step in (2 * AT, STEPS):
            self.same("branch1", step, "branch0")
        if self.combo.options.get("lr_scheduler") == "constant" and "warmup_steps" in self.combo.options:
            self.train("short", {"max_steps": AT})
            self.train("short", AUTO)
            self.same("short")

    def exported(self):
        """What is exported is the same model: to Hugging Face's form and GGUF's, for eval, generate and train."""
        o, made = self.combo.options, f"whole/checkpoint-{STEPS}"
        evaluate = ["--data", "data", "--sequence-len", self.combo.T, "--micro-batch-size", 2, "--dtype", "fp32", "--packing", "across",
                    "--json"]
        say = ["--prompt", "the king", "--max-tokens", 12, "--temperature", 0, "--ignore-end", "--dtype", "fp32"]
        loss = self.ok("eval", "--model", made, *evaluate).json()["loss"]
        text = self.ok("generate", "--model", made, *say).out
        little = self.run_atom("generate", "--model", made, *say, "--device-memory", "1KiB")
        needs = re.search(r"\((\d+) bytes\)", little.err)
        if needs:
            self.commands.append(little.err)
            small = self.run_atom("generate", "--model", made, *say, "--device-memory", needs.group(1), "--threads", 1)
            assert small.code == 4 or small.out == text, f"{small}{text}"
        for kind, more, limit in (("hf", [], 0), ("gguf", ["--type", "f32"], 0), ("hf", ["--dtype", "bf16"], 0.02),
                                  ("gguf", ["--type", self.pick.choice(["f16", "bf16", "q8_0"])], 0.03)):
            out = "-".join(["export", kind, *more[1:]]) + (".gguf" if kind == "gguf" else "")
            done = self.run_atom("export", "--model", made, "--to", kind, *more, "-o", out)
            if done.code == 2 and kind == "gguf":
                continue  # it says what GGUF cannot hold
            assert done.code == 0, str(done)
            lifted = self.combo.model["model_type"].startswith("gemma") and kind == "gguf"
            got = self.ok("eval", "--model", out, *evaluate).json()["loss"]
            rounded = self.combo.lora and self.start[1] not in ("base/checkpoint-2", "base.gguf")
            assert close(got, loss, limit or (0.02 if rounded else 1e-5 if lifted or self.combo.lora else 0)), (out, got, loss)
            if not limit and not rounded:
                assert self.ok("generate", "--model", out, *say).out == text, out
            if not limit and not lifted and not rounded:
                self.trained_on(out, made, kind)

    def trained_on(self, out, made, kind):
        """A run that begins with it begins with its loss."""
        if self.has_codec() or "save_dtype" in self.combo.options or self.combo.options.get("lora_dropout"):
            return  # an adapter keeps its dropout
        losses, no_lora = [], {k: None for k in self.combo.options if k.startswith("lora")}
        for i, model in enumerate((made, out)):
            o = {**self.combo.options, "max_steps": 1, "lr_scheduler": "constant", "warmup_steps": 0, "min_lr_ratio": None,
                 "decay_ratio": None, "compress_boundaries": None, "at": None, "dropout": 0, **no_lora}
            model = ["--model", "base/checkpoint-2", "--adapter", model] if model == made and self.combo.lora else ["--model", model]
            losses.append(self.ok("train", *model, "--data", "data", "-o", f"from-{kind}-{i}", "--json", *words(
                {k: v for k, v in {**o, **QUIET}.items() if v is not None})).json()["first_loss"])
        assert losses[0] == losses[1] or self.combo.lora and close(*losses, 0.01 if o["dtype"] == "bf16" else 1e-4), (out, losses)

    def regrouped(self):
        """Another division into micro-batches is the same samples: the same tokens, and nearly the same losses."""
        o, n = self.combo.options, self.combo.B * self.combo.C
        B = self.pick.choice([b for b in range(1, n + 1) if n % b == 0])
        self.train("regrouped", {"micro_batch_size": B, "gradient_accumulation_steps": n // B})
        a, b = self.steps("whole"), self.steps("regrouped")
        assert [x["tokens"] for x in a] == [x["tokens"] for x in b], (a, b)
        if not self.combo.drops() and not o.get("compress_boundaries", "").startswith("random"):
            limit = 0.02 if o["dtype"] == "bf16" or self.has_codec() else 1e-4
            assert (a[0]["loss"] is None) == (b[0]["loss"] is None), (a[0], b[0])
            assert a[0]["loss"] is None or close(a[0]["loss"], b[0]["loss"], limit), (a[0], b[0])
        assert self.state("whole")["samples"] == self.state("regrouped")["samples"]

    def written(self):
        """Options from a file, from the command line, and from both are the same run; the command line wins."""
        o = {**self.combo.options, "save_steps": AT, "save_total_limit": 0, **QUIET}
        keys = sorted(o)
        inside = {k: o[k] for k in keys if self.pick.random() < 0.6}
        outside = {k: o[k] for k in keys if k not in inside}
        wrong = {"learning_rate": 0.5, "warmup_steps": 2, "weight_decay": 0.7, "seed": 7777, "max_grad_norm": 0.01, "dtype": "fp32",
                 "packing": "apart"}
        also = {k: v for k, v in wrong.items() if k in outside}
        if "max_steps" in outside:
            also["num_train_epochs"] = 0.5
        names = {"learning_rate": "lr", "micro_batch_size": "per_device_train_batch_size", "sequence_len": "cutoff_len",
                 "optimizer": "optim", "lr_scheduler": "lr_scheduler_type", "max_grad_norm": "grad_clip", "packing": "sample_packing"}
        text = "".join(f"{names.get(k, k) if self.pick.random() < 0.5 else k}: {v}\n" for k, v in [*inside.items(), *also.items()])
        text = text or "# nothing\n"
        self.write("some.yml", text)
        self.ok("train", "some.yml", *self.start, "--data", "data", "-o", "written", *words(outside))
        self.same_run("written")
        shown = self.ok("train", "some.yml", *self.start, "--data", "data", "-o", "printed", *words(outside), "--print-config").out
        self.write("printed.yml", shown)
        self.ok("train", "printed.yml")
        self.same_run("printed")

    def changes(self):
        """Another value for each key whose change a resumed run should tell or refuse."""
        o, combo = self.combo.options, self.combo
        packing = o.get("packing") or ("apart" if "preset" in o else "across")
        new = {"learning_rate": 0.007, "weight_decay": 0.05, "max_grad_norm": 0.77, "adam_beta1": 0.7, "adam_beta2": 0.91,
               "adam_epsilon": 1e-5, "seed": 100, "dtype": "bf16" if o["dtype"] == "fp32" else "fp32", "sequence_len": combo.T - 1,
               "micro_batch_size": combo.B + 1, "gradient_accumulation_steps": combo.C + 1, "dropout": 0.31,
               "moments_dtype": "fp32" if "moments_dtype" in o else "bf16", "optimizer": "adamw" if "optimizer" in o else "muon",
               "warmup_steps": 4, "lr_scheduler": "linear" if o.get("lr_scheduler") != "linear" else "cosine",
               "packing": "across" if packing == "apart" else "apart"}
        if o.get("lr_scheduler") == "wsd":
            new["decay_ratio"] = 0.44
        if combo.lora:
            new.update(lora_r=o["lora_r"] + 1, lora_alpha=3.25, lora_dropout=0.27, lora_layers="0" if o.get("lora_layers") != "0" else "1",
                       lora_target_modules="all-linear" if "lora_target_modules" in o else combo.names()[0],
                       lora_rslora="false" if "lora_rslora" in o else "true", lora_dora="false" if "lora_dora" in o else "true")
        return new

    def tells(self, done, key):
        """A changed key is told by its name, or refused."""
        names = {"lora_r": "rank", "lora_rslora": "rslora", "lora_dora": "dora", "gradient_accumulation_steps": "gradient_accumulation"}
        assert done.code in (0, 2) and names.get(key, key) in done.err, f"{key} is changed\n{done}"

    def changed(self):
        """A resumed run that changes an option says so by its name, or refuses."""
        new = self.changes()
        for key in self.pick.sample(sorted(new), 3):
            drop = {"decay_ratio": None, "muon_momentum": None} if key in ("lr_scheduler", "optimizer") else {}
            self.tells(self.run_atom(*self.args("again", {"resume_from_checkpoint": f"whole/checkpoint-{AT}", **drop, key: new[key]})), key)
            shutil.rmtree(self.path("again"), ignore_errors=True)

    def changed_on_disk(self):
        """So does one that was killed before its first checkpoint, and goes on from its state on disk."""
        flat = {"lr_scheduler": "constant", "min_lr_ratio": None, "decay_ratio": None, "warmup_steps": 0, "save_steps": 0, "eval_steps": 0,
                "eval_batches": None, "optimizer_state": "disk", **AUTO}
        args = self.args("killed", {**flat, "max_steps": 10**6})
        self.commands.append("(SIGKILL) " + " ".join(str(a) for a in args))
        process = self.start_atom(*args)
        deadline = time.monotonic() + 60
        while process.poll() is None and self.last_step("killed") < 3 and time.monotonic() < deadline:
            time.sleep(0.001)
        process.kill()
        err = process.communicate()[1]
        assert process.returncode == -signal.SIGKILL, err
        new = {k: v for k, v in self.changes().items() if k not in ("warmup_steps", "lr_scheduler", "decay_ratio", "optimizer", "lora_r",
                                                                    "moments_dtype", "lora_target_modules", "lora_layers", "lora_dora")}
        for key in self.pick.sample(sorted(new), 2):  # the others change how the state lies on disk
            shutil.rmtree(self.path("again"), ignore_errors=True)
            shutil.copytree(self.path("killed"), self.path("again"))
            self.tells(self.run_atom(*self.args("again", {**flat, "max_steps": self.last_step("again") + 2, key: new[key]})), key)

    def another_way(self):
        """Options that say the same in other words."""
        o, ways = self.combo.options, []
        if "preset" in o:
            said = {"learning_rate": 2e-5, "weight_decay": 0, "adam_beta2": 0.999, "packing": "apart", **o, "preset": None}
            ways.append({**said, "warmup_steps": o.get("warmup_steps", STEPS * 3 // 100)})
        if o.get("lr_scheduler") == "constant":
            ways.append({"lr_scheduler": "linear", "min_lr_ratio": 1})
            ways.append({"lr_scheduler": "wsd", "decay_ratio": 0})
        if not o.get("max_grad_norm", 1):
            ways.append({"max_grad_norm": 1e9})
        if o.get("lora_rslora") and o["lora_r"] == 1:
            ways.append({"lora_rslora": None})
        if "lora_target_modules" in o and "lora_layers" not in o:
            ways.append({"lora_target_modules": ".*\\.(" + o["lora_target_modules"].replace(",", "|") + ")"})
        if "lora_target_modules" in o:
            ways.append({"lora_target_modules": ",".join(reversed(o["lora_target_modules"].split(",")))})
        if "dropout" not in o and not self.combo.drops():
            ways.append({"dropout": 0})
        windows = train_windows(self.path("data"), self.combo.T)
        ways.append({"max_steps": None, "num_train_epochs": (STEPS + 0.01) * self.combo.B * self.combo.C / windows})
        if self.start[1] == "model.json" and not o.get("compress_boundaries", "").startswith(("bottleneck", "maxout")):
            ways.append({"model": f"whole/checkpoint-{AT}", "init": "random"})
        for i, way in enumerate(self.pick.sample(ways, min(2, len(ways)))):
            self.train(f"way{i}", way)
            weights = "adapter_model.safetensors" if self.combo.lora else "model.safetensors"
            a, b = self.read("whole", f"checkpoint-{STEPS}", weights), self.read(f"way{i}", f"checkpoint-{STEPS}", weights)
            assert a == b, f"{way} gives other weights"
            assert [x["loss"] for x in self.steps("whole")] == [x["loss"] for x in self.steps(f"way{i}")], way

    def one_pass(self):
        """One pass over the data learns each of its targets once."""
        data, B = self.path("data"), self.combo.B
        windows = train_windows(data, self.combo.T)
        self.train("pass", {"max_steps": None, "num_train_epochs": 1, "gradient_accumulation_steps": 1, "save_steps": 0, "eval_steps": 0,
                            "eval_batches": None})
        state = self.state("pass", windows // B)
        assert state["samples"] == windows // B * B, (state, windows)
        if windows % B == 0:
            assert state["tokens_seen"] == targets(data, self.combo.T), (state, targets(data, self.combo.T))

    def summed_up(self):
        """The summary is that of the files, and knows what was asked for."""
        summary = self.ok(*self.args("summed", {}), "--json").json()
        self.same_run("summed")
        learned = [line["loss"] for line in self.steps("whole") if line["loss"] is not None]
        assert (summary["first_step"], summary["steps"], summary["interrupted"]) == (1, STEPS, False), summary
        assert (summary["first_loss"], summary["final_loss"]) == (learned[0], learned[-1]), (summary, learned)
        said = [line["loss"] for line in self.lines("whole") if line["split"] == "val"]
        assert summary["validation_loss"] == (said[-1] if said else None), (summary, said)
        assert summary["checkpoint"] == f"summed/checkpoint-{STEPS}", summary
        sizes = re.search(r"device memory ([0-9.]+) (\w+), host memory ([0-9.]+) (\w+) ", self.told.out)
        for i, key in ((1, "device_peak_bytes"), (3, "host_peak_bytes")):
            shown = float(sizes.group(i)) * 1024 ** ["B", "KiB", "MiB", "GiB"].index(sizes.group(i + 1))
            assert close(shown, summary[key], 0.06), (sizes.group(0), summary)
        assert self.ok("inspect", f"whole/checkpoint-{STEPS}", "--json").json()["step"] == STEPS

    ALWAYS = (told_numbers, places, resumed, stopped)
    SOMETIMES = (evaluated, exported, regrouped, written, changed, another_way, one_pass, summed_up, planned, branched, changed_on_disk)


def main():
    args = seeded.options(4, "keep")
    refused, wrong = 0, []
    for seed in range(args.first, args.first + args.seeds):
        case, began = Seed(), time.monotonic()
        case.setUp()
        try:
            case.begin(seed, args.canary)
            failed = list(seeded.check(case, seed, args.only, args.all).values())
        except Refused as why:
            refused += 1
            print(f"seed {seed}: refused: {why}", flush=True)
            continue
        except Exception as error:
            failed = [seeded.broken(case, seed, error)]
        finally:
            if args.keep:
                shutil.copytree(case.dir, os.path.join(args.keep, str(seed)), dirs_exist_ok=True)
            case.doCleanups()
        if args.canary and not failed:
            wrong.append(f"seed {seed} did not notice")
        wrong += [] if args.canary else failed
        print(f"seed {seed}: {case.combo.model['model_type']}, {case.combo.data_kind}, {len(failed)} relations failed, "
              f"{time.monotonic() - began:.1f} s", flush=True)
        for text in [] if args.canary else failed:
            print(text, flush=True)
    print(f"combinations: {args.seeds} seeds, {refused} refused, {len(wrong)} wrong")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
