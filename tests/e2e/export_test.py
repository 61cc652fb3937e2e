"""A checkpoint as a Hugging Face folder, and one measured: `export` and `eval`."""
import json
import os
import resource
import shutil
import signal
import struct
import subprocess

import e2e
from e2e import TINY
from weights_test import numbers, read

VALIDATED = TINY.replace("micro_batch_size = 4", "micro_batch_size = 4\nvalidation = 0.2")


def nearest_bfloat16(value):
    """Ties to even."""
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    return struct.unpack("<f", struct.pack("<I", (bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16))[0]


class Export(e2e.Case):
    def setUp(self):
        super().setUp()
        self.run_dir = self.train("small", TINY, "--set", "run.length=2", "--set", "checkpoint.every=1")
        self.model = self.run_dir / "checkpoints/latest/model"

    def test_what_is_written(self):
        result = self.ok("export", "runs/small", "-o", "out")
        self.assertEqual(result.err, "")
        self.assertRegex(result.out, r"^wrote   out/  config\.json model\.safetensors README\.md    "
                                     r"\d+(\.\d+)? KiB, step 2\n"
                                     r"names   Hugging Face's; no tokenizer files: tokenizer\.byte has none        "
                                     r"load: GPT2LMHeadModel\.from_pretrained\(\"out\"\)\n$")
        self.assertEqual(sorted(os.listdir(self.dir / "out")), ["README.md", "config.json", "model.safetensors"])
        self.assertEqual((self.dir / "out/model.safetensors").read_bytes(),
                         (self.model / "model.safetensors").read_bytes())
        self.assertEqual(json.loads((self.dir / "out/config.json").read_text()),
                         {**json.loads((self.model / "config.json").read_text()), "torch_dtype": "float32"})
        # The byte tokenizer has no special tokens, and transformers' own defaults lie outside of its vocabulary.
        config = json.loads((self.dir / "out/config.json").read_text())
        self.assertEqual([config["vocab_size"], config["bos_token_id"], config["eos_token_id"]], [256, None, None])
        sha256 = json.loads((self.model.parent / "MANIFEST.json").read_text())["sha256"]
        readme = (self.dir / "out/README.md").read_text()
        for text in ("# small\n", "Step 2 of the run `small`", f"`{sha256}`", "as fp32",
                     "GPT2LMHeadModel.from_pretrained"):
            self.assertIn(text, readme)
        answer = json.loads(self.ok("export", "runs/small", "-o", "second/", "--checkpoint", "1", "--json").out)
        self.assertEqual((answer["path"], answer["step"], answer["dtype"], answer["files"], answer["architecture"]),
                         ("second", 1, "fp32", ["config.json", "model.safetensors", "README.md"], "GPT2LMHeadModel"))

    def test_what_a_plugin_made_another_model_claims_no_architecture(self):
        self.file("more/operators.gain/plugin.toml", "[plugin]\nid = \"operators.gain\"\nversion = \"1.0.0\"\n"
                  "summary = \"A fixture\"\nstatus = \"alpha\"\nabi = \"0.1\"\n[points]\nprovides = [\"norm\"]\n"
                  "[norm]\nattributes = [\"width\", \"eps\"]\n")
        self.compiled(self.dir / "more/operators.gain", e2e.SOURCE / "tests/e2e/fixtures/gain.cpp")
        self.file("other.toml", TINY + "[operators.gain]\nwhere = \"h.0.ln_1\"\n")
        self.ok("train", "other.toml", "--plugin-path", "more", "--set", "run.length=1")
        differences = ["h.0.ln_1.gain is added", "h.0.ln_1.bias is missing", "h.0.ln_1.weight is missing"]
        note = "of no architecture of transformers: " + ", ".join(differences)
        out = self.ok("export", "runs/other", "-o", "out").out
        self.assertTrue(out.endswith(f"\nnote    {note}\n"), out)
        self.assertIn(note, (self.dir / "out/README.md").read_text())
        self.assertNotIn("from_pretrained", (self.dir / "out/README.md").read_text())
        config = json.loads((self.dir / "out/config.json").read_text())
        self.assertEqual((config["parameters_differ"], config["n_embd"]), (differences, 16))
        self.assertEqual({"architectures", "model_type"} & set(config), set())
        answer = json.loads(self.ok("export", "runs/other", "-o", "again", "--json").out)
        self.assertEqual((answer["architecture"], answer["differences"]), (None, differences))
        # With the same plugin it is a source of weights; without it, it is not.
        weights = ("--set", "model.weights=out", "--set", "run.length=1")
        self.assertIn("\nweights out: 15 tensors taken\n",
                      self.ok("train", "other.toml", "--plugin-path", "more", *weights).out)
        self.assertIn("error[missing_tensors]: ", self.mortise("train", "run.toml", *weights).err)

    def test_without_a_dtype_no_bit_is_lost(self):
        text = (TINY + "[precision.half]\n[parameters.wide]\nwhere = \"role:norm\"\ndtype = \"fp32\"\n").replace(
            "[optimizer.adamw]", "[optimizer.adamw_anyprecision]")
        run = self.train("mixed", text, "--set", "run.length=1")
        self.ok("export", "runs/mixed", "-o", "mixed")
        ours = read(self.checkpoint(run) / "model/model.safetensors")
        self.assertEqual({tensor[0] for tensor in ours.values()}, {"BF16", "F32"})
        self.assertEqual(read(self.dir / "mixed/model.safetensors"), ours)
        self.assertEqual(json.loads((self.dir / "mixed/config.json").read_text())["torch_dtype"], "float32")

    def test_dtypes_are_rounded_to_the_nearest(self):
        ours = read(self.model / "model.safetensors")
        for flag, dtype, torch, rounded in (
                ("bf16", "BF16", "bfloat16", nearest_bfloat16),
                ("fp16", "F16", "float16", lambda v: struct.unpack("<e", struct.pack("<e", v))[0])):
            self.ok("export", "runs/small", "-o", flag, "--dtype", flag)
            self.assertEqual(json.loads((self.dir / flag / "config.json").read_text())["torch_dtype"], torch)
            theirs = read(self.dir / flag / "model.safetensors")
            self.assertEqual(list(theirs), list(ours))
            for name, tensor in theirs.items():
                self.assertEqual((tensor[0], tensor[1]), (dtype, ours[name][1]))
                self.assertEqual(numbers(tensor), [rounded(v) for v in numbers(ours[name])], name)
        # What was exported is a source of weights.
        result = self.ok("train", "run.toml", "--set", "model.weights=bf16", "--set", "run.length=1")
        self.assertIn("\nweights bf16: 16 tensors taken\n", result.out)

    def test_nothing_is_overwritten(self):
        self.file("out/mine", "")
        self.refused(["export", "runs/small", "-o", "out"],
                     "error[out_exists]: out exists; nothing is overwritten\n"
                     "  fix: another folder: -o out-2\n", code=73)
        self.assertEqual(os.listdir(self.dir / "out"), ["mine"])
        os.symlink("nowhere", self.dir / "link")
        self.assertEqual(self.mortise("export", "runs/small", "-o", "link").code, 73)
        self.assertEqual(self.mortise("export", "runs/small", "-o", "no/such/place").code, 73)

    def test_nothing_is_overwritten_that_came_while_it_wrote(self):
        compiler = shutil.which(os.environ.get("CC", "cc"))
        if compiler is None:
            self.skipTest("no C compiler")
        subprocess.run([compiler, "-shared", "-fPIC", e2e.SOURCE / "tests/e2e/fixtures/out_appears.c", "-o", "late.so"],
                       cwd=self.dir, check=True, timeout=e2e.LIMIT_S)
        before = sorted([*os.listdir(self.dir), "out"])
        result = self.mortise("export", "runs/small", "-o", "out", env={"LD_PRELOAD": str(self.dir / "late.so")})
        self.assertEqual((result.code, result.err), (73, "error[out_exists]: out exists; nothing is overwritten\n"
                                                         "  fix: another folder: -o out-2\n"))
        self.assertEqual(os.listdir(self.dir / "out"), [])
        self.assertEqual(sorted(os.listdir(self.dir)), before)

    def test_nothing_is_written_among_the_checkpoints(self):
        for out in ("runs/small/checkpoints/mine", "runs/small/checkpoints/step-2/mine", "runs/small/checkpoints"):
            result = self.mortise("export", "runs/small", "-o", out)
            self.assertEqual(result.code, 73 if out.endswith("s") else 64, result)
        self.refused(["export", "runs/small", "-o", "runs/small/checkpoints/step-9"],
                     "error[out_in_run]: runs/small/checkpoints/step-9 would be among the checkpoints of the run\n"
                     "  fix: a folder elsewhere: -o step-9\n")
        self.ok("export", "runs/small", "-o", "runs/small/exported")

    def test_a_best_that_is_gone_is_not_passed_over_in_silence(self):
        os.symlink("step-7", self.run_dir / "checkpoints/best")
        result = self.ok("export", "runs/small", "-o", "out")
        self.assertEqual(result.err,
                         "warning[best_is_gone]: runs/small/checkpoints/best leads to no checkpoint of this run\n"
                         "  effect: step 2 is taken, the newest\n")
        self.assertIn(" KiB, step 2\n", result.out)
        self.assertIn("warning[best_is_gone]: ", self.ok("sample", "runs/small", "--tokens", "1").err)
        self.assertEqual(self.ok("export", "runs/small", "-o", "again", "--checkpoint", "latest").err, "")

    def test_a_full_disk_leaves_nothing_half(self):
        def small_files():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))

        before = sorted(os.listdir(self.dir))
        result = self.mortise("export", "runs/small", "-o", "out", preexec_fn=small_files)
        self.assertEqual(result.code, 74, result)
        self.assertTrue(result.err.startswith("error[not_written]: out/model.safetensors cannot be written: "), result)
        self.assertEqual(sorted(os.listdir(self.dir)), before)

    def test_what_cannot_be_exported(self):
        self.refused(["export", "runs/smal", "-o", "out"],
                     "error[no_run]: runs/smal is no run directory: it has no run.toml\n"
                     "  fix: mortise export runs/small -o out\n", code=65)
        self.refused(["export", "runs/small"], "error[missing_value]: `mortise export` needs a folder to write\n"
                                               "  fix: mortise export runs/small -o OUT\n")
        self.refused(["export", "runs/small", "-o", "out", "--dtype", "int8"],
                     "error[not_a_choice]: `int8` is no dtype of an export\n  fix: --dtype fp32, fp64, bf16 or fp16\n")
        self.refused(["export", "runs/small", "-o", "out", "--to", "gguf"],
                     "error[not_a_choice]: `gguf` is no form that is written\n"
                     "  fix: --to huggingface or peft\n")
        weights = self.model / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")
        result = self.mortise("export", "runs/small", "-o", "out", "--checkpoint", "2")
        self.assertEqual(result.code, 65, result)
        self.assertIn("error[checkpoint_damaged]: ", result.err)
        self.assertFalse((self.dir / "out").exists())


