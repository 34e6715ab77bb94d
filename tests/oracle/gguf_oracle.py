#!/usr/bin/env python3
"""atom's GGUF files against llama.cpp's own Python package, `gguf`.

  gguf_oracle.py EXPORT [--first S] [--seeds N]     EXPORT: the program of export_gguf.c

Random small models of every family with a tokenizer: the file must be one that gguf's reader takes; its
tensors must have the names that gguf's tables give theirs, and hold what gguf's own quantisation makes of
them, bit for bit (rows of q and k in llama.cpp's order, as its converter turns them); metadata must be what
the model and the tokenizer say, ids of special tokens and templates what gguf's SpecialVocab reads. Exit 77: a library is not installed.
"""
import argparse
import json
import math
import os
import random
import subprocess
import sys
import tempfile

import family_oracle
import llama_oracle
from gpt2_oracle import GPT2LMHeadModel, np, torch
from transformers import AutoTokenizer, GPT2Config

try:
    import gguf
    from gguf.quants import quantize
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

Q = gguf.GGMLQuantizationType
ARCH = {"llama": "LLAMA", "mistral": "LLAMA", "qwen2": "QWEN2", "qwen3": "QWEN3", "gpt2": "GPT2", "smollm3": "SMOLLM3",
        "granite": "GRANITE", "phi3": "PHI3", "olmo2": "OLMO2", "olmo3": "OLMO2", "gemma3_text": "GEMMA3",
        "gemma2": "GEMMA2", "gpt_neox": "GPTNEOX"}
TURNED = ("LLAMA", "SMOLLM3", "GRANITE")  # classes of llama.cpp's converter that are its LlamaModel
LIFTED = ("gemma2", "gemma3_text")
MULTIPLIERS = {"embedding_scale": "embedding_multiplier", "residual_scale": "residual_multiplier",
               "attention.scale": "attention_multiplier", "logit_scale": "logits_scaling"}


class Gpt2:
    family = "gpt2"

    def __init__(self, seed):
        torch.manual_seed(seed)
        self.config = GPT2Config(vocab_size=320, n_positions=40, n_embd=64, n_layer=2, n_head=4, n_inner=96,
                                 bos_token_id=0, eos_token_id=0, tie_word_embeddings=seed % 4 != 0)
        self.model = GPT2LMHeadModel(self.config)

    def save(self, path):
        self.model.save_pretrained(path)


class Portable:
    """A window is all layers', since GGUF cannot say it of some, and Gemmas are as llama.cpp knows them by heart."""
    portable = True

    def draw_window(self):
        super().draw_window()
        self.window_layers = self.window_layers and 0


class Run(Portable, family_oracle.Run):
    """Widths of a multiple of 32 on even seeds, so that Q8_0 has both kinds of matrices."""

    def build(self):
        if self.seed % 2 == 0:
            self.config.hidden_size, self.config.intermediate_size = 64, 96
            if self.family == "gpt_neox":
                self.config.num_attention_heads = 4
                self.config.rotary_pct = self.config.partial_rotary_factor = random.Random(self.seed).choice([0.25, 0.5, 1.0])
                return super().build()
            if not getattr(self.config, "head_dim", None):
                self.config.head_dim = 8
        return super().build()


def tensors_of(run):
    """Names and numbers as the files of Hugging Face have them."""
    for name, p in run.model.named_parameters():
        x = p.detach().float().numpy()
        if run.family in llama_oracle.HEAD_NORMED:
            name = llama_oracle.their_name(name)
        if run.family == "gpt2" and any(part in name for part in ("c_attn", "c_proj", "c_fc")):
            x = x.T
        if run.family in LIFTED and name.endswith("norm.weight"):  # as llama.cpp's converter does
            x = x + np.float32(1)
        if "query_key_value" in name:  # GPTNeoXModel.modify_tensors
            x = x.reshape(run.config.num_attention_heads, 3, -1, *x.shape[1:]).swapaxes(0, 1).reshape(x.shape)
        yield name, np.ascontiguousarray(x)


