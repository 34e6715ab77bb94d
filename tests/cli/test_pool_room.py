"""A member whose disk fills up: it pauses, says what is missing, goes on by itself, and loses nothing."""
import os
import time

import tool
from small_disk import SmallDisk
from test_pool_train import CONFIG, PATIENCE, RUN, Members

DISK_MIB = 64


class FullDisk(Members):
    def setUp(self):
        super().setUp()
        self.disk = SmallDisk(self, DISK_MIB)
        self.out = os.path.join(self.disk.path, "c")
        self.a, ticket = self.create("a")
        self.b = self.join("b", ticket, "--data", self.data)
        self.c = self.join(self.out, ticket, "--data", self.data)
        self.until(self.out, "a member", lambda s: s["is_member"] and s["roster"] == 3 and s["samples"] > 0, [self.a, self.b, self.c])

    def versions(self, out, more):
        seen = self.status(out)["applied"]
        return self.until(out, f"{more} more versions", lambda s: s["applied"] >= seen + more, [self.a, self.b, self.c])

    def waits(self, says):
        return self.until(self.out, "it waits for room", lambda s: says in s["text"], [self.a, self.b, self.c])

    def brings(self):
        """Its work is counted again, by the others."""
        def count(status):
            return next(m["brought"] for m in status["members"] if m["key"] == key)
        key = self.status(self.out)["key"]
        before = count(self.status("a"))
        self.until("a", "it contributes", lambda s: count(s) > before, [self.a, self.b, self.c])

    def test_no_room_for_a_checkpoint(self):
        """It goes on with the others' versions, and brings nothing of its own."""
        self.disk.fill(leave=8 << 20)
        self.waits("waiting for disk space for the next checkpoint")
        self.assertIn(self.disk.path[:20], self.status(self.out)["text"])
        self.versions(self.out, 3)
        mine = self.status(self.out)["samples"]
        self.versions(self.out, 3)
        self.assertEqual(self.status(self.out)["samples"], mine)
        self.disk.empty()
        self.brings()

    def test_no_room_at_all(self):
        """Nothing that it says is not on disk, so it says nothing; the others go on, and then it does too."""
        self.disk.fill()
        self.waits("is full")
        self.versions("a", 3)
        self.assertIsNone(self.c.poll())
        self.disk.empty()
        self.brings()
        self.assertIn("room", [e["event"] for e in self.events(self.out)])

    def test_asked_to_end_meanwhile(self):
        """It ends with what is missing and the command that goes on, and comes back as the same member."""
        self.disk.fill()
        self.waits("is full")
        applied, key = self.status(self.out)["applied"], self.status(self.out)["key"]
        self.c.terminate()
        _, err = self.end(self.c, 4)
        self.assertIn(f"atom pool join -o {self.out}", err.strip().splitlines()[-1])
        self.disk.empty()
        self.c = self.join(self.out)
        seen = self.until(self.out, "back", lambda s: s["is_member"] and s["roster"] == 3, [self.a, self.b, self.c])
        self.assertEqual(seen["key"], key)
        self.assertGreaterEqual(seen["applied"], applied)
        self.brings()


class FullMeanwhile(Members):
    """The disk fills up while a checkpoint is being written beside the training."""

    MODEL = dict(CONFIG, n_embd=192)

    def setUp(self):
        super().setUp()
        self.disk = SmallDisk(self, DISK_MIB)
        self.out = os.path.join(self.disk.path, "a")

    def saved(self):
        return sorted(name for name in os.listdir(self.out) if name.startswith("checkpoint-"))

    def wait(self, what, test):
        end = time.monotonic() + PATIENCE
        while not test():
            self.assertIsNone(self.a.poll(), f"{what}: the member has ended")
            self.assertLess(time.monotonic(), end, f"{what}: not in time, {self.saved()}")
            time.sleep(0.02)

    def test_the_checkpoint_is_left_out(self):
        """It says so once, trains on, leaves nothing half written, and writes the next one when there is room."""
        slow = RUN.format(steps=10**6, codec="int8").replace("save_steps: 40", "save_steps: 25\nsave_rate: 1MiB")
        slow = slow.replace("accumulation_steps: 1", "accumulation_steps: 8")
        self.a = self.start("create", "--config", self.write("run.yml", slow), "--model", self.config, "--data", self.data, "-o", self.out,
                            "--listen", "127.0.0.1:0")
        self.a.stdout.readline()
        self.wait("it begins one", lambda: any(name.endswith(".tmp") for name in self.saved()))
        before = [name for name in self.saved() if not name.endswith(".tmp")]
        self.disk.fill()
        self.wait("it gives it up", lambda: self.saved() == before)
        self.until(self.out, "it waits for room", lambda s: "waiting for disk space" in s["text"] or "is full" in s["text"], [self.a])
        self.disk.empty()
        self.wait("it writes the next one", lambda: any(not name.endswith(".tmp") for name in self.saved() if name not in before))
        samples = self.status(self.out)["samples"]
        self.until(self.out, "it trains on", lambda s: s["samples"] > samples, [self.a])
        self.a.terminate()
        _, err = self.end(self.a, 143)
        told = [line for line in err.splitlines() if "was not saved" in line]
        self.assertEqual(len(told), 1, err)
        self.assertIn("warning: checkpoint of step 25 was not saved", told[0])


if __name__ == "__main__":
    tool.main()
