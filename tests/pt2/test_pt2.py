#!/usr/bin/python3
"""atom on models that torch.export wrote: trained, swapped, resumed, inspected, refused. No torch here.

  test_pt2.py ATOM FIXTURES MODEL...     the models to train as they are, of FIXTURES
"""
import json
import os
import re
import struct
import subprocess
import tempfile
import time

from pt2_tool import atom, fixtures, models, run, tensors, state_dict, keep, same, check, make_data, losses, command, train


def check_state(folder, model, what, stored=None):
    """The names, types and shapes of the user's state_dict; its buffers to the bit. stored: the type of parameters."""
    state, buffers = state_dict(model)
    written = {}
    for name in os.listdir(folder):
        if name.startswith("model") and name.endswith(".safetensors"):
            written.update(tensors(os.path.join(folder, name)))
    wants = {name: (t[0] if name in buffers else stored or t[0], t[1]) for name, t in state.items()}
    check({name: t[:2] for name, t in written.items()} == wants,
          f"{what}: other tensors than state_dict has: {sorted(written.keys() ^ state.keys())}")
    check(all(written[name] == state[name] for name in buffers), f"{what}: a buffer has other bytes")
    return buffers


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


SPECIAL = [("masks.a", 12, [2, 3], bytes([1, 0, 1, 1, 0, 1])), ("masks.steps", 5, [], struct.pack("<q", -7)),
           ("z.half", 6, [3], b"\x01\x7e\x00\xfc\x00\x00"), ("z.brain", 13, [1, 2], b"\xc0\x7f\x01\x00"),
           ("a.wide", 8, [2], struct.pack("<dd", 0.1, -0.0)), ("a.nan", 7, [1], b"\x01\x00\xa0\x7f")]


def write_tensors(path, rows):
    at, header, data = 0, {}, b""
    for name, (dtype, shape, some) in sorted(rows.items(), key=lambda row: (-len(row[1][2]) % 8, row)):
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(some)]}
        at += len(some)
        data += some
    head = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(head)) + head + data)


def check_all_types(work, data):
    """Buffers of every type that nothing reads; rounded weights, shards; files that lack one, or have another."""
    model, out = os.path.join(work, "types.pt2"), os.path.join(work, "types")
    keep(os.path.join(fixtures, "cis.pt2"), model, SPECIAL)
    train(model, data, out, 4, "--save-dtype", "bf16")
    last = os.path.join(out, "checkpoint-4")
    buffers = check_state(last, model, "types", "BF16")
    check(buffers == {"freqs_cis"} | {row[0] for row in SPECIAL}, f"types: buffers {buffers}")
    shards = os.path.join(work, "types-shards")
    run("export", "--model", last, "--output", shards, "--to", "hf", "--max-shard-size", "100", "--dtype", "fp32")
    check(len(os.listdir(shards)) > 6, f"no shards: {os.listdir(shards)}")
    check_state(shards, model, "types, in shards")
    for name in os.listdir(shards):
        rows = tensors(os.path.join(shards, name)) if name.endswith(".safetensors") else {}
        check(len(rows) == 1 or sum(len(t[2]) for t in rows.values()) <= 100, f"{name} is too large")
    with open(os.path.join(shards, "model.safetensors.index.json")) as f:
        check(json.load(f)["weight_map"].keys() == state_dict(model)[0].keys(), "the index has other names")
    run("eval", "--model", shards, "--data", data, "--sequence-len", "6", "--device", "cpu")
    one_file = os.path.join(last, "model.safetensors")
    rows = tensors(one_file)
    for what, row in (("missing", None), ("another type or shape", ("I64", [1], bytes(8)))):
        write_tensors(one_file, {**{n: t for n, t in rows.items() if n != "masks.steps"},
                                 **({"masks.steps": row} if row else {})})
        said = run("inspect", last, code=3)
        check("masks.steps" in said and what in said, f"{what}: {said}")
    os.remove(one_file)
    said = run("inspect", os.path.join(last, "config.json"), code=2)
    check("buffers.safetensors" in said and "a.nan" in said, said)
    # With the directory as the model its buffer is what counts; with the export it is another one.
    train(model, data, out + "-fp32", 4)
    last = os.path.join(out + "-fp32", "checkpoint-4")
    rows = tensors(os.path.join(last, "model.safetensors"))
    write_tensors(os.path.join(last, "model.safetensors"), {**rows, "masks.steps": ("I64", [], bytes(8))})
    run("eval", "--model", last, "--data", data, "--sequence-len", "6", "--device", "cpu")
    said = train(model, data, out + "-fp32", 8, "--resume-from-checkpoint", "auto", code=3)
    check("masks.steps" in said and "another model" in said, said)


