"""Plans that travel in a pool: a newcomer measures, and takes another's plan only where that is quicker by its own
measurement; a poisoned plan is refused. And what `pool create` would choose for a model and a link, and why."""
import glob
import json
import os
import time

import tool

CONFIG = {"model_type": "gpt2", "vocab_size": 257, "n_positions": 48, "n_embd": 48, "n_layer": 8,
          "n_head": 3, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
RUN = """
micro_batch_size: 2
gradient_accumulation_steps: 2
sequence_len: 32
max_steps: 1000000
learning_rate: 1e-3
dtype: fp32
threads: 1
execute: interpreted
eval_steps: 0
save_steps: 0
pool:
  heartbeat_seconds: 0.1
"""
STEPS = "  sync_steps: 12\n  fragments: 3\n"
ALONE = ["--no-lan", "--no-directory", "--json"]
LITTLE = "2500KiB"  # of device memory: the model does not fit whole, and its pieces do with every kind of CPU
PATIENCE = 90  # seconds; nothing but test_rates takes a tenth of it


class PoolPlans(tool.DataCase):
    MODEL = CONFIG

    def shared_cache(self):
        return self.path("cache")  # what one test measured is news to the next

    def start(self, *args, port=0):
        """A member whose cache is its own: what it does not have to measure, somebody gave it."""
        cache = {"XDG_CACHE_HOME": self.path("cache-" + args[args.index("-o") + 1])}
        process = self.start_atom("pool", *args, *ALONE, "--listen", f"127.0.0.1:{port}", env=cache)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def create(self, out):
        run = self.write("run.yml", RUN + STEPS)
        process = self.start("create", "--config", run, "--model", self.config, "--data", self.data, "-o", out,
                             "--quiet")  # nobody reads what it says
        line = process.stdout.readline()
        self.assertTrue(line, process.stderr.read() if process.poll() is not None else "")
        made = json.loads(line)
        return process, made["ticket"], made["port"]

    def join(self, out, ticket, memory=LITTLE, steps=8):
        """Joins, makes some steps, leaves; the summary and what it said."""
        process = self.start("join", ticket, "--data", self.data, "-o", out, "--device-memory", memory,
                             "--max-steps", steps)
        said, err = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, 0, err)
        return json.loads(said), err

    def profiles(self, out):
        return glob.glob(self.path("cache-" + out, "atom", "profiles", "*"))

    def notes(self, out):
        return sorted(glob.glob(self.path(out, "pool", "notes", "*")))

    def test_shared(self):
        a, ticket, port = self.create("a")
        # The first of its kind measures, and leaves its plan; it stays for as long as the others need it.
        b = self.start("join", ticket, "--data", self.data, "-o", "b", "--device-memory", LITTLE, "--quiet")
        self.answers("b", b)
        key = os.path.basename(self.notes("b")[0])
        self.assertNotIn(key, [os.path.basename(n) for n in self.notes("a")])  # another kind
        plan = json.loads(self.read(self.notes("b")[0]))
        self.assertGreater(len(plan["sub_models"]), 1)
        self.assertTrue(self.profiles("b"))
        # One of the same kind measures for itself, and says which plan it took by what it measured.
        done, said = self.join("c", ticket)
        self.compared(done, said)
        self.assertTrue(self.profiles("c"))
        self.assertEqual(done["steps"], 8)
        # One of another kind measures.
        other, said = self.join("d", ticket, "2300KiB")
        self.assertEqual(other["plan"], "measured", said)
        self.assertIn("no member of the pool has one", said)
        self.assertTrue(self.profiles("d"))
        # Who made it is gone: a member to whom it was handed still has it.
        self.ok("pool", "leave", "b")
        b.communicate(timeout=PATIENCE)
        done, said = self.join("e", ticket)
        self.compared(done, said)
        # All are gone but the creator, which forgets what others left; then a liar comes back: first one who says
        # that all the model at once is little, then one whose plan is for another graph, then one whose plan is
        # legal and slow, and said to be quick.
        a.terminate()
        a.communicate(timeout=PATIENCE)
        whole = dict(plan, cut_bytes=0, sub_models=[dict(plan["sub_models"][-1], first_node=plan["sub_models"][0]["first_node"])])
        whole["sub_models"][0]["param_bytes"] = self.whole_bytes(plan)
        strange = dict(plan, graph_hash="0x%016x" % (int(plan["graph_hash"], 16) ^ 1))
        slow = dict(self.slow_plan(plan), predicted_step_seconds=1e-9, predicted_compute_seconds=1e-9)
        for name, poison, says in (("f", whole, "of device memory, but this host allows"), ("g", strange, "plan again"),
                                   ("h", slow, "a step takes")):
            for note in self.notes("a"):
                os.remove(note)
            self.write(os.path.join("a", "pool", "notes", key), json.dumps(poison))
            a = self.start("join", "-o", "a", "--quiet", port=port)
            self.answers("a", a)
            done, said = self.join(name, ticket)
            self.assertEqual(done["plan"], "measured", said)
            refused = [line for line in said.splitlines() if "is not used: " in line]
            self.assertEqual(len(refused), 1, said)
            self.assertIn(says, refused[0])
            self.assertEqual(done["steps"], 8)  # and the run went on
            a.terminate()
            a.communicate(timeout=PATIENCE)

    def answers(self, out, process):
        """It has a plan, and time for others."""
        end = time.monotonic() + PATIENCE
        while not self.notes(out) or self.run_atom("pool", "status", out).code:
            self.assertIsNone(process.poll(), process.poll() is not None and process.communicate()[1])
            self.assertLess(time.monotonic(), end)
            time.sleep(0.1)

    def compared(self, done, said):
        """A line for each plan says how both do here, and the plan is the one that does better."""
        lines = [line for line in said.splitlines() if "plan: " in line and "here" in line]
        self.assertTrue(lines, said)
        self.assertEqual(done["plan"] == "pool", "plan: from the pool" in lines[-1], said)

    def slow_plan(self, plan):
        """For the same run, but it computes twice what it could keep, and moves more than it must."""
        self.ok("plan", "--model", self.config, "--micro-batch-size", 2, "--sequence-len", 32, "--dtype", plan["dtype"],
                "--gradient-accumulation-steps", 2, "--recompute", "always", "--device-memory", "2200KiB", "-o", "slow.json")
        slow = json.loads(self.read("slow.json"))
        self.assertEqual(slow["graph_hash"], plan["graph_hash"])
        return slow

    def whole_bytes(self, plan):
        """The wire bytes of all parameters: those of a plan without a cap."""
        out = self.ok("plan", "--model", self.config, "--micro-batch-size", 2, "--sequence-len", 32, "--dtype", plan["dtype"],
                      "--gradient-accumulation-steps", 2, "--json").json()
        self.assertEqual(len(out["sub_models"]), 1)
        return out["sub_models"][0]["param_bytes"]

    def test_rates(self):
        # Nobody says anything of its link but the one with a cap: what comes from it teaches the others their rate.
        # On a quick machine, 20 steps made versions faster than the cap lets a joiner fetch their state.
        run = self.write("run.yml", RUN + "  sync_steps: 100\n  fragments: 1\n  codec: fp32\n")
        a = self.start("create", "--config", run, "--model", self.config, "--data", self.data, "-o", "a", "--quiet",
                       "--max-upload", "1.6")
        ticket = json.loads(a.stdout.readline())["ticket"]
        self.start("join", ticket, "--data", self.data, "-o", "b", "--quiet")
        end = time.monotonic() + 2 * PATIENCE  # most of a minute on two cores
        rates = []
        while not (rates and rates[0]["down_bytes_per_s"]):
            self.assertLess(time.monotonic(), end, "nothing was learnt")
            time.sleep(0.2)
            seen = self.run_atom("pool", "status", "b", "--json")
            rates = [m for m in seen.json()["members"] if m["self"]] if seen.code == 0 else []
        self.assertGreater(rates[0]["down_bytes_per_s"], 20000)
        self.assertLess(rates[0]["down_bytes_per_s"], 600000)  # 200,000 pass A's gate; buffers may be quicker
        # And it is told: A reckons with it.
        told = 0
        while not told:
            self.assertLess(time.monotonic(), end, "nothing was told")
            time.sleep(0.2)
            told = [m for m in self.ok("pool", "status", "a", "--json").json()["members"] if not m["self"]]
            told = told and told[0]["down_bytes_per_s"]
        self.assertLess(told, 600000)

    def test_month(self):
        # A cap that the joiner reaches at once: it says so, rests, and the others go on; a restart does not forget.
        a, ticket, _ = self.create("a")
        cap = ["--max-upload-month", "0.0002"]
        b = self.start("join", ticket, "--data", self.data, "-o", "b", "--quiet", *cap)

        def until(out, what):
            end = time.monotonic() + PATIENCE
            while time.monotonic() < end:
                seen = self.run_atom("pool", "status", out, "--json")
                if seen.code == 0 and what(seen.json()):
                    return seen.json()
                self.assertIsNone(b.poll(), b.poll() is not None and b.communicate()[1])
                time.sleep(0.2)
            self.fail(f"not in time: {seen}")
        rest = until("b", lambda s: s["wish"] == "rest" and "resting until " in s["text"])
        self.assertGreaterEqual(rest["month"]["up_bytes"], 200000)
        self.assertEqual(rest["month"]["up_max_bytes"], 200000)
        self.assertIn("this month", self.ok("pool", "status", "b").out)
        b.terminate()
        b.communicate(timeout=PATIENCE)
        b = self.start("join", "-o", "b", "--quiet")  # host.yml keeps the cap, pool/month the count
        until("b", lambda s: s["wish"] == "rest" and s["month"]["up_bytes"] >= rest["month"]["up_bytes"])
        # Another month has passed.
        b.terminate()
        b.communicate(timeout=PATIENCE)
        with open(self.path("b", "pool", "month"), encoding="ascii") as f:
            kept = f.read()
        self.write(os.path.join("b", "pool", "month"), kept.replace(kept.split()[1], "202001"))
        b = self.start("join", "-o", "b", "--quiet", "--max-upload-month", "0")
        until("b", lambda s: s["wish"] == "go" and s["is_member"] and s["month"]["up_bytes"] > 0)

    def dry(self, *more, pool="", code=0):
        run = self.write("dry.yml", RUN + pool)
        result = self.run_atom("pool", "create", "--config", run, "--model", self.config, "--data", self.data,
                               "--dry-run", *more)
        self.assertEqual(result.code, code, str(result))
        self.assertFalse(os.path.exists(self.path("pool")))
        return result

    def test_devices(self):
        # What a step takes here is that of all devices, as atom plan predicts it from the same profile.
        shape = ["--model", self.config, "--micro-batch-size", 2, "--sequence-len", 32, "--dtype", "fp32"]
        self.ok("profile", *shape, "-o", "p.json")
        more = f"  sync_steps: 12\ngradient_accumulation_steps: 4\ndevice_memory: {LITTLE}\nprofile: p.json\n"
        run = self.write("devices.yml", RUN.replace("gradient_accumulation_steps: 2\n", "") + more)
        create = ["pool", "create", "--config", run, "--model", self.config, "--data", self.data, "--dry-run"]
        seconds = []
        for n in (1, 2):
            told = self.ok(*create, "--devices", n, "--json").json()
            self.assertEqual(told["devices"], n)
            planned = self.ok("plan", "--profile", "p.json", "--gradient-accumulation-steps", 4, "--device-memory", LITTLE,
                              "--devices", n, "--json").json()
            self.assertAlmostEqual(told["step_seconds"], planned["predicted_step_seconds"], delta=1e-6 * told["step_seconds"])
            seconds.append(told["step_seconds"])
            self.assertEqual("times are those of 2 devices" in self.ok(*create, "--devices", n).out, n == 2)
        self.assertNotEqual(*seconds)

    def test_defaults(self):
        quick = self.dry("--json", "--max-upload", 1000, "--max-download", 1000).json()
        self.assertEqual((quick["sync_steps"], quick["codec"], quick["fragments"]), (20, "int8", 8))
        self.assertEqual((quick["outer_learning_rate"], quick["outer_momentum"]), (0.7, 0.8))
        self.assertTrue(quick["hidden"] and not quick["rate_assumed"])
        self.assertEqual(len([c for c in quick["alternatives"] if c["chosen"]]), 1)
        self.assertIn("the sync is hidden", quick["why"][0])
        # A modem hides nothing, says so, and says what would.
        slow = self.dry("--json", "--max-upload", 0.0001).json()
        self.assertFalse(slow["hidden"])
        self.assertEqual(slow["sync_steps"], 500)
        self.assertIn("is not hidden", slow["why"][0])
        self.assertIn("would hide it", slow["why"][1])
        # What is said stays; for people.
        said = self.dry("--max-upload", 0.0001, pool=STEPS + "  codec: bf16\n").out
        self.assertIn("H = 12 (as you said)", said)
        self.assertIn("an average is the plain mean of the members\n", said)
        outer = self.dry("--max-upload", 0.0001, pool=STEPS + "  outer_momentum: 0.5\n").out
        self.assertIn("an average makes an outer step with rate 0.7 and momentum 0.5\n", outer)
        self.assertRegex(said, r"\* bf16 +12 ")
        self.assertIn("assumed", self.dry().out)
        self.assertEqual(quick["devices"], 1)
        sums = self.dry("--json", "--max-upload", 1, pool="  sync: gradients\n").json()
        self.assertIn("waits for the link", sums["why"][0])
        self.assertEqual(sums["codec"], "fp32")


if __name__ == "__main__":
    tool.main()
