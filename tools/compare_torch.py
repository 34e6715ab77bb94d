#!/usr/bin/python3
"""One baseline of tools/compare: GPT-2 124M trained with PyTorch on the CPU, AdamW included.

From PyTorch 2 on with its own attention, its fused AdamW and torch.compile; with what 1.13 has otherwise.

Prints one JSON object: the median seconds of a step and tokens per second. Run by tools/compare with the
environment that makes PyTorch fastest here (see there); run by hand it measures stock PyTorch.
"""
import argparse
import json
import math
import statistics
import time

import torch
from torch import nn
from torch.nn import functional as F

MODERN = int(torch.__version__.split(".")[0]) >= 2
WARM_STEPS = 3 if MODERN else 1  # torch.compile


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.c_fc, self.c_out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, mask):
        B, T, C = x.shape
        q, k, v = self.c_attn(self.ln_1(x)).split(C, dim=2)
        q, k, v = (t.view(B, T, self.heads, C // self.heads).transpose(1, 2) for t in (q, k, v))
        if MODERN:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.rest(x, y.transpose(1, 2).reshape(B, T, C))
        scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(C // self.heads))
        y = scores.masked_fill(mask, float("-inf")).softmax(-1) @ v
        return self.rest(x, y.transpose(1, 2).reshape(B, T, C))

    def rest(self, x, y):
        x = x + self.c_proj(y)
        return x + self.c_out(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self, vocab=50257, positions=1024, width=768, layers=12, heads=12):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(positions, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        # GPT-2's initialisation: wider weights saturate the softmax, and its denormals slow a step tenfold.
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens, targets):
        T = tokens.shape[1]
        mask = torch.ones(T, T, dtype=torch.bool).triu(1)
        x = self.wte(tokens) + self.wpe(torch.arange(T))
        for block in self.blocks:
            x = block(x, mask)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))


def products_per_second(n=1024):
    """Floating-point operations per second of a large fp32 product: a PyTorch without a proper BLAS shows here."""
    a, b = torch.randn(n, n), torch.randn(n, n)
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        a @ b
        seconds.append(time.perf_counter() - start)
    return 2 * n**3 / min(seconds)


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--batch", type=int, default=4)
    p.add_argument("--sequence", type=int, default=256)
    p.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32")
    p.add_argument("--steps", type=int, default=3)
    p.add_argument("--threads", type=int, default=2)
    a = p.parse_args()
    torch.set_num_threads(a.threads)
    torch.manual_seed(1)
    model = GPT2()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1, **({"fused": True} if MODERN else {}))
    step = torch.compile(model) if MODERN else model
    tokens = torch.randint(0, 50257, (a.batch, a.sequence + 1))
    seconds = []
    for _ in range(a.steps + WARM_STEPS):
        start = time.perf_counter()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=a.dtype == "bf16"):
            loss = step(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        seconds.append(time.perf_counter() - start)
    median = statistics.median(seconds[WARM_STEPS:])
    print(json.dumps({"version": torch.__version__, "seconds": median,
                      "tokens_per_second": a.batch * a.sequence / median, "loss": loss.item(),
                      "products_per_second": products_per_second()}))


if __name__ == "__main__":
    main()
