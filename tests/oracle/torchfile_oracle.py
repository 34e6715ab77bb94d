#!/usr/bin/env python3
"""pytorch_model.bin, as torch.save and transformers write it, against the same model as safetensors.

  torchfile_oracle.py ATOM     ATOM: the program

Small GPT-2 and Llama models in three dtypes: one file, shards with an index, files of the time before PyTorch
1.6, Parameters, tied weights, storages of which a tensor is a part. What `atom export` makes of each must be
that of model.safetensors, byte for byte. What is no plain state_dict is refused with exit code 2 or 3 and a
message that names what it is; nothing in a pickle is ever run. Exit 77: a library is not installed.
"""
import collections
import filecmp
import json
import os
import shutil
import subprocess
import sys
import tempfile

try:
    import torch
    from safetensors.torch import save_file
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

atom = os.path.abspath(sys.argv[1])


def run(*args, code=0):
    done = subprocess.run([atom, *args], capture_output=True, text=True, timeout=60)
    if done.returncode != code:
        sys.exit(f"{args} ended with {done.returncode}, not {code}:\n{done.stdout}{done.stderr}")
    return done.stderr


def beside(config, name, state, **how):
    """A directory `name` with the config.json of another, and this state in pytorch_model.bin."""
    os.makedirs(name)
    shutil.copy(os.path.join(config, "config.json"), name)
    torch.save(state, os.path.join(name, "pytorch_model.bin"), **how)


def same(source, name):
    for out in ("a", "b"):
        shutil.rmtree(out, ignore_errors=True)
    run("export", "--model", source, "--to", "hf", "--output", "a")
    run("export", "--model", name, "--to", "hf", "--output", "b")
    if not filecmp.cmp("a/model.safetensors", "b/model.safetensors", shallow=False):
        sys.exit(f"{name}: other weights than {source}")


def check_taken(family, model, dtype):
    source, old = f"{family}-{dtype}", dict(_use_new_zipfile_serialization=False)
    model = model.to(dtype)
    model.save_pretrained(source)
    model.save_pretrained(source + "-bin", safe_serialization=False)
    model.save_pretrained(source + "-shards", safe_serialization=False, max_shard_size="5KB")
    assert os.path.exists(source + "-shards/pytorch_model.bin.index.json")
    state = model.state_dict()
    beside(source, source + "-old", state, **old)
    beside(source, source + "-dict", dict(state))
    for protocol in (3, 4, 5):
        beside(source, f"{source}-protocol{protocol}", state, pickle_protocol=protocol)
    beside(source, source + "-parameters",
           collections.OrderedDict((k, torch.nn.Parameter(v)) for k, v in state.items()), **old)
    whole = torch.cat([v.flatten() for v in state.values()])  # one storage for all
    parts, at = {}, 0
    for key, v in state.items():
        parts[key], at = whole[at:at + v.numel()].view(v.shape), at + v.numel()
    beside(source, source + "-parts", parts)
    beside(source, source + "-old-parts", parts, **old)
    for kind in ("bin", "shards", "old", "dict", "protocol3", "protocol4", "protocol5", "parameters", "parts", "old-parts"):
        same(source, f"{source}-{kind}")


def check_adapter(source):
    """adapter_model.bin, too."""
    config = {"peft_type": "LORA", "base_model_name_or_path": os.path.abspath(source), "r": 2, "lora_alpha": 4,
              "target_modules": ["q_proj"]}
    tensors = {f"base_model.model.model.layers.{i}.self_attn.q_proj.lora_{m}.weight": torch.randn(*size)
               for i in range(2) for m, size in (("A", (2, 16)), ("B", (16, 2)))}
    for name in ("adapter", "adapter-bin"):
        os.makedirs(name)
        with open(os.path.join(name, "adapter_config.json"), "w", encoding="utf-8") as f:
            json.dump(config, f)
    save_file(tensors, "adapter/adapter_model.safetensors", {"format": "pt"})
    torch.save(tensors, "adapter-bin/adapter_model.bin")
    same("adapter", "adapter-bin")
    assert not filecmp.cmp("a/model.safetensors", os.path.join(source, "model.safetensors"), shallow=False)


class Evil:
    def __reduce__(self):
        return os.mkdir, ("ran",)


def check_refused(source, model):
    state, first = model.state_dict(), "model.layers.0.mlp.up_proj.weight"
    one = state[first]
    cases = {
        "a dict": ({"model": state, "step": 3}, 2, ["'model' is a dict", "model.state_dict()"]),
        "a number": ({**state, "step": 3}, 2, ["'step' is a number"]),
        "a list": ([one], 2, ["contains a list"]),
        "evil": ({**state, "x": Evil()}, 2, ["names posix.mkdir", "tensors from pickles"]),
        "the model": (model, 2, ["names transformers.models.llama"]),
        "strided": ({**state, first: one.t().contiguous().t()}, 2, [first, "contiguous()"]),
        "expanded": ({**state, first: one[:1].expand_as(one)}, 2, [first, "contiguous()"]),
        "whole numbers": ({**state, first: one.to(torch.int8)}, 3, [first, "I8"]),
        "wide": ({**state, first: one.double()}, 3, [first, "F64"]),
        "missing": ({k: v for k, v in state.items() if k != first}, 3, ["missing", first[6:]]),
        "another shape": ({**state, first: one[:-1].clone()}, 3, [first, "config.json says"]),
        "sparse": ({**state, first: one.to_sparse()}, 2, ["names torch._utils._rebuild_sparse_tensor"]),
    }
    for name, (what, code, says) in cases.items():
        for old in (False, True):
            shutil.rmtree("bad", ignore_errors=True)
            beside(source, "bad", what, _use_new_zipfile_serialization=not old)
            said = run("export", "--model", "bad", "--to", "hf", "--output", "never", code=code)
            for word in ["bad", *says]:
                if word not in said:
                    sys.exit(f"{name}: the refusal does not say '{word}': {said}")
    assert not os.path.exists("ran") and not os.path.exists("never")
    for old in (False, True):
        shutil.rmtree("bad")
        beside(source, "bad", state, _use_new_zipfile_serialization=not old)
        with open("bad/pytorch_model.bin", "r+b") as f:
            f.truncate(os.path.getsize(f.name) - 300)
        run("export", "--model", "bad", "--to", "hf", "--output", "never", code=3)
    with open(source + "-shards/pytorch_model.bin.index.json", encoding="utf-8") as f:
        index = json.load(f)
    index["weight_map"][first] = "../pytorch_model.bin"
    with open(source + "-shards/pytorch_model.bin.index.json", "w", encoding="utf-8") as f:
        json.dump(index, f)
    assert "plain name" in run("export", "--model", source + "-shards", "--to", "hf", "--output", "never", code=3)


def main():
    torch.manual_seed(1)
    llama = LlamaForCausalLM(LlamaConfig(vocab_size=29, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
                                         num_attention_heads=4, num_key_value_heads=2))
    gpt2 = GPT2LMHeadModel(GPT2Config(vocab_size=23, n_positions=16, n_embd=12, n_layer=2, n_head=2))
    with tempfile.TemporaryDirectory() as work:
        os.chdir(work)
        for dtype in (torch.float16, torch.bfloat16, torch.float32):
            check_taken("gpt2", gpt2, dtype)
            check_taken("llama", llama, dtype)
        check_adapter("llama-torch.float32")
        check_refused("llama-torch.float32", llama)
        os.chdir("/")
    print("55 files as their safetensors, 27 refused")


main()
