"""What a newcomer to pools does wrong: nothing of his is touched, and what to do is said."""
import json
import os
import pty
import signal
import socket
import sys
import time

import test_pool_train
import tool

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "pool"))
import places  # noqa: E402

ALONE = ["--no-lan", "--no-directory"]
RUN = test_pool_train.RUN.format(steps=20, codec="int8")


class PoolFirst(test_pool_train.Members):
    def contents(self, *parts):
        return {os.path.join(at, name): os.path.getsize(os.path.join(at, name))
                for at, _, names in os.walk(self.path(*parts)) for name in names}

    def train(self, out):
        run = self.write("train.yml", RUN[:RUN.index("pool:")])
        self.ok("train", run, "--model", self.config, "--data", self.data, "-o", out, "--quiet")

    def attempt(self, out, *more, run=RUN):
        return ["pool", "create", "--config", self.write("run.yml", run), "--model", self.config, "--data", self.data,
                "-o", out, "--quiet", *ALONE, *more]

    def test_a_run_is_not_taken_over(self):
        self.train("mine")
        before = self.contents("mine")
        process, ticket = self.create("pool")
        self.fails(2, "pool", "join", ticket, "-o", "mine", "--patience", 30, "--max-steps", 5, *ALONE, says=["mine", "empty directory"])
        process.kill()
        self.assertEqual(self.contents("mine"), before)
        result = self.fails(2, *self.attempt("mine", "--listen", "127.0.0.1:0"), says=["mine", "empty directory"])
        self.assertNotIn("--overwrite", result.err)
        self.assertEqual(self.contents("mine"), before)
        # Not even where it has not come to a checkpoint.
        os.mkdir(self.path("early"))
        self.write("early/metrics.jsonl", '{"step": 1}\n')
        self.fails(2, "pool", "join", ticket, "-o", "early", "--patience", 30, *ALONE, says="empty directory")
        self.assertEqual(os.listdir(self.path("early")), ["metrics.jsonl"])

    def test_a_try_that_failed_leaves_nothing(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            busy = f"127.0.0.1:{taken.getsockname()[1]}"
            self.fails(2, *self.attempt("a", "--listen", busy), says=busy)
        self.assertFalse(os.path.exists(self.path("a")))
        self.fails(4, *self.attempt("a", "--listen", "127.0.0.1:0", "--max-disk", 0.001), says="--max-disk")
        self.assertFalse(os.path.exists(self.path("a")))
        self.fails(2, *self.attempt("a", "--listen", "nowhere"), says="nowhere")
        self.assertFalse(os.path.exists(self.path("a")))
        # What was there before stays there.
        os.mkdir(self.path("b"))
        self.write("b/notes.txt", "mine")
        self.write("b/host.yml", "no_lan: true\n")
        self.fails(4, *self.attempt("b", "--listen", "127.0.0.1:0", "--max-disk", 0.001), says="--max-disk")
        self.assertEqual(sorted(os.listdir(self.path("b"))), ["host.yml", "notes.txt"])
        self.assertEqual(self.read("b", "host.yml"), b"no_lan: true\n")
        # The second try is as good as the first.
        self.ok(*self.attempt("a", "--listen", "127.0.0.1:0"))
        for words in (["nonsense"], ["nonsense", "--listen", "nowhere"]):
            self.fails(2, "pool", "join", *words, "-o", "c", *ALONE)
            self.assertFalse(os.path.exists(self.path("c")))

    def member(self, *args):
        process = self.start_atom("pool", *args, "--no-lan", "--json", "--quiet")
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def test_an_old_ticket_and_a_node_of_the_directory(self):
        if not self.ok("doctor", "--json").json()["libraries"]["OpenDHT"]:
            self.skipTest("this atom was built without OpenDHT")
        here, old = places.free_port(), places.free_port()  # "127.0.0.1:12345"
        run = self.write("run.yml", test_pool_train.RUN.format(steps=10**6, codec="int8"))
        a = self.member("create", "--config", run, "--model", self.config, "--data", self.data, "-o", "a", "--listen", here)
        ticket = json.loads(a.stdout.readline())["ticket"]
        # Nobody answers where the ticket says; the member's node of the directory has the gate's number.
        b = self.member("join", places.elsewhere(ticket, here, old), "-o", "b", "--data", self.data, "--directory-nodes", here)
        self.until("a", "it was found", lambda s: s["roster"] == 2, [a, b])
        self.assertIn(f"directory_nodes: [{here}]".encode(), self.read("b", "host.yml").replace(b'"', b"").replace(b"'", b""))
        for words, says in ((["--directory-nodes", "nowhere"], "nowhere"), (["--directory-nodes", "a:1", "--no-directory"], "no effect"),
                            ([word for i in range(1, 10) for word in ("--directory-nodes", f"a:{i}")], "at most 8")):
            self.fails(2, "pool", "join", ticket, "-o", "c", "--no-lan", *words, says=says)
            self.assertFalse(os.path.exists(self.path("c")))

    def test_nothing_left_to_train(self):
        done = self.ok(*[w for w in self.attempt("a", "--listen", "127.0.0.1:0") if w != "--quiet"])
        self.assertIn("trained steps 1 to 20", done.out)
        come = ["pool", "join", "-o", "a", "--listen", "127.0.0.1:0", *ALONE]
        again = self.ok(*come)
        self.assertIn("this run has ended: the pool made step 20 of 20", again.out)
        self.assertIn("atom pool export a -o model", again.out)
        self.assertIn("a/checkpoint-20", again.out)
        told = self.ok(*come, "--json").json()
        self.assertEqual((told["done"], told["pool_step"], told["checkpoint"]), (True, 20, "a/checkpoint-20"))
        self.fails(1, "pool", "status", "a", says=("the run has ended", "atom pool export a"))
        # Where nobody kept it (an older atom), the trainer finds it out.
        os.remove(self.path("a", "pool", "done"))
        again = self.ok(*come)
        self.assertNotIn("nan", again.out)
        self.assertIn("there was nothing left to train", again.out)

    def test_a_making_that_was_interrupted(self):
        """Without its first weights a pool is nothing to come back to, and this is said at once."""
        self.ok(*self.attempt("a", "--listen", "127.0.0.1:0"))
        os.remove(self.path("a", "pool", "done"))
        self.assertNotIn("making", os.listdir(self.path("a", "genesis")))
        self.write("a/genesis/making", "1\n")
        self.fails(2, "pool", "join", "-o", "a", "--patience", 3, *ALONE, says=["was interrupted", "nothing to come back to"])
        # A dry run refuses what the real one would, in the same words.
        for more in ([], ["--dry-run"]):
            self.fails(2, *self.attempt("a", "--listen", "127.0.0.1:0", *more), says="a already holds a pool")

    def test_what_a_kill_leaves(self):
        """What did not get into its place goes with the next start; files of others' making stay."""
        process, ticket = self.create("a")
        os.makedirs(self.path("b", "pool", "links"))
        for name in ("identity.0123456789abcdef.tmp", "keys.tmp", "peers.tmp", "mine.txt", ".tmp"):
            self.write(f"b/pool/{name}", "half")
        for name in ("control.sock", "links/7"):
            with socket.socket(socket.AF_UNIX) as left:
                left.bind(self.path("b", "pool", name))
        b = self.join("b", ticket, "--data", self.data)
        self.until("b", "a member", lambda s: s["is_member"], [process, b])
        b.send_signal(signal.SIGSTOP)
        self.fails(1, "pool", "status", "b", says=("gave no answer within 15 s", "stopped (Ctrl-Z)"))
        b.kill()
        b.communicate()
        for word in ("status", "leave", "ticket"):
            self.fails(1, "pool", word, "b", says=("b: no member runs here now", "atom pool join -o b"))
        self.fails(1, "pool", "status", self.data, says="is this the directory of pool create or join?")
        self.end(self.join("b", "--max-steps", 1), 0)
        left = [name for at, _, names in os.walk(self.path("b")) for name in names
                if name.endswith((".tmp", ".part", ".sock")) or at.endswith("links")]
        self.assertEqual(left, [".tmp"])
        self.assertEqual(self.read("b", "pool", "mine.txt"), b"half")
        process.kill()

    def test_strangers_leave_descriptors(self):
        """Whoever knows only the address cannot take the last descriptors of a member that may have few."""
        few = ["sh", "-c", 'ulimit -n 64; exec "$@"', "sh"]
        at = places.free_port()
        process = self.start("create", "--config", self.write("run.yml", test_pool_train.RUN.format(steps=10**6, codec="int8")), "--model",
                             self.config, "--data", self.data, "-o", "a", "--listen", at, prefix=few)
        seen = self.until("a", "versions", lambda s: s["applied"] >= 3, [process])
        host, port = at.split(":")
        crowd = []
        self.addCleanup(lambda: [one.close() for one in crowd])
        for _ in range(300):
            crowd.append(socket.create_connection((host, int(port)), timeout=10))
        seen = self.until("a", "it goes on", lambda s: s["applied"] >= seen["applied"] + 20, [process])
        process.terminate()
        done = json.loads(self.end(process, 143)[0].splitlines()[-1])
        self.assertTrue(os.path.exists(self.path(done["checkpoint"])))

    def test_banned_twice(self):
        process, ticket = self.create("a")
        self.until("a", "it runs", lambda s: s["state"] == "running", [process])
        somebody = "A" * 42 + "E"
        ban = ["pool", "ban", somebody, "a", "--json"]
        first = self.ok(*ban).json()
        self.assertNotEqual(first["ticket"], ticket)
        manifest = self.read("a", "pool", "manifest.json")
        again = self.ok(*ban).json()
        self.assertEqual(again["ticket"], first["ticket"])
        self.assertIn("already banned", again["note"])
        self.assertEqual(self.read("a", "pool", "manifest.json"), manifest)
        said = self.ok(*ban[:-1])
        self.assertIn("already banned", said.out)
        self.assertNotIn("new ticket", said.out)
        process.kill()

    def test_a_delegate_is_named(self):
        process, _ = self.create("a")
        self.until("a", "it runs", lambda s: s["state"] == "running", [process])
        somebody = "A" * 42 + "E"
        said = self.ok("pool", "delegate", somebody, "a", "--days", 30).out
        until = time.gmtime(time.time() + 30 * 86400)
        self.assertIn(time.strftime("until %Y-%m-%d", until), said)
        self.assertIn("as soon as both take part", said)
        self.assertNotIn("atom1-", said)  # an order is no reason to show a secret
        self.assertIn(time.strftime("delegate: AAAAAAAA, until %Y-%m-%d", until), self.ok("pool", "status", "a").out)
        wrong = self.run_atom("pool", "delegate", "a", somebody)
        self.assertEqual((wrong.code, "the key comes first" in wrong.err), (2, True), str(wrong))
        wrong = self.run_atom("pool", "delegate", somebody, "a", "--days", "0.5")
        self.assertEqual(wrong.code, 2, str(wrong))
        self.ok("pool", "ban", somebody, "a")
        wrong = self.run_atom("pool", "delegate", somebody, "a")
        self.assertEqual((wrong.code, "banned" in wrong.err), (1, True), str(wrong))
        self.assertNotIn("delegate:", self.ok("pool", "status", "a").out)
        process.kill()

    def test_help_lists_the_keys_of_the_section(self):
        """A wrong key is answered with this help, so it has all that somebody may write, and nothing else."""
        text = self.ok("pool", "create", "--help").out.partition("Keys of the section `pool:`")[2]
        for key in ("sync", "data", "global_batch_size", "delayed_updates", "dense_steps", "sync_steps", "fragments", "codec",
                    "min_peers", "trust", "audit_percent", "outer_learning_rate", "outer_momentum", "mix", "due_seconds",
                    "fork_seconds", "heartbeat_seconds", "rewarm_steps"):
            self.assertIn(f"\n  {key}: ", text)
        for key in ("batch", "steps", "data_hash", "base_hash"):
            self.assertNotIn(f"\n  {key}: ", text)

    def test_help_says_who_listens(self):
        for command in ("create", "join"):
            text = " ".join(self.ok("pool", command, "--help").out.split())
            self.assertIn("pool create listens at *:4400", text)
            self.assertIn("pool join only opens connections itself", text)

    def test_a_ticket_that_was_made_void(self):
        process, ticket = self.create("a")
        self.until("a", "it runs", lambda s: s["state"] == "running", [process])
        self.ok("pool", "rotate", "a")
        self.ok("pool", "rotate", "a")  # the last key but one is forgotten
        result = self.fails(1, "pool", "join", ticket, "-o", "b", "--patience", 3, *ALONE,
                            says="whoever answers there does not know this ticket; ask for a new one, but the run may also have ended")
        self.assertIn("pool: looking for a member", result.err)
        process.kill()

    def test_a_ticket_that_is_pasted_in_lines(self):
        """All of it is read, or the rest would be a command of the shell's; what follows a whole one is left alone."""
        a, ticket = self.create("a")
        for out, pasted in (("b", "\n".join(ticket[i:i + 70] for i in range(0, len(ticket), 70))), ("c", ticket)):
            ours, theirs = pty.openpty()
            process = self.start_atom("pool", "join", "-", "-o", out, "--data", self.data, "--listen", "127.0.0.1:0", "--max-steps", 1,
                                      *test_pool_train.ALONE, stdin=theirs)
            os.write(ours, (pasted + "\nls\n").encode())
            self.end(process, 0)
            self.assertEqual(os.read(theirs, 100), b"ls\n")
            os.close(ours)
            os.close(theirs)
        a.kill()

    def test_names(self):
        for name in ("two words", "-x", "a" * 32, "tab\t", "n\u00e4me"):
            result = self.fails(2, *self.attempt("bad", "--listen", "127.0.0.1:0", f"--host-name={name}"), says="cannot be the name")
            self.assertEqual(len(result.err.strip().splitlines()), 1)
        self.fails(2, *self.attempt("dry", "--dry-run", "--host-name=two words"), says="cannot be the name")
        os.mkdir(self.path("kept"))
        self.write("kept/host.yml", "name: two words\n")
        self.fails(2, *self.attempt("kept", "--listen", "127.0.0.1:0"), says=["two words", "host.yml"])
        # Two members of one name: each line has the start of the key, and the name comes back with the member.
        a, ticket = self.create("a", more=("--host-name", "box"))
        self.assertIn("name: box", self.read("a", "host.yml").decode())
        b = self.join("b", ticket, "--data", self.data, "--name", "box")
        self.until("a", "two members", lambda s: s["roster"] == 2, [a, b])
        b.kill()
        b.communicate()
        b = self.join("b")
        seen = self.until("b", "back", lambda s: s["roster"] == 2 and s["is_member"] and len(s["members"]) == 2 and
                          all(m["name"] for m in s["members"]), [a, b])
        self.assertEqual([m["name"] for m in seen["members"]], ["box", "box"])
        shown = self.ok("pool", "status", "b").out
        for member in seen["members"]:
            self.assertIn(f"{member['key'][:8]}   box ", shown)
        for process in (a, b):
            process.kill()

    def test_the_directory_that_the_configuration_names(self):
        run = "lr: 2e-3\noutput_dir: named\n" + RUN.replace("learning_rate: 1e-3\n", "")
        words = [w for w in self.attempt("a", "--listen", "127.0.0.1:0", run=run) if w not in ("-o", "a")]
        self.ok(*words, "--dry-run")
        self.assertFalse(os.path.exists(self.path("named")))
        said = self.ok(*words)
        self.assertTrue(os.path.exists(self.path("named", "checkpoint-20")))
        self.assertTrue(os.path.exists(self.path("named", "pool", "identity")))
        self.assertEqual(said.err.count("called 'learning_rate'"), 1, said.err)
        self.fails(2, *words, says="named already holds a pool")
        self.fails(2, *words, "--dry-run", says="named already holds a pool")
        # As for atom train, the command line wins.
        self.ok(*words, "-o", "a")
        self.assertTrue(os.path.exists(self.path("a", "checkpoint-20")))
        self.write("run.yml", RUN)
        self.fails(2, *words, says=["--output-dir DIR", "output_dir in", "run.yml"])
        self.write("run.yml", RUN.replace("threads: 1", "thread: 1"))
        self.fails(2, *words, says=["run.yml:10:1", "did you mean 'threads'?"])

    def test_what_holds_for_the_first_process_alone(self):
        run = "updates: host\nsave_dtype: bf16\nsave_rate: 1GB\ntrace: " + self.path("t.json") + "\n" + RUN
        words = [w for w in self.attempt("a", "--listen", "127.0.0.1:0", run=run) if w != "--quiet"]
        self.assertIn("trace is used by this process only; `atom pool join -o a` comes back without it", self.ok(*words).err)
        kept = self.read("a", "local.yml").decode()
        for line in "updates: host\n", "save_dtype: bf16\n", "save_rate: ":
            self.assertIn(line, kept)
        for key in "trace", "plan":
            self.assertNotIn(key + ":", kept)

    def test_random_weights_and_a_checkpoint(self):
        self.train("mine")
        start = "init: random\nresume_from_checkpoint: " + self.path("mine", "checkpoint-20") + "\n"
        self.fails(2, *self.attempt("a", "--listen", "127.0.0.1:0", run=start + RUN),
                   says=["init: random", "checkpoint-20", "leave out"])
        self.assertFalse(os.path.exists(self.path("a")))

    def test_sums_have_no_outer_step(self):
        for key in ("sync_steps: 5", "outer_learning_rate: 0.5", "outer_momentum: 0.5", "mix: 0.1"):
            run = RUN[:RUN.index("pool:")] + f"pool:\n  sync: gradients\n  {key}\n"
            self.fails(2, *self.attempt("a", "--listen", "127.0.0.1:0", run=run), says=[key.split(":")[0], "gradients"])
            self.assertFalse(os.path.exists(self.path("a")))

    def test_a_section_in_one_line_is_told_how(self):
        run = RUN[:RUN.index("pool:")] + "pool: {sync: gradients}\n"
        self.fails(2, *self.attempt("a", "--listen", "127.0.0.1:0", run=run), says=[f":{run.count(chr(10))}: pool: put its keys"])
        self.assertFalse(os.path.exists(self.path("a")))

    def test_a_section_elsewhere_is_told_how(self):
        """None of these is taken for a run without a section, and the command that was typed is not what is recommended."""
        top = RUN[:RUN.index("pool:")]
        for section in ('"pool":\n  sync_steps: 5\n', "pool :\n  sync_steps: 5\n"):
            result = self.fails(2, *self.attempt("a", "--dry-run", run=top + section), says=[f":{top.count(chr(10)) + 1}:1: write pool: at"])
            self.assertNotIn("to train alone", result.err)
        mapping = {"max_steps": 10, "micro_batch_size": 4, "sequence_len": 32, "pool": {"sync_steps": 5}}
        self.fails(2, *self.attempt("a", "--dry-run", run=json.dumps(mapping)), says="write pool: at the left margin")
        # A mark that editors of Windows put there does not hide it.
        said = self.ok(*self.attempt("a", "--dry-run", run="\ufeffpool:\n  sync_steps: 5\n" + top)).out
        self.assertIn("H = 5 (as you said)", said)

    def test_a_key_beside_its_section_is_told_where(self):
        top = RUN[:RUN.index("pool:")]
        for lines in ("sync_steps: 5\n", "pool:\nsync_steps: 5\n", "pool:\n  sync: gradients\nsync_steps : 5\n"):
            number = (top + lines).count("\n")
            self.fails(2, *self.attempt("a", "--dry-run", run=top + lines), says=f":{number}: 'sync_steps' belongs to the section pool")

    def test_names_of_pools(self):
        """A name is refused before anything is made, and not cut."""
        for name in ("a" * 64, "n\u00e4me", "red\033[31m", "\u202egnp"):
            self.fails(2, *self.attempt("a", "--dry-run", f"--name={name}"), says=["--name", "at most 63"])
        self.ok(*self.attempt("a", "--dry-run", "--name", "a" * 63))

    def test_samples_and_tokens_say_the_same(self):
        """Of this host and of others, in a pool of two."""
        a, ticket = self.create("a")
        b = self.join("b", ticket, "--data", self.data)
        seen = self.until("b", "both work", lambda s: len(s["members"]) == 2 and all(m["tokens"] > 32 * 400 for m in s["members"]), [a, b])
        for member in seen["members"]:
            self.assertEqual(member["samples"], member["tokens"] // 32)  # of sequence_len tokens
        self.assertAlmostEqual(seen["samples"], seen["tokens"] // 32, delta=20)  # a few steps
        for process in (a, b):
            process.kill()

    def test_more_members_than_the_ticket_admits(self):
        said = self.ok(*self.attempt("a", "--dry-run", "--min-peers", 20)).err
        self.assertIn("training begins with 20 members, and the ticket admits only 16 besides this one; use --invite-count 19", said)
        self.assertNotIn("admits only", self.ok(*self.attempt("a", "--dry-run", "--min-peers", 17)).err)


if __name__ == "__main__":
    tool.main()
