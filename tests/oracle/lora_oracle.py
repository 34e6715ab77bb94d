#!/usr/bin/env python3
"""LoRA of the program `atom` against its definition in float64, and against PEFT.

  lora_oracle.py ATOM [--first S] [--seeds N] [--canary] [--tied]     ATOM: the program
  --canary    our scale is 0.1 % larger; succeeds if that is noticed

Random small GPT-2, Llama, Mistral, Qwen2, Phi-3 and GPT-NeoX models with random adapters on some or all of their linear layers,
chosen by names, patterns and blocks, some with ranks and alphas of their own and some layers trained whole, saved as PEFT
does. atom trains the adapter, swapping in half the runs: every gradient of its first step, the losses
and norms of STEPS steps, the adapter that it leaves, `atom eval` of that and the merged model of `atom export` must
be those of y = W x + s B A x (Hu et al. 2021) in float64. Where PEFT is installed, it must read both adapters,
ours and atom's, and its merged model must be atom's; and a DoRA
adapter is trained beside PEFT's own in float64, step by step. With --tied, adapters of PEFT that train a tied embedding, the head or
both whole are trained beside it in the same way, of a GPT-2, a Llama and a GPT-NeoX. fp32. Exit 77: torch or transformers is not installed.
"""
import argparse
import copy
import itertools
import json
import os
import random
import re
import sys
import tempfile

from gpt2_oracle import error, np, torch, load_file, GPT2Config, GPT2LMHeadModel
import llama_oracle
from train_oracle import Atom, write_shard
from safetensors.numpy import save_file
from transformers import AutoModelForCausalLM
from transformers.pytorch_utils import Conv1D

try:
    import peft
except ImportError:
    peft = None

STEPS, BETA1 = 8, 0.9
LIMITS = {"gradient": 1e-5, "loss": 1e-5, "norm": 1e-4, "adapter": 1e-5, "eval": 1e-5, "merged": 1e-6, "PEFT reads": 1e-6,
          "PEFT merges": 1e-6}
GPT2 = ["c_attn", "attn.c_proj", "c_fc", "mlp.c_proj", "c_proj"]
BODY = {"gpt2": "transformer.", "gpt_neox": "gpt_neox."}  # else model.
EMBEDDING = {"gpt2": "transformer.wte.weight", "gpt_neox": "gpt_neox.embed_in.weight"}
KINDS = ["gpt2", "llama", "mistral", "qwen2", "phi3", "gpt_neox"]
NEOX = ["query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h"]
WHOLE = {"gpt2": ["ln_f", "ln_2", "wte", "lm_head"],
         "gpt_neox": ["final_layer_norm", "0.attention.query_key_value", "embed_in", "embed_out"]}
PHI3 = ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"]
LLAMA = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


class Adapted(torch.nn.Module):
    def __init__(self, inner, rank, scale, draw):
        super().__init__()
        wide = inner.weight.T if isinstance(inner, Conv1D) else inner.weight  # [out, in]
        self.inner, self.scale = inner, scale
        self.A = torch.nn.Parameter(torch.from_numpy(draw((rank, wide.shape[1]), wide.shape[1] ** -0.5)))
        # As wild as trained adapters are: what is added stays below what is there, or fp32 cannot follow.
        self.B = torch.nn.Parameter(torch.from_numpy(draw((wide.shape[0], rank), min(0.1, 0.2 / scale))))

    def forward(self, x):
        return self.inner(x) + self.scale * (x @ self.A.T @ self.B.T)


