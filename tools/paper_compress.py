"""The study of compressed activations: what tools/paper compress writes, theirs beside ours."""
import json
import math
import os
import tempfile

import paper_compress_runs as runs

# Table 10: hidden size, layers, nodes, batch, speedup. Micro-batches of 16 sequences, four-way tensor parallelism in a node.
TABLE_10 = [(6144, 40, 1, 1024, 1.91), (8192, 48, 2, 1536, 1.75), (10240, 60, 4, 1792, 1.63), (12288, 80, 8, 2304, 1.55),
            (16384, 96, 16, 2176, 1.46), (20480, 105, 35, 2528, 1.46), (25600, 128, 64, 3072, 1.47)]
B, S, E = 16, 128, 100  # the sequence length follows from their threshold d = 16 x 128 x 100
CARD = "rtx-4090"
LINES = [("home-100-20", 20e6 / 8, 8e-3), ("fibre", 1000e6 / 8, 2e-3), ("lan-10g", 9400e6 / 8, 0.05e-3)]  # docs/guide/plan.md
BITS = [("int8", 8.5), ("int4", 4.5)]
# Averages of Table 5 (fine-tuning) and Table 8 (after pre-training), by what is nearest here.
THEIRS = {"none": ("w/o", "86.64", "82.89"), "int4": ("Q2", "85.04", "83.14"), "int2": ("Q1", "80.02", ""),
          "topk:0.1": ("T4", "70.86", ""), "bottleneck:10": ("A2", "82.40", "82.96")}
COLOURS = ["#c0392b", "#e08e0b", "#2c7fb8", "#41b6c4", "#4d9221", "#6a51a3", "#7f7f7f"]


def equations(constants, row):
    """Equation 3 for a row, in units of alpha: beta, gamma and 1/w are FLOPs per value. The constant c is left out."""
    h, layers, n, batch, _ = row
    beta, gamma, wire = constants
    work = 96 * B * S * h * h + 16 * B * S * S * h
    plain, short = work + beta * B * S * h, work + gamma * B * S * h
    turns = ((batch / B - 1) / n + 1) * layers
    return (turns * plain + (n - 1) * B * S * h * wire) / (turns * short + (n - 1) * B * S * E * wire)


def fit():
    """The constants that come nearest to Table 10: a search along each axis in turn, in ever smaller steps."""
    def off(at):
        return sum(math.log(equations([math.exp(x) for x in at], row) / row[4]) ** 2 for row in TABLE_10)
    at, step = [math.log(8e5), math.log(1e5), math.log(4e6)], 1.0
    best = off(at)
    while step > 1e-6:
        moved = False
        for i in range(3):
            for by in (step, -step):
                other = at[:i] + [at[i] + by] + at[i + 1:]
                if off(other) < best:
                    at, best, moved = other, off(other), True
        step = step if moved else step / 2
    return [math.exp(x) for x in at]


