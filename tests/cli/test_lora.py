"""LoRA from end to end: train adapters of a model, resume, generate, evaluate, merge; and what is refused."""
import json
import os
import re
import shutil
import subprocess
import time

import tool

CONFIG = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 320, "hidden_size": 48,
          "intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
          "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "tie_word_embeddings": True, "hidden_act": "silu"}


class Lora(tool.Case):
    def setUp(self):
        super().setUp()
        text = self.write("text.txt", tool.english(40000))
        self.data = self.path("data")
        self.ok("data", "prepare", "-i", text, "-o", self.data, "--tokenizer", "bpe:300")
        config = self.write("tiny.json", json.dumps(CONFIG))
        self.train(config, "start", "--max-steps", 3)
        self.base = self.path("start", "checkpoint-3")

    def train(self, model, out, *more, run=None):
        return (run or self.ok)("train", "--model", model, "--data", self.data, "-o", self.path(out), "--dtype", "fp32",
                                "--device", "cpu", "--micro-batch-size", 2, "--gradient-accumulation-steps", 2,
                                "--sequence-len", 32, "--eval-steps", 0, "--lr", 1e-2, "--json", *more)

    def evaluate(self, model, *more):
        return self.ok("eval", "--model", model, "--data", self.data, "--dtype", "fp32", "--sequence-len", 32, "--json",
                       *more).json()["loss"]

    def same(self, a, b, name):
        with open(self.path(a, name), "rb") as x, open(self.path(b, name), "rb") as y:
            self.assertEqual(x.read(), y.read(), name)

    def test_from_a_model_to_a_merged_one(self):
        lora = ["--lora-r", 4, "--lora-alpha", 16, "--lora-dropout", 0.1, "--lora-target-modules", "q_proj,v_proj,up_proj"]
        summary = self.train(self.base, "whole", *lora, "--max-steps", 40, "--save-steps", 20).json()
        whole = self.path("whole", "checkpoint-40")
        self.assertFalse(os.path.exists(os.path.join(whole, "model.safetensors")))
        with open(os.path.join(whole, "adapter_config.json"), encoding="utf-8") as f:
            config = json.load(f)
        self.assertEqual((config["peft_type"], config["r"], config["lora_alpha"], config["target_modules"]),
                         ("LORA", 4, 16, ["q_proj", "v_proj", "up_proj"]))
        # the state is that of the adapters, and resuming gives the same bits
        big = os.path.getsize(os.path.join(self.base, "optimizer.safetensors"))
        self.assertLess(os.path.getsize(os.path.join(whole, "optimizer.safetensors")), big / 4)
        self.train(self.base, "again", *lora, "--max-steps", 40, "--resume-from-checkpoint",
                   self.path("whole", "checkpoint-20"))
        for name in "adapter_model.safetensors", "optimizer.safetensors":
            self.same("whole/checkpoint-40", "again/checkpoint-40", name)
        # what is under the adapters changed, and how they drop out: it is said
        shutil.copytree(self.base, self.path("copy"))
        told = self.train(self.path("copy"), "moved", *[a if a != 0.1 else 0.2 for a in lora], "--max-steps", 21, "--dropout", 0.3,
                          "--resume-from-checkpoint", self.path("whole", "checkpoint-20")).err
        for words in (f"under the adapters is {self.path('copy')} from here; it was {self.base}",
                      "lora_dropout is 0.2 from here; it was 0.1", "dropout of residuals is 0.3 from here; it was 0"):
            self.assertIn(words, told)
        told = self.train(self.path("copy"), "moved", *[a if a != 0.1 else 0.2 for a in lora], "--max-steps", 22,
                          "--resume-from-checkpoint", "auto").err
        self.assertIn("dropout of residuals is 0 from here; it was 0.3", told)
        # an adapter's directory stands for the model with it: so does the merged one
        self.ok("export", "--model", whole, "--to", "hf", "-o", self.path("merged"))
        self.assertTrue(os.path.exists(self.path("merged", "tokenizer.json")))
        loss = self.evaluate(whole)
        self.assertLess(loss, self.evaluate(self.base) - 0.01)
        self.assertAlmostEqual(loss, self.evaluate(self.path("merged")), 6)
        self.assertAlmostEqual(loss, self.evaluate(self.base, "--adapter", whole), 6)
        text = [self.ok("generate", *model, "--prompt", "The ", "--max-tokens", 12, "--temperature", 0, "--dtype",
                        "fp32").out for model in (["--model", whole], ["--model", self.path("merged")],
                                                  ["--model", self.base, "--adapter", whole])]
        self.assertTrue(text[0] == text[1] == text[2], text)
        # as some programs save it, with its model's config.json; beside weights it could be meant or not
        mixed = self.path("mixed")
        shutil.copytree(whole, mixed)
        shutil.copy(os.path.join(self.base, "config.json"), mixed)
        self.assertAlmostEqual(loss, self.evaluate(mixed), 6)
        shutil.copy(os.path.join(self.base, "model.safetensors"), mixed)
        self.fails(2, "eval", "--model", mixed, "--data", self.data, says=["adapter_config.json", "away"])
        # training goes on from an adapter, and its loss is the adapter's
        more = self.train(self.base, "more", "--adapter", whole, "--max-steps", 1).json()
        self.assertLess(more["first_loss"], summary["first_loss"] - 0.01)

    def test_dora(self):
        """A new DoRA adapter begins as the model, and goes on to the same bits resumed, swapped and with its state on disk."""
        keys = ["--lora-r", 4, "--use-dora", "true", "--lora-dropout", 0.1, "--lora-target-modules", "q_proj,v_proj,down_proj"]
        self.train(self.base, "begun", *keys, "--max-steps", 1, "--learning-rate", 1e-12)
        begun = self.path("begun", "checkpoint-1")
        self.assertAlmostEqual(self.evaluate(begun), self.evaluate(self.base), 5)
        for kind in "adamw", "muon":
            run = [*keys, "--optimizer", kind, "--max-steps", 6]
            first = self.train(self.base, kind, *run, "--save-steps", 3).json()
            little = self.train(self.base, "none", *run, "--device-memory", "64KiB", run=self.run_atom)
            least = int(re.search(r"needs at least .*?\((\d+) bytes\)", little.err).group(1))
            self.assertLess(least, first["device_peak_bytes"])
            made = self.path(kind, "checkpoint-6")
            ways = {"resumed": ["--resume-from-checkpoint", self.path(kind, "checkpoint-3")], "disk": ["--optimizer-state", "disk"],
                    "swapped": ["--device-memory", least]}
            for way, more in ways.items():
                self.train(self.base, way + kind, *run, *more)
                self.same(made, self.path(way + kind, "checkpoint-6"), "adapter_model.safetensors")
        with open(os.path.join(made, "adapter_config.json"), encoding="utf-8") as f:
            self.assertIs(json.load(f)["use_dora"], True)
        self.ok("export", "--model", made, "--to", "hf", "-o", self.path("merged-dora"))
        self.assertAlmostEqual(self.evaluate(made), self.evaluate(self.path("merged-dora")), 6)
        self.assertIn("DoRA adapter, rank 4", self.ok("inspect", made).out)
        more = self.train(self.base, "more-dora", "--adapter", made, "--max-steps", 1).json()
        self.assertLess(more["first_loss"], first["first_loss"] - 0.01)
        plain = [key for key in keys if key not in ("--use-dora", "true")]
        done = self.train(self.base, "other", *plain, "--max-steps", 6, "--resume-from-checkpoint", begun, run=self.run_atom)
        self.assertEqual(done.code, 2, done)
        self.assertIn("use_dora", done.err)

    def test_layers_and_ranks_of_their_own(self):
        """What the keys choose is what PEFT's configuration then says, and training goes on from it."""
        keys = ["--lora-r", 4, "--lora-target-modules", "q_proj,up_proj", "--lora-layers", "1", "--lora-rslora",
                "--lora-rank-pattern", "q_proj=2", "--lora-alpha-pattern", "up_proj=3.5", "--lora-modules-to-save", "norm"]
        first = self.train(self.base, "chosen", *keys, "--max-steps", 20, "--save-steps", 10).json()
        made = self.path("chosen", "checkpoint-20")
        with open(os.path.join(made, "adapter_config.json"), encoding="utf-8") as f:
            config = json.load(f)
        self.assertEqual([config[k] for k in ("target_modules", "layers_to_transform", "rank_pattern", "alpha_pattern",
                                              "modules_to_save", "use_rslora")],
                         [["q_proj", "up_proj"], [1], {"q_proj": 2}, {"up_proj": 3.5}, ["norm"], True])
        with open(os.path.join(made, "adapter_model.safetensors"), "rb") as f:
            header = json.loads(f.read(int.from_bytes(f.read(8), "little")))
        header.pop("__metadata__", None)
        layer = "base_model.model.model.layers.1."
        self.assertEqual(header[layer + "self_attn.q_proj.lora_A.weight"]["shape"], [2, 48])
        self.assertEqual(header[layer + "mlp.up_proj.lora_B.weight"]["shape"], [80, 4])
        self.assertIn("base_model.model.model.norm.weight", header)
        self.assertFalse([name for name in header if ".layers.0." in name and "lora" in name], header)
        # resuming gives the same bits; another scale is refused
        self.train(self.base, "again", *keys, "--max-steps", 20, "--resume-from-checkpoint",
                   self.path("chosen", "checkpoint-10"))
        self.same(made, self.path("again", "checkpoint-20"), "adapter_model.safetensors")
        self.same(made, self.path("again", "checkpoint-20"), "optimizer.safetensors")
        for swap, says in (("up_proj=3.5", "lora_alpha_pattern"), ("q_proj=2", "rank"), ("norm", "modules_to_save"),
                           ("1", "same lora_target_modules and lora_layers"), ("q_proj,up_proj", "same lora_target_modules")):
            at = keys.index(swap)
            done = self.train(self.base, "other", *keys[:at - 1], *keys[at + 1:], "--max-steps", 20,
                              "--resume-from-checkpoint", made, run=self.run_atom)
            self.assertEqual(done.code, 2, done)
            self.assertIn(says, done.err)
        other = [key if key != "norm" else "embed_tokens" for key in keys]
        done = self.train(self.base, "other", *other, "--max-steps", 21, "--resume-from-checkpoint", made, run=self.run_atom)
        self.assertEqual(done.code, 2, done)
        self.assertIn("other lora_modules_to_save", done.err)
        # merged, and as it is, it says the same; training goes on where it stood
        self.ok("export", "--model", made, "--to", "hf", "-o", self.path("merged"))
        self.assertAlmostEqual(self.evaluate(made), self.evaluate(self.path("merged")), 6)
        more = self.train(self.base, "more", "--adapter", made, "--max-steps", 1).json()
        self.assertLess(more["first_loss"], first["first_loss"] - 0.01)
        for key, value, says in (("--lora-layers", "1-", "'1-'"), ("--lora-layers", "0-", "'0-'"), ("--lora-layers", "3-1", "'3-1'"),
                                 ("--lora-rank-pattern", "q_proj", "NAME=NUMBER"), ("--lora-rank-pattern", "q_proj=x", "q_proj=x"),
                                 ("--lora-rank-pattern", "q_proj=1.5", "whole number"), ("--lora-layers", "9", "no block 9; this model has blocks 0 to 1"),
                                 ("--lora-layers", "1-2", "no block 2"), ("--lora-layers", "", "is empty"),
                                 ("--lora-modules-to-save", "", "is empty"), ("--lora-rank-pattern", "q_prj=2", "'q_prj'"),
                                 ("--lora-alpha-pattern", "norm=2", "no layer that gets an adapter is named 'norm'"),
                                 ("--lora-alpha-pattern", "q_proj=inf", "q_proj=inf"),
                                 ("--lora-rank-pattern", "q_proj=2,q_proj=4", "appears twice")):
            done = self.train(self.base, "none", "--lora-r", 4, key, value, "--max-steps", 1, run=self.run_atom)
            self.assertEqual(done.code, 2, done)
            self.assertIn(says, done.err)
        self.assertIn("without lora_r", self.fails(2, "train", "--model", self.base, "--data", self.data, "-o", "none",
                                                   "--lora-modules-to-save", "norm", says="lora_modules_to_save").err)

    def tensors(self, *parts):
        """Name -> bytes of a file of safetensors."""
        with open(self.path(*parts), "rb") as f:
            data = f.read()
        size = 8 + int.from_bytes(data[:8], "little")
        header = json.loads(data[8:size])
        header.pop("__metadata__", None)
        return {name: data[size + t["data_offsets"][0]:size + t["data_offsets"][1]] for name, t in header.items()}

    def test_copies_of_tied_layers(self):
        """Of an embedding that is the head, too, what is named is trained as a copy, and the other stays as it was."""
        small = {"model_type": "gpt2", "vocab_size": 320, "n_positions": 64, "n_embd": 48, "n_layer": 2, "n_head": 4, "attn_pdrop": 0,
                 "embd_pdrop": 0, "resid_pdrop": 0}
        self.train(self.write("gpt2.json", json.dumps(small)), "gpt2", "--max-steps", 3)
        self.copies(self.base, "embed_tokens", "model.embed_tokens.weight", ["q_proj", "up_proj"], ["embed_tokens"])
        self.copies(self.base, "embed_tokens", "model.embed_tokens.weight", ["q_proj", "up_proj"], ["embed_tokens", "lm_head"])
        self.copies(self.path("gpt2", "checkpoint-3"), "wte", "transformer.wte.weight", ["c_attn", "c_fc"], ["lm_head"])
        self.fails(2, "export", "--model", self.path("whole-lm_head", "checkpoint-6"), "--to", "llmc", "-o", "none.bin",
                   says=("tie_word_embeddings", "llm.c"))

    def copies(self, base, embedding, tensor, targets, save):
        kind, run = "-".join(save), ["--lora-r", 4, "--lora-target-modules", ",".join(targets), "--lora-dropout", 0.1,
                                     "--lora-modules-to-save", ",".join(save), "--max-steps", 6]
        first = self.train(base, f"whole-{kind}", *run, "--save-steps", 3).json()
        made, half = (self.path(f"whole-{kind}", f"checkpoint-{n}") for n in (6, 3))
        full = {embedding: tensor, "lm_head": "lm_head.weight"}
        in_file = self.tensors(made, "adapter_model.safetensors")
        self.assertEqual(sorted(name for name in in_file if "lora_" not in name),
                         sorted("base_model.model." + full[name] for name in save))
        # resumed, and swapped, to the same bits
        little = self.train(base, "none", *run, "--device-memory", "64KiB", run=self.run_atom)
        least = int(re.search(r"needs at least .*?\((\d+) bytes\)", little.err).group(1))
        for way, more in ("resumed", ["--resume-from-checkpoint", half]), ("swapped", ["--device-memory", least]):
            done = self.train(base, f"{way}-{kind}", *run, *more).json()
            self.same(made, self.path(f"{way}-{kind}", "checkpoint-6"), "adapter_model.safetensors")
        self.assertGreater(done["sub_models"], first["sub_models"])
        # merged: a model with two matrices, of which the one that was not named is the model's
        merged, gguf, back = (self.path(name + kind) for name in ("merged-", "gguf-", "back-"))
        self.ok("export", "--model", made, "--to", "hf", "-o", merged)
        with open(os.path.join(merged, "config.json"), encoding="utf-8") as f:
            self.assertIs(json.load(f)["tie_word_embeddings"], False)
        old, new = (self.tensors(d, "model.safetensors") for d in (base, merged))
        self.assertEqual(set(new) - set(old), {"lm_head.weight"})
        for name, whole in full.items():
            self.assertEqual(new[whole] == old[tensor], name not in save, whole)
            self.assertEqual(new[whole], in_file["base_model.model." + whole] if name in save else old[tensor])
        self.ok("export", "--model", base, "--adapter", made, "--to", "gguf", "--type", "f32", "-o", gguf)
        self.ok("export", "--model", gguf, "--to", "hf", "-o", back)
        self.assertEqual(self.tensors(back, "model.safetensors"), new)
        # and they say the same
        models = [["--model", made], ["--model", base, "--adapter", made], ["--model", merged], ["--model", gguf]]
        losses = [self.evaluate(*m[1:]) for m in models]
        self.assertLess(max(losses) - min(losses), 1e-6)
        self.assertLess(losses[0], self.evaluate(base) - 0.01)
        texts = {self.ok("generate", *m, "--prompt", "The ", "--max-tokens", 12, "--temperature", 0, "--dtype", "fp32").out
                 for m in models}
        self.assertEqual(len(texts), 1, texts)
        # training goes on from it, also with a base that is a GGUF file
        tied = self.path("tied-" + kind)
        self.ok("export", "--model", base, "--to", "gguf", "--type", "f32", "-o", tied)
        for number, model in enumerate((base, tied)):
            more = self.train(model, f"more-{kind}-{number}", "--adapter", made, "--max-steps", 2).json()
            self.assertLess(more["first_loss"], first["first_loss"] - 0.01)
        self.same(f"more-{kind}-0/checkpoint-2", f"more-{kind}-1/checkpoint-2", "adapter_model.safetensors")

    def test_in_a_pool(self):
        """Adapters are averaged; the model under them is everybody's own, and must be the same."""
        alone = ["--no-lan", "--no-directory", "--json", "--quiet", "--listen", "127.0.0.1:0"]
        run = self.write("run.yml", "micro_batch_size: 2\ngradient_accumulation_steps: 1\nsequence_len: 32\n"
                         "max_steps: 1000000\nlearning_rate: 1e-2\nlr_scheduler: constant\nwarmup_steps: 2\ndtype: fp32\n"
                         "threads: 1\neval_steps: 0\nsave_steps: 0\nlora_r: 4\nlora_target_modules: q_proj,up_proj\n"
                         "lora_modules_to_save: norm,embed_tokens\n"
                         "pool:\n  sync_steps: 8\n  fragments: 2\n  heartbeat_seconds: 0.1\n")

        def start(*args):
            process = self.start_atom("pool", *args, *alone)
            self.addCleanup(process.communicate)
            self.addCleanup(process.kill)
            return process

        def until(out, what, true, *processes):
            end = time.monotonic() + 60
            while time.monotonic() < end:
                status = self.run_atom("pool", "status", out, "--json")
                if status.code == 0 and true(status.json()):
                    return
                for p in processes:
                    if p.poll() is not None:
                        self.fail(f"{what}: a member ended:\n{p.communicate()[1]}")
                time.sleep(0.1)
            self.fail(f"{what}: not in time\n{status}")

        def end(process):
            process.terminate()
            out, err = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 143, err)
            return json.loads(out.splitlines()[-1])

        a = start("create", "--config", run, "--model", self.base, "--data", self.data, "-o", "a")
        ticket = json.loads(a.stdout.readline())["ticket"]
        until("a", "it trains", lambda s: s["applied"] >= 2, a)
        # Without the model, and with another one.
        join = ["pool", "join", ticket, "--data", self.data, *alone]
        self.fails(2, *join, "-o", "refused", says="--model")
        self.train(self.base, "further", "--max-steps", 1)
        self.fails(2, *join, "-o", "other", "--model", self.path("further", "checkpoint-1"),
                   says=("further", "hash", "Nothing was fetched"))
        # With a copy of it, wherever that lies and however it is cut into files.
        mine = self.path("mine")
        self.ok("export", "--model", self.base, "--to", "hf", "--max-shard-size", "64KiB", "-o", mine)
        self.assertTrue(os.path.exists(os.path.join(mine, "model.safetensors.index.json")))
        b = start("join", ticket, "--data", self.data, "--model", mine, "-o", "b")
        both = lambda s: s["roster"] == 2 and any(r["contributors"] == 2 for r in s["rounds"])
        until("b", "both bring theirs", both, a, b)
        end(b)
        b = start("join", "-o", "b")  # it knows where its model is
        until("b", "both again", lambda s: both(s) and s["samples"] > 0, a, b)
        ends = [end(a), end(b)]
        said = [self.ok("pool", "export", out, "-o", f"{out}-adapter", "--json").json() for out in ("a", "b")]
        for x, y in zip(ends, said):
            self.assertEqual((x["version"], x["anchor"]), (y["version"], y["anchor"]))
        if said[0]["version"] == said[1]["version"]:
            self.assertEqual(said[0]["anchor"], said[1]["anchor"])
        # What came of it is an adapter of the model.
        for out, base in (("a", self.base), ("b", mine)):
            with open(self.path(f"{out}-adapter", "adapter_config.json"), encoding="utf-8") as f:
                self.assertEqual(json.load(f)["base_model_name_or_path"], base)
            self.assertFalse(os.path.exists(self.path(f"{out}-adapter", "model.safetensors")))
            self.assertLess(self.evaluate(self.path(f"{out}-adapter")), self.evaluate(base) - 0.01)

    def test_plan_prices_adapters(self):
        """Less state, and a plan that 'atom train' takes for the same adapters and for no others."""
        shape = ["--model", self.base, "--dtype", "fp32", "--micro-batch-size", 2, "--sequence-len", 32]
        lora = ["--lora-r", 4, "--lora-target-modules", "q_proj,v_proj"]
        host = {}
        for name, more in ("whole", []), ("adapters", lora):
            self.ok("profile", *shape, "--device", "cpu", "-o", f"{name}.json", *more)
            self.ok("plan", "--profile", f"{name}.json", "--gradient-accumulation-steps", 2, "-o", f"{name}-plan.json")
            told = self.ok("plan", "--model", self.base, "--device-spec", "rtx-4090", "--dtype", "fp32",
                           "--sequence-len", 32, *more).out
            host[name] = next(line for line in told.splitlines() if line.startswith("host memory"))
        self.assertNotEqual(host["whole"], host["adapters"])
        self.train(self.base, "planned", *lora, "--plan", "adapters-plan.json", "--max-steps", 1)
        self.train(self.base, "other", *lora, "--plan", "whole-plan.json", "--max-steps", 1, run=self.refused)
        self.fails(2, "plan", "--profile", "whole.json", *lora, says="already decides lora_r")
        for key, value in ("--lora-dropout", 0.1), ("--dtype", "bf16"), ("--sequence-len", 16), ("--micro-batch-size", 1):
            self.fails(2, "plan", "--profile", "whole.json", key, value, says="already decides " + key[2:].replace("-", "_"))
        for command in ("plan", "--device-spec", "rtx-4090"), ("profile", "--device-spec", "rtx-4090"), ("profile",):
            self.fails(2, *command, *shape, "--lora-alpha", 8, says="lora_alpha has no effect without lora_r")

    def refused(self, *args):
        self.assertNotEqual(self.run_atom(*args).code, 0)

    def test_over_a_gguf_file(self):
        """The adapter's directory has the tokenizer, the file beneath it the weights."""
        self.ok("export", "--model", self.base, "--type", "f32", "-o", "base.gguf")
        self.train(self.path("base.gguf"), "over", "--lora-r", 2, "--max-steps", 4)
        made = self.path("over", "checkpoint-4")
        self.ok("export", "--model", made, "--to", "hf", "-o", self.path("merged"))
        self.assertAlmostEqual(self.evaluate(made), self.evaluate(self.path("merged")), 6)
        for more in ["--prompt", "The "], ["--prompt", "The ", "--chat", "--template", "plain"]:
            said = [self.ok("generate", *model, *more, "--max-tokens", 12, "--temperature", 0, "--dtype", "fp32").out
                    for model in (["--model", made], ["--model", self.path("merged")], ["--model", "base.gguf", "--adapter", made])]
            self.assertTrue(said[0] == said[1] == said[2], said)

    def test_refusals(self):
        def refused(code, words, *more, model=self.base):
            done = self.train(model, "none", "--max-steps", 1, *more, run=self.run_atom)
            self.assertEqual(done.code, code, done)
            for word in words:
                self.assertIn(word, done.err)

        refused(2, ["w_proj", "q_proj"], "--lora-r", 2, "--lora-target-modules", "q_proj,w_proj")
        refused(2, ["lm_head", "tied"], "--lora-r", 2, "--lora-target-modules", "q_proj,lm_head")
        refused(2, ["--lora-r", "at least 1"], "--lora-r", 0)
        refused(2, ["lora_alpha", "without lora_r"], "--lora-alpha", 8)
        refused(2, ["lora_target_modules", "without lora_r"], "--lora-target-modules", "q_proj")
        refused(2, ["save_dtype", "always saved in fp32"], "--lora-r", 2, "--save-dtype", "bf16")
        refused(2, ["lora_r", "q_proj", "48"], "--lora-r", 4000, "--lora-target-modules", "q_proj")
        refused(2, ["weights"], "--lora-r", 2, model=self.path("tiny.json"))
        self.train(self.base, "small", "--lora-r", 2, "--lora-target-modules", "o_proj", "--max-steps", 1)
        small = self.path("small", "checkpoint-1")
        refused(2, ["has its own"], "--adapter", small, "--lora-r", 2)
        refused(2, ["LoRA run"], "--resume-from-checkpoint", small)
        refused(2, ["rank 2"], "--lora-r", 3, "--lora-target-modules", "o_proj", "--resume-from-checkpoint", small, "--max-steps", 2)
        # an adapter of another model; one of a kind that atom has not; one that is cut off
        other = self.write("other.json", json.dumps(dict(CONFIG, hidden_size=32)))
        self.train(other, "other", "--max-steps", 1)
        refused(2, ["another model"], "--adapter", small,
                model=self.path("other", "checkpoint-1"))
        path = os.path.join(small, "adapter_config.json")
        with open(path, encoding="utf-8") as f:
            config = json.load(f)
        def changed(**keys):
            with open(path, "w", encoding="utf-8") as f:
                json.dump(dict(config, **keys), f)

        for key, value in ("bias", "lora_only"), ("invented_later", {"a": 1}), ("init_lora_weights", "pissa"):
            changed(**{key: value})
            refused(2, ["adapter_config.json", key, "merge_and_unload"], "--adapter", small)
        for init in True, "gaussian", "orthogonal", "eva":  # these leave the base as it was
            changed(init_lora_weights=init)
            self.ok("export", "--model", self.base, "--adapter", small, "--to", "hf", "-o", f"merged-{init}")
        changed(use_dora=True)
        refused(3, ["lora_magnitude_vector is missing"], "--adapter", small)
        for key, value, words in (("target_modules", "(", ["not a regular expression"]), ("rank_pattern", {"o_proj": 0}, ["o_proj"]),
                                  ("rank_pattern", [], ["object"]), ("alpha_pattern", {"o_proj": "a"}, ["o_proj"]),
                                  ("target_modules", "(x+x+)+y", ["selects no"]), ("layers_to_transform", [-1], ["numbers"]),
                                  ("target_modules", "((.+)+)+[!?]", ["too long"]),
                                  ("layers_to_transform", [7], ["layers", "o_proj"]), ("exclude_modules", ["o_proj"], ["exclusions"]),
                                  ("modules_to_save", "norm", ["list"])):
            changed(**{key: value})
            done = self.train(self.base, "none", "--max-steps", 1, "--adapter", small, run=self.run_atom)
            self.assertIn(done.code, (2, 3), done)
            for word in [*words, key if "exclusions" not in words and "selects no" not in words and value != [7] else "o_proj"]:
                self.assertIn(word, done.err)
        changed(modules_to_save=["embed_tokens"])
        refused(3, ["embed_tokens.weight is missing (modules_to_save)"], "--adapter", small)
        changed(modules_to_save=["lm_head"], ensure_weight_tying=True)
        refused(2, ["ensure_weight_tying", "merge_and_unload"], "--adapter", small)
        for name, words in (("q_proj", ["k_proj"]), ("mlp", ["group"]), ("w_norm", ["w_norm"]), ("o_proj", ["o_proj", "whole"])):
            changed(modules_to_save=[name])
            refused(2, words, "--adapter", small)
        with open(path, "w", encoding="utf-8") as f:
            json.dump(dict(config, target_modules=["q_proj"]), f)
        refused(3, ["adapter_model.safetensors", "q_proj.lora_A"], "--adapter", small)
        shutil.rmtree(self.base)
        done = self.run_atom("eval", "--model", small, "--data", self.data)
        self.assertEqual(done.code, 2, done)
        self.assertIn("base_model_name_or_path", done.err)
        self.assertIn("this one as --adapter", done.err)
        self.assertIn("rank 2", self.ok("inspect", small).out)

    def test_a_copy_of_the_model_beside_an_adapter(self):
        """PEFT adds it where the head or the embedding has an adapter, and lays it over the model's when it loads it."""
        def write(tensors):
            header, body = {}, b""
            for name, (shape, numbers) in tensors.items():
                header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(body), len(body) + len(numbers)]}
                body += numbers
            text = json.dumps(header).encode()
            text += b" " * (-len(text) % 8)
            with open(os.path.join(made, "adapter_model.safetensors"), "wb") as f:
                f.write(len(text).to_bytes(8, "little") + text + body)

        def read(path):
            with open(path, "rb") as f:
                data = f.read()
            size = 8 + int.from_bytes(data[:8], "little")
            header = json.loads(data[8:size])
            header.pop("__metadata__", None)
            return {name: (t["shape"], data[size + t["data_offsets"][0]:size + t["data_offsets"][1]])
                    for name, t in header.items()}

        def refused(tensors, code, *says):
            write(tensors)
            for args in (["eval", "--data", self.data], ["export", "--to", "hf", "-o", self.path("none")],
                         ["train", "--data", self.data, "-o", self.path("none"), "--max-steps", 1, "--sequence-len", 32]):
                self.fails(code, args[0], "--model", base, "--adapter", made, *args[1:], says=says)

        self.train(self.write("untied.json", json.dumps(dict(CONFIG, tie_word_embeddings=False))), "untied", "--max-steps", 3)
        base = self.path("untied", "checkpoint-3")
        self.train(base, "run", "--lora-r", 2, "--lora-target-modules", "o_proj,lm_head", "--max-steps", 1)
        made = self.path("run", "checkpoint-1")
        own, model = read(os.path.join(made, "adapter_model.safetensors")), read(os.path.join(base, "model.safetensors"))
        self.assertIn("base_model.model.lm_head.lora_A.weight", own)
        without = self.evaluate(base, "--adapter", made)
        head, embedding = "base_model.model.lm_head.base_layer.weight", "base_model.model.model.embed_tokens.weight"
        copies = {head: model["lm_head.weight"], embedding: model["model.embed_tokens.weight"]}
        for some in ({head: copies[head]}, copies):
            write({**own, **some})
            self.assertEqual(self.evaluate(base, "--adapter", made), without)
        self.ok("export", "--model", base, "--adapter", made, "--to", "hf", "-o", self.path("merged"))
        self.assertAlmostEqual(self.evaluate(self.path("merged")), without, 6)
        self.train(base, "more", "--adapter", made, "--max-steps", 1)
        shape, numbers = copies[embedding]
        refused({**own, head: copies[head], embedding: (shape, numbers[:-1] + bytes([numbers[-1] ^ 1]))}, 2, embedding,
                "not the model's own", "merge_and_unload")
        refused({**own, head: ([shape[0] - 1, shape[1]], copies[head][1][:-4 * shape[1]])}, 3, head, "config.json says")
        refused({**own, "base_model.model.model.norm.base_layer.weight": ([1], bytes(4))}, 2, "norm.base_layer.weight",
                "save_embedding_layers=False")

    def test_a_base_is_found_from_everywhere(self):
        """Trained with a path from here, used from elsewhere; and an adapter is called one."""
        self.train(os.path.relpath(self.base, self.dir), "near", "--lora-r", 2, "--max-steps", 1)
        made = self.path("near", "checkpoint-1")
        os.mkdir(self.path("else"))
        done = subprocess.run([os.path.abspath(tool.ATOM), "eval", "--model", made, "--data", self.data],
                              cwd=self.path("else"), env=self.env, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done)
        # used with another model than it was made for, it is said
        other = self.path("other")
        shutil.copytree(self.base, other)
        for args in (["eval", "--data", self.data], ["generate", "--max-tokens", 1], ["export", "--to", "hf", "-o", self.path("x")]):
            told = self.ok(*args, "--model", other, "--adapter", made).err
            self.assertEqual(told.count(f"was trained for the model {os.path.realpath(self.base)}; with "), 1, told)
        self.assertNotIn("was trained for", self.ok("generate", "--max-tokens", 1, "--model", self.base, "--adapter", made).err)
        said = self.ok("inspect", made).out
        self.assertIn("LoRA adapter, rank 2", said)
        self.assertIn(self.base, said)
        told = self.ok("inspect", made, "--json").json()
        self.assertEqual((told["kind"], told["step"]), ("adapter", int(made.rsplit("-", 1)[1])))


if __name__ == "__main__":
    tool.main()
