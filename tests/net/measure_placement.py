"""What `atom plan --pool` predicts for unequal hosts on unequal lines, beside what the same hosts make of it.

  ATOM=build/release/atom SLOW=build/release/tests/pool/atom_slow \\
      python3 tests/net/measure_placement.py [--seconds S] [--micro-batches M] [--width D] [--ways gradients parameters]
      RELAY=.../net_relay python3 tests/net/measure_placement.py --rig relay --rtt MS

Each host is a namespace of this machine with a line of its own (rig.py), and runs the program itself, in one way after another
(delayed_gradients: sums with delayed_updates). It is the program on a slower machine (tests/pool/slow.c): every micro-batch
sleeps as long as the host's row of HOSTS says, so that speeds are unequal, and what they are hardly depends on what else this machine
does. The profile is measured here, by `atom profile`, and the pause is added to it. Prints both beside each other. By
hand, no test: what is measured depends on the clock. KEEP=1 keeps what the hosts wrote.
"""
import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import rig

ATOM = os.path.abspath(os.environ.get("ATOM", "build/release/atom"))
SLOW = os.path.abspath(os.environ.get("SLOW", "build/release/tests/pool/atom_slow"))
# Pause of a micro-batch in ms; the line's down and up in Mbit/s.
HOSTS = [("a", 100, 16, 8), ("b", 100, 8, 4), ("c", 200, 4, 4)]
WAYS = {"gradients": "gradients", "delayed_gradients": "gradients", "parameters": "parameters"}  # what `sync` is then
MODEL = {"model_type": "gpt2", "vocab_size": 257, "n_positions": 64, "n_embd": 128, "n_layer": 4, "n_head": 4,
         "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
SEQUENCE, PATIENCE, SETTLING = 16, 300, 4  # tokens of a micro-batch; seconds; steps or seconds before it counts
RUN = """
model: model.json
data: data
max_steps: 1000000
sequence_len: 16
micro_batch_size: 1
gradient_accumulation_steps: {each}
dtype: fp32
threads: 1
eval_steps: 0
save_steps: 0
pool:
  sync: {way}
  codec: int8
  min_peers: {hosts}
{more}"""


def say(text):
    print(text, file=sys.stderr, flush=True)


def run(place, *args):
    done = subprocess.run([ATOM, *map(str, args)], cwd=place, capture_output=True, text=True, timeout=PATIENCE, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, args))}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def profile(place, name, pause_ms):
    """This machine's, slower by a pause: in the loss, which runs once per micro-batch."""
    run(place, "profile", "--model", "model.json", "--sequence-len", SEQUENCE, "--micro-batch-size", 1, "--dtype", "fp32",
        "--threads", 1, "-o", f"{name}.json")
    path = os.path.join(place, f"{name}.json")
    with open(path, encoding="utf-8") as f:
        measured = json.load(f)
    measured["nodes"][-1]["bwd_seconds"] += 1e-3 * pause_ms
    with open(path, "w", encoding="utf-8") as f:
        json.dump(measured, f)


def predict(place, asked):
    lines = "".join(f"  - {{name: {name}, profile: {name}.json, link: {name}}}\n" for name, *_ in HOSTS)
    links = "".join(f"  - {{name: {name}, down_mbit: {down}, up_mbit: {up}, delay_ms: {asked.rtt / 4}}}\n"
                    for name, _, down, up in HOSTS)
    with open(os.path.join(place, "pool.yml"), "w", encoding="ascii") as f:
        f.write(f"step_tokens: {asked.micro_batches * SEQUENCE}\nhosts:\n{lines}links:\n{links}")
    plan = json.loads(run(place, "plan", "--model", "model.json", "--pool", "pool.yml", "--sequence-len", SEQUENCE,
                          "--micro-batch-size", 1, "--json"))
    return {**{way["mode"]: way for way in plan["ways"]}, "delayed_gradients": plan["delayed_gradients"]}


class Member:
    def __init__(self, net, place, row, each):
        self.each = each  # micro-batches of a step of its own
        self.name, self.pause, self.down, self.up = row
        self.place, self.dir, self.host = place, os.path.join(place, self.name), net.host()

    def start(self, *args):
        env = dict(os.environ, ATOM_SLOW_MS=str(self.pause), ATOM_SLOW_STEP_MS=str(self.pause * self.each),
                   XDG_CACHE_HOME=f"{self.place}/cache")
        self.err = os.path.join(self.place, f"{self.name}.err")
        with open(self.err, "w", encoding="utf-8") as err:
            self.process = self.host.start(
                ["env", "-C", self.place, os.path.abspath(SLOW), "pool", *args, "-o", self.dir, "--listen",
                 f"{self.host.address}:4400", "--no-lan", "--no-directory", "--no-router", "--json", "--quiet",
                 "--max-upload", self.up, "--max-download", self.down],
                stdout=subprocess.PIPE, stderr=err, env=env, text=True)

    def lines(self, *path):
        try:
            with open(os.path.join(self.dir, *path), encoding="utf-8") as f:
                return [json.loads(line) for line in f.read().split("\n")[:-1]]
        except FileNotFoundError:
            return []

    def steps(self):
        return [e for e in self.lines("metrics.jsonl") if e["split"] == "train"]

    def versions(self):
        return [e for e in self.lines("pool", "events.jsonl") if e["event"] == "certified"]

    def check(self):
        if self.process.poll() is not None:
            with open(self.err, encoding="utf-8") as f:
                sys.exit(f"{self.name} ended: {f.read()}")


