#!/usr/bin/env python3
"""atom's Llama and its kin against PyTorch in float64: gpt2_oracle.py with other models.

  llama_oracle.py ORACLE DTYPE BACKEND [--first S] [--seeds N] [--canary]     see gpt2_oracle.py

Seed s is of family s % len(FAMILIES). Odd sizes, fewer key heads than heads, heads whose width is not C/H, tied and
untied, biases on and off where the family knows them, the rotary embeddings, config.json as
transformers 4 and as transformers 5 write it, one file or shards.
Qwen3 came to transformers after the last release that our PyTorch can run, so here it is Llama whose
projections of q and k end in an RMSNorm per head: the definition, in four lines. Likewise SmolLM3 is Llama, some
of whose layers turn q and k by no angle, Gemma 3 is Gemma 2 without soft caps, with norms of q and k and two kinds of
layers, and OLMo 3 is OLMo 2 with two kinds of layers.
"""
import json
import os
import random
import re
import sys

import gpt2_oracle
import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import (Gemma2Config, Gemma2ForCausalLM, GPTNeoXConfig, GPTNeoXForCausalLM, GraniteConfig, GraniteForCausalLM, LlamaConfig, LlamaForCausalLM, MistralConfig,
                          MistralForCausalLM, Olmo2Config, Olmo2ForCausalLM, Phi3Config, Phi3ForCausalLM,
                          Qwen2Config, Qwen2ForCausalLM)
from transformers.models.gemma2.modeling_gemma2 import Gemma2RMSNorm
from transformers.models.granite.modeling_granite import GraniteRMSNorm
from transformers.models.llama.modeling_llama import LlamaRMSNorm
from transformers.models.mistral.modeling_mistral import MistralRMSNorm
from transformers.models.olmo2.modeling_olmo2 import Olmo2RMSNorm
from transformers.models.phi3.modeling_phi3 import Phi3RMSNorm
from transformers.models.qwen2.modeling_qwen2 import Qwen2RMSNorm

FAMILIES = ["llama", "mistral", "qwen2", "qwen3", "smollm3", "granite", "phi3", "olmo2", "gemma3_text", "gemma2", "olmo3",
            "gpt_neox"]
ABSENT = {"qwen3": "Qwen3ForCausalLM", "smollm3": "SmolLM3ForCausalLM", "gemma3_text": "Gemma3ForCausalLM",  # from our transformers
          "olmo3": "Olmo3ForCausalLM"}
HEAD_NORMED = ("qwen3", "gemma3_text")  # made here of another class


def exact_norm(self, x):
    """Theirs falls to float32 whatever the model's dtype."""
    return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)


for norm in (GraniteRMSNorm, LlamaRMSNorm, MistralRMSNorm, Olmo2RMSNorm, Phi3RMSNorm, Qwen2RMSNorm):
    norm.forward = exact_norm


def exact_lifted_norm(self, x):
    return (1 + self.weight) * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)


Gemma2RMSNorm.forward = exact_lifted_norm
Olmo2Config._rope_scaling_validation = lambda self: None  # it knows two types only, its model knows all


class HeadNormed(torch.nn.Module):
    def __init__(self, linear, dim, eps, norm=LlamaRMSNorm):
        super().__init__()
        self.linear, self.norm, self.dim = linear, norm(dim, eps=eps), dim

    def forward(self, x):
        y = self.linear(x)
        return self.norm(y.view(*y.shape[:-1], -1, self.dim)).view(y.shape)


def qwen3(config):
    model = LlamaForCausalLM(config)
    for layer in model.model.layers:
        a = layer.self_attn
        a.q_proj = HeadNormed(a.q_proj, a.head_dim, config.rms_norm_eps)
        a.k_proj = HeadNormed(a.k_proj, a.head_dim, config.rms_norm_eps)
    return model


