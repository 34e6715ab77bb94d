"""Codecs and bottlenecks on boundaries: what is said of bytes, that swapping and resuming change nothing, what becomes of
checkpoints, and what is refused."""
import json
import os
import signal
import struct
import time

import tool
from test_train import TrainCase

INT4 = ["--compress-boundaries", "int4", "--at", "1,3"]
AUTO = ["--resume-from-checkpoint", "auto"]


class Codec(TrainCase):
    def test_bytes_are_said(self):
        """48 values wide: 8 + 24 bytes at each of two boundaries, 96 in bf16."""
        said = self.train("int4", *INT4, steps=2)["boundaries"]
        self.assertEqual(said, {"codec": "int4", "at": "1,3", "blocks": 4, "bytes_per_token": 64, "bytes_per_token_bf16": 192})
        self.assertIsNone(self.train("plain", steps=2)["boundaries"])
        text = self.ok(*self.args("topk", "--compress-boundaries", "topk:0.1", "--at", 2, "--no-quiet", steps=2))
        for out in text.out, text.err:
            self.assertIn("16 bytes per token", out)  # 5 values and 48 bits

    def test_swapped_is_resident(self):
        for codec in "int8", "randomk:0.3":
            more = ["--compress-boundaries", codec, "--at", "1,2,3"]
            name = codec[:4]
            self.train(name + "swapped", *more, "--threads", 2)
            self.train(name + "resident", *more, "--threads", 1, "--execute", "interpreted", memory=None)
            self.assertEqual(self.weights(name + "swapped", 6), self.weights(name + "resident", 6))
            self.assertEqual(self.losses(name + "swapped"), self.losses(name + "resident"))

    def test_checkpoints_are_those_of_the_plain_model(self):
        self.train("plain", steps=2)
        self.train("int2", "--compress-boundaries", "int2", "--at", 2, steps=2)
        a, b = self.weights("plain", 2), self.weights("int2", 2)
        head = struct.unpack("<Q", a[:8])[0] + 8
        self.assertEqual(a[:head], b[:head], "the same tensors in the same places")
        self.assertNotEqual(a[head:], b[head:], "but the codec was felt")
        self.assertEqual(self.read("plain", "checkpoint-2", "config.json"), self.read("int2", "checkpoint-2", "config.json"))
        self.ok("eval", "--model", self.path("int2", "checkpoint-2"), "--data", self.data, "--sequence-len", 32)

    def test_resuming_keeps_the_codec(self):
        constant = ["--lr-scheduler", "constant"]
        self.train("whole", *INT4, *constant)
        self.train("parts", *INT4, *constant, steps=3)
        again = self.ok(*self.args("parts", *constant, *AUTO))
        self.assertIn("boundaries: int4 after 1,3 of 4 blocks", again.err)
        self.assertNotIn("from here", again.err)
        self.assertEqual(self.weights("parts", 6), self.weights("whole", 6))
        state = json.loads(self.read("parts", "checkpoint-6", "atom_state.json"))
        self.assertEqual((state["compress_boundaries"], state["at"]), ("int4", "1,3"))

    def test_what_changes_is_said(self):
        def go_on(steps, *more):
            return self.ok(*self.args("run", *AUTO, *more, steps=steps)).err

        self.train("run", steps=1)
        self.assertIn("compress_boundaries is int4 from here; it was none", go_on(2, *INT4))
        self.assertIn("at is 2 from here; it was 1,3", go_on(3, "--at", 2))
        self.assertIn("compress_boundaries is int8 from here; it was int4", go_on(4, "--compress-boundaries", "int8"))
        self.assertIn("compress_boundaries is none from here; it was int8", go_on(5, "--compress-boundaries", "none"))
        self.assertNotIn("boundaries", go_on(6))

    def test_a_run_on_disk_remembers_without_a_checkpoint(self):
        disk = ["--optimizer-state", "disk", "--lr-scheduler", "constant", "--save-steps", 0]
        process = self.start_atom(*self.args("run", *INT4, *disk, steps=1000000))
        end = time.monotonic() + 60
        while self.last_step("run") < 3 and time.monotonic() < end:
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        again = self.ok(*self.args("run", *disk, *AUTO, steps=self.last_step("run") + 3)).err
        self.assertIn("boundaries: int4 after 1,3", again)
        self.assertNotIn("compress_boundaries is", again)

    def test_refusals(self):
        for more, says in ((["--at", "2"], "at has no effect without compress_boundaries"),
                           (["--compress-boundaries", "none", "--at", "2"], "at has no effect"),
                           (["--compress-boundaries", "int8"], "needs at"),
                           (["--compress-boundaries", "int9", "--at", "2"], "'int9' is not a codec"),
                           (["--compress-boundaries", "topk", "--at", "2"], "topk:SHARE"),
                           (["--compress-boundaries", "int8", "--at", "4"], "it has 4"),
                           (["--compress-boundaries", "int8", "--at", "0"], "'0' is not a list"),
                           (["--compress-boundaries", "int8", "--at", "2,"], "'2,' is not a list"),
                           (["--compress-boundaries", "int8", "--at", "3,2"], "2 follows 3")):
            self.fails(2, *self.args("run", *more), says=says)


