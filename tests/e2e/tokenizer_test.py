"""A tokenizer of files in a run: its vocabulary is the model's, its ids are trained on, its words come back."""
import json

import e2e

WORDS = ["[UNK]", "[PAD]", *(str(n) for n in range(40)), "##0", "##1", "##2", "##3", "##4", "##5", "##6", "##7", "##8",
         "##9"]
FILE = {
    "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "post_processor": None,
    "added_tokens": [{"id": 52, "content": "<end>", "single_word": False, "lstrip": False, "rstrip": False,
                      "normalized": False, "special": True}],
    "pre_tokenizer": {"type": "WhitespaceSplit"}, "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": False},
    "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
              "max_input_chars_per_word": 100, "vocab": {word: i for i, word in enumerate(WORDS)}},
}


class Files(e2e.Case):
    def setUp(self):
        super().setUp()
        self.file("words/tokenizer.json", json.dumps(FILE))
        self.file("run.toml", e2e.TINY.replace("[tokenizer.byte]", '[tokenizer.huggingface]\npath = "words"'))

    def test_a_model_of_its_vocabulary_is_trained_and_says_words(self):
        self.ok("train", "run.toml")
        config = json.loads((self.dir / "runs/run/checkpoints/latest/model/config.json").read_text())
        self.assertEqual(config["vocab_size"], 53)
        out = self.ok("sample", "runs/run", "--prompt", "1 2 3", "--tokens", "12").out
        words = out.removeprefix("1 2 3").split()
        self.assertGreater(len(words), 1, out)
        self.assertTrue(all(w.isdigit() or w in ("[UNK]", "[PAD]", "<end>") or "##" in w for w in words), out)

    def test_a_checkpoint_and_an_export_have_its_files_as_they_were_read(self):
        self.file("words/tokenizer_config.json", '{"unk_token": "[UNK]"}')
        self.ok("train", "run.toml")
        self.file("words/tokenizer_config.json", "{}")
        said = self.ok("export", "runs/run", "-o", "out").out
        self.assertNotIn("no tokenizer", said)
        for folder in ("runs/run/checkpoints/latest/model", "out"):
            self.assertEqual(json.loads((self.dir / folder / "tokenizer.json").read_text()), FILE)
            self.assertEqual((self.dir / folder / "tokenizer_config.json").read_text(), '{"unk_token": "[UNK]"}')

    def test_a_part_that_is_not_supported_is_named_with_its_file(self):
        self.file("words/tokenizer.json", json.dumps(FILE | {"decoder": {"type": "CTC"}}))
        done = self.mortise("plan", "run.toml")
        self.assertEqual(done.code, 64)
        self.assertIn("words/tokenizer.json: decoder.type is `CTC`, a decoder that is not supported\n"
                      "  --> run.toml:9:8\n", done.err)

    def test_a_text_that_it_cannot_read_is_named_with_its_reason(self):
        model = {"type": "Unigram", "unk_id": None, "vocab": [["a", -1.0]], "byte_fallback": False}
        self.file("words/tokenizer.json", json.dumps(FILE | {"added_tokens": [], "model": model}))
        done = self.mortise("plan", "run.toml")
        self.assertEqual(done.code, 64)
        self.assertRegex(done.err, r"cannot read \S+: tokenizer.huggingface: \S*words/tokenizer.json: `.*` is not in "
                                   r"the vocabulary, and model.unk_id is not set\n  --> run.toml:")

    def test_without_a_path_it_says_what_to_write(self):
        self.file("run.toml", e2e.TINY.replace("[tokenizer.byte]", "[tokenizer.huggingface]"))
        done = self.mortise("plan", "run.toml")
        self.assertEqual(done.code, 64)
        self.assertIn("no tokenizer is named", done.err)

    def test_without_a_path_it_is_that_of_the_weights(self):
        self.ok("train", "run.toml")
        self.ok("export", "runs/run", "-o", "hf")
        text = e2e.TINY.replace("[tokenizer.byte]", "[tokenizer.huggingface]\n[model]\nweights = \"hf\"")
        run = self.train("tuned", text.replace("layers = 1\nheads = 2\nwidth = 16\n", ""))
        self.assertRegex((run / "run.toml").read_text(), rf'path = "{self.dir}/hf" +# tuned.toml:10:')
        # What was taken is recorded: weights and their folder may go, but for the tokenizer.
        self.ok("sample", "runs/tuned", "--tokens", "2")
        self.file("none.toml", text.replace("weights = \"hf\"", ""))
        self.assertIn("no tokenizer is named", self.mortise("plan", "none.toml").err)

    def test_of_a_run_whose_file_is_gone(self):
        self.ok("train", "run.toml", "--set", "data.validation=0.2")
        (self.dir / "words").rename(self.dir / "moved")
        for verb in (["eval", "runs/run"], ["sample", "runs/run", "--tokens", "2"]):
            self.assertRegex(self.ok(*verb).err,
                             rf"^warning\[tokenizer_moved\]: {self.dir}/words is no longer there\n  --> .*\n"
                             r"  effect: the one that the run saved is read: runs/run/checkpoints/latest/model\n$")
        self.ok("resume", "runs/run", "--set", "run.length=8")
        self.ok("resume", "runs/run", "--set", "run.length=9")


if __name__ == "__main__":
    e2e.main()