class Eval(e2e.Case):
    def test_a_checkpoint_measures_what_its_training_measured(self):
        run = self.train("small", VALIDATED, "--set", "eval.every=3", "--set", "checkpoint.best=eval.loss")
        measured = {r["step"]: r for r in self.records(run, "eval")}
        result = self.ok("eval", "runs/small")
        self.assertEqual(result.err, "")
        self.assertRegex(result.out, r"^runs/small, checkpoints/best \(step \d\)      "
                                     r"notes\.txt, [\d,]+ tokens, held out, \d+ samples\n"
                                     r"eval\.loss \d\.\d+          fp32, batch 4, \d+\.\ds\n$")
        for step in (3, 6):
            answer = json.loads(self.ok("eval", "runs/small", "--checkpoint", str(step), "--json").out)
            self.assertEqual(answer["checkpoint"], f"runs/small/checkpoints/step-{step}")
            for key in ("eval.loss", "samples", "tokens"):
                self.assertEqual(answer[key], measured[step][key], key)

    def test_other_data_and_other_keys(self):
        self.train("small")
        os.symlink("loop", self.dir / "loop")
        result = self.mortise("eval", "loop")
        self.assertEqual(result.code, 64, result)
        self.assertIn("error[file_missing]: `loop` is a link that leads to no file\n", result.err)
        self.refused(["eval", "runs/small"], "error[no_validation_data]: runs/small has no validation data\n"
                                             "  fix: mortise eval runs/small --data FILE\n")
        self.file("elsewhere/test.txt", "7 8 9 " * 50)
        answer = json.loads(self.ok("eval", "runs/small", "--data", "elsewhere/test.txt", "--json").out)
        self.assertEqual((answer["data"], answer["tokens"], answer["samples"]), ("test.txt, 300 tokens", 299, 19))
        few = json.loads(self.ok("eval", "runs/small", "--data", "elsewhere/*.txt", "--set", "eval.samples=3",
                                 "--set", "eval.micro_batch_size=2", "--json").out)
        self.assertEqual((few["samples"], few["tokens"]), (3, 48))
        self.assertIn("  bf16, batch 4, ",
                      self.ok("eval", "runs/small", "--data", "elsewhere/test.txt", "--use", "precision.bf16").out)
        for modes, dtype in (("eval", "bf16"), ("train", "fp32")):
            self.assertIn(f"  {dtype}, batch 4, ", self.ok(
                "eval", "runs/small", "--data", "elsewhere/test.txt", "--use", "precision.bf16",
                "--set", f"precision.bf16.modes={modes}").out)
        result = self.mortise("eval", "runs/small", "--data", "nowhere.txt")
        self.assertEqual(result.code, 64, result)
        self.assertIn("--> command line: --data nowhere.txt\n", result.err)
        result = self.mortise("eval", "runs/small", "--data", "elsewhere")
        self.assertEqual(result.code, 64, result)
        self.assertIn("  fix: --data 'elsewhere/*'\n", result.err)
        self.refused(["eval", "runs/small", "--split", "test"],
                     "error[no_split]: data.text knows no split `test`\n"
                     "  fix: any file can be measured on: --data FILE\n")

    def test_what_needs_no_training_data_does_without(self):
        run = self.train("small", VALIDATED)
        (self.dir / "notes.txt").unlink()
        self.file("test.txt", "7 8 9 " * 50)
        self.assertIn("test.txt, 300 tokens", self.ok("eval", "runs/small", "--data", "test.txt").out)
        self.ok("sample", "runs/small", "--tokens", "3", "--prompt", "1")
        self.ok("export", "runs/small", "-o", "out")
        result = self.mortise("eval", "runs/small")  # a share of the training data is what it would be measured on
        self.assertEqual(result.code, 64, result)
        self.assertIn("notes.txt", result.err)
        self.assertTrue(run.is_dir())

    def test_a_manifest_that_names_weights(self):
        run = self.train("small", VALIDATED)
        loss = self.records(run, "eval")[-1]["eval.loss"]
        self.file("measure.toml", VALIDATED.replace("[model.gpt]\nlayers = 1\nheads = 2\nwidth = 16\n",
                                                    "[model]\nweights = \"runs/small\"\n[model.gpt]\n"))
        answer = json.loads(self.ok("eval", "measure.toml", "--json").out)
        self.assertEqual((answer["eval.loss"], answer["checkpoint"]), (loss, None))
        self.assertIn("measure.toml, weights runs/small/checkpoints/step-6/model: 16 tensors taken      notes.txt",
                      self.ok("eval", "measure.toml").out)
        self.refused(["eval", "small.toml"], "error[no_weights]: small.toml names no weights to measure\n"
                                             "  fix: [model] weights = \"FOLDER\", "
                                             "or a run directory: mortise eval runs/latest\n")
        self.refused(["eval", "measure.toml", "--checkpoint", "6"],
                     "error[not_a_run]: --checkpoint is of a run directory, measure.toml is a manifest\n"
                     "  fix: leave it out: [model] weights says which\n")
        self.refused(["eval", "nowhere.toml"], self.mortise("plan", "nowhere.toml").err)
        self.refused(["eval", "runs/smal"], "error[no_run]: runs/smal is no run directory: it has no run.toml\n"
                                            "  fix: mortise eval runs/small\n", code=65)
        self.file("random.toml", VALIDATED.replace("[data.text]\npath = \"notes.txt\"", "[data.random]"))
        self.ok("train", "random.toml", "--set", "run.length=1")
        self.refused(["eval", "runs/random", "--data", "notes.txt"],
                     "error[no_split]: data.random reads no file to measure on\n"
                     "  --> command line: --data notes.txt\n"
                     "  fix: leave out --data\n")
        self.ok("eval", "runs/random", "--set", "eval.samples=4")
        # Nothing of it is left behind.
        self.assertFalse((self.dir / "runs/measure").exists())


if __name__ == "__main__":
    e2e.main()