class Run:
    def __init__(self, seed, canary=False, kind=None):
        """kind: of a tied model without an adapter of ours; else a random model with one."""
        r = random.Random(seed)
        torch.manual_seed(seed)
        self.seed, self.T, self.B, self.C = seed, r.randint(5, 25), r.randint(1, 3), r.randint(1, 3)
        self.kind = kind or KINDS[seed % len(KINDS)]
        self.head = "embed_out" if self.kind == "gpt_neox" else "lm_head"
        self.embedding = EMBEDDING.get(self.kind, "model.embed_tokens.weight")
        if self.kind == "gpt2":
            self.config = GPT2Config(vocab_size=257, n_positions=40, n_embd=3 * r.randint(7, 17), n_layer=r.randint(1, 3),
                                     n_head=3, initializer_range=0.1, bos_token_id=256, eos_token_id=256)
            self.base, names = GPT2LMHeadModel(self.config), GPT2
        else:
            families = llama_oracle.FAMILIES
            job = llama_oracle.Job(len(families) * seed + families.index(self.kind), "fp32")
            job.config.vocab_size, job.config.max_position_embeddings = 257, 64
            if getattr(job.config, "sliding_window", None):
                job.config.sliding_window = 48
            job.config.tie_word_embeddings |= kind is not None
            self.config, names = job.config, {"phi3": PHI3, "gpt_neox": NEOX}.get(self.kind, LLAMA)
            self.base = type(job.model)(self.config)
        self.rank, self.alpha, self.rslora = r.randint(1, 4), r.choice([1, 8, 24.5]), r.random() < 0.3
        self.targets = "all-linear" if r.random() < 0.3 else sorted(r.sample(names, r.randint(1, 3)))
        self.lr, self.decay, self.clip = r.choice([1e-3, 1e-2]), r.choice([0.0, 0.1]), r.choice([0.0, 0.05])
        self.swap = r.random() < 0.5
        self.stream = np.random.default_rng(seed).integers(97, 123, self.B * self.C * self.T + 1)
        self.base = self.base.float().eval()
        self.model = copy.deepcopy(self.base).double()
        self.model.config._attn_implementation = "eager"
        self.choose(random.Random(seed + 1000), names)
        self.adapted, self.whole = {}, {}
        if not kind:
            self.adapt(canary)

    def choose(self, r, names):
        """More keys of adapter_config.json than names and one rank."""
        self.keys, listed = {}, self.targets != "all-linear"
        if listed and r.random() < 0.4:
            self.targets = r".*\.(" + "|".join(self.targets) + ")"
        elif listed and r.random() < 0.5:
            n = self.config.num_hidden_layers
            self.keys["layers_to_transform"] = sorted(r.sample(range(n), r.randint(1, n)))
        if r.random() < 0.5:
            self.keys["rank_pattern"] = {r.choice(names): r.randint(1, 4)}
        if r.random() < 0.5:
            self.keys["alpha_pattern"] = {r.choice([".*0.*", r.choice(names)]): r.choice([2, 3.5])}
        whole = WHOLE.get(self.kind, ["norm", "embed_tokens", "lm_head"])
        if "query_key_value" in str(self.targets) or self.targets == "all-linear":
            whole = [name for name in whole if "query_key_value" not in name]  # one or the other
        if r.random() < 0.6:
            self.keys["modules_to_save"] = r.sample(whole, r.randint(1, len(whole)))

    def is_chosen(self, name):
        if self.targets == "all-linear":
            return name != self.head
        if isinstance(self.targets, str):
            return re.fullmatch(self.targets, name) is not None
        layers = self.keys.get("layers_to_transform")
        return any(name.endswith("." + t) for t in self.targets) and (
            layers is None or int(re.search(r"\.(\d+)\.", name).group(1)) in layers)

    def own(self, key, name, otherwise):
        return next((v for k, v in self.keys.get(key, {}).items() if re.fullmatch(rf"(.*\.)?({k})", name)), otherwise)

    def adapt(self, canary):
        draw = np.random.default_rng(self.seed)
        head = self.model.get_output_embeddings()
        head.weight = torch.nn.Parameter(head.weight.clone())  # PEFT copies what it trains whole
        for p in self.model.parameters():
            p.requires_grad_(False)
        for name, module in list(self.model.named_modules()):
            if any(name.endswith(end) for end in self.keys.get("modules_to_save", [])):
                for last, p in module.named_parameters():
                    p.requires_grad_(True)
                    with torch.no_grad():
                        p.copy_(p + torch.from_numpy(draw.normal(0, 0.01, p.shape)).float())
                    self.whole[f"{name}.{last}"] = p
            if isinstance(module, (torch.nn.Linear, Conv1D)) and self.is_chosen(name):
                rank = self.own("rank_pattern", name, self.rank)
                scale = self.own("alpha_pattern", name, self.alpha) / (rank ** (0.5 if self.rslora else 1))
                new = Adapted(module, rank, scale * (1.001 if canary else 1), lambda shape, std: draw.normal(0, std, shape).astype("f4").astype("f8"))
                parent, _, last = name.rpartition(".")
                setattr(self.model.get_submodule(parent), last, new)
                self.adapted[name] = new

    def tensors(self):
        """PEFT's names -> parameters."""
        for name, m in self.adapted.items():
            for which in "AB":
                yield f"base_model.model.{name}.lora_{which}.weight", getattr(m, which)
        for name, p in self.whole.items():
            yield "base_model.model." + name, p

    def save(self, path):
        os.mkdir(path)
        save_file({n: p.detach().numpy().astype("f4") for n, p in self.tensors()},
                  os.path.join(path, "adapter_model.safetensors"), {"format": "pt"})
        config = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": self.rank, "lora_alpha": self.alpha, "bias": "none",
                  "lora_dropout": 0.0, "target_modules": self.targets, "use_rslora": self.rslora,
                  "fan_in_fan_out": self.kind == "gpt2", "base_model_name_or_path": "../source", "inference_mode": True}
        config.update(self.keys)
        with open(os.path.join(path, "adapter_config.json"), "w", encoding="utf-8") as f:
            json.dump(config, f)

    def logits(self, model):
        with torch.no_grad():
            return model(torch.from_numpy(self.stream[:-1].reshape(-1, self.T))).logits

    def loss(self):
        tokens = torch.from_numpy(self.stream[:-1].reshape(-1, self.T))
        logits = self.model(tokens).logits
        return torch.nn.functional.cross_entropy(logits.reshape(-1, 257), torch.from_numpy(self.stream[1:]))

    def delta(self, name):
        """What the module adds to its weight, as files have it."""
        m = self.adapted[name]
        d = (m.scale * m.B @ m.A).detach()
        return (d.T if isinstance(m.inner, Conv1D) else d).numpy()


