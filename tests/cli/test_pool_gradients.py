"""A pool that sums gradients, of processes on loopback: the same weights as of one trainer, in all of them."""
import array
import json
import math
import os
import shutil
import struct
import time

import tool

CONFIG = {"model_type": "gpt2", "vocab_size": 257, "n_positions": 48, "n_embd": 48, "n_layer": 2,
          "n_head": 3, "resid_pdrop": 0.1, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
RUN = """
micro_batch_size: 2
gradient_accumulation_steps: 6
sequence_len: 32
max_steps: {steps}
learning_rate: 2e-3
warmup_steps: 5
adam_epsilon: 1e-4
max_grad_norm: 0.5
dtype: fp32
threads: 1
execute: interpreted
eval_steps: 0
save_steps: 0
"""
POOL = """
pool:
  sync: gradients
  min_peers: {peers}
  heartbeat_seconds: 0.2
{more}"""
ALONE = ["--no-lan", "--no-directory", "--json", "--quiet"]
LITTLE = "2300KiB"  # of each device's memory: less than the model takes
PATIENCE = 90  # seconds; nothing here takes a tenth of it


def floats(path):
    """All of a checkpoint's weights, by name."""
    with open(path, "rb") as f:
        size = struct.unpack("<Q", f.read(8))[0]
        head = json.loads(f.read(size))
        body = f.read()
    out = array.array("f")
    for name in sorted(head):
        if name != "__metadata__":
            begin, end = head[name]["data_offsets"]
            out.frombytes(body[begin:end])
    return out


def distance(a, b):
    square = sum((x - y) ** 2 for x, y in zip(a, b))
    return math.sqrt(square / sum(y * y for y in b))


class Members(tool.DataCase):
    """Members of a pool that sums gradients, as processes."""

    MODEL = CONFIG

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.prepare(cls.data + "2", "and one more " + tool.english(60000))

    def start(self, *args, env=None):
        process = self.start_atom("pool", *args, *ALONE, env=env)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def until(self, what, member="p0"):
        """Waits until the status of that member satisfies `what`."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            status = self.run_atom("pool", "status", member, "--json")
            if status.code == 0 and what(status.json()):
                return
            time.sleep(0.1)
        self.fail("it never came so far")

    def create(self, steps, peers, more="", model=None, run=RUN, out="p0", data=None, beat="0.2"):
        pool = POOL.replace("0.2", beat).format(peers=peers, more=more)
        run = self.write("pool.yml", run.format(steps=steps) + pool)
        process = self.start("create", "--config", run, "--model", model or self.config, "--data", data or self.data, "-o", out,
                             "--listen", "127.0.0.1:0")
        line = process.stdout.readline()
        self.assertTrue(line, process.stderr.read() if process.poll() is not None else "")
        return process, json.loads(line)["ticket"]

    def join(self, i, ticket, data=None, more=(), env=None):
        return self.start("join", ticket, "--data", data or self.data, "-o", f"p{i}", "--listen", "127.0.0.1:0", *more, env=env)

    def alone(self, steps, run=RUN):
        run = self.write("run.yml", run.format(steps=steps))
        self.ok("train", run, "--model", self.config, "--data", self.data, "-o", "alone", "--quiet")
        return self.path("alone", f"checkpoint-{steps}", "model.safetensors")

    def end(self, process):
        out, err = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, 0, out + err)
        return json.loads(out.splitlines()[-1])

    def weights(self, i, steps):
        return self.path(f"p{i}", f"checkpoint-{steps}", "model.safetensors")


class PoolGradients(Members):
    def test_two_adapt_as_one(self):
        # LoRA: what is summed are the adapters' gradients, over a model that everybody has.
        self.alone(5)
        model, run = self.path("alone", "checkpoint-5"), RUN + "lora_r: 4\n"
        first, ticket = self.create(8, 2, model=model, run=run)
        ends = [self.end(m) for m in (first, self.join(1, ticket, more=["--model", model]))]
        self.ok("train", self.write("lora.yml", run.format(steps=8)), "--model", model, "--data", self.data, "-o", "single",
                "--quiet")
        found = [floats(self.path(out, "checkpoint-8", "adapter_model.safetensors")) for out in ("p0", "p1", "single")]
        self.assertEqual([e["steps"] for e in ends], [8, 8])
        self.assertEqual(found[0], found[1])
        self.assertLess(distance(found[0], found[2]), 1e-5)

    def test_three_are_one(self):
        members, ticket = [], None
        first, ticket = self.create(20, 3)
        members = [first, self.join(1, ticket), self.join(2, ticket)]
        ends = [self.end(m) for m in members]
        single = floats(self.alone(20))
        for i, end in enumerate(ends):
            self.assertEqual(end["steps"], 20)
            self.assertEqual(end["certified_samples"], 20 * 12)
            self.assertGreaterEqual(end["included"], 10)  # the first one begins with a step of its own
            self.assertEqual(floats(self.weights(i, 20)), floats(self.weights(0, 20)))
        self.assertLess(distance(floats(self.weights(0, 20)), single), 1e-5)
        # Going on alone from there is going on with the same moments.
        self.ok("train", self.write("run.yml", RUN.format(steps=23)), "--model", self.config, "--data",
                self.data, "-o", "on", "--resume-from-checkpoint", self.path("p1", "checkpoint-20"), "--quiet")
        self.ok("train", self.write("run.yml", RUN.format(steps=23)), "--model", self.config, "--data",
                self.data, "-o", "alone", "--resume-from-checkpoint", "auto", "--quiet")
        ends = [floats(self.path(out, "checkpoint-23", "model.safetensors")) for out in ("on", "alone")]
        self.assertLess(distance(*ends), 1e-5)

    def test_one_is_killed(self):
        first, ticket = self.create(60, 3, "  global_batch_size: 12\n")
        members = [first, self.join(1, ticket), self.join(2, ticket)]
        self.until(lambda s: s["roster"] == 3 and s["applied"] >= 15)
        members[2].kill()
        ends = [self.end(m) for m in members[:2]]
        self.assertEqual([e["certified_samples"] for e in ends], [60 * 12] * 2)
        self.assertEqual(floats(self.weights(0, 60)), floats(self.weights(1, 60)))
        self.assertLess(distance(floats(self.weights(0, 60)), floats(self.alone(60))), 1e-5)

    def test_what_others_made_is_no_step(self):
        """Who comes back takes the others' state: of the steps before it, neither gradient nor learning rate is known."""
        def steps():
            with open(self.path("p2", "metrics.jsonl"), encoding="ascii") as f:
                return [m for m in map(json.loads, f) if m["split"] == "train"]
        first, ticket = self.create(10**5, 3)
        members = [first, *(self.join(i, ticket) for i in (1, 2))]
        self.until(lambda s: s["applied"] > 5, "p2")
        members[2].terminate()
        members[2].communicate(timeout=PATIENCE)
        before = steps()[-1]["step"]
        self.until(lambda s: s["certified_samples"] > 32 * (before + 20))
        members[2] = self.start("join", "-o", "p2")
        self.until(lambda s: s["is_member"] and s["roster"] == 3 and len(steps()) > before + 3, "p2")
        for process in members:
            process.kill()
        self.assertGreater(steps()[-1]["step"], before + 20)
        self.assertEqual([m for m in steps() if m["learning_rate"] == 0 or m["grad_norm"] == 0], [])

    def test_the_bits_of_one_device(self):
        """A member whose leases are of 13 micro-batches, in passes of 6, 6 and 1: it ends with the same bits on any number of
        devices. What others get says nothing of them."""
        more, ends = "  global_batch_size: 26\n", {}
        for devices in (1, 2, 5):
            run, out = RUN + f"device_memory: {LITTLE}\ndevices: {devices}\n", f"on-{devices}"
            end = self.end(self.create(6, 1, more, run=run, out=out)[0])
            self.assertEqual(end["certified_samples"], 6 * 26)
            ends[devices] = [end["anchor"], *(self.read(out, "checkpoint-6", name) for name in
                                              ("model.safetensors", "optimizer.safetensors"))]
            self.assertNotIn(b"device", self.read(out, "genesis", "run.yml"))
            self.assertIn(b"devices: %d\n" % devices, self.read(out, "local.yml"))
        for devices in (2, 5):
            for one, many in zip(ends[1], ends[devices]):
                self.assertTrue(one == many, f"other bits on {devices} devices")

    def pair(self, devices, steps, n):
        """A pool of two with so many devices: the anchor of both, and what they brought to each version."""
        run = RUN + f"device_memory: {LITTLE}\ndevices: {devices[0]}\n"
        first, ticket = self.create(steps, 2, "  global_batch_size: 36\n", run=run, out=f"a{n}", beat="2")
        second = self.start("join", ticket, "--data", self.data, "-o", f"b{n}", "--listen", "127.0.0.1:0", "--devices", devices[1],
                            "--device-memory", LITTLE)
        anchors = {self.end(member)["anchor"] for member in (first, second)}
        self.assertEqual(len(anchors), 1)
        with open(self.path(f"a{n}", "pool", "events.jsonl"), encoding="ascii") as f:
            brought = [sorted(e["brought"].values()) for e in map(json.loads, f) if e["event"] == "certified"]
        return anchors.pop(), [b for b in brought if b]

    def test_two_with_the_bits_of_one_device_each(self):
        """Where both are always in time, a sum is of the same two leases, and so of the same bits."""
        found = {}
        for n, devices in enumerate(((1, 1), (1, 1), (2, 3), (2, 3))):
            if devices in found or (n >= 2 and not found):
                continue
            anchor, brought = self.pair(devices, 6, n)
            if brought == [[18, 18]] * 6:
                found[devices] = anchor
        if len(found) < 2:
            print("this machine is busy, and a member was late each time: the bits of two were not compared")
        else:
            self.assertEqual(found[1, 1], found[2, 3])

    def test_devices_of_a_member(self):
        """One has two, is killed, and comes back with three: all make the steps of one trainer."""
        first, ticket = self.create(30, 2, "  global_batch_size: 36\n")
        more = ["join", ticket, "--data", self.data, "-o", "p2", *ALONE]
        self.fails(2, "pool", *more, "--devices", 7, "--device-memory", LITTLE,
                   says=["in this pool there are only 6", "--devices 6"])
        self.fails(2, "pool", *more, "--devices", 2, says=["devices", "set device_memory"])
        members = [first, self.join(1, ticket, more=["--devices", 2, "--device-memory", LITTLE])]
        self.until(lambda s: s["roster"] == 2 and s["applied"] >= 8)
        self.assertIn(b"devices: 2\n", self.read("p1", "local.yml"))
        members[1].kill()
        members[1].wait()
        members[1] = self.start("join", "-o", "p1", "--devices", 3)
        ends = [self.end(m) for m in members]
        self.assertIn(b"devices: 3\n", self.read("p1", "local.yml"))
        self.assertEqual([e["certified_samples"] for e in ends], [30 * 36] * 2)
        self.assertGreater(ends[1]["included"], 0)
        self.assertEqual(ends[0]["anchor"], ends[1]["anchor"])
        self.assertEqual(floats(self.weights(0, 30)), floats(self.weights(1, 30)))
        single = self.alone(30, RUN.replace("steps: 6\n", "steps: 18\n"))
        self.assertLess(distance(floats(self.weights(0, 30)), floats(single)), 1e-5)

    def test_delayed(self):
        # Whoever comes, dies or is killed and comes back: the steps of one whose gradients are of one step before.
        more = "  global_batch_size: 12\n  delayed_updates: true\n"
        first, ticket = self.create(60, 2, more)
        members = [first, self.join(1, ticket)]
        self.until(lambda s: s["roster"] == 2 and s["applied"] >= 10)
        members.append(self.join(2, ticket))
        self.until(lambda s: s["roster"] == 3 and s["applied"] >= 20)
        members[1].kill()
        members[1].wait()
        members[1] = self.start("join", "-o", "p1")
        ends = [self.end(m) for m in members]
        self.assertEqual([e["certified_samples"] for e in ends], [60 * 12] * 3)
        for i in range(3):
            self.assertEqual(floats(self.weights(i, 60)), floats(self.weights(0, 60)))
        together = floats(self.weights(0, 60))
        one = self.end(self.create(60, 1, more, out="one")[0])
        self.assertEqual(one["steps"], 60)
        self.assertLess(distance(together, floats(self.path("one", "checkpoint-60", "model.safetensors"))), 1e-5)
        self.assertGreater(distance(together, floats(self.alone(60))), 1e-3)

    def test_what_is_not_delayed(self):
        for more, says in (("sync: parameters", "sync parameters"), ("sync: slices", "sync slices"),
                           ("sync: parameters\n  dense_steps: 10%", "dense_steps")):
            run = self.write("pool.yml", RUN.format(steps=20) + f"pool:\n  min_peers: 2\n  delayed_updates: true\n  {more}\n")
            with open(run, encoding="utf-8") as f:
                line = next(n for n, text in enumerate(f, 1) if "delayed" in text)
            self.fails(2, "pool", "create", "--config", run, "--model", self.config, "--data", self.data, "-o", "p0",
                       "--listen", "127.0.0.1:0", *ALONE, says=[f"{run}:{line}: delayed_updates", says])

    def test_devices_that_cannot_share(self):
        for more, says in (("", "add global_batch_size: 12 under pool:"),
                           ("  global_batch_size: 2\n", "global_batch_size: 2 has fewer micro-batches than there are devices (2)")):
            run = self.write("pool.yml", RUN.format(steps=20) + POOL.format(peers=1, more=more))
            self.fails(2, "pool", "create", "--config", run, "--model", self.config, "--data", self.data, "-o", "p0", "--devices", 2,
                       "--listen", "127.0.0.1:0", *ALONE, says=says)

    def test_narrow_moments_are_refused(self):
        run = self.write("pool.yml", RUN.format(steps=20) + "moments_dtype: bf16\n" + POOL.format(peers=1, more=""))
        self.fails(2, "pool", "create", "--config", run, "--model", self.config, "--data", self.data, "-o", "p0",
                   "--listen", "127.0.0.1:0", *ALONE, says=["moments_dtype", "sync: gradients"])

    def test_muon_on_unlike_machines(self):
        # Each orthogonalises for itself, by the instructions that it has, and finds the same bits.
        run = RUN + "optimizer: muon\n"
        first, ticket = self.create(12, 3, run=run)
        members = [first, self.join(1, ticket, env={"ATOM_ISA": "base"}), self.join(2, ticket, env={"ATOM_ISA": "avx2"})]
        for end in map(self.end, members):
            self.assertEqual(end["steps"], 12)
        self.ok("train", self.write("muon.yml", run.format(steps=12)), "--model", self.config, "--data", self.data, "-o",
                "single", "--quiet")
        single = floats(self.path("single", "checkpoint-12", "model.safetensors"))
        for i in range(3):
            self.assertEqual(floats(self.weights(i, 12)), floats(self.weights(0, 12)))
        self.assertLess(distance(floats(self.weights(0, 12)), single), 5e-3)

    def test_other_data(self):
        first, ticket = self.create(20, 2)
        stranger = self.join(1, ticket, self.data + "2")
        _, err = stranger.communicate(timeout=PATIENCE)
        self.assertEqual(stranger.returncode, 2, err)
        # By its file's hash, or by what it holds.
        self.assertRegex(err, "is not (the same as the pool's|the data that the others train on)")
        first.kill()

    def late(self, i, ticket):
        late = self.start_atom("pool", "join", ticket, "--data", self.data, "-o", f"p{i}", "--listen", "127.0.0.1:0", *ALONE[:2])
        self.addCleanup(late.communicate)
        self.addCleanup(late.kill)
        return late

    def test_latecomers(self):
        """A run that has ended, with members that rest and so still serve: who joins now is told, and gets the weights."""
        rest, ticket = self.create(40, 3)
        members = [rest, *(self.join(i, ticket) for i in (1, 2))]
        self.until(lambda s: s["version"] > 3)
        for out in ("p0", "p1"):
            self.ok("pool", "pause", out)
        self.assertEqual(self.end(members[2])["pool_step"], 40)
        # Without the data set it learns that before it has fetched any of it.
        self.fails(1, "pool", "join", ticket, "-o", "p6", "--patience", 30, *ALONE,
                   says=["the run of this pool has ended: step 40 of 40", "its data set was not fetched", "atom pool export"])
        self.assertFalse([name for _, _, names in os.walk(self.path("p6")) for name in names if name.endswith((".bin", ".part"))])
        late = self.late(3, ticket)
        out, err = late.communicate(timeout=PATIENCE)
        self.assertEqual(late.returncode, 0, out + err)
        self.assertIn("there was nothing left to train", out)
        self.assertIn("the pool is done; to get its model: atom pool export p3 -o model", out)
        self.assertGreater(self.ok("pool", "export", "p3", "-o", "model", "--json").json()["version"], 0)
        # It does not come back to nobody.
        self.assertIn("this run has ended: the pool made step 40 of 40", self.ok("pool", "join", "-o", "p3", *ALONE[:2]).out)
        # One of two can vouch for the weights if it is the first of the roster; else it can show that the run has ended.
        members[1].kill()
        late = self.late(4, ticket)
        until = time.monotonic() + PATIENCE
        while late.poll() is None and "1 member agrees" not in self.run_atom("pool", "status", "p4", "--json").out:
            self.assertLess(time.monotonic(), until)
            time.sleep(0.02)
        if late.poll() is None:
            self.assertTrue(any("the run of this pool has ended: step 40 of 40 was made" in line for line in late.stderr))
            late.kill()
        else:
            self.assertEqual(late.returncode, 0)
            self.assertTrue(os.path.isdir(self.path("p4", "checkpoint-40")))
        # Once nobody is left, who comes is told what that may mean.
        self.assertIsNone(rest.poll())
        rest.terminate()
        rest.communicate(timeout=PATIENCE)
        self.fails(1, "pool", "join", ticket, "--data", self.data, "-o", "p5", "--patience", 12, *ALONE, says=["the run may", "have ended"])

    def test_those_who_rest(self):
        """Whoever is the only one that does not rest makes all steps, also where it would be leased nothing."""
        run = RUN.replace("gradient_accumulation_steps: 6", "gradient_accumulation_steps: 1")
        _, ticket = self.create(100000, 3, run=run)
        for i in (1, 2):
            self.join(i, ticket)
        self.until(lambda s: s["version"] > 3)
        for one in range(3):
            others = [f"p{i}" for i in range(3) if i != one]
            for out in others:
                self.ok("pool", "pause", out)
            self.until(lambda s: sum(m["rests"] for m in s["members"]) == 2, f"p{one}")
            before = self.ok("pool", "status", f"p{one}", "--json").json()["certified_samples"]
            self.until(lambda s: s["certified_samples"] > before + 10, f"p{one}")
            for out in others:
                self.ok("pool", "resume", out)

    def test_a_pause_is_no_time_of_a_step(self):
        """Of a member's speed nothing is lost by it."""
        process, _ = self.create(60, 1)
        self.until(lambda s: s["version"] > 3)
        self.ok("pool", "pause", "p0")
        self.until(lambda s: s["wish"] == "pause")
        time.sleep(4)
        self.ok("pool", "resume", "p0")
        done = self.end(process)
        steps = [m for m in map(json.loads, self.read("p0", "metrics.jsonl").splitlines()) if m["split"] == "train"]
        self.assertLess(max(m["seconds"] for m in steps), 4)
        self.assertEqual(done["steps"], 60)

    def test_own_data(self):
        # Files of the same names and lengths are not the same data, unless nobody can tell.
        other, old = self.data + "-other", self.data + "-old"
        self.prepare(other, tool.english(60000).replace("e", "o"))
        shutil.copytree(self.data, old)
        with open(os.path.join(old, "train_000000.bin"), "r+b") as f:  # as an older atom wrote it
            f.seek(12)
            f.write(bytes(8))
        first, ticket = self.create(20, 2, "  data: own\n")
        for data, says in ((other, "train on; in a pool"), (old, "do not say what they contain")):
            stranger = self.join(1, ticket, data)
            _, err = stranger.communicate(timeout=PATIENCE)
            self.assertEqual(stranger.returncode, 2, err)
            self.assertIn("is not the data that the others", err)
            self.assertIn(says, err)
        first.kill()
        first.communicate()
        first, ticket = self.create(6, 2, "  data: own\n", out="p2", data=old)
        second = self.start_atom("pool", "join", ticket, "--data", self.data, "-o", "p3", "--listen", "127.0.0.1:0", *ALONE[:2])
        self.addCleanup(second.kill)
        out, err = second.communicate(timeout=PATIENCE)
        self.assertEqual(second.returncode, 0, err)
        self.assertIn("the pool is at version", out)
        self.assertNotIn("in no version of the pool", out)  # each step is everybody's
        self.assertIn("was not compared, because the pool was made by an older atom", err)
        self.assertIn("every member has to bring a copy of the same data", err)
        self.assertIn("of this host's memory and", err)  # and not that more is needed with the anchor on disk
        self.end(first)


if __name__ == "__main__":
    tool.main()
