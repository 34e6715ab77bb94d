#!/usr/bin/env python3
"""Makes fixtures/*.pt2 and, beside each, what PyTorch says of it in float64. Needs torch 2.9, and
transformers for one; the tests do not.

  make_fixtures.py [NAME...]     writes fixtures/NAME.pt2 and fixtures/NAME.safetensors

NAME.safetensors has the tokens, the targets, the logits, the loss and the gradient of every parameter
(grad.NAME), computed in float64 in eval mode and stored as float32; metadata says which torch made it.
Each model is written the way somebody writes one; together they spell every pattern that the reader knows.
"""
import json
import math
import os
import re
import struct
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

HERE = os.path.dirname(os.path.abspath(__file__))


class NanoNorm(nn.Module):
    """A layer norm with or without a bias, as nanoGPT has its own."""

    def __init__(self, C, bias):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(C))
        self.bias = nn.Parameter(torch.zeros(C)) if bias else None

    def forward(self, x):
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, 1e-5)


class NanoBlock(nn.Module):
    """As nanoGPT's: one product for q, k and v, LayerNorm, GELU (exact without biases), dropout."""

    def __init__(self, C, H, bias):
        super().__init__()
        self.ln_1, self.ln_2 = NanoNorm(C, bias), NanoNorm(C, bias)
        self.c_attn, self.c_proj = nn.Linear(C, 3 * C, bias=bias), nn.Linear(C, C, bias=bias)
        self.c_fc, self.mlp_proj = nn.Linear(C, 4 * C, bias=bias), nn.Linear(4 * C, C, bias=bias)
        self.H, self.drop, self.gelu = H, nn.Dropout(0.1), nn.GELU("tanh" if bias else "none")

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.c_attn(self.ln_1(x)).split(C, dim=2)
        q, k, v = (t.view(B, T, self.H, C // self.H).transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=0.1 if self.training else 0.0, is_causal=True)
        x = x + self.drop(self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C)))
        return x + self.drop(self.mlp_proj(self.gelu(self.c_fc(self.ln_2(x)))))


class Nano(nn.Module):
    """Tied head; the loss where there are targets."""

    def __init__(self, V=23, P=14, C=12, H=3, L=2, bias=True):
        super().__init__()
        self.transformer = nn.ModuleDict(dict(
            wte=nn.Embedding(V, C), wpe=nn.Embedding(P, C), drop=nn.Dropout(0.1),
            h=nn.ModuleList(NanoBlock(C, H, bias) for _ in range(L)), ln_f=NanoNorm(C, bias)))
        self.lm_head = nn.Linear(C, V, bias=False)
        self.transformer.wte.weight = self.lm_head.weight

    def logits(self, idx):
        pos = torch.arange(0, idx.size(1), dtype=torch.long, device=idx.device)
        x = self.transformer.drop(self.transformer.wte(idx) + self.transformer.wpe(pos))
        for block in self.transformer.h:
            x = block(x)
        return self.lm_head(self.transformer.ln_f(x))

    def forward(self, idx, targets=None):
        logits = self.logits(idx)
        if targets is None:
            return logits
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)


class RMS(nn.Module):
    """An RMS norm written out."""

    def __init__(self, C, eps=1e-5):
        super().__init__()
        self.eps, self.weight = eps, nn.Parameter(torch.ones(C))

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)).type_as(x)


def rotate_half(x):
    a, b = x.chunk(2, -1)
    return torch.cat((-b, a), -1)


