"""A shipped manifest to begin with: what is written, and that it trains once its lines are filled."""
import json
import random

import e2e
from tokenizer_test import FILE

SHIPPED = sorted(path.stem for path in (e2e.SOURCE / "configs/init").iterdir())
SMALL = ["--set", "data.micro_batch_size=4", "--set", "data.sequence_length=16"]


class Init(e2e.Case):
    def test_lists_what_is_shipped(self):
        lines = self.ok("init", "--list").out.splitlines()
        self.assertEqual([line.split()[0] for line in lines], SHIPPED)
        self.assertEqual(lines[0], "bert_classification   fine-tune a BERT folder on a CSV, TSV or JSONL")
        self.assertEqual(self.ok("init").out.splitlines(), lines)
        rows = json.loads(self.ok("init", "--list", "--json").out)["manifests"]
        self.assertEqual([row["name"] for row in rows], SHIPPED)

    def test_writes_what_is_shipped_and_overwrites_nothing(self):
        for name in SHIPPED:
            text = (e2e.SOURCE / f"configs/init/{name}.toml").read_text()
            self.assertTrue(text.startswith("# "), name)
            out = self.ok("init", name).out
            count = text.count("# <--")
            self.assertGreater(count, 0, name)
            lines = "one line marked <-- is" if count == 1 else f"{count} lines marked <-- are"
            self.assertEqual(out, f"wrote {name}.toml; {lines} yours to fill: then mortise train {name}.toml\n")
            self.assertEqual((self.dir / f"{name}.toml").read_text(), text)
            self.assertEqual(self.ok("init", name, "-o", "-").out, text)
        self.file("mine.toml", "mine")
        self.refused(["init", "gpt_from_text", "-o", "mine.toml"],
                     "error[out_exists]: mine.toml exists; nothing is overwritten\n"
                     "  fix: another file: -o mine-2.toml\n", code=73)
        self.assertEqual((self.dir / "mine.toml").read_text(), "mine")
        self.assertEqual(self.mortise("init", "gpt_from_text", "-o", "nowhere/a.toml").code, 74)

    def test_a_name_that_is_nearly_right(self):
        self.refused(["init", "gpt2_124"], "error[unknown_manifest]: no manifest `gpt2_124` is shipped\n"
                                           "  fix: mortise init gpt2_124m\n")
        self.refused(["init", "weather"], "error[unknown_manifest]: no manifest `weather` is shipped\n"
                                          "  fix: mortise init --list\n")

    def filled(self, name, *lines):
        self.ok("init", name)
        path = self.dir / f"{name}.toml"
        text = path.read_text()
        for old, new in lines:
            self.assertEqual(text.count(old), 1, old)
            text = text.replace(old, new)
        path.write_text(text)
        return f"{name}.toml"

    def folder_of(self, model):
        """A Hugging Face folder with a tokenizer.json, of a model that is not trained."""
        self.file("words/tokenizer.json", json.dumps(FILE))
        self.file("tiny.toml", '[run]\nlength = 1\n[data]\nmicro_batch_size = 4\n' + model + '[optimizer.adamw]\n'
                               '[tokenizer.huggingface]\npath = "words"\n')
        self.ok("train", "tiny.toml")
        self.ok("export", "runs/tiny", "-o", "hf")

    def test_text(self):
        run = self.filled("gpt_from_text")
        self.assertEqual(self.ok("train", run, *SMALL, "--set", "run.length=2").err, "")

    def test_tokens(self):
        run = self.filled("gpt2_124m", ('"fineweb_train_*.bin"', '"t.bin"\nformat = "raw"\ndtype = "uint16"\n'
                                                                 'vocabulary = 50257'),
                          ('"fineweb_val_*.bin"', '"t.bin"'))
        ids = random.Random(1)
        self.file("t.bin", b"".join(ids.randrange(50257).to_bytes(2, "little") for _ in range(40_000)))
        out = self.ok("plan", run).out
        self.assertIn("model.gpt 124.4 M parameters", out)

    def test_classes(self):
        self.file("reviews.csv", "review,sentiment\n" + "1 2 3,good\n4 5 6,bad\n" * 10)
        self.folder_of('[data.table]\npath = "reviews.csv"\ntext = "review"\nlabel = "sentiment"\n'
                       '[model.bert]\nlayers = 1\nheads = 2\nwidth = 16\ninner = 16\n')
        run = self.filled("bert_classification", ('"bert-base-uncased"', '"hf"'))
        done = self.ok("train", run, *SMALL, "--set", "run.length=2")
        self.assertIn("eval.f1", done.out)
        self.assertEqual(done.err, "")

    def test_adapters(self):
        self.file("questions.jsonl", "".join(f'{{"question": "{n}", "answer": "{n} {n}"}}\n' for n in range(40)))
        self.folder_of('[data.table]\npath = "questions.jsonl"\nprompt = "question"\ncompletion = "answer"\n'
                       '[model.llama]\nlayers = 1\nheads = 2\nwidth = 16\ninner = 16\n')
        run = self.filled("llama_lora", ('"Llama-3.2-1B"', '"hf"'), ("bos        = true\n", ""))
        self.assertEqual(self.ok("train", run, *SMALL, "--set", "run.length=2").err, "")


if __name__ == "__main__":
    e2e.main()
