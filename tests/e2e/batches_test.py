"""What is done with a micro-batch on its way to the model, and which samples it is made of: data.pack, data.masking,
data.mixture."""
import json
import re

import e2e
from resume_test import Stopped

# SGD: a difference in the last bits of a gradient stays one of the weights. Adam would divide by it.
ROWS = """\
[run]
length = 20
[data]
micro_batch_size = 8
sequence_length = 24
[data.table]
path = "rows.jsonl"
validation_path = "held.jsonl"
[tokenizer.byte]
[eval]
every = 10
[log]
every = 1
[optimizer]
lr = 0.1
[optimizer.sgd]
"""
GPT = "[model.gpt]\nlayers = 2\nheads = 2\nwidth = 16\n"
LLAMA = "[model.llama]\nlayers = 2\nheads = 4\nkv_heads = 2\nwidth = 16\ninner = 32\ncontext = 64\n"
BERT = ('[model.bert]\nlayers = 2\nheads = 2\nwidth = 16\ninner = 32\ncontext = 64\ntask = "masked_lm"\n'
        "dropout = 0.0\nattention_dropout = 0.0\n")
TEXT = ROWS.replace('[tokenizer', 'text = "q"\n[tokenizer')
SAVED = "[checkpoint]\nevery = 4\nkeep = 99\n[step.accumulation]\ncount = 2\n[loader.prefetch]\nworkers = 2\n"

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(str(n) for n in range(60))]
WORDPIECE = {
    "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "post_processor": None,
    "added_tokens": [{"id": i, "content": word, "single_word": False, "lstrip": False, "rstrip": False,
                      "normalized": False, "special": True} for i, word in enumerate(WORDS[:5])],
    "pre_tokenizer": {"type": "WhitespaceSplit"}, "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": False},
    "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
              "max_input_chars_per_word": 100, "vocab": {word: i for i, word in enumerate(WORDS)}},
}
ROLES = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}


class Case(Stopped):
    def setUp(self):
        super().setUp()
        self.rows("rows.jsonl", range(50))
        self.rows("held.jsonl", range(50, 70))

    def rows(self, name, numbers):
        """Texts of 2 to 20 letters, and a last one of one."""
        rows = [{"q": str(n)[-1] * (2 + n * 7 % 19), "a": "ab"[: n % 2 + 1]} for n in numbers]
        self.file(name, "".join(json.dumps(row) + "\n" for row in rows))

    def losses(self, run):
        return [r["loss"] for r in self.records(run, "step")] + [r["eval.loss"] for r in self.records(run, "eval")]

    def near(self, ours, theirs, bound):
        self.assertEqual(len(ours), len(theirs))
        for a, b in zip(ours, theirs):
            self.assertLessEqual(abs(a - b), bound, (ours, theirs))

    def goes_on_exactly(self, text):
        """A run that was killed after step 4 ends with the bits of one that was not."""
        run = self.train("mine", text + SAVED, "--set", "run.length=8")
        whole, steps = self.weights(run), self.records(run, "step")
        self.stop_at(run, 4)
        self.ok("resume", "runs/mine")
        self.assertEqual(self.weights(run), whole)
        again = {r["step"]: r for r in self.records(run, "step")}
        for r in steps:
            for key in r:
                if key == "loss" or key.startswith("drawn."):
                    self.assertEqual(again[r["step"]][key], r[key])