def turned(run, name, x):
    """llama.cpp's converter: LlamaModel.permute."""
    if ARCH[run.family] not in TURNED or not ("q_proj" in name or "k_proj" in name):
        return x
    heads = run.config.num_attention_heads if "q_proj" in name else run.config.num_key_value_heads
    return x.reshape(heads, 2, x.shape[0] // heads // 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def type_of(name, x, wanted):
    if x.ndim == 1 or "wpe" in name:
        return Q.F32
    return Q.F16 if wanted == Q.Q8_0 and x.shape[1] % 32 else wanted


def as_bytes(x, kind):
    return x.tobytes() if kind == Q.F32 else quantize(x, kind).tobytes()


def check_tensors(run, reader, wanted):
    arch = gguf.MODEL_ARCH[ARCH[run.family]]
    layers = getattr(run.config, "num_hidden_layers", None) or run.config.n_layer
    names = gguf.get_tensor_name_map(arch, layers)
    written = {t.name: t for t in reader.tensors}
    for name, x in tensors_of(run):
        theirs = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert theirs, name
        t, kind = written.pop(theirs), type_of(name, x, wanted)
        assert t.tensor_type == kind and list(t.shape) == list(x.shape[::-1]), (name, t.tensor_type, t.shape)
        assert t.data.tobytes() == as_bytes(turned(run, name, x), kind), f"{name} as {kind.name}"
    factors = written.pop("rope_freqs.weight", None)
    scaling = getattr(run.config, "rope_scaling", None) or {}
    assert (factors is not None) == (scaling.get("rope_type") == "llama3"), scaling
    for which in "long", "short":
        factors_of = written.pop(f"rope_factors_{which}.weight", None)
        assert (factors_of is not None) == (scaling.get("type") == "longrope"), scaling
        if factors_of is not None:
            assert np.array_equal(factors_of.data, np.float32(scaling[which + "_factor"])), which
    assert not written, sorted(written)
    if factors is not None:
        check_factors(run, scaling, factors.data)


def check_factors(run, scaling, factors):
    """As llama.cpp's converter makes them."""
    dim = run.model.model.layers[0].self_attn.head_dim
    freqs = 1.0 / (run.config.rope_theta ** (np.arange(0, dim, 2) / dim))
    old, low, high = (scaling[k] for k in ("original_max_position_embeddings", "low_freq_factor", "high_freq_factor"))
    for f, factor in zip(freqs, factors):
        length = 2 * np.pi / f
        smooth = (old / length - low) / (high - low)
        want = 1 if length < old / high else scaling["factor"] if length > old / low else 1 / (
            (1 - smooth) / scaling["factor"] + smooth)
        assert abs(factor / want - 1) < 1e-6, (f, factor, want)


def check_scaling(run, keys):
    """The rotary embedding's keys, without those of its base: what llama.cpp multiplies by is gain(keys)."""
    c, scaling = run.config, run.config.rope_scaling or {}
    kind, want = scaling.get("rope_type", scaling.get("type")), {}
    if kind in ("linear", "yarn"):
        want = {"scaling.type": kind, "scaling.factor": scaling["factor"]}
    if kind == "yarn":
        want["scaling.original_context_length"] = c.max_position_embeddings
        usual = 0.1 * math.log(scaling["factor"]) + 1
        want["scaling.attn_factor"] = scaling.get("attention_factor", usual) / usual
        want["scaling.yarn_beta_fast"], want["scaling.yarn_beta_slow"] = scaling.get("beta_fast", 32), scaling.get("beta_slow", 1)
    if kind == "longrope":
        original = c.original_max_position_embeddings
        ratio = c.max_position_embeddings / original
        want["scaling.original_context_length"] = original
        want["scaling.attn_factor"] = math.sqrt(1 + math.log(ratio) / math.log(original)) if ratio > 1 else 1
    silent = {"scaling.attn_factor": 1, "scaling.yarn_beta_fast": 32, "scaling.yarn_beta_slow": 1}
    assert {key for key in keys if key.startswith("scaling.")} <= set(want), (keys, scaling)
    for key, number in want.items():
        has = keys.get(key, silent.get(key))
        assert has == number if isinstance(number, str) else abs(has / number - 1) < 1e-6, (key, has, number)
    dim = getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads
    width = int(dim * (getattr(c, "partial_rotary_factor", None) or 1))
    assert keys.get("dimension_count", dim) == width, (keys, dim, width)


def check_metadata(run, reader, source, wanted):
    def value(key):
        return reader.fields[key].contents()
    arch = ARCH[run.family].lower()
    c, tokenizer = run.config, AutoTokenizer.from_pretrained(source)
    assert value("general.architecture") == arch
    assert value("general.file_type") == {Q.F32: 0, Q.F16: 1, Q.Q8_0: 7, Q.BF16: 32}[wanted]
    numbers = {"embedding_length": c.hidden_size, "block_count": c.num_hidden_layers,
               "attention.head_count": c.num_attention_heads, "context_length": c.max_position_embeddings}
    if run.family == "gpt_neox":
        numbers["rope.dimension_count"] = int(c.hidden_size // c.num_attention_heads * c.rotary_pct)
        assert abs(value(f"{arch}.attention.layer_norm_epsilon") / c.layer_norm_eps - 1) < 1e-6
        assert value(f"{arch}.use_parallel_residual") is c.use_parallel_residual
        assert (f"{arch}.hidden_act" in reader.fields) == (c.hidden_act != "gelu")
    elif run.family != "gpt2":
        assert abs(value(f"{arch}.attention.layer_norm_rms_epsilon") / c.rms_norm_eps - 1) < 1e-6
    if run.family != "gpt2":
        numbers["feed_forward_length"] = c.intermediate_size
        numbers["attention.head_count_kv"] = getattr(c, "num_key_value_heads", c.num_attention_heads)
        assert value(f"{arch}.rope.freq_base") == c.rope_theta
        check_scaling(run, {key[len(arch) + 6:]: f.contents() for key, f in reader.fields.items()
                            if key.startswith(arch + ".rope.")})
        if run.family == "olmo3":
            numbers["attention.sliding_window"] = run.sliding
        if run.family in LIFTED:
            none = 4096 if run.family == "gemma2" else c.max_position_embeddings
            numbers["attention.sliding_window"] = run.sliding or none
            for key in ("attn_logit_softcapping", "final_logit_softcapping"):
                cap = getattr(c, key)
                assert abs(value(f"{arch}.{key}") / cap - 1) < 1e-6 if cap else f"{arch}.{key}" not in reader.fields
            numbers["attention.key_length"] = c.head_dim
    for key, theirs in MULTIPLIERS.items():
        assert (f"{arch}.{key}" in reader.fields) == (run.family == "granite"), key
        if run.family == "granite":
            assert abs(value(f"{arch}.{key}") / getattr(c, theirs) - 1) < 1e-6, key
    for key, number in numbers.items():
        assert value(f"{arch}.{key}") == number, key
        assert reader.fields[f"{arch}.{key}"].types == [gguf.GGUFValueType.UINT32], key
    tokens, kinds = value("tokenizer.ggml.tokens"), value("tokenizer.ggml.token_type")
    assert len(tokens) == len(kinds) == c.vocab_size
    known = {i: t for t, i in tokenizer.get_vocab().items()}
    for i, (token, kind) in enumerate(zip(tokens, kinds)):
        assert token == known.get(i, f"[PAD{i}]"), (i, token)
        assert kind == (5 if i not in known else 3 if token == "<|endoftext|>" else 1), (i, token, kind)
    assert value("tokenizer.ggml.pre") == "gpt-2" and value("tokenizer.ggml.model") == "gpt2"
    assert len(value("tokenizer.ggml.merges")) == 300 - 257
    assert value("tokenizer.ggml.eos_token_id") == 0
    assert value("tokenizer.chat_template") == tokenizer.chat_template


def check_special(source, export, work, r):
    """Ids of tokens and templates as llama.cpp's converter reads them, whatever the files say of each other."""
    names = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|pad|>"]
    with open(os.path.join(source, "tokenizer.json"), encoding="utf-8") as f:
        tokenizer = json.load(f)
    for i, name in enumerate(names[1:]):
        tokenizer["added_tokens"].append(dict(tokenizer["added_tokens"][0], id=300 + i, content=name))
    write_json(source, "tokenizer.json", tokenizer)
    with open(os.path.join(source, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    for word in ("bos", "eos", "pad"):
        config.pop(f"{word}_token_id", None)
        if r.random() < 0.6:
            config[f"{word}_token_id"] = r.randrange(320)
    listed = r.random() < 0.3  # Llama-3.1's; gguf's reader passes lists over, so only names are compared
    settings = {"chat_template": [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}],
                "model_max_length": 10 ** 30}
    for word in ("bos", "eos", "pad", "unk", "sep", "mask"):
        if r.random() < 0.6 or (listed and word == "eos"):
            name = r.choice(names)
            settings[f"{word}_token"] = r.choice([name, {"content": name}, None]) if not listed else name
    if listed:
        config["eos_token_id"] = [0, 301]
    if not settings.get("eos_token"):
        settings.pop("sep_token", None)  # which SpecialVocab takes for both, as BERT's models have it
    write_json(source, "config.json", config)
    write_json(source, "tokenizer_config.json", settings)
    if os.path.exists(os.path.join(source, "special_tokens_map.json")):
        os.remove(os.path.join(source, "special_tokens_map.json"))
    path = os.path.join(work, "special.gguf")
    subprocess.run([export, source, str(Q.F32.value), path], check=True)
    reader = gguf.GGUFReader(path)
    theirs = gguf.SpecialVocab(source, n_vocab=320)
    keys = {"unk": "unknown", "sep": "seperator", "pad": "padding"}
    ours = {word: reader.fields[key].contents() for word in ("bos", "eos", "unk", "sep", "pad", "mask")
            for key in [f"tokenizer.ggml.{keys.get(word, word)}_token_id"] if key in reader.fields}
    fallback = {}
    if os.path.exists(os.path.join(source, "generation_config.json")):
        with open(os.path.join(source, "generation_config.json"), encoding="utf-8") as f:
            fallback = json.load(f)
    for word, number in ours.items():
        if word not in theirs.special_token_ids:
            assert number == fallback.get(f"{word}_token_id"), (word, number, settings, config, fallback)
        else:
            assert number == theirs.special_token_ids[word], (word, number, settings, config)
    assert set(ours) >= set(theirs.special_token_ids), (ours, theirs)
    assert reader.fields["tokenizer.chat_template"].contents() == "d"
    assert reader.fields["tokenizer.chat_template.tool_use"].contents() == "t"
    assert reader.fields["tokenizer.chat_templates"].contents() == ["tool_use"]


def write_json(folder, name, value):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
        json.dump(value, f)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("export")
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=8)
    args = parser.parse_args()
    tensors = 0
    for seed in range(args.first, args.first + args.seeds):
        run = Gpt2(seed) if seed % 5 == 0 else Run(seed)
        with tempfile.TemporaryDirectory() as work:
            source = os.path.join(work, "source")
            run.save(source)
            family_oracle.make_tokenizer(source)
            for wanted in (Q.F32, Q.F16, Q.BF16, Q.Q8_0):
                path = os.path.join(work, f"{wanted.name}.gguf")
                subprocess.run([args.export, source, str(wanted.value), path], check=True)
                reader = gguf.GGUFReader(path)
                check_tensors(run, reader, wanted)
                check_metadata(run, reader, source, wanted)
                tensors += len(reader.tensors)
            r = random.Random(seed)
            for _ in range(6):
                family_oracle.make_tokenizer(source)
                check_special(source, args.export, work, r)
        print(f"seed {seed}: {run.family}", flush=True)
    print(f"{args.seeds} models, {tensors} tensors")
    return tensors == 0


if __name__ == "__main__":
    sys.exit(main())
