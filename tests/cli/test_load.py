"""Loading a model takes no more host memory than the plan said: what is accounted, and what the kernel saw."""
import json
import os
import struct

import tool
from test_train import TrainCase

MIB = 1 << 20
# What a run of this size may take beside the plan that a tiny one does not: pages of the slab's and the heap's ends.
ALLOWANCE = 8 * MIB
LARGE = {"hidden_size": 640, "intermediate_size": 2560, "num_hidden_layers": 6, "vocab_size": 8192}
TINY = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "vocab_size": 320}
LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_attention_heads": 8,
         "num_key_value_heads": 4, "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
         "hidden_act": "silu", "tie_word_embeddings": True}
WIDTH = {"F32": 4, "BF16": 2}


def shapes(c):
    """Name and shape of all tensors of a llama with tied ends."""
    d, f, kv = c["hidden_size"], c["intermediate_size"], c["hidden_size"] // 2
    yield "model.embed_tokens.weight", (c["vocab_size"], d)
    for i in range(c["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        for name, shape in (("self_attn.q_proj", (d, d)), ("self_attn.k_proj", (kv, d)), ("self_attn.v_proj", (kv, d)),
                            ("self_attn.o_proj", (d, d)), ("mlp.gate_proj", (f, d)), ("mlp.up_proj", (f, d)),
                            ("mlp.down_proj", (d, f)), ("input_layernorm", (d,)), ("post_attention_layernorm", (d,))):
            yield f"{layer}{name}.weight", shape
    yield "model.norm.weight", (d,)


def elements(shape):
    return shape[0] * (shape[1] if len(shape) > 1 else 1)


def write_shard(path, tensors, dtype):
    """All weights are +-1/64 by turns. Leaves nothing of the file in the page cache."""
    pair = struct.pack("<ff", 0.015625, -0.015625) if dtype == "F32" else struct.pack("<HH", 0x3C80, 0xBC80)
    block, header, at = pair * 65536, {"__metadata__": {"format": "pt"}}, 0
    for name, shape in tensors:
        end = at + elements(shape) * WIDTH[dtype]
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for left in range(at, 0, -len(block)):
            f.write(block[:left])
        f.flush()
        os.fsync(f.fileno())
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def write_model(directory, size, dtype, shards):
    """A directory as transformers leaves it; its bytes."""
    config, tensors = dict(LLAMA, **size), list(shapes(size))
    os.makedirs(directory)
    with open(os.path.join(directory, "config.json"), "w", encoding="ascii") as f:
        json.dump(config, f)
    total, parts, filled = sum(elements(s) for _, s in tensors) * WIDTH[dtype], [[] for _ in range(shards)], 0
    for name, shape in tensors:
        parts[filled * shards // total].append((name, shape))
        filled += elements(shape) * WIDTH[dtype]
    names = ["model.safetensors"]
    if shards > 1:
        names = [f"model-{i + 1:05}-of-{shards:05}.safetensors" for i in range(shards)]
        where = {name: file for file, part in zip(names, parts) for name, _ in part}
        with open(os.path.join(directory, "model.safetensors.index.json"), "w", encoding="ascii") as f:
            json.dump({"metadata": {"total_size": total}, "weight_map": where}, f)
    for name, part in zip(names, parts):
        write_shard(os.path.join(directory, name), part, dtype)
    return total


class Load(TrainCase):
    SHAPE = ["--dtype", "bf16", "--micro-batch-size", 1, "--sequence-len", 16, "--threads", 2]

    def measured(self, *args):
        """What the program printed, and the most memory that it had."""
        with self.start_atom(*args, "--json") as process:
            out, err = process.stdout.read(), process.stderr.read()
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(process.returncode, 0, err)
        return json.loads(out), usage.ru_maxrss * 1024

    def train(self, model, profile, *more):
        return self.measured("train", "--model", model, "--profile", profile, "--data", self.data, "--output-dir",
                             f"{model}-out", "--overwrite", *self.SHAPE, "--gradient-accumulation-steps", 1,
                             "--max-steps", 1, "--warmup-steps", 0, "--eval-steps", 0, "--execute", "interpreted", *more)

    def profile(self, model):
        self.ok("profile", "--model", model, *self.SHAPE, "-o", f"{model}.json")
        return f"{model}.json"

    def beside_device(self, told, peak):
        """Host memory without the CPU device's, which is all touched and of the same process."""
        return peak - told["device_peak_bytes"]

    def test_loading_and_training_take_what_the_plan_says(self):
        write_model(self.path("tiny"), TINY, "F32", 1)
        tiny = self.profile("tiny")
        told, peak = self.train("tiny", tiny, "--dry-run")
        to_load = self.beside_device(told, peak) - told["host_peak_bytes"]
        told, peak = self.train("tiny", tiny)
        to_train = self.beside_device(told, peak) - told["host_plan_bytes"]
        plan = profile = None
        for dtype, shards in (("F32", 1), ("BF16", 1), ("BF16", 2), ("F32", 2)):
            model = f"{dtype.lower()}-{shards}"
            with self.subTest(model):
                size = write_model(self.path(model), LARGE, dtype, shards)
                profile = profile or self.profile(model)
                if model != "f32-2":
                    plan, peak = self.train(model, profile, "--dry-run")
                    self.holds(f"load {model}", size, plan["host_peak_bytes"], self.beside_device(plan, peak) - to_load)
                    continue
                run, peak = self.train(model, profile)
                self.assertEqual(run["host_plan_bytes"], plan["host_peak_bytes"], "the plan that was shown")
                self.assertLessEqual(run["host_peak_bytes"], run["host_plan_bytes"])
                self.holds(f"train {model}", size, run["host_plan_bytes"], self.beside_device(run, peak) - to_train)

    def holds(self, what, size, told, peak):
        print(f"\n{what}: {size / MIB:.0f} MiB of files, plan {told / MIB:.1f} MiB, peak {peak / MIB:.1f} MiB", end=" ")
        self.assertLessEqual(peak, told + ALLOWANCE)
        self.assertGreater(peak, told / 2, "measures something else")


if __name__ == "__main__":
    tool.main()
