"""The evaluation of the ATOM paper in virtual time: what tools/paper atom writes, theirs beside ours."""
import heapq
import json
import math
import os
import re
import subprocess
import sys
import tempfile

# Table II and Table III; 13B has 18 layers and 175B two blocks, as in section V. Payload: MiB, as printed.
MODELS = [("Small (125M)", 768, 12, 12, 6), ("Medium (350M)", 1024, 16, 24, 8), ("Large (760M)", 1536, 16, 24, 12),
          ("XL (1.3B)", 2048, 16, 24, 16), ("2.7B", 2560, 32, 32, 20), ("6.7B", 4096, 32, 32, 32),
          ("13B, 18 layers", 5120, 40, 18, 40), ("175B, 2 blocks", 12288, 96, 2, 96)]
TOKENS = 2048
CARDS = [("v100", "V100"), ("gtx-1080-ti", "1080 Ti"), ("gtx-1080", "1080")]
LINKS = [("400 Mbit/s", 400e6 / 8), ("800 Mbit/s", 800e6 / 8), ("no limit", math.inf)]
GRPC = 610e6 / 8  # bytes/s: what the paper reaches over 10 Gbps, section III-B
STAGES = C = 4
WAYS = ("GPipe", "1F1B", "Petals-like")
COLOURS = ["#2c7fb8", "#c0392b", "#e08e0b", "#4d9221"]
FREE = 1e18       # of anything per second: as good as free


def ask(program, *args):
    return subprocess.run([program, *args], capture_output=True, text=True)


def profile(program, where, width, heads, layers, card):
    """A profile of one sequence in fp32, in which the optimizer takes no time: the paper left it out of Figure 14."""
    config = {"model_type": "gpt2", "n_embd": width, "n_layer": layers, "n_head": heads, "n_positions": TOKENS,
              "n_inner": 4 * width, "vocab_size": 50257, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5,
              "initializer_range": 0.02}
    model, path = os.path.join(where, "config.json"), os.path.join(where, "profile.json")
    with open(model, "w", encoding="utf-8") as f:
        json.dump(config, f)
    done = ask(program, "profile", "--model", model, "--device-spec", card, "--dtype", "fp32", "--micro-batch-size", "1",
               "-o", path)
    if done.returncode != 0:
        sys.exit(f"tools/paper: {done.stderr.strip()}")
    with open(path, encoding="utf-8") as f:
        made = json.load(f)
    made["device"].update(adamw_params_per_second=FREE, host_bytes_per_second=FREE, host_bytes=1 << 42)
    with open(path, "w", encoding="utf-8") as f:
        json.dump(made, f)
    return path, made


def groups(made):
    """Seconds of forward and backward, and bytes of parameters: what is in front of the blocks, each block, the rest."""
    out, names = [], []
    for node in made["nodes"]:
        block = re.match(r"h\.\d+\.", node["name"])
        name = block.group(0) if block else ("front" if not names else names[-1] if names[-1] == "front" else "rest")
        if not names or name != names[-1]:
            names.append(name)
            out.append([0.0, 0.0, 0])
        for i, key in enumerate(("fwd_seconds", "bwd_seconds", "param_bytes")):
            out[-1][i] += node[key]
    return out


def stages(parts):
    """The split into four neighbouring stages whose slowest is fastest."""
    best = {(0, 0): (0.0, ())}
    for k in range(1, STAGES + 1):
        for end in range(k, len(parts) + 1):
            best[k, end] = min((max(best[k - 1, cut][0], sum(f + b for f, b, _ in parts[cut:end])), best[k - 1, cut][1] + (cut,))
                               for cut in range(k - 1, end) if (k - 1, cut) in best)
    cuts = best[STAGES, len(parts)][1] + (len(parts),)
    return [tuple(sum(p[i] for p in parts[a:b]) for i in (0, 1)) for a, b in zip(cuts, cuts[1:])]


