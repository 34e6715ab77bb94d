#!/usr/bin/env python3
"""`atom export` against torch, transformers and readers of its own.

  export_oracle.py ATOM [--first S] [--seeds N]     ATOM: the program

Random small models of every family, whole and in shards. --to hf: the bytes of every tensor must be those
of torch's own .to(dtype), the names those of the source; unknown keys of config.json are kept, torch_dtype
and dtype are set, tokenizer files are byte for byte the same, and transformers loads what it has a class
for. --to llmc: GPT-2 files are read by their description (header, padded vocabulary, order of tensors) and
must hold the same numbers; other families are refused by name. --to gguf and back: the numbers read must be
those that the package gguf decodes, the text that `atom generate` makes from a GGUF file that of the same
weights in a directory, letter by letter, and its tokenizer the source's on random text. Exit 77: a library is not installed.
"""
import argparse
import filecmp
import json
import os
import random
import subprocess
import sys
import tempfile

import family_oracle
from gguf_oracle import ARCH, LIFTED, TURNED, Gpt2, Portable, gguf
from gpt2_oracle import GPT2LMHeadModel, np, torch
from llama_oracle import ABSENT
from train_oracle import Atom
from gguf.quants import dequantize
from safetensors import safe_open
from tokenizers import Tokenizer, trainers
from transformers import GPT2Config, LlamaConfig, LlamaForCausalLM

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
LIMIT = 20000


class Run(Portable, family_oracle.Run):
    """What GGUF can hold."""


class Gpt2Run(Gpt2):
    def load(self, path):
        return type(self.model).from_pretrained(path)


def bytes_of(tensor):
    return tensor.numel() * tensor.element_size()


def read(path):
    """Tensors of a directory, and its shards."""
    index = os.path.join(path, "model.safetensors.index.json")
    files, tensors = ["model.safetensors"], {}
    if os.path.exists(index):
        with open(index, encoding="utf-8") as f:
            index = json.load(f)
        files = sorted(set(index["weight_map"].values()))
        assert not os.path.exists(os.path.join(path, "model.safetensors"))
    else:
        index = None
    for name in files:
        with safe_open(os.path.join(path, name), "pt") as f:
            assert f.metadata() == {"format": "pt"}, f.metadata()
            for key in f.keys():
                assert key not in tensors and (not index or index["weight_map"][key] == name), key
                tensors[key] = f.get_tensor(key)
    size = {name: os.path.getsize(os.path.join(path, name)) for name in files}
    if index:
        assert index["metadata"]["total_size"] == sum(bytes_of(t) for t in tensors.values()), index["metadata"]
    return tensors, size


def check_bytes(source, made, dtype):
    for name, tensor in source.items():
        if name in ("lm_head.weight", "embed_out.weight") and name not in made:
            continue
        want, got = tensor.to(dtype).contiguous(), made.pop(name)
        assert got.dtype == dtype and got.shape == want.shape, (name, got.dtype, got.shape)
        bits = torch.int32 if dtype == torch.float32 else torch.int16
        assert torch.equal(got.view(bits), want.view(bits)), name
    assert not made, sorted(made)


