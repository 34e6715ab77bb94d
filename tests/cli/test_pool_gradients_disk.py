"""A pool that sums gradients, with members some of which have a quarter of the others' memory: their state is on disk."""
import json
import os
import random
import time

import test_pool_gradients
import tool

KILLS = int(os.environ.get("ATOM_TEST_KILLS", "6"))
SEED = int(os.environ.get("ATOM_TEST_SEED", "11"))
ALONE = ["--no-lan", "--no-directory", "--json"]
ANCHOR, STORE = "anchor: on disk in", "optimizer state: on disk in"
ROOMY, QUARTER = ("--host-memory", "176MiB"), ("--host-memory", "44MiB")


class Members(test_pool_gradients.Members):
    def start(self, *args, env=None):  # with its notes
        process = self.start_atom("pool", *args, *ALONE, env=env)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def end(self, process):
        out, err = process.communicate(timeout=test_pool_gradients.PATIENCE)
        self.assertEqual(process.returncode, 0, out + err)
        return json.loads(out.splitlines()[-1]), err

    def same(self, members, steps):
        """All end with the same weights and moments, and the same anchor. What they said."""
        ends = [self.end(m) for m in members]
        for name in ("model.safetensors", "optimizer.safetensors"):
            files = {self.read(f"p{i}", f"checkpoint-{steps}", name) for i in range(len(members))}
            self.assertEqual(len(files), 1, name)
        self.assertEqual(len({end["anchor"] for end, _ in ends}), 1)
        self.assertEqual([end["certified_samples"] for end, _ in ends], [steps * 12] * len(members))
        return [err for _, err in ends]


class Quarter(Members):
    MODEL = dict(test_pool_gradients.CONFIG, n_embd=192, n_layer=6)

    def test_two_of_four_have_a_quarter(self):
        first, ticket = self.create(12, 4, "  codec: int8\n  global_batch_size: 12\n")
        self.fails(4, "pool", "join", ticket, "--data", self.data, "-o", "refused", "--listen", "127.0.0.1:0", *QUARTER,
                   "--optimizer-state", "memory", *ALONE, says=["host memory", "in addition to training, this host needs"])
        ways = {1: (*QUARTER, "--store-dir", self.path("fast")), 2: ROOMY, 3: QUARTER}
        members = [first, *(self.join(i, ticket, more=more) for i, more in ways.items())]
        self.until(lambda s: s["roster"] == 4 and s["applied"] >= 4)
        self.assertTrue(os.path.exists(self.path("fast", "optimizer.store")))
        said = self.same(members, 12)
        for i in range(4):
            for line in (ANCHOR, STORE):
                self.assertEqual(line in said[i], i in (1, 3), said[i])
        self.assertFalse(os.path.exists(self.path("fast", "optimizer.store")))


class Killed(Members):
    MODEL = dict(test_pool_gradients.CONFIG, n_embd=96, n_layer=4)
    DISK = ("--optimizer-state", "disk")
    SEVERAL = ("--devices", 3, "--device-memory", "4400KiB")

    def kill_and_come_back(self, members, kills, last):
        """The member p1, at any moment, every second time while a version is made. How often it was."""
        pick, torn, killed = random.Random(SEED), 0, 0
        making = self.path("p1", "pool", "anchor", "next")
        while killed < kills:
            end = time.monotonic() + test_pool_gradients.PATIENCE
            while killed % 2 == 0 and not os.path.exists(making) and time.monotonic() < end:
                time.sleep(0.0005)
            time.sleep(pick.random() * (0.01 if killed % 2 == 0 else 1))
            seen = self.run_atom("pool", "status", "p0", "--json")
            if seen.code != 0 or seen.json()["applied"] > last:
                break
            members[1].kill()
            members[1].communicate()
            killed += 1
            torn += os.path.exists(making)
            members[1] = self.start("join", "-o", "p1")
            self.until(lambda s: s["is_member"] and s["applied"] > seen.json()["applied"], "p1")
        print(f"{killed} kills, {torn} of them while a version was made")
        self.assertGreaterEqual(killed, min(kills, 2))

    def killed(self, steps, more):
        first, ticket = self.create(steps, 3, f"  codec: int8\n  global_batch_size: 12\n{more}")
        members = [first, self.join(1, ticket, more=self.DISK), self.join(2, ticket, more=self.DISK + self.SEVERAL)]
        self.until(lambda s: s["roster"] == 3 and s["applied"] >= 3)
        # On a busy machine the others make dozens of steps until it is back, and must not have ended by then.
        self.kill_and_come_back(members, KILLS, steps // 2)
        for said in self.same(members, steps)[1:]:
            self.assertIn(STORE, said)

    def test_killed_at_any_moment(self):
        """In a step, in the rewrite of the anchor's files, in that of its own blocks: it comes back to what was certified,
        and makes the steps of the others."""
        self.killed(180, "")

    def test_killed_with_delayed_updates(self):
        self.killed(180, "  delayed_updates: true\n")


if __name__ == "__main__":
    tool.main()