def gpipe(split, hop):
    """Seconds of a step: all forwards, all backwards, and nothing of the next step before."""
    ready = [0.0] * C
    order = [f for f, _ in split] + [b for _, b in reversed(split)]
    for at, seconds in enumerate(order):
        free, line = (max(ready) if at == STAGES else 0.0), 0.0
        for m in (range(C) if at < STAGES else reversed(range(C))):
            free = max(free, ready[m]) + seconds
            line = max(line, free) + (hop if at not in (STAGES - 1, 2 * STAGES - 1) else 0.0)
            ready[m] = line
    return max(ready)


def flowing(split, hop, hops, backward_first, total=96):
    """Seconds between results where four mini-batches are always on their way; each stage and each line does one thing at
    a time."""
    path = []
    for s, (f, _) in enumerate(split):
        path += [(("gpu", s), f, 1)] + [(("up", s, h), hop, 1) for h in range(hops if s + 1 < STAGES else 0)]
    for s, (_, b) in reversed(list(enumerate(split))):
        path += [(("gpu", s), b, 0)] + [(("down", s, h), hop, 1) for h in range(hops if s else 0)]
    waiting, busy, events, done, order = {}, set(), [], [], 0

    def arrive(now, step):
        nonlocal order
        order += 1
        where, seconds, priority = path[step]
        heapq.heappush(waiting.setdefault(where, []), (priority if backward_first else 1, order, seconds, step))
        start(now, where)

    def start(now, where):
        nonlocal order
        if where not in busy and waiting.get(where):
            _, _, seconds, step = heapq.heappop(waiting[where])
            busy.add(where)
            order += 1
            heapq.heappush(events, (now + seconds, order, where, step))

    for _ in range(STAGES):
        arrive(0.0, 0)
    while len(done) < total:
        now, _, where, step = heapq.heappop(events)
        busy.discard(where)
        if step + 1 < len(path):
            arrive(now, step + 1)
        else:
            done.append(now)
            arrive(now, 0)
        start(now, where)
    half = total // 2
    return (done[-1] - done[half - 1]) / (total - half)


def swap(program, path):
    """Seconds of a mini-batch and the share that computes, by atom's plan for four of them; or why there is none."""
    done = ask(program, "plan", "--profile", path, "--gradient-accumulation-steps", str(C), "--no-clip", "--json")
    if done.returncode != 0:
        least = re.search(r"needs at least ([\d.]+ \w+)", done.stderr)
        return None, f"needs {least.group(1)}" if least else done.stderr.strip()
    plan = json.loads(done.stdout)
    step = plan["predicted_step_seconds"]
    return step / C, plan["predicted_compute_seconds"] / step


def chart(title, unit, curves):
    """Lines over the models, on a logarithmic axis; gaps where there is no value."""
    values = [v for _, points in curves for v in points if v]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))

    def x(i):
        return 80 + 90 * i

    def y(v):
        return 340 - 300 * (math.log10(v) - low) / (high - low)
    out = ['<svg xmlns="http://www.w3.org/2000/svg" width="980" height="400" viewBox="0 0 980 400" font-family="sans-serif" '
           'font-size="12">', f"<title>{title}</title>", '<rect width="100%" height="100%" fill="white"/>',
           f'<text x="80" y="20">{title}</text>']
    for e in range(low, high + 1):
        out.append(f'<line x1="80" y1="{y(10 ** e):.1f}" x2="{x(7)}" y2="{y(10 ** e):.1f}" stroke="#ddd"/>'
                   f'<text x="72" y="{y(10 ** e) + 4:.1f}" text-anchor="end">{10 ** e:g} {unit}</text>')
    for i, (name, *_) in enumerate(MODELS):
        out.append(f'<text x="{x(i)}" y="362" text-anchor="middle">{name.split(" ")[0].rstrip(",")}</text>')
    for k, (name, points) in enumerate(curves):
        line = " ".join(f"{x(i)},{y(v):.1f}" for i, v in enumerate(points) if v)
        out.append(f'<polyline points="{line}" fill="none" stroke="{COLOURS[k]}" stroke-width="2"/>'
                   f'<line x1="740" y1="{60 + 24 * k}" x2="765" y2="{60 + 24 * k}" stroke="{COLOURS[k]}" stroke-width="2"/>'
                   f'<text x="772" y="{64 + 24 * k}">{name}</text>')
    return "\n".join(out) + "\n</svg>\n"


