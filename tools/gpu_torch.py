#!/usr/bin/python3
"""GPT-2 in PyTorch on a card, as fast as it goes there: compiled, the fastest of its attentions, fused AdamW, bf16. For
tools/gpu-check.

Weights and gradients are bf16 under fp32 masters by autocast, as in nanoGPT. Prints one line of JSON. Exit 77: no torch or card.
"""
import argparse
import contextlib
import json
import sys
import time

SIZES = {"gpt2-124m": (12, 768, 12), "gpt2-350m": (24, 1024, 16), "gpt2-774m": (36, 1280, 20), "gpt2-1558m": (48, 1600, 25)}


def build(torch, layers, width, heads, positions, vocab):
    nn, F = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            B, T, C = x.shape
            q, k, v = (t.view(B, T, heads, C // heads).transpose(1, 2) for t in self.qkv(self.ln_1(x)).split(C, dim=2))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.proj(y.transpose(1, 2).reshape(B, T, C))
            return x + self.down(F.gelu(self.up(self.ln_2(x)), approximate="tanh"))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(positions, width)
            self.blocks = nn.ModuleList(Block() for _ in range(layers))
            self.ln_f = nn.LayerNorm(width)

        def head(self, x, targets):
            logits = F.linear(self.ln_f(x), self.wte.weight)
            return F.cross_entropy(logits.float().view(-1, vocab), targets.reshape(-1))

        def forward(self, tokens, targets):
            x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
            for block in self.blocks:
                x = block(x)
            return self.head(x, targets)

    return Model()


def event_seconds(torch, work, times=10):
    """Of one call, on the card's own clock."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for i in range(times + 3):
        if i == 3:
            begin.record()
        work()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / 1e3 / times


def attention_seconds(torch, shape, backend):
    """Forward, and both ways, of one layer of this batch, heads, length and width."""
    attend = torch.nn.functional.scaled_dot_product_attention
    q, k, v = (torch.randn(*shape, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    dy = torch.randn_like(q)
    from torch.nn.attention import sdpa_kernel
    with sdpa_kernel(backend):
        return [event_seconds(torch, lambda: attend(q, k, v, is_causal=True)),
                event_seconds(torch, lambda: attend(q, k, v, is_causal=True).backward(dy))]


def ceilings(torch):
    """What the card does at best: products, copies within its memory, and PyTorch's products and attention at our shapes.
    {name: TFLOP/s, GB/s or seconds}; a product of rows x columns x sum."""
    from torch.nn.attention import SDPBackend
    done, bytes_copied = {}, 1 << 31
    x, y = (torch.randint(0, 256, (bytes_copied,), device="cuda", dtype=torch.uint8) for _ in range(2))
    done["copy GB/s, read and written"] = 2 * bytes_copied / event_seconds(torch, lambda: y.copy_(x)) / 1e9
    del x, y
    shapes = [(8192, 8192, 8192)]
    for rows, width, vocab in ((16384, 768, 50304), (4096, 1600, 50304), (4096, 4096, 50304)):
        shapes += [(rows, 3 * width, width), (rows, width, width), (rows, 4 * width, width), (rows, width, 4 * width),
                   (3 * width, width, rows), (4 * width, width, rows), (rows, vocab, width)]
    for m, n, k in shapes:
        a, b = (torch.randn(*s, device="cuda", dtype=torch.bfloat16) for s in ((m, k), (n, k)))
        done[f"product {m}x{n}x{k} TFLOP/s"] = 2 * m * n * k / event_seconds(torch, lambda: a @ b.t()) / 1e12
    for shape in ((16, 12, 1024, 64), (4, 25, 1024, 64), (2, 32, 2048, 128)):
        for name, backend in (("flash", SDPBackend.FLASH_ATTENTION), ("cuDNN", SDPBackend.CUDNN_ATTENTION)):
            try:
                ways = attention_seconds(torch, shape, backend)
            except RuntimeError as error:  # not for this card
                print(f"{name}: {error}", file=sys.stderr)
                continue
            done[f"attention {'x'.join(map(str, shape))} {name} seconds, forward and both"] = ways
    return done


def attentions(torch, batch, heads, sequence, width):
    """The names of its attentions with the context that chooses each, the fastest first; the last: PyTorch's own choice."""
    plain = ("PyTorch's choice of attention", contextlib.nullcontext)
    try:
        from torch.nn.attention import SDPBackend, sdpa_kernel
        known = {"flash attention": SDPBackend.FLASH_ATTENTION, "cuDNN's attention": SDPBackend.CUDNN_ATTENTION}
    except (ImportError, AttributeError):
        return [plain]
    seconds = {}
    for name, backend in known.items():
        try:
            seconds[name] = attention_seconds(torch, (batch, heads, sequence, width), backend)[1]
        except RuntimeError as error:  # not for this card
            print(f"{name}: {error}", file=sys.stderr)
    print("attention, seconds of both ways:", seconds, file=sys.stderr)
    fast = sorted(seconds, key=seconds.get)
    return [(name, lambda b=known[name]: sdpa_kernel(b)) for name in fast] + [plain]


def compiled(torch, model):
    """What to call, and how it is compiled. Of many layers each by itself, which they share: as a whole it takes minutes."""
    if len(model.blocks) <= 12:
        return torch.compile(model), "compile"
    for block in model.blocks:
        block.compile()
    model.head = torch.compile(model.head)
    return model, "compile, block by block"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="gpt2-124m")
    parser.add_argument("--micro-batch-size", type=int, default=16)
    parser.add_argument("--sequence-len", type=int, default=1024)
    parser.add_argument("--gradient-accumulation-steps", type=int, default=4)
    parser.add_argument("--vocab-size", type=int, default=50304, help="as its users pad it")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--ceilings", action="store_true", help="only what the card does at best")
    a = parser.parse_args()
    try:
        import torch
    except ImportError:
        print("skipped: no torch")
        return 77
    if not torch.cuda.is_available() or a.model not in SIZES:
        print("skipped: torch sees no card, or does not know the model")
        return 77
    if a.ceilings:
        print(json.dumps({"ceilings": ceilings(torch)}))
        return 0
    torch.set_float32_matmul_precision("high")
    model = build(torch, *SIZES[a.model], a.sequence_len, a.vocab_size).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    tokens = torch.randint(0, min(a.vocab_size, 50257), (a.micro_batch_size, a.sequence_len + 1), device="cuda")

    def micro_batch(of):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = of(tokens[:, :-1], tokens[:, 1:]) / a.gradient_accumulation_steps
        loss.backward()

    layers, width, heads = SIZES[a.model]
    run, how, choose = model, "NOT COMPILED", contextlib.nullcontext
    for attention, choose in attentions(torch, a.micro_batch_size, heads, a.sequence_len, width // heads):
        torch.compiler.reset()
        try:
            with choose():
                run, how = compiled(torch, model)
                how += f", {attention}"
                micro_batch(run)
            break
        except Exception as error:  # it needs a C compiler and Python's headers; a slower number is better than none
            run, how = model, f"NOT COMPILED ({type(error).__name__}), {attention}"
            model.__dict__.pop("head", None)
            for block in model.blocks:
                block._compiled_call_impl = None
            print(error, file=sys.stderr)
    optimizer.zero_grad(set_to_none=True)
    measure(torch, a, model, optimizer, lambda: micro_batch(run), how, choose)
    return 0


def measure(torch, a, model, optimizer, micro_batch, how, choose):
    """Makes the steps and prints what they took."""
    times = []
    for _ in range(a.steps + 2):
        torch.cuda.synchronize()
        start = time.time()
        with choose():
            for _ in range(a.gradient_accumulation_steps):
                micro_batch()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        times.append(time.time() - start)
    median = sorted(times[2:])[len(times[2:]) // 2]
    rate = a.gradient_accumulation_steps * a.micro_batch_size * a.sequence_len / median
    print(json.dumps({"torch_tokens_per_second": rate, "median_step_seconds": median, "model": a.model, "torch": torch.__version__,
                      "vocab_size": a.vocab_size,
                      "how": f"{how}, autocast bf16, fused AdamW on the card, vocabulary {a.vocab_size}",
                      "peak_bytes": torch.cuda.max_memory_allocated()}))


if __name__ == "__main__":
    sys.exit(main())
