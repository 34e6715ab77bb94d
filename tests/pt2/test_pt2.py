#!/usr/bin/python3
"""atom on models that torch.export wrote: trained, swapped, resumed, inspected, refused. No torch here.

  test_pt2.py ATOM FIXTURES
"""
import array
import json
import os
import random
import re
import struct
import subprocess
import sys
import tempfile
import zipfile

atom, fixtures = sys.argv[1:3]


def run(*args, code=0):
    done = subprocess.run([atom, *args], capture_output=True, text=True, timeout=200)
    if done.returncode != code:
        sys.exit(f"{args} ended with {done.returncode}, not {code}:\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def tensors(path):
    """Of a safetensors file: name -> (type, shape, bytes)."""
    with open(path, "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    return {name: (t["dtype"], t["shape"], data[slice(*t["data_offsets"])])
            for name, t in header.items() if name != "__metadata__"}


TYPES = {5: "I64", 6: "F16", 7: "F32", 8: "F64", 10: "C64", 12: "BOOL", 13: "BF16"}


def archive(path):
    """The entries of a .pt2, and the names of its program's, weights' and constants' JSON."""
    with zipfile.ZipFile(path) as z:
        entries = {name: z.read(name) for name in z.namelist()}
    return entries, [next(name for name in entries if re.search(end, name)) for end in
                     (r"models/[^/]*\.json$", r"_weights_config\.json$", r"_constants_config\.json$")]


def state_dict(path):
    """What model.state_dict() was: name -> (type, shape, bytes), and which of them are buffers."""
    entries, (_, weights, _) = archive(path)
    rows = json.loads(entries[weights])["config"]
    return {name: (TYPES[row["tensor_meta"]["dtype"]], [size["as_int"] for size in row["tensor_meta"]["sizes"]],
                   entries[os.path.join(os.path.dirname(weights), row["path_name"])])
            for name, row in rows.items()}, {name for name, row in rows.items() if not row["is_param"]}


def keep(source, target):
    """The same export as if its buffers had been registered without persistent=False."""
    entries, (program, weights, constants) = archive(source)
    said = {name: json.loads(entries[name]) for name in (program, weights, constants)}
    for spec in said[program]["graph_module"]["signature"]["input_specs"]:
        if "buffer" in spec:
            spec["buffer"]["persistent"] = True
            name = spec["buffer"]["buffer_name"]
            row = said[constants]["config"].pop(name)
            data = entries.pop(os.path.join(os.path.dirname(constants), row["path_name"]))
            row["path_name"] = "kept_" + row["path_name"]
            said[weights]["config"][name] = row
            entries[os.path.join(os.path.dirname(weights), row["path_name"])] = data
    entries.update((name, json.dumps(it)) for name, it in said.items())
    with zipfile.ZipFile(target, "w") as z:
        for name, data in entries.items():
            z.writestr(name, data)


def check_state(folder, model, what):
    """The names, types and shapes of the user's state_dict; its buffers to the bit."""
    state, buffers = state_dict(model)
    written = {}
    for name in os.listdir(folder):
        if name.startswith("model") and name.endswith(".safetensors"):
            written.update(tensors(os.path.join(folder, name)))
    check({name: t[:2] for name, t in written.items()} == {name: t[:2] for name, t in state.items()},
          f"{what}: other tensors than state_dict has: {sorted(written.keys() ^ state.keys())}")
    check(all(written[name] == state[name] for name in buffers), f"{what}: a buffer has other bytes")
    return buffers


def same(a, b):
    with open(a, "rb") as x, open(b, "rb") as y:
        return x.read() == y.read()


def check(fact, text):
    if not fact:
        sys.exit(text)


def make_data(folder):
    order = random.Random(5)
    motif = [order.randrange(19) for _ in range(13)]
    os.makedirs(folder)
    for name, times in (("train.bin", 400), ("val.bin", 40)):
        with open(os.path.join(folder, name), "wb") as out:
            array.array("H", motif * times).tofile(out)


def losses(folder):
    with open(os.path.join(folder, "metrics.jsonl")) as lines:
        found = [json.loads(line) for line in lines]
    return [m["loss"] for m in found if "loss" in m]


def train(model, data, out, steps, *more, code=0):
    return run("train", "--model", model, "--data", data, "--output-dir", out, "--device", "cpu", "--dtype", "fp32",
        "--micro-batch-size", "2", "--gradient-accumulation-steps", "2", "--sequence-len", "6",
        "--learning-rate", "1e-2", "--eval-steps", "0", "--max-steps", str(steps), "--save-steps", "4", *more, code=code)


def check_swapped(name, model, data, out, whole):
    """With the least memory that the refusal of less names, the same bits."""
    least = re.search(r"at least .*?\((\d+) bytes\)", train(model, data, out, 8, "--device-memory", "64KiB", code=4))
    train(model, data, out, 8, "--device-memory", least.group(1))
    check(same(os.path.join(whole, "checkpoint-8", "model.safetensors"),
               os.path.join(out, "checkpoint-8", "model.safetensors")), f"{name}: swapped, the weights are others")


def one(name, model, work, data):
    whole, swapped = os.path.join(work, name), os.path.join(work, name + "-swapped")
    said = run("inspect", model, "--json").splitlines()
    check(len(said) == 1, f"{name}: inspect warns: {said}")
    info = json.loads(said[0])
    check(info["has_weights"] and info["config"]["model_type"] == "atom_graph", f"{name}: inspect says {info}")
    train(model, data, whole, 8)
    check_swapped(name, model, data, swapped, whole)
    loss = losses(whole)
    check(loss[-1] < loss[0], f"{name}: does not learn: {loss}")
    last = os.path.join(whole, "checkpoint-8")
    buffers = check_state(last, model, name)
    # Resumed from a directory that knows nothing of the .pt2, in another process.
    os.rename(os.path.join(whole, "checkpoint-8"), os.path.join(work, name + "-8"))
    train(os.path.join(whole, "checkpoint-4"), data, whole, 8, "--resume-from-checkpoint",
          os.path.join(whole, "checkpoint-4"))
    check(same(os.path.join(last, "model.safetensors"), os.path.join(work, name + "-8", "model.safetensors")),
          f"{name}: resumed, the weights are others")
    run("eval", "--model", last, "--data", data, "--sequence-len", "6", "--device", "cpu")
    copy = os.path.join(work, name + "-copy")
    run("export", "--model", last, "--output", copy, "--to", "hf")
    check_state(copy, model, f"{name}, exported")
    profile, plan = os.path.join(work, name + ".profile"), os.path.join(work, name + ".plan")
    run("profile", "--model", model, "--device", "cpu", "--micro-batch-size", "2", "--sequence-len", "6", "--dtype",
        "fp32", "-o", profile)
    run("plan", "--profile", profile, "-o", plan, "--gradient-accumulation-steps", "2")
    return buffers


def main():
    with tempfile.TemporaryDirectory() as work:
        data = os.path.join(work, "data")
        make_data(data)
        for name in ("acts", "nano", "bare", "llama", "conv", "mha", "encoder", "cis", "caps", "hub"):
            buffers = one(name, os.path.join(fixtures, name + ".pt2"), work, data)
            check(buffers == ({"root"} if name == "acts" else set()), f"{name}: buffers {buffers}")
        for name, wants in (("llama", {"cos", "sin"}), ("mha", {"mask"}), ("cis", {"freqs_cis"})):
            model = os.path.join(work, name + "-kept.pt2")
            keep(os.path.join(fixtures, name + ".pt2"), model)
            check(one(name + "-kept", model, work, data) == wants, f"{name}: other buffers than {wants}")
        bad = run("inspect", os.path.join(fixtures, "bad.pt2"), code=2)
        check("aten.tanh.default" in bad and "make_fixtures.py:" in bad and "torch.tanh(self.e(ids))" in bad,
              "the refusal does not name operator and line: " + bad)
        check('F.gelu(x, approximate="tanh")' in bad, "it does not say what to write instead: " + bad)
        for name, words in (("gate", ["aten.mul.Tensor", "F.gelu(gate) * up", 'approximate="tanh"']),
                            ("mask", ["aten.scaled_dot_product_attention.default", "make_fixtures.py:", "causal"]),
                            ("order", ["aten.add.Tensor", "x + x.transpose(0, 1)", "different places"]),
                            ("last", ["aten.index.Tensor", "torch.export.export(model, (ids, ids.clone()))"]),
                            ("complex", ["aten.add.Tensor", "x + self.wave", "torch.view_as_complex(x) * freqs_cis"])):
            bad = run("inspect", os.path.join(fixtures, f"bad-{name}.pt2"), code=2)
            check(all(word in bad for word in words), f"{name}: the refusal is {bad}")
        too_long = run("train", "--model", os.path.join(fixtures, "llama.pt2"), "--data", data, "--output-dir",
                       os.path.join(work, "long"), "--sequence-len", "13", "--device", "cpu", code=2)
        check("12 positions" in too_long, too_long)


main()