def layers_of(program, where):
    """Per model on a V100: payload, loading, forward and backward of one block, and what the embedding is of a step."""
    rows = []
    for name, width, heads, n_layer, payload in MODELS:
        _, made = profile(program, where, width, heads, n_layer, "v100")
        parts, rate = groups(made), made["device"]["h2d_bytes_per_second"]
        block = parts[1]
        largest = max(made["nodes"], key=lambda n: n["param_bytes"] + n["output_bytes"] + n["saved_bytes"])
        rows.append({"name": name, "theirs": payload, "payload": 4 * TOKENS * width, "load": block[2] / rate, "fwd": block[0],
                     "bwd": block[1], "head": parts[-1][2] / rate,
                     "embed": 100 * parts[0][0] / (parts[0][0] + block[0]),
                     "largest": f"{largest['name']}, {(largest['param_bytes'] + largest['output_bytes'] + largest['saved_bytes']) / 2**20:.0f} MiB"})
    return rows


def schedules(program, where):
    """Per card and model: seconds of a mini-batch and GPU of each way, by link, and shares of time that compute."""
    out = {}
    for card, _ in CARDS:
        for name, width, heads, n_layer, _ in MODELS:
            path, made = profile(program, where, width, heads, n_layer, card)
            split, row = stages(groups(made)), {"atom": swap(program, path)}
            work = sum(f + b for f, b in split)
            for link, rate in LINKS:
                hop = 4 * TOKENS * width / rate
                each = {"GPipe": gpipe(split, hop) / C, "1F1B": flowing(split, hop, 1, True),
                        "Petals-like": flowing(split, hop, 2, False)}
                # A result occupies four devices: per device it is four times as long.
                row[link] = {k: (STAGES * v, work / (STAGES * v)) for k, v in each.items()}
            out[card, name] = row
    return out


def ms(seconds):
    return f"{1e3 * seconds:.0f} ms" if seconds >= 0.01 else f"{1e3 * seconds:.2f} ms"


def layer_tables(rows):
    text = "| model | payload, theirs | ours | largest node alone, ours |\n|---|---|---|---|\n"
    for r in rows:
        text += f"| {r['name']} | {r['theirs']} MiB | {r['payload'] / 2**20:.0f} MiB | {r['largest']} |\n"
    times = "| model | load | forward | backward | forward / load | backward / load | payload at 610 Mbit/s | embedding, of a block's forward |\n"
    times += "|---" * 8 + "|\n"
    for r in rows:
        times += (f"| {r['name']} | {ms(r['load'])} | {ms(r['fwd'])} | {ms(r['bwd'])} | {r['fwd'] / r['load']:.2f} | "
                  f"{r['bwd'] / r['load']:.2f} | {ms(r['payload'] / GRPC)} | {r['embed']:.1f} % |\n")
    return text, times


def schedule_table(made, card):
    text = "| model | ATOM | " + " | ".join(f"{way}, {link}" for link, _ in LINKS for way in WAYS)
    text += " |\n" + "|---" * 11 + "|\n"
    for name, *_ in MODELS:
        row = made[card, name]
        step, share = row["atom"]
        cells = [ms(step) if step else share]
        cells += [ms(row[link][way][0]) for link, _ in LINKS for way in WAYS]
        text += f"| {name} | " + " | ".join(cells) + " |\n"
    return text


def use_table(made):
    """Figure 15: the share of time that computes, of 175B with two blocks on V100s."""
    row = made["v100", MODELS[-1][0]]
    text = "| | theirs, localhost | " + " | ".join(f"ours, {link}" for link, _ in LINKS) + " |\n|---|---|---|---|---|\n"
    atom = row["atom"][1]
    text += "| ATOM | 91.9 % |" + f" {100 * atom:.1f} % |" * 3 + "\n"
    for way, theirs in (("GPipe", "18.3 %"), ("1F1B", "46.3 % (PipeDream)"), ("Petals-like", "not given")):
        text += f"| {way} | {theirs} | " + " | ".join(f"{100 * row[link][way][1]:.1f} %" for link, _ in LINKS) + " |\n"
    return text


