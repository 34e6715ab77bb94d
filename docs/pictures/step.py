#!/usr/bin/python3
"""Draws one step of a trace as an SVG: a lane a stream, a colour a sub-model.

  step.py TRACE.json STEP OUT.svg [TITLE]

docs/pictures/step.svg is step 3 of

  atom train --model gpt2-124m --data data/ --output-dir run/ --device-memory 320MiB --max-steps 4 \\
      --micro-batch-size 1 --sequence-len 256 --gradient-accumulation-steps 4 --link-bandwidth 2GB --trace trace.json

on two cores of an AMD EPYC, with a text of 4 MB and a vocabulary of 4096 (--tokenizer bpe:4096). docs/pictures/h200.svg is step 4
of docs/measurements/2026-11-27-h200.md.
"""
import json
import sys

LANES = [(1, "host to device"), (0, "compute"), (2, "device to host"), (3, "optimizer")]
WIDTH, LEFT, TOP, LANE, GAP = 980, 110, 34, 34, 10


def colour(sub_model, code):
    if sub_model < 0:
        return "#b8b8c0"
    light = 46 if code in ("BWD", "LATE", "ROUND", "SPILL") else 62
    return f"hsl({(sub_model * 47 + 200) % 360},55%,{light}%)"


def boxes(spans, begin, scale):
    """(x, width, colour) of the spans of a lane; what touches in one colour is one."""
    made = []
    for e in sorted(spans, key=lambda e: e["ts"]):
        x, end = (LEFT + (at - begin) * scale for at in (e["ts"], e["ts"] + e["dur"]))
        fill = colour(e["args"]["sub_model"], e["name"])
        if made and made[-1][2] == fill and x - made[-1][1] < 0.6:
            made[-1][1] = max(end, made[-1][1])
        else:
            made.append([x, end, fill])
    return [(x, max(end - x, 0.4), fill) for x, end, fill in made]


def main(trace, step, out, title="of GPT-2 pass through a device that holds two of them"):
    with open(trace, encoding="utf-8") as f:
        spans = [e for e in json.load(f)["traceEvents"] if e.get("ph") == "X" and e["args"].get("step") == step]
    spans = [e for e in spans if e["tid"] in dict(LANES)]
    begin = min(e["ts"] for e in spans)
    end = max(e["ts"] + e["dur"] for e in spans)
    scale = (WIDTH - LEFT - 10) / (end - begin)
    height = TOP + len(LANES) * (LANE + GAP) + 22
    svg = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12">',
           f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>']
    models = 1 + max(e["args"]["sub_model"] for e in spans)
    svg.append(f'<text x="{LEFT}" y="18" fill="#333">one training step, {(end - begin) / 1e3:.0f} ms: {models} sub-models '
               f'{title}</text>')
    for row, (lane, name) in enumerate(LANES):
        y = TOP + row * (LANE + GAP)
        svg.append(f'<rect x="{LEFT}" y="{y}" width="{WIDTH - LEFT - 10}" height="{LANE}" fill="#f3f3f6"/>')
        svg.append(f'<text x="{LEFT - 8}" y="{y + LANE / 2 + 4}" text-anchor="end" fill="#333">{name}</text>')
        paths = {}
        for x, w, fill in boxes([e for e in spans if e["tid"] == lane], begin, scale):
            paths.setdefault(fill, []).append(f"M{x:.1f} {y}h{w:.1f}v{LANE}h-{w:.1f}z")
        svg += [f'<path fill="{fill}" d="{"".join(parts)}"/>' for fill, parts in paths.items()]
    turn = min(e["ts"] for e in spans if e["name"] == "BWD")
    x, y = LEFT + (turn - begin) * scale, TOP + len(LANES) * (LANE + GAP) - GAP
    svg.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 6}" y2="{y + 6}" stroke="#333" stroke-dasharray="3 3"/>')
    svg.append(f'<text x="{x - 6:.1f}" y="{y + 18}" text-anchor="end" fill="#333">forward</text>')
    svg.append(f'<text x="{x + 6:.1f}" y="{y + 18}" fill="#333">backward</text></svg>')
    with open(out, "w", encoding="utf-8") as f:
        f.write("\n".join(svg) + "\n")
    busy = sum(e["dur"] for e in spans if e["tid"] == 0) / (end - begin)
    print(f"{out}: {len(spans)} spans, compute busy {100 * busy:.1f} %")


if __name__ == "__main__":
    if len(sys.argv) not in (4, 5):
        sys.exit(__doc__)
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