NARROW = ["--compress-boundaries", "bottleneck:5", "--at", "1,3"]  # 9.6 of 48 values: 10


class Bottlenecks(TrainCase):
    def header(self, out, step):
        raw = self.weights(out, step)
        return json.loads(raw[8:8 + struct.unpack("<Q", raw[:8])[0]])

    def tensors(self, out, step):
        """Bytes by name."""
        raw = self.weights(out, step)
        start = 8 + struct.unpack("<Q", raw[:8])[0]
        ends = {name: t["data_offsets"] for name, t in self.header(out, step).items() if name != "__metadata__"}
        return {name: raw[start + a:start + b] for name, (a, b) in ends.items()}

    def evaluate(self, model):
        return self.ok("eval", "--model", model, "--data", self.data, "--sequence-len", 32, "--dtype", "fp32", "--json").json()["loss"]

    def check_adapters(self, codec):
        self.train("run", *codec, steps=2)
        checkpoint, lora = self.path("run", "checkpoint-2"), ["--lora-r", 2, "--lora-target-modules", "c_attn"]
        self.ok("train", "--model", checkpoint, *self.args("lora", *lora, "--learning-rate", 1e-2, steps=2)[3:])
        adapter = self.path("lora", "checkpoint-2")
        merged = self.ok("export", "--model", adapter, "--to", "hf", "-o", self.path("merged"))
        self.assertIn("only atom can read", merged.err)
        self.assertAlmostEqual(self.evaluate(adapter), self.evaluate(self.path("merged")), delta=1e-4)