PAGE = """# ATOM's evaluation in virtual time

Wu et al., ATOM: Asynchronous Training of Massive Models for Deep Learning in a Decentralized Environment. Theirs is what the
paper prints; most of its figures are pictures without numbers, of which only what the text says can be compared. Ours is
predicted from descriptions of the paper's cards (`presets/devices`, data sheets): nothing was run. One sequence of 2048 tokens
in fp32 is a mini-batch. Written by `tools/paper atom`.

## Table II and Figures 3, 4: payloads and the largest layer

{payloads}
- Payloads are the same: tokens x width x 4 bytes.
- The paper's largest layers of 175B are a dropout of 1,920 MB in forward and a softmax of 3,072 MB in backward. Both hold an
  attention matrix of every head. Ours never writes that matrix, so that the largest node is the embedding or a linear layer (its
  parameters, its output and what it saves; that of 175B has the size of their softmax by coincidence).

## Figures 6, 7, 9, 10, 11: one block on a V100

![one block: load, forward, backward, payload](paper-atom-block.svg)

{times}
- Theirs: even for 175B a layer loads much faster than its payload travels; so here, for every model.
- Theirs: loading the logits layer takes about a sixth of sending its input over 10 Gbps, which gave them 610 Mbit/s. Ours, for
  175B: {head} to load, {send} to send, a factor of {factor:.1f}.
- Theirs: forward is shorter than loading, always, and backward takes about as long as loading. Ours: forward takes {fwd} times
  as long as loading, shorter from 6.7B on, and backward {bwd} times. A block computes 2 x 2048 FLOPs forward for each 4 bytes of
  parameters that are loaded, and at the rates of the data sheet both take nearly the same time, whatever the width. What they
  measured fits a loading that takes about twice as long as a copy of pinned memory over PCIe 3.0 x16; the paper does
  not say how it copies.
- Theirs: the embedding is marginal and less so the larger the model (Figure 11); ours shows the same.

## Figure 14: time of a mini-batch and GPU, no all-reduce, no optimizer

Four GPUs. ATOM: each trains the whole model through its memory, four mini-batches a step, as `atom plan` makes the plan, with
an optimizer that takes no time. The pipelines: four stages of neighbouring blocks, as even as they can be. GPipe: four
mini-batches forward, then back, then the next four. 1F1B, as PipeDream: backward first, four on their way, no flush.
Petals-like: a client sends each mini-batch from server to server and gets it back in between, so that a
boundary is crossed twice; four on their way. All lines work in both directions at once, beside computing, at the full rate.

![time of a mini-batch and GPU on V100s at 400 Mbit/s](paper-atom-schedules.svg)

{schedules}
"needs": the least device memory of any plan; no plan fits the card. Whether the stages of the pipelines fit is not asked, which
flatters them.

- Theirs: ATOM is ahead in every experiment, and PipeDream ahead of GPipe. Ours: {ahead}; 1F1B is ahead of GPipe{order}.
- Theirs: the gap widens for larger models and slower lines. Ours, GPipe's on V100s at 400 Mbit/s: from {gap_small} a mini-batch for
  the smallest to {gap_large} for the largest. As a ratio it does not widen: {ratios}. A payload grows with the width, a stage's
  work with its square and with its number of blocks, so the deep models wait least for their lines.
- Where nothing limits the line, 1F1B takes {free} times as long as ATOM here, because stages of whole blocks beside an
  embedding and a head are uneven. Theirs reached 46.3 % of utilisation on localhost (below): gRPC, copies through the host and
  Python are in their measurement and in none of ours.
- Table III has 175B with two blocks on all three cards. Ours needs more than the two smaller ones have: places for two neighbouring
  layers, gradients in fp32 that grow over all micro-batches, and a ring for what leaves.

## Figure 15: utilisation, 175B with two blocks, V100

{use}
- Theirs is `nvidia-smi`'s: the share of time in which any kernel ran. Ours is computing over time. Four stages of two blocks,
  an embedding and a head cannot be even, which is what holds the pipelines down where the line does not.

## Figure 12: the schedule

A V100 that may use 24 GiB, 175B with two blocks, four micro-batches, as `atom plan` draws it. At the turn from forward to
backward nothing is fetched, as in the paper's picture. Between steps the paper keeps the first sub-model on the device; ours is
fetched again, because its weights are updated on the host.

```
{timeline}```

## What cannot be rebuilt from the paper

- Figures 5 and 8 are measurements of gRPC and of one bus; nothing here predicts them.
- Figure 16 needs the rate between the paper's subnets ("campus Internet") for the all-reduce, which is not given.
- Figure 17 is a training run of 20 billion tokens.
"""