class Pack(Case):
    def logits(self, name, text):
        """Of each sample of the first micro-batch and each of its positions."""
        if not (self.dir / "more/test.logits/test.logits.so").exists():
            self.build()
        self.file(f"{name}.toml", text + "[test.logits]\n")
        one = ("--set", "run.length=1", "--set", "data.shuffle=false")
        self.ok("train", f"{name}.toml", "--plugin-path", "more", *one)
        lines = {}
        for line in (self.dir / "logits.txt").read_text().splitlines():
            sample, position, *logits = line.split()
            # Padding of a row that is not packed has position 0, and stands behind.
            lines.setdefault((int(sample), int(position)), [float.fromhex(x) for x in logits])
        return lines

    def build(self):
        self.file("more/test.logits/plugin.toml",
                  '[plugin]\nid = "test.logits"\nversion = "0.1.0"\nsummary = "logits"\nstatus = "alpha"\nabi = "0.2"\n'
                  '[points]\nwraps = [{ point = "forward", band = "watch" }]\n')
        self.compiled(self.dir / "more/test.logits", e2e.SOURCE / "tests/e2e/fixtures/logits.cpp")

    def test_no_sample_sees_another(self):
        for model in (GPT, LLAMA):
            with self.subTest(model):
                self.rows("rows.jsonl", range(50))
                plain = self.logits("plain", TEXT + model)
                packed = self.logits("packed", TEXT + model + "[data.pack]\n")
                samples = {key: row for key, row in packed.items() if key[0] >= 0}
                self.assertEqual(samples.keys(), plain.keys())
                # Sums of two dozen products of numbers of about 1 in fp32, in two layers, in another order.
                for key, logits in samples.items():
                    for a, b in zip(logits, plain[key]):
                        self.assertLess(abs(a - b), 1e-5)
                rows = [json.loads(line) for line in (self.dir / "rows.jsonl").read_text().splitlines()]
                rows[3]["q"] = "x" + rows[3]["q"][1:]
                self.file("rows.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
                other = self.logits("other", TEXT + model + "[data.pack]\n")
                for key, logits in samples.items():
                    self.assertEqual(other[key] == logits, key[0] != 3, key)

    def test_a_packed_run_learns_what_the_other_learns(self):
        completion = ROWS.replace("[tokenizer", 'prompt = "q"\ncompletion = "a"\n[tokenizer')
        for i, text in enumerate((TEXT + GPT, TEXT + LLAMA, completion + GPT)):
            with self.subTest(i):
                plain = self.train(f"plain{i}", text)
                packed = self.train(f"packed{i}", text + "[data.pack]\nmultiple = 1\n")
                self.near(self.losses(packed), self.losses(plain), 1e-5)
                self.assertEqual(len(self.losses(plain)), 22)
                for a, b in zip(self.records(packed, "step"), self.records(plain, "step")):
                    self.assertEqual((a["samples"], a["tokens"]), (b["samples"], b["tokens"]))
                # Texts of 11 letters on average in rows of 24; 2 samples are left for an epoch's last micro-batch.
                self.assertGreater(sum(a["samples_per_row"] for a in self.records(packed, "step")), 20 * 1.2)

    def test_a_packed_run_goes_on_exactly(self):
        self.goes_on_exactly(TEXT + GPT + "[data.pack]\n")

    def test_any_number_of_loaders_gives_the_same_bits(self):
        short = TEXT + GPT + "[data.pack]\n[loader.prefetch]\nworkers = 0\n"
        alone = self.train("alone", short, "--set", "run.length=8")
        several = self.train("several", short.replace("workers = 0", "workers = 3"), "--set", "run.length=8")
        self.assertEqual(self.weights(alone), self.weights(several))

    def test_random_samples_of_unlike_lengths_are_packed_too(self):
        run = self.train("random", e2e.TINY.replace('[data.text]\npath = "notes.txt"', "[data.random]\nshortest = 2")
                         + "[data.pack]\n[log]\nevery = 1\n")
        self.assertGreater(sum(r["samples_per_row"] for r in self.records(run, "step")), 6.5)

    def test_labels_of_whole_samples_are_refused(self):
        self.file("run.toml", ROWS.replace("[tokenizer", 'text = "q"\nlabel = "a"\n[tokenizer')
                  + BERT.replace("masked_lm", "classification") + "[data.pack]\n")
        result = self.mortise("train", "run.toml")
        self.assertEqual(result.code, 65, result)
        self.assertIn("`labels` has no element for each position, so samples cannot be packed", result.err)
        self.assertIn("fix: leave [data.pack] out", result.err)


class Masking(Case):
    def setUp(self):
        super().setUp()
        self.file("words/tokenizer.json", json.dumps(WORDPIECE))
        self.file("words/tokenizer_config.json", json.dumps(ROLES))
        self.words("rows.jsonl", range(50))
        self.words("held.jsonl", range(50, 70))
        words = TEXT.replace("[tokenizer.byte]", '[tokenizer.huggingface]\npath = "words"')
        self.text = words + BERT + "[data.masking]\n"

    def words(self, name, numbers):
        """Rows of 3 to 19 numbers that follow one another."""
        rows = [{"q": " ".join(str((n + i) % 60) for i in range(3 + n * 7 % 17)), "a": "x"} for n in numbers]
        self.file(name, "".join(json.dumps(row) + "\n" for row in rows))

    def test_evaluations_hide_the_same_and_each_epoch_others(self):
        run = self.train("still", self.text, "--set", "optimizer.lr=0", "--set", "eval.every=7")
        evals = [r["eval.loss"] for r in self.records(run, "eval")]
        self.assertEqual(len(set(evals)), 1, evals)
        self.assertGreater(len(evals), 1)
        steps = self.records(run, "step")
        self.assertEqual(len({r["loss"] for r in steps}), 20)
        self.assertGreater(len({r["tokens"] for r in steps[0:14:7]} | {r["loss"] for r in steps[0:14:7]}), 2)

    def test_a_masked_run_goes_on_exactly(self):
        self.goes_on_exactly(self.text)

    # Samples are masked before they are packed: the same words.
    def test_packed_it_learns_the_same(self):
        plain = self.train("plain", self.text)
        packed = self.train("packed", self.text + "[data.pack]\n")
        self.near(self.losses(packed), self.losses(plain), 1e-5)
        self.assertGreater(self.records(packed, "step")[0]["samples_per_row"], 1.3)

    def test_rows_with_a_label_have_the_special_tokens(self):
        run = self.train("labelled", self.text.replace('text = "q"', 'text = "q"\nlabel = "a"'))
        self.assertEqual(len(self.records(run, "step")), 20)

    def test_rows_of_text_alone_are_whole_if_they_are_said_to_be_masked(self):
        text = self.text.replace('text = "q"', 'text = "q"\nmasked = true')
        # data.masking replaces the labels that a table has: the same samples.
        run = self.train("whole", text)
        labelled = self.train("labelled", self.text.replace('text = "q"', 'text = "q"\nlabel = "a"'))
        self.assertEqual(self.losses(run), self.losses(labelled))
        self.file("unmasked.toml", text.replace("[data.masking]\n", ""))
        result = self.mortise("train", "unmasked.toml")
        self.assertNotEqual(result.code, 0, result)
        self.assertIn("`labels`", result.err)

    def test_whole_words_are_hidden_and_go_on_exactly(self):
        digits = [*WORDS[:5], *"0123456789", *(f"##{n}" for n in range(10))]
        pieces = {**WORDPIECE, "model": {**WORDPIECE["model"], "vocab": {word: i for i, word in enumerate(digits)}}}
        self.file("words/tokenizer.json", json.dumps(pieces))
        self.goes_on_exactly(self.text + "whole_words = true\n")
        # As many tokens as without, by the words: most have two pieces here.
        one, other = (self.train(name, self.text + f"whole_words = {name}\n") for name in ("true", "false"))
        self.assertNotEqual(self.losses(one), self.losses(other))

    def test_whole_words_of_a_tokenizer_without_pieces_are_refused(self):
        self.file("run.toml", self.text + "whole_words = true\n")
        result = self.mortise("plan", "run.toml")
        self.assertEqual(result.code, 64, result)
        self.assertIn("the tokenizer writes white space before every token, so none goes on with a word\n"
                      "  --> run.toml:29:15\n  fix: whole_words = false", result.err)

    def test_words_are_learned(self):
        text = self.text.replace("[optimizer.sgd]", "[optimizer.adamw]").replace("size = 8", "size = 32")
        run = self.train("learned", text, "--set", "run.length=150", "--set", "optimizer.lr=0.01")
        losses = self.losses(run)
        self.assertLess(sum(losses[130:150]) / 20, losses[0] - 1)  # which is ln 65, of a model that knows nothing

    def test_a_tokenizer_without_a_mask_is_refused(self):
        self.file("run.toml", TEXT + BERT + "[data.masking]\n")
        for verb in ("plan", "train"):
            result = self.mortise(verb, "run.toml")
            self.assertEqual(result.code, 64, result)
            self.assertIn("data.masking hides tokens behind the tokenizer's `mask`, and it has none", result.err)


MIXED = e2e.TINY.replace('path = "notes.txt"', 'path = ["web/*.txt", "code.txt"]').replace(
    "length = 6", "length = 40") + "[log]\nevery = 1\n"


class Mixture(Case):
    def setUp(self):
        super().setUp()
        for i in range(3):
            self.file(f"web/{i}.txt", f"{i} web " * 100)
        self.file("code.txt", "int main() {} " * 20)

    def drawn(self, run):
        return [(r["drawn.web/*.txt"], r["drawn.code.txt"]) for r in self.records(run, "step")]

    def test_it_draws_by_weights_that_change_and_says_so(self):
        text = MIXED + "[data.mixture]\nweights = [0.25, 0.75,  1, 0]\nfrom_step = [20]\n"
        plan = self.ok("plan", self.file("mixed.toml", text)).out
        self.assertRegex(plan, r"25 % web/\*.txt \(\d+\), 75 % code.txt \(\d+\); from step 20")
        drawn = self.drawn(self.train("mixed", text))
        for step, (web, code) in enumerate(drawn[:20], 1):
            self.assertEqual(web + code, step * 4)
            # Less than 2 for each one in the binary digits: plugins/data/mixture/mixture.cpp.
            self.assertLess(abs(code - 0.75 * 4 * step), 2 * (4 * step).bit_count())
        self.assertEqual([code for web, code in drawn[19:]], 21 * [drawn[19][1]])

    def test_a_mixed_run_goes_on_exactly(self):
        mixed = "[data.mixture]\nweights = [0.3, 0.7,  0.6, 0.4]\nfrom_step = [3]\n"
        self.goes_on_exactly(MIXED + mixed)

    def test_the_weights_of_a_run_are_fixed(self):
        text = MIXED.replace("length = 40", "length = 6") + "[checkpoint]\nevery = 2\nkeep = 9\n"
        text += "[data.mixture]\nweights = [1, 1]\n"
        run = self.train("mixed", text)
        self.stop_at(run, 4)
        result = self.mortise("resume", "runs/mixed", "--set", "data.mixture.weights=[1, 2]")
        self.assertEqual(result.code, 64, result)
        self.assertIn("data.mixture.weights", result.err)

    def test_held_out_samples_are_not_drawn(self):
        text = MIXED.replace("micro_batch_size = 4", "micro_batch_size = 4\nvalidation = 0.3")
        plan = self.ok("plan", self.file("held.toml", text + "[data.mixture]\nweights = [1, 1]\n")).out
        counts = [int(n) for n in re.findall(r"\.txt \((\d+)\)", plan)]
        self.assertIn(f"· {sum(counts)} samples to train", plan)

    def test_weights_that_make_no_mixture_are_refused(self):
        for weights, why in (("[1]", "1 weights for 2 sources (web/*.txt, code.txt)"),
                             ("[0, 0]", "all weights are 0: nothing would be drawn"),
                             ("[1, 1e-9]", "the weight of code.txt is less than 1 of 65,536")):
            self.file("run.toml", MIXED + f"[data.mixture]\nweights = {weights}\n")
            for verb in ("plan", "train"):
                result = self.mortise(verb, "run.toml")
                self.assertEqual(result.code, 64, result)
                self.assertIn(f"error[refused_value]: {why}\n  --> run.toml:", result.err)


if __name__ == "__main__":
    e2e.main()
