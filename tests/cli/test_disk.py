"""The optimizer's state on disk: the same bits, through kills and on bad days."""
import json
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import time

import tool
from test_train import CONFIG, SHAPE, TrainCase

KILLS = int(os.environ.get("ATOM_TEST_KILLS", "8"))
DISK = ["--optimizer-state", "disk"]
CONSTANT = ["--lr-scheduler-type", "constant"]  # for runs that end elsewhere than they thought


def is_open(pid, end):
    """Has this process a file open whose path ends so? The kernel says " (deleted)" of those without a name."""
    fds = f"/proc/{pid}/fd"
    try:
        return any(os.readlink(os.path.join(fds, fd)).endswith(end) for fd in os.listdir(fds))
    except OSError:
        return False


class Disk(TrainCase):
    def test_same_bits_by_every_way_to_the_disk(self):
        self.train("memory")
        for kind in ("auto", "io_uring", "libaio", "threads"):
            out = f"disk-{kind}"
            result = self.run_atom(*self.args(out, *DISK, "--store", kind))
            if kind == "io_uring" and result.code and "io_uring" in result.err:
                continue  # containers may refuse it
            self.assertEqual(result.code, 0, str(result))
            self.assertIn("written per step", result.err + result.out)
            self.assertEqual(self.losses(out), self.losses("memory"), kind)
            for name in ("model.safetensors", "optimizer.safetensors"):
                self.assertEqual(self.read(out, "checkpoint-6", name), self.read("memory", "checkpoint-6", name))
            self.assertFalse(os.path.exists(self.path(out, "optimizer.store")), "its space is given back")

    def test_without_clipping_updates_run_backwards(self):
        self.train("memory", "--max-grad-norm", 0)
        self.train("disk", "--max-grad-norm", 0, *DISK)
        self.assertEqual(self.weights("disk", 6), self.weights("memory", 6))

    def clip_some(self):
        """Of a run's first steps some are clipped, and some are not."""
        self.train("free", "--max-grad-norm", 1e9)
        norms = sorted(norm for _, norm in self.losses("free").values())
        return ["--max-grad-norm", norms[len(norms) // 2]]

    def test_updates_ahead_of_the_clip_factor(self):
        """Some guesses are right and some wrong: the bits of memory, with snapshots, and resumed."""
        clip = self.clip_some()
        more = [*clip, "--update-ahead", "always", *DISK]
        self.train("memory", *clip, "--save-steps", 2, steps=12)
        for save in (0, 2):
            done = self.train(f"disk{save}", *more, "--save-steps", save, steps=12)
            self.assertGreater(done["sub_models"], 1)
            self.assertGreater(min(done["ahead_steps"], done["ahead_wrong"]), 1, done)
            self.assertEqual(done["ahead_steps"] + done["ahead_wrong"], 12)
            self.assertEqual(self.losses(f"disk{save}"), self.losses("memory"))
            self.assertEqual(self.weights(f"disk{save}", 12), self.weights("memory", 12))
        for step in (8, 10, 12):
            for name in ("model.safetensors", "optimizer.safetensors", "atom_state.json"):
                self.assertEqual(self.read("disk2", f"checkpoint-{step}", name), self.read("memory", f"checkpoint-{step}", name))
        shutil.rmtree(self.path("disk2", "checkpoint-12"))  # else it would go on behind what is there
        self.train("disk2", *more, "--resume-from-checkpoint", self.path("disk2", "checkpoint-10"), "--eval-steps", 1, steps=12)
        self.assertEqual(self.weights("disk2", 12), self.weights("memory", 12))
        self.assertIn("weights were updated before the gradient's norm was known", self.ok(*self.args("people", *more)).out)
        self.assertEqual(self.train("never", *clip, "--update-ahead", "never", *DISK)["ahead_steps"], 0)

    def test_in_place_or_not(self):
        """Without a cap it depends on the disk whether there are several sub-models; one alone has nothing to run ahead of."""
        done = self.train("disk", "--update-ahead", "always", *DISK, memory=None)
        self.assertEqual(done["sub_models"] > 1, done["ahead_steps"] + done["ahead_wrong"] > 0, done)
        self.train("memory", memory=None)
        self.assertEqual(self.weights("disk", 6), self.weights("memory", 6))

    def test_little_host_memory_chooses_the_disk(self):
        whole = self.train("memory")
        limit = int(whole["host_plan_bytes"] * 0.6)
        small = self.train("disk", "--host-memory", limit)
        self.assertLessEqual(small["host_plan_bytes"], limit)
        self.assertEqual(self.weights("disk", 6), self.weights("memory", 6))
        self.fails(4, *self.args("none", "--host-memory", limit, "--optimizer-state", "memory"), says=["missing"])

    def test_a_dry_run_leaves_nothing(self):
        for more in ([], ["--store-dir", self.path("far", "away")]):
            self.ok(*self.args("dry", *DISK, *more, "--dry-run"))
            self.assertEqual(os.listdir(self.dir), [])

    def test_a_killed_measurement_leaves_nothing(self):
        """The disk is measured with a file of up to 288 MiB, whose name nobody would look for."""
        os.mkdir(self.path("disk"))
        process = self.start_atom("plan", "--model", "gpt2-124m", "--device-spec", "rtx-4090", "--store-dir", self.path("disk"))
        while process.poll() is None and not is_open(process.pid, ".store (deleted)"):
            time.sleep(0.002)
        self.assertIsNone(process.poll(), "it was measured before it could be killed")
        process.kill()
        process.communicate()
        self.assertEqual(os.listdir(self.path("disk")), [])

    def test_a_checkpoint_goes_on_in_either_place(self):
        for first, second in (("memory", "memory"), ("disk", "memory"), ("memory", "disk"), ("disk", "disk")):
            out = f"{first}-{second}"
            self.train(out, "--optimizer-state", first, steps=3)
            self.train(out, "--optimizer-state", second, "--resume-from-checkpoint", "auto")
            self.assertEqual(self.weights(out, 6), self.weights("memory-memory", 6), out)

    def test_updates_go_on_while_a_checkpoint_is_written(self):
        """In memory, copied before they change it: no spare memory, a little, and as much as the state; and from
        disk, both slowly. Every checkpoint is of its step, and can be gone on from."""
        self.ok("profile", "--model", self.config, *SHAPE, "--dtype", "fp32", "-o", self.path("same.json"))
        for clip in (1, 0):
            more = ["--profile", self.path("same.json"), "--save-steps", 3, "--max-grad-norm", clip, "--save-total-limit", 0,
                    *CONSTANT]
            least, need = self.host_bytes(*more), 0
            while need != least:  # what a plan is cut to may be less than what it was cut from
                need, least = least, self.host_bytes(*more, "--host-memory", least)
            self.train(f"plain{clip}", *more, *DISK, steps=10)
            for name, room in (("none", ["--host-memory", need]), ("little", ["--host-memory", need + 120000]),
                               ("all", []), ("disk", DISK)):
                out = name + str(clip)
                run = self.train(out, *more, *room, "--save-rate", "2MB/s", steps=10)
                self.assertEqual(run["spare_peak_bytes"] > 0, name in ("little", "all"), (out, run))
                self.assertLessEqual(run["spare_peak_bytes"], run["spare_bytes"])
                for step in (3, 6, 9, 10):
                    for file in ("model.safetensors", "optimizer.safetensors", "atom_state.json"):
                        self.assertEqual(self.read(out, f"checkpoint-{step}", file),
                                         self.read(f"plain{clip}", f"checkpoint-{step}", file), (out, step, file))
            self.train(f"on{clip}", *more, "--resume-from-checkpoint", self.path(f"little{clip}", "checkpoint-6"), steps=10)
            self.assertEqual(self.weights(f"on{clip}", 10), self.weights(f"plain{clip}", 10))

    def host_bytes(self, *more):
        return json.loads(self.ok(*self.args("dry", "--dry-run", "--json", *more)).out)["host_peak_bytes"]

    def kill_soon(self, out, pick, *more):
        """Starts a run that would not end, and ends it at some moment after it opened its state; what it said."""
        target = pick.randint(0, 3) + self.last_step(out)
        with open(self.path("said"), "wb") as err:
            args = self.args(out, *DISK, *CONSTANT, "--resume-from-checkpoint", "auto", *more, steps=1000000)
            process = subprocess.Popen([tool.ATOM] + [str(a) for a in args], stdin=subprocess.DEVNULL,
                                       stdout=subprocess.DEVNULL, stderr=err, env=self.env, cwd=self.dir)
        deadline = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline and (
                self.last_step(out) < target or "optimizer state: on disk" not in self.said("said")):
            time.sleep(0.001)
        time.sleep(pick.random() * 0.04)
        process.kill()
        self.assertEqual(process.wait(), -signal.SIGKILL, self.said("said"))
        return self.said("said")

    @staticmethod
    def began(err):
        """The step that a run goes on from; None if it was killed before it said so."""
        found = re.search(r"resumed from .*\(step (\d+)\)", err)
        return int(found.group(1)) if found else 0 if re.search("^step ", err, re.M) else None

    def left(self, out):
        """What a kill left: the newest step that a generation is described for, the newest that was computed, and
        unfinished checkpoints."""
        described, unfinished = 0, set()
        for entry in os.scandir(self.path(out)):
            if re.fullmatch(r"optimizer-\d\.json", entry.name):
                described = max(described, json.loads(self.read(out, entry.name))["step"])
            elif entry.name.startswith("checkpoint-") and entry.name.endswith(".tmp"):
                unfinished.add((entry.name, entry.inode()))
        return described, self.last_step(out), unfinished

    @staticmethod
    def where(began, left):
        """Where the kills fell. A run goes on from the newest step that was committed, so it tells of the kill before."""
        for i in reversed(range(len(left))):
            began[i] = began[i + 1] if began[i] is None else began[i]
        fell = dict.fromkeys(("in forward and backward", "in the updates of a step", "in a commit", "before the run's first commit",
                              "while a checkpoint was written"), 0)
        files = set()
        for start, at, (described, computed, unfinished) in zip(began, began[1:], left):
            fell["in a commit" if described > at else "in the updates of a step" if computed > at else "in forward and backward"] += 1
            fell["before the run's first commit"] += at == start
            fell["while a checkpoint was written"] += bool(unfinished - files)
            files = unfinished
        return ", ".join(f"{n} {what}" for what, n in fell.items())

    def test_killed_at_any_moment(self):
        """Mostly no checkpoint is saved: only what is committed on disk survives. As many kills as are asked for."""
        seed, began, left, from_disk = int(os.environ.get("ATOM_TEST_SEED", "7")), [], [], 0
        clip, pick = self.clip_some(), random.Random(seed)
        for i in range(KILLS + 1):
            more = ["--save-steps", pick.choice([0, 0, 2]), *clip, "--update-ahead", pick.choice(["always", "always", "auto"]),
                    "--store", pick.choice(["auto", "libaio", "threads"]), "--threads", pick.choice([1, 2])]
            if i < KILLS:
                err = self.kill_soon("killed", pick, *more)
                left.append(self.left("killed"))
            else:
                steps = self.last_step("killed") + 2
                err = self.ok(*self.args("killed", *DISK, *CONSTANT, "--resume-from-checkpoint", "auto", *more, steps=steps)).err
            began.append(self.began(err))
            from_disk += "resumed from the optimizer's state on disk" in err
        print(f"{len(left)} kills (seed {seed}) in {steps} steps, {from_disk} runs went on from the disk; {self.where(began, left)}")
        self.assertEqual(len(left), KILLS)
        self.assertGreater(from_disk, 0, "no run went on from the disk")
        self.train("whole", *clip, *CONSTANT, steps=steps)
        self.assertEqual(self.weights("killed", steps), self.weights("whole", steps))
        self.assertEqual(self.losses("killed"), self.losses("whole"))

    def settled(self, *parts):
        """What a killed process asked the kernel to write may arrive after its end."""
        seen = []
        for _ in range(40):
            seen = [*seen[-4:], self.read(*parts)]
            if seen == [seen[-1]] * 5:
                break
            time.sleep(0.1)
        return seen[-1]

    def killed_at_last(self, name, args):
        """Kills a run of 6 steps while it writes its last checkpoint; tries again where that was too late."""
        for _ in range(20):
            shutil.rmtree(self.path(name), ignore_errors=True)
            process = self.start_atom(*args)
            while process.poll() is None and not os.path.exists(self.path(name, "checkpoint-6.tmp")):
                time.sleep(0.0002)
            process.kill()
            process.communicate()
            if not os.path.exists(self.path(name, "checkpoint-6")):
                return
        self.fail("it was never killed while it saved")

    def test_killed_while_the_last_checkpoint_is_written(self):
        """The state on disk is then that of the last step: all that is left to do is to save it."""
        evals = ["--eval-steps", 3]
        windows = (struct.unpack("<I", self.read(self.data, "train_000000.bin")[8:12])[0] - 1) // 32
        for name, more in ("clips", evals), ("evaluates", evals), ("flows", ["--max-grad-norm", 0]), ("passes", evals):
            whole = self.train(f"{name}-whole", *more)
            args = self.args(name, *more, *DISK, "--resume-from-checkpoint", "auto", "--json")
            if name == "passes":  # the same steps, said in another way
                args[args.index("--max-steps"):args.index("--max-steps") + 2] = ["--num-train-epochs", 6.1 * 4 / windows]
            self.killed_at_last(name, args)
            if name == "evaluates":  # it was killed before the validation was done
                lines = self.read(name, "metrics.jsonl").splitlines(keepends=True)
                self.assertIn(b'"split":"val"', lines[-1])
                self.write(os.path.join(name, "metrics.jsonl"), b"".join(lines[:-1]))
            done = self.ok(*args)
            self.assertIn("resumed from the optimizer's state on disk (step 6)", done.err)
            self.assertEqual((done.json()["steps"], done.json()["validation_loss"]), (6, whole["validation_loss"]))
            losses = [[(m["step"], m["loss"]) for m in self.metrics(out) if m["split"] == "val"] for out in (name, f"{name}-whole")]
            self.assertEqual(losses[0], losses[1])
            self.assertEqual(self.weights(name, 6), self.weights(f"{name}-whole", 6))
            self.assertEqual(sorted(os.listdir(self.path(name))), ["checkpoint-6", "metrics.jsonl"])
            self.fails(2, *args, says="raise num_train_epochs" if name == "passes" else "raise max_steps")
            self.assertEqual(sorted(os.listdir(self.path(name))), ["checkpoint-6", "metrics.jsonl"])

    def test_a_refused_command_leaves_the_state_on_disk(self):
        """A run of 6 steps that was killed before its last checkpoint has its newest steps only there."""
        self.train("whole")
        self.killed_at_last("a", self.args("a", "--save-steps", 3, *DISK))
        before = self.settled("a", "optimizer.store")
        old = self.args("a", *DISK, "--resume-from-checkpoint", self.path("a", "checkpoint-3"), steps=3)
        self.fails(2, *old, says="the checkpoint is at step 3 and max_steps is 3; raise max_steps")
        self.fails(2, *self.args("a", *DISK, "--resume-from-checkpoint", "auto", steps=5),
                   says=["the optimizer's state on disk is at step 6 and max_steps is 5", "--max-steps 6 saves it"])
        self.assertEqual(self.read("a", "optimizer.store"), before)
        shutil.copytree(self.path("a"), self.path("b"))
        args = self.args("a", *DISK, "--resume-from-checkpoint", "auto")
        self.assertIn("all steps were made before; the last checkpoint is saved now", self.ok(*args).err)
        self.assertEqual(self.weights("a", 6), self.weights("whole", 6))
        for name in ("optimizer.store", "optimizer-0.json", "optimizer-1.json"):  # as if killed before it removed them
            shutil.copy(self.path("b", name), self.path("a", name))
        self.fails(2, *args, says="raise max_steps")
        self.assertEqual(sorted(os.listdir(self.path("a"))), ["checkpoint-3", "checkpoint-6", "metrics.jsonl"])

    def test_what_takes_its_place_is_read_first(self):
        """A damaged checkpoint or model, and a trace that cannot be written, leave the state on disk as it was."""
        self.killed_at_last("a", self.args("a", "--save-steps", 3, *DISK))
        before, names = self.settled("a", "optimizer.store"), sorted(os.listdir(self.path("a")))
        model = self.path("a", "checkpoint-3", "model.safetensors")
        shutil.copytree(self.path("a", "checkpoint-3"), self.path("model"))
        with open(model, "r+b") as f:  # the first number, which tells weights of another step
            f.seek(8 + struct.unpack("<Q", f.read(8))[0])
            f.write(b"\x01\x02\x03\x3d")
        with open(self.path("model", "model.safetensors"), "r+b") as f:
            f.truncate(os.path.getsize(model) - 4)
        named = ["--resume-from-checkpoint", self.path("a", "checkpoint-3")]
        anew = self.args("a", *DISK, "--overwrite")
        anew[anew.index("--model") + 1] = self.path("model")
        self.fails(3, *self.args("a", *DISK, *named), says="checkpoint-3")
        self.fails(3, *anew, says="model.safetensors")
        self.fails(2, *self.args("a", *DISK, "--overwrite", "--trace", self.path("none", "trace.json")), says="there is no directory")
        self.assertEqual(self.read("a", "optimizer.store"), before)
        self.assertEqual(sorted(os.listdir(self.path("a"))), names)
        self.ok(*self.args("a", *DISK, "--resume-from-checkpoint", "auto"))

    def test_a_store_dir_of_several_runs(self):
        """What a killed run goes on from is not taken by another that names the same directory."""
        store, pick = ["--store-dir", self.path("fast")], random.Random(3)
        self.kill_soon("a", pick, *store, "--save-steps", 0)
        before = self.settled("fast", "optimizer.store")
        for more in [], ["--resume-from-checkpoint", "auto"], ["--overwrite"]:
            self.fails(2, *self.args("b", *DISK, *store, *more), says=[self.path("a"), "another store_dir", "optimizer.store"])
        self.ok(*self.args("d", *store, "--overwrite"))  # in memory it has no use for it
        self.assertEqual(self.read("fast", "optimizer.store"), before)
        self.ok(*self.args("a", *DISK, *store, *CONSTANT, "--resume-from-checkpoint", "auto", steps=self.last_step("a") + 2))
        self.assertEqual(os.listdir(self.path("fast")), [])
        self.kill_soon("b", pick, *store)  # and where the run is gone, what it left is in nobody's way
        shutil.rmtree(self.path("b"))
        self.train("c", *store, *DISK)

    def test_what_the_state_is_of(self):
        """Before there is a checkpoint, too, a run does not go on with another model or with adapters on another scale."""
        self.train("base", steps=1)
        pick, lora = random.Random(8), ["--model", self.path("base", "checkpoint-1"), "--lora-r", 2, "--save-steps", 0]
        other = self.write("other.json", json.dumps(dict(CONFIG, layer_norm_epsilon=0.1)))
        for out, more, key, value, says in (("whole", ["--save-steps", 0], "--model", other, "its layer_norm_epsilon is"),
                                            ("adapters", lora, "--lora-alpha", 16, "lora_alpha 4, but this run has 16")):
            self.kill_soon(out, pick, *more)
            while self.last_step(out) < 3:  # so that a step of it is kept
                self.kill_soon(out, pick, *more)
            again = self.args(out, *DISK, *CONSTANT, "--resume-from-checkpoint", "auto", *more, steps=self.last_step(out) + 3)
            before = self.settled(out, "optimizer.store")
            self.fails(2, *again, key, value, says=says)
            self.assertEqual(self.read(out, "optimizer.store"), before)
            self.assertIn("is 0.25 from here", self.ok(*again, "--lora-dropout" if out == "adapters" else "--dropout", 0.25).err)
            self.assertEqual([name for name in os.listdir(self.path(out)) if name.startswith("optimizer")], [])

    def test_a_small_container_chooses_the_disk(self):
        """In a control group that could not hold the state, nothing is killed and nothing need be said."""
        group = f"/sys/fs/cgroup/memory/atom-test-{os.getpid()}"
        try:
            os.mkdir(group)
            with open(os.path.join(group, "memory.limit_in_bytes"), "w", encoding="ascii") as f:
                f.write(str(300 << 20))
        except OSError as error:
            self.skipTest(f"no control group for memory (version 1): {error}")
        try:
            big = self.write("big.json", json.dumps(dict(CONFIG, n_embd=512, n_head=8, n_layer=8)))
            inside = ["bash", "-c", f'echo $BASHPID > {group}/cgroup.procs; exec "$@"', "inside"]
            result = self.ok("train", "--model", big, "--data", self.data, "--output-dir", "run", "--dtype", "bf16",
                             "--max-steps", 3, "--warmup-steps", 0, "--eval-steps", 0, *SHAPE, "--device-memory", "60MiB",
                             "--gradient-accumulation-steps", 1, prefix=inside)
            self.assertIn("optimizer state: on disk", result.err + result.out)
        finally:
            os.rmdir(group)

    def test_a_foreign_file_in_its_place(self):
        os.mkdir(self.path("place"))
        self.write("place/optimizer.store", b"my diary" * 10000)
        self.fails(3, *self.args("run", *DISK, "--store-dir", self.path("place")), says=["optimizer.store", "store of atom"])
        self.assertEqual(self.read("place", "optimizer.store"), b"my diary" * 10000)

    def test_two_runs_on_one_store(self):
        place = ["--store-dir", self.path("place")]
        first = self.start_atom(*self.args("one", *DISK, *place, steps=1000000))
        deadline = time.monotonic() + 60
        while self.last_step("one") < 2 and first.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        self.fails(2, *self.args("two", *DISK, *place), says=["another run"])
        first.send_signal(signal.SIGKILL)
        first.communicate()

    def test_a_full_disk_is_told_before_training(self):
        limit = ["bash", "-c", 'ulimit -f 300; exec "$@"', "limited"]
        result = self.run_atom(*self.args("run", *DISK), prefix=limit)
        self.assertEqual(result.code, 4, str(result))
        self.assertIn("run: not enough disk", result.err)
        self.assertFalse(os.path.exists(self.path("run", "optimizer.store")))

    def small_disk(self, size):
        """What puts a program into a file system of that size, at "small", that nobody else sees."""
        os.makedirs(self.path("small"), exist_ok=True)
        inside = ["unshare", "-m", "bash", "-c", f'mount -t tmpfs -o size={size} none {self.path("small")} && exec "$@"', "inside"]
        tried = subprocess.run([*inside, "true"], stderr=subprocess.PIPE, text=True, check=False)
        if tried.returncode:
            self.skipTest("no file system of one's own here: " + tried.stderr.strip())
        return inside

    def test_a_small_disk_is_named(self):
        """The directory and what is missing, not the file that was tried."""
        result = self.fails(4, *self.args("small/run", *DISK), prefix=self.small_disk("1m"),
                            says=["small/run: not enough disk", "bytes are missing", "--store-dir"])
        self.assertNotIn("atom-probe", result.err)

    def test_room_for_checkpoints_is_looked_at_first(self):
        """A note at the start where they will not fit, with numbers that are right; else none."""
        self.train("whole", steps=1)
        saved = self.path("whole", "checkpoint-1")
        each = sum(os.path.getsize(os.path.join(saved, name)) for name in os.listdir(saved))
        inside = self.small_disk(int(each * 2.5))
        args = self.args("small/run", "--save-steps", 1, steps=5)
        said = self.fails_at_last(*args, prefix=inside, says=["not saved"])
        told = re.search(r"warning: output_dir small/run has room for 2 more .* writes up to 4: .* \((\d+) bytes\) are missing", said)
        self.assertTrue(told, said)
        self.assertLess(abs(int(told.group(1)) - 1.5 * each), 0.1 * each)
        self.assertIn("--save-total-limit (3)", said)
        quiet = self.ok(*args, "--save-total-limit", 1, prefix=inside)
        self.assertNotIn("has room for", quiet.err)
        self.assertIn("--save-total-limit (0: all are kept)", self.fails_at_last(*args, "--save-total-limit", 0, prefix=inside, says=[]))

    def train_until(self, out, step, *more):
        """A run that has done `step` steps and goes on."""
        process = self.start_atom(*self.args(out, *DISK, *CONSTANT, *more, steps=1000000))
        deadline = time.monotonic() + 60
        while self.last_step(out) < step and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        return process

    def stopped(self, process, code=128 + signal.SIGTERM):
        """What it says when it is asked to stop."""
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, code, err)
        return err

    def test_a_removed_store_costs_nothing(self):
        """Under a run that goes on; and between two runs, where a checkpoint is older."""
        process = self.train_until("run", 2)
        os.unlink(self.path("run", "optimizer.store"))
        at = self.last_step("run")
        deadline = time.monotonic() + 60
        while not any(d.startswith("checkpoint-") for d in os.listdir(self.path("run"))) and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertIn("removed or replaced", self.stopped(process))
        self.assertGreaterEqual(self.last_step("run"), at)
        self.train("run", *DISK, *CONSTANT, "--resume-from-checkpoint", "auto", steps=self.last_step("run") + 3)
        self.train("whole", *CONSTANT, steps=self.last_step("run"))
        self.assertEqual(self.weights("run", self.last_step("run")), self.weights("whole", self.last_step("run")))

    def test_a_store_that_went_between_two_runs(self):
        process = self.train_until("run", 6, "--save-steps", 2)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        os.unlink(self.path("run", "optimizer.store"))
        steps = self.last_step("run") + 3
        result = self.ok(*self.args("run", *DISK, *CONSTANT, "--resume-from-checkpoint", "auto", steps=steps))
        self.assertIn("optimizer.store was removed; continuing from step", result.err)
        self.train("whole", *CONSTANT, steps=steps)
        self.assertEqual(self.weights("run", steps), self.weights("whole", steps))

    def test_a_foreign_file_put_in_its_place_is_left_alone(self):
        process = self.train_until("run", 2)
        os.replace(self.write("diary", b"my diary"), self.path("run", "optimizer.store"))
        deadline = time.monotonic() + 60
        while not any(d.startswith("checkpoint-") for d in os.listdir(self.path("run"))) and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertIn("removed or replaced", self.stopped(process))
        self.assertEqual(self.read("run", "optimizer.store"), b"my diary")
        self.fails(3, *self.args("run", *DISK, "--resume-from-checkpoint", "auto"), says=["store of atom"])

    def test_a_cut_store_ends_the_run_with_one_line(self):
        process = self.start_atom(*self.args("run", *DISK, steps=1000000))
        deadline = time.monotonic() + 60
        while self.last_step("run") < 2 and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        os.truncate(self.path("run", "optimizer.store"), 100000)
        _, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 1, err)
        self.assertIn("it was cut", err.splitlines()[-1])