class Bottleneck(Bottlenecks):
    def test_they_are_a_part_of_the_model(self):
        """Said, saved, found again by eval, generate, inspect and further training; and by nobody who does not know them."""
        run = self.ok(*self.args("run", *NARROW, "--eval-steps", 6, "--json", "--no-quiet"))
        self.assertEqual(run.json()["boundaries"], {"codec": "bottleneck:5", "at": "1,3", "blocks": 4, "bytes_per_token": 80,
                                                    "bytes_per_token_bf16": 192})
        self.assertIn("bottlenecks: 10 of 48 values", run.err)
        tensors = self.header("run", 6)
        self.assertEqual(tensors["transformer.boundary.3.down.weight"]["shape"], [10, 48])
        self.assertEqual(tensors["transformer.boundary.1.up.weight"]["shape"], [48, 10])
        checkpoint = self.path("run", "checkpoint-6")
        config = json.loads(self.read("run", "checkpoint-6", "config.json"))
        self.assertEqual(config["model_type"], "atom_bottlenecks")
        self.assertEqual(config["atom_bottlenecks"], {"model_type": "gpt2", "after_blocks": [1, 3], "width": 10})
        validation = [m["loss"] for m in self.metrics("run") if m.get("split") == "val"]
        self.assertAlmostEqual(self.evaluate(checkpoint), validation[-1], delta=0.05)  # of a part of the same windows
        self.ok("generate", "--model", checkpoint, "--prompt", "the", "--max-tokens", 4)
        self.assertIn("2 bottlenecks of 10 values", self.ok("inspect", checkpoint).out)
        self.assertEqual(self.ok("inspect", checkpoint, "--json").json()["config"]["bottlenecks"], {"after_blocks": [1, 3], "width": 10})
        more = self.ok("train", "--model", checkpoint, *self.args("more", "--json", "--no-quiet", steps=2)[3:])
        self.assertIn("boundaries: bottleneck:4.8 after 1,3", more.err)
        self.assertEqual(json.loads(self.read("more", "checkpoint-2", "config.json"))["atom_bottlenecks"]["width"], 10)

    def test_swapped_is_resident(self):
        self.train("swapped", *NARROW, "--threads", 2)
        self.train("resident", *NARROW, "--threads", 1, "--execute", "interpreted", memory=None)
        self.assertEqual(self.weights("swapped", 6), self.weights("resident", 6))
        self.assertEqual(self.losses("swapped"), self.losses("resident"))

    def test_resumed_is_uninterrupted(self):
        constant = ["--lr-scheduler", "constant"]
        self.train("whole", *NARROW, *constant)
        self.train("parts", *NARROW, *constant, steps=3)
        again = self.ok(*self.args("parts", *constant, *AUTO))
        self.assertIn("boundaries: bottleneck:5 after 1,3 of 4 blocks", again.err)
        self.assertNotIn("from here", again.err)
        self.assertEqual(self.weights("parts", 6), self.weights("whole", 6))
        checkpoint = self.path("parts", "checkpoint-6")
        for more in ["--compress-boundaries", "none"], ["--compress-boundaries", "int8"], ["--at", "2"]:
            self.fails(2, *self.args("parts", *constant, *AUTO, *more, steps=8), says="they are a part of its model")
        self.ok("train", "--model", checkpoint, *self.args("parts", *constant, *AUTO, steps=7)[3:])
        self.train("plain", steps=1)
        self.fails(2, *self.args("plain", *AUTO, *NARROW, steps=2), says="the run to be resumed has no bottlenecks")

    def test_a_trained_model_gets_them(self):
        """With a rate of 0 all that it has stays as it was; new are the bottlenecks alone."""
        self.train("plain", steps=2)
        base, still = self.path("plain", "checkpoint-2"), ["--learning-rate", 0, "--weight-decay", 0]
        self.ok("train", "--model", base, *self.args("with", *NARROW, *still, steps=1)[3:])
        before, after = self.tensors("plain", 2), self.tensors("with", 1)
        self.assertEqual({name: after[name] for name in before}, before)
        self.assertEqual(set(after) - set(before), {f"transformer.boundary.{i}.{part}.weight" for i in (1, 3) for part in ("down", "up")})

    def test_adapters_of_such_a_model(self):
        self.check_adapters(NARROW)

    def test_exports_that_cannot_hold_them(self):
        self.train("run", *NARROW, steps=1)
        checkpoint = self.path("run", "checkpoint-1")
        for to, says in ("gguf", "GGUF cannot hold this one"), ("llmc", "llm.c's model files cannot hold"):
            self.fails(2, "export", "--model", checkpoint, "--to", to, "-o", self.path("out." + to), says=("bottlenecks between blocks", says))
        self.assertFalse([name for name in os.listdir(self.dir) if name.startswith("out.")])

    def test_refusals(self):
        for text, says in (("bottleneck", "is not a bottleneck"), ("bottleneck:", "is not a bottleneck"), ("bottleneck:1", "more than 1"),
                           ("bottleneck:49", "at most 48 here"), ("bottleneck:1.001", "would make nothing narrower"),
                           ("bottleneck:2x", "is not a bottleneck"), ("bottleneck:nan", "is not a bottleneck"),
                           ("bottle:2", "takes bottleneck:RATIO")):
            self.fails(2, *self.args("run", "--compress-boundaries", text, "--at", 2), says=says)
        for at, says in ("4", "after block 1 to 3"), ("3,1", "ascending"), ("0", "is not a list"):
            self.fails(2, *self.args("run", "--compress-boundaries", "bottleneck:4", "--at", at), says=says)
        self.fails(2, *self.args("run", "--compress-boundaries", "bottleneck:4"), says="needs at")
        self.train("plain", steps=1)
        self.fails(2, "train", "--model", self.path("plain", "checkpoint-1"), *self.args("run", *NARROW, "--lora-r", 2)[3:],
                   says="train the model with bottlenecks first")
        self.train("narrow", *NARROW, steps=1)
        for more in ["int8", "--at", "2"], ["none"], ["bottleneck:4", "--at", "1,3"], ["bottleneck:5", "--at", "1"]:
            self.fails(2, "train", "--model", self.path("narrow", "checkpoint-1"), *self.args("run", "--compress-boundaries", *more)[3:],
                       says=("10 values after 1,3 blocks", "leave compress_boundaries and at out"))


