"""What a person is told and left with when a run stops and goes on."""
import json
import os
import re
import shutil
import unittest

import e2e
from e2e import TINY
from refusals_test import Fixtures

ENDLESS = ("--set", "run.length=100000000")
RUN = TINY.replace("length = 6", "length = 8") + "[checkpoint]\nevery = 2\nkeep = 99\n[log]\nevery = 1\n"
VALIDATED = TINY.replace("micro_batch_size = 4", "micro_batch_size = 4\nvalidation = 0.2")


class Stopped(e2e.Case):
    def stop_at(self, run, step):
        """The run as a kill after `step` leaves it."""
        for path in (run / "checkpoints").glob("step-*"):
            if int(path.name[5:]) > step:
                shutil.rmtree(path)
        status = json.loads((run / "status.json").read_text())
        status["state"] = "running"
        (run / "status.json").write_text(json.dumps(status))
        return run


class Told(Stopped):
    def test_how_to_go_on(self):
        result = self.mortise("train", *ENDLESS, "--set", "run.time_limit=0.1 s")
        self.assertEqual((result.code, result.err), (75, "next    mortise resume runs/run\n"))
        again = self.mortise("resume", "runs/run")
        self.assertEqual(again.code, 75, again)
        self.assertTrue(again.err.endswith("\nnext    mortise resume runs/run\n"), again)
        for quiet in ("-q", "--json"):
            self.assertEqual(self.mortise("resume", "runs/run", quiet).err, "")

    def test_the_step_of_a_run_that_a_plugin_ended(self):
        fixtures = Fixtures("built")
        fixtures.dir = self.dir
        fixtures.built("guard.enough", '\n[points]\nlistens = [{ point = "step.commit" }]\n', source="stops_early.c")
        self.ok("train", "--use", "guard.enough", "--plugin-path", "more")
        status = json.loads((self.dir / "runs/run/status.json").read_text())
        self.assertEqual((status["state"], status["step"], status["of"], status["exit"]), ("finished", 3, 6, 0))
        self.assertTrue((self.dir / "runs/run/checkpoints/step-3").is_dir())
        self.ok("train", "--use", "guard.enough", "--plugin-path", "more", "--set", "run.name=two", "--ranks", "2",
                env={"STOPS_ON": "1"})
        end = self.records(self.dir / "runs/two", "end")[-1]
        self.assertEqual((end["steps"], end["reason"]), (3, "enough"), "what another rank has said")


