"""Verbs, flags, help, colour, and an answer that nobody can read."""
import json
import os
import re
import resource
import subprocess
import unittest

import e2e


class CommandLine(e2e.Case):
    def test_words_that_are_nearly_right(self):
        self.refused(["trian"], "error[unknown_verb]: no verb `trian`\n  fix: mortise train\n")
        self.refused(
            ["train", "--sett", "a=1"], "error[unknown_flag]: `mortise train` has no flag `--sett`\n  fix: --set\n"
        )
        self.refused(
            ["train", "--set"], "error[missing_value]: `--set` needs a value: --set K=V\n  fix: mortise train --help\n"
        )
        self.refused(
            ["train", "a", "b"],
            "error[too_many_words]: `mortise train` takes [RUN]; `b` is one word too many\n"
            "  fix: mortise train --help\n",
        )
        self.refused(["eval", "runs/x", "--data", "a.txt", "--data", "b.txt"],
                     "error[flag_twice]: `--data` is given twice, and `mortise eval` takes it once\n"
                     "  fix: leave one out\n")
        self.refused(
            ["--json", "train"],
            '{"level":"error","code":"unknown_verb","message":"`--json` stands where a verb is '
            'expected","at":null,"also":[],'
            '"beside":null,"lines":[],"context":null,"holds":null,"effect":null,"fix":[{"text":"mortise VERB '
            '--json","edit":null}],'
            '"see":null,"plugin":null,"rank":null,"step":null,"exit":64}\n',
        )

    def test_an_exit_code_is_explained(self):
        said = self.ok("explain", "76").out
        self.assertTrue(said.startswith("exit 76: a guard stopped it\n"), said)
        self.assertIn("do not start it again", said)
        row = json.loads(self.ok("explain", "75", "--json").out)
        self.assertEqual((row["exit"], row["name"]), (75, "stopped, to be resumed"))
        self.assertIn("\nexit 75   stopped, to be resumed\n", self.ok("help").out)
        self.refused(["explain", "77"], "error[unknown_code]: Mortise never ends with exit 77\n"
                     "  fix: mortise help   lists the exit codes; above 128 a signal ended the process\n")

    def test_a_code_of_a_plugin_is_explained(self):
        self.assertEqual(self.ok("explain", "no_column").out,
                         "error[no_column] of data.table\n  A column that the manifest names is in none of the files.\n"
                         "  exit code 64\n")
        row = json.loads(self.ok("explain", "error[bad_table]", "--json").out)
        self.assertEqual((row["plugin"], row["exit"]), ("data.table", 65))
        self.assertRegex(self.ok("explain").out, r"(?m)^no_token_header +65 +A file of tokens .* \(data\.tokens\)$")

    def test_a_key_is_explained(self):
        self.assertRegex(self.ok("explain", "checkpoint.keep").out, r"^\[checkpoint\] keep: int \(from 1 to [\d,]+\), "
                         r"by default 2; free for a resumed run\n  How many of the newest stay, ")
        self.assertTrue(self.ok("explain", "optimizer.adamw.eps").out.startswith("[optimizer.adamw] eps: float "))
        self.assertEqual(json.loads(self.ok("explain", "run.length", "--json").out)["type"], "duration")
        self.refused(["explain", "run.lenght"], "error[unknown_code]: no key is called `run.lenght`\n"
                                                "  fix: mortise explain run.length\n")

    def test_what_stands_in_a_message_or_a_file_is_explained(self):
        self.assertTrue(self.ok("explain", "error[unknown_key]").out.startswith("error[unknown_key]\n"))
        table = self.ok("explain", "[optimizer]").out
        self.assertEqual((table, "[optimizer] lr: float" in table), (self.ok("explain", "optimizer").out, True))
        self.assertRegex(self.ok("explain", "optimizer.adamw").out,
                         r"^optimizer\.adamw: Adam .*\n\[optimizer\.adamw\] betas: ")
        self.assertRegex(self.ok("explain", "log.tensorboard").out, r"^log\.tensorboard: .+; no keys\n$")
        self.assertEqual(self.ok("explain", "log.tensorboard", "--json").out, "")
        self.assertTrue(self.ok("explain", "learning_rate").out.startswith("[optimizer] lr: float"))
        self.assertIn("3 epochs", self.ok("explain", "num_train_epochs").out)

    def test_a_flag_that_is_a_key_a_value_or_nothing(self):
        for words, fix in ((["train", "--lr", "1e-3"], "--set optimizer.lr=1e-3"),
                           (["train", "--learning-rate=1e-3"], "--set optimizer.lr=1e-3"),
                           (["train", "--num-train-epochs", "3"],
                            'it is called `length`, in [run], and has a unit: length = "3 epochs"'),
                           (["train", "--bf16"], "--use precision.bf16"),
                           (["train", "--optim=adamw_torch"], "--use optimizer.adamw"),
                           (["train", "--optim", "adamw_bnb_8bit"], "--use optimizer.adamw_8bit"),
                           (["train", "--gradient_checkpointing", "True"], "--use activation.checkpointing"),
                           (["train", "--max_grad_norm", "1.0"], "--use gradient.clip --set gradient.clip.norm=1.0"),
                           (["train", "--tf32"], "--use precision.tf32"),
                           (["train", "--do_train"],
                            "leave it out: `mortise train` trains, and evaluates as [eval] says"),
                           (["train", "--dir", "out"], "--set run.dir=out"),
                           (["train", "--config", "a.toml"],
                            "a manifest stands without a flag: mortise train FILE.toml"),
                           (["sample", "runs/x", "--max_new_tokens", "5"], "--tokens 5"),
                           (["sample", "runs/x", "--top_k", "5"], "--top-k 5"),
                           (["sample", "runs/x", "--top_p", "0.9"], "--top-p 0.9"),
                           (["export", "runs/x", "--output", "hf"], "-o hf"),
                           (["export", "runs/x", "--output_dir"], "-o OUT"),
                           (["train", "--fit"], "mortise train --help"),
                           (["export", "runs/x", "--ranks", "2"],
                            "leave it out, with its value: it is a flag of plan, train, resume, eval"),
                           (["sample", "runs/x", "--to", "peft"],
                            "leave it out, with its value: it is a flag of export"),
                           (["export", "runs/x", "--set", "a.b=1"],
                            "leave it out, with its value: it is a flag of data, plan, train, resume, sample, eval, "
                            "bench"),
                           (["export", "runs/x", "--out", "my model"], "-o 'my model'"),
                           (["sample", "runs/x", "--tokns", "3"], "--tokens")):
            flag = next(word for word in words if word.startswith("--")).split("=")[0]
            self.refused(words, f"error[unknown_flag]: `mortise {words[0]}` has no flag `{flag}`\n  fix: {fix}\n")

    def fix_of(self, *words):
        result = self.mortise(*words)
        self.assertNotEqual(result.code, 0, result)
        return re.search(r"^  fix: (.*)$", result.err, re.M)[1]

    def test_a_word_in_the_place_of_another(self):
        self.file("my.toml", e2e.TINY)
        self.ok("train", "my.toml", "--set", "run.length=1")
        self.file("hf/config.json", "{}")
        for words, fix in ((["plugin", "info", "optimizer"], "mortise plugin list optimizer"),
                           (["plugin", "optimizer.adamw"], "mortise plugin info optimizer.adamw"),
                           (["checkpoint", "runs/my"], "mortise checkpoint list runs/my"),
                           (["resume", "my.toml"], "mortise train my.toml --resume"),
                           (["resume", "run.toml"], "mortise train run.toml --resume"),
                           (["train", "my.toml", "--resume", "runs/my"], "mortise resume runs/my"),
                           (["sample", "hf"], 'a model becomes one of a run in a manifest: [model] weights = "hf"'),
                           (["keys", "run"], "mortise explain run"),
                           (["points", "block"], "mortise plan --why block")):
            self.assertEqual(self.fix_of(*words), fix)
        self.assertIn("`mortise keys` takes no word; `run` is one word too many\n", self.mortise("keys", "run").err)

    def test_names_that_errors_of_a_manifest_know_are_explained(self):
        on = "a plugin is switched on by its table: "
        for name, table in (("bf16", "[precision.bf16]"), ("gradient_checkpointing", "[activation.checkpointing]"),
                            ("patience", "[guard.patience]")):
            self.assertEqual(self.ok("explain", name).out, f"{name}: {on}{table}\n")
        self.assertTrue(self.ok("explain", "optim").out.startswith("optim: " + on))

    def test_plugin_info_says_that_it_wants_an_id(self):
        self.refused(["plugin", "info"], "error[missing_word]: `mortise plugin info` needs the id of a plugin: "
                                         "FAMILY.NAME\n  fix: mortise plugin list   names them\n")

    def test_a_folder_is_no_manifest(self):
        for verb in ("train", "plan"):
            self.refused([verb, "."], f"error[file_missing]: . is a folder, and `mortise {verb}` takes a manifest\n"
                                      f"  fix: mortise {verb} run.toml\n")
        self.file("empty/notes.txt", "1")
        for name in ("a", "b"):
            self.file(f"two/{name}.toml", e2e.TINY)
        for folder in ("empty", "two"):
            self.refused(["train", folder], f"error[file_missing]: {folder} is a folder, and `mortise train` takes a "
                                            "manifest\n  fix: mortise train FILE.toml\n")
        self.file("my runs/a.toml", e2e.TINY)
        self.assertIn("\n  fix: mortise train 'my runs/a.toml'\n", self.mortise("train", "my runs").err)

    def test_every_verb_has_help_with_an_example(self):
        general = self.ok("help").out
        verbs = [line.split()[0] for line in general.splitlines() if line.startswith("  ")]
        self.assertGreaterEqual(set(verbs), {"train", "plan", "points", "sample", "plugin", "help"})
        for verb in verbs:
            text = self.ok("help", verb).out
            self.assertEqual(text, self.ok(verb, "--help").out)
            self.assertTrue(text.startswith(f"mortise {verb} "), text)
            self.assertTrue(text.splitlines()[-1].startswith(f"  mortise {verb}"), text)
            # Flags that many verbs take stand on a page of their own, once.
            self.assertIn("-q --json --color --strict -h --help: mortise help flags\n", text)
            self.assertNotIn("a further layer above the file", text)
        self.assertEqual(self.ok("--version").out, "mortise 0.1.0, ABI 0.2\n")
        self.assertEqual(self.ok("--prefix").out, f"{e2e.MORTISE.parent.parent}\n")

        flags = self.ok("help", "flags").out
        for flag in ("--set K=V", "--include FILE", "-q ", "--json ", "--strict "):
            self.assertIn(f"\n  {flag}", flags)
        self.refused(["plan", "-v"],
                     "error[unknown_flag]: `mortise plan` has no flag `-v`\n  fix: mortise plan --help\n")

    def named_verbs(self, *folders):
        """(file:line, words after `mortise`) of what texts tell people to type."""
        for folder in folders:
            for path in sorted((e2e.SOURCE / folder).rglob("*.[ch]pp")):
                if path.name.endswith("_test.cpp"):
                    continue
                for number, line in enumerate(path.read_text().splitlines(), 1):
                    for literal in re.findall(r'"((?:[^"\\\\]|\\\\.)*)"', line):
                        for words in re.findall(r"(?:^|[ (`:])mortise ((?:[a-z]+)(?: [a-z]+)?)", literal):
                            yield f"{path.relative_to(e2e.SOURCE)}:{number}", words.split()

    def unknown(self, *folders):
        verbs = {line.split()[0] for line in self.ok("help").out.splitlines() if line.startswith("  ")}
        second = {"plugin": {"list", "info"}, "checkpoint": {"list", "verify"}}
        named = list(self.named_verbs(*folders))
        self.assertGreater(len(named), 5)
        return [(at, words) for at, words in named if words[0] not in verbs or
                (words[0] in second and words[1:] and words[1] not in second[words[0]])]

    def test_texts_name_verbs_that_there_are(self):
        self.assertEqual(self.unknown("core/cli", "core/manifest", "core/loop"), [])

    def test_so_do_those_of_plugins(self):
        self.assertEqual(self.unknown("core", "plugins"), [])

    def test_colour_is_for_terminals_and_for_those_who_ask(self):
        plain, red = "error[unknown_verb]: ", "\x1b[1;31merror[unknown_verb]\x1b[0m: "
        for flags, env, begin in (
            ((), {}, plain),
            ((), {"CLICOLOR_FORCE": "1"}, red),
            ((), {"NO_COLOR": "1"}, plain),
            ((), {"CLICOLOR_FORCE": "0"}, plain),
            ((), {"NO_COLOR": "1", "CLICOLOR_FORCE": "1"}, plain),
            ((), {"NO_COLOR": "", "CLICOLOR_FORCE": "1"}, red),
        ):
            self.assertTrue(self.mortise("trian", *flags, env=env).err.startswith(begin), (flags, env))
        self.assertIn("\x1b[1;31merror[file_missing]", self.mortise("plan", "none.toml", "--color=always").err)
        self.assertTrue(
            self.mortise("plan", "none.toml", "--color", "never", env={"CLICOLOR_FORCE": "1"}).err.startswith("error[")
        )
        self.refused(
            ["plan", "--color", "blue"],
            "error[wrong_type]: --color is auto, always or never, this is `blue`\n  fix: --color auto\n",
        )

    def test_an_answer_that_cannot_be_written_is_no_success(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("no /dev/full")
        for verb in (["plan", "--layer", "default"], ["points"], ["plugin", "list"], ["help"]):
            with open("/dev/full", "wb") as full:
                done = subprocess.run(
                    [e2e.MORTISE, *verb],
                    cwd=self.dir,
                    env=self.environment(),
                    stdout=full,
                    stderr=subprocess.PIPE,
                    timeout=e2e.LIMIT_S,
                    check=False,
                )
            self.assertEqual(done.returncode, 74, verb)
            self.assertTrue(done.stderr.startswith(b"error[not_written]: standard output cannot be written: "), done)

    def test_a_reader_that_has_read_enough_is_no_error_to_speak_of(self):
        reading, writing = os.pipe()
        os.close(reading)
        done = subprocess.run([e2e.MORTISE, "points"], cwd=self.dir, env=self.environment(), stdout=writing,
                              stderr=subprocess.PIPE, timeout=e2e.LIMIT_S, check=False)
        os.close(writing)
        self.assertEqual((done.returncode, done.stderr), (0, b""))

    def test_an_empty_word_is_not_one_left_out(self):
        for words, flag in ((["resume", "x", "--from", ""], "--from"), (["eval", "x", "--data", ""], "--data"),
                            (["export", "x", "--checkpoint=", "-o", "out"], "--checkpoint"),
                            (["plan", "--set", ""], "--set"), (["sample", "x", "--prompt", ""], "--prompt")):
            result = self.mortise(*words)
            self.assertEqual(result.code, 64, result)
            self.assertTrue(result.err.startswith(f"error[missing_value]: `{flag}` has an empty value; it needs one: "),
                            result)
        self.refused(["train", ""], "error[missing_value]: a word behind `mortise train` is empty: a variable that is "
                                    "not set?\n  fix: mortise train [RUN]\n")

    def test_memory_that_is_too_little_to_begin_is_said(self):
        for mebibytes in (150, 200, 250, 300, 350, 400, 450):
            limit = mebibytes << 20
            result = self.mortise("train", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
            if result.code == 0:
                continue  # a machine where it suffices
            self.assertEqual(result.code, 69, (mebibytes, result))
            self.assertRegex(result.err, r"(?m)^error\[(out_of_memory|no_libtorch)\]: ", mebibytes)

    def test_open_files_that_are_too_few_are_said(self):
        for limit in (4, 8, 12):
            result = self.mortise("train", "--set", f"run.dir=runs/{limit}", preexec_fn=lambda: resource.setrlimit(
                resource.RLIMIT_NOFILE, (limit, limit)))
            self.assertIn(result.code, (71, 74), (limit, result))
            self.assertIn("Too many open files", result.err, limit)

    def test_a_folder_that_is_gone(self):
        gone = self.dir / "gone"
        for verb in (["train", "../run.toml"], ["resume", "../runs/run"], ["points"]):
            gone.mkdir()
            done = subprocess.run(["sh", "-c", 'rmdir ../gone; exec "$@"', "sh", e2e.MORTISE, *verb], cwd=gone,
                                  env=self.environment(), capture_output=True, timeout=e2e.LIMIT_S, check=False)
            self.assertEqual(done.returncode, 74, (verb, done))
            self.assertEqual(done.stderr.decode(), "error[no_folder]: the current folder cannot be found: No such file "
                             "or directory\n  fix: go to one that is there: cd\n")

    def test_a_switch_takes_no_value(self):
        for flag, verb in (("--resume=runs/other", "train"), ("--keys=all", "plan"), ("--resume=", "train")):
            result = self.mortise(verb, flag)
            self.assertEqual(result.code, 64, result)
            self.assertTrue(result.err.startswith(f"error[needless_value]: `{flag.split('=')[0]}` takes no value, and "
                                                  f"`{flag}` gives it one\n"), result)
        self.assertFalse((self.dir / "runs").exists())

    def test_without_a_word_the_help_and_64(self):
        result = self.mortise()
        self.assertEqual((result.code, result.err), (64, ""))
        self.assertIn("mortise help VERB", result.out)


if __name__ == "__main__":
    e2e.main()
