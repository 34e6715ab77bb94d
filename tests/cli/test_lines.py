"""Lines of input: what is learned of each is what it says, whole, and nothing is dropped without a word."""
import json
import os
import random
import struct

import chats
import tool
from chats import QWEN, says, user


class Lines(chats.Case):
    def test_empty_texts(self):
        """They cannot be learned, and the count of documents says nothing of them."""
        self.write("a.jsonl", '{"text": "a"}\n\n{"text": ""}\n{"text": "b"}\n{"text": ""}\n')
        self.write("b.txt", "")
        self.write("c.txt", b"\xef\xbb\xbf")
        self.write("d.csv", "text,of\nd,1\n,2\n")
        for tokenizer in "bytes", "bpe:258":
            done = self.ok("data", "prepare", "-i", "a.jsonl", "b.txt", "c.txt", "d.csv", "-o", "data", "--force", "--json",
                           "--val-fraction", 0, "--tokenizer", tokenizer)
            self.assertEqual(done.json()["empty_texts"], 5, done)
            self.assertEqual(done.json()["train"]["documents"], 3, done)
            self.assertIn("5 empty texts were left out (the first is a.jsonl:3)", done.err)
        done = self.ok("data", "prepare", "-i", "a.jsonl", "d.csv", "b.txt", "-o", "data", "--force", "--val-fraction", 0)
        self.assertIn("4 empty texts", done.err)
        self.write("full.txt", "full")
        done = self.ok("data", "prepare", "-i", "b.txt", "full.txt", "-o", "data", "--force", "--val-fraction", 0)
        self.assertIn("1 empty text was left out (the first is b.txt)", done.err)

    def test_objects_in_a_txt(self):
        """They are learned as they stand, with their braces and keys, which few mean."""
        lines = '{"text": "a"}\n{"text": "b"}\n'
        self.write("a.txt", lines)
        self.write("b.txt", "\ufeff\n" + lines)
        self.write("c.txt", '{"text": "a"}\nis one line of two\n')
        self.write("d.txt", '{"text": "a"}')
        self.write("e.jsonl", lines)
        done = self.ok("data", "prepare", "-i", "a.txt", "b.txt", "c.txt", "d.txt", "e.jsonl", "-o", "data", "--val-fraction", 0)
        self.assertIn("the lines of 2 .txt files are JSON objects (the first is a.txt)", done.err)
        self.assertIn("rename", done.err)
        done = self.ok("data", "prepare", "-i", "c.txt", "d.txt", "e.jsonl", "-o", "data", "--force", "--val-fraction", 0)
        self.assertNotIn("JSON objects", done.err)

    def test_too_few_for_a_validation_split(self):
        """In packed sequences it is of whole documents; with few of them another share does not help."""
        args = self.prepare_args([{"text": "some words"}] * 19, "--sequence-len", 16)
        few = [arg if arg != 0 else 0.4 for arg in args]
        self.fails(2, *few, says=["there are 19 documents", "needs at least 20", "or say --val-fraction 0"])
        self.ok(*args)
        self.prepare_args([{"text": "some words"}] * 20)
        self.ok(*few)
        self.fails(2, *[arg if arg != 0.4 else 1e-9 for arg in few], says=["of 20 documents none", "a larger --val-fraction"])

    def test_preferences(self):
        """An answer that was judged to be bad is not learned like a good one."""
        own = self.tokenizer(QWEN)
        pair = {"prompt": "q", "completion": "good"}
        for more, told in (({"rejected": "bad"}, "\"rejected\""), ({"chosen": "better"}, "\"chosen\""),
                           ({"rejected": [says("bad")]}, "\"rejected\""), ({"label": False}, "\"label\""),
                           ({"kto_tag": True}, "\"kto_tag\"")):
            self.fails(3, *self.prepare_args([{**pair, **more}], *own), says=["in.jsonl:1: ", told, "cannot train on"])
        self.fails(3, *self.prepare_args([{"messages": [user("q"), says("a")], "label": False}], *own), says="\"label\"")
        self.fails(3, *self.prepare_args([{"text": "a", "rejected": "b"}]), says="\"rejected\"")
        self.write("in.csv", "prompt,completion,label\nq,a,False\n")
        self.fails(3, "data", "prepare", "-i", "in.csv", "-o", "data", "--force", *own, says="\"label\"")
        for more in {"rejected": None, "chosen": ""}, {"label": "science"}, {"label": 3}:
            self.ok(*self.prepare_args([{**pair, **more}], *own))
        self.ok(*self.prepare_args([{"text": "a", "label": False, "rejected": False}]))
        for weight in 0, 0.5:  # as on a chat
            self.fails(3, *self.prepare_args([{"text": "a"}, {"text": "b", "weight": weight}]),
                       says=["in.jsonl:2: ", f"a \"weight\" of {weight}", "remove the weight"])
        self.ok(*self.prepare_args([{"text": "a", "weight": 1}, {"text": "a", "weight": 1.0}, {"text": "b", "weight": "2 kg"}]))

    def test_weights_in_tables(self):
        """They are texts there, and say the same: a row whose weight is not 1 is not learned like the others."""
        own = self.tokenizer(QWEN)
        args = ["data", "prepare", "-i", "in.csv", "-o", "data", "--force", "--val-fraction", 0]
        for header, row, more in ("text", "a", []), ("prompt,completion", "q,a", own):
            for weight in "0", "0.5", "0.0 ", "nan":
                self.write("in.csv", f"{header},weight\n{row},1\n{row},{weight}\n")
                self.fails(3, *args, *more, says=["in.csv, row:2: ", "a \"weight\""])
            self.write("in.csv", f"{header},weight\n{row},1\n{row},1.0\n{row},\n")
            self.assertEqual(self.ok(*args, *more, "--json").json()["train"]["documents"], 3)
        self.write("in.csv", "text,weight\na,2 kg\n")
        self.ok(*args)

    def test_what_stands_beside_a_chat(self):
        """A part of the chat under a key that its format does not have is not dropped."""
        own, chat = self.tokenizer(QWEN), {"messages": [user("q"), says("a")]}
        shared = {"conversations": [{"from": "system", "value": "s"}, {"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]}
        asked, told = {"prompt": "q", "completion": "a"}, {"instruction": "q", "output": "a"}
        for line, more, words in (
                (chat, shared, ["both \"messages\" and \"conversations\"", "--format messages or --format sharegpt"]),
                (told, {"completion": "b"}, ["both \"instruction\" and \"completion\""]),
                (chat, {"text": "b"}, ["both \"text\" and \"messages\""]),
                (chat, {"system": "s"}, ["a \"system\" beside", "the first of the messages"]),
                (shared, {"system": "t"}, ["two system messages"]),
                (chat, {"functions": [{"name": "f"}]}, ["\"functions\"", "\"tools\""]),
                (shared, {"history": [["a", "b"]]}, ["\"history\""]), (told, {"context": "c"}, ["\"context\"", "the question"]),
                (asked, {"context": "c"}, ["\"context\""]), (asked, {"input": "c"}, ["\"input\""]), (told, {"response": "b"}, ["\"response\""]),
                (chat, {"images": ["a.png"]}, ["\"images\"", "only text"]), (asked, {"image": "a.png"}, ["\"image\""]),
                (shared, {"audio": {"path": "a"}}, ["\"audio\""])):
            self.fails(3, *self.prepare_args([{**line, **more}], *own), says=["in.jsonl:1: ", *words])
        for more in {"system": "", "functions": None, "images": [], "conversations": None}, {"context": "c"}, {"input": "c"}:
            self.ok(*self.prepare_args([{**chat, **more}], *own))
            self.assertEqual(self.shown(), "<user>q|<assistant>{a|}")
        self.ok(*self.prepare_args([{**chat, **shared}], *own, "--format", "messages"))
        self.assertEqual(self.shown(), "<user>q|<assistant>{a|}")
        self.ok(*self.prepare_args([{**asked, "system": "s", "history": [["p", "b"]]}], *own))
        self.assertEqual(self.shown(), "<system>s|<user>p|<assistant>{b|}<user>q|<assistant>{a|}")
        self.ok(*self.prepare_args([{"messages": [user("q"), says("a", loss=False), says("b", loss=True)]}], *own))
        self.assertEqual(self.shown(), "<user>q|<assistant>a|<assistant>{b|}")
        # others are passed over, and named
        made = self.ok(*self.prepare_args([chat, {**chat, "id": 7, "source": "web"}, {**asked, "id": 8, "input": None}], *own))
        self.assertIn("2 chats have keys beside them that are not read (such as \"id\")", made.err)
        self.assertNotIn("not read", self.ok(*self.prepare_args([chat, asked, told], *own)).err)
        called = says("a", function_call={"name": "f"})
        self.fails(3, *self.prepare_args([{"messages": [user("q"), called]}], *own, "--template", "plain"), says="function_call")

    def test_messages_that_the_template_leaves_out(self):
        """They are counted, and a chat of which no answer is left is refused."""
        only = "{% for m in messages %}{% if m.role in ROLES %}{{ m.role }}:{{ m.content|trim|upper }}|{% endif %}{% endfor %}"
        chat = {"messages": [dict(role="system", content="s"), user("q"), says("a")]}
        for roles, hidden, text in (["user", "assistant", "system"], 0, "system:S|user:Q|{assistant:A|}"), \
                (["user", "assistant"], 1, "user:Q|{assistant:A|}"), (["assistant"], 2, "{assistant:A|}"):
            own = self.tokenizer(only.replace("ROLES", str(roles)))
            made = self.ok(*self.prepare_args([chat, {"messages": [user(" "), says("")]}], *own, "--loss", "all"))
            self.assertEqual(f"shows nothing of {hidden} messages (such as one in in.jsonl:1)" in made.err, hidden > 0, made.err)
            self.assertEqual("shows nothing of" in made.err, hidden > 0, made.err)
            self.ok(*self.prepare_args([chat], *own))
            self.assertEqual(self.shown(), text)
        own = self.tokenizer(only.replace("ROLES", "['user']"))
        self.fails(3, *self.prepare_args([chat], *own), says=["in.jsonl:1", "shows no answer"])

    def test_a_system_message_that_is_not_shown(self):
        own = self.tokenizer("{% for m in messages %}{% if m.role != 'system' %}{{ m.content }}|{% endif %}{% endfor %}")
        self.write("c.json", json.dumps(dict(model_type="gpt2", n_embd=16, n_layer=1, n_head=2, n_positions=32, vocab_size=257)))
        self.ok(*self.prepare_args([{"messages": [user("q" * 20), says("a" * 20)]}], *own))
        self.ok("train", "--model", "c.json", "--data", "data", "--sequence-len", 16, "-o", "run", "--max-steps", 1, "--eval-steps", 0)
        ask = ["generate", "--model", "run/checkpoint-1", "--chat", "--prompt", "q", "--max-tokens", 2]
        first = self.ok(*ask).err
        self.assertNotIn("shows nothing", first)
        self.assertIn("the chat template ends answers with text, not with a token", first)
        self.assertNotIn("ends answers", self.ok(*ask, "--template", "plain").err)
        self.assertNotIn("ends answers", self.ok(*ask, "--ignore-end").err)
        self.assertNotIn("ends answers", self.ok(*ask, "--stop", "|").err)
        self.assertIn("shows nothing of 1 of these messages (such as the system's", self.ok(*ask, "--system", "s").err)

    def test_names_of_tokens_in_a_prompt(self):
        """They are letters, and that is said, or tokens where that is asked for."""
        self.write("c.json", json.dumps(dict(model_type="gpt2", n_embd=16, n_layer=1, n_head=2, n_positions=32, vocab_size=257)))
        self.write("t.txt", "some words to learn " * 200)
        self.ok("data", "prepare", "-i", "t.txt", "-o", "data")
        self.ok("train", "--model", "c.json", "--data", "data", "--sequence-len", 16, "-o", "run", "--max-steps", 1, "--eval-steps", 0)
        ask = ["generate", "--model", "run/checkpoint-1", "--max-tokens", 2, "--json"]
        for prompt, rule, tokens, told in (("ab", "bytes", 2, False), ("a<|endoftext|>b", "bytes", 15, True),
                                           ("a<|endoftext|>b", "ids", 3, False), ("<|endoftext|>", "ids", 1, False)):
            made = self.ok(*ask, "--prompt", prompt, "--special-tokens", rule)
            self.assertEqual(made.json()["prompt_tokens"], tokens, made)
            self.assertEqual("special tokens 1 times (the first is <|endoftext|>)" in made.err, told, made)
        self.fails(2, *ask[:3], "--chat", "--prompt", "q", "--special-tokens", "ids", says="--special-tokens")

    def test_a_prompt_from_standard_input(self):
        """What comes through a pipe or from a file is the prompt; and what cannot be one is not half of one."""
        self.write("c.json", json.dumps(dict(model_type="gpt2", n_embd=16, n_layer=1, n_head=2, n_positions=64, vocab_size=257)))
        self.write("t.txt", "some words to learn " * 200)
        self.ok("data", "prepare", "-i", "t.txt", "-o", "data")
        self.ok("train", "--model", "c.json", "--data", "data", "--sequence-len", 16, "-o", "run", "--max-steps", 1, "--eval-steps", 0)
        args = ["generate", "--model", "run/checkpoint-1", "--max-tokens", 5]
        out = self.ok(*args, "--prompt", "the king").out

        def piped(text, *more, check=self.ok, **expected):
            read, write = os.pipe()
            os.write(write, text)
            os.close(write)
            try:
                return check(*args, *more, stdin=read, **expected)
            finally:
                os.close(read)
        for text in b"the king", b"the king\n", b"the king\r\n", b"\xef\xbb\xbfthe king\n":
            self.assertEqual(piped(text).out, out)
        self.assertEqual(piped(b"the king\n", "--json").json()["prompt"], "the king")
        self.write("beginning.txt", "the king\n")
        with open(self.path("beginning.txt"), "rb") as file:
            self.assertEqual(self.ok(*args, stdin=file).out, out)
        nothing = self.ok(*args)  # from /dev/null
        self.assertEqual(nothing.err, "")
        self.assertEqual(piped(b"").out, nothing.out)
        self.assertIn("is empty", piped(b"").err)
        self.assertEqual(piped(b"a man", "--prompt", "the king").out, out)
        for wrong, kind in (b"the \xff king", "LATIN1"), (b"the \0 king", "UTF-16"):
            says = ["standard input: not text in UTF-8 at byte 4 ", f"iconv -f {kind} "]
            piped(wrong, check=lambda *a, says=says, **b: self.fails(3, *a, says=says, **b))
        data = ["eval", "--model", "run/checkpoint-1", "--data", "data", "--sequence-len", 16, "--json"]
        every, more = self.ok(*data), self.ok(*data, "--batches", 100000)
        self.assertEqual(more.json()["loss"], every.json()["loss"])
        self.assertRegex(more.err, r"batches: 100000 were asked for, but the val split of data has only \d+ ")
        self.assertLess(self.ok(*data, "--batches", 2).json()["tokens"], every.json()["tokens"])
        self.ok("data", "prepare", "-i", "t.txt", "-o", "data", "--force", "--sequence-len", 12, "--val-fraction", 0)
        for length, told in (12, False), (16, True), (24, False):
            said = self.ok(*data[:5], "--split", "train", "--sequence-len", length).err
            self.assertEqual(f"packed into sequences of 12 tokens, but sequence_len is {length}" in said, told, said)

    def test_names_of_tokens_that_there_are_not(self):
        """What a template calls bos_token is a token, not letters."""
        own = self.tokenizer("{{ bos_token }}{% for m in messages %}{{ m.content }}|{% endfor %}")
        chat = {"messages": [user("q"), says("a")]}
        self.write("model/tokenizer_config.json", json.dumps(dict(bos_token="<|endoftext|>", eos_token="</s>")))
        self.ok(*self.prepare_args([chat], *own))
        self.assertEqual(self.shown(), "@q|{a|}")
        self.write("model/tokenizer_config.json", json.dumps(dict(bos_token={"content": "<s>"})))
        self.fails(3, *self.prepare_args([chat], *own), says=["bos_token", '"<s>"', "no such added token"])

    def test_masks_that_are_lost(self):
        """Who copies only *.bin would learn all of a chat: a mask that is missing is missed."""
        own = self.tokenizer(QWEN)
        made = [{"messages": [user("q" * 20), says(f"a{i}")]} for i in range(60)]
        self.ok(*self.prepare_args(made, *own, "--val-fraction", 0.2))
        self.write("c.json", json.dumps(dict(model_type="gpt2", n_embd=16, n_layer=1, n_head=2, n_positions=32, vocab_size=257)))
        train = ["train", "--model", "c.json", "--data", "data", "--sequence-len", 16, "-o", "run", "--dry-run", "--quiet"]
        self.ok(*train)
        counts = json.loads(self.read("data", "dataset.json"))
        self.assertEqual([counts[split][kind] for split in ("train", "val") for kind in ("mask", "begins")], [1, 1, 1, 1])
        for kind, says_what in ("mask", "what is learned"), ("begins", "where documents begin"):
            for split in "train", "val":
                lost = self.path("data", f"{split}_000000.{kind}")
                os.rename(lost, self.path("kept"))
                self.fails(3, *train, says=[f"all of the files {split}_*.{kind} are missing", says_what])
                self.fails(3, "data", "inspect", "data", says=f"{split}_*.{kind}")
                os.rename(self.path("kept"), lost)
        # data from before these files were counted
        for split in "train", "val":
            for kind in "mask", "begins":
                del counts[split][kind]
        self.write("data/dataset.json", json.dumps(counts))
        self.ok(*train)
        os.remove(self.path("data", "train_000000.mask"))
        self.fails(3, *train, says="train_*.mask are missing")
        self.ok(*self.prepare_args(made, *own, "--loss", "all"))
        self.assertEqual(json.loads(self.read("data", "dataset.json"))["train"]["mask"], 0)
        self.ok(*train)

    def test_tokens_that_are_damaged(self):
        """Looking at a data set compares each shard with the hash in its header."""
        self.write("t.txt", "some words to learn " * 200)
        self.ok("data", "prepare", "-i", "t.txt", "-o", "data")
        self.ok("data", "inspect", "data")
        shard = bytearray(self.read("data", "train_000000.bin"))
        shard[1024 + 700] ^= 1
        self.write("data/train_000000.bin", bytes(shard))
        self.fails(3, "data", "inspect", "data", says=["train_000000.bin", "damaged", "copy it again"])
        shard[12:20] = bytes(8)  # of llm.c, or of before there were hashes
        self.write("data/train_000000.bin", bytes(shard))
        self.ok("data", "inspect", "data")

    def stream(self, split):
        """What is in a split: ids, which of them count, and where documents begin."""
        data = self.read("data", f"{split}_000000.bin")
        n = struct.unpack_from("<i", data, 8)[0]
        ids = struct.unpack_from(f"<{n}H", data, 1024)
        bits = []
        for kind, without in ("mask", [True] * n), ("begins", [id == 256 for id in ids]):
            try:
                byte = self.read("data", f"{split}_000000.{kind}")[32:]
                bits.append([bool(byte[i // 8] >> i % 8 & 1) for i in range(n)])
            except FileNotFoundError:
                bits.append(without)
        return ids, *bits

    def pieces(self, split, length):
        """[(text, its learned bytes)] of a split that is packed, cut ones joined; and the tokens of padding."""
        ids, counts, begins = self.stream(split)
        self.assertEqual(len(ids) % length, 1, "sequences, and the last target")
        self.assertTrue(begins[0])
        starts = [i for i, is_one in enumerate(begins) if is_one] + [len(ids)]
        made, padding = [], 0
        for at, end in zip(starts, starts[1:]):
            if set(ids[at:end]) == {256}:
                padding += end - at
                self.assertIn(end % length, (0, 1), "padding reaches the end of its sequence")
                self.assertFalse(any(counts[at + 1:end + 1]), "nothing is learned in padding, nor behind it")
                continue
            if at // length != (end - 1) // length:
                self.assertGreater(end - at, length, "cut, although it fits")
                self.assertEqual(at % length, 0)
            made.append((bytes(min(i, 255) for i in ids[at:end]), [at + k for k in range(end - at) if counts[at + k]]))
        return made, padding

    def test_packing(self):
        """Chats that fit into a sequence are not cut, all are there, and what is learned of them stays the same."""
        own, pick, length = self.tokenizer(QWEN), random.Random(5), 64
        chats = [{"messages": [user(f"{i}"), says("a" * pick.choice([1, 5, 20, 30, 40, 46, 47, 150]))]} for i in range(400)]
        args = self.prepare_args(chats, *own, "--val-fraction", 0.1, "--json")
        plain = self.ok(*args).json()
        made = self.ok(*args, "--sequence-len", length)
        done = made.json()
        long = sum(len(str(i)) + len(chat["messages"][1]["content"]) + 19 > length for i, chat in enumerate(chats))
        self.assertEqual([done["cut_documents"], done["sequence_len"]], [long, length])
        self.assertIn(f"{long} of 400 documents are longer than a sequence of {length} tokens and are cut", made.err)
        self.assertEqual(done["targets"], plain["targets"])
        seen, padding = {}, 0
        for split in "train", "val":
            found, pads = self.pieces(split, length)
            padding += pads
            self.assertEqual(len(found), done[split]["documents"])
            for text, learned in found:
                seen[int(text.split(b">")[1].split(b"|")[0])] = text.decode(), len(learned)
        self.assertEqual([seen[i] for i in range(400)],
                         [(f"<user>{i}|<assistant>{c['messages'][1]['content']}|", len(c["messages"][1]["content"]) + 1)
                          for i, c in enumerate(chats)])
        self.assertEqual(padding, done["padding"])
        self.assertLess(padding, 0.15 * (done["train"]["tokens"] + done["val"]["tokens"]))
        self.assertEqual(json.loads(self.read("data", "dataset.json"))["sequence_len"], length)
        self.write("c.json", json.dumps(dict(model_type="gpt2", n_embd=16, n_layer=1, n_head=2, n_positions=64, vocab_size=257)))
        told = self.ok("train", "--model", "c.json", "--data", "data", "-o", "run", "--dry-run", "--packing", "apart",
                       "--sequence-len", 60)
        self.assertIn("'atom data prepare --sequence-len 60' cuts only those that are longer", told.err)
        self.assertIn(f"packed into sequences of {length} tokens, but sequence_len is 60", told.err)
        told = self.ok("train", "--model", "c.json", "--data", "data", "-o", "run", "--dry-run", "--sequence-len", length)
        self.assertNotIn("packed into", told.err)
        # one after the other, as before, where nobody asks for it
        self.assertEqual(self.ok(*args, "--sequence-len", 0).json()["train"], plain["train"])
        self.assertNotIn("sequence_len", json.loads(self.read("data", "dataset.json")))

    def test_packing_of_texts(self):
        """That a text ends is learned, whether another follows, or padding, or the end of the sequence."""
        texts = [{"text": "b" * n} for n in [7, 6, 5, 3, 2, 1, 20, 7] * 4]
        self.ok(*self.prepare_args(texts, "--sequence-len", 8))
        ids, counts, _ = self.stream("train")
        ends = [i for i in range(1, len(ids)) if ids[i - 1] != 256 and ids[i] == 256]
        self.assertEqual(len(ends), len(texts))
        self.assertTrue(all(counts[i] for i in ends))
        self.assertFalse(any(counts[i] for i in range(1, len(ids)) if ids[i - 1] == ids[i] == 256))
        self.fails(2, *self.prepare_args(texts[:9], "--sequence-len", 8, "--val-fraction", 0.1), says=["9 documents", "at least 20"])
        self.fails(2, *self.prepare_args(texts, "--sequence-len", 7), says="between 8 and")


if __name__ == "__main__":
    tool.main()
