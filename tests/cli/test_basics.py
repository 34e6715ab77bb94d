"""What every command line program owes its caller: help, exit codes, clean streams."""
import json
import os
import re
import signal
import socket
import subprocess

import tool

COMMANDS = ["doctor", "data prepare", "data inspect", "profile", "plan", "train", "eval", "generate",
            "inspect", "bench", "pool selftest", "version", "help", "completion"]


class Basics(tool.Case):
    def test_version(self):
        self.assertRegex(self.ok("version").out, r"^atom \d+\.\d+\.\d+\n$")
        self.assertEqual(self.ok("--version").out, self.ok("version").out)
        version = self.ok("version", "--json").json()
        self.assertEqual(self.ok("version").out, f"atom {version['version']}\n")

    def test_help_at_every_level(self):
        top = self.ok("--help")
        self.assertEqual(top.err, "")
        for command in COMMANDS:
            self.assertIn(f"\n  {command} ", top.out)
            for args in (command.split() + ["--help"], command.split() + ["-h"], ["help"] + command.split()):
                text = self.ok(*args)
                self.assertTrue(text.out.startswith(f"atom {command}: "), str(text))
                self.assertEqual(text.err, "")
            if command not in ("version", "help"):
                self.assertIn("Examples:\n", text.out, command)
                self.assertIn(f"atom {command}", text.out.partition("Examples:\n")[2])
        self.assertIn("data prepare", self.ok("data", "--help").out)
        self.assertNotIn("  train ", self.ok("data", "--help").out)
        self.assertEqual(top.out, self.ok("help").out)

    def test_examples_parse(self):
        """Every option in an example is an option."""
        for command in COMMANDS:
            text = self.ok(*command.split(), "--help").out
            head, _, examples = text.partition("Examples:\n")
            for line in examples.splitlines():
                words = line.split("#")[0].split()
                if words[:1] != ["atom"] or " ".join(words[1:]).split("-")[0].strip()[:len(command)] != command:
                    continue
                for word in words:
                    if word.startswith("--"):
                        self.assertIn(word.split("=")[0], head, f"{command}: {line}")

    def test_wrong_words(self):
        self.fails(2, "trian", says=["unknown command 'trian'", "did you mean 'train'"])
        self.fails(2, "data", says=["prepare", "inspect"])
        self.fails(2, "data", "prepear", says="did you mean 'data prepare'")
        self.fails(2, "version", "--jsno", says=["'--jsno'", "did you mean '--json'"])
        self.fails(2, "version", "surplus", says="surplus")
        self.fails(2, says="no command")
        self.fails(2, "")
        self.fails(2, "help", "nothing", says="unknown command")

    def test_variables_that_nobody_reads(self):
        def said(**env):
            return [line for line in self.ok("version", env=env).err.splitlines() if "environment variable" in line]

        self.assertEqual(said(), [])
        self.assertEqual(said(ATOM_TEST_SEED="1", ATOMS="1", MY_ATOM_ISA="x"), [])
        for wrong, right in ("ATOM_IAS", "ATOM_ISA"), ("ATOM_CUDA_GRAPH", "ATOM_CUDA_GRAPHS"), ("ATOM_PYHTON", "ATOM_PYTHON"):
            self.assertEqual(said(**{wrong: "avx2"}), [f"atom: warning: the environment variable {wrong} has no effect, because "
                                                       f"atom does not read it (did you mean {right}?)"])
        self.assertEqual(said(ATOM_SEED="1"), ["atom: warning: the environment variable ATOM_SEED has no effect, because atom "
                                               "does not read it"])
        # Whatever the sources do read is in the list.
        root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
        read = set()
        for folder in "atom", "codegen", "gossip", "kernels", "partition", "swap", "tools":
            for at, _, names in os.walk(os.path.join(root, folder)):
                for name in (n for n in names if n.endswith((".c", ".h", ".cpp", ".cu", ".cuh"))):
                    with open(os.path.join(at, name), encoding="utf-8") as f:
                        read.update(re.findall(r'getenv\("(ATOM_\w+)"\)', f.read()))
        self.assertGreaterEqual(len(read), 5)
        self.assertEqual(said(**{name: "" for name in read}), [])

    def test_options_that_are_given_twice(self):
        self.write("a.txt", "some words")
        self.write("b.txt", "other words")
        def prepare(*words):
            return self.ok("data", "prepare", "--force", "-o", "data", "--json", *words)

        told = "note: --val-fraction is given twice; the last one counts: '0.5', not '0'\n"
        twice = prepare("-i", "a.txt", "b.txt", "--val-fraction", "0", "--val_fraction=0.5")
        self.assertEqual(twice.err, told)
        self.assertGreater(json.loads(self.read("data", "dataset.json"))["val"]["tokens"], 0)
        # The same again says nothing new, and files to read add up.
        once = prepare("-i", "a.txt", "-i", "b.txt", "--val-fraction", 0, "--val-fraction", 0)
        self.assertEqual(once.err, "")
        self.assertEqual(json.loads(self.read("data", "dataset.json"))["text_bytes"], 21)

    def test_what_nothing_reads_is_refused(self):
        for words, says in ((("pool", "status", "--seconds", 3), "--seconds works only with --watch"),
                            (("pool", "selftest", "--bytes", "1MiB"), "--bytes works only with --via"),
                            (("pool", "selftest", "--minutes", 3), "--minutes works only with --serve"),
                            (("profile", "--model", "gpt2-124m", "--device-spec", "rtx-4090", "--threads", 2),
                             "--threads would have no effect"),
                            (("export", "--model", "m", "-o", "g", "--max_shard_size", "1GB"),
                             "--max-shard-size does not apply to --to gguf"),
                            (("bench", "disk", "--dir", "/nowhere"), "/nowhere"),
                            (("bench", "allreduce", "--self", 1), "--self works only with --addresses"),
                            (("bench", "allreduce", "--secret", "three words"), "--secret works only with --addresses"),
                            (("bench", "allreduce", "--addresses", "127.0.0.1:1,127.0.0.1:2", "--peers", 3), "--peers would have no"),
                            (("bench", "allreduce", "--strangers", 3, "--transport", "plain"), "needs --transport gate"),
                            (("bench", "train", "--only", "resident", "--device-memory", "1MiB"), "with --only resident")):
            self.fails(2, *words, says=says)

    def test_json_is_one_object(self):
        self.assertRegex(self.ok("doctor").out, r"disk tier   by (io_uring|libaio|threads)")
        doctor = self.ok("doctor", "--json")
        report = doctor.json()
        for key in ("version", "cpu", "memory", "disk", "cuda", "compiler", "libraries", "limits",
                    "kernels", "notes"):
            self.assertIn(key, report)
        self.assertFalse(report["cuda"]["used"])
        self.assertGreaterEqual(report["cpu"]["cores"], 1)
        for entry in report["kernels"]:
            self.assertEqual(entry["unsupported"], [], entry)
        self.assertIn("CUDA        not used: ", self.ok("doctor").out)

    def test_the_cpu_is_not_taken_without_a_word(self):
        with open(self.path("tiny.json"), "w", encoding="ascii") as f:
            json.dump({"model_type": "gpt2", "vocab_size": 64, "n_positions": 16, "n_embd": 16, "n_layer": 1, "n_head": 1}, f)
        words = ["profile", "--model", "tiny.json", "--micro-batch-size", 1, "--sequence-len", 16]
        self.env["ATOM_CUDA_MODULE"] = "/nowhere.so"  # who names a module expects a card
        self.assertRegex(self.ok(*words).err, "the CPU is used instead of a card. .*/nowhere.so")
        self.assertNotIn("instead of a card", self.ok(*words, "--device", "cpu").err)

    def test_stdout_that_fails(self):
        with open("/dev/full", "w", encoding="ascii") as full:
            self.fails(4, "help", stdout=full, says="No space left on device")
        read, write = os.pipe()
        os.close(read)
        gone = self.run_atom("help", stdout=write)
        os.close(write)
        self.assertEqual((gone.code, gone.err), (1, ""))

    def test_completion_works_in_bash(self):
        script = self.write("complete", self.ok("completion", "bash").out)

        def complete(*words):
            line = " ".join(words)
            run = subprocess.run(
                ["bash", "-c", f'source {script}; COMP_WORDS=({line} ""); COMP_CWORD={len(words)}; '
                 '_atom; printf "%s\\n" "${COMPREPLY[@]}"'], capture_output=True, text=True, check=True)
            return run.stdout.split()

        self.assertIn("train", complete("atom"))
        self.assertEqual(sorted(complete("atom", "data")), ["inspect", "prepare"])
        self.fails(2, "completion", "tcsh", says="bash")

    def test_man_pages(self):
        for command in COMMANDS:
            page = self.ok("help", "--man", *command.split()).out
            self.assertIn(".TH ", page)


