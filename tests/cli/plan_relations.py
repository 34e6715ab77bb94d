#!/usr/bin/env python3
"""Random questions to `atom plan`, and relations that must hold between its answers.

  plan_relations.py [--first S] [--seeds N] [--only RELATION] [--all] [--canary]     ATOM: the program

A seed draws a model, a device, memory and options (plan_draw.py). The question is refused in one line with exit code 4, or there is a
plan. Then the relations below are checked: the first ones for every seed, of the others three that the seed draws (--all: every one).
What fails is shown with the commands that led to it. Each relation says its rule in its first sentence.
--canary: each relation is told something that is wrong by a factor of two; succeeds if each notices it in one of the seeds.
"""
import json
import os
import random
import re
import sys
import time

import plan_draw
import seeded
import tool
from plan_draw import MiB, PLENTY
from seeded import Refused
from test_screens import count, seconds, size

SLOWER = 1.05  # with more memory the search may choose other cuts; so much longer may a step take


def close(a, b, part=1e-9):
    return abs(a - b) <= part * max(abs(a), abs(b))


def step_seconds(plan):
    """Of a usual step: the one whose updates run ahead, where it has such."""
    ahead = plan.get("predicted_ahead_seconds", 0)
    return ahead if 0 < ahead < plan["predicted_step_seconds"] else plan["predicted_step_seconds"]


def tokens(plan):
    return plan["micro_batches"] * plan["micro_batch"] * plan["sequence"]


def rate(plan):
    return tokens(plan) / step_seconds(plan)


def needed(done, what):
    """The bytes of such memory that a refusal asks for; None: it is refused for another reason."""
    found = re.search(r"not enough (\w+) memory: .*?needs at least .*?\((\d+) bytes\)", done.err)
    return int(found.group(2)) if found and found.group(1) == what else None


def shown_size(text):
    """Bytes of '12.3 MiB', and by how much they may have been rounded."""
    number, unit = text.split()
    each = 1024 ** ["B", "KiB", "MiB", "GiB", "TiB"].index(unit)
    return float(number) * each, each * (0.05 if "." in number else 0.5)