def check_shares(work, data):
    """A tied name that the program does not read, and what cannot be kept as it is."""
    model, out = os.path.join(work, "shares.pt2"), os.path.join(work, "shares")

    def untie(program, _):
        module = program["graph_module"]
        module["signature"]["input_specs"] = [it for it in module["signature"]["input_specs"]
                                              if it.get("parameter", {}).get("parameter_name") != "lm_head.weight"]
        module["graph"] = json.loads(json.dumps(module["graph"]).replace(
            '"p_lm_head_weight"', '"p_transformer_wte_weight"'))

    keep(os.path.join(fixtures, "nano.pt2"), model, change=untie)
    train(model, data, out, 4)
    check_state(os.path.join(out, "checkpoint-4"), model, "shares")
    last = os.path.join(out, "checkpoint-4")
    measure = ["eval", "--model", last, "--data", data, "--sequence-len", "6", "--device", "cpu", "--dtype"]
    for dtype in "bf16", "fp32":  # rounded as they are read, the two are still the same
        run(*measure, dtype)
    rows = tensors(os.path.join(last, "model.safetensors"))
    kind, shape, numbers = rows["lm_head.weight"]
    check(numbers == rows["transformer.wte.weight"][2], "the two names are not of one weight")
    write_tensors(os.path.join(last, "model.safetensors"),
                  {**rows, "lm_head.weight": (kind, shape, struct.pack("<f", 3.5) + numbers[4:])})
    for dtype in "bf16", "fp32":
        said = run(*measure, dtype, code=2)
        check("another name of the same weights" in said, said)

    def mutated(program, _):
        program["graph_module"]["signature"]["output_specs"].insert(
            0, {"buffer_mutation": {"arg": {"name": "new"}, "buffer_name": "mask"}})

    def in_place(program, _):
        program["graph_module"]["graph"]["nodes"].insert(0, {
            "target": "torch.ops.aten.add_.Tensor", "metadata": {}, "outputs": [{"as_tensor": {"name": "added"}}],
            "inputs": [{"name": "self", "arg": {"as_tensor": {"name": "b_mask"}}}, {"name": "other", "arg": {"as_int": 0}}]})

    def second(program, rows):
        program["graph_module"]["signature"]["input_specs"].append(
            {"buffer": {"arg": {"name": "b_again"}, "buffer_name": "again", "persistent": True}})
        rows["again"] = {**rows["first.out_proj.bias"], "is_param": False}

    eight = bytes(8 << 20)
    large = [("b0", 7, [2 << 20], eight)] + [(f"b{i}", 7, [2 << 20], "unread_b0") for i in range(1, 33)]
    for what, more, change, words in (
            ("changed", (), mutated, ["'mask'", "changed in forward"]),
            ("changed in place", (), in_place, ["'mask'", "changed in forward"]),
            ("a parameter", (), second, ["'again'", "is the parameter 'first.out_proj.bias'", "clone()"]),
            ("complex128", [("c", 11, [1], bytes(16))], None, ["'c'", "complex64"]),
            ("a name", [("n" * 256, 12, [1], b"1")], None, ["nnn", "255"]),
            ("too large", large, None, ["256 MiB", "buffers", "persistent=False"])):
        keep(os.path.join(fixtures, "mha.pt2"), model, more, change)
        said = run("inspect", model, code=2)
        check(all(word in said for word in words), f"{what}: the refusal is {said}")