def check_files(source, made, dtype):
    with open(os.path.join(made, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    name = str(dtype).split(".")[1]
    assert config["torch_dtype"] == config["dtype"] == name, config
    with open(os.path.join(source, "config.json"), encoding="utf-8") as f:
        for key, value in json.load(f).items():
            if key in ("partial_rotary_factor", "rotary_pct"):  # any that gives as many dimensions means the same
                dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
                assert int(dim * config[key]) == int(dim * value), (key, value, config[key])
                continue
            assert key in config and (key in ("dtype", "torch_dtype", "_name_or_path", "rope_parameters", "rope_scaling")
                                      or config[key] == value), (key, value, config.get(key))
    for name in os.listdir(source):
        if "token" in name or "template" in name:
            assert filecmp.cmp(os.path.join(source, name), os.path.join(made, name), False), name
    assert not any(name.endswith(".tmp") for name in os.listdir(made))


def check_hf(run, atom, seed):
    source = os.path.join(atom.work, "source")
    tensors, _ = read(source)
    for name, dtype in DTYPES.items():
        made = f"{name}-{seed}"
        sharded = ["--max-shard-size", f"{LIMIT}B"] if seed % 2 else []
        atom("export", "--model", "source", "--to", "hf", "--dtype", name, "-o", made, *sharded)
        path = os.path.join(atom.work, made)
        got, sizes = read(path)
        assert len(sizes) > 1 if sharded else len(sizes) == 1, sizes
        largest = max(bytes_of(t) for t in got.values())
        assert not sharded or all(s < max(LIMIT, largest) + 9000 for s in sizes.values()), sizes
        check_bytes(tensors, got, dtype)
        check_files(source, path, dtype)
        if run.family not in ABSENT:
            loaded = run.load(path)
            for (key, a), b in zip(loaded.state_dict().items(), run.model.state_dict().values()):
                assert torch.equal(a, b.to(dtype).to(a.dtype)), key
    # as it is: nothing changes, and what is there stays
    atom("export", "--model", f"bf16-{seed}", "--to", "hf", "-o", "again")
    again = read(os.path.join(atom.work, "again"))[0]
    check_bytes(again, read(os.path.join(atom.work, f"bf16-{seed}"))[0], torch.bfloat16)
    assert atom("export", "--model", "source", "--to", "hf", "-o", "again", may_fail=True) is None
    assert read(os.path.join(atom.work, "again"))[0].keys() == again.keys()


def read_llmc(path):
    """A model file of llm.c by its description: the header's numbers, and tensors as transformers has them."""
    header = np.fromfile(path, "<i4", 256)
    magic, version, T, V, L, heads, C, Vp = (int(x) for x in header[:8])
    assert magic == 20240326 and version in (3, 5) and not header[8:].any(), header[:16]
    assert Vp % 128 == 0 and 0 <= Vp - V < 128
    if version == 3:
        data = np.fromfile(path, "<f4", offset=1024)
    else:
        data = (np.fromfile(path, "<u2", offset=1024).astype(np.uint32) << 16).view(np.float32)
    at, out = 0, {}

    def take(*shape):
        nonlocal at
        n = int(np.prod(shape))
        at += n
        return torch.from_numpy(data[at - n:at].reshape(shape).copy())

    wte = take(Vp, C)
    assert not wte[V:].any()
    out["transformer.wte.weight"], out["transformer.wpe.weight"] = wte[:V], take(T, C)
    for name, *shape in (("ln_1.weight", C), ("ln_1.bias", C), ("attn.c_attn.weight", 3 * C, C),
                         ("attn.c_attn.bias", 3 * C), ("attn.c_proj.weight", C, C), ("attn.c_proj.bias", C),
                         ("ln_2.weight", C), ("ln_2.bias", C), ("mlp.c_fc.weight", 4 * C, C),
                         ("mlp.c_fc.bias", 4 * C), ("mlp.c_proj.weight", C, 4 * C), ("mlp.c_proj.bias", C)):
        for i, part in enumerate(take(L, *shape)):
            out[f"transformer.h.{i}.{name}"] = part.T if part.dim() == 2 else part
    out["transformer.ln_f.weight"], out["transformer.ln_f.bias"] = take(C), take(C)
    assert at == len(data), (at, len(data))
    return (T, V, L, heads, C), out


def check_llmc(run, atom, seed):
    path = os.path.join(atom.work, "model.bin")
    if run.family != "gpt2":
        assert atom("export", "--model", "source", "--to", "llmc", "-o", "model.bin", may_fail=True) is None
        assert not os.path.exists(path) and not os.path.exists(path + ".tmp")
        return
    config = GPT2Config(vocab_size=320 + seed, n_positions=40, n_embd=64, n_layer=3, n_head=4)
    model = GPT2LMHeadModel(config)
    model.save_pretrained(os.path.join(atom.work, "four"), max_shard_size="40KB" if seed % 2 else "5GB")
    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        atom("export", "--model", "four", "--to", "llmc", "--dtype", name, "-o", "model.bin", "--overwrite")
        numbers, tensors = read_llmc(path)
        assert numbers == (40, config.vocab_size, 3, 4, 64), numbers
        for key, p in model.named_parameters():
            assert torch.equal(tensors.pop(key), p.detach().to(dtype).float()), key
        assert not tensors, sorted(tensors)
    # a width of the MLP that llm.c cannot say
    os.remove(path)
    assert atom("export", "--model", "source", "--to", "llmc", "-o", "model.bin", may_fail=True) is None


def generate(atom, model, seed, temperature):
    sampled = ["--seed", seed] if temperature else []
    return atom("generate", "--model", model, "--prompt", "the quick", "--max-tokens", 20, "--temperature", temperature,
                *sampled, "--ignore-end", "--dtype", "fp32")


def decoded(run, path):
    """Every tensor of a GGUF file as gguf's own reader gives it, rows of q and k in Hugging Face's order."""
    for t in gguf.GGUFReader(path).tensors:
        x = dequantize(t.data, t.tensor_type).reshape(t.shape[::-1])
        turned = ARCH[run.family] in TURNED and (".attn_q." in t.name or ".attn_k." in t.name)
        if turned:
            heads = run.config.num_attention_heads if ".attn_q." in t.name else run.config.num_key_value_heads
            x = x.reshape(heads, x.shape[0] // heads // 2, 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)
        if run.family in LIFTED and t.name.endswith("norm.weight"):
            x = x - np.float32(1)
        if run.family == "gpt_neox" and ".attn_qkv." in t.name:
            x = x.reshape(3, run.config.num_attention_heads, -1, *x.shape[1:]).swapaxes(0, 1).reshape(x.shape)
        yield t.name, x


def check_gguf(run, atom, seed):
    layers = getattr(run.config, "num_hidden_layers", None) or run.config.n_layer
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[ARCH[run.family]], layers)
    texts = family_oracle.TEXT[:5] + ["".join(chr(random.Random(seed).randint(32, 0x2fff)) for _ in range(500))]
    for i, kind in enumerate(("f32", "f16", "bf16", "q8_0")):
        file, back = f"{kind}.gguf", f"back-{kind}"
        atom("export", "--model", "source", "--type", kind, "-o", file, "--overwrite")
        atom("export", "--model", file, "--to", "hf", "-o", back)
        made, _ = read(os.path.join(atom.work, back))
        want = dict(decoded(run, os.path.join(atom.work, file)))
        for name, tensor in made.items():
            x = tensor.numpy()
            if run.family == "gpt2" and any(part in name for part in ("c_attn", "c_proj", "c_fc")):
                x = x.T
            assert np.array_equal(x, want.pop(names.get_name(name, try_suffixes=(".weight", ".bias")))), name
        assert set(want) <= {"rope_freqs.weight"}, sorted(want)
        temperature = (i + seed) % 2  # each kind greedily and at random, over the seeds
        text = generate(atom, file, seed, temperature)
        assert len(text) > 20 and text == generate(atom, back, seed, temperature), (kind, text)
        assert kind != "f32" or text == generate(atom, "source", seed, temperature), text
        ours, theirs = (Tokenizer.from_file(os.path.join(atom.work, d, "tokenizer.json")) for d in (back, "source"))
        for text in texts:
            assert ours.encode(text).ids == theirs.encode(text).ids, text


def as_sentencepiece(t):
    """Its merges as transformers makes them of SentencePiece: all cuts of a token, the first merged token first.
    A GGUF file has scores of tokens and could not say which cut was learnt."""
    tree = json.loads(t.to_str())
    vocab, rank = tree["model"]["vocab"], {}
    for i, (a, b) in enumerate(tree["model"]["merges"]):
        rank.setdefault(a + b, i)
    special = {a["content"] for a in tree["added_tokens"]}
    cuts = [(rank[x], vocab[x[:k]], vocab[x[k:]], [x[:k], x[k:]]) for x in rank if x not in special
            for k in range(1, len(x)) if {x[:k], x[k:]} <= vocab.keys() - special]
    tree["model"]["merges"] = [merge for *_, merge in sorted(cuts)]
    return Tokenizer.from_str(json.dumps(tree))


def check_tokenizers(program, seed):
    """All kinds of tokenizers through a GGUF file: the same ids, the start token included."""
    import foreign_oracle  # takes its own words off the command line
    r, texts = random.Random(seed), 0
    config = LlamaConfig(vocab_size=2400, hidden_size=32, intermediate_size=32, num_hidden_layers=1,
                         num_attention_heads=2, max_position_embeddings=32)
    for kind in ("llama3", "qwen35", "smollm", "o200k", "tekken", "gpt2", "llama2", "gemma", "deepseek v3", "deepseek llm",
                 "deepseek coder", "digits", "stages"):
        if kind == "gpt2":
            t, alphabet, _ = foreign_oracle.byte_level(None)
            t.train_from_iterator([foreign_oracle.random_text(r) for _ in range(200)], trainers.BpeTrainer(
                vocab_size=900, special_tokens=["<|endoftext|>"], show_progress=False, initial_alphabet=alphabet))
        else:
            t = foreign_oracle.build(kind, r)
            t = as_sentencepiece(t) if kind in ("llama2", "gemma") else t
        with tempfile.TemporaryDirectory() as work:
            atom = Atom(program, work)
            config.bos_token_id = t.encode("").ids[0] if t.encode("").ids else None
            LlamaForCausalLM(config).save_pretrained(os.path.join(work, "source"))
            t.save(os.path.join(work, "source", "tokenizer.json"))
            if kind in ("digits", "stages"):
                done = subprocess.run([program, "export", "--model", "source", "-o", "x.gguf"], cwd=work, capture_output=True, text=True)
                assert done.returncode == 2 and "does not know llama.cpp's name" in done.stderr and done.stderr.count("\n") == 1, done
                continue
            atom("export", "--model", "source", "-o", "x.gguf", "--overwrite")
            atom("export", "--model", "x.gguf", "--to", "hf", "-o", "back")
            back = Tokenizer.from_file(os.path.join(work, "back", "tokenizer.json"))
            for _ in range(300):
                text = foreign_oracle.random_text(r)
                assert back.encode(text).ids == t.encode(text).ids, (kind, text)
                texts += 1
    return texts


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("atom")
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    for seed in range(args.first, args.first + args.seeds):
        run = Gpt2Run(seed) if seed % 5 == 0 else Run(seed)
        with tempfile.TemporaryDirectory() as work:
            run.save(os.path.join(work, "source"))
            family_oracle.make_tokenizer(os.path.join(work, "source"))
            check_hf(run, Atom(args.atom, work), seed)
            check_llmc(run, Atom(args.atom, work), seed)
            check_gguf(run, Atom(args.atom, work), seed)
        print(f"seed {seed}: {run.family}", flush=True)
    print(f"{check_tokenizers(args.atom, args.first)} texts through tokenizers of GGUF files")
    return args.seeds == 0


if __name__ == "__main__":
    sys.exit(main())
