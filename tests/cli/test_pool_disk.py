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
        b = self.join("b", ticket, "--data", os.path.relpath(self.data, self.dir), "--optimizer-state", "disk", "--store-dir", "fast")
        store = self.path("fast", "optimizer.store")
        seen = self.until("b", "both bring something", lambda s: s["roster"] == 2 and s["samples"] > 0, [a, b])
        for _ in range(3):
            self.assertTrue(os.path.exists(store), os.listdir(self.path("b")) + os.listdir(self.path("fast")))
            self.until("b", "further", lambda s: s["applied"] >= seen["applied"] + 4, [a, b])
            b.kill()
            b.communicate()
            b = self.start_loud("join", "-o", "b", "--listen", "127.0.0.1:0", "--json", *ALONE)
            seen = self.until("b", "back", lambda s: s["roster"] == 2 and s["is_member"], [a, b])
        counted = seen["members"][0]["brought"]
        seen = self.until("b", "what it does counts", lambda s: s["members"][0]["brought"] > counted, [a, b])
        b.terminate()
        out, said = self.end(b, 143)
        self.assertIn("resumed from the optimizer's state on disk", said)
        self.assertIn(f"optimizer state: on disk in {self.path('fast')}", said)  # wherever it is started from
        a.terminate()
        ends = [json.loads(out.splitlines()[-1]), json.loads(self.end(a, 143)[0].splitlines()[-1])]
        if ends[0]["version"] == ends[1]["version"]:
            self.assertEqual(ends[0]["anchor"], ends[1]["anchor"])
        # A stop saves a checkpoint, which it goes on from, and the store with it.
        self.assertTrue(os.path.exists(self.path(ends[0]["checkpoint"], "pool.json")))
        kept = self.read("b", "local.yml").decode()
        for words in "optimizer_state: disk", self.path("fast"), self.data:
            self.assertIn(words, kept)

    def test_alone_on_disk(self):
        """A pool of one on disk learns what one in memory learns, and at the end gives the disk back."""
        losses = []
        for out, more in (("memory", ""), ("disk", "optimizer_state: disk\n")):
            run = self.write(f"{out}.yml", more + RUN.format(steps=120, codec="fp32"))
            done = self.ok("pool", "create", "--config", run, "--model", self.config, "--data", self.data, "-o", out,
                           "--listen", "127.0.0.1:0", "--json", *ALONE)
            self.assertEqual("optimizer state: on disk" in done.err, out == "disk")
            self.assertEqual(json.loads(done.out.splitlines()[-1])["pool_step"], 120)
            with open(self.path(out, "metrics.jsonl"), encoding="utf-8") as f:
                seen = [line["loss"] for line in map(json.loads, f) if "loss" in line]
            losses.append((seen[0], sum(seen[-10:]) / 10))  # averages fall on other steps in every run
        self.assertFalse(os.path.exists(self.path("disk", "optimizer.store")))
        (first, memory), (same, disk) = losses
        self.assertEqual(first, same)
        self.assertLess(memory, first - 2)
        self.assertLess(abs(memory - disk), 0.5)

    def test_what_stays_in_memory(self):
        dense = RUN[:RUN.index("pool:")].format(steps=20) + "optimizer_state: disk\npool:\n  dense_steps: 50%\n  min_peers: 2\n"
        create = ["pool", "create", "--model", self.config, "--data", self.data, "-o", "a", "--listen", "127.0.0.1:0", *ALONE]
        self.fails(2, *create, "--config", self.write("dense.yml", dense), says=["optimizer_state", "dense_steps"])
        ahead = "optimizer_state: disk\nupdate_ahead: always\n" + RUN.format(steps=20, codec="fp32")
        self.fails(2, *create, "--config", self.write("ahead.yml", ahead), says=["update_ahead", "in a pool"])
        self.assertFalse(os.path.exists(self.path("a")))
        self.fails(4, *create, "--max-disk", 0.001, "--config",
                   self.write("disk.yml", "optimizer_state: disk\n" + RUN.format(steps=20, codec="fp32")),
                   says=["--max-disk", "the optimizer's state"])