def timeline(program, where):
    _, width, heads, n_layer, _ = MODELS[-1]
    path, _ = profile(program, where, width, heads, n_layer, "v100")
    done = ask(program, "plan", "--profile", path, "--gradient-accumulation-steps", str(C), "--no-clip", "--device-memory", "24GiB")
    if done.returncode != 0:
        sys.exit(f"tools/paper: {done.stderr.strip()}")
    text = done.stdout.partition("timeline of one step\n")[2]
    return text.partition("searched ")[0]


def comparisons(made):
    """What the text says about the tables, by the tables."""
    planned = [(card, name) for card, _ in CARDS for name, *_ in MODELS if made[card, name]["atom"][0]]
    behind = [f"{way}, {link}, {name}, {card}" for card, name in planned for link, _ in LINKS for way in WAYS
              if made[card, name][link][way][0] < made[card, name]["atom"][0]]
    slower = [f"{link}, {name}, {card}" for (card, name), row in made.items() for link, _ in LINKS
              if row[link]["1F1B"][0] > row[link]["GPipe"][0]]
    v100 = [made["v100", name] for name, *_ in MODELS]
    gaps = [row[LINKS[0][0]]["GPipe"][0] - row["atom"][0] for row in v100]
    ratios = [f"{row[LINKS[0][0]]['GPipe'][0] / row['atom'][0]:.1f} ({name})" for (name, *_), row in zip(MODELS, v100)]
    free = [made[at][LINKS[-1][0]]["1F1B"][0] / made[at]["atom"][0] for at in planned]
    return {"ahead": f"not in {'; '.join(behind)}" if behind else "the same in every cell that has a plan",
            "order": f", but for {'; '.join(slower)}" if slower else " in every cell", "gap_small": ms(gaps[0]),
            "gap_large": ms(gaps[-1]), "ratios": ", ".join(ratios), "free": f"{min(free):.1f} to {max(free):.1f}"}


def write(program, output):
    if not os.path.exists(program):
        sys.exit(f"tools/paper: {program} is not built")
    with tempfile.TemporaryDirectory() as where:
        rows, made, drawn = layers_of(program, where), schedules(program, where), timeline(program, where)
    payloads, times = layer_tables(rows)
    tables = "".join(f"### Four {label}\n\n{schedule_table(made, card)}\n" for card, label in CARDS)
    last = rows[-1]

    def spread(key):
        shares = [r[key] / r["load"] for r in rows]
        return f"{min(shares):.2f} to {max(shares):.2f}"
    text = PAGE.format(payloads=payloads, times=times, schedules=tables, use=use_table(made), timeline=drawn,
                       head=ms(last["head"]), send=ms(last["payload"] / GRPC), factor=last["payload"] / GRPC / last["head"],
                       fwd=spread("fwd"), bwd=spread("bwd"), **comparisons(made))
    base = os.path.splitext(output)[0]
    block = [("load", [1e3 * r["load"] for r in rows]), ("forward", [1e3 * r["fwd"] for r in rows]),
             ("backward", [1e3 * r["bwd"] for r in rows]), ("payload, 610 Mbit/s", [1e3 * r["payload"] / GRPC for r in rows])]
    ways = [("ATOM", [1e3 * (made["v100", m[0]]["atom"][0] or 0) for m in MODELS])]
    ways += [(way, [1e3 * made["v100", m[0]][LINKS[0][0]][way][0] for m in MODELS]) for way in WAYS]
    for path, content in ((output, text), (base + "-block.svg", chart("One block of GPT-3 on a V100, fp32, 2048 tokens", "ms", block)),
                          (base + "-schedules.svg", chart("A mini-batch and GPU on four V100s, 400 Mbit/s", "ms", ways))):
        with open(path, "w", encoding="utf-8") as f:
            f.write(content)
    print(text)
