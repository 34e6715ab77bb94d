"""A run whose disk fills up: it trains on, says what is missing, and writes again when there is room."""
import json
import os
import re
import signal
import time

import tool
from small_disk import SmallDisk
from test_train import TrainCase

PATIENCE = 60  # seconds; nothing here takes a tenth of it
CONSTANT = ["--lr-scheduler-type", "constant"]  # for runs that end elsewhere than they thought
LOGS = 100 << 10  # bytes: enough for the lines of a short run, too few for a checkpoint


class FullDisk(TrainCase):
    def setUp(self):
        super().setUp()
        self.disk = SmallDisk(self, 128)
        self.out = os.path.join(self.disk.path, "run")

    def start(self, *more, steps):
        """A run whose words are in a file, to be read while it goes on."""
        self.said_at = self.path("said")
        with open(self.said_at, "wb") as err:
            process = self.start_atom(*self.args(self.out, *CONSTANT, *more, steps=steps), stderr=err)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def said(self):
        with open(self.said_at, encoding="utf-8") as f:
            return f.read()

    def until(self, process, what, test):
        end = time.monotonic() + PATIENCE
        while not test():
            self.assertIsNone(process.poll(), f"{what}: it has ended\n{self.said()}")
            self.assertLess(time.monotonic(), end, f"{what}: not in time\n{self.said()[-2000:]}")
            time.sleep(0.02)

    def end(self, process, code):
        process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, code, self.said())
        return self.said()

    def saved(self):
        there = os.listdir(self.out) if os.path.isdir(self.out) else []
        return [name for name in there if name.startswith("checkpoint-")]

    def test_a_checkpoint_that_does_not_fit(self):
        """Training goes on, the older one stays, nothing half written is left, and the next comes as soon as there is room."""
        run = self.start("--save-steps", 400, "--save-total-limit", 1, steps=10**6)
        self.until(run, "its first one", lambda: "checkpoint-400" in self.saved())
        self.disk.fill(leave=1 << 20)
        self.until(run, "it fails", lambda: "was not saved" in self.said())
        older = self.saved()
        self.assertEqual(len([name for name in older if not name.endswith(".tmp")]), 1)
        step = self.last_step(self.out)
        self.until(run, "it trains on", lambda: self.last_step(self.out) > step + 10)
        self.assertEqual(self.ok("inspect", os.path.join(self.out, min(older, key=len)), "--json").code, 0)
        told = next(line for line in self.said().splitlines() if "was not saved" in line)
        for words in ("warning: ", "free some space", "A checkpoint takes", "free", "is whole", "Training goes on", "as soon as there is room"):
            self.assertIn(words, told)
        self.disk.empty()
        self.until(run, "another one", lambda: any(name not in older and not name.endswith(".tmp") for name in self.saved()))
        run.send_signal(signal.SIGTERM)
        self.end(run, 128 + signal.SIGTERM)
        self.assertEqual(len(self.saved()), 1)

    def test_metrics_that_do_not_fit(self):
        """Said once; the lines that were lost are missing, and the file is whole."""
        run = self.start("--save-steps", 0, steps=10**6)
        self.until(run, "it trains", lambda: self.last_step(self.out) > 5)
        self.disk.fill()
        self.until(run, "it cannot write", lambda: "metrics.jsonl" in self.said())
        step = self.last_step(self.out)
        time.sleep(0.5)
        self.assertLessEqual(self.last_step(self.out), step + 20)  # to the end of a block
        self.disk.empty()
        self.until(run, "it writes again", lambda: "metrics.jsonl is written again" in self.said() and self.last_step(self.out) > step + 30)
        run.send_signal(signal.SIGTERM)
        said = self.end(run, 128 + signal.SIGTERM)
        self.assertEqual(said.count("warning: cannot write"), 1, said)
        steps = [m["step"] for m in self.metrics(self.out)]
        self.assertEqual(steps, sorted(set(steps)))
        self.assertLess(len(steps), steps[-1])

    def test_the_last_checkpoint_waits_for_room(self):
        self.disk.fill(leave=LOGS)
        run = self.start("--save-steps", 0, steps=6)
        self.until(run, "it waits", lambda: "tried again for 600 s" in self.said())
        self.assertEqual(self.saved(), [])
        self.disk.empty()
        self.end(run, 0)
        self.train("whole", *CONSTANT)
        self.assertEqual(self.weights(self.out, 6), self.weights("whole", 6))

    def test_nobody_waits_for_the_last_checkpoint(self):
        """Exit code 4, and what the run goes on from; it ends with the same bits."""
        self.train(self.out, *CONSTANT, steps=3)
        self.disk.fill(leave=LOGS)
        run = self.start("--resume-from-checkpoint", "auto", steps=6)
        self.until(run, "it waits", lambda: "tried again for" in self.said())
        run.send_signal(signal.SIGINT)
        said = self.end(run, 4)
        error = said.splitlines()[-1]
        for words in ("atom: error: ", "checkpoint of step 6 was not saved", "checkpoint-3 is whole", "--resume-from-checkpoint auto"):
            self.assertIn(words, error)
        self.assertEqual(self.saved(), ["checkpoint-3"])
        self.disk.empty()
        self.train(self.out, *CONSTANT, "--resume-from-checkpoint", "auto")
        self.train("whole", *CONSTANT)
        self.assertEqual(self.weights(self.out, 6), self.weights("whole", 6))

    def test_a_second_signal_ends_the_wait(self):
        """Whoever asked for the end and does not want to wait for room either."""
        run = self.start("--save-steps", 0, steps=10**6)
        self.until(run, "it trains", lambda: self.last_step(self.out) > 3)
        self.disk.fill(leave=LOGS)
        run.send_signal(signal.SIGINT)
        self.until(run, "it waits", lambda: "tried again for" in self.said())
        run.send_signal(signal.SIGINT)
        self.end(run, 130)
        self.assertEqual(self.saved(), [])

    def test_with_the_state_on_the_same_disk(self):
        """A checkpoint that does not fit is not begun, because each step needs some room; the state has all steps."""
        run = self.start("--optimizer-state", "disk", "--save-steps", 50, steps=10**6)
        self.until(run, "its first one", lambda: self.saved() and not self.saved()[0].endswith(".tmp"))
        self.disk.fill(leave=300 << 10)
        self.until(run, "it leaves one out", lambda: "was not begun" in self.said())
        step = self.last_step(self.out)
        self.until(run, "it trains on", lambda: self.last_step(self.out) > step + 10)
        run.send_signal(signal.SIGTERM)
        self.until(run, "it waits", lambda: "tried again for" in self.said())
        self.disk.empty()
        self.end(run, 128 + signal.SIGTERM)
        with open(os.path.join(self.out, max(self.saved(), key=lambda name: int(name[11:])), "atom_state.json"), encoding="ascii") as f:
            self.assertGreaterEqual(json.load(f)["step"], step)

    def test_a_state_that_cannot_be_written(self):
        """That ends the run, with the exit code for it, and it goes on from its last whole step with the same bits."""
        run = self.start("--optimizer-state", "disk", "--save-steps", 0, steps=10**6)
        self.until(run, "it trains", lambda: self.last_step(self.out) > 5)
        self.disk.fill()
        error = self.end(run, 4).splitlines()[-1]
        for words in ("atom: error: ", "optimizer-", "No space left on device"):
            self.assertIn(words, error)
        self.assertEqual(self.saved(), [])
        self.disk.empty()
        run = self.start("--optimizer-state", "disk", "--save-steps", 0, "--resume-from-checkpoint", "auto", steps=10**6)
        self.until(run, "it goes on", lambda: "resumed from the optimizer's state on disk" in self.said())
        resumed = int(re.search(r"state on disk \(step (\d+)\)", self.said()).group(1))
        self.until(run, "it trains", lambda: self.last_step(self.out) > resumed + 20)
        run.send_signal(signal.SIGTERM)
        self.end(run, 128 + signal.SIGTERM)
        step = int(self.saved()[0][11:])
        self.train("whole", *CONSTANT, steps=step)
        self.assertEqual(self.weights(self.out, step), self.weights("whole", step))


if __name__ == "__main__":
    tool.main()
