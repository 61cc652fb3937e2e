"""What is wrong, in which words, with which exit."""
import json
import os
import unittest

import e2e
from e2e import TINY

NOTHING = "\n1 error; nothing was started.\n"
USE_A_PLACE = "error[two_providers]: optimizer.adamw and optimizer.sgd both provide `optimizer`\n"


class CommonSlips(e2e.Case):
    def test_values_that_other_programs_take_are_answered_with_those_that_fit(self):
        self.file("my.toml", '[schedule]\nwarmup = 0.03\n[data]\nvalidation = "10%"\n[checkpoint]\nbest = true\n'
                             "[schedule.cosine]\nfinal = 2\n[gradient.cliping]\n")
        said = self.mortise("plan", "my.toml").err
        for line in ('warmup = "3%"', "validation = 0.1", 'best = "…"', "final = 0.02   for 2 per cent",
                     "[gradient.clip]    others: mortise plugin list gradient"):
            self.assertIn(f"\n  fix: {line}\n", said)
        self.assertIn("checkpoint.best is text, this is true or false\n", said)
        self.file("best.toml", TINY + '[checkpoint]\nbest = "eval.loss"\n')
        self.assertIn("error[no_validation_data]: checkpoint.best is by eval.loss, and the run has nothing to evaluate "
                      "on\n  --> best.toml:15:8\n", self.mortise("plan", "best.toml").err)


    def test_numbers_that_no_element_type_holds_are_refused_at_their_keys(self):
        eps = {f"optimizer.{name}": "1e39" for name in ("adamw", "adamw_8bit", "adamw_anyprecision", "muon")}
        for table, key, value in [*((table, "eps", value) for table, value in eps.items()),
                                  ("optimizer.adafactor", "eps", "[1e39, 1.0]"), ("optimizer.muon", "eps", "1e-300"),
                                  ("optimizer.adafactor", "clip_threshold", "1e39"), ("gradient.clip", "norm", "1e39"),
                                  ("model.llama", "theta", "1e-320"), ("sample.text", "temperature", "1e39")]:
            self.file("my.toml", f"[{table}]\n{key} = {value}\n")
            said = self.mortise("plan", "my.toml").err
            self.assertIn(f"error[out_of_range]: {table}.{key}", said)


