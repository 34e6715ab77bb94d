#!/usr/bin/env python3
"""Codecs on boundaries of the program `atom` against their definition in float64.

  codec_oracle.py ATOM [--canary]     ATOM: the program
  --canary    our backward lets the gradient pass as it is, and our bottlenecks are left out; succeeds if that is noticed

One small GPT-2 of random weights, written here as a file: its loss and every gradient of the first step of `atom
train --compress-boundaries CODEC --at 1,2` must be those of the same model in float64 PyTorch, where what crosses a
boundary is replaced by decode(encode(x)), and its gradient by decode(encode(dy)). The codecs are written again here,
from kernels/ref/codec.h. Last come models with bottlenecks in place of a codec, of linear layers and of maxout: more weights
at each boundary, and every gradient is the true one. A codec is a staircase, so a value that lies at the edge of a step may fall to either side;
the seed is one where none does. Which places randomk takes is tests/ops' question. fp32. Exit 77: torch is not installed.
"""
import argparse
import json
import os
import struct
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import torch
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

B, T, C, HEADS, LAYERS, V = 2, 19, 156, 3, 3, 257
CODECS = ["int8", "int4", "int2", "topk:0.2", "topk:0.02"]
KINDS = {"bottleneck": 37, "maxout": 39}  # values of a bottleneck; of maxout a quarter
LIMIT = 2e-5


def blocks(x, size):
    """Rows of x in float32, cut into blocks."""
    for row in x.reshape(-1, x.shape[-1]).astype(np.float32):
        yield [row[i:i + size] for i in range(0, len(row), size)]


def steps(bits, x):
    lo, step = x.min(), (x.max() - x.min()) / np.float32(2 ** bits - 1)
    return lo + np.rint((x - lo) * (np.float32(1) / step)) * step if step > 0 else np.full_like(x, lo)


