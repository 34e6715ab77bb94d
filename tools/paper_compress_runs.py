"""The trainings behind tools/paper compress: one small model on real text, with each codec at each of two boundaries."""
import json
import os
import shutil
import subprocess
import sys

MODEL = {"model_type": "gpt2", "vocab_size": 2048, "n_positions": 64, "n_embd": 128, "n_layer": 4, "n_head": 4, "resid_pdrop": 0.0,
         "embd_pdrop": 0.0, "attn_pdrop": 0.0}
CODECS = ["int8", "int4", "int2", "topk:0.1", "randomk:0.1", "bottleneck:10"]
AT = [1, 3]
SEEDS = [1, 2, 3]
STEPS = 300
TRAIN = ["--dtype", "bf16", "--micro-batch-size", "4", "--gradient-accumulation-steps", "1", "--sequence-len", "64", "--max-steps",
         str(STEPS), "--learning-rate", "2e-3", "--eval-steps", str(STEPS), "--eval-batches", "60", "--save-steps", "0", "--threads", "1"]
# The same training with a number changed that should not matter: what runs differ by chance.
CHANCE = ["--adam-epsilon", "1.01e-8"]


def cases():
    """Names and options, those first without which the others say nothing."""
    for seed in SEEDS:
        yield f"none {seed}", seed, []
        yield f"chance {seed}", seed, CHANCE
    for seed in SEEDS:
        for codec in CODECS:
            for at in AT:
                yield f"{codec} {at} {seed}", seed, ["--compress-boundaries", codec, "--at", str(at)]


def ask(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"tools/paper: {done.stderr.strip()}")
    return done.stdout


def prepare(program, where):
    corpus = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus")
    os.makedirs(where, exist_ok=True)
    text, data, config = (os.path.join(where, name) for name in ("text.txt", "data", "config.json"))
    if not os.path.exists(text):
        ask(corpus, text)
    if not os.path.isdir(data):
        ask(program, "data", "prepare", "--input", text, "--output", data, "--tokenizer", f"bpe:{MODEL['vocab_size']}")
    with open(config, "w", encoding="utf-8") as f:
        json.dump(MODEL, f)
    return data, config


def train(program, where):
    """Validation loss, and bytes of a token and direction, by name; what an earlier call has made is kept."""
    path, out = os.path.join(where, "runs.json"), os.path.join(where, "run")
    made = {"steps": STEPS, "runs": {}}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as f:
            made = json.load(f)
        if made["steps"] != STEPS:
            sys.exit(f"tools/paper: {path} has runs of {made['steps']} steps, not {STEPS}; remove it")
    data, config = prepare(program, where)
    for name, seed, options in cases():
        if name in made["runs"]:
            continue
        shutil.rmtree(out, ignore_errors=True)
        said = json.loads(ask(program, "train", "--model", config, "--data", data, "-o", out, "--seed", str(seed), *TRAIN, *options,
                              "--json", "--quiet"))
        boundaries = said["boundaries"]
        made["runs"][name] = {"loss": said["validation_loss"], "seconds": said["seconds"],
                              "bytes": boundaries["bytes_per_token"] if boundaries else 2 * MODEL["n_embd"]}
        print(f"{name}: {said['validation_loss']:.4f}", file=sys.stderr, flush=True)
        with open(path + ".new", "w", encoding="utf-8") as f:
            json.dump(made, f, indent=1)
        os.replace(path + ".new", path)
    shutil.rmtree(out, ignore_errors=True)
    return made["runs"]
