"""What people bring to train on is used as they mean it, or refused by its name: never dropped without a word."""
import csv
import io
import json
import os
import shutil
import struct

import chats
import tool
from chats import MARKED, QWEN, THINKS, says, user

class Bring(chats.Case):
    def test_weights(self):
        """A weight of 0 takes an answer out of what is learnt, however the template says what answers are."""
        chat = {"messages": [user("q"), says("no", weight=0), user("r"), says("yes", weight=1)]}
        for template in (QWEN, MARKED):
            own = self.tokenizer(template)
            made = self.ok(*self.prepare_args([chat], *own, "--json")).json()
            self.assertEqual(self.shown(), "<user>q|<assistant>no|<user>r|<assistant>{yes|}")
            self.assertEqual(made["targets"], 4)
        own = self.tokenizer(MARKED)
        # two answers in a row, and one of them empty
        chat = {"messages": [user("q"), says("", weight=0), says("b"), says("c", weight=0)]}
        self.ok(*self.prepare_args([chat], *own))
        self.assertEqual(self.shown(), "<user>q|<assistant>|<assistant>{b|}<assistant>c|")
        chat = {"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a", "train": False},
                                  {"from": "gpt", "value": "b", "train": True, "weight": 1}]}
        self.ok(*self.prepare_args([chat], *own))
        self.assertEqual(self.shown(), "<user>q|<assistant>a|<assistant>{b|}")

    def test_wrong_weights(self):
        own = self.tokenizer(QWEN)
        for messages, words in (
                ([user("q"), says("a", weight=0.5)], "messages[1]: its \"weight\" is neither 0 nor 1"),
                ([user("q", weight=1), says("a")], "messages[0] is by the user"),
                ([user("q"), says("a", weight=0)], "all answers of this chat have weight 0"),
                ([user("q"), says("a", weight=0, train=True)], "its \"train\" says that it is learned and its \"weight\" that it is not"),
                ([user("q"), says("a", train=False, loss=True)], "its \"loss\" says that it is learned and its \"train\""),
                ([user("q"), says("a", train=1)], "its \"train\" is neither true nor false"),
                ([user("q"), says("a", train_detail=[{"begin_offset": 0}])], "\"train_detail\"")):
            self.fails(3, *self.prepare_args([{"messages": messages}], *own), says=["in.jsonl:1: ", words])
        chat = {"messages": [user("q"), says("a", weight=0), says("b")]}
        self.fails(3, *self.prepare_args([chat], *own, "--loss", "all"), says=["in.jsonl:1: ", "weight 0", "--loss all"])
        self.fails(3, *self.prepare_args([dict(chat, weight=0.1)], *own), says="the whole line has a \"weight\"")
        for line in dict(chat, id=7, train=False), {"text": "t", "loss": "False"}:
            self.fails(3, *self.prepare_args([line], *own), says=["in.jsonl:1: the whole line has a", "of false", "remove the line"])
        self.ok(*self.prepare_args([dict(chat, train=True, loss=0.0)], *own))

    def test_places(self):
        """A run's directory is no model, and ~ is no directory."""
        self.write("c.json", json.dumps(dict(model_type="gpt2", n_embd=16, n_layer=1, n_head=2, n_positions=32, vocab_size=320)))
        self.write("t.txt", "some words to learn " * 200)
        self.ok("data", "prepare", "-i", "t.txt", "-o", "data", "--val-fraction", 0)
        run = ["train", "--model", "c.json", "--data", "data", "--micro-batch-size", 1, "--sequence-len", 16,
               "--gradient-accumulation-steps", 1, "--eval-steps", 0]
        self.ok(*run, "-o", "run", "--max-steps", 3, "--save-steps", 2)
        for command in ("eval", "--data", "data"), ("inspect",), ("generate",), ("export", "-o", "x.gguf"):
            where = ["run"] if command[0] == "inspect" else ["--model", "run"]
            self.fails(2, command[0], *where, *command[1:], says="such as run/checkpoint-3")
        self.write("run/checkpoint-3/model.safetensors.index.json", "{}")  # as where somebody put a model over another
        for command in (["eval", "--model", "run/checkpoint-3", "--data", "data", "--split", "train"],
                        ["export", "--model", "run/checkpoint-3", "-o", "y.gguf"],
                        ["train", "--model", "run/checkpoint-3", *run[3:], "-o", "again", "--max-steps", 1]):
            said = self.ok(*command).err
            self.assertEqual(said.count("has both model.safetensors and model.safetensors.index.json; the first"), 1, said)
        self.check_parts_of_another("run/checkpoint-3")
        self.fails(2, *run, "-o", "~/run", says="/run")
        self.write("c.yml", "output_dir: ~/run\n")
        self.fails(2, *run, "c.yml", says="only where a shell replaces it")
        self.assertFalse(os.path.exists(self.path("~")))
        self.write("c.yml", "output_dir: ${OUT}/run\n")
        self.fails(2, *run, "c.yml", says=["c.yml:1:13", "${OUT}/run", "variable"])
        self.assertFalse(os.path.exists(self.path("${OUT}")))

    def check_parts_of_another(self, model):
        """What is left of a model that was cut otherwise is told, and nothing else is."""
        with open(self.path(model, "model.safetensors"), "rb") as f:
            names = [k for k in json.loads(f.read(struct.unpack("<Q", f.read(8))[0])) if k != "__metadata__"]
        self.write(model + "/model-00002-of-00003.safetensors", "old")
        self.write(model + "/consolidated.safetensors", "of another program")
        ask = ["export", "--model", model, "--overwrite", "-o", "y.gguf"]
        os.remove(self.path(model, "model.safetensors.index.json"))
        said = self.ok(*ask).err
        self.assertEqual(said.count("model-00002-of-00003.safetensors is not read, since model.safetensors has all"), 1, said)
        os.rename(self.path(model, "model.safetensors"), self.path(model, "model-00001-of-00001.safetensors"))
        self.write(model + "/model.safetensors.index.json", json.dumps(
            {"weight_map": {name: "model-00001-of-00001.safetensors" for name in names}}))
        said = self.ok(*ask).err
        self.assertEqual(said.count("model-00002-of-00003.safetensors is not read, since model.safetensors.index.json does not"),
                         1, said)
        self.write(model + "/model-00003-of-00003.safetensors", "old")
        self.assertIn("model-00002-of-00003.safetensors (and 1 more like it) is not read", self.ok(*ask).err)
        os.remove(self.path(model, "model-00002-of-00003.safetensors"))
        os.remove(self.path(model, "model-00003-of-00003.safetensors"))
        self.assertNotIn("not read", self.ok(*ask).err)

    def test_weights_that_are_no_numbers(self):
        """They may be exported, but not without a word."""
        self.write("c.json", json.dumps(dict(model_type="gpt2", n_embd=16, n_layer=1, n_head=2, n_positions=32, vocab_size=320)))
        self.write("t.txt", "some words to learn " * 200)
        self.ok("data", "prepare", "-i", "t.txt", "-o", "data", "--val-fraction", 0)
        self.ok("train", "--model", "c.json", "--data", "data", "--micro-batch-size", 1, "--sequence-len", 16,
                "--gradient-accumulation-steps", 1, "--eval-steps", 0, "-o", "run", "--max-steps", 1)
        self.fails(2, "export", "--model", "run/checkpoint-1", "-o", "new/", says=["new/ names a directory", "--to hf"])
        whole = self.ok("export", "--model", "run/checkpoint-1", "-o", "a.gguf")
        self.assertNotIn("finite", whole.err)

        def change(tensor, *numbers):
            with open(self.path("run/checkpoint-1/model.safetensors"), "r+b") as f:
                head = f.read(struct.unpack("<Q", f.read(8))[0])
                at = next(t["data_offsets"][0] for k, t in json.loads(head).items() if tensor in k)
                f.seek(8 + len(head) + at)
                f.write(struct.pack(f"<{len(numbers)}f", *numbers))

        change("wte.weight", 1e9, 65519, -65520)
        for out, told in ((["f16"], "2 weights are too large for f16"), (["bf16"], ""), (["f32"], "")):
            said = self.ok("export", "--model", "run/checkpoint-1", "-o", "a.gguf", "--overwrite", "--type", *out).err
            self.assertIn(told, said)
            self.assertEqual(bool(told), "too large" in said, said)
        said = self.ok("export", "--model", "run/checkpoint-1", "-o", "d", "--to", "hf", "--dtype", "fp16").err
        self.assertIn("warning: 2 weights are too large for fp16", said)
        change("wte.weight", 3.4e38, 1, 1)
        said = self.ok("export", "--model", "run/checkpoint-1", "-o", "e", "--to", "hf", "--dtype", "bf16").err
        self.assertIn("warning: 1 weights are too large for bf16 and became infinite; use fp32", said)
        self.assertIn("1 weights are too large for", self.ok("export", "--model", "run/checkpoint-1", "-o", "a.gguf",
                                                            "--overwrite", "--type", "bf16").err)
        change("ln_f.weight", float("nan"))
        for out in (["-o", "b.gguf"], ["-o", "c", "--to", "hf"]):
            self.assertIn("ln_f.weight' has values that are not finite", self.ok("export", "--model", "run/checkpoint-1", *out).err)

    def metaspaces(self, prepend, begins):
        """Writes c.json and tokenizer.json in Llama's manner: a space and a start token in front of every text, or not."""
        pieces = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)] + ["\u2581", "a", "b", "\u2581a", "ab"]
        spaces = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
        first = {"type": "Prepend", "prepend": "\u2581"}
        single = [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
        steps = [{"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]
        made = {"version": "1.0", "added_tokens": [{"id": i, "content": pieces[i], "special": True} for i in range(3)],
                "pre_tokenizer": None, "decoder": {"type": "Sequence", "decoders": steps},
                "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True,
                          "vocab": {piece: i for i, piece in enumerate(pieces)}, "merges": [["\u2581", "a"], ["a", "b"]]}}
        made["normalizer"] = {"type": "Sequence", "normalizers": [first, spaces]} if prepend else spaces
        made["post_processor"] = {"type": "TemplateProcessing", "single": single if begins else single[1:]}
        self.write("tokenizer.json", json.dumps(made))
        self.write("c.json", json.dumps(dict(model_type="llama", hidden_size=16, intermediate_size=16, num_hidden_layers=1,
                                             num_attention_heads=2, max_position_embeddings=32, vocab_size=len(pieces))))

    def test_what_stands_in_front_of_a_text(self):
        """Gemma's tokenizer puts no space in front, Phi-3's no start token: a GGUF file says so, both ways."""
        self.write("t.jsonl", "".join(json.dumps({"text": text}) + "\n" for text in ("ab a", " a\u00e9b ", "b") * 40))
        prepare = ["data", "prepare", "-i", "t.jsonl", "-o", "data", "--force", "--val-fraction", 0, "--tokenizer"]
        for at, (prepend, begins) in enumerate(((True, True), (False, True), (True, False))):
            self.metaspaces(prepend, begins)
            self.ok(*prepare, "tokenizer.json")
            want, run = self.read("data", "train_000000.bin"), f"run{at}"
            self.ok("train", "--model", "c.json", "--data", "data", "--micro-batch-size", 1, "--sequence-len", 16,
                    "--gradient-accumulation-steps", 1, "--eval-steps", 0, "-o", run, "--max-steps", 1)
            settings = run + "/checkpoint-1/tokenizer_config.json"
            self.write(settings, json.dumps(dict(json.loads(self.read(settings)), add_bos_token=begins)))
            self.ok("export", "--model", run + "/checkpoint-1", "-o", run + ".gguf")
            self.assertEqual(b"tokenizer.ggml.add_space_prefix" in self.read(run + ".gguf"), not prepend)
            self.ok("export", "--model", run + ".gguf", "--to", "hf", "-o", run + "-back")
            self.ok(*prepare, run + "-back/tokenizer.json")
            self.assertEqual(self.read("data", "train_000000.bin"), want, (prepend, begins))

    def test_settings_that_say_something_else(self):
        """transformers lets tokenizer_config.json change what tokenizer.json says. atom does not, and says so."""
        self.write("t.jsonl", "".join(json.dumps({"text": text}) + "\n" for text in ("ab a", "ba b") * 40))
        for begins, settings, says in ((False, {"add_bos_token": False}, ""), (True, {"add_bos_token": True}, ""), (True, {}, ""),
                                       (False, {"add_bos_token": True}, "add_bos_token true, but tokenizer.json puts no token"),
                                       (True, {"add_bos_token": False}, "add_bos_token false, but tokenizer.json puts a start token"),
                                       (False, {"tokenizer_class": "PreTrainedTokenizerFast"}, ""),
                                       (False, {"tokenizer_class": "LlamaTokenizerFast"}, "where add_bos_token is absent"),
                                       (True, {"tokenizer_class": "LlamaTokenizer", "add_prefix_space": True}, ""),
                                       (True, {"tokenizer_class": "LlamaTokenizer", "add_prefix_space": False},
                                        "add_prefix_space false, but tokenizer.json puts a space"),
                                       (True, {"added_tokens_decoder": {"2": {"content": "</s>", "rstrip": True}}},
                                        'rstrip true for the added token "</s>", and tokenizer.json has false'),
                                       (True, {"added_tokens_decoder": {"2": {"content": "</s>"}}}, ""),
                                       (True, {"added_tokens_decoder": {"1": {"content": "<x>"}}}, 'token "<x>" with the id 1'),
                                       (True, {"added_tokens_decoder": {"264": {"content": "<x>"}}}, 'token "<x>" with the id 264')):
            self.metaspaces(True, begins)
            self.write("tokenizer_config.json", json.dumps(settings))
            said = self.ok("data", "prepare", "-i", "t.jsonl", "-o", "data", "--force", "--tokenizer", "tokenizer.json").err
            self.assertIn(says, said)
            self.assertEqual(bool(says), "tokenizer_config.json" in said, said)
        for tokens, settings, says in (({"</s>": 2}, {}, ""),
                                       ({"<x>": 264}, {}, 'added_tokens.json has the added token "<x>" with the id 264'),
                                       ({"<x>": 264}, {"added_tokens_decoder": {}}, "")):
            self.write("added_tokens.json", json.dumps(tokens))
            self.write("tokenizer_config.json", json.dumps(settings))
            said = self.ok("data", "prepare", "-i", "t.jsonl", "-o", "data", "--force", "--tokenizer", "tokenizer.json").err
            self.assertIn(says, said)
            self.assertEqual(bool(says), "added_tokens.json" in said, said)
        self.ok("data", "prepare", "-i", "t.jsonl", "-o", "data", "--force", "--tokenizer", "bpe:260")
        for prefix, says in ((False, ""), (True, "add_prefix_space true, but tokenizer.json puts no space")):
            self.write("data/tokenizer_config.json", json.dumps({"add_prefix_space": prefix}))
            said = self.ok("data", "prepare", "-i", "t.jsonl", "-o", "again", "--force", "--tokenizer", "data/tokenizer.json").err
            self.assertIn(says, said)
            self.assertEqual(bool(says), "tokenizer_config.json" in said, said)

    def test_a_prompt_begins_as_the_texts_did(self):
        """What the tokenizer puts in front of every text stands in front of prompts and questions as well, and only once."""
        self.write("t.jsonl", "".join(json.dumps({"text": text}) + "\n" for text in ("ab a", "ba b") * 40))
        self.write("q.jsonl", json.dumps({"question": "ab", "choices": ["a", "b"], "answer": 0}) + "\n")
        asked = {}
        for begins in True, False:
            self.metaspaces(True, begins)
            self.ok("data", "prepare", "-i", "t.jsonl", "-o", "data", "--force", "--tokenizer", "tokenizer.json")
            run = f"run{begins}"
            self.ok("train", "--model", "c.json", "--data", "data", "--micro-batch-size", 1, "--sequence-len", 16,
                    "--gradient-accumulation-steps", 1, "--eval-steps", 0, "-o", run, "--max-steps", 1)
            model = ["--model", run + "/checkpoint-1"]

            def say(prompt, rule="ids"):
                made = self.ok("generate", *model, "-p", prompt, "-n", 8, "--ignore-end", "--special-tokens", rule, "--json").json()
                return made["text"], made["prompt_tokens"]

            plain, named = say("ab", "bytes"), say("<s>ab")
            self.assertEqual(named[1], 3)
            self.assertEqual(plain == named, begins, (plain, named))
            self.assertEqual(say("", "bytes")[0] == say("<s>")[0], begins)
            asked[begins] = self.ok("eval", *model, "--choices", "q.jsonl", "--json").json()["tokens"]
        self.assertEqual(asked[True], asked[False] + 2)

    def test_what_ends_a_text_survives_gguf(self):
        """Through a GGUF file and back, or on to another, a model keeps its tokenizer and still knows where a text ends."""
        self.write("t.txt", "some words to learn " * 200)
        self.ok("data", "prepare", "-i", "t.txt", "-o", "data", "--val-fraction", 0)
        how = ["--data", "data", "--micro-batch-size", 1, "--sequence-len", 16, "--gradient-accumulation-steps", 1,
               "--eval-steps", 0, "--max-steps", 1, "--dtype", "fp32", "-o"]
        llama = dict(model_type="llama", hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
                     max_position_embeddings=32, vocab_size=320)
        window = dict(llama, model_type="mistral", num_key_value_heads=2, sliding_window=8)
        gpt2 = dict(model_type="gpt2", n_embd=16, n_layer=1, n_head=2, n_positions=32, vocab_size=320)
        for name, config in ("gpt2", gpt2), ("llama", llama), ("mistral", window):
            self.write("c.json", json.dumps(config))
            self.ok("train", "--model", "c.json", *how, name)
            first = name + "/checkpoint-1"
            for file in "config.json", "generation_config.json":
                self.write(f"{first}/{file}", json.dumps(dict(json.loads(self.read(first, file)), bos_token_id=7)))
            settings = first + "/tokenizer_config.json"  # which goes first, but does not know the start token here
            self.write(settings, json.dumps({k: v for k, v in json.loads(self.read(settings)).items() if k != "bos_token"}))
            made = self.ok("export", "--model", first, "--type", "f32", "-o", name + "-1.gguf")
            self.assertEqual("does not use the window of 8 tokens" in made.err, name == "mistral")
            on = self.ok("export", "--model", name + "-1.gguf", "--type", "f32", "-o", name + "-2.gguf")
            self.assertNotIn("no tokenizer", on.err)
            self.ok("export", "--model", name + "-2.gguf", "--type", "f32", "-o", name + "-3.gguf")
            self.assertEqual(len(self.read(name + "-1.gguf")), len(self.read(name + "-2.gguf")))  # the order may differ
            self.assertEqual(self.read(name + "-2.gguf"), self.read(name + "-3.gguf"))
            self.ok("export", "--model", name + "-2.gguf", "--to", "hf", "-o", name + "-back")
            self.ok("train", "--model", name + "-back", *how, name + "-on")
            self.ok("train", "--model", name + "-2.gguf", *how, name + "-gguf")
            for out in "-back", "-on/checkpoint-1", "-gguf/checkpoint-1":
                for file in "config.json", "generation_config.json":
                    made = json.loads(self.read(name + out, file))
                    self.assertEqual(made["eos_token_id"], 256, (name, out, file))
                    if name != "gpt2":  # whose texts begin with the token that ends them
                        self.assertEqual(made["bos_token_id"], 7, (name, out, file))
                self.assertEqual(json.loads(self.read(name + out, "config.json")).get("sliding_window"),
                                 config.get("sliding_window"), (name, out))

    def test_what_checkpoints_keep_of_the_model(self):
        """The model's own files stay beside its tokenizer in other words; of other steps somebody hears, and its ends stay."""
        self.write("t.jsonl", "".join(json.dumps({"text": text}) + "\n" for text in ("ab a", "ba b") * 40))
        self.metaspaces(True, True)
        step = ["--data", "data", "--micro-batch-size", 1, "--sequence-len", 16, "--gradient-accumulation-steps", 1,
                "--eval-steps", 0, "--max-steps", 1]
        self.ok("data", "prepare", "-i", "t.jsonl", "-o", "data", "--tokenizer", "tokenizer.json")
        self.ok("train", "--model", "c.json", *step, "-o", "first")
        model = "first/checkpoint-1"
        theirs = {"generation_config.json": json.dumps({"eos_token_id": [2, 9]}),
                  "tokenizer_config.json": json.dumps({"eos_token": "</s>", "chat_template": "{{ messages }}"})}
        for name, text in theirs.items():
            self.write(model + "/" + name, text)
        made = json.loads(self.read("data", "tokenizer.json"))
        spaced = dict(made, model=dict(made["model"], merges=[" ".join(m) for m in made["model"]["merges"]]))
        for run, data, kept in ("a", made, 2), ("b", spaced, 2), ("c", dict(made, post_processor=None), 1):
            self.write("data/tokenizer.json", json.dumps(data, indent=1))
            said = self.ok("train", "--model", model, *step, "-o", run).err
            self.assertEqual("checkpoints get the data's" in said, kept < 2, said)
            for name in list(theirs)[:kept]:
                self.assertEqual(self.read(run, "checkpoint-1", name), theirs[name].encode(), (run, name))

    def test_all_ends_survive_gguf(self):
        """GGUF has keys for some of the tokens that end a text, and llama.cpp knows some by their texts."""
        self.write("t.txt", "some words to learn " * 200)
        self.ok("data", "prepare", "-i", "t.txt", "-o", "data", "--val-fraction", 0)
        tokenizer = json.loads(self.read("data", "tokenizer.json"))
        first = tokenizer["added_tokens"][0]
        for i, text in enumerate(["<|eom_id|>", "<|eot_id|>", "<|mine|>", "<|other|>"]):
            tokenizer["added_tokens"].append(dict(first, id=257 + i, content=text))
        self.write("data/tokenizer.json", json.dumps(tokenizer))
        self.write("c.json", json.dumps(dict(model_type="llama", hidden_size=16, intermediate_size=16, num_hidden_layers=1,
                                             num_attention_heads=2, max_position_embeddings=32, vocab_size=264)))
        self.ok("train", "--model", "c.json", "--data", "data", "--micro-batch-size", 1, "--sequence-len", 16, "-o", "run",
                "--gradient-accumulation-steps", 1, "--eval-steps", 0, "--max-steps", 1, "--dtype", "fp32")
        model, settings = "run/checkpoint-1", json.loads(self.read("run/checkpoint-1", "generation_config.json"))
        for ends, said in ([256, 257, 258], ""), ([256, 257, 259], ""), ([258, 256, 259, 260], "stop at 1 of the 4 tokens"):
            self.write(model + "/generation_config.json", json.dumps(dict(settings, eos_token_id=ends)))
            told = self.ok("export", "--model", model, "--type", "f32", "-o", "m.gguf", "--overwrite")
            self.assertEqual("llama.cpp will not stop" in told.err, bool(said), told)
            self.assertIn(said, told.err)
            made = self.read("m.gguf")
            self.assertEqual(b"tokenizer.ggml.eom_token_id" in made, 259 in ends)
            shutil.rmtree(self.path("back"), ignore_errors=True)
            self.ok("export", "--model", "m.gguf", "--to", "hf", "-o", "back")
            for file in "config.json", "generation_config.json":
                self.assertEqual(set(json.loads(self.read("back", file))["eos_token_id"]), set(ends))
                self.assertEqual(json.loads(self.read("back", file))["eos_token_id"][0], 256)
        self.write(model + "/generation_config.json", json.dumps(dict(settings, eos_token_id=[256, *range(256)])))
        self.ok("export", "--model", model, "--type", "f32", "-o", "m.gguf", "--overwrite")
        told = self.ok("generate", "--model", "m.gguf", "--prompt", "so", "--max-tokens", 20, "--temperature", 0, "--json").json()
        self.assertEqual(told["tokens"], 1, "whatever comes is an end")

    def test_names_of_other_formats(self):
        """Who forgets --to gets no GGUF file that is called .safetensors."""
        for to, name in ("gguf", "m.safetensors"), ("gguf", "m.bin"), ("llmc", "m.gguf"), ("hf", "m.gguf"), ("hf", "m.safetensors"):
            self.fails(2, "export", "--model", "m", "--to", to, "-o", name, says=[f"--output {name}", f"--to {to} makes"])
        self.fails(2, "export", "--model", "m", "-o", "m.pt", says="a GGUF file")

    def test_where_a_text_ends(self):
        """generation_config.json of a model for chats lists several tokens; any of them ends a text."""
        self.write("t.txt", "some words to learn " * 200)
        self.ok("data", "prepare", "-i", "t.txt", "-o", "data", "--val-fraction", 0)
        self.write("c.json", json.dumps(dict(model_type="gpt2", n_embd=16, n_layer=1, n_head=2, n_positions=32, vocab_size=257)))
        self.ok("train", "--model", "c.json", "--data", "data", "--micro-batch-size", 1, "--sequence-len", 16,
                "--gradient-accumulation-steps", 1, "--eval-steps", 0, "-o", "run", "--max-steps", 1)
        model = "run/checkpoint-1"
        config, settings = (json.loads(self.read(model, f"{name}.json")) for name in ("config", "generation_config"))

        def made(in_config, in_settings, *more, says=""):
            self.write(model + "/config.json", json.dumps(dict(config, eos_token_id=in_config)))
            self.write(model + "/generation_config.json", json.dumps(dict(settings, eos_token_id=in_settings)))
            told = self.ok("generate", "--model", model, "--prompt", "so", "--max-tokens", 20, "--temperature", 0, "--json", *more)
            self.assertEqual(told.err, says)
            return told.json()["tokens"], told.json()["text"]

        n, text = made(256, 256)
        self.assertEqual(n, 20)
        last = ord(text[0])
        self.assertEqual(made(256, [256, last]), (1, ""))
        self.assertEqual(made([last], None), (1, ""))
        self.assertEqual(made(last, 256), (20, text))  # as in transformers, config.json counts only without the other
        self.assertEqual(made(256, last, "--ignore-end"), (20, text))
        self.assertEqual(made(256, [-1, 9999, "x", None]), (20, text))
        self.write(model + "/generation_config.json", "{")
        self.fails(3, "generate", "--model", model, "--prompt", "so", says="generation_config.json")
        told = "note: the model sees only 32 tokens at a time; whenever the text fills them, the model forgets the older half of"
        self.assertEqual(made(256, 256, "--max-tokens", 31, says="note: --max-tokens is given twice; the last one counts: '31', "
                              "not '20'\n")[0], 31)
        longer = self.ok("generate", "--model", model, "--prompt", "so", "--max-tokens", 32, "--temperature", 0)
        self.assertIn(told, longer.err)

    def test_keys_of_messages(self):
        """What a template cannot show is refused where it was said, and told where it is beside it."""
        thought = {"messages": [user("q"), says("a", reasoning_content="hm")]}
        call = {"messages": [user("q"), says("", tool_calls=[{"function": {"name": "f"}}])]}
        parts = {"messages": [user([{"type": "text", "text": "q"}]), says("a")]}
        own = self.tokenizer(QWEN)
        for chat, word in ((thought, "messages[1] has \"reasoning_content\""), (call, "messages[1] has \"tool_calls\""),
                           (parts, "messages[0] has a \"content\" of parts"),
                           ({"messages": [user("q"), says("a")], "tools": [{"type": "function"}]}, "\"tools\""),
                           ({"messages": [user("q"), says("a")], "documents": [{"title": "t"}]}, "\"documents\"")):
            self.fails(3, *self.prepare_args([chat], *own), says=["in.jsonl:1: ", word, "template"])
        none = {"messages": [user("q", name=None), says("a", reasoning_content="", tool_calls=[])], "tools": []}
        quiet = self.ok(*self.prepare_args([none], *own))
        self.assertNotIn("keys", quiet.err)
        told = self.ok(*self.prepare_args([{"messages": [user("q", name="Ann"), says("a")]}], *own))
        self.assertIn("1 messages have keys that the chat template does not show (such as \"name\")", told.err)
        own = self.tokenizer(THINKS)
        self.ok(*self.prepare_args([thought], *own))
        self.assertEqual(self.shown(), "<user>q|<assistant>{(hm)a|}")
        self.fails(3, *self.prepare_args([{"conversations": [{"from": "gpt", "value": "a", "thinking": "hm"}]}], *own),
                   says="conversations[0] has \"thinking\"")
        self.fails(3, *self.prepare_args([thought], "--template", "plain"), says="\"reasoning_content\"")
        own = self.tokenizer("{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}"
                             "{% for c in m.content if c.type == 'text' %}{{ c.text }}{% endfor %}{% endif %}|{% endfor %}")
        self.ok(*self.prepare_args([parts], *own))
        self.assertEqual(self.shown(), "q|{a|}")
        for part in ("image_url", "refusal"):
            seen = {"messages": [user([{"type": "text", "text": "q"}, {"type": part}]), says("a")]}
            self.fails(3, *self.prepare_args([seen], *own), says=["in.jsonl:1: messages[0]: part 1", f"\"{part}\""])

    def test_template_variables(self):
        """They reach the template, are kept with it and with the data, and are refused where it has none."""
        own = self.tokenizer(THINKS)
        chats = [{"messages": [user("q"), says("a")]},
                 {"messages": [user("r"), says("b")], "chat_template_kwargs": {"enable_thinking": True}}]
        given = {"enable_thinking": False, "date_string": "1 \"May\"", "tools": [{"x": None}]}
        self.ok(*self.prepare_args(chats, *own, "--template-vars", json.dumps(given)))
        end = "{'x': None}1 \"May\""
        first = "<user>q|<assistant>{a|[quiet]" + end + "}<user>r|<assistant>{b|" + end + "}"
        self.assertEqual(self.shown().replace("}<", "<").replace("{", "").replace("}", ""),
                         first.replace("}<", "<").replace("{", "").replace("}", ""))
        self.assertEqual(json.loads(self.read("data", "dataset.json"))["template_vars"], given)
        # the template that is kept says the same by itself
        shown = self.shown()
        self.write("model/chat_template.jinja", self.read("data", "chat_template.jinja"))
        self.ok(*self.prepare_args(chats, *own))
        self.assertEqual(self.shown(), shown)
        for text, word in (("{", "template_vars: "), ("[1]", "not an object"), ('{"thinking": 1}', "\"thinking\""),
                           ('{"add_generation_prompt": true}', "\"add_generation_prompt\" is set by atom"),
                           ('{"eos_token": "x"}', "\"eos_token\" is set by atom"),
                           ('{"enable_thinking": null}', "is null"), ('{"tools": 3}', "\"tools\" is not a list"),
                           ('{"a b": 3}', "not a valid name")):
            self.fails(2, *self.prepare_args(chats, *own, "--template-vars", text), says=word)
        self.fails(3, *self.prepare_args([dict(chats[0], chat_template_kwargs={"think": 1})], *own),
                   says=["in.jsonl:1: ", "\"think\""])
        self.fails(3, *self.prepare_args([dict(chats[0], chat_template_kwargs=3)], *own), says="not an object")
        self.fails(2, *self.prepare_args([{"text": "x"}], "--template-vars", "{}"), says="no chats")
        self.fails(2, "generate", "--model", "model", "--template-vars", "{}", says=["--template-vars", "--chat"])
        self.fails(2, "generate", "--model", "model", "--system", "x", says=["--system", "--chat"])

    def test_a_template_for_tools_is_kept(self):
        """Of a model with two templates, the data keep both as one."""
        own = self.tokenizer()
        self.write("model/tokenizer_config.json", json.dumps({"chat_template": [
            {"name": "default", "template": "  {% if true %}\n d{{ messages[-1].content }}\n{% endif %}\n"},
            {"name": "tool_use", "template": "\n t{{ tools[0] }}{{ messages[-1].content }}  \n"}]}))
        chats = [{"messages": [user("q"), says("a")]}, {"messages": [user("q"), says("b")], "tools": ["x"]}]
        self.ok(*self.prepare_args(chats, *own))
        want = " da\n" + "\n txb  "
        self.assertEqual(self.shown().replace("{", "").replace("}", ""), want)
        self.write("model/tokenizer_config.json", "{}")
        self.write("model/chat_template.jinja", self.read("data", "chat_template.jinja"))
        self.ok(*self.prepare_args(chats, *own))
        self.assertEqual(self.shown().replace("{", "").replace("}", ""), want)

    def test_special_tokens_in_texts(self):
        """They are text unless tokens are asked for; it is said, and written down."""
        self.write("a.txt", "one<|endoftext|>two<|endoftext|>\n")
        told = self.ok("data", "prepare", "-i", "a.txt", "-o", "data", "--val-fraction", 0)
        self.assertIn("contain names of special tokens 2 times (the first is <|endoftext|>)", told.err)
        self.assertIn("--special-tokens ids", told.err)
        self.assertEqual(self.shown(), "{@one<|endoftext|>two<|endoftext|>\n}")
        self.assertEqual(json.loads(self.read("data", "dataset.json"))["special_tokens"], "bytes")
        told = self.ok("data", "prepare", "-i", "a.txt", "-o", "data", "--val-fraction", 0, "--special-tokens", "ids",
                       "--force", "--json")
        self.assertEqual(told.json()["special_names"], 2)
        self.assertEqual(self.shown(), "{@one@two@\n}")
        self.assertEqual(json.loads(self.read("data", "dataset.json"))["special_tokens"], "ids")
        chat = {"messages": [user("q<|endoftext|>"), says("a")]}  # never in chats
        self.ok(*self.prepare_args([chat], *self.tokenizer(QWEN), "--special-tokens", "ids"))
        self.assertEqual(self.shown(), "<user>q<|endoftext|>|<assistant>{a|}")

    def test_characters_without_a_token(self):
        """A Unigram model loses what it does not know: said with how much, and never where bytes stand in."""
        step = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}
        model = {"type": "Unigram", "unk_id": 1, "byte_fallback": False,
                 "vocab": [["</s>", 0], ["<unk>", 0], ["\u2581", -2], ["a", -2], ["b", -2], ["\n", -3]]}
        made = {"added_tokens": [{"id": 0, "content": "</s>", "special": True}, {"id": 1, "content": "<unk>", "special": True}],
                "pre_tokenizer": step, "decoder": step, "model": model}
        known, lost = "ab ba\n", "ab \u4e2d\u6587 xb \u4e2d\n"  # with the space before it, 7 and 12 characters
        for texts, want in (([known], 0), ([lost] * 3 + [known], 12)):
            self.write("tokenizer.json", json.dumps(made))
            self.write("in.jsonl", "".join(json.dumps({"text": text}) + "\n" for text in texts))
            told = self.ok("data", "prepare", "-i", "in.jsonl", "-o", "data", "--val-fraction", 0, "--force", "--json",
                           "--tokenizer", "tokenizer.json")
            self.assertEqual(told.json()["unknown_characters"], want)
            says = "12 of 43 characters (27.9%) have no token and became the unknown token (the first is U+4E2D)"
            self.assertEqual(says in told.err, want > 0, told.err)
        model["byte_fallback"], model["vocab"] = True, model["vocab"] + [[f"<0x{b:02X}>", 0] for b in range(256)]
        self.write("tokenizer.json", json.dumps(made))
        told = self.ok("data", "prepare", "-i", "in.jsonl", "-o", "data", "--val-fraction", 0, "--force", "--json",
                       "--tokenizer", "tokenizer.json")
        self.assertEqual(told.json()["unknown_characters"], 0)
        self.assertNotIn("have no token", told.err)

    def test_arrays_and_tables(self):
        """A JSON array, CSV with a header: the same shards as the lines give."""
        lines = [{"prompt": "q, \"1\"", "completion": "a\nb"}, {"prompt": "r", "completion": "\u00e4 "}]
        own = self.tokenizer(QWEN)
        self.ok(*self.prepare_args(lines, *own))
        want = self.shown()
        self.write("in.json", json.dumps(lines, indent=2))
        table = io.StringIO()
        rows = csv.DictWriter(table, ["prompt", "completion"])
        rows.writeheader()
        rows.writerows(lines)
        self.write("in.csv", table.getvalue())
        for name in ("in.json", "in.csv"):
            self.ok("data", "prepare", "-i", name, "-o", "data", "--force", "--val-fraction", 0, *own)
            self.assertEqual(self.shown(), want, name)
        for content, says in (("text,text\na,b\n", 'two columns of the header are called "text"'),
                              ("text;id\na;1\n", 'the header is one column, "text;id"')):
            self.fails(3, "data", "prepare", "-i", self.write("bad.csv", content), "-o", "d", says=["bad.csv: ", says])
        self.fails(2, "data", "prepare", "-i", self.write("in.xlsx", "x"), "-o", "d", says=[".csv (with a header)"])

    def test_shards_of_two_data_sets(self):
        """What lies beside a data set and is not of it may be of another tokenizer; a part of one is one."""
        for name, size in ("a", 4000), ("b", 6000):
            self.write(name + ".txt", tool.english(size))
            self.ok("data", "prepare", "-i", name + ".txt", "-o", name)
        before = self.ok("data", "inspect", "a", "--json").json()["train"]["tokens"]
        shutil.copy(self.path("b", "train_000000.bin"), self.path("a", "train_000001.bin"))
        both = before + self.ok("data", "inspect", "b", "--json").json()["train"]["tokens"]
        self.fails(3, "data", "inspect", "a", says=[f"{both} tokens to train on, but dataset.json says {before}", "another data set"])
        os.unlink(self.path("a", "dataset.json"))
        self.assertEqual(self.ok("data", "inspect", "a", "--json").json()["train"]["tokens"], both)

    def test_shards_without_a_tokenizer(self):
        """What only a tokenizer knows is unknown without one, not 0."""
        self.write("t.txt", tool.english(4000))
        self.ok("data", "prepare", "-i", "t.txt", "-o", "data")
        for name in "tokenizer.json", "dataset.json":
            os.unlink(self.path("data", name))
        made = self.ok("data", "inspect", "data", "--json").json()
        unknown = [made["vocab"], made["end_of_text"], made["bytes_per_token"], made["train"]["documents"]]
        self.assertEqual(unknown, [None] * 4)
        told = self.ok("data", "inspect", "data").out
        self.assertIn("tokenizer        unknown: there is no tokenizer.json\n", told)
        self.assertIn("unknown number of documents", told)
        self.assertNotIn("vocabulary", told)
        self.assertNotIn("per token", told)

    def test_shards_that_are_missing(self):
        """A copy that was interrupted is trained on, but not without a word."""
        self.write("t.txt", tool.english(4000))
        self.ok("data", "prepare", "-i", "t.txt", "-o", "data")
        self.assertNotIn("are here", self.ok("data", "inspect", "data").err)
        whole = json.loads(self.read("data", "dataset.json"))
        for split in "train", "val":
            whole[split]["tokens"] += 5000  # as if it were the first of two
        for wrong in "1", 1.5, -1, [1]:
            self.write("data/dataset.json", json.dumps({**whole, "train": {**whole["train"], "mask": wrong}}))
            self.fails(3, "data", "inspect", "data", says=["data/dataset.json: mask must be a whole number"])
        self.write("data/dataset.json", json.dumps(whole))
        said = {split: f"only {whole[split]['tokens'] - 5000} are here" for split in ("train", "val")}
        self.write("c.json", json.dumps(dict(model_type="gpt2", n_embd=16, n_layer=1, n_head=2, n_positions=32, vocab_size=257)))
        shape = ["--data", "data", "--sequence-len", 16, "--micro-batch-size", 1]
        train = self.ok("train", "--model", "c.json", *shape, "-o", "run", "--max-steps", 1, "--quiet", "--num-train-epochs", 0,
                        "--gradient-accumulation-steps", 1)
        for told in train, self.ok("data", "inspect", "data"):
            for split in said:
                self.assertEqual(told.err.count(said[split]), 1, told.err)
        self.assertIn(said["val"], self.ok("eval", "--model", "run/checkpoint-1", *shape).err)

    def test_what_fills_no_sequence(self):
        """Of few data the tokens behind the last whole sequence are many, and neither learned nor measured without a word."""
        self.write("t.txt", tool.english(4000))
        made = self.ok("data", "prepare", "-i", "t.txt", "-o", "data", "--val-fraction", 0.5, "--json").json()
        self.write("c.json", json.dumps(dict(model_type="gpt2", n_embd=16, n_layer=1, n_head=2, n_positions=1400, vocab_size=257)))
        rest = {split: (made[split]["tokens"] - 1) % 1400 for split in ("train", "val")}
        shape = ["--data", "data", "--micro-batch-size", 1]
        train = ["train", "--model", "c.json", *shape, "--max-steps", 1, "--gradient-accumulation-steps", 1]
        told = self.ok(*train, "-o", "run", "--sequence-len", 1400, "--quiet").err
        self.assertIn(f"the last {rest['train']} of {made['train']['tokens']} tokens do not fill a sequence of 1400", told)
        self.assertNotIn("do not fill", self.ok(*train, "-o", "other", "--sequence-len", 32, "--quiet").err)
        measure = ["eval", "--model", "run/checkpoint-1", *shape]
        told = self.ok(*measure, "--sequence-len", 1400).err
        self.assertIn(f"the last {rest['val']} of {made['val']['tokens']} tokens of the val split do not fill", told)
        for few in ["--sequence-len", 32], ["--sequence-len", 1400, "--batches", 1]:
            self.assertNotIn("do not fill", self.ok(*measure, *few).err)

    def test_a_validation_split_of_another_size(self):
        """Whole documents are set aside: where one is most of the text, that may be all of it, or nothing."""
        told = {}
        for at in range(0, 21, 4 if tool.SANITIZED else 1):
            texts = ["a few words"] * 20
            texts.insert(at, "many words " * 2000)
            self.write("in.jsonl", "".join(json.dumps({"text": text}) + "\n" for text in texts))
            made = self.ok("data", "prepare", "-i", "in.jsonl", "-o", "data", "--force", "--json", "--val-fraction", 0.1)
            counts = made.json()
            share = counts["val"]["tokens"] / (counts["val"]["tokens"] + counts["train"]["tokens"])
            self.assertIn(f"{100 * share:.3g} % of the tokens are for validation, not 10 %", made.err)
            told[share > 0.5] = True
        self.assertEqual(set(told), {True, False})
        self.write("in.jsonl", "".join(json.dumps({"text": "some words"}) + "\n" for _ in range(50)))
        self.assertNotIn("for validation", self.ok("data", "prepare", "-i", "in.jsonl", "-o", "data", "--force").err)

    def test_a_file_that_is_named_twice(self):
        self.write("a.txt", "once\n")
        os.symlink("a.txt", self.path("b.txt"))
        told = self.ok("data", "prepare", "-i", "a.txt", "b.txt", "-o", "data", "--val-fraction", 0)
        self.assertIn("b.txt is the same file as a.txt", told.err)

    def test_tokenizers_that_are_none(self):
        self.write("a.txt", "a")
        self.write("tokenizer.model", "\n\x0e")
        for path, words in (("tokenizer.model", ["SentencePiece or tiktoken", "save_pretrained"]),
                            (self.dir, ["is a directory", "tokenizer.json"])):
            found = self.run_atom("data", "prepare", "-i", "a.txt", "-o", "d", "--tokenizer", path)
            self.assertNotEqual(found.code, 0)
            for word in words:
                self.assertIn(word, found.err)


if __name__ == "__main__":
    tool.main()