class Seed(tool.Case):
    """One question in a directory of its own. The relations that are checked are in ALWAYS and SOMETIMES."""

    def runTest(self):
        pass

    def begin(self, seed, canary):
        self.lie = 2 if canary else 1
        self.pick, self.commands, self.specs, self.text = random.Random(seed), [], {}, None
        model, T = plan_draw.draw_model(self.pick)
        if T:
            self.write("model.json", json.dumps(model))
        self.name = model["model_type"] if T else model
        self.asked = plan_draw.draw(self.pick, "model.json" if T else model, T)
        self.draw_memory()
        done = self.plan(self.asked, "-o", "plan.json", "--json")
        if done.code:
            errors = [line for line in done.err.splitlines() if line.startswith("atom: error: ")]
            assert done.code == 4 and len(errors) == 1, str(done)
            raise Refused(errors[0])
        self.base = done.json()

    def draw_memory(self):
        """From as little as is said to be enough to ten times that; or all that the device has."""
        asked = self.asked.but(device_memory=MiB, host_memory=PLENTY)
        asked.options.setdefault("gradient_accumulation_steps", 4)
        done = self.plan(asked)
        self.need = needed(done, "device")
        assert self.need or done.code == 0, str(done)
        if not self.need or (self.need <= self.asked.device_bytes() and self.pick.random() < 0.3):
            return
        self.asked.options["device_memory"] = int(self.need * self.pick.choice([1, 1.02, 1.1, 1.3, 2, 4, 10]))

    def run_atom(self, *args, **more):
        self.commands.append(" ".join(str(a) for a in args))
        return super().run_atom(*args, **more)

    def spec_file(self, asked):
        text = json.dumps(asked.spec)
        if text not in self.specs:
            self.specs[text] = f"device{len(self.specs)}.json"
            self.write(self.specs[text], text)
        return self.specs[text]

    def plan(self, asked, *more):
        return self.run_atom("plan", *asked.words(self.spec_file(asked)), *more)

    def planned(self, asked):
        """The plan, which must be; it stays within its limits."""
        done = self.plan(asked, "--json")
        assert done.code == 0, str(done)
        self.within(asked, done.json())
        return done.json()

    def fixed(self, **changes):
        """The question with the number of micro-batches that was planned."""
        return self.asked.but(**{"gradient_accumulation_steps": self.base["micro_batches"], **changes})

    def printed(self):
        """What the plan looks like for people; it is planned for the second time, and written to again.json."""
        if not self.text:
            self.text = self.plan(self.asked, "-o", "again.json")
            assert self.text.code == 0, str(self.text)
        return self.text.out

    # -- relations of every seed

    def within(self, asked, plan, lie=1):
        for key, limit in (("device_peak_bytes", asked.device_bytes()), ("host_peak_bytes", asked.options["host_memory"])):
            assert plan[key] * lie <= limit, (key, plan[key], limit)
        step, least = plan["predicted_step_seconds"], plan["least_step_seconds"]
        assert plan["predicted_compute_seconds"] <= step * (1 + 1e-6), plan  # a simulated step has whole nanoseconds
        assert least <= step_seconds(plan) * 1.0005 and step_seconds(plan) <= step, plan

    def bounded(self):
        """A plan stays within its limits of memory, and its step takes no less than computing does, nor less than any plan can."""
        self.within(self.asked, self.base, self.lie)

    def promised(self):
        """What is planned is no faster than the best speed; with the recommended number of micro-batches it has the speed promised."""
        plan, speed = self.base, rate(self.base) * self.lie
        most, promise = plan.get("most_tokens_per_second"), plan.get("recommended_tokens_per_second")
        if not most:
            assert "devices" in self.asked.options, f"no advice: {plan}"
            return
        assert promise * self.lie <= most and speed <= most * (1 + 1e-9), (promise, speed, most)
        if "gradient_accumulation_steps" not in self.asked.options:
            assert plan["micro_batches"] == plan["recommended_micro_batches"] and close(speed, promise), (speed, promise, plan)

    def again(self):
        """Planning twice gives the same plan, and a plan file says what --json says."""
        self.printed()
        base = dict(self.base, micro_batches=self.base["micro_batches"] * self.lie)
        for name in ("plan.json", "again.json"):
            other = json.loads(self.read(name))
            assert other == base, f"{name}: " + str({key: (base.get(key), other.get(key)) for key in {*base, *other}
                                                     if base.get(key) != other.get(key)})
        assert self.ok("inspect", "plan.json", "--json").json() == base

    def screen(self):
        """What is printed for people is the plan, figure by figure."""
        plan = dict(self.base, predicted_compute_seconds=self.base["predicted_compute_seconds"] * self.lie)
        lines = [" ".join(line.split()) for line in self.printed().splitlines()]
        step, ahead = plan["predicted_step_seconds"], step_seconds(plan)
        budget = f" of a budget of {size(plan['device_budget_bytes'])}" if plan["device_budget_bytes"] else ""
        host = f" of {size(plan['host_budget_bytes'])}" if plan["host_budget_bytes"] else ""
        devices = self.asked.options.get("devices", 1)
        want = [f"predicted step {seconds(step)} for {tokens(plan)} tokens: {count(tokens(plan) / step)} tokens/s"
                + (", where a gradient is clipped" if ahead < step else ""),
                f"compute alone {seconds(plan['predicted_compute_seconds'])} "
                f"({100 * plan['predicted_compute_seconds'] / step:.0f} % of the step)",
                f"bound by {plan['bound']}",
                f"device memory {size(plan['device_peak_bytes'])}{budget}{', on each device' if devices > 1 else ''}",
                f"host memory {size(plan['host_peak_bytes'])}{host}"]
        if ahead < step:
            want.append(f"{seconds(ahead)} while none is clipped, because updates run ahead: {count(rate(plan))} tokens/s")
        if plan.get("most_tokens_per_second"):
            want += [f"micro-batches {plan['micro_batches']}; {plan['recommended_micro_batches']} is the smallest number that reaches "
                     "95 % of the best speed: about",
                     f"{count(plan['recommended_tokens_per_second'])} of {count(plan['most_tokens_per_second'])} tokens/s"]
        for line in want:
            assert line in lines, f"no line {line!r} in\n{self.printed()}"

    def memory_map(self):
        """The regions of the memory map add up to the bytes of the plan."""
        several = self.asked.options.get("devices", 1) > 1
        for title, key in ((" each device" if several else " device", "device_peak_bytes"), (" host", "host_peak_bytes")):
            rows = re.search(rf"^{title}: .*\n((?:  .*\n)+)", self.printed(), re.M).group(1).splitlines()
            sizes = [shown_size(re.search(r" ([\d.]+ (?:B|[KMGT]iB))  ", row).group(1)) for row in rows if "spare for snapshots" not in row]
            total, slack = sum(s for s, _ in sizes), sum(s for _, s in sizes) + 256 * len(rows)
            assert abs(total - self.lie * self.base[key]) <= slack, f"{title}: {total:.0f} in {self.base[key]} +- {slack:.0f}: {rows}"

    # -- relations of some seeds

    def enough(self):
        """As much memory of the device as a refusal asks for is enough, and then as much of the host's."""
        if not self.need:
            return
        asked = self.fixed(device_memory=MiB, host_memory=PLENTY)
        need = needed(self.plan(asked), "device") or MiB
        self.planned(asked.but(device_memory=need // self.lie))
        asked = asked.but(device_memory=int(need * 1.2), host_memory=16 * MiB)
        need = needed(self.plan(asked), "host")
        if need:
            self.planned(asked.but(host_memory=need // self.lie))

    def more(self):
        """With more of anything what fitted fits, and a step takes no longer than 5 % more."""
        asked, memory, host = self.fixed(), self.asked.device_bytes(), self.asked.options["host_memory"]
        ways = [("operations", asked.times(peak_flops_fp32=1.5, peak_flops_bf16=1.5)), ("latency", asked.times(copy_latency_seconds=0.5)),
                ("device's rate", asked.times(peak_device_bytes_per_second=1.5)), ("launches", asked.times(launch_seconds=0.5)),
                ("link", asked.times(link_bytes_per_second=1.5)), ("host's rate", asked.times(host_bytes_per_second=1.5))]
        ways += [(f"{k} times the device's memory", asked.but(device_memory=int(memory * k))) for k in (1.05, 1.5, 4)]
        ways += [(f"{k} times the host's memory", asked.but(host_memory=int(host * k))) for k in (1.1, 2)]
        for name, way in self.pick.sample(ways, 5):
            slower = step_seconds(self.planned(way)) / step_seconds(self.base)
            assert slower * self.lie <= SLOWER, f"{name}: a step takes {slower:.3f} times as long"

    def recommended(self):
        """With the recommended number of micro-batches a plan reaches 93 % or more of what any other number reaches."""
        C = self.base.get("recommended_micro_batches")
        if not self.base.get("most_tokens_per_second"):
            return
        rates = {}
        for n in sorted({max(1, C // 4), C, 2 * C, 4 * C}):
            done = self.plan(self.asked.but(gradient_accumulation_steps=n), "--json") if n <= 65536 else None
            rates[n] = rate(done.json()) if done and done.code == 0 else 0
        assert rates[C] >= 0.93 * self.lie * max(rates.values()), f"{C} are recommended: {rates}"

    def changes(self):
        """What --what-if says that a change brings is what planning with that change brings, or what there is if that is more."""
        told = self.plan(self.asked, "--what-if", "--json").json()
        assert told["fits"] and close(told["predicted_tokens_per_second"], rate(self.base)), (told, rate(self.base))
        for change in told["changes"]:
            if not change.get("option"):
                continue
            option, value = change["option"].split()
            key = option[2:].replace("-", "_")
            now = rate(self.base) if key in ("host_memory", "device_memory") else 0
            if key == "host_memory" and change["disk"]:
                continue  # asked was what more memory brings without a disk
            done = self.plan(self.fixed(**{key: value}), "--json")
            assert (done.code == 0) == change["fits"], f"{change}\n{done}"
            if change["fits"]:
                brings = max(now, rate(done.json()))
                assert close(change["predicted_tokens_per_second"] * self.lie, brings), (change, brings)

    def larger(self):
        """Larger micro-batches and longer sequences take more memory and more time, the former at most in proportion."""
        few = self.asked.only("model", "sequence_len", "micro_batch_size", "dtype", "moments_dtype", "lora_r").but(
            recompute="never", gradient_accumulation_steps=1, device_memory=PLENTY, host_memory=PLENTY)
        B, T = self.base["micro_batch"], self.base["sequence"]
        base, wide, short = (self.planned(few.but(micro_batch_size=b, sequence_len=t)) for b, t in ((B, T), (2 * B, T), (B, T // 2)))
        for small, large in ((base, wide), (short, base)):
            for key in ("device_peak_bytes", "predicted_compute_seconds"):
                assert small[key] * self.lie ** 4 < large[key], (key, small[key], large[key])
        assert wide["predicted_compute_seconds"] <= 2.001 * base["predicted_compute_seconds"], (base, wide)

    def draw_shape(self, widths, positions):
        """A GPT-2 or a Llama, and the shape of its steps; no other part of the seed."""
        pick = self.pick
        width, layers, T = pick.choice(widths), pick.randint(1, 4), pick.choice(positions)
        config = pick.choice([plan_draw.gpt2(width, layers, T, 1000), plan_draw.llama(pick, width, layers, T, 1000)])
        self.write("small.json", json.dumps(config))
        shape = dict(model="small.json", sequence_len=T, micro_batch_size=pick.randint(1, 4), dtype="fp32")
        return config, plan_draw.Asked(plan_draw.ideal_device(), **shape)

    def operations(self):
        """Where a device only computes, a step takes what its products take, counted by hand, and at most 2 % more."""
        config, asked = self.draw_shape([256, 320, 512, 640], [64, 256, 512])
        asked = asked.but(recompute="never", gradient_accumulation_steps=self.pick.randint(1, 5), host_memory=PLENTY)
        plan = self.planned(asked)
        by_hand = tokens(plan) * plan_draw.products(config, plan["sequence"]) / asked.has("peak_flops_fp32")
        for key in ("predicted_compute_seconds", "predicted_step_seconds"):
            assert by_hand <= plan[key] * self.lie <= 1.02 * by_hand, (key, plan[key], by_hand, config)

    def prepare(self):
        if os.path.exists(self.path("data")):
            return
        self.write("book.txt", tool.english(6000))
        self.ok("data", "prepare", "--input", "book.txt", "--tokenizer", "bytes", "--output", "data")

    def train(self, asked, *more):
        """asked has none of the options that only `atom plan` knows."""
        run = ["--data", "data", "-o", "run", "--overwrite", "--max-steps", 2, "--warmup-steps", 0, "--eval-steps", 0]
        return self.run_atom("train", *asked.words("")[2:], *run, *more)

    def utilization(self):
        """The MFU of a run is what the model's operations by hand, the tokens of a second and the device's peak give."""
        self.prepare()
        config, asked = self.draw_shape([64, 128], [16, 32])
        C = self.pick.randint(1, 3)
        self.ok("profile", *asked.words(self.spec_file(asked)), "-o", "profile.json")
        done = self.train(asked.but(gradient_accumulation_steps=C, profile="profile.json", execute="interpreted"))
        assert done.code == 0, str(done)
        each = plan_draw.mfu_operations(config, asked.options["sequence_len"]) / asked.has("peak_flops_fp32")
        step = C * asked.options["micro_batch_size"] * asked.options["sequence_len"]
        lines = [json.loads(line) for line in self.read("run", "metrics.jsonl").splitlines()]
        assert len(lines) == 2, lines
        for line in lines:
            assert close(line["mfu"] * self.lie, each * step / line["seconds"]), (line, each, step, config)

    def refused(self):
        """A plan is refused for another model, type, shape, number of micro-batches or optimizer than its own, and both are named."""
        self.prepare()
        config, asked = self.draw_shape([64, 128], [16, 32])
        T, B, C = asked.options["sequence_len"], asked.options["micro_batch_size"], self.pick.randint(2, 5)
        asked = asked.but(gradient_accumulation_steps=C, updates="host")
        assert self.plan(asked, "-o", "own.json").code == 0
        layers = "n_layer" if config["model_type"] == "gpt2" else "num_hidden_layers"
        self.write("deeper.json", json.dumps({**config, layers: config[layers] + 1}))
        other = plan_draw.llama(self.pick, 64, 2, T, 1000) if layers == "n_layer" else plan_draw.gpt2(64, 2, T, 1000)
        self.write("other.json", json.dumps(other))
        different = [({"model": "other.json"}, [config["model_type"], other["model_type"]]), ({"model": "deeper.json"}, ["its layers"]),
                     ({"dtype": "bf16"}, ["in fp32", "in bf16"]), ({"sequence_len": T // 2}, [f" x {T} ", f" x {T // 2};"]),
                     ({"micro_batch_size": B + 1}, [f" {B} x {T} ", f" {B + 1} x {T};"]),
                     ({"gradient_accumulation_steps": C + 1}, [f"for {C} micro-batches", f"gradient_accumulation_steps is {C + 1}"]),
                     ({"moments_dtype": "bf16"}, ["moments in fp32", "not in bf16"]), ({"optimizer": "muon"}, ["optimizer: adamw", "muon"]),
                     ({"max_grad_norm": 0}, ["max_grad_norm"])]
        own = plan_draw.Asked(asked.spec, **{key: value for key, value in asked.options.items() if key != "updates"})
        done = self.train(own, "--plan", "own.json", "--dry-run")
        assert done.code == 0, f"its own plan is refused: {done}"
        for change, says in different:
            done = self.train(own.but(**(change if self.lie == 1 else {})), "--plan", "own.json", "--dry-run")
            error = done.err.splitlines()[-1:] or [""]
            assert done.code == 2 and all(word in error[0] for word in says), f"{change} should be refused with {says}\n{done}"

    def alone(self):
        """A pool of one host trains as fast as that host alone."""
        keys = ("model", "sequence_len", "micro_batch_size", "dtype", "moments_dtype", "device_memory")
        asked, step = self.asked.only(*keys), tokens(self.base)
        memory = f", device_memory: {asked.options.pop('device_memory')}" if "device_memory" in asked.options else ""
        spec = self.spec_file(asked)
        host = f"{{name: only, device: {spec}, host_memory: {PLENTY}{memory}, link: lan}}"
        self.write("pool.yml", f"step_tokens: {step}\nhosts: [{host}]\n")
        told = self.run_atom("plan", *asked.words(spec)[2:], "--pool", "pool.yml", "--json")
        plan = self.plan(self.asked.only(*keys).but(gradient_accumulation_steps=self.base["micro_batches"], updates="host",
                                                    optimizer_state="memory", host_memory=PLENTY), "--json")
        assert (told.code == 0) == (plan.code == 0), f"{told}\n{plan}"
        for way in told.json()["ways"] if told.code == 0 else []:
            if way["mode"] in ("gradients", "parameters"):
                took = plan.json()["predicted_step_seconds"]
                assert close(way["step_seconds"] * self.lie, took) and close(way["tokens_per_second"], step / took), (way, took)

    ALWAYS = (bounded, promised, again, screen, memory_map)
    SOMETIMES = (enough, more, recommended, changes, larger, operations, utilization, refused, alone)


def run_seed(args, seed):
    """The relations that fail; None: the question is refused."""
    case, began = Seed(), time.monotonic()
    case.setUp()
    try:
        case.begin(seed, args.canary)
        failed = seeded.check(case, seed, args.only, args.all or args.canary)
    except Refused as why:
        print(f"seed {seed}: refused: {why}", flush=True)
        return None
    except Exception as error:
        failed = {"begin": seeded.broken(case, seed, error)}
    finally:
        case.doCleanups()
    print(f"seed {seed}: {case.name}, {len(failed)} relations failed, {time.monotonic() - began:.1f} s", flush=True)
    return failed


def main():
    args = seeded.options(3)
    answers = [run_seed(args, seed) for seed in range(args.first, args.first + args.seeds)]
    failed = [answer for answer in answers if answer is not None]
    if args.canary:
        names = {r.__name__ for r in (*Seed.ALWAYS, *Seed.SOMETIMES)}
        unnoticed = sorted(names - set().union(*failed))
        print(f"plan relations: {len(names)}, of which {len(unnoticed)} notice nothing{': ' if unnoticed else ''}{', '.join(unnoticed)}")
        return bool(unnoticed) or any("begin" in answer for answer in failed)
    for text in (text for answer in failed for text in answer.values()):
        print(text, flush=True)
    print(f"plan relations: {args.seeds} seeds, {answers.count(None)} refused, {sum(map(len, failed))} wrong")
    return any(failed)


if __name__ == "__main__":
    sys.exit(main())
