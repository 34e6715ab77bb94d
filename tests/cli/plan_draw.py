"""Random questions for plan_relations.py: a model, a device that somebody could have, memory, and options of `atom plan`; and what a
plan's figures must be by a count that knows only config.json."""
import copy
import json
import os

DEVICES = os.path.join(os.path.dirname(__file__), "..", "..", "presets", "devices")
MiB, GiB = 1 << 20, 1 << 30
PLENTY = 16384 * GiB  # of host memory, for any of these models

# Larger ones take seconds to plan.
PRESETS = ("gpt2-124m gpt2-350m gpt2-774m gpt2-1558m gpt3-1.3b gpt3-2.7b smollm2-135m smollm2-1.7b llama-3.2-1b llama-3.2-3b mistral-7b "
           "qwen2.5-0.5b qwen2.5-3b qwen3-0.6b qwen3-1.7b gemma-3-270m gemma-3-1b gemma-2-2b pythia-160m pythia-1.4b").split()


def gpt2(width, layers, positions, vocab):
    return {"model_type": "gpt2", "n_embd": width, "n_layer": layers, "n_head": width // 64, "n_positions": positions, "vocab_size": vocab,
            "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}


def llama(pick, width, layers, positions, vocab, kind="llama"):
    """With as many heads of keys and values as of queries, or fewer."""
    heads = width // 64
    config = {"model_type": kind, "hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads, "head_dim": 64,
              "num_key_value_heads": pick.choice([n for n in range(1, heads + 1) if heads % n == 0]),
              "intermediate_size": pick.choice([2, 3, 4]) * width, "max_position_embeddings": positions, "vocab_size": vocab,
              "tie_word_embeddings": pick.random() < 0.5}
    if kind == "mistral":
        config["sliding_window"] = pick.choice([None, max(16, positions // 4)])
    return config


def weights(config):
    """Elements of the matrices that each token is multiplied with, those of norms and biases, and what attention is wide and deep."""
    if config["model_type"] == "gpt2":
        C, layers = config["n_embd"], config["n_layer"]
        return layers * 12 * C * C + config["vocab_size"] * C, layers * 13 * C + 2 * C, C, layers
    C, layers, F = config["hidden_size"], config["num_hidden_layers"], config["intermediate_size"]
    H, KV, D = config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]
    each = C * (H + 2 * KV) * D + H * D * C + 3 * C * F
    return layers * each + config["vocab_size"] * C, layers * 2 * C + C, H * D, layers


def products(config, T):
    """Floating-point operations of all products of a step, for each of its tokens: two for each weight forward, four backward; attention
    multiplies twice forward and five times backward, and sees half of the T x T pairs."""
    matrices, _, wide, layers = weights(config)
    return 6 * matrices + (2 + 5) * layers * 2 * wide * T / 2


def mfu_operations(config, T):
    """The same as the usual definition of MFU counts them: six for every weight that is no lookup, and attention without a mask."""
    matrices, small, wide, layers = weights(config)
    return 6 * (matrices + small) + 12 * layers * wide * T


def device(name):
    with open(os.path.join(DEVICES, name + ".json"), encoding="utf-8") as f:
        return json.load(f)


def ideal_device():
    """It computes 1e12 operations a second in fp32, and nothing else takes any time."""
    spec = device("h100")
    at_once = {name: 1e18 for name in ("peak_device_bytes_per_second", "link_bytes_per_second", "host_bytes_per_second")}
    for name, value in {**at_once, "device_bytes": PLENTY, "host_bytes": PLENTY, "reserved_bytes": 0, "peak_flops_fp32": 1e12,
                        "sustained_fraction_fp32": 1, "copy_latency_seconds": 0, "launch_seconds": 0}.items():
        spec["figures"][name]["value"] = value
    return spec


class Asked:
    """What one `atom plan` is asked: options, and the description of a device. None: the option is left out."""

    def __init__(self, spec, **options):
        self.spec, self.options = spec, {key: value for key, value in options.items() if value is not None}

    def but(self, **changes):
        return Asked(self.spec, **{**self.options, **changes})

    def only(self, *keys):
        return Asked(self.spec, **{key: self.options.get(key) for key in keys})

    def times(self, **factors):
        """Of the same device with other figures."""
        spec = copy.deepcopy(self.spec)
        for name, factor in factors.items():
            spec["figures"][name]["value"] *= factor
        return Asked(spec, **self.options)

    def has(self, name):
        return self.spec["figures"][name]["value"]

    def device_bytes(self):
        return self.options.get("device_memory", self.has("device_bytes") - self.has("reserved_bytes"))

    def words(self, spec_file):
        words = ["--device-spec", spec_file]
        for key, value in self.options.items():
            flag = key.replace("_", "-")
            words += ["--" + flag, value] if value is not True and value is not False else ["--" + flag if value else "--no-" + flag]
        return words


def draw_model(pick):
    """The config.json of a model and the most tokens of its sequences, or the name of a preset and None."""
    if pick.random() < 0.4:
        return pick.choice(PRESETS), None
    width, layers = pick.choice([64, 128, 256, 512, 1024, 2048]), pick.choice([1, 2, 3, 4, 8, 16])
    vocab, T = pick.choice([256, 2048, 32000, 50257, 131072]), pick.choice([64, 128, 512, 1024, 4096])
    kind = pick.choice(["gpt2", "llama", "llama", "qwen3", "mistral"])
    return (gpt2(width, layers, T, vocab) if kind == "gpt2" else llama(pick, width, layers, T, vocab, kind)), T


def draw(pick, model, T):
    """A question about the model; its device has other rates in half of them."""
    spec = device(pick.choice(sorted(name[:-len(".json")] for name in os.listdir(DEVICES))))
    asked = Asked(spec, model=model, sequence_len=T or pick.choice([None, 128, 512, 1024]),
                  micro_batch_size=pick.choice([1, 1, 2, 4, 4, 8]), host_memory=pick.choice([PLENTY, PLENTY, 64 * GiB]),
                  gradient_accumulation_steps=pick.choice([None, None, 1, 2, 3, 4, 8, 32]))
    bf16 = ["bf16"] if asked.has("peak_flops_bf16") else []
    asked.options.update({"dtype": value} if (value := pick.choice([None, None, "fp32", *bf16])) else {})
    for chance, key, values in ((0.2, "moments_dtype", ["bf16"]), (0.15, "optimizer", ["muon"]), (0.1, "clip", [False]),
                                (0.15, "recompute", ["never", "always"]), (0.15, "updates", ["host"]), (0.1, "devices", [2]),
                                (0.12, "lora_r", [1, 8, 64]), (0.1, "optimizer_state", ["disk"])):
        if pick.random() < chance:
            asked.options[key] = pick.choice(values)
    if "devices" in asked.options and asked.options.get("gradient_accumulation_steps") == 1:
        asked.options["gradient_accumulation_steps"] = 2
    rates = ("link_bytes_per_second", "peak_flops_bf16", "host_bytes_per_second", "peak_device_bytes_per_second")
    return asked.times(**{name: pick.choice([1, 1, 1, 0.25, 0.5, 2, 4]) for name in rates}) if pick.random() < 0.5 else asked
