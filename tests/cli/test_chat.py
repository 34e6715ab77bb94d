"""Chats from a file to a trained model: prepare, preset sft, loss on answers only."""
import gzip
import json
import os
import random
import string

import tool

CONFIG = {"model_type": "gpt2", "vocab_size": 257, "n_positions": 48, "n_embd": 48, "n_layer": 2,
          "n_head": 3, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
PREFIXES = ["--user-prefix", "U:", "--assistant-prefix", "A:", "--turn-suffix", r"\n"]
ANSWER = "yes"


def chats(n):
    """Questions of noise, which nobody can learn, and one answer to all of them. Every shape in turn."""
    pick = random.Random(3)
    for i in range(n):
        question = "".join(pick.choice(string.ascii_lowercase) for _ in range(12))
        yield [{"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": ANSWER}]},
               {"conversations": [{"from": "human", "value": question}, {"from": "gpt", "value": ANSWER}]},
               {"instruction": question, "input": "", "output": ANSWER},
               {"prompt": question, "completion": ANSWER}][i % 4]


class Chat(tool.Case):
    def setUp(self):
        super().setUp()
        lines = "".join(json.dumps(chat) + "\n" for chat in chats(400))
        self.input = self.write("chats.jsonl.gz", gzip.compress(lines.encode()))
        self.config = self.write("tiny.json", json.dumps(CONFIG))

    def prepare(self, out, *more):
        made = self.ok("data", "prepare", "-i", self.input, "-o", out, "--val-fraction", 0.1, *PREFIXES, "--json", *more)
        return made.json()

    def train(self, data, out, *more):
        return self.ok("train", "--model", self.config, "--data", data, "-o", out, "--preset", "sft", "--lr", 1e-2,
                       "--dtype", "fp32", "--micro-batch-size", 4, "--gradient-accumulation-steps", 2,
                       "--sequence-len", 32, "--eval-steps", 0, "--threads", 2, "--json", *more).json()

    def losses(self, out):
        with open(self.path(out, "metrics.jsonl"), encoding="ascii") as f:
            return [m["loss"] for m in map(json.loads, f) if m.get("split") != "val"]

    def test_only_answers_are_learnt(self):
        made = self.prepare("answers")
        self.assertEqual(made["chats"], 400)
        self.assertEqual(made["template"], "plain")
        self.assertEqual(made["targets"], 400 * (len(ANSWER) + 1))  # and the token that ends each
        self.assertTrue(os.path.exists(self.path("answers", "train_000000.mask")))
        self.assertTrue(os.path.exists(self.path("answers", "val_000000.mask")))
        everything = self.prepare("everything", "--loss", "all")
        self.assertEqual(everything["targets"], everything["train"]["tokens"] + everything["val"]["tokens"])
        self.assertEqual(everything["train"], made["train"])
        self.assertFalse(os.path.exists(self.path("everything", "train_000000.mask")))

        for folder, prepared in (("answers", made), ("everything", everything)):
            seen = self.ok("data", "inspect", folder, "--json").json()
            self.assertEqual(seen["targets"], prepared["targets"])
            self.assertEqual(seen["masked"], folder == "answers")
            self.assertEqual(seen["train"]["documents"] + seen["val"]["documents"], 400)

        self.train("answers", "run", "--max-steps", 20)
        first = self.losses("run")
        self.assertEqual(len(first), 20)
        self.assertLess(first[-1], 0.5 * first[0])  # twenty steps
        masked = self.train("answers", "long", "--max-steps", 60)["final_loss"]
        full = self.train("everything", "full", "--max-steps", 60)["final_loss"]
        # 12 of 22 tokens are noise of ln 26 = 3.26 nats each: 1.78 if all else were known
        self.assertLess(masked, 0.2)
        self.assertGreater(full, 1.5)
        # validation data have their mask as well
        model = self.path("long", "checkpoint-60")
        told = self.ok("eval", "--model", model, "--data", "answers", "--json").json()
        self.assertLess(told["loss"], 0.2)
        told = self.ok("eval", "--model", model, "--data", "everything", "--json").json()
        self.assertGreater(told["loss"], 1.5)

    def test_swapped_is_the_same(self):
        self.prepare("answers")
        self.write("tiny.json", json.dumps(dict(CONFIG, n_layer=4)))
        whole = self.train("answers", "whole", "--max-steps", 4)
        swapped = self.train("answers", "swapped", "--max-steps", 4, "--device-memory", "3400KiB")
        self.assertGreater(sum(swapped["bytes_copied"].values()), sum(whole["bytes_copied"].values()))
        self.assertEqual(self.losses("whole"), self.losses("swapped"))

    def test_refusals(self):
        bad = self.write("bad.jsonl", '{"text": "x"}\n{"messages": [{"role": "user", "content": "q"}]}\n')
        self.fails(3, "data", "prepare", "-i", bad, "-o", "d", says=["bad.jsonl:2: ", "assistant"])
        self.fails(2, "data", "prepare", "-i", bad, "-o", "d", "--template", "vicuna", says="vicuna")
        self.write("cut.jsonl.gz", self.read("chats.jsonl.gz")[:900])
        self.fails(3, "data", "prepare", "-i", "cut.jsonl.gz", "-o", "d", says=["cut.jsonl.gz", "cut off"])
        self.prepare("answers")
        mask = bytearray(self.read("answers", "train_000000.mask"))
        mask[100] ^= 1
        self.write("answers/train_000000.mask", bytes(mask))
        self.fails(3, "train", "--model", self.config, "--data", "answers", "-o", "run", says="train_000000.mask")

    def test_a_trained_model_answers(self):
        """The model's own template makes the prompt, and its answer ends where answers end."""
        config = self.write("long.json", json.dumps(dict(CONFIG, n_positions=96)))
        self.ok("data", "prepare", "-i", self.input, "-o", "plain")
        self.ok("train", "--model", config, "--data", "plain", "-o", "chat", "--preset", "sft", "--lr", 1e-2, "--dtype",
                "fp32", "--micro-batch-size", 4, "--gradient-accumulation-steps", 2, "--sequence-len", 80,
                "--eval-steps", 0, "--max-steps", 160)
        model = self.path("chat", "checkpoint-160")
        said = self.ok("generate", "--model", model, "--chat", "--prompt", "qwertz", "--temperature", 0, "--max-tokens", 20,
                       "--json").json()
        self.assertEqual(said["text"], ANSWER)
        self.assertEqual(said["tokens"], len(ANSWER) + 1)
        self.assertGreater(said["prompt_tokens"], len("qwertz") + 10)


if __name__ == "__main__":
    tool.main()