class LlamaBlock(nn.Module):
    """q, k, v, gate and up apart; grouped heads; rotary tables as buffers that are not saved."""

    def __init__(self, C, H, K, D, inner):
        super().__init__()
        self.attn_norm, self.ffn_norm = RMS(C), RMS(C)
        self.wq, self.wk = nn.Linear(C, H * D, bias=False), nn.Linear(C, K * D, bias=False)
        self.wv, self.wo = nn.Linear(C, K * D, bias=False), nn.Linear(H * D, C, bias=False)
        self.w1, self.w2 = nn.Linear(C, inner, bias=False), nn.Linear(inner, C, bias=False)
        self.w3 = nn.Linear(C, inner, bias=False)
        self.H, self.K, self.D = H, K, D

    def forward(self, x, cos, sin):
        B, T, _ = x.shape
        h, H, K, D = self.attn_norm(x), self.H, self.K, self.D
        q = self.wq(h).view(B, T, H, D).transpose(1, 2)
        k = self.wk(h).view(B, T, K, D).transpose(1, 2)
        v = self.wv(h).view(B, T, K, D).transpose(1, 2)
        q, k = q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin
        k = k[:, :, None].expand(B, K, H // K, T, D).reshape(B, H, T, D)
        v = v.repeat_interleave(H // K, dim=1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, H * D)
        x = x + self.wo(y)
        h = self.ffn_norm(x)
        return x + self.w2(F.silu(self.w1(h)) * self.w3(h))


class Llama(nn.Module):
    def __init__(self, V=29, P=12, C=10, H=4, K=2, D=6, inner=14, L=1, theta=10000.0):
        super().__init__()
        self.tok, self.norm, self.output = nn.Embedding(V, C), RMS(C), nn.Linear(C, V, bias=False)
        self.layers = nn.ModuleList(LlamaBlock(C, H, K, D, inner) for _ in range(L))
        t = torch.outer(torch.arange(P).float(), 1.0 / theta ** (torch.arange(0, D, 2).float() / D))
        t = torch.cat((t, t), -1)
        self.register_buffer("cos", t.cos(), persistent=False)
        self.register_buffer("sin", t.sin(), persistent=False)

    def forward(self, ids):
        T, x = ids.shape[1], self.tok(ids)
        cos, sin = self.cos[:T][None, None], self.sin[:T][None, None]
        for block in self.layers:
            x = block(x, cos, sin)
        return self.output(self.norm(x))

    logits = forward


class OddBlock(nn.Module):
    """Norms of heads, pairs (2i, 2i + 1) that turn, q, k, v of a head side by side, up before gate, attention
    written out."""

    def __init__(self, C, H, D, inner):
        super().__init__()
        self.n1, self.n2 = nn.RMSNorm(C, eps=1e-6), nn.RMSNorm(C, eps=1e-6)
        self.qn, self.kn = nn.RMSNorm(D, eps=1e-6), nn.RMSNorm(D, eps=1e-6)
        self.qkv, self.out = nn.Linear(C, 3 * H * D), nn.Linear(H * D, C)
        self.up_gate, self.down = nn.Linear(C, 2 * inner, bias=False), nn.Linear(inner, C)
        self.H, self.D = H, D

    @staticmethod
    def turn(x, f):
        a, b = x.reshape(*x.shape[:-1], -1, 2).unbind(-1)
        c, s = f.cos()[None, :, None], f.sin()[None, :, None]
        return torch.stack((a * c - b * s, a * s + b * c), -1).flatten(-2)

    def forward(self, x, f, mask):
        B, T, _ = x.shape
        q, k, v = self.qkv(self.n1(x)).view(B, T, self.H, 3, self.D).unbind(3)
        q, k = self.turn(self.qn(q), f).transpose(1, 2), self.turn(self.kn(k), f).transpose(1, 2)
        a = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(self.D))
        a = a.masked_fill(mask[:, :, :T, :T] == 0, float("-inf"))
        y = F.softmax(a, dim=-1) @ v.transpose(1, 2)
        x = x + self.out(y.transpose(1, 2).contiguous().view(B, T, -1))
        up, gate = self.up_gate(self.n2(x)).chunk(2, -1)
        return x + self.down(up * F.silu(gate))


class Odd(nn.Module):
    """Odd sizes, untied head, the loss alone, angles computed on the way."""

    def __init__(self, V=31, P=11, C=9, H=3, D=10, inner=7, theta=500000.0):
        super().__init__()
        self.emb, self.n, self.head = nn.Embedding(V, C), nn.RMSNorm(C, eps=1e-6), nn.Linear(C, V, bias=False)
        self.block, self.D, self.theta = OddBlock(C, H, D, inner), D, theta
        self.register_buffer("mask", torch.tril(torch.ones(P, P)).view(1, 1, P, P), persistent=False)

    def logits(self, ids):
        f = torch.outer(torch.arange(ids.shape[1]).float(),
                        1.0 / self.theta ** (torch.arange(0, self.D, 2).float() / self.D))
        return self.head(self.n(self.block(self.emb(ids), f, self.mask)))

    def forward(self, ids, targets):
        logits = self.logits(ids)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


class Conv1D(nn.Module):
    """[in, out], as GPT-2's files have it."""

    def __init__(self, i, o):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(i, o) * 0.3), nn.Parameter(torch.randn(o) * 0.1)

    def forward(self, x):
        return torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight).view(*x.shape[:-1], -1)