def block_and_pair(program, where, width):
    """Seconds of a block and of a bottleneck's two layers, forward and backward, for 2048 tokens on the card."""
    path, out = os.path.join(where, "config.json"), os.path.join(where, "profile.json")
    config = {"model_type": "atom_bottlenecks", "atom_bottlenecks": {"model_type": "gpt2", "after_blocks": [1], "width": E},
              "n_embd": width, "n_layer": 2, "n_head": width // 64, "n_positions": B * S, "n_inner": 4 * width, "vocab_size": 256}
    with open(path, "w", encoding="utf-8") as f:
        json.dump(config, f)
    runs.ask(program, "profile", "--model", path, "--device-spec", CARD, "--dtype", "bf16", "--micro-batch-size", "1", "-o", out)
    with open(out, encoding="utf-8") as f:
        nodes = json.load(f)["nodes"]

    def seconds(prefix):
        return sum(node["fwd_seconds"] + node["bwd_seconds"] for node in nodes if node["name"].startswith(prefix))
    return seconds("h.0."), seconds("boundary.")


def step(row, block, codec, message, line):
    """(equation 3's way, with the line's own time): seconds of a batch of micro-batches of 2048 tokens. codec: seconds at a
    boundary for both directions; message: bytes in one."""
    _, layers, n, batch, _ = row
    m, stage, wire = batch / B, layers / n * block, message / line[1]
    hop = 2 * (wire + 2 * line[2])
    theirs = ((m - 1) / n + 1) * layers * block + (m - 1) * codec + (n - 1) * (hop + codec)
    ours = (m - 1) * max(stage + codec, wire) + n * stage + (n - 1) * (hop + codec)
    return theirs, ours


def predictions(program, rates):
    """By line: for each row with two nodes or more, the codecs' speedups, both ways; and the shares that codecs have."""
    made, costs = {line[0]: [] for line in LINES}, []
    with tempfile.TemporaryDirectory() as where:
        for row in TABLE_10[1:]:
            h, tokens = row[0], B * S
            block, pair = block_and_pair(program, where, h)
            codecs = [(f"{E} values", pair, 2.0 * tokens * E)]
            codecs += [(name, 2 * tokens * h * 4 / rates[name], tokens * h * bits / 8) for name, bits in BITS]
            costs.append((h, row[1] / row[2], block, pair, [codec[1] for codec in codecs[1:]]))
            for line in LINES:
                plain = step(row, block, 0, 2.0 * tokens * h, line)
                each = [step(row, block, codec, message, line) for _, codec, message in codecs]
                made[line[0]].append((h, [(plain[0] / x[0], plain[1] / x[1]) for x in each]))
    return made, costs


def chart(curves):
    """Speedups over the hidden size, on a logarithmic axis."""
    widths = [row[0] for row in TABLE_10]

    def x(h):
        return 70 + 125 * math.log2(h / widths[0]) * 2

    def y(v):
        return 330 - 56 * math.log2(max(v, 1))
    out = ['<svg xmlns="http://www.w3.org/2000/svg" width="940" height="400" viewBox="0 0 940 400" font-family="sans-serif" '
           'font-size="12">', "<title>Speedup of a bottleneck of 100 values</title>", '<rect width="100%" height="100%" fill="white"/>',
           '<text x="70" y="18">speedup of a bottleneck of 100 values: Table 10, and predicted here</text>']
    for v in (1, 2, 4, 8, 16, 32):
        out.append(f'<line x1="70" y1="{y(v)}" x2="{x(widths[-1]):.0f}" y2="{y(v)}" stroke="#ddd"/>'
                   f'<text x="62" y="{y(v) + 4}" text-anchor="end">{v}</text>')
    out += [f'<text x="{x(h):.0f}" y="352" text-anchor="middle">{h}</text>' for h in widths]
    out.append('<text x="330" y="380" text-anchor="middle">hidden size</text>')
    for k, (name, points) in enumerate(curves):
        line = " ".join(f"{x(h):.1f},{y(v):.1f}" for h, v in points)
        out.append(f'<polyline points="{line}" fill="none" stroke="{COLOURS[k]}" stroke-width="2"/>'
                   f'<line x1="660" y1="{50 + 24 * k}" x2="685" y2="{50 + 24 * k}" stroke="{COLOURS[k]}" stroke-width="2"/>'
                   f'<text x="692" y="{54 + 24 * k}">{name}</text>')
    return "\n".join(out) + "\n</svg>\n"


def differences(made, name):
    """Percent of the loss of the same seed without a codec."""
    return [100 * (made[f"{name} {seed}"]["loss"] / made[f"none {seed}"]["loss"] - 1) for seed in runs.SEEDS]


def dots(made):
    """One dot for each run: its loss against the same seed without a codec."""
    names = ["chance"] + [f"{codec} {at}" for codec in runs.CODECS for at in runs.AT]
    most = max(max(differences(made, name)) for name in names)
    least = min(0, *(min(differences(made, name)) for name in names))

    def y(v):
        return 320 - 280 * (v - least) / (most - least)
    out = ['<svg xmlns="http://www.w3.org/2000/svg" width="940" height="400" viewBox="0 0 940 400" font-family="sans-serif" '
           'font-size="12">', "<title>Validation loss with a codec at one boundary</title>",
           '<rect width="100%" height="100%" fill="white"/>',
           '<text x="70" y="18">validation loss against the same seed without a codec; filled: behind block 1, hollow: behind '
           'block 3</text>']
    for v in range(math.ceil(least / 2) * 2, math.floor(most) + 1, 2):
        out.append(f'<line x1="70" y1="{y(v):.1f}" x2="910" y2="{y(v):.1f}" stroke="{"#888" if v == 0 else "#ddd"}"/>'
                   f'<text x="62" y="{y(v) + 4:.1f}" text-anchor="end">{v:+d} %</text>')
    for k, codec in enumerate(["chance"] + runs.CODECS):
        at = 130 + 120 * k
        out.append(f'<text x="{at}" y="352" text-anchor="middle">{codec}</text>')
        for side, name in enumerate([codec] if codec == "chance" else [f"{codec} {a}" for a in runs.AT]):
            for v in differences(made, name):
                fill = "white" if side else COLOURS[k]
                out.append(f'<circle cx="{at - 15 + 30 * side}" cy="{y(v):.1f}" r="5" fill="{fill}" stroke="{COLOURS[k]}" '
                           'stroke-width="2"/>')
    return "\n".join(out) + "\n</svg>\n"


def loss_table(made):
    plain = 2 * runs.MODEL["n_embd"]
    losses = [made[f"none {seed}"]["loss"] for seed in runs.SEEDS]
    text = f"| none | | {plain} | " + " | ".join(f"{x:.4f}" for x in losses) + " | |\n"
    rows = [("none, " + " ".join(runs.CHANCE), "", "chance")]
    rows += [(codec, at, f"{codec} {at}") for codec in runs.CODECS for at in runs.AT]
    for codec, at, name in rows:
        each = differences(made, name)
        text += f"| {codec} | {at} | {made[name + ' 1']['bytes']} | " + " | ".join(
            f"{made[f'{name} {seed}']['loss']:.4f} ({x:+.2f} %)" for seed, x in zip(runs.SEEDS, each))
        text += f" | {sum(each) / len(each):+.2f} % |\n"
    return text


def theirs_table(made):
    text = ""
    for codec, (name, tuned, trained) in THEIRS.items():
        each = [sum(differences(made, f"{codec} {at}")) / len(runs.SEEDS) for at in runs.AT] if codec != "none" else []
        text += f"| {codec} | {name} | {tuned} | {trained} | " + " | ".join(f"{x:+.2f} %" for x in each or (0, 0)) + " |\n"
    return text


def prediction_table(made):
    text = ""
    for line, rows in made.items():
        for h, each in rows:
            text += f"| `{line}` | {h} | " + " | ".join(f"{a:.2f} | {b:.2f}" for a, b in each) + " |\n"
    return text


def words(name):
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), name), encoding="utf-8") as f:
        return f.read()