def bf16(x):
    bits = x.view(np.uint32)
    return ((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000).view(np.float32)


def largest(share, x):
    kept = max(1, int(share * len(x) + 0.5))
    y = np.zeros_like(x)
    sent = np.argsort(-np.abs(x), kind="stable")[:kept]
    y[sent] = bf16(x)[sent]
    return y


def through(codec, x):
    name, _, share = codec.partition(":")
    size, one = (4096, lambda b: largest(float(share), b)) if share else (128, lambda b: steps(int(name[3:]), b))
    rows = [np.concatenate([one(b) for b in row]) for row in blocks(x.detach().numpy(), size)]
    return torch.from_numpy(np.stack(rows).reshape(x.shape).astype(np.float64))


class Link(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, codec, straight):
        ctx.codec, ctx.straight = codec, straight
        return through(codec, x)

    @staticmethod
    def backward(ctx, dy):
        return dy if ctx.straight else through(ctx.codec, dy), None, None


def weights(kind=""):
    draw = np.random.default_rng(4)

    def normal(*shape, mean=0.0):
        return torch.from_numpy((mean + draw.normal(0, 0.1, shape)).astype("f4").astype("f8")).requires_grad_()
    w = {"wte.weight": normal(V, C), "wpe.weight": normal(32, C)}
    for i in range(LAYERS):
        for name, wide, out in ("attn.c_attn", C, 3 * C), ("attn.c_proj", C, C), ("mlp.c_fc", C, 4 * C), ("mlp.c_proj", 4 * C, C):
            w[f"h.{i}.{name}.weight"], w[f"h.{i}.{name}.bias"] = normal(wide, out), normal(out)
        for name in "ln_1", "ln_2":
            w[f"h.{i}.{name}.weight"], w[f"h.{i}.{name}.bias"] = normal(C, mean=1.0), normal(C)
    w["ln_f.weight"], w["ln_f.bias"] = normal(C, mean=1.0), normal(C)
    for after in (1, 2) if kind else ():
        own, narrow = f"boundary.{after}.", KINDS[kind]
        if kind == "maxout":
            for name, wide in ("ln_1", C), ("ln_2", narrow):
                w[f"{own}{name}.weight"], w[f"{own}{name}.bias"] = normal(wide, mean=1.0), normal(wide)
        else:
            w[own + "down.weight"] = normal(narrow, C)
        w[own + "up.weight"] = normal(C, narrow)
    return w


def loss_of(w, stream, codec, straight):
    def norm(x, name):
        return torch.nn.functional.layer_norm(x, x.shape[-1:], w[name + ".weight"], w[name + ".bias"], 1e-5)

    def linear(x, name):
        return x @ w[name + ".weight"] + w[name + ".bias"]
    tokens = torch.from_numpy(stream[:-1].reshape(B, T))
    x = w["wte.weight"][tokens] + w["wpe.weight"][:T]
    hidden = torch.triu(torch.ones(T, T, dtype=torch.bool), 1)
    for i in range(LAYERS):
        h = f"h.{i}."
        q, k, v = (t.reshape(B, T, HEADS, C // HEADS).transpose(1, 2) for t in linear(norm(x, h + "ln_1"), h + "attn.c_attn").split(C, -1))
        scores = (q @ k.transpose(-1, -2) / (C // HEADS) ** 0.5).masked_fill(hidden, float("-inf"))
        x = x + linear((scores.softmax(-1) @ v).transpose(1, 2).reshape(B, T, C), h + "attn.c_proj")
        u = linear(norm(x, h + "ln_2"), h + "mlp.c_fc")
        gelu = 0.5 * u * (1 + torch.tanh((2 / np.pi) ** 0.5 * (u + 0.044715 * u ** 3)))
        x = x + linear(gelu, h + "mlp.c_proj")
        if i + 1 < LAYERS and codec:
            x = Link.apply(x, codec, straight)
        elif i + 1 < LAYERS and not straight:
            own = f"boundary.{i + 1}."
            if own + "down.weight" in w:
                x = x @ w[own + "down.weight"].T
            else:
                x = norm(norm(x, own + "ln_1").unflatten(-1, (KINDS["maxout"], -1)).amax(-1), own + "ln_2")
            x = x @ w[own + "up.weight"].T
    logits = norm(x, "ln_f") @ w["wte.weight"].T
    return torch.nn.functional.cross_entropy(logits.reshape(-1, V), torch.from_numpy(stream[1:]))


def write_tensors(path, tensors):
    head, data = {}, b""
    for name, t in tensors.items():
        raw = t.detach().numpy().astype("<f4").tobytes()
        head[name] = {"dtype": "F32", "shape": list(t.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def read_tensors(path):
    with open(path, "rb") as f:
        raw = f.read()
    start = 8 + struct.unpack("<Q", raw[:8])[0]
    for name, t in json.loads(raw[8:start]).items():
        if name != "__metadata__":
            first, end = t["data_offsets"]
            yield name, np.frombuffer(raw[start + first:start + end], "<f4").reshape(t["shape"]).astype("f8")


def prepare(work, source, w, kind=""):
    config = {"model_type": "gpt2", "vocab_size": V, "n_positions": 32, "n_embd": C, "n_layer": LAYERS, "n_head": HEADS,
              "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    if kind:
        about = {"model_type": "gpt2", "after_blocks": [1, 2], "width": KINDS[kind]}
        config.update(model_type="atom_bottlenecks", atom_bottlenecks=dict(about, kind=kind) if kind == "maxout" else about)
    os.mkdir(os.path.join(work, source))
    write_tensors(os.path.join(work, source, "model.safetensors"), w)
    with open(os.path.join(work, source, "config.json"), "w", encoding="ascii") as f:
        json.dump(config, f)


def prepare_data(work, stream):
    os.mkdir(os.path.join(work, "data"))
    head = np.zeros(256, "<i4")
    head[:3] = 20240520, 1, len(stream)
    for split in "train", "val":
        with open(os.path.join(work, "data", f"{split}_000000.bin"), "wb") as f:
            f.write(head.tobytes() + stream.astype("<u2").tobytes())


def error(a, b):
    return float(np.linalg.norm(np.subtract(a, b)) / max(np.linalg.norm(b), 1e-30))


def compare(program, work, source, w, stream, codec, straight):
    out = os.path.join(work, "out-" + (codec or source).replace(":", "-"))
    subprocess.run([program, "train", "--model", source, "--data", "data", "--output-dir", out, "--dtype", "fp32", "--device", "cpu",
                    "--micro-batch-size", str(B), "--gradient-accumulation-steps", "1", "--sequence-len", str(T), "--max-steps", "1",
                    "--max-grad-norm", "0", "--eval-steps", "0", "--threads", "1", "--execute", "interpreted", "--quiet",
                    *(["--compress-boundaries", codec, "--at", "1,2"] if codec else [])], check=True, cwd=work,
                   env=dict(os.environ, XDG_CACHE_HOME=os.environ.get("TESTS_CACHE") or os.path.join(work, "cache")))
    for p in w.values():
        p.grad = torch.zeros_like(p)
    loss = loss_of(w, stream, codec, straight)
    loss.backward()
    with open(os.path.join(out, "metrics.jsonl"), encoding="utf-8") as f:
        yield "loss", error([json.loads(f.readline())["loss"]], [loss.item()])
    seen = dict(read_tensors(os.path.join(out, "checkpoint-1", "optimizer.safetensors")))
    whole = np.sqrt(np.mean(np.concatenate([p.grad.numpy().ravel() ** 2 for p in w.values()])))
    for name, p in w.items():
        m = next(v for k, v in seen.items() if k.startswith("exp_avg.") and k.endswith("." + name)) / 0.1
        want = p.grad.numpy().T if ".c_" in name and name.endswith("weight") else p.grad.numpy()
        if name.endswith("c_attn.bias"):  # a key's bias has the gradient zero: noise
            m, want = np.delete(m, slice(C, 2 * C)), np.delete(want, slice(C, 2 * C))
        yield name, float(np.linalg.norm(m - want) / max(np.linalg.norm(want), 1e-3 * whole * want.size ** 0.5))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("atom")
    parser.add_argument("--canary", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    failed, cases = 0, [(codec, "source", weights()) for codec in CODECS] + [("", kind, weights(kind)) for kind in KINDS]
    stream = np.random.default_rng(5).integers(0, V, B * T + 1)
    with tempfile.TemporaryDirectory() as work:
        prepare_data(work, stream)
        prepare(work, "source", cases[0][2])
        for codec, kind, w in cases:
            if not codec:
                prepare(work, kind, w, kind)
        for codec, source, w in cases:
            errors = dict(compare(os.path.abspath(args.atom), work, source, w, stream, codec, args.canary))
            worst = max(errors, key=errors.get)
            bad = not errors[worst] <= LIMIT
            failed += bad
            print(f"{'FAIL ' if bad and not args.canary else ''}{codec or source}: {worst} is off by {errors[worst]:.2e} of {LIMIT:.0e}")
    return failed != len(cases) if args.canary else failed != 0


if __name__ == "__main__":
    sys.exit(main())
