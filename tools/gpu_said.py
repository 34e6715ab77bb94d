"""What commands said under tools/gpu-check: the results of those that ended, and of those that were killed."""
import json
import re
import statistics


def last_json(text):
    """The last object that has a line of its own; what else was said may stand around it."""
    return json.loads([line for line in text.splitlines() if line.startswith("{")][-1])


def cut_off(text, tokens):
    """What a bench that was killed leaves: the median of its whole steps but the first, or None."""
    seconds = {}
    for which, number, took in re.findall(r"^(\w+): step (\d+) of \d+: ([\d.]+) s$", text, re.M):
        if int(number) > 1:
            seconds.setdefault(which, []).append(float(took))
    return {which: {"tokens_per_second": tokens / max(statistics.median(all_of), 1e-9), "median_step_seconds": statistics.median(all_of),
                    "steps": len(all_of)} for which, all_of in seconds.items()} or None