def two_kinds(model, local_theta, window, full_every):
    """All but every full_every-th layer have a window, and a rope of this base in which nothing is scaled."""
    model.config.use_cache = model.generation_config.use_cache = False  # some classes' caches know other windows
    dim = model.model.layers[0].self_attn.head_dim
    for i, layer in enumerate(model.model.layers):
        def forward(*args, real=layer.self_attn.forward, full=bool(full_every) and (i + 1) % full_every == 0, **kwargs):
            mask = kwargs["attention_mask"]
            cos, sin = kwargs["position_embeddings"]
            T = cos.shape[1]
            if not full:
                f = local_theta ** (-torch.arange(0, dim, 2).double() / dim)
                turn = torch.outer(torch.arange(T).double(), torch.cat([f, f]))[None]
                cos, sin = turn.cos().to(cos.dtype), turn.sin().to(cos.dtype)
            if not full and window is not None:
                far = torch.ones(T, mask.shape[-1], dtype=torch.bool).tril(-window)
                mask = mask.masked_fill(far, torch.finfo(mask.dtype).min)
            return real(*args, **dict(kwargs, attention_mask=mask, position_embeddings=(cos, sin)))
        layer.self_attn.forward = forward
    return model


def gemma3(config, local_theta, window, full_every):
    """Gemma 2 with norms of q and k in the place of soft caps, and layers of two kinds."""
    model = Gemma2ForCausalLM(config)
    model.generation_config.cache_implementation = None
    for layer in model.model.layers:
        a = layer.self_attn
        a.q_proj = HeadNormed(a.q_proj, config.head_dim, config.rms_norm_eps, Gemma2RMSNorm)
        a.k_proj = HeadNormed(a.k_proj, config.head_dim, config.rms_norm_eps, Gemma2RMSNorm)
        layer.is_sliding = False
    return two_kinds(model, local_theta, window, full_every)


def their_name(name):
    """Ours of qwen3() and gemma3() -> as their files have it."""
    for p in "qk":
        name = name.replace(f"{p}_proj.linear.", f"{p}_proj.").replace(f"{p}_proj.norm.", f"{p}_norm.")
    return name


def rope(r):
    kind = r.choice(["default", "default", "linear", "llama3"])
    if kind == "default":
        return None
    if kind == "linear":
        return {"rope_type": "linear", "factor": r.choice([2.0, 3.5])}
    # limits so low that sequences of a few tokens have frequencies on all sides of them
    return {"rope_type": "llama3", "factor": r.choice([8.0, 32.0]), "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": r.choice([16, 64])}


