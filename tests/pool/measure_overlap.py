"""How busy computing stays while a large model is averaged over slow links, with the timing of the real thing.

  SCALE=N       floats and rates are one N-th of the model's and its links', so every transfer takes as long as it would
  MEMBERS=N RATE=MBIT PARAMS=N STEP=S SYNC=H FRAGMENTS=F SECONDS=S CODEC=0..2 PATIENCE=S PLACE=DIR

Hosts of their own network namespaces, links shaped by tbf (tests/net/rig.py), members that pause in the place of
computing (timed.c). Busy is the time that steps should have taken over the time that passed, seam included; `seam_full`
charges what the seam took SCALE times, as the whole model's would be. The state is fetched before links are shaped.
Prints one line of JSON. By hand: what it measures depends on the clock.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "net"))
import rig  # noqa: E402  pylint: disable=wrong-import-position

TIMED = os.environ["TIMED"]
MEMBERS = int(os.environ.get("MEMBERS", "8"))
SCALE = int(os.environ.get("SCALE", "32"))
PARAMS = int(float(os.environ.get("PARAMS", "1.5e9")))
RATE = float(os.environ.get("RATE", "400"))
STEP = float(os.environ.get("STEP", "1"))
SYNC = int(os.environ.get("SYNC", "100"))
FRAGMENTS = int(os.environ.get("FRAGMENTS", "8"))
SECONDS = float(os.environ.get("SECONDS", "150"))
CODEC = int(os.environ.get("CODEC", "2"))  # gsp_codec: fp32, bf16, int8
PATIENCE = float(os.environ.get("PATIENCE", "240"))


class Member:
    def __init__(self, net, place, number):
        self.host, self.number = net.host(), number
        self.dir = os.path.join(place, str(number))
        self.lines, self.words, self.process = [], [], None

    def start(self, ticket):
        where = f"{self.host.address}:4400"
        args = ["join", self.dir, where, ticket] if ticket else [
            "create", self.dir, where, f"floats={PARAMS // SCALE}", f"sync={SYNC}", f"fragments={FRAGMENTS}",
            f"codec={CODEC}", "round=60"]
        self.process = self.host.start([TIMED] + args + [f"step={STEP}", "save=0", "hash=0"], stdout=subprocess.PIPE,
                                       stderr=subprocess.STDOUT, text=True)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.words.append(line)
            try:
                said = json.loads(line)
            except ValueError:
                continue
            if "ticket" in said:
                self.ticket = said["ticket"]
            elif "version" in said:
                self.lines.append(said)

    def roster(self):
        return self.lines[-1]["roster"] if self.lines else 0


def wait(members, test, what):
    end = time.monotonic() + PATIENCE
    while not test():
        if time.monotonic() > end or any(m.process and m.process.poll() is not None for m in members):
            print(f"not in time, or somebody ended: {what}\n" + "".join("".join(m.words[-3:]) for m in members))
            sys.exit(1)
        time.sleep(0.1)


def measure(members):
    first = [(m.lines[-1], len(m.lines)) for m in members]
    wire = [m.host.wire() for m in members]
    time.sleep(SECONDS)
    rows = []
    for m, (a, at), before in zip(members, first, wire):
        b, sent = m.lines[-1], m.host.wire()[0] - before[0]
        wall, steps = b["wall"] - a["wall"], b["steps"] - a["steps"]
        seam = b["seam"] - a["seam"]
        rows.append({
            "busy": steps * STEP / wall, "seam_full": steps * STEP / (wall + seam * (SCALE - 1)),
            "worst": b["worst"] if b["worst"] > a["worst"] else 0, "versions": b["version"] - a["version"],
            "included": b["included"] - a["included"], "round": rig.median([x["round"] for x in m.lines[at:]]),
            "sent_mbit": 8e-6 * sent / SECONDS})
    return rows


def main():
    rig.inside(SECONDS + 3 * PATIENCE)
    place = tempfile.mkdtemp(prefix="atom-overlap-", dir=os.environ.get("PLACE"))
    net = rig.Rig("bridge")
    members = [Member(net, place, i) for i in range(MEMBERS)]
    try:
        members[0].start(None)
        wait(members[:1], lambda: hasattr(members[0], "ticket"), "a ticket")
        for m in members[1:]:
            m.start(members[0].ticket)
        wait(members, lambda: all(m.roster() == MEMBERS for m in members), "all are members")
        for m in members:
            m.host.shape(RATE / SCALE)
        settled = members[0].lines[-1]["version"] + 2
        wait(members, lambda: all(m.lines[-1]["version"] >= settled for m in members), "two versions over shaped links")
        rows = measure(members)
    finally:
        net.close()
        shutil.rmtree(place, ignore_errors=True)
    print(json.dumps({
        "members": MEMBERS, "params": PARAMS, "scale": SCALE, "link_mbit": RATE, "step_s": STEP, "sync_steps": SYNC,
        "fragments": FRAGMENTS, "codec": CODEC, "seconds": SECONDS,
        "busy_least": round(min(r["busy"] for r in rows), 4), "busy_median": round(rig.median([r["busy"] for r in rows]), 4),
        "seam_full_least": round(min(r["seam_full"] for r in rows), 4),
        "stall_worst_s": round(max(r["worst"] for r in rows), 3), "versions": rows[0]["versions"],
        "included": [r["included"] for r in rows], "round_s": round(rig.median([r["round"] for r in rows]), 2),
        "sent_mbit": round(rig.median([r["sent_mbit"] for r in rows]), 2)}), flush=True)


if __name__ == "__main__":
    main()