class FirstFiles(e2e.Case):
    def test_the_file_of_a_newcomer_names_all_six_mistakes(self):
        self.file("my.toml", '[model.gpt]\nlayers = 4\n\n[data.text]\npath = "notes.txt"\nbatch_size = 16\n\n'
                             '[optimizer]\nname = "adamw"\nlearning_rate = 1e-3\nprecision = "bf16"\n')
        self.refused(["train", "my.toml"],
                     "error[unknown_key]: [data.text] has no key `batch_size`\n"
                     "  --> my.toml:6:1\n"
                     "  fix: samples that one device handles at once are `micro_batch_size` in [data]\n"
                     "       samples of a whole step are `global_batch_size` in [step.accumulation]\n"
                     "\n"
                     "error[unknown_key]: [optimizer] has no key `name`\n"
                     "  --> my.toml:9:1\n"
                     "  fix: a plugin is switched on by its table: [optimizer.adamw]\n"
                     "\n"
                     "error[unknown_key]: [optimizer] has no key `learning_rate`\n"
                     "  --> my.toml:10:1\n"
                     "  fix: it is called `lr` here\n"
                     "\n"
                     "error[unknown_key]: [optimizer] has no key `precision`\n"
                     "  --> my.toml:11:1\n"
                     "  fix: a plugin is switched on by its table: [precision.bf16]\n"
                     "\n"
                     "error[nothing_provides]: nothing provides `tokenizer`, which data.text needs\n"
                     "  --> my.toml:4:1\n"
                     "  fix: [tokenizer.byte] or [tokenizer.huggingface]\n"
                     "  see: mortise plugin list tokenizer\n"
                     "\n"
                     "error[nothing_provides]: nothing provides `optimizer`\n"
                     "  fix: [optimizer.adafactor], [optimizer.adamw], [optimizer.adamw_8bit], "
                     "[optimizer.adamw_anyprecision], [optimizer.muon] or [optimizer.sgd]\n"
                     "  see: mortise plugin list optimizer\n"
                     "\n"
                     "6 errors; nothing was started.\n")
        self.assertFalse((self.dir / "runs").exists())

    def test_an_empty_file_hears_what_every_run_needs(self):
        self.file("empty.toml", "")
        result = self.mortise("train", "empty.toml")
        self.assertEqual(result.code, 64)
        for slot in ("data", "model", "optimizer"):
            self.assertIn(f"error[nothing_provides]: nothing provides `{slot}`\n  fix: [{slot}.", result.err)
        self.assertIn("`data`\n  fix: [data.random], [data.table], [data.text] or [data.tokens]\n"
                      "  see: mortise plugin list data\n", result.err)
        self.assertTrue(result.err.endswith("\n3 errors; nothing was started.\n"), result.err)

    def test_files_that_cannot_be_read_say_so_and_nothing_else(self):
        (self.dir / "folder.toml").mkdir()
        self.refused(
            ["train", "folder.toml"],
            "error[file_missing]: folder.toml is a folder, and `mortise train` takes a manifest\n"
            "  fix: mortise train FILE.toml\n",
        )
        self.file("zero.toml", b"\x7fELF\x00\x01")
        result = self.mortise("train", "zero.toml")
        self.assertEqual((result.code, result.out), (64, ""))
        self.assertRegex(
            result.err,
            r"^error\[toml_syntax\]: .*a zero byte.*\n  --> zero\.toml:1:5\n   1 \| \\x7fELF\\x00\\x01\n  fix: .*\n\n1 "
            r"error; nothing was started\.\n$",
        )
        result = self.mortise("train", "none.toml")
        self.assertEqual((result.code, result.out), (64, ""))
        self.assertRegex(
            result.err,
            rf"^error\[file_missing\]: no file `none\.toml`\n  --> command line    looked at {self.dir}/none\.toml\n"
            r"  fix: mortise init NAME -o none\.toml   \(mortise init --list has the names\)\n"
            + NOTHING
            + "$",
        )
        for name, text in (
            ("lists", "a = " + "[" * 5000 + "]" * 5000),
            ("dots", ".".join(["a"] * 5000) + " = 1"),
            ("tables", "[" + ".".join(["a"] * 500) + "]"),
        ):
            self.file(f"{name}.toml", text)
            result = self.mortise("train", f"{name}.toml")
            self.assertEqual(result.code, 64, result)
            self.assertTrue(result.err.startswith("error[nested_too_deep]: nested deeper than 16\n"), result.err)

    def test_a_file_without_read_permission(self):
        os.chmod(self.file("secret.toml", TINY), 0)
        as_other = {}
        if os.geteuid() == 0:
            os.chmod(self.dir, 0o755)
            as_other = {"user": 65534, "group": 65534, "extra_groups": []}
        try:
            result = self.mortise("train", "secret.toml", **as_other)
        except PermissionError:
            self.skipTest("another user may not start the program")
        self.assertEqual(result.code, 74, result)
        self.assertTrue(
            result.err.startswith("error[cannot_read]: `secret.toml` cannot be read\n  --> secret.toml\n"), result.err
        )

    def test_broken_toml_is_shown_with_its_line(self):
        self.file("run.toml", "[run]\nlength = = 3\n")
        result = self.mortise("train")
        self.assertEqual(result.code, 64)
        self.assertIn("error[toml_syntax]: not valid TOML", result.err)
        self.assertIn("  --> run.toml:2:10\n   2 | length = = 3\n", result.err)
        self.assertTrue(result.err.endswith(NOTHING), result.err)