def check_default_eps(work, data):
    """nn.RMSNorm(C) without eps has that of the numbers it norms, torch.finfo(torch.float32).eps = 2 ** -23."""
    made = {}
    for name, eps in (("left-out", None), ("none", {"as_none": True}), ("said", {"as_float": 2 ** -23}),
                      ("half", {"as_float": 2 ** -24}), ("twice", {"as_float": 2 ** -22})):
        model, out = os.path.join(work, f"eps-{name}.pt2"), os.path.join(work, "eps-" + name)

        def change(program, _, eps=eps):
            norms = [node for node in program["graph_module"]["graph"]["nodes"] if "rms_norm" in node["target"]]
            check(len(norms) == 5, "odd.pt2 has other norms")
            for node in norms:
                rest = [one for one in node["inputs"] if one["name"] != "eps"]
                node["inputs"] = rest + ([{"name": "eps", "arg": eps, "kind": 1}] if eps else [])

        keep(os.path.join(fixtures, "odd.pt2"), model, change=change)
        train(model, data, out, 4)
        with open(os.path.join(out, "checkpoint-4", "model.safetensors"), "rb") as f:
            made[name] = f.read()
    check(made["left-out"] == made["none"] == made["said"], "the default eps of an RMS norm is not 2 ** -23")
    check(made["said"] not in (made["half"], made["twice"]), "an RMS norm's eps is not used")


def check_ignored(work):
    """An ignore_index that is a token would leave it unlearned; another one says nothing."""
    for index, code in ((-100, 0), (-1, 0), (10**6, 0), (0, 2), (3, 2)):
        def change(program, _, index=index):
            [node] = [node for node in program["graph_module"]["graph"]["nodes"] if "cross_entropy" in node["target"]]
            [ignored] = [one for one in node["inputs"] if one["name"] == "ignore_index"]
            ignored["arg"] = {"as_int": index}

        model = os.path.join(work, "ignored.pt2")
        keep(os.path.join(fixtures, "nano.pt2"), model, change=change)
        said = run("inspect", model, code=code)
        check(code == 0 or f"ignore_index={index} the token" in said, said)


def check_frozen(work):
    """Parameters that are not to be trained would be; where none is, the export was made so."""
    for frozen, code in ((r"^$", 0), (r"wpe", 2), (r"", 0)):
        def change(_, rows, frozen=frozen):
            for name, row in rows.items():
                row["tensor_meta"]["requires_grad"] = not re.search(frozen, name)

        model = os.path.join(work, "frozen.pt2")
        keep(os.path.join(fixtures, "nano.pt2"), model, change=change)
        said = run("inspect", model, code=code)
        check(code == 0 or "'transformer.wpe.weight' has requires_grad=False" in said, said)

    def by_frequency(program, _):
        node = next(node for node in program["graph_module"]["graph"]["nodes"] if "embedding" in node["target"])
        node["inputs"].append({"name": "scale_grad_by_freq", "arg": {"as_bool": True}, "kind": 1})

    keep(os.path.join(fixtures, "nano.pt2"), model, change=by_frequency)
    check("scale_grad_by_freq is not supported" in run("inspect", model, code=2), "its gradients are scaled by frequency")


    def stopped(program, _):
        nodes = program["graph_module"]["graph"]["nodes"]
        i, node = next((i, node) for i, node in enumerate(nodes) if "linear" in node["target"])
        name = json.dumps(node["outputs"][0]["as_tensor"]["name"])
        rest = json.loads(json.dumps(nodes[i + 1:]).replace(name, '"stopped"'))
        nodes[i + 1:] = [{"target": "torch.ops.aten.detach.default", "metadata": {}, "outputs": [{"as_tensor": {"name": "stopped"}}],
                          "inputs": [{"name": "self", "arg": node["outputs"][0], "kind": 1}]}] + rest

    keep(os.path.join(fixtures, "nano.pt2"), model, change=stopped)
    check("it stops a gradient" in run("inspect", model, code=2), "a gradient that is stopped goes on")