def until(members, true, what):
    end = time.monotonic() + PATIENCE
    while not true():
        for m in members:
            m.check()
        if time.monotonic() > end:
            sys.exit(f"not in time: {what}")
        time.sleep(0.2)


def rate(rows, seconds):
    """Tokens per second between the first and the last row of so many seconds."""
    rows = [r for r in rows if r["time"] >= rows[-1]["time"] - seconds]
    return (rows[-1]["tokens"] - rows[0]["tokens"]) / (rows[-1]["time"] - rows[0]["time"]), len(rows) - 1


def measure(members, way, asked):
    if WAYS[way] == "gradients":
        until(members, lambda: len(members[0].steps()) >= SETTLING, "some steps")
    else:
        time.sleep(SETTLING)
    first = [m.versions() for m in members]
    time.sleep(asked.seconds)
    for m in members:
        m.check()
    versions = members[0].versions()[len(first[0]):]
    brought = {}
    for v in versions:
        for key, samples in v.get("brought", {}).items():
            brought[key] = brought.get(key, 0) + samples
    if WAYS[way] == "gradients":
        measured, steps = rate(members[0].steps(), asked.seconds)
    else:
        each = [rate(m.steps(), asked.seconds) for m in members]
        measured, steps = sum(r for r, _ in each), sum(n for _, n in each) / len(each)
    rounds = [v["round_s"] for v in versions]
    return {"tokens_per_second": measured, "steps": steps, "versions": len(versions), "round_s": rig.median(rounds),
            "brought": sorted(brought.values(), reverse=True)}


def train(place, way, asked):
    net = rig.Rig(asked.rig)
    directory = os.path.join(place, way)
    os.makedirs(directory)
    for name in ("model.json", "data"):
        os.symlink(os.path.join(place, name), os.path.join(directory, name))
    more = f"  global_batch_size: {asked.micro_batches}\n" if WAYS[way] == "gradients" else ""
    more += "  delayed_updates: true\n" if way == "delayed_gradients" else ""
    each = asked.micro_batches // len(HOSTS)
    with open(os.path.join(directory, "run.yml"), "w", encoding="ascii") as f:
        f.write(RUN.format(each=each, way=WAYS[way], hosts=len(HOSTS), more=more))
    members = [Member(net, directory, row, each) for row in HOSTS]
    try:
        for i, a in enumerate(members):
            for b in members[:i] if asked.rtt else []:
                net.delay(a.host, b.host, asked.rtt)
        for m in members:
            m.host.shape(m.up, m.down)
        members[0].start("create", "--config", "run.yml")
        ticket = members[0].process.stdout.readline()
        if not ticket:
            members[0].process.wait()
            members[0].check()
        for m in members[1:]:
            m.start("join", json.loads(ticket)["ticket"], "--data", "data", "--threads", "1")
        until(members, lambda: all(m.steps() for m in members), "everybody trains")
        return measure(members, way, asked)
    finally:
        for m in members:
            if hasattr(m, "process") and m.process.poll() is None:
                m.process.send_signal(signal.SIGKILL)
        net.close()


def main():
    ask = argparse.ArgumentParser()
    ask.add_argument("--seconds", type=float, default=90)
    ask.add_argument("--micro-batches", type=int, default=96)
    ask.add_argument("--rtt", type=float, default=0)
    ask.add_argument("--width", type=int, default=MODEL["n_embd"], help="of the model, in whole heads of 4: more bytes a round")
    ask.add_argument("--rig", choices=["bridge", "relay"], default="bridge")
    ask.add_argument("--ways", nargs="*", choices=WAYS, default=["gradients", "parameters"])
    asked = ask.parse_args()
    rig.inside(len(asked.ways) * (asked.seconds + 4 * PATIENCE))
    place = tempfile.mkdtemp(prefix="atom-placement-")
    try:
        with open(os.path.join(place, "model.json"), "w", encoding="ascii") as f:
            json.dump(dict(MODEL, n_embd=asked.width), f)
        with open(os.path.join(place, "book.txt"), "w", encoding="ascii") as f:
            f.write("In the beginning was the word, and the word was with the reader.\n" * 2000)
        run(place, "data", "prepare", "--input", "book.txt", "--output", "data")
        for name, pause, *_ in HOSTS:
            profile(place, name, pause)
        predicted = predict(place, asked)
        for way in asked.ways:
            p, m = predicted[way], train(place, way, asked)
            print(json.dumps({
                "way": way, "measured": round(m["tokens_per_second"], 1), "predicted": round(p["tokens_per_second"], 1),
                "of_predicted": round(m["tokens_per_second"] / p["tokens_per_second"], 3),
                "hosts_predicted": sum(h["takes_part"] for h in p["hosts"]), "sync_predicted_s": round(p["sync_seconds"], 3),
                "step_predicted_s": round(p["step_seconds"], 3), "compute_predicted_s": round(p["compute_seconds"], 3),
                "round_s": m["round_s"], "steps": m["steps"], "versions": m["versions"], "brought": m["brought"],
                "load": os.getloadavg()}), flush=True)
    finally:
        if os.environ.get("KEEP"):
            say(f"kept: {place}")
        else:
            shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    main()