MAXOUT = ["--compress-boundaries", "maxout:4", "--at", "1,3"]  # 12 of 48 values
PARTS = {"ln_1.weight": [48], "ln_1.bias": [48], "ln_2.weight": [12], "ln_2.bias": [12], "up.weight": [48, 12]}


class Maxout(Bottlenecks):
    def test_it_is_a_part_of_the_model(self):
        run = self.ok(*self.args("run", *MAXOUT, "--eval-steps", 6, "--json", "--no-quiet"))
        self.assertEqual(run.json()["boundaries"], {"codec": "maxout:4", "at": "1,3", "blocks": 4, "bytes_per_token": 96,
                                                    "bytes_per_token_bf16": 192})
        self.assertIn("bottlenecks: 12 of 48 values", run.err)
        tensors = {name: t["shape"] for name, t in self.header("run", 6).items() if ".boundary." in name}
        self.assertEqual(tensors, {f"transformer.boundary.{i}.{part}": shape for i in (1, 3) for part, shape in PARTS.items()})
        checkpoint = self.path("run", "checkpoint-6")
        config = json.loads(self.read("run", "checkpoint-6", "config.json"))
        self.assertEqual(config["model_type"], "atom_bottlenecks")
        self.assertEqual(config["atom_bottlenecks"], {"model_type": "gpt2", "after_blocks": [1, 3], "width": 12, "kind": "maxout"})
        validation = [m["loss"] for m in self.metrics("run") if m.get("split") == "val"]
        self.assertAlmostEqual(self.evaluate(checkpoint), validation[-1], delta=0.05)  # of a part of the same windows
        self.ok("generate", "--model", checkpoint, "--prompt", "the", "--max-tokens", 4)
        self.assertIn("2 bottlenecks of 12 values between blocks (maxout)", self.ok("inspect", checkpoint).out)
        self.assertEqual(self.ok("inspect", checkpoint, "--json").json()["config"]["bottlenecks"],
                         {"after_blocks": [1, 3], "width": 12, "kind": "maxout"})
        more = self.ok("train", "--model", checkpoint, *self.args("more", "--json", "--no-quiet", steps=2)[3:])
        self.assertIn("boundaries: maxout:4 after 1,3", more.err)
        self.assertEqual(json.loads(self.read("more", "checkpoint-2", "config.json"))["atom_bottlenecks"]["kind"], "maxout")

    def test_swapped_is_resident(self):
        self.train("swapped", *MAXOUT, "--threads", 2)
        self.train("resident", *MAXOUT, "--threads", 1, "--execute", "interpreted", memory=None)
        self.assertEqual(self.weights("swapped", 6), self.weights("resident", 6))
        self.assertEqual(self.losses("swapped"), self.losses("resident"))

    def test_resumed_is_uninterrupted(self):
        constant = ["--lr-scheduler", "constant"]
        self.train("whole", *MAXOUT, *constant)
        self.train("parts", *MAXOUT, *constant, steps=3)
        again = self.ok(*self.args("parts", *constant, *AUTO))
        self.assertIn("boundaries: maxout:4 after 1,3 of 4 blocks", again.err)
        self.assertNotIn("from here", again.err)
        self.assertEqual(self.weights("parts", 6), self.weights("whole", 6))
        for more in ["--compress-boundaries", "none"], ["--compress-boundaries", "bottleneck:4"], ["--at", "2"]:
            self.fails(2, *self.args("parts", *constant, *AUTO, *more, steps=8), says="they are a part of its model")

    def test_a_trained_model_gets_it(self):
        """With a rate of 0 all that it has stays as it was; new are the boundaries' tensors alone."""
        self.train("plain", steps=2)
        self.ok("train", "--model", self.path("plain", "checkpoint-2"),
                *self.args("with", *MAXOUT, "--learning-rate", 0, "--weight-decay", 0, steps=1)[3:])
        before, after = self.tensors("plain", 2), self.tensors("with", 1)
        self.assertEqual({name: after[name] for name in before}, before)
        self.assertEqual(set(after) - set(before), {f"transformer.boundary.{i}.{part}" for i in (1, 3) for part in PARTS})

    def test_adapters_of_such_a_model(self):
        self.check_adapters(MAXOUT)

    def test_exports(self):
        """GGUF and llm.c cannot hold it; what goes to Hugging Face's form comes back as the same model."""
        self.train("run", *MAXOUT, steps=1)
        checkpoint = self.path("run", "checkpoint-1")
        for to, says in ("gguf", "GGUF cannot hold this one"), ("llmc", "llm.c's model files cannot hold"):
            self.fails(2, "export", "--model", checkpoint, "--to", to, "-o", self.path("out." + to), says=("bottlenecks between blocks", says))
        self.assertFalse([name for name in os.listdir(self.dir) if name.startswith("out.")])
        hf = self.ok("export", "--model", checkpoint, "--to", "hf", "-o", self.path("hf"))
        self.assertIn("only atom can read", hf.err)
        self.assertAlmostEqual(self.evaluate(checkpoint), self.evaluate(self.path("hf")), delta=1e-4)

    def test_a_kind_that_is_none(self):
        self.train("run", *MAXOUT, steps=1)
        path = self.path("run", "checkpoint-1", "config.json")
        with open(path, encoding="utf-8") as f:
            text = f.read()
        for kind in '"minout"', "7":
            with open(path, "w", encoding="utf-8") as f:
                f.write(text.replace('"kind": "maxout"', f'"kind": {kind}'))
            self.fails(3, "eval", "--model", self.path("run", "checkpoint-1"), "--data", self.data,
                       says=("config.json", 'kind must be "linear" or "maxout"'))

    def test_refusals(self):
        for text in "maxout", "maxout:", "maxout:1", "maxout:0", "maxout:-2", "maxout:5", "maxout:96", "maxout:2.5", "maxout:2x", "maxout: 2":
            self.fails(2, *self.args("run", "--compress-boundaries", text, "--at", 2), says=(f"'{text}' is not a maxout", "width, 48"))
        self.fails(2, *self.args("run", "--compress-boundaries", "max:2", "--at", 2), says="maxout:K")
        self.fails(2, *self.args("run", "--compress-boundaries", "maxout:4"), says="needs at")
        for at, says in ("4", "after block 1 to 3"), ("3,1", "ascending"), ("0", "is not a list"):
            self.fails(2, *self.args("run", "--compress-boundaries", "maxout:4", "--at", at), says=says)
        self.train("narrow", *MAXOUT, steps=1)
        for more in ["maxout:2", "--at", "1,3"], ["bottleneck:4", "--at", "1,3"], ["none"], ["maxout:4", "--at", "1"]:
            self.fails(2, "train", "--model", self.path("narrow", "checkpoint-1"), *self.args("run", "--compress-boundaries", *more)[3:],
                       says=("(maxout:4)", "12 values after 1,3 blocks", "leave compress_boundaries and at out"))


if __name__ == "__main__":
    tool.main()