def train(run, atom, out, steps, clip, adapter="start"):
    args = ["train", "--model", "source", "--adapter", adapter, "--data", "data", "--output-dir", out, "--dtype", "fp32",
            "--device", "cpu", "--micro-batch-size", run.B, "--gradient-accumulation-steps", run.C, "--sequence-len", run.T,
            "--max-steps", steps, "--learning-rate", run.lr, "--lr-scheduler", "constant", "--warmup-steps", 0,
            "--weight-decay", run.decay, "--adam-epsilon", 1e-4, "--max-grad-norm", clip, "--dropout", 0, "--eval-steps", 0,
            "--seed", run.seed, "--execute", "interpreted", "--json", "--quiet"]
    if run.swap:
        atom.in_least_memory(*args, size=1 << 16)
    else:
        atom(*args)
    return os.path.join(atom.work, out, f"checkpoint-{steps}")


def prepare(run, atom):
    run.base.save_pretrained(os.path.join(atom.work, "source"))
    if run.adapted:
        run.save(os.path.join(atom.work, "start"))
    with open(os.path.join(atom.work, "a.txt"), "w", encoding="ascii") as f:
        f.write("some text for a tokenizer " * 100)
    atom("data", "prepare", "--input", "a.txt", "--tokenizer", "bytes", "--output", "data")
    for name in os.listdir(os.path.join(atom.work, "data")):
        if name.endswith(".bin") or name == "dataset.json":
            os.remove(os.path.join(atom.work, "data", name))
    for split in "train", "val":
        write_shard(os.path.join(atom.work, "data", f"{split}_000000.bin"), run.stream)