class Faults(TrainCase):
    """A file system that fails at a given request of the store, mounted through FUSE."""

    def mount(self, **fault):
        os.makedirs(self.path("real"), exist_ok=True)
        os.makedirs(self.path("mounted"), exist_ok=True)
        server = subprocess.Popen([sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "faultfs.py"),
                                   self.path("real"), self.path("mounted"), json.dumps(fault)], stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 10
        while not os.path.ismount(self.path("mounted")) and server.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        if not os.path.ismount(self.path("mounted")):
            server.kill()
            server.wait()
            self.skipTest("no FUSE here: " + server.stderr.read().strip())
        self.addCleanup(self.unmount, server)
        return server

    def unmount(self, server):
        if server.poll() is None:
            subprocess.run(["fusermount3", "-u", "-z", self.path("mounted")], check=False, stderr=subprocess.DEVNULL)
            try:
                server.wait(timeout=0.3)
            except subprocess.TimeoutExpired:  # the kernel may hold the mount a while for a dead process's ring
                server.kill()
                server.wait()
        server.stderr.close()

    def fails_and_goes_on(self, code, says, *more, fault, store="auto", steps=12):
        """The run ends with one line; from what it left, the next one comes to the bits of an undisturbed one."""
        server = self.mount(name="optimizer.store", **fault)
        self.fails(code, *self.args("run", *DISK, "--store-dir", self.path("mounted"), "--store", store, *more, steps=steps),
                   says=["optimizer.store", *says])
        self.unmount(server)
        done = self.last_step("run")
        self.assertGreater(done, 0, "failed before it trained")
        again = self.ok(*self.args("run", *DISK, "--store-dir", self.path("real"), "--resume-from-checkpoint", "auto", *more,
                                   steps=steps))
        self.assertIn("resumed from the optimizer's state on disk", again.err)
        self.train("whole", *more, steps=steps)
        self.assertEqual(self.weights("run", steps), self.weights("whole", steps))
        self.assertEqual(self.losses("run"), self.losses("whole"))

    def test_a_disk_that_fills_up(self):
        self.fails_and_goes_on(4, ["no room"], fault={"op": "write", "synced": 8, "after": 3, "errno": "ENOSPC"})

    def test_a_disk_that_fails_to_write(self):
        self.fails_and_goes_on(1, ["failed to write"], fault={"op": "write", "synced": 8, "after": 3, "errno": "EIO"})

    def test_a_disk_that_fails_to_read(self):
        self.fails_and_goes_on(1, ["failed to read"], fault={"op": "read", "synced": 8, "after": 3, "errno": "EIO"})

    def test_a_disk_that_fails_to_keep(self):
        self.fails_and_goes_on(1, ["durable"], fault={"op": "fsync", "synced": 9, "after": 0, "errno": "EIO"})

    def test_power_that_goes_at_any_write(self):
        """Torn writes: of what was not yet made durable, any sectors may be old."""
        pick = random.Random(11)
        for store in ("auto", "libaio", "threads"):
            with self.subTest(store=store):
                for name in ("real", "run", "whole"):
                    shutil.rmtree(self.path(name), ignore_errors=True)
                op, after = pick.choice([("write", pick.randint(0, 10)), ("fsync", 0)])
                fault = {"op": op, "synced": pick.randint(6, 18), "after": after, "cut": pick.randint(1, 9999)}
                ahead = [] if store == "auto" else ["--update-ahead", "always", "--max-grad-norm", pick.choice([1.5, 1e9])]
                self.fails_and_goes_on(1, ["failed to"], *ahead, fault=fault, store=store)

    def test_a_full_disk_for_checkpoints(self):
        """The checkpoint cannot be written; the state on disk is as good."""
        server = self.mount(name="model.safetensors*", op="write", synced=0, after=0, errno="ENOSPC")
        self.fails_at_last(*self.args(self.path("mounted", "run"), *DISK, *CONSTANT, "--store-dir", self.dir, steps=5),
                           says=["model.safetensors", "the state on disk has all steps"])
        self.unmount(server)
        self.train(self.path("real", "run"), *DISK, *CONSTANT, "--store-dir", self.dir, "--resume-from-checkpoint",
                   "auto", steps=7)
        self.train("whole", *CONSTANT, steps=7)
        self.assertEqual(self.weights(self.path("real", "run"), 7), self.weights("whole", 7))


if __name__ == "__main__":
    tool.main()