def scaled(by):
    """A change that gives the first attention this scale."""
    def change(program, _):
        node = next(node for node in program["graph_module"]["graph"]["nodes"] if "scaled_dot_product" in node["target"])
        node["inputs"] = [one for one in node["inputs"] if one["name"] != "scale"]
        node["inputs"].append({"name": "scale", "arg": {"as_float": by}, "kind": 2})
    return change


def check_in_place(work, data):
    """x.add_(y) and torch.relu_(x): whoever reads x then means what it has become."""
    for name, target in (("nano", "aten.add.Tensor"), ("acts", "aten.relu.default")):
        made = []
        for how in ("", "_"):
            def change(program, _, target=target, how=how):
                nodes = program["graph_module"]["graph"]["nodes"]
                of = {one["outputs"][0]["as_tensor"]["name"]: one["target"] for one in nodes if "as_tensor" in one["outputs"][0]}
                for i, node in enumerate(nodes):
                    source = node["inputs"][0]["arg"].get("as_tensor", {}).get("name")
                    if how and node["target"].endswith(target) and re.search("linear|dropout", of.get(source, "")):
                        node["target"] = node["target"].replace(target, target.replace(".", "_.").replace("aten_", "aten"))
                        old = json.dumps(node["outputs"][0]["as_tensor"]["name"])
                        nodes[i + 1:] = json.loads(json.dumps(nodes[i + 1:]).replace(old, json.dumps(source)))
                        break
                else:
                    check(not how, f"{name}.pt2 has no {target} of a product")

            model, out = os.path.join(work, f"{name}{how}.pt2"), os.path.join(work, f"{name}{how}-changed")
            keep(os.path.join(fixtures, name + ".pt2"), model, change=change)
            train(model, data, out, 4)
            made.append(tensors(os.path.join(out, "checkpoint-4", "model.safetensors")))
        check(made[0] == made[1], f"{name}: changed in place, the weights are others")

    def by_a_view(program, _):
        """A view is changed, and what it is a view of is read."""
        nodes = program["graph_module"]["graph"]["nodes"]
        i = next(i for i, node in enumerate(nodes) if node["target"].endswith("aten.relu.default"))
        nodes[i]["target"] = nodes[i]["target"].replace("relu.", "relu_.")
        rest = json.dumps(nodes[i + 1:]).replace(json.dumps(nodes[i]["outputs"][0]["as_tensor"]["name"]),
                                                 json.dumps(nodes[i]["inputs"][0]["arg"]["as_tensor"]["name"]))
        nodes[i + 1:] = json.loads(rest)
        alias = {"target": "torch.ops.aten.alias.default", "metadata": {}, "outputs": [{"as_tensor": {"name": "other"}}],
                 "inputs": [{"name": "self", "arg": nodes[i]["inputs"][0]["arg"], "kind": 1}]}
        nodes[i] = json.loads(json.dumps(nodes[i]))
        nodes[i]["inputs"][0]["arg"] = {"as_tensor": {"name": "other"}}
        nodes.insert(i, alias)

    def by_a_copy(program, _):
        """A copy is changed instead, which leaves what is read as it was."""
        by_a_view(program, _)
        node = next(node for node in program["graph_module"]["graph"]["nodes"] if node["target"].endswith("aten.alias.default"))
        node["target"] = "torch.ops.aten.clone.default"

    model = os.path.join(work, "view.pt2")
    keep(os.path.join(fixtures, "acts.pt2"), model, change=by_a_copy)
    run("inspect", model)
    for change, said in (by_a_view, "changes other in place"), (scaled(-0.25), "its scale is -0.25"):
        keep(os.path.join(fixtures, "acts.pt2"), model, change=change)
        check(said in run("inspect", model, code=2), f"not refused: {said}")