class Manifests(e2e.Case):
    def test_several_mistakes_of_one_file_in_the_order_of_its_lines(self):
        self.file(
            "run.toml",
            'precision = "bf16"\n\n[optimizer]\nlr = "3e-4"\n\n[optimizer.adamw]\nbeta1 = 0.9\ninclude = ["x.toml"]\n\n'
            '[optimizer.sgd]\n\n[model.gpt]\ndropout = 10\n[data.random]\n',
        )
        self.refused(
            ["train"],
            "error[value_for_table]: `precision` is a family, not a key\n"
            "  --> run.toml:1:1\n"
            "   1 | precision = \"bf16\"\n"
            "  fix: [precision.bf16]\n"
            "\n"
            "error[wrong_type]: optimizer.lr is a number, this is text\n"
            "  --> run.toml:4:6\n"
            "   4 | lr = \"3e-4\"\n"
            "  fix: lr = 3e-4\n"
            "\n"
            "error[unknown_key]: [optimizer.adamw] has no key `beta1`\n"
            "  --> run.toml:7:1\n"
            "  fix: betas = [0.9, 0.999]\n"
            "  see: mortise plugin info optimizer.adamw\n"
            "\n"
            "error[include_placement]: `include` stands inside [optimizer.adamw]\n"
            "  --> run.toml:8:1\n"
            "  fix: move it to the top of the file, before the first table (a key belongs to the table above it)\n"
            "\n"
            "error[out_of_range]: model.gpt.dropout is 0 to 1, this is 10\n"
            "  --> run.toml:13:11\n"
            "  fix: dropout = 0.1   for 10 per cent\n"
            "\n" + USE_A_PLACE + "  --> run.toml:6:1 and run.toml:10:1\n"
            "  fix: remove one; to use both, give each its parameters: [optimizer.sgd] where = \"role:matrix\"\n"
            "\n"
            "6 errors; nothing was started.\n",
        )

    def test_a_mistyped_plugin_is_one_mistake_not_two(self):
        self.file("run.toml", TINY.replace("optimizer.adamw", "optimizer.adam_w"))
        self.refused(["train"],
                     "error[unknown_table]: no plugin is called `optimizer.adam_w`\n"
                     f"  --> run.toml:13:1    looked in {self.dir}/home/.local/share/mortise/plugins, {e2e.PLUGINS}\n"
                     "  fix: [optimizer.adamw]    others: mortise plugin list optimizer\n" + NOTHING)

    def test_a_plugin_by_the_name_it_has_elsewhere(self):
        self.file("run.toml", TINY + "[parallel.fsdp]\n")
        result = self.mortise("train")
        self.assertEqual(result.code, 64)
        self.assertIn("  fix: [parallel.zero]    others: mortise plugin list parallel\n", result.err)

    def test_a_missing_include_names_the_file_that_is_near(self):
        self.file("common/base.toml", TINY)
        self.file("nlp/run.toml", 'include = ["common/base.toml"]\n' + TINY)
        self.refused(
            ["train", "nlp/run.toml"],
            "error[include_missing]: no file `common/base.toml`\n"
            f"  --> nlp/run.toml:1:12    looked at {self.dir}/nlp/common/base.toml (relative to nlp/run.toml)\n"
            f"  fix: there is {self.dir}/common/base.toml: include = [\"../common/base.toml\"]\n" + NOTHING,
        )

    def test_an_include_that_cannot_be_read_is_named_where_it_stands(self):
        (self.dir / "folder").mkdir()
        self.file("run.toml", "\ninclude = [\"folder\"]\n" + TINY)
        self.refused(["train"], "error[cannot_read]: `folder` cannot be read\n  --> run.toml:2:12\n"
                                "  fix: name a TOML file that can be read\n" + NOTHING, code=74)

    def test_a_link_that_leads_nowhere_is_one(self):
        os.symlink("gone.toml", self.dir / "dangling.toml")
        os.symlink("loop.toml", self.dir / "loop.toml")
        for name, target in (("dangling", "gone"), ("loop", "loop")):
            self.refused(["train", f"{name}.toml"],
                         f"error[file_missing]: `{name}.toml` is a link that leads to no file\n"
                         f"  --> command line    it leads to {target}.toml\n  fix: ls -l {name}.toml\n" + NOTHING)

    def test_set_speaks_of_what_is_on_only(self):
        self.refused(["train", "--set", "optimizer.sgd.momentum=0.9"],
                     "error[set_not_on]: optimizer.sgd is not on, so `optimizer.sgd.momentum` sets nothing\n"
                     "  --> command line: --set optimizer.sgd.momentum=0.9\n"
                     "  fix: --use optimizer.sgd --set optimizer.sgd.momentum=0.9\n" + NOTHING)

    def test_a_variable_that_is_not_set(self):
        self.file("run.toml", TINY.replace("notes.txt", "${FINEWEB}/notes.txt"))
        self.refused(["train"],
                     "error[unset_variable]: ${FINEWEB} is not set in the environment\n"
                     "  --> run.toml:7:8\n"
                     "  fix: export FINEWEB=/path/to/it   or write ${FINEWEB:-/path/to/it}\n" + NOTHING)

    def test_a_sequence_longer_than_the_model_takes(self):
        text = e2e.TINY.replace("width = 16", "width = 16\ncontext = 8")
        self.file("run.toml", text)
        self.refused(
            ["plan"],
            "error[sequence_too_long]: data.sequence_length is 16, model.gpt takes at most 8\n"
            "  --> run.toml:5:19\n"
            "  fix: sequence_length = 8\n" + NOTHING,
        )

    def test_two_rules_for_one_parameter(self):
        rules = '[parameters.a]\nwhere = "*"\nlr = 1\n[parameters.b]\nwhere = "role:norm"\nlr = 2\n'
        self.file("run.toml", e2e.TINY + rules)
        result = self.mortise("plan")
        self.assertEqual(result.code, 64)
        self.assertIn("error[two_rules]: parameters.a and parameters.b set `lr` of ", result.err)

    def test_warnings_go_on_and_are_errors_under_strict(self):
        warning = (
            "[not_on]: optimizer.sgd is not on\n"
            "  --> command line: --without optimizer.sgd\n"
            "  fix: leave out --without optimizer.sgd\n"
        )
        result = self.ok("plan", "--static", "--without", "optimizer.sgd")
        self.assertEqual(result.err, "warning" + warning)
        self.assertEqual(self.ok("plan", "--static", "--without", "optimizer.sgd", "-q").err, "")
        self.refused(["plan", "--static", "--without", "optimizer.sgd", "--strict"], "error" + warning + NOTHING)

    def test_errors_as_objects(self):
        self.file("run.toml", TINY + "[optimizer]\nlearning_rate = 1\n")
        result = self.mortise("train", "--json")
        self.assertEqual((result.code, result.out), (64, ""))
        error = json.loads(result.err)
        self.assertEqual(error["code"], "unknown_key")
        self.assertEqual((error["at"]["file"], error["at"]["line"], error["at"]["column"]), ("run.toml", 15, 1))
        self.assertEqual(error["fix"][0]["text"], "it is called `lr` here")
        self.assertEqual((error["level"], error["exit"]), ("error", 64))