class PoolMemory(test_pool_train.Members):
    """What --host-memory allows decides where things are: all in memory, the anchor on disk, the masters too."""

    MODEL = dict(test_pool_train.CONFIG, n_embd=192, n_layer=6)
    ANCHOR, STORE = "anchor: on disk in", "optimizer state: on disk in"

    def member(self, out, *args):
        return self.start_loud("join", *args, "-o", out, "--listen", "127.0.0.1:0", "--json", *ALONE)

    def stop(self, process):
        process.terminate()
        out, said = self.end(process, 143)
        return json.loads(out.splitlines()[-1]), said

    def test_three_ways(self):
        a, ticket = self.create("a")
        ways = {"roomy": ("1GiB", ()), "middle": ("80MiB", (self.ANCHOR,)), "small": ("34MiB", (self.ANCHOR, self.STORE))}
        members = {out: self.member(out, ticket, "--data", self.data, "--host-memory", memory)
                   for out, (memory, _) in ways.items()}
        everybody = [a, *members.values()]
        for out in ways:
            self.until(out, "all bring something", lambda s: s["roster"] == 4 and s["samples"] > 0, everybody)
        for out in ("middle", "small", "middle"):
            seen = self.until(out, "further", lambda s: s["applied"] >= 4, everybody)
            everybody.remove(members[out])
            members[out].kill()
            members[out].communicate()
            members[out] = self.member(out)  # from its directory alone
            everybody.append(members[out])
            mine = seen["members"][0]["brought"]
            self.until(out, "back, and what it does counts", lambda s: s["roster"] == 4 and s["is_member"] and
                       s["applied"] > seen["applied"] and s["members"][0]["brought"] > mine, everybody)
        ends = {"a": None}
        for out, process in [*members.items()]:
            ends[out], said = self.stop(process)
            for line in (self.ANCHOR, self.STORE):
                self.assertEqual(line in said, line in ways[out][1], f"{out}: {said}")
        ends["a"] = self.stop(a)[0]
        by_version = {}
        for end in ends.values():
            by_version.setdefault(end["version"], set()).add(end["anchor"])
        self.assertTrue(all(len(anchors) == 1 for anchors in by_version.values()), ends)
        self.assertEqual([n for n in os.listdir(self.path("middle", "pool", "anchor")) if n.startswith("floats")], [])

    def test_too_little(self):
        a, ticket = self.create("a")
        join = ["pool", "join", ticket, "--data", self.data, "--listen", "127.0.0.1:0", *ALONE]
        self.fails(4, *join, "-o", "b", "--host-memory", "12MiB", says=["host memory", "for the pool", "more fragments"])
        self.fails(4, *join, "-o", "b", "--host-memory", "80MiB", "--optimizer-state", "memory",
                   says=["in addition this host needs"])
        self.fails(4, *join, "-o", "b", "--host-memory", "34MiB", "--max-disk", 0.25,
                   says=["the optimizer's state", "--max-disk", "Nothing was fetched"])
        self.stop(a)

    def test_dry_run_says_it(self):
        run = self.write("run.yml", RUN.format(steps=10, codec="int8"))
        create = ["pool", "create", "--config", run, "--model", self.config, "--data", self.data, "--listen", "127.0.0.1:0",
                  "--dry-run", *ALONE]
        room = self.ok(*create, "--json").json()["room"]
        self.assertFalse(room["anchor_on_disk"])
        self.assertGreater(room["host_bytes"], 3 * room["least_host_bytes"])
        self.assertGreater(room["disk_bytes"], room["joiner_bytes"])
        self.assertIn("with its anchor (the weights last agreed on) on disk", self.ok(*create).out)
        more = self.write("disk.yml", "optimizer_state: disk\n" + RUN.format(steps=10, codec="int8"))
        disk = self.ok("pool", "create", "--config", more, *create[4:], "--json").json()["room"]
        self.assertTrue(disk["anchor_on_disk"])
        self.assertGreater(disk["disk_bytes"], room["disk_bytes"])


if __name__ == "__main__":
    tool.main()
