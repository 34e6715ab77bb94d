"""What the tests of models that torch.export wrote share: the program, files of weights, and .pt2 files that are changed.

The script that imports it is called with the program and the folder of fixtures.
"""
import array
import json
import os
import random
import re
import struct
import subprocess
import sys
import zipfile

atom, fixtures, *models = sys.argv[1:]


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


def unread(weights, entries, name, dtype, sizes, data):
    """One more row of the state_dict that the program does not read; data: bytes, or whose entry it shares."""
    folder = os.path.dirname(weights)
    strides = [1] * len(sizes)
    for i in reversed(range(len(sizes) - 1)):
        strides[i] = strides[i + 1] * sizes[i + 1]
    if isinstance(data, bytes):
        entries[os.path.join(folder, "unread_" + name)] = data
        data = "unread_" + name
    return {"path_name": data, "is_param": False, "use_pickle": False, "tensor_meta": {
        "dtype": dtype, "sizes": [{"as_int": n} for n in sizes], "strides": [{"as_int": n} for n in strides],
        "storage_offset": {"as_int": 0}}}


def keep(source, target, more=(), change=None):
    """The same export as if its buffers had been registered without persistent=False. more: (name, type, sizes, data) of
    buffers that the program does not read; change(program, weights): what else."""
    entries, (program, weights, constants) = archive(source)
    said = {name: json.loads(entries[name]) for name in (program, weights, constants)}
    for name, *row in more:
        said[weights]["config"][name] = unread(weights, entries, name, *row)
    if change:
        change(said[program], said[weights]["config"])
    for spec in said[program]["graph_module"]["signature"]["input_specs"]:
        name = spec.get("buffer", {}).get("buffer_name")
        if name in said[constants]["config"]:
            spec["buffer"]["persistent"] = True
            row = said[constants]["config"].pop(name)
            data = entries.pop(os.path.join(os.path.dirname(constants), row["path_name"]))
            row["path_name"] = "kept_" + row["path_name"]
            said[weights]["config"][name] = row
            entries[os.path.join(os.path.dirname(weights), row["path_name"])] = data
    entries.update((name, json.dumps(it)) for name, it in said.items())
    with zipfile.ZipFile(target, "w") as z:
        for name, data in entries.items():
            z.writestr(name, data)


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


def command(data, out, steps):
    return ["--data", data, "--output-dir", out, "--device", "cpu", "--dtype", "fp32", "--micro-batch-size", "2",
            "--gradient-accumulation-steps", "2", "--sequence-len", "6", "--learning-rate", "1e-2", "--eval-steps", "0",
            "--max-steps", str(steps)]


def train(model, data, out, steps, *more, code=0):
    return run("train", "--model", model, *command(data, out, steps), "--save-steps", "4", *more, code=code)