def check_known_numbers(work):
    """Numbers that are known before the tokens are, changed in place under one of two names, of which the other is read."""
    model = os.path.join(work, "known.pt2")
    add = ("aten.add_.Tensor", {"name": "other", "arg": {"as_int": 0}})
    plus = ("aten.add.Tensor", *add[1:])
    alias, none = ("aten.alias.default",), ("aten.dropout.default", {"name": "p", "arg": {"as_float": 0.0}})
    wide = ("aten.expand.default", {"name": "size", "arg": {"as_ints": [-1]}})
    for views, (change, *more), changes, reads, refused in (
            ([alias], add, -1, 0, True), ([alias], add, 0, -1, True), ([("aten.clone.default",)], add, -1, 0, False),
            ([alias, alias], add, -1, 0, True), ([add], add, -1, 0, True), ([alias, plus], add, 0, -1, False),
            ([none], add, -1, 0, True), ([wide], add, -1, 0, True),
            ([alias], add, 0, "later", False), ([alias], ("aten.detach_.default",), -1, 0, False)):
        def edit(program, _, views=views, change=change, more=more, changes=changes, reads=reads):
            nodes = program["graph_module"]["graph"]["nodes"]
            names = [nodes[0]["outputs"][0]["as_tensor"]["name"], *(f"view{i}" for i in range(len(views)))]
            made = [(op, names[i], names[i + 1], args) for i, (op, *args) in enumerate(views)]
            made.append((change, names[changes], "later", more))
            rest = json.dumps(nodes[1:]).replace(json.dumps(names[0]), json.dumps(reads if reads == "later" else names[reads]))
            nodes[1:] = [{"target": "torch.ops." + op, "metadata": {}, "outputs": [{"as_tensor": {"name": out}}],
                          "inputs": [{"name": "input" if "dropout" in op else "self", "arg": {"as_tensor": {"name": name}}, "kind": 1},
                                     *args]} for op, name, out, args in made] + json.loads(rest)

        keep(os.path.join(fixtures, "nano.pt2"), model, change=edit)
        said = run("inspect", model, code=2 if refused else 0)
        check(refused == ("a view of the same" in said), f"{views}, {change}: {said}")


def check_dropout(work):
    """One that leaves nothing is no dropout, and one of scores that are not yet probabilities is not atom's."""
    model = os.path.join(work, "drops.pt2")

    def early(program, _):
        nodes = program["graph_module"]["graph"]["nodes"]
        i = next(i for i, node in enumerate(nodes) if node["target"].endswith("aten.softmax.int"))
        soft, drop = nodes[i:i + 2]
        check(drop["target"].endswith("aten.dropout.default"), "mha.pt2 has no dropout behind its softmax")
        soft["inputs"][0]["arg"], drop["inputs"][0]["arg"] = drop["inputs"][0]["arg"], soft["inputs"][0]["arg"]
        soft["outputs"], drop["outputs"] = drop["outputs"], soft["outputs"]
        drop["inputs"][1:] = [{"name": "p", "arg": {"as_float": 0.1}, "kind": 1}, {"name": "train", "arg": {"as_bool": True}, "kind": 1}]
        nodes[i:i + 2] = [drop, soft]

    def whole(program, _):
        drop = next(node for node in program["graph_module"]["graph"]["nodes"] if node["target"].endswith("aten.dropout.default"))
        drop["inputs"][1:] = [{"name": "p", "arg": {"as_float": 1.0}, "kind": 1}, {"name": "train", "arg": {"as_bool": True}, "kind": 1}]

    for name, change, words in (("mha", early, "only on activations and on the probabilities of attention"),
                                ("nano", whole, "its probability is not known")):
        keep(os.path.join(fixtures, name + ".pt2"), model, change=change)
        check(words in run("inspect", model, code=2), f"{name}: a dropout is not refused")


