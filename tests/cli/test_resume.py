"""One directory holds one run: what resuming and replacing refuse, and that nothing is lost when they do."""
import json
import os
import shutil
import time

import tool
from test_train import BATCH, CONFIG, SHAPE, TrainCase


class OneRunOneDirectory(TrainCase):
    def steps_in(self, out):
        return sorted(int(name.split("-")[1]) for name in os.listdir(self.path(out)) if name.startswith("checkpoint-"))

    def refused(self, *args, says):
        self.fails(2, *args, says=says)

    def test_an_older_checkpoint_goes_on_elsewhere(self):
        self.train("run", "--save-steps", 2)
        self.assertEqual(self.steps_in("run"), [2, 4, 6])
        before = self.read("run", "metrics.jsonl")
        self.refused(*self.args("run", "--resume-from-checkpoint", self.path("run", "checkpoint-2"), steps=5),
                     says=["checkpoint-2", "step 6", "another output_dir"])
        self.assertEqual(self.steps_in("run"), [2, 4, 6])
        self.assertEqual(self.read("run", "metrics.jsonl"), before)
        self.train("branch", "--resume-from-checkpoint", self.path("run", "checkpoint-2"), steps=5)
        self.assertEqual(self.steps_in("branch"), [5])
        self.assertEqual(self.steps_in("run"), [2, 4, 6])
        self.refused(*self.args("other", "--resume-from-checkpoint", "run", steps=7), says="run is the directory of a run; name one of its "
                     "checkpoints, such as run/checkpoint-6")
        # The newest may be named, too.
        self.train("run", "--resume-from-checkpoint", self.path("run", "checkpoint-6"), "--save-total-limit", 1, steps=7)
        self.assertEqual(self.steps_in("run"), [7])

    def test_a_damaged_checkpoint_can_be_moved_away(self):
        self.train("run", "--save-steps", 2)
        newest = self.path("run", "checkpoint-6")
        with open(os.path.join(newest, "model.safetensors"), "r+b") as f:  # one bit, which a new run may have changed on purpose
            f.seek(-1001, os.SEEK_END)
            byte = f.read(1)[0] ^ 1
            f.seek(-1001, os.SEEK_END)
            f.write(bytes([byte]))
        self.fails(3, *self.args("run", "--resume-from-checkpoint", "auto", steps=7), says=["checkpoint-6", "weights", "checksum"])
        self.train("new", "--model", newest, steps=1)
        os.truncate(os.path.join(newest, "optimizer.safetensors"), 100)
        self.fails(3, *self.args("run", "--resume-from-checkpoint", "auto", steps=7), says=["damaged", "move", "checkpoint-6 away"])
        os.rename(newest, self.path("moved"))
        self.train("run", "--resume-from-checkpoint", "auto", steps=7)
        self.assertEqual(self.steps_in("run"), [2, 4, 7])

    def test_what_changes_is_told(self):
        again = ["--resume-from-checkpoint", "auto"]
        told = ["learning_rate is 0.5 from here", "weight_decay is 0 from here; it was 0.1",
                "lr_scheduler is linear from here; it was cosine", "dtype is bf16 from here; it was fp32",
                "max_grad_norm is 2 from here; it was 1", "adam_beta2 is 0.999 from here; it was 0.95",
                "packing is apart from here; it was across", "dropout of attention is 0.25 from here"]
        def train(steps, *more, dtype="fp32"):
            args = [a for a in self.args("run", *more, steps=steps) if a not in ("-q", "--quiet")]
            args[args.index("--dtype") + 1] = dtype
            return self.ok(*args)

        train(2)
        self.assertNotIn("from here", train(3, *again).err)
        other = train(4, *again, "--learning-rate", 0.5, "--weight-decay", 0, "--lr-scheduler", "linear", "--packing", "apart",
                      "--max-grad-norm", 2, "--adam-beta2", 0.999, "--dropout", 0.25, dtype="bf16")
        for line in told:
            self.assertIn(line, other.err)

    def test_a_kill_while_an_old_checkpoint_is_removed(self):
        """No half of it stays under its name, and none for long."""
        self.train("run", steps=1)
        old = self.path("run", "checkpoint-1")
        for i in range(20000):  # so that it takes a while
            os.close(os.open(os.path.join(old, f"more-{i}"), os.O_CREAT | os.O_WRONLY))
        whole = len(os.listdir(old))
        again = ["--resume-from-checkpoint", "auto", "--save-total-limit", 1]
        process = self.start_atom(*self.args("run", *again, steps=2))
        count = whole
        while process.poll() is None and not 0 < count < whole:
            count = sum(len(files) for at, _, files in os.walk(self.path("run")) if "checkpoint-1" in at)
        process.kill()
        process.communicate()
        self.assertTrue(0 < count < whole, "it was not killed while it removed")
        self.assertFalse(os.path.exists(old))
        self.train("run", *again, steps=3)
        self.assertEqual(sorted(os.listdir(self.path("run"))), ["checkpoint-3", "metrics.jsonl"])

    def test_what_is_left_out_is_told(self):
        """What the run was told and the command that continues it no longer says is the default from here."""
        self.train("run", "--warmup-steps", 2, "--min-lr-ratio", 0.3, steps=3)
        args = self.args("run", "--resume-from-checkpoint", "auto", steps=4)
        at = args.index("--warmup-steps")
        said = self.ok(*args[:at], *args[at + 2:]).err
        self.assertIn("resume: warmup_steps is 0 from here; it was 2", said)
        self.assertIn("resume: min_lr_ratio is 0.1 from here; it was 0.3", said)
        said = self.ok(*self.args("run", "--resume-from-checkpoint", "auto", "--lr-scheduler", "linear", steps=5)).err
        self.assertNotIn("min_lr_ratio", said)
        self.assertNotIn("warmup_steps", said)

    def test_data_of_the_same_lengths_is_told_apart(self):
        again = ["--resume-from-checkpoint", "auto"]
        def train(steps, data, *more):
            args = [data if a == self.data else a for a in self.args("run", *more, steps=steps) if a not in ("-q", "--quiet")]
            return self.ok(*args).err

        other = self.path("other")
        self.prepare(other, tool.english(60000).replace("e", "o"))
        for name in os.listdir(self.data):
            self.assertEqual(os.path.getsize(os.path.join(self.data, name)), os.path.getsize(os.path.join(other, name)), name)
        train(2, self.data)
        self.assertNotIn("data set", train(3, self.data, *again))
        self.assertIn("the data set changed", train(4, other, *again))
        shard = os.path.join(other, "train_000000.bin")
        with open(shard, "r+b") as f:  # as an older atom wrote it
            f.seek(12)
            f.write(bytes(8))
        told = train(5, other, *again)
        self.assertNotIn("changed", told)
        self.assertIn("only the names and lengths", told)
        self.assertIn("they were made by an older atom", told)
        self.assertIn("the checkpoint was made by an older atom", train(6, self.data, *again))

    def test_the_learning_rate_of_a_longer_run(self):
        def more(out, steps, *words):
            return self.ok(*self.args(out, "--resume-from-checkpoint", "auto", "--quiet", *words, steps=steps)).err

        self.train("run", steps=3)
        self.assertNotIn("resume:", more("run", 4))  # past the end of the old curve, at the end of the new one
        self.assertIn("resume: max_steps is 400 now and was 4, so step 5 has the learning rate 0.0003 instead of 3e-05",
                      more("run", 400, "--dry-run"))
        self.assertIn("min_lr_ratio is 0.5 from here; it was 0.1", more("run", 5, "--min-lr-ratio", 0.5))
        flat = ["--lr-scheduler", "constant", "--warmup-steps"]
        self.train("flat", *flat, 1, steps=3)
        self.assertNotIn("resume:", more("flat", 400, *flat, 1, "--dry-run"))
        self.assertIn("warmup_steps is 2 from here; it was 1", more("flat", 4, *flat, 2))

    def test_passes_with_another_batch(self):
        def args(*more, epochs=0.05):
            words = self.args("run", *more, memory=None)
            at = words.index("--max-steps")
            return words[:at] + ["--num-train-epochs", epochs] + words[at + 2:]

        self.ok(*args("--save-steps", 2, "--save-total-limit", 0))
        last = max(self.steps_in("run"))
        self.assertGreater(last, 6)
        for step in self.steps_in("run"):
            if step > 4:
                shutil.rmtree(self.path("run", f"checkpoint-{step}"))
        again = ["--resume-from-checkpoint", "auto"]
        half = ["--gradient-accumulation-steps", BATCH[BATCH.index("--gradient-accumulation-steps") + 1] * 2]
        self.refused(*args(*again, *half), says=["num_train_epochs", "passes over the data instead of 0.05", "--max-steps"])
        self.refused(*args(*again, epochs=0.005), says=["already", "raise num_train_epochs"])
        self.ok(*args(*again))
        self.assertEqual(max(self.steps_in("run")), last)

    def test_two_runs_do_not_mix(self):
        self.train("a", steps=2)
        self.train("b", steps=3)
        self.refused(*self.args("b", "--resume-from-checkpoint", self.path("a", "checkpoint-2"), steps=4),
                     says=["another run", "mix"])
        self.assertEqual(self.steps_in("b"), [3])

    def test_a_checkpoint_of_another_model(self):
        self.train("run", steps=2)
        for key, value, says in (("n_head", 4, ["n_head is 3", "this run's is 4"]),
                                 ("layer_norm_epsilon", 0.1, ["layer_norm_epsilon"]),
                                 ("n_layer", 5, ["n_layer is 4", "this run's is 5"])):
            other = self.path(f"{key}.json")
            with open(other, "w", encoding="ascii") as f:
                json.dump({**CONFIG, key: value}, f)
            args = self.args("run", "--resume-from-checkpoint", "auto", steps=3, memory=None)
            args[args.index(self.config)] = other
            self.refused(*args, says=says)
        self.assertEqual(self.steps_in("run"), [2])
        # Dropout is no part of the weights.
        self.train("run", "--resume-from-checkpoint", "auto", "--dropout", 0, steps=3)

    def test_adapters_keep_their_scale(self):
        self.train("base", steps=2)
        lora = ["--model", self.path("base", "checkpoint-2"), "--lora-r", 2, "--lora-alpha", 16]
        args = self.args("run", *lora, "--json", steps=2, memory=None)
        del args[1:3]
        self.ok(*args)
        self.refused(*[a if a != 16 else 8 for a in args], "--resume-from-checkpoint", "auto", "--max-steps", 3,
                     says=["lora_alpha 16", "this run has 8"])
        self.ok(*[a if a != 2 or args[i - 1] != "--max-steps" else 3 for i, a in enumerate(args)],
                "--resume-from-checkpoint", "auto")

    def test_replacing_needs_what_it_begins_with(self):
        self.train("run", steps=2)
        args = self.args("run", "--overwrite", steps=1, memory=None)
        args[args.index(self.config)] = self.path("run", "checkpoint-2")
        self.refused(*args, says=["is in output_dir", "--overwrite"])
        self.refused(*self.args("run", "--overwrite", "--trace", self.path("missing", "x.json"), steps=1), says=["missing"])
        self.assertEqual(self.steps_in("run"), [2])
        self.train("run", "--overwrite", steps=1)
        self.assertEqual(self.steps_in("run"), [1])

    def test_files_of_others_are_not_replaced(self):
        self.train("run", "--trace", self.path("trace.json"), steps=1)
        weights = self.weights("run", 1)
        model = self.path("run", "checkpoint-1", "model.safetensors")
        self.ok("profile", "--model", self.config, *SHAPE, "--dtype", "fp32", "-o", "p.json")
        self.refused("profile", "--model", self.config, *SHAPE, "-o", model, says=[model, "not a profile"])
        self.refused("plan", "--profile", "p.json", "-o", model, says=[model, "not a plan"])
        self.refused("plan", "--profile", "p.json", "-o", "p.json", says=["p.json", "not a plan"])
        self.refused(*self.args("next", "--trace", model, steps=1), says=[model, "not a trace"])
        self.assertEqual(self.weights("run", 1), weights)
        for _ in range(2):  # their own they do replace
            self.ok("plan", "--profile", "p.json", "-o", "plan.json")
            self.ok("profile", "--model", self.config, *SHAPE, "--dtype", "fp32", "-o", "p.json")
        self.train("run", "--overwrite", "--trace", self.path("trace.json"), steps=1)

    def test_data_of_another_tokenizer(self):
        self.train("run", steps=2)
        model = self.path("run", "checkpoint-2")
        self.ok("eval", "--model", model, "--data", self.data, *SHAPE)
        with open(self.path("book.txt"), "w", encoding="ascii") as f:
            f.write(tool.english(60000))
        self.ok("data", "prepare", "--input", "book.txt", "--tokenizer", "bpe:257", "--output", "other")
        self.refused("eval", "--model", model, "--data", "other", *SHAPE, says=["another tokenizer", "tokenizer.json"])
        args = self.args("next", steps=1, memory=None)
        args[args.index(self.config)] = model
        args[args.index(self.data)] = "other"
        self.refused(*args, says=["another tokenizer"])
        self.ok(*args, "--init", "random")
        # A run that began with random weights has tokens that mean something now, too.
        args = self.args("run", "--resume-from-checkpoint", "auto", steps=3, memory=None)
        self.refused(*[a if a != self.data else "other" for a in args], says=["another tokenizer", "checkpoint-2"])
        self.ok(*args)

    def test_what_has_no_effect_is_said(self):
        self.write("nothing.yml", "# nothing\n")
        args = self.args("run", "--recompute", "always", "--link-bandwidth", "1GB", steps=1, memory=None)
        told = self.ok(args[0], "nothing.yml", *args[1:]).err
        for words in "note: recompute has no effect", "note: link_bandwidth has no effect", "nothing.yml sets nothing":
            self.assertIn(words, told)
        args = self.args("other", "--recompute", "always", "--link-bandwidth", "1GB", steps=1)
        self.assertNotIn("no effect", self.ok(*args).err)

    def test_random_weights_and_a_checkpoint(self):
        """A run that continues has its own weights; who asks for random ones, too, is told."""
        self.train("run", steps=2)
        checkpoint = self.path("run", "checkpoint-2")
        self.refused(*self.args("next", "--init", "random", "--resume-from-checkpoint", checkpoint, steps=3),
                     says=["init: random", "checkpoint-2", "leave out"])
        for out, told in ("run", True), ("new", False):
            args = self.args(out, "--init", "random", "--resume-from-checkpoint", "auto", steps=3)
            said = self.ok(*[a for a in args if a not in ("-q", "--quiet")]).err
            self.assertEqual("init: random is not used" in said, told, said)

    def test_a_step_with_zeros_in_front(self):
        """It is not one of the names that a save gives, and auto would begin anew beside it."""
        self.train("run", "--save-steps", 2, steps=4)
        again = self.args("run", "--resume-from-checkpoint", "auto", steps=5)
        os.rename(self.path("run", "checkpoint-4"), self.path("run", "checkpoint-0004"))
        self.refused(*again, says=["checkpoint-0004", "checkpoint-4"])
        os.rename(self.path("run", "checkpoint-0004"), self.path("run", "checkpoint-4"))
        os.rename(self.path("run", "checkpoint-2"), self.path("run", "checkpoint-02"))  # an older one may be called anything
        self.ok(*again)

    def test_a_checkpoint_without_its_state(self):
        """A run whose checkpoint was copied in part does not begin anew as if there were none."""
        self.train("run", "--save-steps", 2, steps=4)
        again = self.args("run", "--resume-from-checkpoint", "auto", steps=5)
        again = [a for a in again if a not in ("-q", "--quiet")]
        os.remove(self.path("run", "checkpoint-4", "atom_state.json"))
        dry = self.ok(*again, "--dry-run").err
        self.assertIn("run/checkpoint-4 has no atom_state.json and is passed over", dry)
        shutil.rmtree(self.path("run", "checkpoint-2"))
        self.fails(3, *again, says=["run/checkpoint-4 has no atom_state.json", "--overwrite"])
        os.rename(self.path("run"), self.path("whole"))
        self.train("start", "--save-steps", 2, steps=2)
        branch = ["--resume-from-checkpoint", self.path("start", "checkpoint-2")]
        self.train("run", *branch, steps=4)
        os.remove(self.path("run", "checkpoint-4", "atom_state.json"))
        self.fails(3, *again, says="run/checkpoint-4 has no atom_state.json")
        shutil.rmtree(self.path("run"))
        os.rename(self.path("whole"), self.path("run"))
        shutil.rmtree(self.path("run", "checkpoint-4"))
        self.ok(*again)  # killed before its first checkpoint

    def test_a_branch_that_was_killed_early(self):
        """Before its first checkpoint: the same command begins it again, and auto does not begin at step 1 with other weights."""
        self.train("run", steps=3)
        from_there = ["--resume-from-checkpoint", self.path("run", "checkpoint-3"), "--lr-scheduler", "constant"]
        self.train("whole", *from_there, steps=8)
        process = self.start_atom(*self.args("branch", *from_there, "--save-steps", 0, steps=1000000))
        while process.poll() is None and self.last_step("branch") < 5:
            time.sleep(0.002)
        process.kill()
        process.communicate()
        before = self.read("branch", "metrics.jsonl")
        auto = ["--resume-from-checkpoint", "auto"]
        self.refused(*self.args("branch", *auto, steps=8), says=["began with step 4", "name that one again"])
        self.refused(*self.args("branch", "--resume-from-checkpoint", self.path("whole", "checkpoint-8"), steps=9), says="another run")
        self.assertEqual(self.read("branch", "metrics.jsonl"), before)
        self.train("branch", *from_there, steps=8)
        self.assertEqual(self.weights("branch", 8), self.weights("whole", 8))
        self.assertEqual(self.losses("branch"), self.losses("whole"))

    def test_a_file_where_a_checkpoint_belongs(self):
        """It is found at the start, not when the checkpoint is to be saved."""
        self.train("run", steps=2)
        again = ["--resume-from-checkpoint", "auto", "--save-steps", 1]
        for name, more in (("checkpoint-3", again), ("checkpoint-4.tmp", again), ("checkpoint-3", ["--overwrite"])):
            self.write("run/" + name, "mine")
            for dry in [], ["--dry-run"]:
                self.refused(*self.args("run", *more, *dry, steps=4), says=["run: " + name + " is not a directory",
                                                                                       "after any step); move it away"])
            self.assertEqual(self.read("run", name), b"mine")
            self.assertTrue(os.path.exists(self.path("run", "checkpoint-2", "atom_state.json")))
            os.remove(self.path("run", name))
        for target in "elsewhere", "run":  # to nothing, and to a directory
            os.symlink(self.path(target), self.path("run", "checkpoint-3"))
            self.refused(*self.args("run", *again, steps=4), says="run: checkpoint-3 is a link, so")
            os.remove(self.path("run", "checkpoint-3"))
        # Names that this run does not come to: of steps before and after it, and of a checkpoint on another drive.
        os.rename(self.path("run", "checkpoint-2"), self.path("elsewhere"))
        os.symlink(self.path("elsewhere"), self.path("run", "checkpoint-2"))
        for name in "checkpoint-1", "checkpoint-5", "checkpoint-03":
            self.write("run/" + name, "mine")
        self.train("run", *again, steps=4)
        self.assertTrue(os.path.exists(self.path("run", "checkpoint-3", "atom_state.json")))

    def test_checkpoints_of_others_are_not_replaced(self):
        os.makedirs(self.path("run", "checkpoint-2"))
        self.write("run/checkpoint-2/model.safetensors", "weeks of work")
        for more in [], ["--resume-from-checkpoint", "auto"]:
            self.refused(*self.args("run", *more, "--save-steps", 1, steps=2), says=["checkpoint-2", "not made by atom"])
        self.assertEqual(self.read("run", "checkpoint-2", "model.safetensors"), b"weeks of work")
        self.train("run", "--overwrite", steps=1)
        self.assertEqual(self.read("run", "checkpoint-2", "model.safetensors"), b"weeks of work")


if __name__ == "__main__":
    tool.main()
