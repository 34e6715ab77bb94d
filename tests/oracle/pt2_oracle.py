#!/usr/bin/env python3
"""A model that torch.export wrote, trained by atom, back in PyTorch as the guide says.

  pt2_oracle.py ATOM     ATOM: the program

tests/pt2/fixtures/acts.pt2 has a buffer in its state_dict: load_state_dict must take the checkpoint as it is, and the
model must then have that buffer and the loss that `atom eval` says. Exit 77: a library is not installed.
"""
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "pt2"))
try:
    import torch
    from safetensors.torch import load_file
    from make_fixtures import Acts
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

atom = os.path.abspath(sys.argv[1])
T = 8


def attention(q, k, v, is_causal):
    """What PyTorch 1.13 does not have."""
    assert is_causal
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    hidden = torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool).triu(1)
    return scores.masked_fill(hidden, float("-inf")).softmax(-1) @ v


torch.nn.functional.scaled_dot_product_attention = attention


def run(*args):
    done = subprocess.run([atom, *args], capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        sys.exit(f"{args}: {done.stdout}{done.stderr}")
    return done


def main():
    stream = torch.randint(0, 21, (40 * T + 1,), generator=torch.Generator().manual_seed(4))
    with tempfile.TemporaryDirectory() as work:
        os.chdir(work)
        os.mkdir("data")
        for name in ("train.bin", "val.bin"):
            with open(os.path.join("data", name), "wb") as f:
                f.write(stream.short().numpy().tobytes())
        told = run("train", "--model", os.path.join(HERE, "..", "pt2", "fixtures", "acts.pt2"), "--data", "data",
                   "--output-dir", "run", "--device", "cpu", "--dtype", "fp32", "--micro-batch-size", "2",
                   "--sequence-len", str(T), "--learning-rate", "1e-2", "--max-steps", "20", "--eval-steps", "0").stderr
        assert "root" not in told, told
        model = Acts()
        root = model.root.clone()
        model.root.zero_()
        model.load_state_dict(load_file("run/checkpoint-20/model.safetensors"))
        assert torch.equal(model.root, root), (model.root, root)
        with torch.no_grad():
            logits = model.double()(stream[:-1].view(-1, T))
            loss = torch.nn.functional.cross_entropy(logits.view(-1, 21), stream[1:]).item()
        said = json.loads(run("eval", "--model", "run/checkpoint-20", "--data", "data", "--sequence-len", str(T),
                              "--device", "cpu", "--dtype", "fp32", "--json").stdout)
        os.chdir("/")
    assert abs(said["loss"] - loss) < 1e-5 * loss, (said, loss)
    print(f"back in PyTorch: loss {loss:.6f}, atom says {said['loss']:.6f}")


main()