def check_what_a_state_is_of(work, data):
    """A run does not go on with another export that has the same tensors: from a checkpoint, or from a state on disk."""
    model, other, renamed, wired, out, disk = (os.path.join(work, name) for name in
                                               ("a.pt2", "b.pt2", "c.pt2", "d.pt2", "of", "of-disk"))

    def called(program, _):
        program["graph_module"] = json.loads(re.sub(r'"linear(_\d+)?"', r'"product\1"', json.dumps(program["graph_module"])))

    def rewired(program, _):
        """The last sum adds what the one two blocks before was, instead of what the one before was."""
        sums = [node for node in program["graph_module"]["graph"]["nodes"] if node["target"].endswith("aten.add.Tensor")]
        sums[-1]["inputs"][0]["arg"] = {"as_tensor": sums[-4]["outputs"][0]["as_tensor"]}

    for path, change in (model, None), (other, scaled(0.3)), (renamed, called), (wired, rewired):
        keep(os.path.join(fixtures, "acts.pt2"), path, change=change)
    auto = ["--resume-from-checkpoint", "auto", "--lr-scheduler-type", "constant"]
    check("dropout: 0.2 would not change" in train(model, data, out, 4, "--dropout", "0.2", code=2), "dropout is passed over")
    train(model, data, out, 4)
    for path in other, wired:
        check("a checkpoint of another model" in train(path, data, out, 8, *auto, code=2), f"another export goes on: {path}")
    train(renamed, data, out, 8, *auto)
    auto += ["--optimizer-state", "disk"]
    with subprocess.Popen([atom, "train", "--model", model, *command(data, disk, 10 ** 6), "--save-steps", str(10 ** 6), *auto],
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as killed:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not (os.path.exists(os.path.join(disk, "metrics.jsonl")) and len(losses(disk)) > 3):
            time.sleep(0.01)
        killed.kill()
    check("the state on disk of another model" in train(other, data, disk, 10 ** 6, *auto, code=2), "another export goes on")
    train(model, data, disk, len(losses(disk)) + 4, *auto)


def check_halves(work, data):
    """The halves of one product, added in either order: each is a product of its own."""
    made = []
    for name, order in (("a+b", ("getitem_7", "getitem_8")), ("b+a", ("getitem_8", "getitem_7"))):
        model = os.path.join(work, name + ".pt2")

        def change(program, _, order=order):
            [node] = [node for node in program["graph_module"]["graph"]["nodes"]
                      if node["outputs"] == [{"as_tensor": {"name": "mul_10"}}]]
            node["target"] = "torch.ops.aten.add.Tensor"
            for one_input, half in zip(node["inputs"], order):
                one_input["arg"] = {"as_tensor": {"name": half}}

        keep(os.path.join(fixtures, "odd.pt2"), model, change=change)
        one(name, model, work, data)
        made.append(losses(os.path.join(work, name)))
    check(made[0] == made[1], f"a + b is not b + a: {made}")


def check_part_names(work, data):
    """One half of a product that is read three times, and halves of two products whose long names begin alike."""
    def node(name, target, *inputs):
        return {"target": f"torch.ops.aten.{target}", "metadata": {}, "outputs": [{"as_tensor": {"name": name}}], "inputs": [
            {"name": to, "arg": arg if isinstance(arg, dict) else {"as_tensor": {"name": arg}}, "kind": 1} for to, arg in inputs]}

    for what, terms, long in (("thrice", ("getitem_7", "getitem_8", "getitem_7", "getitem_7"), ""),
                              ("alike", ("getitem_7", "getitem_8", "more_7", "more_8"), "b" * 48)):
        def change(program, _, terms=terms, long=long):
            nodes = program["graph_module"]["graph"]["nodes"]
            at = {one["outputs"][0].get("as_tensor", {}).get("name"): one for one in nodes if one["outputs"]}
            [halves] = [one for one in nodes if "chunk" in one["target"]]
            product = at["linear_2"]
            if long:
                product["metadata"]["nn_module_stack"] = f"L__self__,,Odd;L__self__block,{long},Linear"
                again = json.loads(json.dumps([product, halves]).replace('"linear_2"', '"linear_22"').replace('"getitem_', '"more_'))
                nodes[nodes.index(halves) + 1:nodes.index(halves) + 1] = again
            last = nodes.index(at["mul_10"])
            sums = [node("sum_0", "add.Tensor", ("self", terms[0]), ("other", terms[1])),
                    node("sum_1", "add.Tensor", ("self", "sum_0"), ("other", terms[2])),
                    node("mul_10", "add.Tensor", ("self", "sum_1"), ("other", terms[3]))]
            nodes[last:last + 1] = [{**nodes[last], **one, "metadata": nodes[last]["metadata"]} for one in sums]

        model = os.path.join(work, what + ".pt2")
        keep(os.path.join(fixtures, "odd.pt2"), model, change=change)
        one(what, model, work, data)


def check_names(work, data):
    """Two weights that are one product are named after both, up to the last dot that their names share."""
    model, out, new = os.path.join(work, "names.pt2"), os.path.join(work, "names"), {"gate": "w1", "up": "w3"}

    def called(name):
        head, _, tail = name.partition(".")
        return f"{new.get(head, head)}.{tail}"

    def change(program, rows):
        for spec in program["graph_module"]["signature"]["input_specs"]:
            if "parameter" in spec:
                spec["parameter"]["parameter_name"] = called(spec["parameter"]["parameter_name"])
        for name in list(rows):
            rows[called(name)] = rows.pop(name)

    keep(os.path.join(fixtures, "caps.pt2"), model, change=change)
    train(model, data, out, 4)
    check_state(os.path.join(out, "checkpoint-4"), model, "names")
    with open(os.path.join(out, "checkpoint-4", "config.json")) as f:
        names = set(re.findall(r"[\w.+]*\+[\w.+]*", f.read()))
    check(names == {"w1+w3.weight", "w1+w3.bias"}, f"joined names: {names}")


POOL = """
micro_batch_size: 2
sequence_len: 6
max_steps: 1000000
learning_rate: 1e-3
dtype: fp32
threads: 1
execute: interpreted
eval_steps: 0
pool:
  sync_steps: 4
  fragments: 1
  heartbeat_seconds: 0.1
"""


def check_pool(work, data):
    """A joiner gets the buffers with the model; both members' files have them."""
    model, a, b = (os.path.join(work, name) for name in ("pool.pt2", "pool-a", "pool-b"))
    config, alone = os.path.join(work, "run.yml"), ["--listen", "127.0.0.1:0", "--no-lan", "--no-directory", "--json", "--quiet"]
    keep(os.path.join(fixtures, "cis.pt2"), model, SPECIAL)
    with open(config, "w") as f:
        f.write(POOL)
    with subprocess.Popen([atom, "pool", "create", "--config", config, "--model", model, "--data", data, "-o", a, *alone],
                          stdout=subprocess.PIPE, text=True) as first:
        try:
            ticket = json.loads(first.stdout.readline())["ticket"]
            run("pool", "join", ticket, "-o", b, "--data", data, "--max-steps", "8", *alone)
        finally:
            first.terminate()
    check_state(os.path.join(b, "checkpoint-8"), model, "a joiner")
    run("pool", "export", b, "-o", os.path.join(work, "pool-model"))
    check_state(os.path.join(work, "pool-model"), model, "a pool's model")


def main():
    with tempfile.TemporaryDirectory() as work:
        data = os.path.join(work, "data")
        make_data(data)
        for name in models:
            buffers = one(name, os.path.join(fixtures, name + ".pt2"), work, data)
            check(buffers == ({"root"} if name == "acts" else set()), f"{name}: buffers {buffers}")
        for name, wants in (("llama", {"cos", "sin"}), ("mha", {"mask"}), ("cis", {"freqs_cis"})):
            if name not in models:
                continue
            model = os.path.join(work, name + "-kept.pt2")
            keep(os.path.join(fixtures, name + ".pt2"), model)
            check(one(name + "-kept", model, work, data) == wants, f"{name}: other buffers than {wants}")
        for one_check in (check_all_types, check_shares, check_default_eps, check_in_place, check_what_a_state_is_of, check_halves,
                          check_part_names, check_names, check_pool):
            one_check(work, data)
        for one_check in check_ignored, check_frozen, check_known_numbers, check_dropout:
            one_check(work)
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