def by_peft(run, path, source):
    """PEFT's reading of an adapter's directory, in float64."""
    model = AutoModelForCausalLM.from_pretrained(source, attn_implementation="eager")
    return peft.PeftModel.from_pretrained(model, path).double().eval()


def compare(run, atom):
    prepare(run, atom)
    source = os.path.join(atom.work, "source")
    if peft:
        yield "PEFT reads", "ours", error(by_peft(run, os.path.join(atom.work, "start"), source)(
            torch.from_numpy(run.stream[:-1].reshape(-1, run.T))).logits.detach().numpy(), run.logits(run.model).numpy())
    tensors = dict(run.tensors())
    yield from compare_training(run, atom, run.loss, tensors, "start")
    made = os.path.join(atom.work, "out", f"checkpoint-{STEPS}")
    final = load_file(os.path.join(made, "adapter_model.safetensors"))
    for name, p in tensors.items():
        with torch.no_grad():
            p.copy_(torch.from_numpy(final[name]))
    seen = json.loads(atom("eval", "--model", made, "--data", "data", "--sequence-len", run.T, "--dtype", "fp32", "--json"))
    yield "eval", "loss", error([seen["loss"]], [run.loss().item()])
    atom("export", "--model", made, "--to", "hf", "-o", "merged")
    before = load_file(os.path.join(source, "model.safetensors"))
    if {run.head + ".weight", run.embedding} & set(run.whole):
        before.setdefault(run.head + ".weight", before[run.embedding])
    after = load_file(os.path.join(atom.work, "merged", "model.safetensors"))
    assert set(after) == set(before), (set(after) ^ set(before))
    for name, x in before.items():
        module = name[:-len(".weight")]
        x = run.whole[name].detach().numpy() if name in run.whole else x
        yield "merged", name, error(after[name], x + (run.delta(module) if module in run.adapted else 0))
    if peft:
        theirs = by_peft(run, made, source)
        yield "PEFT reads", "atom's", error(run.logits(theirs).numpy(), run.logits(run.model).numpy())
        merged = theirs.merge_and_unload()
        ours = AutoModelForCausalLM.from_pretrained(os.path.join(atom.work, "merged"), attn_implementation="eager").double()
        yield "PEFT merges", "atom's", error(run.logits(ours).numpy(), run.logits(merged).numpy())


def in_order(run, name, x):
    """As atom has it in its state: of GPT-NeoX all rows of q, all of k, all of v."""
    if "query_key_value" not in name or "lora_A" in name:
        return x
    return x.reshape(run.config.num_attention_heads, 3, -1, *x.shape[1:]).swapaxes(0, 1).reshape(x.shape)


def compare_training(run, atom, loss_of, tensors, adapter):
    """STEPS steps from the adapter, to out/; tensors: what the loss is trained by, under PEFT's names."""
    once = load_file(os.path.join(train(run, atom, "once", 1, 0, adapter), "optimizer.safetensors"))
    loss_of().backward()
    body = BODY.get(run.kind, "model.")
    for name, p in tensors.items():
        inner = name[len("base_model.model."):].removeprefix(body)
        yield "gradient", name, error(once["exp_avg." + inner].astype("f8") / (1 - BETA1), in_order(run, name, p.grad.numpy()))
    made = train(run, atom, "out", STEPS, run.clip, adapter)
    with open(os.path.join(atom.work, "out", "metrics.jsonl"), encoding="utf-8") as f:
        lines = [json.loads(line) for line in f]
    params = list(tensors.values())
    groups = [{"params": [p for p in params if p.ndim > 1], "weight_decay": run.decay},
              {"params": [p for p in params if p.ndim < 2], "weight_decay": 0}]
    optimizer = torch.optim.AdamW(groups, lr=run.lr, betas=(BETA1, 0.95), eps=1e-4)
    for line in lines:
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(params, run.clip or 1e9)
        yield "loss", f"step {line['step']}", error([line["loss"]], [loss.item()])
        if run.clip:
            yield "norm", f"step {line['step']}", error([line["grad_norm"]], [norm.item()])
        optimizer.step()
    final = load_file(os.path.join(made, "adapter_model.safetensors"))
    assert set(final) == set(tensors), sorted(final)
    for name, p in tensors.items():
        yield "adapter", name, error(final[name], p.detach().numpy())


