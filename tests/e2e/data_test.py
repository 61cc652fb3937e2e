"""Data of files, through the program: tokens of other programs, rows of tables."""
import array
import csv
import io
import json

import e2e

# What e2e.TINY trains on its text, on tokens and tables.
OTHER = e2e.TINY.replace('[data.text]\npath = "notes.txt"\n', "")
TOKENS = OTHER + '[data.tokens]\npath = "*.bin"\n'
BARE = TOKENS + 'format = "raw"\ndtype = "uint16"\n'
TABLE = OTHER + '[data.table]\npath = "rows.csv"\n'


class Tokens(e2e.Case):
    # nanoGPT's train.bin of a text's bytes: the samples of data.text, so the same bits.
    def test_bare_ids_train_as_the_text_that_they_are(self):
        ids = array.array("H", list((self.dir / "notes.txt").read_bytes()))
        self.file("part1.bin", ids[:333].tobytes())
        self.file("part2.bin", ids[333:].tobytes())
        text = self.train("text", e2e.TINY.replace("length = 6", "length = 2"))
        tokens = self.train("tokens", BARE.replace("length = 6", "length = 2"))
        self.assertEqual(self.weights(tokens), self.weights(text))
        # llm.c's header before them says what it is; with the share held out as of a text.
        header = array.array("i", [20240520, 1, len(ids)] + 253 * [0])
        self.file("part1.bin", header.tobytes() + ids.tobytes())
        (self.dir / "part2.bin").unlink()
        plan = self.ok("plan", self.file("llmc.toml", TOKENS), "--set", "data.validation=0.1").out
        self.assertIn("data     data.tokens part1.bin, 1,489 tokens · 84 samples to train, 9 to validate", plan)

    def test_a_resumed_run_wants_the_tokens_that_it_began_with(self):
        ids = array.array("H", 100 * list(range(10)))
        self.file("a.bin", ids.tobytes())
        run = self.train("tokens", BARE, "--set", "run.length=2")
        for last, code, said in [(200, "data_changed", ""), (256, "bad_data", "token 999 is the id 256")]:
            ids[-1] = last
            self.file("a.bin", ids.tobytes())
            resumed = self.mortise("resume", run, "--set", "run.length=4")
            self.assertIn(f"error[{code}]", resumed.err)
            self.assertIn(said, resumed.err)
            self.assertEqual(resumed.code, 65, resumed)

    # Samples are asked for by text: a prompt may have ids that no row of the model is for.
    def test_a_tokenizer_of_a_larger_vocabulary_is_refused(self):
        self.file("a.bin", array.array("H", 100 * list(range(10))).tobytes())
        self.train("small", BARE.replace("[tokenizer.byte]\n", "") + "vocabulary = 10\n")
        refused = self.mortise("sample", "runs/small", "--use", "tokenizer.byte", "--prompt", "a")
        self.assertIn("error[tokenizer_too_large]: tokenizer.byte has 256 tokens, model.gpt a vocabulary of 10\n",
                      refused.err)
        self.assertEqual(refused.code, 64)

    def test_files_without_a_header_are_refused_with_what_they_may_be(self):
        self.file("a.bin", b"HTTP and more")
        self.file("run.toml", TOKENS)
        self.refused(["train", "run.toml"],
                     f"error[no_token_header]: {self.dir}/a.bin does not begin with an llm.c header (first int32 is "
                     "1,347,703,880, expected 20240520 or 20240801)\n"
                     "  --> run.toml:13:8\n"
                     '  fix: if these are bare token ids (nanoGPT\'s train.bin): set data.tokens.format = "raw", '
                     'data.tokens.dtype = "uint16"; if they are Megatron\'s: the .idx file must lie beside the .bin\n\n'
                     "1 error; nothing was started.\n", 65)


class Table(e2e.Case):
    ROWS = [{"n": i, "q": f'{i}: "what", is\nthis\u00e9', "a": f"row {i}, {i * i}"} for i in range(20)]

    def rows(self, name, **more):
        text = io.StringIO()
        writer = csv.DictWriter(text, [*self.ROWS[0], *more], lineterminator=more.pop("end", "\r\n"))
        writer.writeheader()
        writer.writerows({**row, **{k: f(row) for k, f in more.items()}} for row in self.ROWS)
        return self.file(name, text.getvalue())

    # What Python writes as CSV and as JSON is the same row.
    def test_csv_and_jsonl_train_alike(self):
        self.rows("rows.csv")
        self.file("rows.jsonl", "".join(json.dumps(row) + "\n" for row in self.ROWS))
        columns = 'prompt = "q"\ncompletion = "a"\n'
        short = TABLE.replace("length = 6", "length = 2").replace("length = 16", "length = 40") + columns
        of_csv = self.train("csv", short)
        of_json = self.train("json", short.replace("rows.csv", "rows.jsonl"))
        self.assertEqual(self.weights(of_csv), self.weights(of_json))
        self.assertGreater(self.records(of_csv, "step")[0]["loss"], 5)

    def test_classes_are_said_and_a_column_that_is_missing_is_refused(self):
        self.rows("rows.csv", sentiment=lambda row: "good" if row["n"] % 3 else "bad")
        self.file("run.toml", TABLE + 'text = "q"\nlabel = "stars"\n')
        self.refused(["plan", "run.toml"],
                     "error[no_column]: rows.csv has no column `stars`\n"
                     "  --> run.toml:15:9    rows.csv:1 has: n, q, a, sentiment\n"
                     "  fix: name one of these\n\n1 error; nothing was started.\n")
        out = self.ok("plan", "run.toml", "--set", "data.table.label=sentiment").out
        self.assertIn("data     data.table rows.csv, 20 rows, 2 classes, ", out)
        self.assertIn(" % longer than 16 tokens and cut · 20 samples to train", out)


