"""Checkpoints whose files are each fine, but are not those that were saved together."""
import json
import os
import shutil
import struct

import tool
from test_train import TrainCase


def tensors(path):
    with open(path, "rb") as f:
        whole = f.read()
    size = struct.unpack("<Q", whole[:8])[0]
    header = json.loads(whole[8:8 + size])
    header.pop("__metadata__", None)
    data = whole[8 + size:]
    return {name: (t["dtype"], t["shape"], data[slice(*t["data_offsets"])]) for name, t in header.items()}


def save(path, what):
    header, data = {}, b""
    for name, (dtype, shape, more) in what.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(more)]}
        data += more
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


class Mixed(TrainCase):
    AGAIN = ["--resume-from-checkpoint", "auto"]

    def copy(self, of="run", step=3):
        """The run as it was after one of its checkpoints."""
        shutil.rmtree(self.path("copy"), ignore_errors=True)
        os.mkdir(self.path("copy"))
        shutil.copytree(self.path(of, f"checkpoint-{step}"), self.path("copy", f"checkpoint-{step}"))
        return self.path("copy", f"checkpoint-{step}")

    def refused(self, *says, more=()):
        self.fails(3, *self.args("copy", *self.AGAIN, *more), says=says)
        self.assertEqual(sorted(os.listdir(self.path("copy"))), ["checkpoint-3"])

    def test_files_of_another_step(self):
        self.train("run", "--save-steps", 3)
        for name, says in (("model.safetensors", "weights are not"), ("optimizer.safetensors", "optimizer.safetensors is not")):
            at = self.copy()
            shutil.copy(self.path("run", "checkpoint-6", name), at)
            self.refused("copy/checkpoint-3", says, "after step 3", "--model")
        self.copy()
        self.train("copy", *self.AGAIN)
        self.assertEqual(self.weights("copy", 6), self.weights("run", 6))

    def test_every_way_to_save_and_to_load(self):
        """Moments in bf16, masters beside them, Muon, adapters, a state on disk: what was saved is known again."""
        self.train("base")
        base = ["--model", self.path("base", "checkpoint-6")]
        ways = {"moments": ["--moments-dtype", "bf16"], "masters": ["--save-dtype", "bf16"], "muon": ["--optimizer", "muon"],
                "disk": ["--optimizer-state", "disk"], "lora": base + ["--lora-r", 4],
                "dora": base + ["--lora-r", 4, "--use-dora", "true", "--lora-modules-to-save", "wte"]}
        for way, more in ways.items():
            self.train(way, *more, "--save-steps", 3, memory=None)
            state = json.loads(self.read(way, "checkpoint-3", "atom_state.json"))
            self.assertRegex(state["weights"] + state["moments"], "^[0-9a-f]{32}$", way)
            at = self.copy(way)
            self.train("copy", *more, *self.AGAIN, memory=None)
            name = "adapter_model.safetensors" if "lora" in way or "dora" in way else "model.safetensors"
            self.assertEqual(self.read("copy", "checkpoint-6", name), self.read(way, "checkpoint-6", name), way)
            for name in ("optimizer.safetensors",) if way == "masters" else ("optimizer.safetensors", name):
                at = self.copy(way)
                shutil.copy(self.path(way, "checkpoint-6", name), at)
                self.fails(3, *self.args("copy", *more, *self.AGAIN, memory=None), says="after step 3")
                with open(os.path.join(self.copy(way), name), "r+b") as f:  # one bit
                    f.seek(-6, os.SEEK_END)
                    byte = f.read(1)[0] ^ 1
                    f.seek(-6, os.SEEK_END)
                    f.write(bytes([byte]))
                self.fails(3, *self.args("copy", *more, *self.AGAIN, memory=None), says="changed since")

    def test_a_checkpoint_of_an_older_atom(self):
        self.train("run", "--save-steps", 3)
        at = self.copy()
        state = json.loads(self.read("run", "checkpoint-3", "atom_state.json"))
        for key in "weights", "moments", "weights_sum", "moments_sum":
            del state[key]
        self.write("copy/checkpoint-3/atom_state.json", json.dumps(state))
        shutil.copy(self.path("run", "checkpoint-6", "optimizer.safetensors"), at)
        self.train("copy", *self.AGAIN)

    def test_moments_that_cannot_be(self):
        self.train("run", "--save-steps", 3)

        def change(kind, make):
            path = self.copy() + "/optimizer.safetensors"
            what = tensors(path)
            name = next(n for n in what if n.startswith(kind) and len(what[n][1]) == 2 and len(set(what[n][1])) == 2)
            make(what, name, *what[name])
            save(path, what)
            return name

        def numbers(x):
            return lambda what, name, dtype, shape, data: what.update({name: (dtype, shape, struct.pack("<f", x) + data[4:])})

        for kind, x in (("exp_avg_sq.", -1.0), ("exp_avg_sq.", float("nan")), ("exp_avg.", float("inf"))):
            self.refused(change(kind, numbers(x)), "no step leaves behind")
        name = change("exp_avg.", lambda what, name, dtype, shape, data: what.update({name: (dtype, shape[::-1], data)}))
        self.refused(name, "another shape")
        change("exp_avg.", lambda what, name, *tensor: what.update({name.replace("h.0", "h.9"): tensor}))
        self.refused("optimizer.safetensors has", "another model")

    def test_a_checkpoint_under_another_name(self):
        self.train("run", "--save-steps", 3)
        at = self.copy()
        shutil.move(at, self.path("copy", "checkpoint-9"))
        self.fails(3, *self.args("copy", *self.AGAIN, steps=12), says=["checkpoint-9", "says step 3"])
        shutil.move(self.path("copy", "checkpoint-9"), self.path("best"))
        self.train("other", "--resume-from-checkpoint", self.path("best"))

    def test_another_model_under_adapters(self):
        for seed in (1, 2):
            self.train(f"base{seed}", "--seed", seed)
        model = self.path("base1", "checkpoint-6")
        more = ["--model", model, "--lora-r", 4]
        self.train("run", *more, steps=3)
        told = self.ok(*self.args("run", *more, *self.AGAIN, steps=4)).err
        self.assertNotIn("trained over", told)
        shutil.copy(self.path("base2", "checkpoint-6", "model.safetensors"), model)
        told = self.ok(*self.args("run", *more, *self.AGAIN, steps=5)).err
        self.assertIn("are not those that the checkpoint's adapters were trained over", told)

    def test_another_batch_is_told(self):
        self.train("run", steps=3)
        told = self.ok(*self.args("run", *self.AGAIN, "--sequence-len", 16, "--gradient-accumulation-steps", 3)).err
        self.assertIn("sequence_len is 16 from here; it was 32", told)
        self.assertIn("2 x 3 sequences from here", told)

    # -- what inspect says

    def test_whose_checkpoint_it_is(self):
        self.train("run")
        self.assertTrue(self.ok("inspect", "run/checkpoint-6", "--json").json()["can_resume"])
        shutil.copytree(self.path("run"), self.path("bad"))
        os.remove(self.path("bad", "checkpoint-6", "optimizer.safetensors"))
        self.assertIn("cannot resume from here", self.ok("inspect", "bad/checkpoint-6").out)
        os.remove(self.path("bad", "checkpoint-6", "atom_state.json"))  # trainer_state.json is what transformers writes, too
        said = self.ok("inspect", "bad/checkpoint-6", "--json").json()
        self.assertEqual((said["kind"], said["can_resume"], said["step"]), ("model", False, None))
        self.assertIn("another trainer", self.ok("inspect", "bad/checkpoint-6").out)
        self.write("run/checkpoint-6/atom_state.json", "{")
        self.fails(3, "inspect", "run/checkpoint-6", says="atom_state.json")

    def test_plans_that_nothing_can_follow(self):
        more = [a for a in self.args("run")[1:] if a not in ("--data", self.data, "--output-dir", "run")]
        keep = ("--model", "--dtype", "--micro-batch-size", "--sequence-len", "--gradient-accumulation-steps", "--device-memory")
        shape = [a for i, a in enumerate(more) if a in keep or (i and more[i - 1] in keep)]
        self.ok("plan", *shape, "-o", "plan.json")
        plan = json.loads(self.read("plan.json"))
        self.ok("inspect", "plan.json")
        self.write("over.json", json.dumps(dict(plan, over_boundaries=True)))
        self.write("muon.json", json.dumps(dict(plan, optimizer="muon", muon_products="device", clip=False)))
        self.write("cut.json", self.read("plan.json")[:-200])
        self.write("odd.json", '{"abc": {"x": 1')  # at this place files of safetensors have their bracket
        for name, says in ("over", "over_boundaries"), ("muon", "clipping"), ("cut", "cut off"), ("odd", "cut off"):
            self.fails(3, "inspect", f"{name}.json", says=[f"{name}.json", says])

    # -- data

    def data_copy(self):
        shutil.rmtree(self.path("data"), ignore_errors=True)
        shutil.copytree(self.data, self.path("data"))
        return self.path("data", "train_000000.bin")

    def with_data(self, *more, out="out"):
        return [self.path("data") if a == self.data else a for a in self.args(out, *more)]

    def test_one_token_is_another(self):
        self.train("run")
        for split in ("train", "val"):
            self.data_copy()
            with open(self.path("data", f"{split}_000000.bin"), "r+b") as f:
                f.seek(1024 + 2 * 700)
                f.write(struct.pack("<H", 17))
            self.fails(3, *self.with_data("--eval-steps", 2), says=[f"{split}_000000.bin", "damaged"])
            self.fails(3, "eval", "--model", "run/checkpoint-6", "--data", "data", "--split", split, says="damaged")
        self.data_copy()
        self.ok(*self.with_data("--eval-steps", 2))

    def test_a_hole_in_a_large_file(self):
        """More than is compared at every start, but what was never written shows."""
        self.data_copy()
        n = 600_000_000
        with open(self.path("data", "train_000001.bin"), "wb") as f:
            f.write(struct.pack("<IIIQ", 20240520, 1, n, 12345))
            f.truncate(1024 + 2 * n)
        os.remove(self.path("data", "dataset.json"))
        self.fails(3, *self.with_data(), says=["train_000001.bin", "damaged"])

    def test_what_dataset_json_says_is_missing(self):
        self.data_copy()
        os.remove(self.path("data", "val_000000.bin"))
        self.assertIn("copy val_*.bin, too", self.ok(*self.with_data("--eval-steps", 2)).err)
        self.write("data/dataset.json", self.read("data", "dataset.json")[:-30])
        self.fails(3, *self.with_data(out="out2"), says=["dataset.json", "not JSON"])


if __name__ == "__main__":
    tool.main()
