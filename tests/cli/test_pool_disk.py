"""Members whose masters and moments are on disk, beside some that have them in memory."""
import json
import os

import test_pool_train
import tool

ALONE = ["--no-lan", "--no-directory"]
RUN = test_pool_train.RUN


class PoolDisk(test_pool_train.Members):
    def test_killed_beside_one_in_memory(self):
        """It comes back to what was certified, from its directory alone, and goes on; nothing else remembers that it
        should be on disk."""
        a, ticket = self.create("a")
        b = self.join("b", ticket, "--data", self.data, "--optimizer-state", "disk", "--store-dir", self.path("fast"))
        store = self.path("fast", "optimizer.store")
        seen = self.until("b", "both bring something", lambda s: s["roster"] == 2 and s["samples"] > 0, [a, b])
        for _ in range(3):
            self.assertTrue(os.path.exists(store), os.listdir(self.path("b")) + os.listdir(self.path("fast")))
            self.until("b", "further", lambda s: s["applied"] >= seen["applied"] + 4, [a, b])
            b.kill()
            b.communicate()
            b = self.start_atom("pool", "join", "-o", "b", "--listen", "127.0.0.1:0", "--json", *ALONE)
            self.addCleanup(b.communicate)
            self.addCleanup(b.kill)
            seen = self.until("b", "back", lambda s: s["roster"] == 2 and s["is_member"], [a, b])
        counted = seen["members"][0]["brought"]
        seen = self.until("b", "what it does counts", lambda s: s["members"][0]["brought"] > counted, [a, b])
        b.terminate()
        out, said = self.end(b, 143)
        self.assertIn("resumed from the optimizer's state on disk", said)
        self.assertIn(f"optimizer state: on disk in {self.path('fast')}", said)
        a.terminate()
        ends = [json.loads(out.splitlines()[-1]), json.loads(self.end(a, 143)[0].splitlines()[-1])]
        if ends[0]["version"] == ends[1]["version"]:
            self.assertEqual(ends[0]["anchor"], ends[1]["anchor"])
        # A stop saves a checkpoint, which it goes on from, and the store with it.
        self.assertTrue(os.path.exists(self.path(ends[0]["checkpoint"], "pool.json")))
        self.assertIn(b"optimizer_state: disk", self.read("b", "local.yml"))

    def test_alone_on_disk(self):
        """A pool of one on disk learns what one in memory learns, and at the end gives the disk back."""
        losses = []
        for out, more in (("memory", ""), ("disk", "optimizer_state: disk\n")):
            run = self.write(f"{out}.yml", more + RUN.format(steps=40, codec="fp32"))
            done = self.ok("pool", "create", "--config", run, "--model", self.config, "--data", self.data, "-o", out,
                           "--listen", "127.0.0.1:0", "--json", *ALONE)
            self.assertEqual("optimizer state: on disk" in done.err, out == "disk")
            self.assertEqual(json.loads(done.out.splitlines()[-1])["pool_step"], 40)
            losses.append(json.loads(done.out.splitlines()[-1])["final_loss"])
        self.assertFalse(os.path.exists(self.path("disk", "optimizer.store")))
        self.assertLess(abs(losses[0] - losses[1]), 0.5)

    def test_what_stays_in_memory(self):
        sums = RUN[:RUN.index("pool:")].format(steps=20) + "optimizer_state: disk\npool:\n  sync: gradients\n"
        create = ["pool", "create", "--model", self.config, "--data", self.data, "-o", "a", "--listen", "127.0.0.1:0", *ALONE]
        self.fails(2, *create, "--config", self.write("sums.yml", sums), says=["optimizer_state", "sync: gradients"])
        ahead = "optimizer_state: disk\nupdate_ahead: always\n" + RUN.format(steps=20, codec="fp32")
        self.fails(2, *create, "--config", self.write("ahead.yml", ahead), says=["update_ahead", "in a pool"])
        self.assertFalse(os.path.exists(self.path("a")))
        self.fails(4, *create, "--max-disk", 0.001, "--config",
                   self.write("disk.yml", "optimizer_state: disk\n" + RUN.format(steps=20, codec="fp32")),
                   says=["--max-disk", "the optimizer's state"])


if __name__ == "__main__":
    tool.main()