class Conv(nn.Module):
    """Weights [in, out], positions as a parameter, a fused weight that is cut by hand, matmul with a tied
    embedding; exported for several lengths."""

    def __init__(self, V=19, P=16, C=8, H=2):
        super().__init__()
        self.emb, self.pos = nn.Parameter(torch.randn(V, C) * 0.4), nn.Parameter(torch.randn(1, P, C) * 0.4)
        self.kv, self.q = nn.Linear(C, 2 * C), nn.Linear(C, C)
        self.proj, self.fc, self.fc2 = Conv1D(C, C), Conv1D(C, 3 * C), Conv1D(3 * C, C)
        self.n1, self.n2, self.H = nn.LayerNorm(C, eps=1e-6), nn.LayerNorm(C, eps=1e-6), H

    def forward(self, ids):
        B, T = ids.shape
        x = F.embedding(ids, self.emb) + self.pos[:, :T]
        h = self.n1(x)
        q, k = self.q(h), F.linear(h, self.kv.weight[:self.emb.size(1)], self.kv.bias[:self.emb.size(1)])
        v = F.linear(h, self.kv.weight[self.emb.size(1):], self.kv.bias[self.emb.size(1):])
        q, k, v = (t.unflatten(-1, (self.H, -1)).permute(0, 2, 1, 3) for t in (q, k, v))
        mask = torch.full((T, T), float("-inf"), device=ids.device).triu(1)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask).permute(0, 2, 1, 3).flatten(2)
        x = x + self.proj(y)
        x = x + self.fc2(F.gelu(self.fc(self.n2(x)), approximate="tanh"))
        return x @ self.emb.T

    logits = forward


