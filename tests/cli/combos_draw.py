"""Random combinations for combos.py: a small model of some family, data, and options of `atom train` that do not contradict each
other; and what must follow from them."""
import json
import math
import os
import random
import struct

import chats
import tool

STEPS, AT = 9, 4  # of every run, and where its middle checkpoint is
VOCAB = 300
PLAIN = ["--template", "plain"]

LLAMAS = {
    "llama": [{}, {"attention_bias": True, "mlp_bias": True}, {"num_key_value_heads": 1},
              {"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                "original_max_position_embeddings": 16}}],
    "mistral": [{"sliding_window": 7}, {"sliding_window": None}],
    "qwen2": [{}, {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1}],
    "qwen3": [{"head_dim": 12}],
    "smollm3": [{}],
    "granite": [{"embedding_multiplier": 12.0, "residual_multiplier": 0.22, "attention_multiplier": 0.125, "logits_scaling": 4.0}],
    "phi3": [{"num_key_value_heads": 2, "pad_token_id": None}, {"partial_rotary_factor": 0.5, "pad_token_id": None}],
    "olmo2": [{"num_key_value_heads": 4}],
    "olmo3": [{"num_key_value_heads": 4, "rope_theta": 10000.0, "sliding_window": 6}],
    "gemma2": [{"head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 5, "hidden_activation": "gelu_pytorch_tanh"}],
    "gemma3_text": [{"head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 5, "sliding_window_pattern": 2,
                     "hidden_activation": "gelu_pytorch_tanh"}],
}


def model(pick):
    """The config.json of a small model."""
    layers, positions = pick.randint(2, 4), 48
    kind = pick.choice(["gpt2", "gpt2", "gpt_neox", "llama", "llama", *LLAMAS])
    tied = pick.random() < 0.5
    if kind == "gpt2":
        drop = pick.choice([0, 0, 0.1])
        return {"model_type": kind, "vocab_size": VOCAB, "n_positions": positions, "n_embd": 24, "n_layer": layers, "n_head": 3,
                "resid_pdrop": drop, "embd_pdrop": drop, "attn_pdrop": pick.choice([0, drop]), "initializer_range": 0.1}
    config = {"model_type": kind, "vocab_size": VOCAB, "max_position_embeddings": positions, "hidden_size": 32, "intermediate_size": 40,
              "num_hidden_layers": layers, "num_attention_heads": 4, "initializer_range": 0.1}
    if kind == "gpt_neox":
        return dict(config, tie_word_embeddings=False, use_parallel_residual=pick.random() < 0.7, rotary_pct=pick.choice([0.25, 0.5, 1.0]))
    config.update(num_key_value_heads=2, tie_word_embeddings=tied, attention_dropout=pick.choice([0.0, 0.0, 0.1]))
    return dict(config, **pick.choice(LLAMAS[kind]))


def lines(pick):
    """Chats with answers of which some are not learned, and texts of some lengths."""
    words = tool.english(60000, seed=pick.randint(1, 9)).replace("\n", " ").split()

    def some(n):
        at = pick.randrange(len(words) - n)
        return " ".join(words[at:at + n])

    while True:
        turns = []
        for _ in range(pick.randint(1, 2)):
            turns += [chats.user(some(pick.randint(1, 6))), chats.says(some(pick.randint(1, 5)), **pick.choice([{}, {}, {"weight": 0}]))]
        if not any(turn.get("weight") == 0 for turn in turns[-1:]):
            yield pick.choice([{"messages": turns}, {"text": some(pick.randint(1, 30))}])


class Combo:
    """What one seed draws. options: keys of atom train -> values; they are what is trained and how, not where."""

    def __init__(self, seed):
        pick = self.pick = random.Random(seed)
        self.seed, self.model = seed, model(pick)
        self.T, self.B, self.C = pick.randint(8, 36), pick.randint(1, 3), pick.randint(1, 4)
        self.data_kind = pick.choice(["text", "shards", "documents", "chats", "chats", "packed"])
        self.lora = pick.random() < 0.35
        self.options = {"micro_batch_size": self.B, "gradient_accumulation_steps": self.C, "sequence_len": self.T,
                        "max_steps": STEPS, "dtype": pick.choice(["fp32", "fp32", "bf16"]), "seed": pick.randint(1, 99)}
        for draw in self.draw_optimizer, self.draw_schedule, self.draw_rest:
            draw(pick, self.options)
        if self.lora:
            self.draw_lora(pick, self.options)

    def draw_optimizer(self, pick, o):
        o["learning_rate"] = pick.choice([1e-2, 3e-3])
        if pick.random() < 0.3:
            o.update(optimizer="muon", **pick.choice([{}, {"muon_momentum": 0.8}]))
        if pick.random() < 0.3:
            o["moments_dtype"] = "bf16"
        for key, values in (("weight_decay", [0, 0.3]), ("max_grad_norm", [0, 0.3, 1.5, 1e9]), ("adam_beta1", [0, 0.8]),
                            ("adam_beta2", [0.9, 0.999]), ("adam_epsilon", [1e-6])):
            if pick.random() < 0.4:
                o[key] = pick.choice(values)

    def draw_schedule(self, pick, o):
        kind = pick.choice([None, "constant", "linear", "cosine", "wsd"])
        if kind:
            o["lr_scheduler"] = kind
        if kind != "constant" and pick.random() < 0.5:
            o["min_lr_ratio"] = pick.choice([0, 0.2, 1])
        if kind == "wsd" and pick.random() < 0.5:
            o["decay_ratio"] = pick.choice([0.3, 0.5])
        if pick.random() < 0.7:
            o["warmup_steps"] = pick.choice([0, 1, 3])

    def draw_rest(self, pick, o):
        if self.data_kind == "chats" or pick.random() < 0.2:
            o["preset"] = "sft"
        if pick.random() < 0.4:
            o["packing"] = pick.choice(["across", "apart"])
        if pick.random() < 0.35:
            o["dropout"] = pick.choice([0, 0.2])
        if pick.random() < 0.25 and not (self.lora and pick.random() < 0.9):
            o["save_dtype"] = "bf16"
        if pick.random() < 0.2:
            learned = [] if self.lora else ["bottleneck:4", "maxout:4"]
            o["compress_boundaries"] = pick.choice(["int8", "int4", "topk:0.3", "randomk:0.3"] + learned)
            o["at"] = pick.choice(["1", "1"] if self.layers() == 2 else ["1", "1,2", "2"])
        o["eval_steps"] = pick.choice([0, 2, 5, AT])
        if o["eval_steps"]:
            o["eval_batches"] = pick.choice([1, 3, 1000])

    def draw_lora(self, pick, o):
        o.update(lora_r=pick.choice([1, 3, 8]))
        names = self.names()
        if pick.random() < 0.6:
            o["lora_target_modules"] = ",".join(pick.sample(names, pick.randint(1, len(names))))
        for key, values in (("lora_alpha", [1, 5.5]), ("lora_dropout", [0.1]), ("lora_rslora", ["true"]), ("lora_dora", ["true"]),
                            ("lora_layers", ["0", "1"]), ("lora_modules_to_save", [self.embedding()])):
            if pick.random() < 0.3:
                o[key] = pick.choice(values)

    def names(self):
        """Of layers that may have an adapter."""
        packed = {"gpt2": ["c_attn", "c_proj", "c_fc"], "gpt_neox": ["query_key_value", "dense_h_to_4h"],
                  "phi3": ["qkv_proj", "gate_up_proj", "down_proj"]}
        return packed.get(self.model["model_type"], ["q_proj", "v_proj", "up_proj", "o_proj"])

    def drops(self):
        """Is anything dropped?"""
        o = self.options
        return o.get("lora_dropout") or o.get("dropout", any(v for k, v in self.model.items() if "drop" in k))

    def layers(self):
        return self.model.get("n_layer") or self.model["num_hidden_layers"]

    def embedding(self):
        return {"gpt2": "wte", "gpt_neox": "embed_in"}.get(self.model["model_type"], "embed_tokens")

    def prepare(self, case):
        """Writes model and data into the case's directory."""
        pick = random.Random(self.seed)
        case.write("model.json", json.dumps(self.model))
        more = []
        if self.data_kind in ("text", "shards"):
            name = "in.txt"
            case.write(name, tool.english(9000, seed=self.seed))
        else:
            name, made, source = "in.jsonl", [], lines(pick)
            while len(made) < 150:
                line = next(source)
                if self.data_kind == "documents" and "messages" in line:
                    line = {"text": line["messages"][0]["content"]}
                made.append(json.dumps(line) + "\n")
            case.write(name, "".join(made))
            more = (PLAIN if self.data_kind != "documents" else []) + (["--sequence-len", self.T] if self.data_kind == "packed" else [])
        case.ok("data", "prepare", "-i", name, "-o", "data", "--tokenizer", f"bpe:{VOCAB}" if self.data_kind != "chats" else "bytes",
                "--val-fraction", 0.1, *more)
        if self.data_kind == "shards":
            split(case.path("data"), pick)

    def places(self, pick, least):
        """Options of a place that must not change a bit. least: the smallest budget of device memory."""
        o = {"threads": pick.choice([1, 2, 3]), "execute": pick.choice(["interpreted"] * 5 + ["generated"])}
        if pick.random() < 0.7 and least:
            o.update(device_memory=int(least * pick.choice([1, 1, 1.1, 1.5])), recompute=pick.choice(["auto", "always", "never"]))
        if self.C > 1 and pick.random() < 0.4:
            o["devices"] = 2
            if least:
                o.setdefault("device_memory", 4 * least)
        if pick.random() < 0.5:
            o.update(optimizer_state="disk", store=pick.choice(["auto", "threads", "libaio"]))
            if self.options.get("max_grad_norm", 1) and pick.random() < 0.6:
                o["update_ahead"] = pick.choice(["always", "never"])
            if pick.random() < 0.3:
                o["store_dir"] = f"store-{pick.randrange(10**6)}"
        for key, values in (("trace", ["trace.json"]), ("report_to", ["tensorboard"]), ("logging_steps", [3]), ("save_steps", [1]),
                            ("save_rate", ["1MiB"]), ("eval_steps", [1, 3])):
            if pick.random() < 0.15:
                o[key] = pick.choice(values)
        if o.get("eval_steps"):
            o["eval_batches"] = 2
        if "optimizer_state" not in o and pick.random() < 0.2:
            o["host_memory"] = "300KiB"
        return o


def split(data, pick):
    """The shard in two, as other programs write them: without a hash."""
    os.remove(os.path.join(data, "dataset.json"))
    with open(os.path.join(data, "train_000000.bin"), "rb") as f:
        shard = f.read()
    at = 1024 + 2 * pick.randint(1, 2000)
    for i, tokens in enumerate((shard[1024:at], shard[at:])):
        with open(os.path.join(data, f"train_{i:06d}.bin"), "wb") as f:
            f.write(shard[:8] + struct.pack("<I", len(tokens) // 2) + bytes(1012) + tokens)


def words(options):
    """Keys and values -> the command line."""
    return [w for key, value in options.items() for w in ("--" + key.replace("_", "-"), value)]


def close(a, b, limit):
    return a is not None and b is not None and abs(a - b) <= limit * abs(b)


def rate(o, step):
    """The learning rate of a step, by docs and help."""
    steps, peak = STEPS, o["learning_rate"]
    kind = o.get("lr_scheduler", "cosine")
    warmup = o.get("warmup_steps", steps * (3 if o.get("preset") == "sft" else 2) // 100)
    end = peak * o.get("min_lr_ratio", 0.1 if kind == "cosine" else 0)
    if step < warmup:
        return peak * step / warmup
    done = (step - warmup) / (steps - warmup) if steps > warmup else 0
    if kind == "constant":
        return peak
    if kind == "linear":
        return peak + (end - peak) * done
    if kind == "cosine":
        return end + (peak - end) * (1 + math.cos(math.pi * done)) / 2
    fall = math.floor(o.get("decay_ratio", 0.2) * steps + 0.5)
    return peak + (end - peak) * max(0, step - (steps - fall)) / fall if fall else peak


def train_tokens(data):
    return sum(struct.unpack("<I", open(os.path.join(data, n), "rb").read(12)[8:])[0] for n in os.listdir(data)
               if n.startswith("train_") and n.endswith(".bin"))


def train_windows(data, T):
    return (train_tokens(data) - 1) // T


def targets(data, T):
    """Tokens of whole windows of the training split that are learned. One shard."""
    count = train_windows(data, T) * T
    path = os.path.join(data, "train_000000.mask")
    if not os.path.exists(path):
        return count
    with open(path, "rb") as f:
        bits = f.read()[32:]
    return sum(bits[i // 8] >> i % 8 & 1 for i in range(1, count + 1))
