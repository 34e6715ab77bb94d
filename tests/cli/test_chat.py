"""Chats from a file to a trained model: prepare, preset sft, loss on answers only."""
import gzip
import json
import os
import pty
import random
import re
import select
import signal
import string
import subprocess
import time

import tool

CONFIG = {"model_type": "gpt2", "vocab_size": 257, "n_positions": 48, "n_embd": 48, "n_layer": 2,
          "n_head": 3, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
PREFIXES = ["--template", "plain", "--user-prefix", "U:", "--assistant-prefix", "A:", "--turn-suffix", r"\n"]
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


class Terminal:
    """A program with a terminal of its own."""

    def __init__(self, program, args, env):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(program, [program, *map(str, args)], env)
        self.seen = ""
        self.code = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.fd)
        if self.code is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)

    def until(self, word):
        """What it says up to a word that ends what is there."""
        while not self.seen.endswith(word):
            if not select.select([self.fd], [], [], 60)[0]:
                raise TimeoutError(self.seen)
            self.seen += os.read(self.fd, 4096).decode()
        said, self.seen = self.seen, ""
        return said.replace("\r\n", "\n")

    def until_it_writes_in_vain(self):
        """On a stopped screen: the kernel says that it sleeps in a call for descriptor 2."""
        deadline = time.monotonic() + 60
        call = ["running"]  # or its number and its arguments
        while call[1:2] != ["0x2"]:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{call} {self.seen}")
            time.sleep(0.01)
            with open(f"/proc/{self.pid}/syscall", encoding="ascii") as f:
                call = f.read().split()

    def write(self, data):
        os.write(self.fd, data)

    def say(self, line):
        self.write(line.encode() + b"\n")
        return self.until("\n> ")

    def wait(self):
        try:
            while os.read(self.fd, 4096):
                pass
        except OSError:
            pass  # the other side is closed
        self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.code


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
        self.fails(2, "eval", "--model", model, "--data", "answers", "--sequence-len", 4, "--micro-batch-size", 1, "--batches", 1,
                   says="use a larger --batches")
        told = self.ok("eval", "--model", model, "--data", "everything", "--json").json()
        self.assertGreater(told["loss"], 1.5)

    def test_chats_that_are_cut_are_told(self):
        """A chat has 22 tokens or more; sequences are cut from all of them as they lie."""
        self.prepare("answers")
        tokens = json.loads(self.read("answers", "dataset.json"))["train"]
        for packing, length in ("apart", 32), ("apart", 48), ("across", 32):
            said = self.ok("train", "--model", self.config, "--data", "answers", "-o", "run", "--dry-run", "--packing", packing,
                           "--sequence-len", length, "--micro-batch-size", 1, "--dtype", "fp32").err
            told = re.search(r"about (\d+) % of the documents are cut by the end of a sequence of (\d+) tokens", said)
            self.assertEqual(told is not None, packing == "apart", said)
            self.assertNotIn("see each other", said)
            if told:  # each cut ends a chat, but for those that fall between two
                expected = 100 * tokens["tokens"] / length / tokens["documents"]
                self.assertLess(abs(int(told.group(1)) - expected), 0.2 * expected)
                self.assertEqual(int(told.group(2)), length)

    def test_a_step_without_answers_has_no_loss(self):
        """Not one of 0, which would look like the best of all."""
        chats = [{"prompt": "a question that takes more than one sequence by itself " * 2, "completion": "yes"}] * 40
        self.input = self.write("long.jsonl", "".join(json.dumps(chat) + "\n" for chat in chats))
        self.prepare("long")
        run = ["train", "--model", self.config, "--data", "long", "--dtype", "fp32", "--micro-batch-size", 1,
               "--gradient-accumulation-steps", 1, "--sequence-len", 16, "--eval-steps", 0, "--preset", "sft", "--save-steps", 1,
               "--save-total-limit", 0, "--lr-scheduler", "constant", "--warmup-steps", 0]
        made = self.ok(*run, "--max-steps", 12, "-o", "run", "--json")
        losses = self.losses("run")
        self.assertEqual(len(losses), 12)
        learned = [loss for loss in losses if loss is not None]
        self.assertTrue(0 < len(learned) < 12 and losses[0] is None, losses)  # the first step of this seed has none, too
        self.assertGreater(min(learned), 0.1)
        step = re.search(r"note: step (\d+) has no token that counts", made.err)
        self.assertEqual(losses.index(None) + 1, int(step.group(1)))
        self.assertEqual(made.err.count("no token that counts"), 1)
        self.assertIn("step 1/12 loss nan", made.err)
        told = made.json()
        self.assertEqual((told["first_step"], told["first_loss"], told["final_loss"]), (1, learned[0], learned[-1]))
        self.ok(*run, "--max-steps", 13, "--resume-from-checkpoint", self.path("run", "checkpoint-1"), "-o", "again")
        self.assertEqual(self.losses("again")[:11], losses[1:])

    def test_chats_that_see_each_other_are_told(self):
        """Where nobody said whether they should."""
        self.prepare("answers")
        run = ["train", "--model", self.config, "--data", "answers", "-o", "run", "--dry-run", "--sequence-len", 32,
               "--micro-batch-size", 1, "--dtype", "fp32"]
        self.assertIn("will see each other; --packing apart", self.ok(*run).err)
        self.assertNotIn("see each other", self.ok(*run, "--preset", "sft").err)

    def test_eval_gives_the_loss_of_training(self):
        """Whether chats of a sequence see each other or not: the loss that the run printed, to the last bit."""
        self.prepare("answers")
        losses = {}
        for packing in "apart", "across":
            made = self.train("answers", packing, "--max-steps", 4, "--eval-steps", 4, "--eval-batches", 1000, "--packing", packing)
            model = self.path(packing, "checkpoint-4")
            how = ["eval", "--model", model, "--data", "answers", "--sequence-len", 32, "--dtype", "fp32", "--json"]
            told = self.ok(*how).json()
            self.assertEqual((told["loss"], told["packing"]), (made["validation_loss"], packing))
            other = {"apart": "across", "across": "apart"}[packing]
            self.assertNotEqual(self.ok(*how, "--packing", other).json()["loss"], told["loss"])
            losses[packing] = told["loss"]
        # A model that does not say how it was trained is measured across, like one that was trained so.
        self.ok("export", "--model", self.path("apart", "checkpoint-4"), "--to", "hf", "-o", "plain")
        how[2] = "plain"
        self.assertEqual(self.ok(*how).json()["packing"], "across")
        self.assertEqual(self.ok(*how, "--packing", "apart").json()["loss"], losses["apart"])
        os.unlink(self.path("answers", "tokenizer.json"))
        how[2] = self.path("apart", "checkpoint-4")
        told = self.ok(*how)
        self.assertEqual(told.json()["packing"], "across")
        self.assertIn("packing is 'across', although", told.err)
        self.fails(2, *how, "--packing", "apart", says=["packing", "no tokenizer.json"])

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
        self.fails(3, "data", "prepare", "-i", self.input, "-o", "plain", says=["chats.jsonl.gz:1: ", "name one with --template"])
        self.ok("data", "prepare", "-i", self.input, "-o", "plain", "--template", "plain")
        self.ok("train", "--model", config, "--data", "plain", "-o", "chat", "--preset", "sft", "--lr", 1e-2, "--dtype",
                "fp32", "--micro-batch-size", 4, "--gradient-accumulation-steps", 2, "--sequence-len", 80,
                "--eval-steps", 0, "--max-steps", 160)
        model = self.path("chat", "checkpoint-160")
        said = self.ok("generate", "--model", model, "--chat", "--prompt", "qwertz", "--temperature", 0, "--max-tokens", 20,
                       "--json").json()
        self.assertEqual(said["text"], ANSWER)
        self.assertEqual(said["tokens"], len(ANSWER) + 1)
        self.assertGreater(said["prompt_tokens"], len("qwertz") + 10)
        self.converse(model)
        self.pipe(model)
        self.ok("export", "--model", model, "--to", "gguf", "--output", "chat.gguf")
        again = self.ok("generate", "--model", "chat.gguf", "--chat", "--prompt", "qwertz", "--temperature", 0,
                        "--max-tokens", 20, "--json").json()
        self.assertEqual(again["text"], said["text"])
        self.assertEqual(again["prompt_tokens"], said["prompt_tokens"])

    def pipe(self, model):
        """A conversation of lines from a pipe: what is answered is the message, not an empty prompt."""
        def say(text, *more, code=0):
            done = subprocess.run([tool.ATOM, "generate", "--model", model, "--chat", "--temperature", "0", *more],
                                  input=text, env=self.env, capture_output=True, text=True, check=False,
                                  errors="surrogateescape")
            self.assertEqual(done.returncode, code, done)
            return done
        self.assertEqual(say("qwertz\nasdfgh\n").stdout.count(ANSWER), 2)
        self.assertNotIn(">", say("qwertz\n").stderr)
        self.assertEqual(say("\ufeffqwertz\n").stdout, say("qwertz\n").stdout)
        for wrong in "qwertz\nas\udcffd\n", "qwertz\nas\0d\n":  # what it is not is not answered
            told = say(wrong, code=3)
            self.assertIn("standard input, line 2: not text in UTF-8 at byte 2", told.stderr)
            self.assertEqual(told.stdout.count(ANSWER), 1)
        self.assertIn("no message on standard input", say("", code=2).stderr)
        self.assertIn("sees 96 at a time", say("x" * 120 + "\n", code=2).stderr)
        self.assertIn("it needs --prompt", say("qwertz\n", "--json", code=2).stderr)
        self.assertIn("--top-k would have no effect", say("qwertz\n", "--top-k", "3", code=2).stderr)
        self.assertIn("--seed would have no effect", say("qwertz\n", "--seed", "3", code=2).stderr)
        self.fails(2, "generate", "--model", model, "--template", "plain", says="--template works only with --chat")

    def converse(self, model):
        """A conversation on a terminal of its own."""
        with Terminal(tool.ATOM, ["generate", "--model", model, "--chat", "--temperature", "0"], self.env) as t:
            self.assertIn("Ctrl-D quits", t.until("> "))
            self.assertIn(ANSWER, t.say("qwertz"))
            self.assertIn("no such command", t.say("/what"))
            self.assertIn("sees 96 at a time", t.say("x" * 120))  # refused, and the conversation goes on
            told = t.say("asdfgh") + t.say("yxcvbn")
            self.assertIn("does not see them", told)
            t.say("/reset")
            self.assertIn(ANSWER, t.say("qwertz"))  # as at first
            t.write(b"half a li\x03")
            self.assertIn("Ctrl-D quits", t.until("> "))
            self.assertIn(ANSWER, t.say("qwertz"))
            # A signal that comes before the line is waited for: the prompt hangs where the screen is stopped (Ctrl-S).
            t.write(b"\x13/reset\n")
            t.until_it_writes_in_vain()
            os.kill(t.pid, signal.SIGINT)
            t.write(b"\x11")
            self.assertIn("Ctrl-D quits", t.until("> "))
            self.assertIn(ANSWER, t.say("qwertz"))
            t.write(b"\x04")
            self.assertEqual(t.wait(), 0)
        # an answer without an end: Ctrl-C stops it, if the model's memory was not full before
        with Terminal(tool.ATOM, ["generate", "--model", model, "--chat", "--ignore-end", "--max-tokens", "1000000",
                                  "--temperature", "1"], self.env) as t:
            t.until("> ")
            t.write(b"q\n")
            t.write(b"\x03")
            told = t.until("> ")
            self.assertTrue("(stopped)" in told or "context is full" in told or "Ctrl-D" in told, told)
            t.write(b"/exit\n")
            self.assertEqual(t.wait(), 0)


if __name__ == "__main__":
    tool.main()
