"""What tools/gpu-check measures, and the table of it: one line an entry, each with the card that it is of."""
import json

STAGES = ["start", "build", "ops", "equal", "smoke", "bench-resident", "bench-retention", "oracle", "bench-7b", "sanitize"]
GIB = 1 << 30
# (model, micro-batch, sequence, micro-batches)
RESIDENT = [("gpt2-124m", 16, 1024, 4), ("gpt2-1558m", 4, 1024, 16)]
TORCH_VOCAB = 50304  # as its users pad it; ours is 50257
RETENTION = ("gpt2-1558m", 1.56e9, 4, 1024)
BIG = ("gpt3-6.7b", 2, 2048, 16, "16GiB")
# Parameters, layers, width: 6 N + 12 L C T operations per token; dense bf16 peaks as the makers say.
SIZES = {"gpt2-124m": (124.4e6, 12, 768), "gpt2-1558m": (1557.6e6, 48, 1600), "gpt3-6.7b": (6.66e9, 32, 4096)}
PEAKS = {"H100 80GB HBM3": 989e12, "H200": 989e12, "H100 PCIe": 756e12, "A100": 312e12, "RTX 3090 Ti": 80e12, "RTX 3090": 71e12, "RTX 4090": 165e12, "RTX 5090": 209e12}


def number(of, key, text, scale=1):
    """The text with a figure in it; nothing where there is none."""
    value = of.get(key)
    return text.format(value * scale) if isinstance(value, (int, float)) else ""


class Table:
    """result: gpu-check.json as a dictionary, {stage: {name: entry}}. tiny: models too small for a share of a card's peak."""

    def __init__(self, result, tiny=False):
        self.result, self.tiny = result, tiny

    def mfu(self, model, sequence, rate, card):
        """Share of the card's peak; "" where that is not known."""
        peak = next((p for name, p in PEAKS.items() if name in card), None)
        if not peak or model not in SIZES or self.tiny or not rate:
            return ""
        n, layers, width = SIZES[model]
        return f", MFU {rate * (6 * n + 12 * layers * width * sequence) / peak:.3f}"

    def speed(self, stage, name, which, card):
        """None unless it was measured on that card."""
        entry = self.result.get(stage, {}).get(name, {})
        got = (entry.get("result") or {}) if entry.get("card", "") == card else {}
        return got.get("torch_tokens_per_second") if which == "torch" else (got.get(which) or {}).get("tokens_per_second")

    def kept(self, stage, name, rate, card):
        """A capped rate beside the resident ones of the same card."""
        before = {"bench-7b": "", "bench-retention": name.split("-")[0] + "-"}.get(stage)
        if before is None or not rate:
            return ""
        plain, same = (self.speed(stage, before + n, "resident", card) for n in ("resident", "resident-recompute"))
        again = self.result[stage].get(before + "resident-recompute", {}).get("result") or {}
        recomputed = (again.get("resident") or {}).get("recomputed_sub_models", 1)  # not known of a run that was cut off
        text = f", kept {rate / max(plain or 0, same or 0):.3f} of the best resident" if plain or same else ""
        return text + (f", {rate / same:.3f} of the one that recomputes" if same and recomputed else "")

    def run_text(self, stage, name, which, run, card):
        model, sequence = {"bench-7b": (BIG[0], BIG[2]), "bench-retention": (RETENTION[0], RETENTION[3])}.get(stage, (name, 1024))
        rate, step = run.get("tokens_per_second"), run.get("median_step_seconds")
        text = f"  {which}" + number(run, "tokens_per_second", " {:.0f} tokens/s") + self.mfu(model, sequence, rate, card)
        if which == "capped":
            text += self.kept(stage, name, rate, card)
        if step:
            text += number(run, "predicted_step_seconds", ", predicted/measured {:.2f}", 1 / step)
        text += number(run, "compute_busy", ", compute busy {:.3f}")
        text += number(run, "device_peak_bytes", ", device {:.1f} GiB", 1 / GIB)
        text += number(run, "planned_device_bytes", " (planned {:.1f})", 1 / GIB)
        text += number(run, "h2d_bytes_per_second", ", copies {:.1f}", 1e-9) + number(run, "d2h_bytes_per_second", "/{:.1f} GB/s", 1e-9)
        text += number(run, "recomputed_sub_models", ", recomputed {}") + number(run, "sub_models", " of {}")
        if run.get("muon"):
            text += f", Muon's products on the {run['muon'].get('products')}"
        return text + (f", state in {run['optimizer_state']}, updates on {run.get('updates')}" if "optimizer_state" in run else "")

    def line(self, stage, name, r, cards):
        got, card = r.get("result") or {}, r.get("card", "")
        state = {0: "good", 4: "does not fit", 77: "skipped", None: "not yet", 124: "cut off" if got else "out of time"}
        line = f"{stage:16} {name:22} " + state.get(r.get("exit"), f"FAILED ({r.get('exit')})") + (f" [{card}]" if cards > 1 else "")
        for which in ("resident", "capped"):
            if got.get(which):
                line += self.run_text(stage, name, which, got[which], card)
        for way in ("h2d", "d2h"):
            for key, how in ((way, "alone"), (way + "_both", "with the other way")):
                line += number(got.get(key) or {}, "bytes_per_second", f"  {way} {{:.1f}} GB/s {how}", 1e-9)
        for what, value in (got.get("ceilings") or {}).items():
            line += f"\n    {what}: " + " ".join(f"{v:.4g}" for v in (value if isinstance(value, list) else [value]))
        if "torch_tokens_per_second" in got:
            rate = got["torch_tokens_per_second"]
            line += f"  {rate:.0f} tokens/s{self.mfu(name.replace('torch-', ''), 1024, rate, card)} ({got.get('how')})"
        elif r.get("tail") and not got:
            line += "  " + r["tail"][-1][:120]
        return line

    def lines(self):
        lines = [json.dumps(self.result.get("machine", {})), "Tokens/s are of the median step; compute busy and copies of all steps, "
                 "the first and slowest one too."]
        entries = [(s, n, r) for s in STAGES for n, r in self.result.get(s, {}).items()]
        cards = {r["card"] for _, _, r in entries if r.get("card")}
        for stage, name, r in entries:
            try:
                lines.append(self.line(stage, name, r, len(cards)))
            except (TypeError, ValueError, KeyError, AttributeError) as error:
                lines.append(f"{stage:16} {name:22} cannot be shown: {error}")
        for card in sorted(cards):
            for model, *_ in RESIDENT:
                ours = self.speed("bench-resident", model, "resident", card)
                theirs = self.speed("bench-resident", f"torch-{model}", "torch", card)
                if ours and theirs:
                    lines.append(f"{model}: {ours / theirs:.3f} of PyTorch, whose vocabulary is padded to {TORCH_VOCAB} [{card}]")
        return lines