class Page(tool.Case):
    def test_it_ends_with_a_signal(self):
        """However soon that comes: it is sent as soon as the page's address is told."""
        os.makedirs(self.path("run", "pool"), mode=0o700)
        for name in "keys", "manifest.json":
            self.write(os.path.join("run", "pool", name), "{}")
        for number in signal.SIGINT, signal.SIGTERM:
            page = self.start_atom("pool", "web", "run", "--listen", "127.0.0.1:0")
            self.assertRegex(page.stdout.readline(), r"^http://127\.0\.0\.1:\d+/\n$")
            page.send_signal(number)
            self.assertEqual(page.communicate(timeout=60), ("", ""))
            self.assertEqual(page.returncode, 0)

    def test_a_second_signal_ends_it_at_once(self):
        """It is closing, and waits for an answer from a member that gives none."""
        member = self.path("run", "pool")
        os.makedirs(member, mode=0o700)
        for name in "keys", "manifest.json":
            self.write(os.path.join("run", "pool", name), "{}")
        with socket.socket(socket.AF_UNIX) as silent, socket.socket() as reader:
            place = os.open(member, os.O_PATH)  # a short name for the socket
            silent.bind(f"/proc/self/fd/{place}/control.sock")
            os.close(place)
            os.chmod(os.path.join(member, "control.sock"), 0o600)
            silent.listen()
            silent.settimeout(60)
            page = self.start_atom("pool", "web", "run", "--listen", "127.0.0.1:0")
            port = int(page.stdout.readline().rstrip("/\n").rpartition(":")[2])
            reader.connect(("127.0.0.1", port))
            reader.sendall(f"GET /status.json HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
            with silent.accept()[0] as question:
                self.assertIn(b"status", question.recv(100))
                for number in signal.SIGINT, signal.SIGTERM:  # one is waited for, the other comes while it closes
                    page.send_signal(number)
                page.communicate(timeout=60)
        self.assertIn(page.returncode, (-signal.SIGINT, -signal.SIGTERM))


class Data(tool.Case):
    def test_prepare_and_inspect(self):
        text = tool.english(60000)
        self.write("book.txt", text)
        made = self.ok("data", "prepare", "--input", "book.txt", "--tokenizer", "bpe:400", "--output", "data",
                       "--json").json()
        self.assertEqual(made["vocab"], 400)
        self.assertEqual(made["text_bytes"], len(text))
        names = os.listdir(self.path("data"))
        self.assertIn("tokenizer.json", names)
        self.assertTrue(any(n.startswith("train_") and n.endswith(".bin") for n in names))
        self.assertTrue(any(n.startswith("val_") and n.endswith(".bin") for n in names))
        seen = self.ok("data", "inspect", "data", "--json").json()
        self.assertEqual(seen["train"]["tokens"], made["train"]["tokens"])
        self.assertTrue(text.startswith(seen["preview"][:40]))
        self.assertIn("vocabulary 400", self.ok("data", "inspect", "data").out)

    def test_unhappy(self):
        self.write("book.txt", tool.english(5000))
        self.write("bad.txt", b"good so far \xff\xfe not any more")
        self.write("lines.jsonl", json.dumps({"text": "hello"}) + "\n{\"no\": 1}\n")
        self.fails(3, "data", "prepare", "--input", "none.txt", "--output", "d", says="none.txt")
        self.fails(2, "data", "prepare", "--input", self.dir, "--output", "d", says="is a directory; name the files in it")
        self.fails(3, "data", "prepare", "--input", "bad.txt", "--output", "d", says=["bad.txt", "12"])
        self.fails(3, "data", "prepare", "--input", "lines.jsonl", "--output", "d", says="lines.jsonl:2")
        self.fails(2, "data", "prepare", "--input", "book.txt", "--tokenizer", "bpe:3", "--output", "d",
                   says="bpe:3")
        self.fails(2, "data", "prepare", "--input", "book.txt", "--output", "d", "--val-fraction", "0.9",
                   says="--val-fraction")
        self.fails(2, "data", "prepare", "--input", "book.txt", says="--output")
        self.fails(2, "data", "prepare", "--input", "", "--output", "d", says="--input: it is empty; name a file")
        self.fails(2, "data", "prepare", "--input", "book.txt", "--output=", says="--output: it is empty; name a dir")
        self.ok("data", "prepare", "--input", "book.txt", "--output", "d")
        self.fails(2, "data", "prepare", "--input", "book.txt", "--output", "d", says="--force")
        self.ok("data", "prepare", "--input", "book.txt", "--output", "d", "--force")
        self.fails(3, "data", "inspect", "nowhere", says="nowhere")
        self.fails(2, "inspect", "d", says="d is a data set; atom data inspect d")

    def test_what_only_chats_have_is_refused_for_texts(self):
        self.write("book.txt", tool.english(5000))
        for key, value in ("--loss", "answers"), ("--loss", "all"), ("--template", "plain"), ("--template-vars", "{}"):
            self.fails(2, "data", "prepare", "--input", "book.txt", "--output", "d", key, value,
                       says=[key[2:].replace("-", "_"), "no chats in the input"])
        self.fails(2, "data", "prepare", "--input", "book.txt", "--output", "d", "--format", "messages",
                   says=["format would have no effect", ".txt"])
        self.assertFalse(os.path.exists(self.path("d")), "what failed leaves no empty directory")
        self.ok("data", "prepare", "--input", "book.txt", "--output", "auto", "--format", "auto")
        self.write("more.jsonl", '{"text": "more"}\n')
        self.ok("data", "prepare", "--input", "book.txt", "more.jsonl", "--output", "both", "--format", "text")
        os.mkdir(self.path("mine"))
        self.fails(2, "data", "prepare", "--input", "book.txt", "--output", "mine", "--loss", "all", says="loss")
        self.assertTrue(os.path.isdir(self.path("mine")))

    def test_damaged_shards(self):
        self.write("book.txt", tool.english(20000))
        self.ok("data", "prepare", "--input", "book.txt", "--output", "d")
        shard = self.read("d", "train_000000.bin")
        self.write("d/train_000000.bin", shard[:-7])
        self.fails(3, "data", "inspect", "d", says="train_000000.bin")
        self.write("d/train_000000.bin", shard[:500])
        self.fails(3, "data", "inspect", "d", says="train_000000.bin")
        self.write("d/train_000000.bin", b"\0" * 4 + shard[4:])
        self.fails(3, "data", "inspect", "d", says="train_000000.bin")
        self.write("d/train_000000.bin", shard[:1024] + b"\xff\xff" + shard[1026:])
        self.fails(3, "data", "inspect", "d", says=["train_000000.bin", "65535"])

    def test_full_disk_loses_nothing(self):
        self.write("book.txt", tool.english(200000))
        self.ok("data", "prepare", "--input", "book.txt", "--output", "d")
        before = self.read("d", "train_000000.bin")
        # 64 blocks of 1 KiB per file: the shards do not fit
        limited = ("bash", "-c", 'ulimit -f 64; exec "$@"', "limited")
        self.fails(4, "data", "prepare", "--input", "book.txt", "--output", "d", "--force", prefix=limited)
        self.assertEqual(self.read("d", "train_000000.bin"), before)
        self.fails(4, "data", "prepare", "--input", "book.txt", "--output", "e", prefix=limited)


if __name__ == "__main__":
    tool.main()