class Device(Stopped):
    def test_other_threads_are_said_of_a_run_that_repeats_its_bits(self):
        for repeats in (True, False):
            name = f"mine-{repeats}"
            run = self.train(name, RUN.replace("[run]\n", f"[run]\ndeterministic = {str(repeats).lower()}\n"))
            for threads, said in ((2, repeats), (2, False), (1, repeats)):
                self.stop_at(run, 4)
                env = {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
                err = self.ok("resume", f"runs/{name}", env=env).err
                self.assertEqual("warning[other_device]: " in err, said, err)
            if repeats:
                self.assertRegex(err, r"computed with device\.cpu, 2 threads, .* before, now device\.cpu, 1 thread, ")

    def test_a_number_of_threads_is_a_change_of_numbers(self):
        for name, table, said in (("mine", "[device.cpu]\n", "device.cpu.threads  none -> 2 "),
                                  ("default", "", "device.cpu  off -> on ")):
            run = self.stop_at(self.train(name, RUN + table), 4)
            self.assertTrue(run.is_dir())
            result = self.mortise("train", f"{name}.toml", "--resume", "--set", "device.cpu.threads=2")
            self.assertEqual(result.code, 64, result)
            self.assertIn(f"  numeric  {said}", result.err)
        # As it says.
        self.assertIn("mortise resume runs/default --use device.cpu --set device.cpu.threads=2  ", result.err)
        self.ok("resume", "runs/default", "--use", "device.cpu", "--set", "device.cpu.threads=2")


class Place(Stopped):
    def test_a_run_is_not_moved_by_a_key(self):
        self.stop_at(self.train("mine", RUN), 4)
        self.refused(["resume", "runs/mine", "--set", "run.dir=elsewhere"],
                     "error[fixed_key]: `run.dir` does not move a run: it goes on in runs/mine\n"
                     "  --> command line: --set run.dir=elsewhere\n"
                     "  effect: nothing was started\n"
                     f"  fix: mv runs/mine {self.dir}/elsewhere && mortise resume {self.dir}/elsewhere\n")
        self.ok("resume", "runs/mine", "--set", "run.dir=runs/mine")

    def test_a_run_that_was_moved_goes_on_where_it_is(self):
        self.file("run.toml", RUN.replace("[run]\n", "[run]\ndir = \"first\"\n"))
        self.ok("train")
        (self.dir / "first").rename(self.dir / "second")
        self.stop_at(self.dir / "second", 4)
        self.ok("resume", "second")
        self.assertFalse((self.dir / "first").exists())

    def test_paths_inside_of_a_run_lead_to_it(self):
        self.train("mine", RUN)
        for word, verb, fix in (("runs/mine/run.toml", ["resume"], "mortise resume runs/mine"),
                                ("runs/mine/checkpoints/step-2", ["resume"], "mortise resume runs/mine --from 2"),
                                ("runs/mine/checkpoints/step-2/", ["sample"],
                                 "mortise sample runs/mine --checkpoint 2"),
                                ("runs/mine/checkpoints/latest", ["export", "-o", "out"],
                                 "mortise export runs/mine --checkpoint latest")):
            self.refused([*verb, word],
                         f"error[no_run]: {word} is inside of a run directory, and is none\n  fix: {fix}\n", code=65)

    def test_a_checkpoint_that_is_damaged_is_not_the_only_one(self):
        run = self.train("mine", RUN)
        (run / "checkpoints/step-4/state.json").write_text("")
        for verb, flag in (("resume", "--from"), ("sample", "--checkpoint")):
            result = self.mortise(verb, "runs/mine", flag, "4")
            self.assertEqual(result.code, 65, result)
            self.assertIn("error[checkpoint_damaged]: ", result.err)
            self.assertIn(f"  fix: {flag} latest   (the newest that is what was saved)\n", result.err)


class Data(Stopped):
    def test_changed_data_is_refused(self):
        run = self.train("mine", RUN)
        self.stop_at(run, 4)
        text = self.dir / "notes.txt"
        whole = text.read_text()
        for changed in (whole[::-1], whole + whole, whole[:len(whole) // 2]):
            text.write_text(changed)
            result = self.mortise("resume", "runs/mine")
            self.assertEqual(result.code, 65, result)
            self.assertIn("error[data_changed]: the data of the split `train` is not what this run began with",
                          result.err)
            was, now = re.search(r"was (\d+ samples .*), is (\d+ samples .*)\n", result.err).groups()
            self.assertNotEqual(was, now)
        text.write_text(whole)
        self.ok("resume", "runs/mine")

    def test_changed_data_is_not_called_held_out(self):
        self.train("mine", RUN, "--set", "data.validation=0.3")
        self.assertEqual(self.ok("eval", "runs/mine", "--set", "eval.samples=2").err, "")
        text = self.dir / "notes.txt"
        text.write_text(text.read_text()[::-1])
        changed = "[data_changed]: the data of the split `validation` is not what this run began with\n"
        self.assertIn("warning" + changed, self.ok("eval", "runs/mine").err)
        self.assertEqual(self.ok("eval", "runs/mine", "--data", "notes.txt").err, "")
        strict = self.mortise("eval", "runs/mine", "--strict")
        self.assertEqual((strict.code, strict.out), (65, ""), strict)
        self.assertIn("error" + changed, strict.err)

    def test_evaluations_without_data_are_warned_of(self):
        asked = ("--set", "eval.every=2")
        text = "[no_validation_data]: eval.every asks for evaluations, and the run has nothing to evaluate on\n"
        for verb in ("plan", "train"):
            self.assertIn("warning" + text, self.ok(verb, *asked).err)
            strict = self.mortise(verb, *asked, "--strict")
            self.assertEqual(strict.code, 64, strict)
            self.assertIn("error" + text, strict.err)

    def test_so_is_who_waits_for_their_numbers(self):
        text = ("warning[no_validation_data]: guard.patience waits for eval.loss, and the run has nothing to evaluate "
                "on\n")
        self.assertIn(text, self.ok("train", "--use", "guard.patience").err)
        self.assertNotIn("no_validation_data",
                         self.ok("plan", "--use", "guard.patience", "--set", "data.validation=0.2").err)

    def test_a_change_is_warned_of_once(self):
        text = "warning[no_validation_data]: eval.every asks for evaluations, and the run has nothing to evaluate on\n"
        self.train("mine", RUN)
        for length, words, said in ((9, ("--set", "eval.every=2"), 1), (10, ("--set", "eval.every=2"), 0),
                                    (11, (), 0), (12, ("--set", "eval.every=3"), 1)):
            err = self.ok("resume", "runs/mine", "--set", f"run.length={length}", *words).err
            self.assertEqual(err.count(text), said, (words, err))

    def test_a_warning_is_said_once_a_command_and_not_by_a_resume(self):
        self.file("mine.toml", RUN.replace("[data]\n", "[data]\nvalidation = 0.1\n").replace(
            'path = "notes.txt"\n', 'path = "notes.txt"\nvalidation_path = "notes.txt"\n'))
        for words, said in ((("train", "mine.toml", "--json"), 1), (("train", "mine.toml", "--resume"), 1),
                            (("resume", "runs/mine", "--set", "run.length=9"), 0), (("plan", "runs/mine"), 1)):
            self.assertEqual(self.ok(*words).err.count("validation_unused"), said, words)


class Recorded(Stopped):
    def test_where_every_value_is_from(self):
        self.file("base.toml", RUN)
        run = self.train("mine", 'include = ["base.toml"]\n[optimizer]\nlr = 1e-3\n', "--set", "run.seed=7")
        first, plan = (run / "run.toml").read_text(), (run / "plan.txt").read_text()
        self.stop_at(run, 4)
        self.ok("resume", "runs/mine")
        self.assertEqual((run / "run.toml").read_text(), first)
        # What run.toml states is decided, so there is less to advise.
        self.assertEqual((run / "plan.txt").read_text().split("\nadvice\n")[0], plan.split("\nadvice\n")[0])
        self.stop_at(run, 4)
        self.ok("resume", "runs/mine", "--set", "optimizer.lr=1e-4")
        changed = (run / "run.toml").read_text()
        self.assertIn(" · from mine.toml, base.toml, default.toml, command line\n", changed.splitlines(True)[0])
        lines = [line for line in first.splitlines()[1:] if not line.startswith("lr = ")]
        self.assertEqual([line for line in changed.splitlines()[1:] if not line.startswith("lr = ")], lines)
        self.assertRegex(changed, r"(?m)^lr = 1e-4 +# command line: --set optimizer\.lr=1e-4$")
        self.assertIn("base.toml:", (run / "plan.txt").read_text())
        self.assertNotIn("run.toml:", (run / "plan.txt").read_text())

    def test_a_time_limit_is_of_one_attempt(self):
        run = self.stop_at(self.train("run", RUN), 4)
        before = (run / "run.toml").read_text()
        self.assertNotIn("time_limit", before)
        result = self.mortise("resume", "runs/run", *ENDLESS, "--set", "run.time_limit=0.1 s")
        self.assertEqual(result.code, 75, result)
        self.assertNotIn("time_limit", (run / "run.toml").read_text())
        self.assertIn("length = 100000000", (run / "run.toml").read_text())
        # One of the run's own stays, whatever one attempt was told.
        run = self.stop_at(self.train("own", RUN.replace("length = 8", 'length = 8\ntime_limit = "10 min"')), 4)
        self.ok("resume", "runs/own", "--set", "run.time_limit=20 min")
        self.assertRegex((run / "run.toml").read_text(), r'(?m)^time_limit = "600 seconds"|^time_limit = "10 min')

    def test_a_pattern_and_not_its_files(self):
        for n in range(50):
            self.file(f"text/{n}.txt", f"{n} " * 40)
        run = self.train("run", RUN.replace('"notes.txt"', '["text/*.txt"]'))
        self.assertIn(f'path = ["{self.dir}/text/*.txt"]', (run / "run.toml").read_text())
        self.stop_at(run, 4)
        self.ok("resume", "runs/run")
        shutil.rmtree(self.dir / "text")
        self.ok("sample", "runs/run", "--tokens", "2")
        self.assertNotEqual(self.mortise("resume", "runs/run", "--set", "run.length=9").code, 0)

    def test_what_a_damaged_checkpoint_was_goes_aside(self):
        run = self.stop_at(self.train("run", RUN), 6)
        weights = run / "checkpoints/step-6/model/model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-4])
        result = self.ok("resume", "runs/run", "--set", "checkpoint.keep=1")
        self.assertIn("resume  runs/run at step 4 ", result.err)
        self.assertEqual([p.name for p in (run / "checkpoints/abandoned").iterdir()], ["step-6"])
        self.assertTrue((run / "checkpoints/step-8/MANIFEST.json").exists(), "what was announced is there")

    def test_from_words_too(self):
        run = self.stop_at(self.train("run", RUN), 6)
        self.assertIn("at step 6 ", self.ok("resume", "runs/run", "--from", "latest").err)
        result = self.mortise("resume", "runs/run", "--from", "best")
        self.assertEqual((result.code, "error[no_checkpoint]: runs/run has no best checkpoint\n" in result.err),
                         (65, True), result)
        result = self.mortise("resume", "runs/run", "--from", "yesterday")
        self.assertEqual((result.code, result.err), (65, "error[no_checkpoint]: runs/run has no checkpoint of step "
                                                         "yesterday, only of 8, 6, 4 or 2\n  fix: --from 8\n"))


class Own(e2e.Case):
    """A checkpoint knows what is fixed for its run; what may change does not make it another's."""

    def test_what_could_not_be_read_back_is_not_begun(self):
        where = f'where = ["wte*", "{"z" * 70000}"]'
        self.file("run.toml", TINY + f"[parameters.many]\n{where}\nlr_scale = 0.5\n")
        result = self.mortise("train", "run.toml")
        self.assertEqual(result.code, 65, result)
        self.assertRegex(result.err, r"^error\[too_large\]: fixed\.json would have 7\d,\d{3} bytes; "
                                     r"it is read up to 65,536\n"
                                     r"  effect: nothing was started: the run could not be resumed\n")
        self.assertFalse((self.dir / "runs/run").exists())

    def test_a_checkpoint_of_another_run_is_refused(self):
        text = TINY + "[checkpoint]\nevery = 3\nkeep = 9\n"
        run, other = self.train("run", text), self.train("other", text.replace("batch_size = 4", "batch_size = 2"))
        shutil.rmtree(run / "checkpoints/step-6")
        shutil.copytree(other / "checkpoints/step-6", run / "checkpoints/step-6")
        result = self.mortise("resume", "runs/run", "--set", "run.length=8")
        self.assertEqual(result.code, 65, result)
        self.assertIn("error[other_state]: it is of another run: `data.micro_batch_size` is \"2\" there, and \"4\" in "
                      "this run\n  at: runs/run/checkpoints/step-6/fixed.json\n", result.err)
        shutil.rmtree(run / "checkpoints/step-6")
        manifest = run / "run.toml"
        manifest.write_text(re.sub(r"(?m)^micro_batch_size = 4", "micro_batch_size = 2", manifest.read_text()))
        self.assertEqual(self.mortise("resume", "runs/run", "--set", "run.length=8").code, 65)

    def test_a_precision_is_not_another_by_accident(self):
        text = TINY + "[checkpoint]\nevery = 3\nkeep = 9\n"
        run, other = self.train("run", text), self.train("other", text + "[precision.bf16]\n")
        shutil.copytree(other / "checkpoints/step-6", run / "checkpoints/step-6", dirs_exist_ok=True)
        result = self.mortise("resume", "runs/run", "--set", "run.length=8")
        self.assertEqual(result.code, 65, result)
        self.assertIn("`precision.bf16` is \"on\" there, and \"off\" in this run", result.err)

    def test_what_may_change_goes_on_twice(self):
        self.train("run", TINY + "[checkpoint]\nevery = 3\n[sample.text]\n")
        for length in (7, 8):
            self.ok("resume", "runs/run", "--set", f"run.length={length}", "--set", "optimizer.lr=1e-4")
        self.ok("resume", "runs/run", "--set", "run.length=9", "--without", "log.jsonl")

    def test_what_follows_the_length_goes_on_following_it(self):
        self.train("run", TINY)
        self.file("run.toml", TINY.replace("length = 6", "length = 8"))
        result = self.mortise("train", "--resume")
        self.assertEqual(result.code, 64, result)
        self.assertIn(" --set run.length=8     (recorded in the run)\n", result.err)
        self.assertNotIn("--set schedule.over", result.err)


class Globs(e2e.Case):
    def test_a_wildcard_enters_no_run_directory(self):
        self.file("notes/a.txt", "one two three " * 99)
        (self.dir / "notes.txt").unlink()
        text = TINY.replace("notes.txt", "**/*.txt") + "[checkpoint]\nevery = 3\n"
        self.train("run", text)
        self.ok("resume", "runs/run", "--set", "run.length=8")
        self.train("second", text)
        data = [json.loads((self.dir / f"runs/{name}/checkpoints/step-6/data.json").read_text())
                for name in ("run", "second")]
        self.assertEqual(data[0], data[1])

    def test_a_path_that_is_not_utf8_is_refused(self):
        folder = os.fsencode(self.dir) + b"/n\xff"
        os.mkdir(folder)
        with open(folder + b"/a.txt", "wb") as file:
            file.write(b"one two three " * 99)
        for value in (folder + b"/a.txt", b"**/*.txt"):
            result = self.mortise("train", "--set", os.fsdecode(b"data.text.path=" + value))
            self.assertEqual(result.code, 64, result)
            self.assertIn("error[not_utf8]: the path ", result.err)
            self.assertIn("/n\\xff/a.txt is not UTF-8\n", result.err)
            self.assertFalse((self.dir / "runs").exists())


class Layers(Stopped):
    def test_a_run_of_which_one_plugin_takes_a_part_of_another(self):
        """halves takes `dropout` from operators.aten, which keeps the rest; adamw loses the norms to sgd."""
        fixtures = Fixtures("built")
        fixtures.dir = self.dir
        fixtures.built("operators.halves", '\n[points]\nprovides = ["dropout"]\n[dropout]\nattributes = ["p"]\n',
                       source="halves.c")
        self.file("base.toml", RUN.replace("width = 16\n", "width = 16\ndropout = 0.1\n") +
                  '[parameters.all]\nwhere = "*"\nweight_decay = 0.5\n')
        with_plugin = ("--plugin-path", "more")
        text = ('include = ["base.toml"]\n[data]\nvalidation = 0.2\n[operators.halves]\n[optimizer.sgd]\n'
                'where = "role:norm"\nlr = 0.1\n[parameters.norms]\nwhere = "role:norm"\nweight_decay = 0.0\n')

        def plan(*args):
            told = json.loads(self.ok("plan", *args, "--json", *with_plugin).out)
            return told["plan"]["hash"], told["advice"]
        run = self.train("parts", text, *with_plugin)
        whole = self.weights(run)
        before = plan("parts.toml")
        self.assertGreater(len(before[1]), 0)
        self.assertEqual(plan("runs/parts"), before)
        self.ok("eval", "runs/parts", *with_plugin)
        self.ok("sample", "runs/parts", "--tokens", "2", *with_plugin)
        for again in range(2):
            self.stop_at(run, 4)
            self.ok("resume", "runs/parts", *with_plugin)
            self.assertEqual(self.weights(run), whole, again)
            self.assertEqual(plan("runs/parts"), before, again)
        # On the command line, what comes later stands above all that is recorded.
        self.assertIn("replaced", self.ok("plan", "runs/parts", "--use", "schedule.cosine", *with_plugin).out)


class Loop(Stopped):
    """What the loop's own records say."""

    def test_the_time_left_is_of_the_steps_of_this_attempt(self):
        run = self.train("run", TINY.replace("length = 6", "length = 600") + "[log]\nevery = 50\n")
        result = self.mortise("resume", "runs/run", "--set", "run.length=1200")
        self.assertEqual(result.code, 0, result)
        step = next(r for r in self.records(run, "step") if r["step"] == 650)
        expected = (1200 - 650) / (step["samples_per_s"] / 4)
        self.assertGreater(step["left_s"], expected / 3)
        self.assertLess(step["left_s"], expected * 3)

    def test_the_time_left_ends_with_the_time_limit(self):
        self.mortise("train", *ENDLESS, "--set", "run.time_limit=0.3 s", "--set", "log.every=1")
        self.assertLessEqual(max(r["left_s"] for r in self.records(self.dir / "runs/run", "step")), 0.3)

    def test_a_time_limit_is_called_one(self):
        result = self.mortise("train", *ENDLESS, "--set", "run.time_limit=0.1 s")
        self.assertEqual(result.code, 75)
        self.assertRegex(result.out.splitlines()[-1], r"^stopped .* time limit")

    def test_the_end_says_whether_it_can_go_on(self):
        self.mortise("train", *ENDLESS, "--set", "run.time_limit=0.1 s")
        self.assertIs(bool(self.records(self.dir / "runs/run", "end")[0]["resumable"]), True)
        self.assertIs(bool(self.records(self.train("done"), "end")[0]["resumable"]), False)

    def test_the_next_line_can_be_typed(self):
        def next_line(prompts, **more):
            return self.ok("train", "--use", "sample.text", "--set", "sample.text.tokens=2",
                           "--set", f"sample.text.prompts={prompts}", **more).out.splitlines()[-1]
        self.assertEqual(next_line('["1 2", "b"]', env={"MORTISE_RUNS": "my runs"}),
                         "next    mortise sample 'my runs/run' --prompt '1 2'")
        self.assertEqual(next_line('["it\'s $1"]'), "next    mortise sample runs/run --prompt 'it'\\''s $1'")
        # Two lines would not stand in one; the sampler goes on from its own.
        self.assertEqual(next_line('["a\\nb"]'), "next    mortise sample runs/run-2")

    def test_a_length_that_is_passed_is_refused(self):
        run = self.stop_at(self.train("run", RUN), 4)
        before = {name: (run / name).read_bytes() for name in ("run.toml", "status.json")}
        result = self.mortise("resume", "runs/run", "--set", "run.length=2")
        self.assertEqual(result.code, 64, result)
        self.assertIn("error[length_passed]: the run is at step 4, and `run.length` would end it at step 2\n",
                      result.err)
        self.assertIn("  fix: --set run.length=4, or more\n", result.err)
        self.assertEqual({name: (run / name).read_bytes() for name in before}, before)

    def test_a_key_of_a_finished_run_is_refused(self):
        run = self.train("run", RUN)
        before = {name: (run / name).read_bytes() for name in ("run.toml", "status.json", "metrics.jsonl")}
        result = self.mortise("resume", "runs/run", "--set", "optimizer.lr=1e-4")
        self.assertEqual(result.code, 64, result)
        self.assertIn("error[run_finished]: runs/run is finished, at step ", result.err)
        self.assertIn(", and `optimizer.lr` would change nothing\n  --> command line: --set optimizer.lr=1e-4\n",
                      result.err)
        result = self.mortise("resume", "runs/run", "--set", "run.length=2")
        self.assertEqual(result.code, 64, result)
        self.assertIn("error[length_passed]: ", result.err)
        self.assertIn("is finished", self.ok("resume", "runs/run").err)
        self.assertIn("is finished", self.ok("resume", "runs/run", "--set", "run.time_limit=1 h").err)
        self.assertEqual({name: (run / name).read_bytes() for name in before}, before)

    def test_a_run_that_a_plugin_ended_goes_on_from_there(self):
        run = self.train("run", VALIDATED + "[eval]\nevery = 1\n[guard.patience]\nthreshold = 9\nevaluations = 2\n")
        self.assertEqual(json.loads((run / "status.json").read_text())["step"], 3)  # the first one is better than none
        more = ("--set", "guard.patience.evaluations=50")
        result = self.mortise("resume", "runs/run", *more)
        self.assertEqual(result.code, 64, result)
        self.assertIn("runs/run is finished, at step 3 of 6, and `guard.patience.evaluations` would change", result.err)
        self.assertIn("  fix: go on from there: --from 3\n", result.err)
        self.assertIn("go on from there: mortise resume runs/run --from 3\n", self.ok("resume", "runs/run").err)
        self.ok("resume", "runs/run", *more, "--from", "3")
        self.assertEqual(json.loads((run / "status.json").read_text())["step"], 6)

    def test_who_only_watches_may_come_later(self):
        self.train("whole", VALIDATED)
        self.train("run", VALIDATED, "--set", "run.length=3")
        self.ok("resume", "runs/run", "--set", "run.length=6", "--use", "metric.accuracy")
        self.assertEqual(*(self.weights(self.dir / "runs" / name) for name in ("run", "whole")))

    def test_who_changes_no_bit_may_go_and_come_back(self):
        self.train("whole", VALIDATED)
        self.train("run", VALIDATED, "--set", "run.length=3")
        self.ok("resume", "runs/run", "--set", "run.length=5", "--without", "loader.prefetch")
        again = ("--use", "loader.prefetch", "--use", "activation.checkpointing")
        self.ok("resume", "runs/run", "--set", "run.length=6", *again)
        self.assertEqual(*(self.weights(self.dir / "runs" / name) for name in ("run", "whole")))

    def test_a_beginning_again_has_a_folder_of_its_own(self):
        self.file("other.toml", RUN + "")
        self.ok("train", "other.toml", "--set", "run.dir=there")
        result = self.mortise("train", "other.toml", "--set", "run.dir=there", "--resume", "--set", "run.length=20")
        self.assertEqual(result.code, 64, result)
        again = result.err.split("begin again:")[1].split("\n")[0].split()
        self.assertIn("run.dir=there-2", again)
        self.assertNotIn("run.dir=there", again)
        self.ok(*again[1:])
        self.assertTrue((self.dir / "there-2/run.toml").exists())

    def test_a_newer_run_of_the_name_is_named(self):
        self.train("run", RUN)
        self.ok("train", "run.toml")
        status = self.dir / "runs/run-2/status.json"
        status.write_text(status.read_text().replace("finished", "stopped"))
        result = self.ok("train", "run.toml", "--resume")
        self.assertIn("runs/run-2 is newer, and not finished: mortise resume runs/run-2\n", result.err)

    def test_a_run_that_had_no_step_left_has_no_loss_of_nan(self):
        run = self.train("run", RUN)
        self.stop_at(run, 8)
        result = self.ok("resume", "runs/run")
        self.assertNotRegex(result.out, re.compile("nan"))


if __name__ == "__main__":
    e2e.main()
