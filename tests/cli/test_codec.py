"""Codecs on boundaries: what is said of bytes, that swapping and resuming change nothing, and what is refused."""
import json
import signal
import struct
import time

import tool
from test_train import TrainCase

INT4 = ["--compress-boundaries", "int4", "--at", "1,3"]
AUTO = ["--resume-from-checkpoint", "auto"]


class Codec(TrainCase):
    def test_bytes_are_said(self):
        """48 values wide: 8 + 24 bytes at each of two boundaries, 96 in bf16."""
        said = self.train("int4", *INT4, steps=2)["boundaries"]
        self.assertEqual(said, {"codec": "int4", "at": "1,3", "blocks": 4, "bytes_per_token": 64, "bytes_per_token_bf16": 192})
        self.assertIsNone(self.train("plain", steps=2)["boundaries"])
        text = self.ok(*self.args("topk", "--compress-boundaries", "topk:0.1", "--at", 2, "--no-quiet", steps=2))
        for out in text.out, text.err:
            self.assertIn("16 bytes per token", out)  # 5 values and 48 bits

    def test_swapped_is_resident(self):
        for codec in "int8", "randomk:0.3":
            more = ["--compress-boundaries", codec, "--at", "1,2,3"]
            name = codec[:4]
            self.train(name + "swapped", *more, "--threads", 2)
            self.train(name + "resident", *more, "--threads", 1, "--execute", "interpreted", memory=None)
            self.assertEqual(self.weights(name + "swapped", 6), self.weights(name + "resident", 6))
            self.assertEqual(self.losses(name + "swapped"), self.losses(name + "resident"))

    def test_checkpoints_are_those_of_the_plain_model(self):
        self.train("plain", steps=2)
        self.train("int2", "--compress-boundaries", "int2", "--at", 2, steps=2)
        a, b = self.weights("plain", 2), self.weights("int2", 2)
        head = struct.unpack("<Q", a[:8])[0] + 8
        self.assertEqual(a[:head], b[:head], "the same tensors in the same places")
        self.assertNotEqual(a[head:], b[head:], "but the codec was felt")
        self.assertEqual(self.read("plain", "checkpoint-2", "config.json"), self.read("int2", "checkpoint-2", "config.json"))
        self.ok("eval", "--model", self.path("int2", "checkpoint-2"), "--data", self.data, "--sequence-len", 32)

    def test_resuming_keeps_the_codec(self):
        constant = ["--lr-scheduler", "constant"]
        self.train("whole", *INT4, *constant)
        self.train("parts", *INT4, *constant, steps=3)
        again = self.ok(*self.args("parts", *constant, *AUTO))
        self.assertIn("boundaries: int4 behind 1,3 of 4 blocks", again.err)
        self.assertNotIn("from here", again.err)
        self.assertEqual(self.weights("parts", 6), self.weights("whole", 6))
        state = json.loads(self.read("parts", "checkpoint-6", "atom_state.json"))
        self.assertEqual((state["compress_boundaries"], state["at"]), ("int4", "1,3"))

    def test_what_changes_is_said(self):
        def go_on(steps, *more):
            return self.ok(*self.args("run", *AUTO, *more, steps=steps)).err

        self.train("run", steps=1)
        self.assertIn("compress_boundaries is int4 from here; it was none", go_on(2, *INT4))
        self.assertIn("at is 2 from here; it was 1,3", go_on(3, "--at", 2))
        self.assertIn("compress_boundaries is int8 from here; it was int4", go_on(4, "--compress-boundaries", "int8"))
        self.assertIn("compress_boundaries is none from here; it was int8", go_on(5, "--compress-boundaries", "none"))
        self.assertNotIn("boundaries", go_on(6))

    def test_a_run_on_disk_remembers_without_a_checkpoint(self):
        disk = ["--optimizer-state", "disk", "--lr-scheduler", "constant", "--save-steps", 0]
        process = self.start_atom(*self.args("run", *INT4, *disk, steps=1000000))
        end = time.monotonic() + 60
        while self.last_step("run") < 3 and time.monotonic() < end:
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        again = self.ok(*self.args("run", *disk, *AUTO, steps=self.last_step("run") + 3)).err
        self.assertIn("boundaries: int4 behind 1,3", again)
        self.assertNotIn("compress_boundaries is", again)

    def test_refusals(self):
        for more, says in ((["--at", "2"], "at has no effect without compress_boundaries"),
                           (["--compress-boundaries", "none", "--at", "2"], "at has no effect"),
                           (["--compress-boundaries", "int8"], "needs at"),
                           (["--compress-boundaries", "int9", "--at", "2"], "'int9' is not a codec"),
                           (["--compress-boundaries", "topk", "--at", "2"], "topk:SHARE"),
                           (["--compress-boundaries", "int8", "--at", "4"], "it has 4"),
                           (["--compress-boundaries", "int8", "--at", "0"], "'0' is no list"),
                           (["--compress-boundaries", "int8", "--at", "2,"], "'2,' is no list"),
                           (["--compress-boundaries", "int8", "--at", "3,2"], "2 follows 3")):
            self.fails(2, *self.args("run", *more), says=says)


if __name__ == "__main__":
    tool.main()
