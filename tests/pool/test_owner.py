"""What a hostile owner of a pool can do to the host of a volunteer who joins it: waste electricity, and nothing else.

The owner is the program itself, linked so that what it publishes asks for more (hostile_owner.c); the joiner is the
program as it is. Real processes on loopback.
"""
import hashlib
import json
import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
import tool  # noqa: E402

HOSTILE_OWNER = os.environ.get("HOSTILE_OWNER", "build/release/tests/pool/atom_hostile_owner")
CONFIG = {"model_type": "gpt2", "vocab_size": 257, "n_positions": 48, "n_embd": 48, "n_layer": 2,
          "n_head": 3, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
RUN = """
micro_batch_size: 2
gradient_accumulation_steps: 1
sequence_len: 32
max_steps: 1000000
learning_rate: 1e-3
dtype: fp32
threads: 1
execute: interpreted
eval_steps: 0
save_steps: 0
pool:
  sync_steps: 4
  fragments: 2
  heartbeat_seconds: 0.1
"""
ALONE = ["--no-lan", "--no-directory", "--json", "--quiet"]
PATIENCE = 60  # seconds; nothing here takes a tenth of it
LARGEST = 270_000_000_000  # bytes that one file of a manifest may have, nearly
PRECIOUS = b"ssh-ed25519 AAAAC3Nza volunteer@home\n" * 40


class Owner(tool.DataCase):
    MODEL = CONFIG

    def setUp(self):
        super().setUp()
        self.home = self.path("home")  # the volunteer's other files
        os.makedirs(self.home)
        self.precious = os.path.join(self.home, "authorized_keys")
        with open(self.precious, "wb") as f:
            f.write(PRECIOUS)
        self.turns, self.owner = 0, None
        self.addCleanup(self.end)

    def pool(self, **hostile):
        """A pool of a hostile owner, in the place of the one before; its ticket."""
        self.end()
        self.turns += 1
        out = f"owner{self.turns}"
        run = self.write("run.yml", RUN)
        process = subprocess.Popen([HOSTILE_OWNER, "pool", "create", "--config", run, "--model", self.config, "--data", self.data,
                                    "-o", out, "--listen", "127.0.0.1:0", *ALONE],
                                   cwd=self.dir, env={**self.env, **{"HOSTILE_" + k.upper(): v for k, v in hostile.items()}},
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.owner = process
        line = process.stdout.readline()
        self.assertTrue(line, process.stderr.read() if process.poll() is not None else "")
        return json.loads(line)["ticket"]

    def end(self):
        if self.owner:
            self.owner.kill()
            self.owner.communicate()
        self.owner = None

    def home_is_whole(self):
        """The volunteer's files: none more, none less, every byte of them."""
        self.assertEqual(os.listdir(self.home), ["authorized_keys"])
        with open(self.precious, "rb") as f:
            self.assertEqual(f.read(), PRECIOUS)

    def join(self, ticket, out, *more):
        return self.run_atom("pool", "join", ticket, "-o", out, "--listen", "127.0.0.1:0", "--max-steps", 2, *ALONE, *more,
                             timeout=PATIENCE)

    def refused(self, ticket, out, code, says, *more):
        """The joiner ends with one line that has all of `says`, before it has read data, a model or weights."""
        done = self.join(ticket, out, *more)
        errors = [line for line in done.err.splitlines() if line.startswith("atom: error: ")]
        self.assertEqual((done.code, len(errors)), (code, 1), str(done))
        for word in says:
            self.assertIn(word, errors[0])
        for name in ("metrics.jsonl", "local.yml", "data", "pool/anchor", "pool/member"):
            self.assertFalse(os.path.exists(self.path(out, name)), name)
        self.home_is_whole()

    def test_run_yml(self):
        """Whatever names a path, a device or a limit is not the pool's to say."""
        at = lambda name: os.path.join(self.home, name)
        kinds = [("trace", self.precious), ("data", self.data), ("plan", self.precious), ("profile", self.precious),
                 ("adapter", self.home), ("store_dir", self.home), ("output_dir", at("run")), ("model", self.config),
                 ("resume_from_checkpoint", self.home), ("threads", "64"), ("device", "cuda:3"), ("host_memory", "1TiB"),
                 ("save_steps", "1"), ("overwrite", "true")]
        for key, value in kinds:
            with self.subTest(key=key):
                ticket = self.pool(run=f"{key}: {json.dumps(value)}")
                self.refused(ticket, f"run-{key}", 3, ("run.yml", f"'{key}'", "owner"), "--data", self.data)

    def test_what_is_published(self):
        """An owner's usual run.yml works as it is; what is the owner's own stays at home, and is named."""
        private = f"trace: {json.dumps(self.path('t.json'))}\nstore_dir: {json.dumps(self.home)}\nsave_total_limit: 2\n"
        run = self.write("own.yml", private + RUN)
        self.owner = self.start_atom("pool", "create", "--config", run, "--model", self.config, "--data", self.data, "-o", "own",
                                     "--listen", "127.0.0.1:0", "--no-lan", "--no-directory", "--json")
        ticket = json.loads(self.owner.stdout.readline())["ticket"]
        published = self.read("own", "pool", "files", "run.yml").decode()
        self.assertIn("micro_batch_size: 2\n", published)
        for key in ("trace", "store_dir", "save_total_limit", "data", "model", "threads", "execute"):
            self.assertNotIn(f"{key}:", published)
        self.assertNotIn(self.dir, published)
        done = self.join(ticket, "joined")
        self.assertEqual(done.code, 0, str(done))
        self.owner.kill()
        said = self.owner.communicate()[1]
        self.owner = None
        self.assertIn("does not contain model, data, store_dir, threads, eval_steps, save_steps, save_total_limit, execute, trace", said)

    def test_words_for_a_terminal(self):
        ticket = self.pool(run='"\\x1b]0;owned\\x07": 1')
        self.refused(ticket, "words", 3, ("?]0;owned?", "owner"), "--data", self.data)

    def test_files_of_the_manifest(self):
        """No byte is fetched of files that no trainer reads, or that are larger than any trainer's."""
        for file, says in (("config.json::1000000000000", ("config.json", "931")),
                           ("tokenizer.json:authorized_keys:0", ("'authorized_keys'", "no trainer")),
                           ("train_000000.bin:authorized_keys:0", ("'authorized_keys'", "no trainer"))):
            with self.subTest(file=file):
                ticket = self.pool(file=file)
                out = f"file{self.turns}"
                self.refused(ticket, out, 3, (*says, "owner"))
                self.assertFalse(os.path.exists(self.path(out, "pool", "files")))

    def test_a_file_that_nobody_gives(self):
        ticket = self.pool(file="tokenizer.json::100000000")
        self.refused(ticket, "never", 1, ("tokenizer.json", "in time"), "--patience", 2, "--data", self.data)

    def test_a_data_set_that_no_disk_holds(self):
        if shutil.disk_usage(self.dir).free < LARGEST:
            ticket = self.pool(file=f"train_000000.bin::{LARGEST}")
            self.refused(ticket, "huge", 4, ("Nothing was fetched", "are free"))
            self.assertFalse(os.path.exists(self.path("huge", "pool", "files")))
        # And one that the disk holds, but the volunteer does not give so much.
        ticket = self.pool(file="train_000000.bin::2000000000")
        self.refused(ticket, "much", 4, ("Nothing was fetched", "--max-disk"), "--max-disk", 1)
        self.assertFalse(os.path.exists(self.path("much", "pool", "files")))

    def test_a_file_that_is_there_keeps_its_bytes(self):
        """A data file of the pool has the name of one that lies where it would go."""
        ticket = self.pool()
        mine = self.path("mine", "data")
        os.makedirs(mine)
        with open(os.path.join(mine, "train_000000.bin"), "wb") as f:
            f.write(PRECIOUS)
        done = self.join(ticket, "mine")
        self.assertEqual(done.code, 2, str(done))
        self.assertIn("train_000000.bin", done.err)
        with open(os.path.join(mine, "train_000000.bin"), "rb") as f:
            self.assertEqual(f.read(), PRECIOUS)
        self.assertEqual(os.listdir(mine), ["train_000000.bin"])
        # A link in the place of a download leads nowhere.
        for link in ("data/.train_000000.bin.part", "pool/files/.run.yml.part", "pool/files/run.yml", "data/train_000000.bin",
                     "pool/trees/train_000000.bin"):
            with self.subTest(link=link):
                out = "link" + link.replace("/", "-")
                place = self.path(out, link)
                os.makedirs(os.path.dirname(place))
                os.symlink(self.precious, place)
                self.join(ticket, out)
                self.home_is_whole()

    def test_settings(self):
        """Numbers that would overflow, and keys that are no settings."""
        for lines, says in (("trace: /tmp/x", "trace"), ("batch: 1000000000\nsteps: 1000000000000", "batch")):
            with self.subTest(lines=lines):
                ticket = self.pool(settings=lines)
                self.refused(ticket, f"set{self.turns}", 3, ("settings", says, "owner"))

    def test_an_honest_one(self):
        """The same programs without the lie: the joiner trains."""
        ticket = self.pool()
        done = self.join(ticket, "honest")
        self.assertEqual(done.code, 0, str(done))
        self.assertEqual(done.json()["steps"] >= 2, True)
        with open(self.path("honest", "data", "train_000000.bin"), "rb") as f, \
                open(os.path.join(self.data, "train_000000.bin"), "rb") as g:
            self.assertEqual(hashlib.sha256(f.read()).digest(), hashlib.sha256(g.read()).digest())
        self.home_is_whole()


if __name__ == "__main__":
    if not os.path.exists(HOSTILE_OWNER):
        sys.exit(f"no program at {HOSTILE_OWNER}; set HOSTILE_OWNER")
    HOSTILE_OWNER = os.path.abspath(HOSTILE_OWNER)
    tool.main()