class ActsBlock(nn.Module):
    def __init__(self, C, act):
        super().__init__()
        self.n1, self.n2, self.act = nn.LayerNorm(C), nn.LayerNorm(C), act
        self.qkv, self.out = nn.Linear(C, 3 * C), nn.Linear(C, C)
        self.up, self.down = nn.Linear(C, 2 * C), nn.Linear(2 * C, C)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (t.view(B, T, 2, C // 2).transpose(1, 2) for t in self.qkv(self.n1(x)).split(C, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, C)
        x = x + 0.22 * self.out(y)
        return x + self.down(self.act(self.up(self.n2(x)))) * 0.22


class Acts(nn.Module):
    """A block for each activation; an embedding scaled by a buffer of the state_dict, scaled residuals and
    logits."""

    def __init__(self, V=21, C=8):
        super().__init__()
        self.register_buffer("root", torch.tensor(C ** 0.5))
        self.emb, self.n, self.head = nn.Embedding(V, C), nn.LayerNorm(C), nn.Linear(C, V, bias=False)
        acts = nn.GELU(), F.relu, lambda x: F.relu(x).square(), lambda x: F.relu(x) ** 2, F.silu
        self.blocks = nn.ModuleList(ActsBlock(C, act) for act in acts)

    def forward(self, ids):
        x = self.emb(ids) * self.root
        for block in self.blocks:
            x = block(x)
        return self.head(self.n(x)) / 1.5

    logits = forward


class Hub(nn.Module):
    """A Llama as transformers builds it, with its own code for masks and positions."""

    def __init__(self, V=23):
        super().__init__()
        from transformers import LlamaConfig, LlamaForCausalLM
        self.model = LlamaForCausalLM(LlamaConfig(
            vocab_size=V, hidden_size=12, intermediate_size=20, num_hidden_layers=1, num_attention_heads=4,
            num_key_value_heads=2, head_dim=6, max_position_embeddings=12, attn_implementation="sdpa"))

    def forward(self, ids):
        return self.model(input_ids=ids, use_cache=False).logits

    logits = forward


class Bad(nn.Module):
    """An operator that atom does not have."""

    def __init__(self):
        super().__init__()
        self.e, self.h = nn.Embedding(7, 4), nn.Linear(4, 7)

    def forward(self, ids):
        x = torch.tanh(self.e(ids))
        return self.h(x)


class BadLast(nn.Module):
    """The logits of the last position alone, which is what nanoGPT gives where there are no targets."""

    def __init__(self, V=7, C=4):
        super().__init__()
        self.e, self.h = nn.Embedding(V, C), nn.Linear(C, V)

    def forward(self, ids):
        return self.h(self.e(ids)[:, [-1], :])


class BadGate(nn.Module):
    """A gate of exact GELU."""

    def __init__(self, V=7, C=4):
        super().__init__()
        self.e, self.g, self.h = nn.Embedding(V, C), nn.Linear(C, 2 * C), nn.Linear(C, V)

    def forward(self, ids):
        gate, up = self.g(self.e(ids)).chunk(2, -1)
        return self.h(F.gelu(gate) * up)


class BadMask(nn.Module):
    """PyTorch's own module of attention, which sees what comes."""

    def __init__(self, V=7, C=4):
        super().__init__()
        self.e, self.m, self.h = nn.Embedding(V, C), nn.MultiheadAttention(C, 2, batch_first=True), nn.Linear(C, V)

    def forward(self, ids):
        x = self.e(ids)
        return self.h(self.m(x, x, x, need_weights=False)[0])


class BadComplex(nn.Module):
    """Complex numbers that are no rotary embedding."""

    def __init__(self, V=7, C=4, P=5):
        super().__init__()
        self.e, self.h = nn.Embedding(V, C), nn.Linear(C, V)
        self.register_buffer("wave", torch.polar(torch.ones(P, C // 2), torch.ones(P, C // 2)), persistent=False)

    def forward(self, ids):
        x = torch.view_as_complex(self.e(ids).unflatten(-1, (-1, 2)))
        return self.h(torch.view_as_real(x + self.wave).flatten(2))


class Mha(nn.Module):
    """PyTorch's own module of attention: a mask of either kind, batch first or not, with weights and without."""

    def __init__(self, V=23, P=12, C=12, H=3):
        super().__init__()
        self.tok, self.pos, self.head = nn.Embedding(V, C), nn.Embedding(P, C), nn.Linear(C, V)
        self.first = nn.MultiheadAttention(C, H, dropout=0.1, batch_first=True)
        self.second = nn.MultiheadAttention(C, H, dropout=0.1, bias=False)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(P), persistent=False)

    def forward(self, ids):
        T = ids.shape[1]
        x = self.tok(ids) + self.pos(torch.arange(T))
        x = x + self.first(x, x, x, attn_mask=self.mask[:T, :T].to(x.dtype), need_weights=False, is_causal=True)[0]
        x = x.transpose(0, 1)
        y, _ = self.second(x, x, x, attn_mask=torch.ones(T, T, dtype=torch.bool).triu(1))
        return self.head((x + y).transpose(0, 1))

    logits = forward


class Encoder(nn.Module):
    """nn.TransformerEncoder as a decoder: norms before and after, batch first and second."""

    def __init__(self, V=23, P=12, C=8, H=2):
        super().__init__()
        self.tok, self.pos, self.head = nn.Embedding(V, C), nn.Embedding(P, C), nn.Linear(C, V)
        layer = nn.TransformerEncoderLayer(C, H, 12, activation="gelu", batch_first=True, norm_first=True)
        self.first = nn.TransformerEncoder(layer, 1, norm=nn.LayerNorm(C), enable_nested_tensor=False)
        self.second = nn.TransformerEncoderLayer(C, H, 12, activation="relu")
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(P), persistent=False)

    def forward(self, ids):
        T = ids.shape[1]
        mask = self.mask[:T, :T].to(self.head.weight.dtype)
        x = self.first(self.tok(ids) + self.pos.weight[:T], mask=mask, is_causal=False).transpose(0, 1)
        return self.head(self.second(x, src_mask=mask, is_causal=True).transpose(0, 1))

    logits = forward


class Cis(nn.Module):
    """Heads turned as complex numbers by a buffer, as Llama's authors wrote it, and by a table made on the way."""

    def __init__(self, V=29, P=12, C=10, H=4, K=1, D=6):
        super().__init__()
        self.tok, self.norm, self.output = nn.Embedding(V, C), RMS(C), nn.Linear(C, V, bias=False)
        self.wq, self.wk = nn.Linear(C, H * D, bias=False), nn.Linear(C, K * D, bias=False)
        self.wv, self.wo = nn.Linear(C, K * D, bias=False), nn.Linear(H * D, C, bias=False)
        self.qkv, self.out = nn.Linear(C, 3 * H * D), nn.Linear(H * D, C)
        self.H, self.K, self.D = H, K, D
        self.register_buffer("freqs_cis", self.angles(P), persistent=False)

    def angles(self, T):
        freqs = 1.0 / (10000.0 ** (torch.arange(0, self.D, 2)[:self.D // 2].float() / self.D))
        freqs = torch.outer(torch.arange(T, dtype=torch.float32), freqs)
        return torch.polar(torch.ones_like(freqs), freqs)

    @staticmethod
    def rotate(xq, xk, freqs_cis):
        wide = torch.float32 if xq.dtype == torch.float32 else torch.float64
        xq_ = torch.view_as_complex(xq.to(wide).reshape(*xq.shape[:-1], -1, 2))
        xk_ = torch.view_as_complex(xk.to(wide).reshape(*xk.shape[:-1], -1, 2))
        freqs_cis = freqs_cis.view(*[d if i in (1, xq_.ndim - 1) else 1 for i, d in enumerate(xq_.shape)])
        xq_out = torch.view_as_real(xq_ * freqs_cis).flatten(3)
        xk_out = torch.view_as_real(xk_ * freqs_cis).flatten(3)
        return xq_out.type_as(xq), xk_out.type_as(xk)

    def attend(self, xq, xk, xv):
        xq, xk, xv = (t.transpose(1, 2) for t in (xq, xk, xv))
        T = xq.shape[2]
        mask = torch.triu(torch.full((T, T), float("-inf")), diagonal=1).type_as(xq)
        scores = torch.matmul(xq, xk.transpose(2, 3)) / math.sqrt(self.D) + mask
        return torch.matmul(F.softmax(scores, dim=-1).type_as(xq), xv).transpose(1, 2).contiguous().flatten(2)

    def forward(self, ids):
        B, T = ids.shape
        x, H, K, D = self.tok(ids), self.H, self.K, self.D
        q, k = self.rotate(self.wq(x).view(B, T, H, D), self.wk(x).view(B, T, K, D), self.freqs_cis[:T])
        v = self.wv(x).view(B, T, K, D)
        k, v = (t[:, :, :, None, :].expand(B, T, K, H // K, D).reshape(B, T, H, D) for t in (k, v))
        x = x + self.wo(self.attend(q, k, v))
        q, k, v = (t.view(B, T, H, D) for t in self.qkv(self.norm(x)).chunk(3, -1))
        q, k = self.rotate(q, k, self.angles(T))
        return self.output(x + self.out(self.attend(q * 0.5, k, v)))

    logits = forward


def new_gelu(x):
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


class Caps(nn.Module):
    """Gates of GELU, GELU written out, scores and logits with soft caps, a scale of its own, scaled sums; the
    tokens are turned to [T, B]."""

    def __init__(self, V=23, P=12, C=8, H=2):
        super().__init__()
        self.tok, self.pos, self.head = nn.Embedding(V, C), nn.Embedding(P, C), nn.Linear(C, V, bias=False)
        self.qkv, self.out = nn.Linear(C, 3 * C), nn.Linear(C, C)
        self.gate, self.up, self.down = nn.Linear(C, 12), nn.Linear(C, 12), nn.Linear(12, C)
        self.fc, self.proj, self.H = nn.Linear(C, 12), nn.Linear(12, C), H

    def logits(self, ids):
        T = ids.shape[1]
        x = self.tok(ids.t()) + self.pos(torch.arange(T)).unsqueeze(1)
        x = (x * math.sqrt(x.shape[-1])).transpose(0, 1)
        q, k, v = (t.unflatten(-1, (self.H, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        a = 4.0 * torch.tanh(q @ k.transpose(-2, -1) * 0.3 / 4.0)
        a = a.masked_fill(torch.ones(T, T, dtype=torch.bool).triu(1), float("-inf"))
        x = x + 0.5 * self.out((a.softmax(-1) @ v).transpose(1, 2).flatten(2))
        x = x + self.down(F.gelu(self.gate(x), approximate="tanh") * self.up(x))
        x = x + self.proj(new_gelu(self.fc(x)))
        return 2.0 * torch.tanh(self.head(x) / 2.0)

    def forward(self, ids, targets):
        return F.cross_entropy(self.logits(ids).transpose(1, 2), targets)


class BadOrder(nn.Module):
    """A sum of rows of different places, which fit where there are as many sequences as places."""

    def __init__(self, V=7, C=4):
        super().__init__()
        self.e, self.h = nn.Embedding(V, C), nn.Linear(C, V)

    def forward(self, ids):
        x = self.e(ids)
        return self.h(x + x.transpose(0, 1))


def export(model, args, path, dynamic=None):
    """As anybody does, but that the traces name no folder of this machine."""
    exported = torch.export.export(model, args, dynamic_shapes=dynamic)
    for node in exported.graph.nodes:
        trace = node.meta.get("stack_trace")
        if trace:
            trace = re.sub(r'File "[^"]*/site-packages/', 'File "site-packages/', trace)
            node.meta["stack_trace"] = re.sub(r'File "/[^"]*/', 'File "', trace)
    torch.export.save(exported, path)


def write(path, tensors, metadata):
    header, at, data = {"__metadata__": metadata}, 0, b""
    for name, t in sorted(tensors.items(), key=lambda item: item[0]):
        raw = t.contiguous().numpy().tobytes()
        header[name] = {"dtype": {torch.float32: "F32", torch.int32: "I32"}[t.dtype], "shape": list(t.shape),
                        "data_offsets": [at, at + len(raw)]}
        at, data = at + len(raw), data + raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + data)


def record(name, model, T, B=2):
    generator = torch.Generator().manual_seed(7)
    model = model.double().eval()
    V = model.logits(torch.zeros(1, 2, dtype=torch.long)).shape[-1]
    ids, targets = (torch.randint(0, V, (B, T), generator=generator) for _ in range(2))
    logits = model.logits(ids)
    loss = F.cross_entropy(logits.reshape(-1, V), targets.reshape(-1))
    loss.backward()
    tensors = {"tokens": ids.int(), "targets": targets.int(), "logits": logits.detach().float()}
    for key, p in model.named_parameters(remove_duplicate=False):
        tensors["grad." + key] = p.grad.float()
    write(os.path.join(HERE, "fixtures", name + ".safetensors"), tensors,
          {"torch": torch.__version__, "loss": repr(loss.item())})


def shake(model):
    """Norms that are not ones, biases that are not zeros."""
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.1)
    return model


def main():
    only = sys.argv[1:]
    os.makedirs(os.path.join(HERE, "fixtures"), exist_ok=True)
    torch.manual_seed(3)
    for name, model, T, targets in (
            ("nano", Nano().train(), 10, True), ("llama", Llama(), 12, False), ("odd", Odd(), 11, True),
            ("conv", Conv(), 6, False), ("bad", Bad(), 5, False), ("bad-gate", BadGate(), 5, False),
            ("bad-mask", BadMask(), 5, False), ("bad-last", BadLast(), 5, False), ("bad-complex", BadComplex(), 5, False),
            ("bad-order", BadOrder(), 2, False),
            ("acts", Acts(), 9, False), ("bare", Nano(bias=False).train(), 10, True), ("mha", Mha().train(), 10, False),
            ("encoder", Encoder().train(), 10, False), ("cis", Cis(), 12, False), ("caps", Caps(), 9, True), ("hub", None, 10, False)):
        if only and name not in only:
            continue
        model = model or Hub()
        shake(model)
        args = tuple(torch.zeros(2, T, dtype=torch.long) for _ in range(2 if targets else 1))
        dynamic = ({1: torch.export.Dim("T", min=2, max=16)},) if name == "conv" else None
        export(model, args, os.path.join(HERE, "fixtures", name + ".pt2"), dynamic)
        if not name.startswith("bad"):
            record(name, model, T)


if __name__ == "__main__":
    main()