def peft_tensors(model):
    """What PEFT trains, under the names that its files have."""
    for name, p in model.named_parameters():
        if p.requires_grad:
            name = re.sub(r"\.modules_to_save\.default\b|\.default\b", "", name)
            yield name.replace("lora_magnitude_vector.weight", "lora_magnitude_vector"), p


def compare_new_dora(run, atom, source):
    """A new adapter's magnitudes are what PEFT's are."""
    names = {"gpt2": ["c_attn", "mlp.c_proj"], "gpt_neox": NEOX[:2]}.get(run.kind, ["o_proj", "down_proj"])
    config = peft.LoraConfig(r=2, target_modules=names, use_dora=True, fan_in_fan_out=run.kind == "gpt2")
    model = peft.get_peft_model(AutoModelForCausalLM.from_pretrained(source), config)
    atom("train", "--model", "source", "--lora-r", 2, "--use-dora", "true", "--lora-target-modules", ",".join(names), "--data", "data",
         "--output-dir", "new", "--dtype", "fp32", "--device", "cpu", "--micro-batch-size", 1, "--sequence-len", run.T, "--max-steps", 1,
         "--learning-rate", 1e-12, "--eval-steps", 0, "--quiet")
    ours = load_file(os.path.join(atom.work, "new", "checkpoint-1", "adapter_model.safetensors"))
    for name, p in peft_tensors(model):
        if "magnitude" in name:
            yield "adapter", name, error(ours[name], p.detach().numpy())


def compare_dora(run, atom):
    """An adapter that PEFT makes with use_dora."""
    prepare(run, atom)
    keys = {k: v for k, v in run.keys.items() if k != "modules_to_save"}
    yield from compare_peft(run, atom, "DoRA", run.targets, use_dora=True, **keys)
    yield from compare_new_dora(run, atom, os.path.join(atom.work, "source"))


def compare_tied(run, atom, save, head):
    """One that trains a tied embedding or head whole, of which PEFT makes copies; head: with an adapter of the frozen one."""
    prepare(run, atom)
    keys = {k: v for k, v in run.keys.items() if k != "modules_to_save"}
    names = {"gpt2": ["c_attn", "mlp.c_proj"], "gpt_neox": NEOX[:2]}.get(run.kind, ["q_proj", "down_proj"])
    keys.pop("layers_to_transform", None)
    run.lr, run.alpha = 1e-3, min(run.alpha, 8)  # wilder, eight steps make more of fp32's last digits than the limits
    yield from compare_peft(run, atom, "+".join(save), names + [run.head] * head, modules_to_save=save, **keys)
    with open(os.path.join(atom.work, "merged-peft", "config.json"), encoding="utf-8") as f:
        assert json.load(f)["tie_word_embeddings"] is False
    merged = load_file(os.path.join(atom.work, "merged-peft", "model.safetensors"))
    assert not np.array_equal(merged[run.head + ".weight"], merged[run.embedding])