class Job(gpt2_oracle.Job):
    scaled = True  # YaRN, LongRoPE and parts of heads are drawn
    portable = False  # only what GGUF can say

    def __init__(self, seed, dtype):
        r = random.Random(seed)
        torch.manual_seed(seed)
        self.dtype, self.seed, self.family = dtype, seed, FAMILIES[seed % len(FAMILIES)]
        kv, group, dim = r.randint(1, 3), r.randint(1, 3), 2 * r.randint(2, 11)
        heads = kv * group
        self.T = r.randint(2, 33)
        own = self.family in ("qwen3", "gemma2", "gemma3_text") or r.random() < 0.3  # head_dim of its own
        numbers = dict(
            vocab_size=r.randint(17, 131), max_position_embeddings=self.T + r.randint(0, 7),
            hidden_size=r.randint(9, 70) if own else heads * dim, num_hidden_layers=r.randint(1, 3),
            num_attention_heads=heads, num_key_value_heads=kv, intermediate_size=r.randint(11, 97),
            initializer_range=r.choice([0.02, 0.08, 0.15] if dtype == "fp32" else [0.02, 0.04]),
            rms_norm_eps=r.choice([1e-5, 1e-6, 1e-3]), rope_theta=r.choice([1e4, 5e5]),
            tie_word_embeddings=r.random() < 0.5, bos_token_id=0, eos_token_id=0, rope_scaling=rope(r),
            attn_implementation="eager")
        if own:
            numbers["head_dim"] = dim
        self.draw_yarn(numbers)
        if self.family == "llama":
            self.config = LlamaConfig(attention_bias=r.random() < 0.5, mlp_bias=r.random() < 0.5, **numbers)
        elif self.family == "mistral":
            self.config = MistralConfig(sliding_window=r.choice([None, self.T, max(2, self.T // 2), max(2, self.T // 3)]), **numbers)
        elif self.family == "qwen2":
            self.config = Qwen2Config(**numbers)
        elif self.family == "smollm3":
            # without attention_bias: where nothing is turned a key's bias has no gradient but rounding
            self.config = LlamaConfig(mlp_bias=r.random() < 0.3, **numbers)
        elif self.family == "phi3":
            # Both classes take scaled rotary embeddings only as nobody writes them today, and neither trains
            # the row of a padding token.
            numbers.update(rope_scaling=None, pad_token_id=None)
            numbers.update(self.draw_long(dim, own, numbers["max_position_embeddings"]))
            self.config = Phi3Config(sliding_window=r.choice([None, self.T, max(2, self.T // 2)]), **numbers)
        elif self.family == "olmo2":
            numbers.update(num_key_value_heads=heads, rope_scaling=None, pad_token_id=None)
            biases = r.random() < 0.3 and not self.portable
            if self.portable:  # llama.cpp has no biases here, and no tied head
                numbers["tie_word_embeddings"] = False
            self.config = Olmo2Config(attention_bias=biases, **numbers)
        elif self.family == "olmo3":
            self.config = self.olmo3_config(dict(numbers, num_key_value_heads=heads, pad_token_id=None))
        elif self.family in ("gemma2", "gemma3_text"):
            self.config = self.gemma_config(Gemma2Config, dict(numbers, pad_token_id=None), dim)
        elif self.family == "gpt_neox":
            self.config = self.neox_config(dict(numbers, hidden_size=heads * dim), dim)
        elif self.family == "granite":
            self.config = GraniteConfig(
                attention_bias=r.random() < 0.3, mlp_bias=r.random() < 0.3, embedding_multiplier=r.choice([1.0, 3.0, 12.0]),
                residual_multiplier=r.choice([0.22, 0.5, 1.0]), attention_multiplier=r.choice([1 / dim, 0.3]),
                logits_scaling=r.choice([1.0, 4.0, 0.7]), **numbers)
        else:
            self.config = LlamaConfig(**numbers)
        self.config._attn_implementation = "eager"
        self.draw_window()
        self.nope_every = self.draw_nope(random.Random(seed * 5 + 1)) if self.family == "smollm3" else 0
        self.v5, self.sharded = r.random() < 0.5, r.random() < 0.5
        self.B, self.C = r.randint(1, 3), r.randint(1, 3)
        self.lr = r.choice([1e-3, 3e-3] if dtype == "fp32" else [1e-4, 1e-3])
        self.decay, self.clip = r.choice([0.0, 0.1]), r.choice([0.0, 0.1, 1.0])
        self.plain = r.choice([0, 0, 1])
        self.model = self.build()
        with torch.no_grad():  # biases start at 0 and norms at 1: those would hide mistakes
            for p in self.model.parameters():
                if p.dim() == 1:
                    p.add_(0.1 * torch.randn_like(p))
        self.draw_batches()

    def gemma_config(self, kind, numbers, dim):
        r = random.Random(self.seed * 17 + 4)
        self.full_every, self.local_theta = r.choice([0, 1, 2, 2, 3]), r.choice([1e4, 500.0])
        self.sliding = r.choice([None, self.T, max(2, self.T // 2), max(2, self.T // 3)])
        if self.portable:  # llama.cpp knows these numbers by heart
            self.full_every, self.local_theta = 6, 1e4
            numbers.update(tie_word_embeddings=True, num_hidden_layers=r.choice([2, 7]))
            numbers["rope_scaling"] = r.choice([None, {"rope_type": "linear", "factor": 8.0}])
        if self.family == "gemma2":
            self.full_every, numbers["rope_scaling"] = 2, None  # its class turns by nothing else
        caps = [[0.7, 3.0], [1.5, 4.0]] if self.family == "gemma2" else [[None], [None, None, None]]
        if self.family == "gemma2" and not self.portable:
            caps = [c + [None] for c in caps]
        return kind(query_pre_attn_scalar=dim if self.portable else r.choice([dim, 12, 40]),
                    attn_logit_softcapping=r.choice(caps[0]), final_logit_softcapping=r.choice(caps[1]),
                    sliding_window=self.sliding or 4096, **numbers)

    def neox_config(self, numbers, dim):
        r = random.Random(self.seed * 23 + 6)
        for key in ("num_key_value_heads", "head_dim"):
            numbers.pop(key, None)
        biases = self.portable or r.random() < 0.7
        if self.portable:  # llama.cpp has no tied head here, and no rope of Llama 3
            numbers["tie_word_embeddings"] = False
            if (numbers["rope_scaling"] or {}).get("rope_type") == "llama3":
                numbers["rope_scaling"] = None
        width = 2 * r.randint(1, dim // 2)
        return GPTNeoXConfig(
            layer_norm_eps=numbers.pop("rms_norm_eps"), rotary_emb_base=numbers.pop("rope_theta"),
            rotary_pct=(width + 0.01) / dim if width < dim else 1.0, attention_bias=biases,
            hidden_act=r.choice(["gelu", "gelu", "gelu_new", "gelu_fast"]), use_parallel_residual=r.random() < 0.6, **numbers)

    def olmo3_config(self, numbers):
        r = random.Random(self.seed * 19 + 5)
        self.full_every, self.local_theta = r.choice([0, 1, 2, 3, 4]), numbers["rope_theta"]
        self.sliding = r.choice([None, self.T, max(2, self.T // 2), max(2, self.T // 3)])
        biases = not self.portable and r.random() < 0.3
        if self.portable:  # llama.cpp knows this number by heart, OLMo 3 by its window, and no rope of Llama 3
            self.full_every, numbers["num_hidden_layers"] = 4, r.choice([2, 5])
            numbers["tie_word_embeddings"] = False
            self.sliding = self.sliding or self.T
            if (numbers["rope_scaling"] or {}).get("rope_type") == "llama3":
                numbers["rope_scaling"] = None
        return Olmo2Config(attention_bias=biases, **numbers)

    def draw_yarn(self, numbers):
        """Without a length of its own, which transformers has read in three ways: max_position_embeddings counts."""
        r = random.Random(self.seed * 11 + 3)
        if self.scaled and r.random() < 0.4:
            numbers["rope_scaling"] = {"rope_type": "yarn", "factor": r.choice([2.0, 4.0, 7.5])}
            if r.random() < 0.7:  # else all channels of so few places turn slowly
                numbers["rope_scaling"].update(beta_fast=r.choice([3.0, 2.5]), beta_slow=r.choice([0.5, 1.0]))
            if r.random() < 0.3:
                numbers["rope_scaling"]["attention_factor"] = r.choice([1.0, 1.3])

    def draw_long(self, dim, own, positions):
        """Phi-3's: a part of every head, LongRoPE at lengths on both sides of its limit."""
        r = random.Random(self.seed * 13 + 2)
        made, width = {}, dim
        if self.scaled and r.random() < 0.6:
            width = 2 * r.randint(1, dim // 2 - 1)
            made["partial_rotary_factor"] = (width + 0.01) / dim
        if self.scaled and not own and r.random() < 0.7:  # its class counts the factors by hidden_size
            made["original_max_position_embeddings"] = r.choice([r.randint(2, self.T), r.randint(self.T, positions)])
            made["rope_scaling"] = {"type": "longrope", **{
                key: [r.uniform(1, most) for _ in range(width // 2)]
                for key, most in (("short_factor", 1.5), ("long_factor", 9))}}
        return made

    def draw_window(self):
        """Qwen's later layers may have a window. Some versions of transformers give it to all layers or to none
        in eager attention: the file says it, the model here gets its masks from slide()."""
        r = random.Random(self.seed * 7 + 1)
        self.window = self.window_layers = None
        if self.family in ("qwen2", "qwen3"):
            self.config.sliding_window = None
            if r.random() < 0.6:
                self.window, self.window_layers = r.randint(2, self.T), r.randint(0, self.config.num_hidden_layers)

    def draw_nope(self, r):
        return r.choice([0, 1, 2, 3, 4])

    def no_rope(self, model):
        for i, layer in enumerate(model.model.layers if self.nope_every else ()):
            if (i + 1) % self.nope_every == 0:
                def forward(*args, real=layer.self_attn.forward, **kwargs):
                    cos, sin = kwargs["position_embeddings"]
                    return real(*args, **dict(kwargs, position_embeddings=(torch.ones_like(cos), torch.zeros_like(sin))))
                layer.self_attn.forward = forward
        return model

    def slide(self, model):
        if self.window is None:
            return model
        model.config.sliding_window = None
        for layer in model.model.layers[self.window_layers:]:
            def forward(*args, real=layer.self_attn.forward, **kwargs):
                mask = kwargs["attention_mask"]
                T = mask.shape[-1]
                far = torch.ones(T, T, dtype=torch.bool).tril(-self.window)[:mask.shape[-2]]
                return real(*args, **dict(kwargs, attention_mask=mask.masked_fill(far, torch.finfo(mask.dtype).min)))
            layer.self_attn.forward = forward
        return model

    def build(self):
        if self.family == "qwen3":
            return self.slide(qwen3(self.config))
        if self.family == "gemma3_text":
            return gemma3(self.config, self.local_theta, self.sliding, self.full_every)
        if self.family == "olmo3":
            return two_kinds(self.build_theirs(), self.local_theta, self.sliding, self.full_every)
        return self.no_rope(self.slide(self.build_theirs()))

    def build_theirs(self):
        model = {"llama": LlamaForCausalLM, "mistral": MistralForCausalLM, "qwen2": Qwen2ForCausalLM,
                 "smollm3": LlamaForCausalLM, "granite": GraniteForCausalLM, "phi3": Phi3ForCausalLM,
                 "olmo2": Olmo2ForCausalLM, "olmo3": Olmo2ForCausalLM, "gemma2": Gemma2ForCausalLM,
                 "gpt_neox": GPTNeoXForCausalLM}
        made = model[self.family](self.config)
        if self.family == "gemma2":  # its cache is for other lengths
            made.config.use_cache = made.generation_config.use_cache = False
            made.generation_config.cache_implementation = None
        return made

    def load(self, path):
        with open(os.path.join(path, "config.json")) as f:
            written = json.load(f)
        assert written["model_type"] == self.family, written
        if self.family not in HEAD_NORMED:
            model = type(self.model).from_pretrained(path, attn_implementation="eager", pad_token_id=None,
                                                          use_cache=False)
            keys = ("num_key_value_heads", "rms_norm_eps", "rope_theta")
            if self.family == "gpt_neox":
                keys = ("layer_norm_eps", "rotary_emb_base", "use_parallel_residual", "attention_bias")
                assert (model.config.hidden_act == "gelu") == (self.config.hidden_act == "gelu")
                dim = self.config.hidden_size // self.config.num_attention_heads
                assert int(model.config.rotary_pct * dim) == int(self.config.rotary_pct * dim)
            for key in ("hidden_size", "tie_word_embeddings") + keys:
                assert getattr(model.config, key) == getattr(self.config, key), key
            if self.family == "olmo3":
                return two_kinds(model, self.local_theta, self.sliding, self.full_every)
            return self.no_rope(self.slide(model))
        model, tensors = self.build(), load_file(os.path.join(path, "model.safetensors"))
        missing, extra = model.load_state_dict(
            {name: tensors.get(their_name(name), tensors["model.embed_tokens.weight"])
             for name in model.state_dict()}, strict=False)
        assert not missing and not extra, (missing, extra)
        return model

    def gather(self, tensors):
        """In bf16 q, k and v count as one, as in GPT-2's c_attn: those of k alone are small sums of large
        rounded terms."""
        if self.dtype == "fp32":
            return tensors
        parts = {}
        for name in sorted(tensors):
            one = re.sub(r"\.[qkv]_proj\.(linear\.)?(weight|bias|norm\.weight)$", r".qkv_proj.\2", name)
            parts.setdefault(one, []).append(tensors[name].reshape(-1))
        return {name: np.concatenate(ps) for name, ps in parts.items()}

    def save(self, path):
        os.makedirs(path)
        if self.family in HEAD_NORMED:
            self.config.save_pretrained(path)
            tensors = {their_name(n): p.detach().float().clone() for n, p in self.model.named_parameters()}
            save_file(tensors, os.path.join(path, "model.safetensors"), {"format": "pt"})
        else:
            self.model.save_pretrained(path, max_shard_size="9KB" if self.sharded else "5GB")
        self.rewrite(os.path.join(path, "config.json"))

    def rewrite(self, path):
        with open(path) as f:
            config = json.load(f)
        if self.family in ABSENT:
            config.update(model_type=self.family, architectures=[ABSENT[self.family]])
        if self.family == "smollm3":
            config.pop("no_rope_layer_interval", None)
            if self.nope_every and self.v5:
                config["no_rope_layer_interval"] = self.nope_every
            else:
                config["no_rope_layers"] = [int(not self.nope_every or (i + 1) % self.nope_every != 0)
                                            for i in range(config["num_hidden_layers"])]
        if self.family in ("qwen2", "qwen3"):
            config.update(use_sliding_window=self.window is not None, sliding_window=self.window,
                          max_window_layers=self.window_layers or 0)
        if self.family == "gemma3_text":
            self.rewrite_gemma(config)
        elif self.family == "olmo3":
            self.rewrite_kinds(config)
        elif self.family == "gemma2":
            config["sliding_window"] = self.sliding or 4096
            if self.v5:
                config["rope_parameters"] = {"rope_theta": config.pop("rope_theta"), "rope_type": "default"}
                config["layer_types"] = [["sliding_attention", "full_attention"][i % 2]
                                         for i in range(config["num_hidden_layers"])]
        elif self.family == "gpt_neox":
            self.rewrite_neox(config)
        elif self.v5:  # as transformers 5 says the same
            scaling = config.pop("rope_scaling") or {}
            config["rope_parameters"] = {"rope_theta": config.pop("rope_theta"),
                                         "rope_type": scaling.pop("type", "default"), **scaling}
            if config.get("partial_rotary_factor", 1) != 1:
                config["rope_parameters"]["partial_rotary_factor"] = config.pop("partial_rotary_factor")
            if self.window is not None:
                full = self.window_layers
                config["layer_types"] = ["full_attention"] * full + ["sliding_attention"] * (
                    config["num_hidden_layers"] - full)
            config["dtype"] = config.pop("torch_dtype", "float32")
        with open(path, "w") as f:
            json.dump(config, f)

    def rewrite_neox(self, config):
        """4 writes its own words for the rotary embedding beside the others, older versions only these, 5 only the others'."""
        base, part = (config.pop(key) for key in ("rope_theta", "partial_rotary_factor"))
        if self.v5:
            del config["rotary_pct"], config["rotary_emb_base"]
            scaling = config.pop("rope_scaling") or {"rope_type": "default"}
            config["rope_parameters"] = {"rope_theta": base, "partial_rotary_factor": part, **scaling}
        elif self.sharded:
            config.update(rope_theta=base, partial_rotary_factor=part)

    def rewrite_gemma(self, config):
        for key in ("attn_logit_softcapping", "final_logit_softcapping", "cache_implementation"):
            config.pop(key)
        if self.v5:
            self.rewrite_kinds(config)
        else:
            config.update(rope_local_base_freq=self.local_theta, sliding_window=self.sliding,
                          sliding_window_pattern=self.full_every or config["num_hidden_layers"] + 1)

    def rewrite_kinds(self, config):
        config["sliding_window"] = self.sliding
        config["layer_types"] = ["full_attention" if self.full_every and (i + 1) % self.full_every == 0
                                 else "sliding_attention" for i in range(config["num_hidden_layers"])]
        if self.v5:
            scaling = config.pop("rope_scaling") or {}
            config["rope_parameters"] = {
                "full_attention": {"rope_theta": config.pop("rope_theta"), "rope_type": "default", **scaling},
                "sliding_attention": {"rope_theta": self.local_theta, "rope_type": "default"}}


def main():
    theirs = gpt2_oracle.load_file

    def load(path):
        tensors = theirs(path)
        assert load.family == "phi3" or not any("qkv_proj" in n or "gate_up" in n for n in tensors), sorted(tensors)
        names = {}
        for name in tensors:
            ours = name
            if load.family in HEAD_NORMED:
                for p in "qk":
                    ours = ours.replace(f"{p}_proj.", f"{p}_proj.linear.").replace(f"{p}_norm.", f"{p}_proj.norm.")
            names[ours] = tensors[name]
        return names

    class Loading(Job):
        def __init__(self, seed, dtype):
            super().__init__(seed, dtype)
            load.family = self.family

    gpt2_oracle.load_file = load
    return gpt2_oracle.main(Loading)


if __name__ == "__main__":
    sys.exit(main())