class Targets(e2e.Case):
    """Of some rows the prompt fills all that a sample holds: nothing is left to learn of them."""
    TEXT = (TABLE.replace("micro_batch_size = 4", "micro_batch_size = 1").replace(
        "[optimizer.adamw]\n", "[optimizer]\nweight_decay = 0.5\n[optimizer.adamw]\n")
            + 'prompt = "q"\ncompletion = "a"\n')

    def rows(self, lengths):
        self.file("rows.csv", "q,a\n" + "".join(f"{'x' * n},yes\n" for n in lengths))

    def test_a_step_without_a_target_is_skipped_and_said(self):
        text = self.TEXT.replace("length = 6", "length = 3", 1)
        self.rows([3, 90, 3, 3])
        done = self.ok("train", self.file("run.toml", text), "--set", "data.shuffle=false", "--set", "log.every=1")
        self.assertIn("step    2/3  skipped: no sample of it has anything to learn\n", done.out)
        run = self.dir / "runs/run"
        self.assertEqual([r["skipped"] for r in self.records(run, "step")], [0, 1, 0, 0])
        self.rows([3, 3, 3])
        plain = self.train("plain", text, "--set", "data.shuffle=false")
        self.assertEqual(self.weights(run), self.weights(plain))

    def test_data_without_a_target(self):
        self.rows([90, 80, 70, 60, 50])
        refused = self.mortise("train", self.file("run.toml", self.TEXT))
        self.assertIn("error[no_targets]: no sample of the training data has anything to learn\n", refused.err)
        self.assertEqual(refused.code, 65, refused)
        self.assertEqual(list((self.dir / "runs/run").glob("checkpoints/*")), [])
        self.file("good.csv", "q,a\n" + "x,yes\n" * 9)
        good = self.TEXT.replace("rows.csv", "good.csv")
        done = self.ok("train", self.file("good.toml", good), "--set", "data.table.validation_path=rows.csv")
        self.assertIn("no sample of the validation data has a target: eval.loss is no number", done.out + done.err)
        measured = self.mortise("eval", "runs/good")
        self.assertIn("error[no_targets]: no sample of the validation data has a target to measure\n", measured.err)
        self.assertEqual(measured.code, 65)


class Verb(e2e.Case):
    """`mortise data`."""

    def test_classes_lengths_and_the_first_sample(self):
        self.file("rows.csv", "q,mood\n" + "".join(f"{'ab' * (n % 5 + 1)},{'bad' if n % 4 == 0 else 'good'}\n"
                                                  for n in range(20)))
        self.file("run.toml", TABLE + 'text = "q"\nlabel = "mood"\n')
        lines = self.ok("data").out.splitlines()
        self.assertRegex(lines[0], r"^data     data.table rows.csv, 20 rows, .*: 20 to train, 0 to validate$")
        self.assertEqual(lines[1:3], ["classes  2: bad 5 · good 15",
                                      "lengths  input_ids: median 6, 95 % up to 10, longest 10"])
        self.assertRegex(lines[3], r"^sample   \d+: (ab)+   class [01] = (bad|good)$")
        self.assertEqual(len(lines), 4)
        short = self.ok("data", "--set", "data.sequence_length=6").out
        self.assertIn("longest 6; 60 % fill all 6 of data.sequence_length\n", short)
        answer = json.loads(self.ok("data", "run.toml", "--json", "--set", "data.validation=0.25").out)
        self.assertEqual((answer["train"], answer["validation"], answer["read"]), (15, 5, 15))
        self.assertEqual(sum(each["samples"] for each in answer["classes"]), 15)
        self.assertEqual(answer["lengths"]["input_ids"]["longest"], 10)
        self.assertFalse((self.dir / "runs").exists())

    def test_tokens_without_a_tokenizer(self):
        self.file("a.bin", array.array("H", 100 * list(range(10))).tobytes())
        self.file("run.toml", BARE.replace("[tokenizer.byte]\n", "") + "vocabulary = 10\n")
        self.assertRegex(self.ok("data").out, r"\nsample   \d+: ids \d( \d){15}\n$")


if __name__ == "__main__":
    e2e.main()