def write(program, output, where):
    made = runs.train(program, where)
    rates = json.loads(runs.ask(program, "bench", "codec", "--bytes", "64MiB", "--json"))["boundary_bytes_per_second"]
    constants = fit()
    beta, gamma, wire = constants
    fitted = "".join(f"| {row[0]} | {row[1]} | {row[2]} | {row[4]:.2f} | {equations(constants, row):.2f} |\n" for row in TABLE_10)
    lines, costs = predictions(program, rates)
    cost_rows = "".join(f"| {h} | {blocks:g} | {1e3 * block:.1f} ms | {1e3 * pair:.2f} ms | " +
                        " | ".join(f"{1e3 * x:.1f} ms" for x in cpu) + " |\n" for h, blocks, block, pair, cpu in costs)
    h, _, block, pair, _ = costs[0]
    work = 96 * B * S * h * h + 16 * B * S * S * h
    text = words("paper_compress.md.in").format(
        fitted=fitted, beta=beta, gamma=gamma, wire=wire, times=gamma / (12 * E), ours=pair / block * work / (B * S * h), width=h,
        costs=cost_rows, predictions=prediction_table(lines), losses=loss_table(made), theirs=theirs_table(made),
        lan=max(each[0][1] for _, each in lines["lan-10g"]) - 1, steps=runs.STEPS,
        rates=", ".join(f"{name} {rates[name] / 1e9:.1f} GB/s" for name, _ in BITS), train=" \\\n    ".join(" ".join(runs.TRAIN[i:i + 8])
                                                                           for i in range(0, len(runs.TRAIN), 8)))
    curves = [("Table 10", [(row[0], row[4]) for row in TABLE_10])]
    for name, rows in lines.items():
        curves.append((f"{name}, equations 2 and 3", [(h, each[0][0]) for h, each in rows]))
        curves.append((f"{name}, with the line's time", [(h, each[0][1]) for h, each in rows]))
    base = os.path.splitext(output)[0]
    for path, content in ((output, text), (base + "-speedup.svg", chart(curves)), (base + "-loss.svg", dots(made))):
        with open(path, "w", encoding="utf-8") as f:
            f.write(content)
    print(text)