def compare_peft(run, atom, what, targets, **keys):
    """An adapter that PEFT makes: what atom says of it, trains and merges, is what PEFT does."""
    source, start = (os.path.join(atom.work, x) for x in ("source", "peft"))
    torch.manual_seed(run.seed)
    config = peft.LoraConfig(r=run.rank, lora_alpha=run.alpha, target_modules=targets, use_rslora=run.rslora,
                             fan_in_fan_out=run.kind == "gpt2", task_type="CAUSAL_LM", **keys)
    model = peft.get_peft_model(AutoModelForCausalLM.from_pretrained(source, attn_implementation="eager"), config)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "lora_B" in name:
                p.normal_(0, 0.1)
            if "lora_magnitude" in name:
                p.mul_(torch.empty_like(p).uniform_(0.8, 1.3))
            if "modules_to_save" in name:
                p.add_(torch.empty_like(p).normal_(0, 0.01))
    model.save_pretrained(start, save_embedding_layers=False)  # what it does not train is in the model
    model = model.double().eval()
    tokens = torch.from_numpy(run.stream[:-1].reshape(-1, run.T))
    with torch.no_grad():
        theirs = model(tokens).logits
    loss = torch.nn.functional.cross_entropy(theirs.reshape(-1, 257), torch.from_numpy(run.stream[1:])).item()
    seen = json.loads(atom("eval", "--model", "source", "--adapter", "peft", "--data", "data", "--sequence-len", run.T,
                           "--dtype", "fp32", "--json"))
    yield "eval", what, error([seen["loss"]], [loss])
    atom("export", "--model", "source", "--adapter", "peft", "--to", "hf", "-o", "merged-peft")
    # Not beside what PEFT saves of its merged model: that keeps tie_word_embeddings, and reading it ties a copy again.
    ours = AutoModelForCausalLM.from_pretrained(os.path.join(atom.work, "merged-peft"), attn_implementation="eager").double()
    yield "PEFT merges", what, error(run.logits(ours).numpy(), theirs.numpy())
    loss_of = lambda: torch.nn.functional.cross_entropy(model(tokens).logits.reshape(-1, 257), torch.from_numpy(run.stream[1:]))
    yield from compare_training(run, atom, loss_of, dict(peft_tensors(model)), "peft")
    made = os.path.join(atom.work, "out", f"checkpoint-{STEPS}")
    again = by_peft(run, made, source)
    trained = run.logits(model).numpy()
    yield "PEFT reads", f"atom's {what}", error(run.logits(again).numpy(), trained)
    yield "PEFT merges", f"{what}, unloaded", error(run.logits(again.merge_and_unload()).numpy(), trained)


def tied_cases():
    """(name, pairs as compare_peft has them): three families, the embedding, the head, both."""
    for n, (kind, embedding, own) in enumerate((("gpt2", "wte", "lm_head"), ("llama", "embed_tokens", "lm_head"),
                                               ("gpt_neox", "embed_in", "embed_out"))):
        for k, (save, head) in enumerate((([embedding], 0), ([own], 0), ([embedding, own], 0), ([embedding], 1))):
            yield 100 + 10 * n + k, kind, save, head


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("atom")
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--canary", action="store_true")
    parser.add_argument("--tied", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.tied and not peft:
        print("skipped: PEFT is not installed")
        return 77
    worst, failed = {}, 0
    cases = list(tied_cases()) if args.tied else [(s, None) for s in range(args.first, args.first + args.seeds)]
    for seed, kind, *how in cases:
        run = Run(seed, args.canary, kind)
        with tempfile.TemporaryDirectory() as work, tempfile.TemporaryDirectory() as other:
            pairs = compare_tied(run, Atom(args.atom, other), *how) if kind else compare(run, Atom(args.atom, work))
            if peft and not kind and not args.canary:
                pairs = itertools.chain(pairs, compare_dora(run, Atom(args.atom, other)))
            for what, name, e in pairs:
                if not e <= worst.get(what, (-1,))[0]:
                    worst[what] = (e, f"{name}, seed {seed}")
                if not e <= LIMITS[what]:
                    failed += 1
                    if not args.canary:
                        print(f"FAIL {'--tied, ' if kind else ''}--first {seed} --seeds 1: {what} of {name} is off by {e:.3g}, more than {LIMITS[what]:.3g}")
    for what, (e, where) in worst.items():
        print(f"{what:13s} {e:.2e} of {LIMITS[what]:.0e}  ({where})")
    print(f"LoRA: {len(cases)} models, {failed} failures; PEFT {peft.__version__ if peft else 'is not installed: not compared'}")
    return (failed == 0) if args.canary else failed != 0


if __name__ == "__main__":
    sys.exit(main())
