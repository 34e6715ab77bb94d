"""atom eval --choices: questions that a small model knows the answers of, in every shape and through every option."""
import gzip
import json
import math
import os
import pty
import random
import shutil
import subprocess
import tempfile

import tool

CONFIG = {"model_type": "gpt2", "vocab_size": 257, "n_positions": 96, "n_embd": 48, "n_layer": 2, "n_head": 3,
          "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
COLORS = ["red", "blue", "green", "black", "white", "grey"]
ANIMALS = ["fox", "whale", "frog", "crow", "swan", "mouse"]
KEYS = {"acc", "acc_norm", "acc_stderr", "acc_norm_stderr", "questions", "cut_contexts", "choices", "sequence_len",
        "tokens", "tokens_per_second", "seconds"}


def animal(color, shift=0):
    return ANIMALS[(COLORS.index(color) + shift) % len(ANIMALS)]


def book(shift):
    """A world where each color has its animal."""
    pick = random.Random(1)
    return "".join(f"a {c} {animal(c, shift)}.\n" for c in (pick.choice(COLORS) for _ in range(3000)))


def questions(n):
    """(context, answers, the right one, the right one of a world that is shifted by one)."""
    pick = random.Random(2)
    for i in range(n):
        before, color = pick.choice(COLORS), pick.choice(COLORS)
        true, false = animal(color), animal(color, 1)
        others = pick.sample([a for a in ANIMALS if a not in (true, false)], 2)
        answers = [true, false, *others]
        pick.shuffle(answers)
        yield (f"a {before} {animal(before)}.\na {color}", [a + "." for a in answers], answers.index(true),
               answers.index(false))


SHAPES = {
    "hellaswag": lambda c, a, k: {"ind": 1, "ctx": c, "endings": a, "label": k, "split": "val"},
    "hellaswag_text": lambda c, a, k: {"ctx": c, "endings": a, "label": str(k)},
    "question": lambda c, a, k: {"question": c, "choices": a, "answer": k},
    "prompt": lambda c, a, k: {"prompt": c, "choices": a, "answer": "ABCD"[k]},
    "arc": lambda c, a, k: {"question": c, "choices": {"text": a, "label": list("1234")}, "answerKey": "1234"[k]},
    "spaces": lambda c, a, k: {"prompt": c, "choices": [" " + x for x in a], "answer": k},
}


class Choices(tool.Case):
    """All tests share one model, made before the first."""

    @classmethod
    def setUpClass(cls):
        cls.shared = tempfile.mkdtemp(prefix="atom-cli-shared-")
        cls.model = os.path.join(cls.shared, "run", "checkpoint-80")
        make = tool.Case("run_atom")
        make.dir, make.env = cls.shared, dict(os.environ, XDG_CACHE_HOME=os.path.join(cls.shared, "cache"))
        make.write("tiny.json", json.dumps(CONFIG))
        for name, shift in ("data", 0), ("shifted", 1):
            make.write(name + ".txt", book(shift))
            made = make.run_atom("data", "prepare", "-i", name + ".txt", "-o", name)
            assert made.code == 0, str(made)
        made = make.run_atom("train", "--model", "tiny.json", "--data", "data", "-o", "run", *cls.how(80))
        assert made.code == 0, str(made)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.shared, ignore_errors=True)

    @staticmethod
    def how(steps):
        return ["--dtype", "fp32", "--micro-batch-size", 4, "--sequence-len", 64, "--max-steps", steps, "--learning-rate", 1e-2,
                "--warmup-steps", 5, "--lr-scheduler", "constant", "--eval-steps", 0, "--quiet", "--threads", 2]

    def shared_cache(self):
        return os.path.join(self.shared, "cache")

    def file(self, name="q.jsonl", n=60, shape="hellaswag", shift=0, pack=lambda b: b):
        lines = [json.dumps(SHAPES[shape](c, a, w if shift else r)) + "\n" for c, a, r, w in questions(n)]
        return self.write(name, pack("".join(lines).encode()))

    def ask(self, file, *more):
        told = self.ok("eval", "--model", self.model, "--dtype", "fp32", "--choices", file, "--json", *more).json()
        self.assertEqual(set(told), KEYS)
        self.assertEqual(told["choices"], file)
        return told

    def test_knows_and_does_not(self):
        told = self.ask(self.file())
        self.assertEqual((told["acc"], told["acc_norm"], told["acc_stderr"]), (1, 1, 0))
        self.assertEqual((told["questions"], told["cut_contexts"], told["sequence_len"]), (60, 0, 64))
        rows = sum(len(c) + len(a) for c, answers, _, _ in questions(60) for a in answers)  # a space more, a target less
        self.assertEqual(told["tokens"], rows)
        told = self.ask(self.file(shift=1))
        self.assertEqual((told["acc"], told["acc_norm"]), (0, 0))
        # half of each
        lines = self.read("q.jsonl").splitlines(True)[:30]
        self.file()
        half = self.write("half.jsonl", b"".join(self.read("q.jsonl").splitlines(True)[:30] + lines))
        told = self.ask(half)
        self.assertEqual((told["acc"], told["acc_norm"]), (0.5, 0.5))
        self.assertAlmostEqual(told["acc_stderr"], math.sqrt(0.25 / 59), 12)
        self.assertAlmostEqual(told["acc_norm_stderr"], math.sqrt(0.25 / 59), 12)
        told = self.ask(half, "--limit", 40)
        self.assertEqual((told["questions"], told["acc"]), (40, 0.75))
        told = self.ask(half, "--limit", 1)
        self.assertEqual((told["questions"], told["acc"], told["acc_stderr"]), (1, 1, None))

    def test_for_people(self):
        self.file(n=1200)
        args = ["eval", "--model", self.model, "--dtype", "fp32", "--choices", "q.jsonl"]
        shown = self.ok(*args)
        self.assertEqual(shown.err, "")
        self.assertRegex(shown.out, r"\Aacc 1\.0000 \+- 0\.0000, acc_norm 1\.0000 \+- 0\.0000 \(1,200 questions\)\n"
                         r".*, .* tokens/s in sequences of 64\n\Z")
        shown = self.ok(*args, "--limit", 1, "--sequence-len", 12).out
        self.assertIn("acc 1.0000, acc_norm 1.0000 (1 question)\n", shown)
        self.assertIn("; 1 context did not fit and lost its beginning\n", shown)
        self.assertRegex(self.ok(*args, "--limit", 40, "--sequence-len", 12).out, "; 40 contexts did not fit")

    def test_terminal(self):
        """On a terminal it says how far it is and how long it will take."""
        file, (ours, theirs) = self.file(n=400), pty.openpty()
        env = dict(self.env, TERM="xterm")
        run = subprocess.Popen([tool.ATOM, "eval", "--model", self.model, "--choices", file, "--micro-batch-size", "1"],
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=theirs, env=env, cwd=self.dir)
        os.close(theirs)
        said = b""
        try:
            while True:
                said += os.read(ours, 4096)
        except OSError:
            pass  # the other side is closed
        os.close(ours)
        out = run.communicate()[0].decode()
        self.assertEqual(run.returncode, 0)
        self.assertIn("(400 questions)", out)
        self.assertRegex(said.decode(), r"question \d+ of 400: acc \d\.\d{3}, .* tokens/s, .* left")
        self.assertTrue(said.endswith(b"\r\x1b[K"), "the line is cleared")

    def test_shapes(self):
        """One set of questions in all shapes, plain and packed."""
        want = self.ask(self.file("q.jsonl"))
        for shape in SHAPES:
            told = self.ask(self.file(shape + ".jsonl", shape=shape))
            for key in ("acc", "acc_norm", "questions", "tokens", "sequence_len"):
                self.assertEqual(told[key], want[key], shape)
            if shape != "spaces":
                self.assertEqual(self.ask(self.file(shape + ".jsonl", shape=shape, shift=1))["acc"], 0, shape)
        self.assertEqual(self.ask(self.file("q.jsonl.gz", pack=gzip.compress))["tokens"], want["tokens"])
        piqa = [{"goal": c, "sol1": a[r], "sol2": a[w], "label": 0} for c, a, r, w in questions(40)]
        piqa += [{"goal": c, "sol1": a[w], "sol2": a[r], "label": "1"} for c, a, r, w in questions(40)]
        self.assertEqual(self.ask(self.write("piqa.jsonl", "".join(json.dumps(q) + "\n" for q in piqa)))["acc"], 1)

    def test_same_answers(self):
        """Batches, sequences, memory and threads change nothing."""
        mixed = [SHAPES["hellaswag"](c, a, w if i % 3 == 0 else r) for i, (c, a, r, w) in enumerate(questions(60))]
        file = self.write("mixed.jsonl", "".join(json.dumps(q) + "\n" for q in mixed))
        want = self.ask(file)
        self.assertAlmostEqual(want["acc"], 2 / 3)
        for more in (["--micro-batch-size", 1], ["--micro-batch-size", 64], ["--sequence-len", 40], ["--sequence-len", 96],
                     ["--device-memory", "6MiB"], ["--micro-batch-size", 1, "--device-memory", "3MiB"], ["--threads", 1],
                     ["--micro-batch-size", 1, "--sequence-len", 30]):
            told = self.ask(file, *more)
            for key in ("acc", "acc_norm", "acc_stderr", "acc_norm_stderr", "questions", "tokens", "cut_contexts"):
                self.assertEqual(told[key], want[key], more)

    def test_adapter(self):
        """An adapter that knows another world."""
        self.ok("train", "--model", self.model, "--data", os.path.join(self.shared, "shifted"), "-o", "lora", "--lora-r", 8,
                *self.how(60))
        right, other = self.file(), self.file("other.jsonl", shift=1)
        self.assertEqual((self.ask(right)["acc"], self.ask(other)["acc"]), (1, 0))
        adapter = ["--adapter", self.path("lora", "checkpoint-60")]
        self.assertGreater(self.ask(other, *adapter)["acc"], 0.95)
        self.assertLess(self.ask(right, *adapter)["acc"], 0.05)

    def test_usage(self):
        file, data = self.file(), os.path.join(self.shared, "data")
        args = ["eval", "--model", self.model]
        self.fails(2, *args, says=["--data", "--choices"])
        self.fails(2, *args, "--data", data, "--choices", file, says=["--data", "--choices"])
        self.fails(2, *args, "--choices", file, "--batches", 3, says=["--batches", "--limit"])
        self.fails(2, *args, "--choices", file, "--split", "train", says="--split")
        self.fails(2, *args, "--choices", file, "--packing", "apart", says="--packing works only with --data")
        self.fails(2, *args, "--data", data, "--limit", 3, says=["--limit", "--batches"])
        self.fails(2, *args, "--choices", file, "--sequence-len", 97, says=["97", "96"])
        self.fails(2, *args, "--choices", self.write("q.txt", "x"), says=["q.txt", ".jsonl"])
        self.fails(2, "eval", "--model", os.path.join(self.shared, "tiny.json"), "--choices", file, says="no weights")
        self.fails(4, *args, "--choices", file, "--device-memory", "100KiB", says="device memory")
        self.ok(*args, "--data", data)

    def test_bad_files(self):
        self.file()
        good = self.read("q.jsonl").splitlines(True)[0]
        args = ["eval", "--model", self.model, "--choices"]
        self.fails(3, *args, "none.jsonl", says="none.jsonl")
        for bad, says in ((b"{\"ctx\": \n", ["bad.jsonl:2:"]),
                          (b"[]\n", ["bad.jsonl:2:", "endings"]),
                          (b'{"endings": ["a", "b"], "label": 0}\n', ["bad.jsonl:2:", "ctx"]),
                          (b'{"ctx": "c", "endings": ["a"], "label": 0}\n', ["bad.jsonl:2:", "endings", "2 to 26"]),
                          (b'{"ctx": "c", "endings": ["a", "b"]}\n', ["bad.jsonl:2:", "label"]),
                          (b'{"ctx": "c", "endings": ["a", "b"], "label": 2}\n', ["bad.jsonl:2:", "label"]),
                          (b'{"ctx": "\xff", "endings": ["a", "b"], "label": 1}\n', ["bad.jsonl:2:", "UTF-8"])):
            self.write("bad.jsonl", good + bad + good)
            self.fails(3, *args, "bad.jsonl", says=says)
        self.fails(3, *args, self.write("empty.jsonl", ""), says="empty.jsonl")
        long = json.dumps({"ctx": "c", "endings": ["a", "b" * 96], "label": 0}) + "\n"
        self.write("long.jsonl", good + long.encode())
        self.fails(3, *args, "long.jsonl", says=["long.jsonl:2:", "answer 1", "97", "96"])
        self.ok(*args, "long.jsonl", "--limit", 1)
        self.fails(3, *args, "q.jsonl", "--sequence-len", 5, says=["q.jsonl:1:", "sequence_len"])

    def test_damaged_model(self):
        """A score that is no number is said, not counted."""
        shutil.copytree(self.model, self.path("bad"))
        weights = bytearray(self.read("bad", "model.safetensors"))
        weights[-4:] = b"\x00\x00\xc0\x7f"
        self.write("bad/model.safetensors", bytes(weights))
        self.fails(5, "eval", "--model", "bad", "--choices", self.file(), says=["q.jsonl:1:", "not finite"])
        os.remove(self.path("bad", "tokenizer.json"))
        self.fails(3, "eval", "--model", "bad", "--choices", self.file(), says="tokenizer.json")


if __name__ == "__main__":
    tool.main()