class ModelAndData(e2e.Case):
    """Found once plugins run; still before anything is trained, and nothing is left behind."""

    def nothing_left(self):
        self.assertEqual(list((self.dir / "runs").glob("*")) if (self.dir / "runs").exists() else [], [])

    def test_a_name_that_is_no_operator_has_its_place(self):
        text = TINY + '[activation.checkpointing]\nkeep = ["attention", "attn"]\n'
        self.file("run.toml", text)
        for verb in (["plan"], ["plan", "--static"], ["train"]):
            self.refused(verb, "error[unknown_point]: activation.checkpointing.keep names operators, and `attn` is "
                               "none of this run\n"
                               "  --> run.toml:15:22\n"
                               '  fix: keep = ["attention"]\n' + NOTHING)
        self.file("run.toml", text.replace('"attn"', '"something"'))
        self.assertIn("\n  fix: operators of this run: ", self.mortise("plan").err)
        self.file("run.toml", text.replace(', "attn"', ""))
        self.ok("plan")
        self.nothing_left()

    def test_where_that_matches_no_parameter(self):
        self.file("run.toml", TINY + '[optimizer.sgd]\nwhere = "encoder.layers.*"\n')
        result = self.mortise("train")
        self.assertEqual(result.code, 64, result)
        self.assertTrue(
            result.err.startswith(
                "error[matches_nothing]: `encoder.layers.*` matches no parameter of model.gpt\n  --> run.toml:15:9\n"
                "  fix: h.*.attn.* matches 4      all names: mortise plan run.toml --weights\n"
            ),
            result.err,
        )
        self.nothing_left()

    def test_a_global_batch_that_cannot_be_split(self):
        refusal = (
            "error[batch_arithmetic]: 6 samples a step cannot be split over micro-batches of 4\n"
            "  --> {}    6 / 4 = 1.50\n  fix: {}\n"
            + NOTHING
        )
        repaired = "--set step.accumulation.global_batch_size=8"
        self.file("run.toml", TINY + "[step.accumulation]\nglobal_batch_size = 6\n")
        self.refused(["train"], refusal.format("run.toml:15:21", repaired))
        self.refused(["plan"], refusal.format("run.toml:15:21", repaired))
        error = json.loads(self.mortise("train", "--json").err)
        self.assertEqual(
            (error["code"], error["exit"], error["plugin"], error["beside"]),
            ("batch_arithmetic", 64, "step.accumulation", "6 / 4 = 1.50"),
        )
        self.assertEqual(
            error["at"], {"file": "run.toml", "line": 15, "column": 21, "key": "step.accumulation.global_batch_size"}
        )
        # The value may stand in another layer than the file; the fix can be pasted.
        self.file("run.toml", TINY)
        on = ["train", "--use", "step.accumulation", "--set"]
        self.refused(
            [*on, "step.accumulation.global_batch_size=6"],
            refusal.format("command line: --set step.accumulation.global_batch_size=6", repaired),
        )
        self.refused(
            [*on, "step.accumulation.global_batch_size=100 tokens"],
            "error[batch_arithmetic]: 100 tokens a step cannot be split over micro-batches of 4 × 16\n"
            "  --> command line: --set step.accumulation.global_batch_size=100 tokens    100 / (4 × 16) = 1.56\n"
            "  fix: --set 'step.accumulation.global_batch_size=128 tokens'\n" + NOTHING,
        )
        self.nothing_left()
        self.ok("train", "--use", "step.accumulation", *repaired.split())

    def test_data_that_is_not_there(self):
        self.file("run.toml", TINY.replace("notes.txt", "nope.txt"))
        result = self.mortise("train")
        self.assertEqual(result.code, 64, result)
        self.assertIn(f"{self.dir}/nope.txt: No such file or directory\n", result.err)
        self.assertIn("one that is typed to the current folder\n", result.err)
        self.nothing_left()
        self.file("run.toml", TINY.replace("notes.txt", "note.txt"))
        self.assertIn(f"\n  fix: there is {self.dir}/notes.txt\n", self.mortise("train").err)

    def test_weights_that_cannot_be_taken(self):
        where = "  --> command line: --set model.weights="
        self.refused(
            ["train", "--set", "model.weights=bert"],
            f"error[no_weights]: `bert` is not a folder\n{where}bert    looked at {self.dir}/bert\n"
            f"  fix: Mortise does not download. Get it with: hf download OWNER/bert --local-dir bert\n" + NOTHING,
            code=65,
        )
        self.assertIn("hf download google/bert --local-dir google/bert\n",
                      self.mortise("train", "--set", "model.weights=google/bert").err)
        self.file("old/pytorch_model.bin", b"pickle")
        self.refused(
            ["train", "--set", "model.weights=old"],
            f"error[pickle_only]: old holds pytorch_model.bin only; Mortise reads no pickles\n{where}old\n"
            f"  fix: python -c 'from transformers import AutoModel as A; "
            f"A.from_pretrained(\"old\").save_pretrained(\"old\")'\n"
            + NOTHING,
            code=65,
        )
        header = b'{"wte.weight":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
        self.file("other/model.safetensors", len(header).to_bytes(8, "little") + header + b"abcd")
        result = self.mortise("train", "--set", "model.weights=other")
        self.assertEqual(result.code, 65, result)
        self.assertRegex(result.err, r"^error\[(missing_tensors|wrong_tensor)\]: ")
        self.refused(
            ["train", "--set", "device.memory_limit=1 GiB"],
            "error[unknown_key]: [device] has no key `memory_limit`\n"
            "  --> command line: --set device.memory_limit=1 GiB\n"
            "  fix: `device.memory_limit` is not available in this version\n" + NOTHING,
        )
        self.nothing_left()

    def test_heads_that_do_not_divide_the_width(self):
        result = self.mortise("train", "--set", "model.gpt.heads=3")
        self.assertEqual(result.code, 64, result)
        self.assertIn("3 heads do not divide a width of 16\n", result.err)
        self.nothing_left()


if __name__ == "__main__":
    e2e.main()
