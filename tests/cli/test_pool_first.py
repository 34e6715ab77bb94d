"""What a newcomer to pools does wrong: nothing of his is touched, and what to do is said."""
import os
import socket

import test_pool_train
import tool

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


if __name__ == "__main__":
    tool.main()
