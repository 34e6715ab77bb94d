"""A pool of trainers on loopback: made, joined, killed, restarted, left, and gone on with alone."""
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time

import tool

CONFIG = {"model_type": "gpt2", "vocab_size": 257, "n_positions": 48, "n_embd": 48, "n_layer": 2,
          "n_head": 3, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
RUN = """
micro_batch_size: 4
gradient_accumulation_steps: 1
sequence_len: 32
max_steps: {steps}
learning_rate: 1e-3
warmup_steps: 5
lr_scheduler: constant
dtype: fp32
threads: 1
execute: interpreted
eval_steps: 0
save_steps: 40
save_total_limit: 2
pool:          # how members average
  sync_steps: 12
  fragments: 3
  codec: {codec}
  heartbeat_seconds: 0.1
  trust: friends
  outer_momentum: 0.8
"""
SLICES = RUN.replace("  outer_momentum: 0.8\n", "")  # which have no outer step
ALONE = ["--no-lan", "--no-directory", "--json", "--quiet"]
PATIENCE = 60  # seconds; nothing here takes a tenth of it


class Members(tool.DataCase):
    """Members of a pool as processes, and what they say of it."""

    MODEL = CONFIG

    def start(self, *args, **how):
        process = self.start_atom("pool", *args, *ALONE, **how)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def start_loud(self, *args):
        """What it says of every step goes to a file: a pipe that nobody reads is full after some hundred steps, and then the
        member stands still until the others go on without it."""
        said = tempfile.TemporaryFile("w+", dir=self.dir, encoding="utf-8")
        process = self.start_atom("pool", *args, stderr=said)
        for undo in said.close, process.stdout.close, process.wait, process.kill:  # the last one first
            self.addCleanup(undo)
        process.said = said
        return process

    def heard(self, process, timeout=None):
        """Both streams of a process that ends."""
        out, err = process.communicate(timeout=timeout)
        if err is None:
            process.said.seek(0)
            err = process.said.read()
        return out, err

    def create(self, out, steps=10**6, codec="int8", more=()):
        run = self.write("run.yml", (SLICES if "slices" in more else RUN).format(steps=steps, codec=codec))
        process = self.start("create", "--config", run, "--model", self.config, "--data", self.data, "-o", out,
                             "--listen", "127.0.0.1:0", *more)
        line = process.stdout.readline()
        self.assertTrue(line, process.stderr.read() if process.poll() is not None else "")
        return process, json.loads(line)["ticket"]

    def join(self, out, *args, **how):
        return self.start("join", *args, "-o", out, "--listen", "127.0.0.1:0", **how)

    def end(self, process, code):
        try:
            out, err = self.heard(process, PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            self.fails_late(process)
        self.assertEqual(process.returncode, code, out + err)
        return out, err

    def fails_late(self, process):
        """What everybody's membership saw last, before this is called a failure."""
        seen = self.heard(process)[1][-2000:]
        for name in sorted(os.listdir(self.dir)):
            if os.path.exists(self.path(name, "pool", "events.jsonl")):
                seen += f"\n{name}: " + "\n".join(json.dumps(e) for e in self.events(name)[-8:])
                seen += f"\n{json.dumps(self.status(name))}"
        self.fail(f"not at its end in {PATIENCE} s: {seen}")

    def status(self, out):
        result = self.run_atom("pool", "status", out, "--json")
        return result.json() if result.code == 0 else None

    def until(self, out, what, test, processes=()):
        end = time.monotonic() + PATIENCE
        status = None
        while time.monotonic() < end:
            status = self.status(out)
            if status and test(status):
                return status
            for process in processes:
                if process.poll() is not None:
                    self.fail(f"{what}: a member ended with {process.returncode}\n" + self.heard(process)[1])
            time.sleep(0.1)
        self.fail(f"{what}: not in time: {json.dumps(status, indent=1)}")

    def events(self, out):
        with open(self.path(out, "pool", "events.jsonl"), encoding="ascii") as f:
            return list(map(json.loads, f))


class PoolTrain(Members):
    def test_life(self):
        a, ticket = self.create("a")
        # The ticket from a file, and from the standard input: ps shows it of nobody.
        kept = self.write("ticket.txt", ticket + "\n")
        os.chmod(kept, 0o600)
        b = self.join("b", kept, "--data", self.data)
        with open(kept, encoding="ascii") as f:
            c = self.join("c", "-", "--data", self.data, "--max-upload", 80, "--max-download", 160, "--moments-dtype", "bf16",
                          stdin=f)
        everybody = [a, b, c]
        seen = self.until("a", "three members", lambda s: s["roster"] == 3 and s["applied"] >= 6, everybody)
        # One dies: the others go on.
        c.kill()
        c.communicate()
        self.until("a", "without one", lambda s: s["applied"] >= seen["applied"] + 3, [a, b])
        # It comes back from its directory alone, and brings contributions.
        c = self.join("c")
        self.until("c", "back", lambda s: s["is_member"] and s["samples"] > 0, [a, b, c])
        seen = self.until("c", "on", lambda s: s["roster"] == 3, [a, b, c])
        me = next(m for m in seen["members"] if m["self"])
        # What was said at first holds; what is told to others is less where less is measured.
        kept = self.read("c", "host.yml")
        self.assertIn(b"max_upload: 80\n", kept)
        self.assertIn(b"max_download: 160\n", kept)
        self.assertLessEqual(me["up_bytes_per_s"], 10**7)
        self.assertLessEqual(me["down_bytes_per_s"], 2 * 10**7)
        self.until("c", "further", lambda s: s["applied"] >= seen["applied"] + 3, [a, b, c])
        # One leaves, and says so.
        self.ok("pool", "leave", "b")
        left = json.loads(self.end(b, 0)[0])
        self.assertGreater(left["included"], 0)
        self.assertLess(left["final_loss"], 3)  # untrained: 5.5; it joined a pool that was trained already
        self.assertTrue(os.path.exists(self.path(left["checkpoint"], "pool.json")))
        # A signal: saved, and away.
        c.terminate()
        stopped = json.loads(self.end(c, 143)[0])
        self.assertTrue(stopped["interrupted"])
        self.assertIn(b'"BF16"', self.read(stopped["checkpoint"], "optimizer.safetensors")[:4096])  # its own choice, kept
        # The pool's weights from a member that runs: a directory that evaluates; nothing is overwritten.
        live = self.ok("pool", "export", "a", "-o", "live", "--dtype", "bf16", "--json").json()
        self.assertGreater(live["version"], 0)
        self.assertEqual(self.run_atom("pool", "export", "a", "-o", "live").code, 2)
        a.terminate()
        stopped = json.loads(self.end(a, 143)[0].splitlines()[-1])
        # And from one that does not: exactly the anchor that it said.
        still = self.ok("pool", "export", "a", "-o", "still", "--json").json()
        self.assertEqual((still["version"], still["anchor"]), (stopped["version"], stopped["anchor"]))
        for model in ("live", "still"):
            found = self.ok("eval", "--model", self.path(model), "--data", self.data, "--sequence-len", 32, "--json").json()
            self.assertLess(found["loss"], 4)  # untrained: 5.5
        self.assertEqual(self.run_atom("pool", "export", self.data, "-o", "nothing").code, 2)
        self.assertFalse(any(n.startswith(("nothing", "still.", "live.")) for n in os.listdir(self.path("."))))
        # Alone and offline, from the checkpoint: the same bits each time.
        more = ["--model", self.path(stopped["checkpoint"]), "--data", self.data, "--max-steps", 3, "--dtype", "fp32",
                "--micro-batch-size", 2, "--sequence-len", 32, "--eval-steps", 0, "--threads", 1, "--quiet"]
        for out in ("x", "y"):
            self.ok("train", *more, "-o", out)
        self.assertEqual(self.read("x", "checkpoint-3", "model.safetensors"),
                         self.read("y", "checkpoint-3", "model.safetensors"))

    def test_a_failed_join_keeps_its_place(self):
        """A ticket for one host: whoever was admitted and failed tries again, with the same key, and nobody else has to wait."""
        a, ticket = self.create("a", more=("--invite-count", 1))
        for _ in range(2):
            self.fails(4, "pool", "join", ticket, "-o", "b", "--max-disk", 0.001, "--data", self.data, *ALONE,
                       says=("--max-disk", "name b again with -o"))
        self.assertEqual([e["event"] for e in self.events("a")].count("admitted"), 1)
        refused = self.fails(1, "pool", "join", ticket, "-o", "c", "--data", self.data, *ALONE, says="used up")
        self.assertNotIn("again with -o", refused.err)  # it has no place
        os.remove(self.path("b", "pool", "admission"))  # as if it had died before it was on disk
        b = self.join("b", ticket, "--max-disk", 10, "--data", self.data)
        self.until("b", "a member", lambda s: s["is_member"] and s["roster"] == 2, [a, b])

    def test_a_pause_outlives_the_process(self):
        a, ticket = self.create("a")
        b = self.join("b", ticket, "--data", self.data)
        self.until("b", "it contributes", lambda s: s["roster"] == 2 and s["samples"] > 0, [a, b])
        self.assertEqual(self.status("a")["faults"], 0)  # who was admitted is no stranger that was refused
        self.assertIn("until you say: atom pool resume b", self.ok("pool", "pause", "b").out)
        self.until("b", "it pauses", lambda s: s["wish"] == "pause", [a, b])
        b.kill()
        b.communicate()
        b = self.join("b")
        seen = self.until("b", "back", lambda s: s["is_member"], [a, b])
        self.assertEqual(seen["wish"], "pause")
        self.until("b", "it follows", lambda s: s["applied"] >= seen["applied"] + 3, [a, b])
        self.assertEqual(self.status("b")["samples"], 0)  # not one step
        b.terminate()
        self.end(b, 143)
        # Of a member that does not run, both are remembered for when it does.
        said = self.ok("pool", "resume", "b").out
        self.assertIn("atom pool join -o b", said)
        self.assertIn("until you say: atom pool resume b", self.ok("pool", "pause", "b").out)
        self.assertEqual(self.ok("pool", "resume", "b", "--json").json(), {"ok": True, "running": False})
        b = self.join("b")
        self.until("b", "it computes", lambda s: s["wish"] == "go" and s["samples"] > 0, [a, b])

    def test_data_from_the_members(self):
        """Nothing but the ticket: the data set comes from the members, is checked, and trained on."""
        a, ticket = self.create("a")
        shards = sorted(n for n in os.listdir(self.data) if n.endswith(".bin"))
        # Other data than the pool's, one shard too few, one too many: refused by name.
        for name, change in (("other", lambda d: self.spoil(d, shards[0])), ("few", lambda d: os.remove(os.path.join(d, shards[0]))),
                             ("more", lambda d: shutil.copy(os.path.join(d, shards[0]), os.path.join(d, "train_9.bin")))):
            shutil.copytree(self.data, self.path(name))
            change(self.path(name))
            self.fails(2, "pool", "join", ticket, "--data", self.path(name), "-o", "refused", *ALONE,
                       says=("train_9.bin" if name == "more" else shards[0], "--data"))
        self.fails(2, "pool", "join", ticket, "--data", self.path("other"), "--own-data", "-o", "refused", *ALONE,
                   says="--own-data")
        # One that was right and is not any more: what is said of it when the member comes back leads on.
        shutil.copytree(self.data, self.path("once"))
        self.end(self.join("b", ticket, "--max-steps", 1, "--data", self.path("once")), 0)
        self.spoil(self.path("once"), shards[0])
        self.fails(2, "pool", "join", "-o", "b", *ALONE, says=(shards[0], "--data b/data"))
        shutil.rmtree(self.path("once"))
        self.fails(2, "pool", "join", "-o", "b", *ALONE, says=(shards[0], "--data b/data"))
        b = self.join("b", "--data", "b/data", "--max-steps", 149)
        done = json.loads(self.end(b, 0)[0])
        self.assertEqual(done["steps"], 150)
        for name in (*shards, "tokenizer.json"):
            self.assertEqual(self.read("b", "data", name), self.read(self.data, name))
        self.assertGreater(next(e for e in self.events("b") if e["event"] == "data")["pieces"], 0)
        before = self.ok("eval", "--model", self.path(done["checkpoint"]), "--data", self.path("b", "data"), "--sequence-len",
                         32, "--json").json()["loss"]
        self.assertLess(before, 4)  # untrained: 5.5
        # It comes back, from elsewhere, and nothing is fetched again.
        os.rename(self.path("b"), self.path("b2"))
        b = self.join("b2", "--max-steps", 5)
        self.end(b, 0)
        self.assertEqual(sum(e["event"] == "data" for e in self.events("b2")), 1)
        a.terminate()
        self.end(a, 143)

    def spoil(self, directory, name):
        with open(os.path.join(directory, name), "r+b") as f:
            f.seek(-1, os.SEEK_END)
            last = f.read(1)
            f.seek(-1, os.SEEK_END)
            f.write(bytes([last[0] ^ 1]))

    def test_own_data(self):
        self.prepare(self.path("mine"), tool.english(60000, seed=2))
        run = self.write("either.yml", RUN.format(steps=10**6, codec="int8") + "  data: either\n")
        a = self.start("create", "--config", run, "--model", self.config, "--data", self.data, "-o", "a", "--listen",
                       "127.0.0.1:0")
        ticket = json.loads(a.stdout.readline())["ticket"]
        refused = self.run_atom("pool", "join", ticket, "--data", "mine", "-o", "b", *ALONE)
        self.assertEqual(refused.code, 2)
        self.assertIn("--own-data", refused.err)
        for again in ((ticket, "--data", "mine", "--own-data"), ()):
            b = self.join("b", *again, "--max-steps", 5)
            self.end(b, 0)
        self.assertFalse(os.path.exists(self.path("b", "data")))
        a.kill()
        # And a pool that shares none.
        run = self.write("own.yml", RUN.format(steps=10**6, codec="int8") + "  data: own\n")
        c = self.start("create", "--config", run, "--model", self.config, "--data", self.data, "-o", "c", "--listen",
                       "127.0.0.1:0")
        ticket = json.loads(c.stdout.readline())["ticket"]
        self.assertFalse(any(f["later"] for f in json.loads(self.read("c", "pool", "manifest.json"))["files"]))
        self.fails(2, "pool", "join", ticket, "-o", "d", *ALONE, says="--data")
        d = self.join("d", ticket, "--data", "mine", "--max-steps", 5)
        self.end(d, 0)
        c.kill()

    def test_one_template_for_all_chats(self):
        """A pool's chats have the pool's template: it comes with the ticket, and no other is trained on."""
        chats = self.write("chats.jsonl", "".join(json.dumps({"messages": [
            {"role": "user", "content": f"tell {i}"}, {"role": "assistant", "content": tool.english(60, i)}]}) + "\n"
            for i in range(300)))
        for out, *words in (("chats",), ("others", "--user-prefix", "Q: ")):
            self.ok("data", "prepare", "-i", chats, "-o", out, "--template", "plain", *words)
        run = self.write("either.yml", RUN.format(steps=10**6, codec="int8") + "  data: either\n")

        def create(data, out):
            process = self.start("create", "--config", run, "--model", self.config, "--data", data, "-o", out, "--listen",
                                 "127.0.0.1:0")
            return process, json.loads(process.stdout.readline())["ticket"]
        a, ticket = create("chats", "a")
        b = self.join("b", ticket, "--max-steps", 5)
        done = json.loads(self.end(b, 0)[0])
        template = self.read("chats", "chat_template.jinja")
        self.assertEqual(self.read("b", "data", "chat_template.jinja"), template)
        self.assertEqual(self.read(done["checkpoint"], "chat_template.jinja"), template)
        self.fails(2, "pool", "join", ticket, "--data", "others", "--own-data", "-o", "c", *ALONE,
                   says=["others", "another chat template", "chat_template.jinja"])
        a.kill()
        d, ticket = create(self.data, "d")
        self.fails(2, "pool", "join", ticket, "--data", "chats", "--own-data", "-o", "e", *ALONE,
                   says=["chats holds chats", "the pool has none"])
        d.kill()

    def test_the_pools_optimizer(self):
        """It is the pool's to decide, and members that join have it without a word."""
        run = self.write("muon.yml", "optimizer: muon\n" + RUN.format(steps=10**6, codec="int8"))
        a = self.start("create", "--config", run, "--model", self.config, "--data", self.data, "-o", "a", "--listen",
                       "127.0.0.1:0")
        ticket = json.loads(a.stdout.readline())["ticket"]
        b = self.join("b", ticket, "--data", self.data)
        seen = self.until("b", "both bring theirs", lambda s: s["applied"] >= 12 and
                          any(r["contributors"] == 2 for r in s["rounds"]), [a, b])
        b.kill()
        b.communicate()
        b = self.join("b")
        self.until("b", "back", lambda s: s["applied"] >= seen["applied"] + 3 and
                   any(r["contributors"] == 2 for r in s["rounds"]), [a, b])
        for process in (b, a):
            process.terminate()
            done = json.loads(self.end(process, 143)[0].splitlines()[-1])
            self.assertGreater(done["included"], 0)
            self.assertLess(done["final_loss"], 3.5)  # untrained: 5.5
            self.assertEqual(json.loads(self.read(done["checkpoint"], "atom_state.json"))["optimizer"], "muon")
            self.assertIn(b"momentum_buffer.", self.read(done["checkpoint"], "optimizer.safetensors")[:4096])

    def test_several_devices(self):
        """A member on two devices, killed, and back on four: its own steps are averaged as everybody's."""
        for sync, text in (("parameters", RUN), ("slices", SLICES)):
            run = self.write("four.yml", text.format(steps=10**6, codec="int8").replace("steps: 1\n", "steps: 4\n"))
            a = self.start("create", "--config", run, "--model", self.config, "--data", self.data, "-o", f"a-{sync}",
                           "--listen", "127.0.0.1:0", "--sync", sync)
            b, devices = f"b-{sync}", 2
            member = self.join(b, json.loads(a.stdout.readline())["ticket"], "--data", self.data, "--devices", 2,
                               "--device-memory", "4MiB")
            last = 0
            while True:
                last = self.until(b, "both bring theirs", lambda s: s["applied"] >= last + 6 and  # pylint: disable=cell-var-from-loop
                                  any(r["contributors"] == 2 for r in s["rounds"]), [a, member])["applied"]
                self.assertIn(b"devices: %d\n" % devices, self.read(b, "local.yml"))
                if devices == 4:
                    break
                member.kill()
                member.communicate()
                member, devices = self.join(b, "--devices", 4), 4
            member.terminate()
            done = json.loads(self.end(member, 143)[0])
            self.assertGreater(done["included"], 0)
            self.assertLess(done["final_loss"], 5)  # untrained: 5.5
            a.kill()

    def test_train_names_the_command_for_a_pool(self):
        run = self.write("run.yml", RUN.format(steps=10, codec="int8"))
        refused = self.run_atom("train", run, "--model", self.config, "--data", self.data, "-o", "alone")
        self.assertEqual(refused.code, 2)
        self.assertIn("atom pool create --config", refused.err)
        # Nor does it train in the directory of a member that is not running.
        a, _ = self.create("a")
        self.until("a", "it trains", lambda s: s["applied"] >= 2, [a])
        a.terminate()
        self.end(a, 143)
        before = sorted(os.listdir(self.path("a")))
        for more in (["-o", "a", "--overwrite"], ["-o", "a", "--resume-from-checkpoint", "auto"], ["-o", "a/pool"]):
            self.fails(2, "train", "--model", self.config, "--data", self.data, "--max-steps", 9, *more,
                       says=("belongs to a member of a pool", "another output_dir"))
        self.assertEqual(sorted(os.listdir(self.path("a"))), before)

    def test_who_cannot_is_told_before_it_fetches(self):
        a, ticket = self.create("a")
        self.until("a", "trains", lambda s: s["applied"] >= 2, [a])
        more = ["--data", self.data, "--listen", "127.0.0.1:0", *ALONE]
        # Too little memory for what the model needs.
        small = self.run_atom("pool", "join", ticket, "-o", "small", "--device-memory", "64KiB", *more)
        self.assertEqual(small.code, 4, small)
        # More devices than there are micro-batches in the pool's step.
        self.fails(2, "pool", "join", ticket, "-o", "small", "--devices", 2, *more, says=["there is only 1", "--devices 1"])
        # A disk that is too small: a file system of its own, in a namespace of its own.
        os.mkdir(self.path("disk"))
        alone = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c",
                 'mount -t tmpfs -o size=1500k none disk && exec "$@"', "sh"]
        if subprocess.run([*alone, "true"], cwd=self.dir, capture_output=True, check=False).returncode == 0:
            full = self.run_atom("pool", "join", ticket, "-o", "disk/run", *more, prefix=alone)
            self.assertEqual(full.code, 4, full)
            self.assertIn("Nothing was fetched", full.err)
        else:
            print("no namespaces with a file system of their own: a full disk is not tried")
        # Who has no data is told before that is fetched too.
        small = self.run_atom("pool", "join", ticket, "-o", "bare", "--device-memory", "64KiB", *more[2:])
        self.assertEqual(small.code, 4, small)
        self.assertIn("the pool's data set", self.run_atom("pool", "join", "-o", "bare", "--device-memory", "64KiB", *more[2:-1]).err)
        self.assertEqual(os.listdir(self.path("bare", "data")), ["tokenizer.json"])
        for out in ("small", "disk/run"):
            self.assertFalse(os.path.exists(self.path(out, "pool", "anchor", "fragment-0.0")))
        self.assertFalse(any("start" == e["event"] for e in self.events("small")))
        a.kill()
        a.communicate()

    def test_nobody_begins_alone(self):
        # In a pool whose averages are written over what is trained.
        a, ticket = self.create("a", more=["--min-peers", 2, "--sync", "slices"])
        self.until("a", "its first step", lambda s: any(m["samples"] > 0 for m in s["members"]), [a])
        b = self.join("b", ticket, "--data", self.data)
        self.until("a", "two members", lambda s: s["roster"] == 2 and  # its status is ahead of its events
                   any(e["event"] == "certified" and e["contributors"] > 0 for e in self.events("a")), [a, b])
        with open(self.path("a", "pool", "events.jsonl"), encoding="ascii") as f:
            certified = [e for e in map(json.loads, f) if e["event"] == "certified"]
        first = next(e for e in certified if e["contributors"] > 0)
        self.assertEqual(first["roster"], 2)
        # With nobody else there it made its first step, and no more.
        self.assertEqual([e for e in certified if e["roster"] == 1 and e["tokens"] > 0], [])
        seen = self.until("a", "both bring theirs", lambda s: s["applied"] >= 12 and
                          any(r["contributors"] == 2 for r in s["rounds"]), [a, b])
        self.assertEqual(seen["mode"], "slices")
        self.assertIn("slices: 3 slices are averaged", self.ok("pool", "status", "a").out)
        b.kill()
        a.terminate()
        stopped = json.loads(self.end(a, 143)[0].splitlines()[-1])
        self.assertGreater(stopped["included"], 0)
        self.assertLess(stopped["final_loss"], 5)  # untrained: 5.5
        said = self.ok("pool", "export", "a", "-o", "slices", "--json").json()
        self.assertEqual((said["version"], said["anchor"]), (stopped["version"], stopped["anchor"]))
        # The state is the anchor alone: a page of header, then the fragment's floats.
        floats = sum(os.path.getsize(self.path("a", "pool", "anchor", f"fragment-{f}.0")) - 4096 for f in range(3)) / 4
        self.assertLess(floats, 1.5 * self.ok("inspect", self.path("slices"), "--json").json()["parameters"])

    def test_two_and_a_fork(self):
        # Of two, one is no quorum (or is, with the lower key): after fork_seconds it goes on anyway.
        a, ticket = self.create("a", more=["--fork-seconds", 2])
        b = self.join("b", ticket, "--data", self.data)
        seen = self.until("a", "two members", lambda s: s["roster"] == 2 and s["applied"] >= 4, [a, b])
        a.kill()
        a.communicate()
        self.until("b", "alone", lambda s: s["roster"] == 1 and s["applied"] >= seen["applied"] + 4, [b])
        a = self.join("a")
        seen = self.until("a", "together again", lambda s: s["roster"] == 2, [a, b])
        self.until("a", "further", lambda s: s["applied"] >= seen["applied"] + 4, [a, b])
        for process in (a, b):
            process.terminate()
        ends = [json.loads(self.end(p, 143)[0]) for p in (a, b)]
        if ends[0]["version"] == ends[1]["version"]:
            self.assertEqual(ends[0]["anchor"], ends[1]["anchor"])

    def test_the_same_key_twice(self):
        """A copy of a member's directory runs beside the original: it stops and says why, and the original hears nothing of it."""
        a, ticket = self.create("a")
        self.end_soon(self.join("b", ticket, "--data", self.data))
        shutil.copytree(self.path("b"), self.path("copy"), ignore=shutil.ignore_patterns("control.sock", "links"))
        b = self.join("b")
        self.until("b", "it is a member again", lambda s: s["is_member"] and s["roster"] == 2, [a, b])
        key = self.status("b")["key"]
        before = [e["event"] for e in self.events("a") if e.get("key") == key]
        _, err = self.end(self.join("copy"), 1)
        self.assertIn("takes part with the same key, probably from a copy of this directory", err)
        self.assertIn("twin", [e["event"] for e in self.events("copy")])
        self.assertEqual(before, [e["event"] for e in self.events("a") if e.get("key") == key], "its link was torn down")
        version = self.status("a")["version"]
        self.until("a", "both go on", lambda s: s["version"] > version and s["roster"] == 2, [a, b])

    def test_back_where_nobody_is(self):
        """A member that said goodbye comes back when nobody is there: it says what it waits for, and not longer than asked."""
        a, ticket = self.create("a")
        b = self.join("b", ticket, "--data", self.data)
        self.until("b", "it is a member", lambda s: s["is_member"] and s["version"] > 0, [a, b])
        self.ok("pool", "leave", "b")
        self.end(b, 0)
        a.kill()
        a.wait()
        said = self.fails(1, "pool", "join", "-o", "b", "--patience", 5, "--no-lan", "--no-directory",
                          says=("nobody of the pool answered in time", "looking for a member; tried 127.0.0.1:"))
        self.assertIn("atom pool export b -o model", said.err)

    def test_what_host_yml_says_wrongly(self):
        for text, says in (("colour: red", "'pool join --help' lists them"), ("listen: [4400]", "listen: '4400' is not an address")):
            os.makedirs(self.path("h"), exist_ok=True)
            self.write("h/host.yml", text + "\n")
            self.fails(2, "pool", "join", "atom1-x", "-o", "h", says=says)
        for address in ("foo", "box:99999", ":4400", "http://box:4400", "*:4400", "127.0.0.1"):
            self.fails(2, "pool", "join", "atom1-x", "-o", "g", "--listen", "127.0.0.1:0", "--announce", address,
                       says=f"announce: '{address}' is not an address")
        self.fails(2, "pool", "join", "atom1-x", "-o", "g", "--announce", "box.example:4400", says="no effect without listen")

    def test_local_yml_decides_nothing_of_the_pools(self):
        a, _ = self.create("a")
        self.until("a", "it trains", lambda s: s["applied"] >= 2, [a])
        a.terminate()
        self.end(a, 143)
        kept = self.read("a", "local.yml").decode()
        for key in ("learning_rate: 1", "micro_batch_size: 64", "optimizer: muon", "max_steps: 5", "model: gpt2-124m"):
            self.write("a/local.yml", kept + key + "\n")
            self.fails(2, "pool", "join", "-o", "a", "--no-lan", "--no-directory",
                       says=("a/local.yml", key.split(":")[0], "is not for this host to decide"))
        self.write("a/local.yml", kept.replace("logging_steps: 1", "logging_steps: 7"))
        a = self.start("join", "-o", "a")
        self.until("a", "it trains again", lambda s: s["samples"] > 0, [a])

    def test_another_user(self):
        """Whoever may not look into a member's directory is told that, and not that there is no pool."""
        a, _ = self.create("a")
        self.until("a", "it runs", lambda s: s["state"] == "running", [a])
        self.write("pools.yml", "pools:\n  - dir: a\n")
        # Root may look everywhere, unless it gives that up.
        prefix = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search") if os.geteuid() == 0 else ()
        os.chmod(self.path("a", "pool"), 0)
        for command in (["status", "a"], ["join", "-o", "a"], ["leave", "a"], ["export", "a", "-o", "x"], ["web", "a"]):
            self.fails(2, "pool", *command, prefix=prefix, says="a/pool: this user may not look into it")
        self.fails(2, "host", "run", ".", prefix=prefix, says="a/pool: this user may not look into it")
        os.chmod(self.path("a", "pool"), 0o700)

    def end_soon(self, process):
        self.until("b", "it is a member", lambda s: s["is_member"], [process])
        process.terminate()
        self.end(process, 143)

    def test_ends(self):
        # A pool that has done all its steps, alone.
        a, _ = self.create("a", steps=60, codec="fp32")
        done = json.loads(self.end(a, 0)[0].splitlines()[-1])
        self.assertEqual((done["steps"], done["pool_step"], done["pool_steps"]), (60, 60, 60))
        self.assertLess(done["final_loss"], done["first_loss"])
        # The directory is not made a pool twice.
        run = self.write("run.yml", RUN.format(steps=60, codec="fp32"))
        self.fails(2, "pool", "create", "--config", run, "--data", self.data, "-o", "a", says=("a", "join"))
        # A member that wants to do so many steps and no more.
        b, ticket = self.create("b", codec="bf16", more=["--max-steps", 10**5])
        c = self.join("c", ticket, "--data", self.data, "--max-steps", 150)
        left = json.loads(self.end(c, 0)[0])
        self.assertEqual(left["steps"], 150)
        self.assertFalse(left["interrupted"])
        b.terminate()
        self.end(b, 143)

    def test_service(self):
        # The service manager hears when it trains, and when it ends.
        place = self.path("manager")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(place)
            manager.settimeout(PATIENCE)
            self.env["NOTIFY_SOCKET"] = place
            a, _ = self.create("a")
            self.assertIn(b"READY=1", manager.recv(1000))
            a.terminate()
            self.end(a, 143)
            self.assertIn(b"STOPPING=1", manager.recv(1000))

    def test_limits(self):
        # Not now: it holds its place, and does nothing until it is allowed to.
        later = time.localtime(time.time() + 7200)
        a, _ = self.create("a", more=["--hours", f"{later.tm_hour}:00-{later.tm_hour}:01"])
        self.until("a", "it says what it waits for", lambda s: s["text"].startswith("waiting for its hours: "), [a])
        time.sleep(1)
        held = self.status("a")["samples"]
        self.assertEqual(held, 0, "it made a step before its hours")
        a.terminate()
        self.assertEqual(json.loads(self.end(a, 143)[0])["steps"], 0)
        # It comes back where it listened; what is said now replaces what was said then.
        a = self.start("join", "-o", "a", "--hours", "0-24")
        status = self.until("a", "it trains", lambda s: s["samples"] > held and "hours" not in s["text"], [a])
        self.assertGreater(status["port"], 0)
        a.terminate()
        self.end(a, 143)
        self.assertIn("0-24", self.read("a", "host.yml").decode())
        self.fails(2, "pool", "join", "-o", "a", "--hours", "25-3", says="25-3")

    def test_bad_days(self):
        run = self.write("run.yml", RUN.format(steps=100, codec="int8"))
        create = ["pool", "create", "--config", run, "--model", self.config, "--data", self.data, "-o", "a", "--listen",
                  "127.0.0.1:0", "--no-lan", "--no-directory"]
        self.fails(2, *create, "--sync", "gradients", says="gradients")
        odd = self.write("odd.yml", SLICES.format(steps=100, codec="int8") + "  mode: slices\n  outer_momentum: 0.9\n")
        self.fails(2, "pool", "create", "--config", odd, "-o", "a", says=("odd.yml:22: outer_momentum", "slices"))
        self.fails(2, *create, "--sync-steps", "0", says=("sync_steps", "0"))
        self.fails(2, "pool", "create", "--config", self.path("no.yml"), "-o", "a", says="no.yml")
        self.fails(2, "pool", "join", "-o", "a", says=("a", "TICKET"))
        self.fails(2, "pool", "join", "nonsense", "-o", "a", says="ticket")
        bad = self.write("bad.yml", RUN.format(steps=100, codec="int7"))
        self.fails(2, "pool", "create", "--config", bad, "-o", "a", says=("bad.yml:18", "int7"))


if __name__ == "__main__":
    tool.main()
