"""State that survives: a run that is stopped and goes on is the run that was never stopped, bit for bit; what is
damaged is seen; what changed is said."""
import json
import pathlib
import re
import resource
import shlex
import shutil
import signal
import subprocess
import time

import e2e

LONGER = e2e.TINY.replace("length = 6", "length = 12").replace("sequence_length = 16",
                                                               "sequence_length = 16\nvalidation = 0.1")
RUN = LONGER.replace("width = 16", "width = 16\ndropout = 0.1") + """\
[schedule.cosine]
[schedule]
warmup = 2
[gradient.clip]
norm = 1.0
[step.accumulation]
count = 2
[eval]
every = 4
[checkpoint]
every = 4
[log]
every = 1
"""


class Checkpoints(e2e.Case):
    def hash_of(self, run, step=None):
        found = json.loads(self.ok("checkpoint", "list", run, "--json").out)["checkpoints"]
        wanted = found[0] if step is None else next(c for c in found if c["step"] == step)
        self.assertTrue(wanted["verified"], found)
        return wanted["sha256"]

    def steps(self, run):
        return sorted(int(p.name[5:]) for p in (run / "checkpoints").glob("step-*"))

    def losses(self, run):
        return [(r["step"], r["loss"], r["lr"], r["grad_norm"]) for r in self.records(run, "step")]


class Resume(Checkpoints):
    """Everything that has state is on: dropout, AdamW, warm-up, accumulation, an epoch's order."""

    def stopped(self, name, text=RUN, after=6, *flags):
        """NAME.toml, ended by a signal once step `after` is out."""
        self.file(f"{name}.toml", text)
        process = self.start("train", f"{name}.toml", "--set", "run.length=100000", *flags)
        for line in process.stdout:
            if line.startswith(f"step    {after}/".encode()):
                break
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=e2e.LIMIT_S), 75, process.stderr.read())
        return self.dir / "runs" / name

    def interrupted_at(self, name, step, text=RUN):
        """A run that was killed some steps behind the checkpoint of `step`."""
        return self.interrupted(self.train(name, text, "--set", "checkpoint.keep=9"), step)

    def interrupted(self, run, step):
        for n in self.steps(run):
            if n > step:
                shutil.rmtree(run / "checkpoints" / f"step-{n}")
        status = json.loads((run / "status.json").read_text())
        status["state"] = "running"
        (run / "status.json").write_text(json.dumps(status))
        return run

    def same_as_uninterrupted(self, text, files=8):
        whole = self.train("whole", text, "--set", "checkpoint.keep=9")
        for step in (4, 8):
            run = self.interrupted(shutil.copytree(whole, self.dir / "runs/part", symlinks=True), step)
            result = self.ok("resume", "runs/part")
            self.assertEqual(result.err, f"resume  runs/part at step {step} (checkpoints/step-{step}: "
                                         f"{files} files, hashes match)\n")
            self.assertEqual(self.hash_of(run), self.hash_of(whole))
            self.assertEqual(self.losses(run), self.losses(whole))
            self.assertEqual([r["eval.loss"] for r in self.records(run, "eval")],
                             [r["eval.loss"] for r in self.records(whole, "eval")])
            shutil.rmtree(run)

    def test_is_the_run_that_was_never_stopped(self):
        self.same_as_uninterrupted(RUN)

    def test_is_so_in_bf16_with_checkpointing_and_momentum_too(self):
        self.same_as_uninterrupted(RUN.replace("[optimizer.adamw]", "[optimizer.sgd]\nmomentum = 0.9\n"
                                                                    "[precision.bf16]\n[activation.checkpointing]"))

    def test_is_so_in_fp16_whose_factor_grows_and_falls(self):
        self.same_as_uninterrupted(RUN + "[precision.fp16]\ninitial = 67108864.0\ninterval = 2\n", files=9)
        scales = [r["scale"] for r in self.records(self.dir / "runs/whole", "step")]
        self.assertTrue(any(b < a for a, b in zip(scales, scales[1:])), scales)
        self.assertTrue(any(b > a for a, b in zip(scales, scales[1:])), scales)

    def test_is_so_with_weights_and_states_in_bf16_too(self):
        self.same_as_uninterrupted(RUN.replace("[optimizer.adamw]", "[optimizer.adamw_anyprecision]\n"
                                               "kahan_summation = true\n[precision.half]"))

    def test_is_so_with_rows_and_columns_too(self):
        self.same_as_uninterrupted(RUN.replace("[optimizer.adamw]", "[optimizer.adafactor]\nbeta1 = 0.9\n"
                                               "scale_parameter = true"))

    def test_is_so_with_states_in_8_bits_too(self):
        self.same_as_uninterrupted(RUN.replace("[optimizer.adamw]", "[optimizer.adamw_8bit]\nmin_8bit_size = 100"))

    def test_is_so_with_two_optimizers_and_packed_matrices_too(self):
        self.same_as_uninterrupted(RUN.replace("[optimizer.adamw]", "[optimizer.muon]\nwhere = \"role:matrix\"\n"
                                               "[optimizer.adamw]"))

    def test_is_so_in_the_background_too(self):
        self.same_as_uninterrupted(RUN.replace("[checkpoint]", "[checkpoint]\nbackground = true"))
        saved = self.records(self.dir / "runs/whole", "saved")
        self.assertEqual([(r["step"], r["background"]) for r in saved], [(4, 1), (8, 1), (12, 1)])

    def test_goes_on_after_a_signal_and_after_a_move(self):
        run = self.stopped("signalled")
        status = json.loads((run / "status.json").read_text())
        self.assertEqual((status["state"], status["exit"], status["resumable"]), ("stopped", 75, True))
        moved = self.dir / "elsewhere/moved"
        moved.parent.mkdir()
        run.rename(moved)
        at = self.steps(moved)[-1]
        self.ok("resume", "elsewhere/moved", "--set", f"run.length={at + 3}")
        self.assertEqual([s for s, *_ in self.losses(moved)], list(range(1, at + 4)))

    def test_train_resume_begins_goes_on_and_ends(self):
        self.file("run.toml", RUN)
        self.assertEqual(self.ok("train", "--resume").err, "")
        run = self.dir / "runs/run"
        whole = self.hash_of(run)
        finished = self.ok("train", "--resume")
        self.assertEqual((finished.out, finished.err), ("", "runs/run is finished, at step 12; longer: "
                                                            "mortise resume runs/run --set run.length=…\n"))
        shutil.rmtree(run)
        run = self.interrupted_at("run", 8)
        self.assertIn("resume  runs/run at step 8 ", self.ok("train", "--resume").err)
        self.assertEqual(self.hash_of(run), whole)
        self.assertEqual(sorted(p.name for p in (self.dir / "runs").iterdir()), ["latest", "run"])

    def test_begins_again_where_nothing_was_saved(self):
        run = self.interrupted_at("early", 0)
        before = (run / "metrics.jsonl").read_bytes()
        begin_again = "mortise train runs/early/run.toml --resume --set run.dir=runs/early\n"
        result = self.mortise("resume", "runs/early")
        self.assertEqual((result.code, result.err), (65, (
            "error[no_checkpoint]: runs/early came to step 12, and has no checkpoint to go on from\n"
            "  effect: nothing was started; the run and its history are as they were\n"
            "  fix: begin it again: " + begin_again)))
        again = self.mortise("train", "runs/early/run.toml", "--set", "run.length=1")
        self.assertIn("; to go on with that one: " + begin_again, again.err)
        changed = self.mortise("train", "early.toml", "--resume", "--set", "optimizer.lr=0.5", "--set", "run.seed=9")
        self.assertEqual(changed.code, 64, changed)
        self.assertIn("\n  fix: continue as it was:   " + begin_again +
                      "       begin again:          mortise train early.toml ", changed.err)
        for words in (["train", "runs/early"], ["sample", "runs/early"]):
            self.assertIn(begin_again, self.mortise(*words).err)
        self.assertEqual((run / "metrics.jsonl").read_bytes(), before)
        copied = self.dir / "runs/copied"
        shutil.copytree(run, copied, symlinks=True)
        command = self.mortise("resume", "runs/copied").err.split("begin it again: mortise ")[1].split()
        self.assertEqual(command, ["train", "runs/copied/run.toml", "--resume", "--set", "run.dir=runs/copied"])
        self.assertIn("from the beginning: nothing was saved yet\n", self.ok(*command).err)
        self.assertEqual([s for s, *_ in self.losses(copied)], list(range(1, 13)))
        status = json.loads((run / "status.json").read_text())
        (run / "status.json").write_text(json.dumps({**status, "step": 0}))
        self.assertEqual(self.ok("resume", "runs/early").err,
                         "resume  runs/early from the beginning: nothing was saved yet\n")
        self.assertEqual([s for s, *_ in self.losses(run)], list(range(1, 13)))
        shutil.rmtree(run)  # killed while the manifest was written, which is the first file
        run.mkdir()
        (run / "run.toml.tmp-1").touch()
        self.ok("train", "early.toml", "--resume")
        self.assertEqual([s for s, *_ in self.losses(run)], list(range(1, 13)))

    def test_passes_over_what_is_damaged(self):
        whole = self.train("whole", RUN)
        run = self.interrupted_at("hurt", 8)
        file = run / "checkpoints/step-8/optimizer/rank-0.safetensors"
        file.write_bytes(file.read_bytes()[:-4])
        listed = self.mortise("checkpoint", "verify", "runs/hurt")
        self.assertEqual(listed.code, 65)
        self.assertRegex(listed.out,
                         r"(?m)^8 .* damaged: optimizer/rank-0\.safetensors: [\d,]+ bytes, [\d,]+ recorded$")
        result = self.ok("resume", "runs/hurt")
        self.assertIn("warning[checkpoint_damaged]: step 8 is not what was saved\n"
                      "  at: runs/hurt/checkpoints/step-8/optimizer/rank-0.safetensors: ", result.err)
        self.assertIn("effect: passed over", result.err)
        self.assertIn("resume  runs/hurt at step 4 ", result.err)
        self.assertEqual(self.hash_of(run), self.hash_of(whole))
        self.ok("checkpoint", "verify", "runs/hurt")

    def test_refuses_when_nothing_is_left(self):
        run = self.interrupted_at("lost", 4)
        (run / "checkpoints/step-4/state.json").write_text("{}")
        before = sorted(p.name for p in run.rglob("*"))
        result = self.mortise("resume", "runs/lost")
        self.assertEqual(result.code, 65)
        self.assertIn("error[no_checkpoint]: no checkpoint of runs/lost is what was saved\n", result.err)
        self.assertEqual(sorted(p.name for p in run.rglob("*")), before)

    def test_from_a_step_sets_the_later_ones_aside(self):
        run = self.interrupted_at("back", 12)
        self.refused(["resume", "runs/back", "--from", "5"],
                     "error[no_checkpoint]: runs/back has no checkpoint of step 5, only of 12, 8 or 4\n"
                     "  fix: --from 12\n", code=65)
        for word in ("none", "-1", "4x", "9" * 30):
            result = self.mortise("resume", "runs/back", f"--from={word}")
            self.assertEqual((result.code, "only of 12, 8 or 4\n  fix: --from 12\n" in result.err), (65, True), result)
        self.ok("resume", "runs/back", "--from", "4", "--set", "optimizer.lr=1e-4")
        self.assertEqual(sorted(p.name for p in (run / "checkpoints/abandoned").iterdir()), ["step-12", "step-8"])
        self.assertEqual([s for s, *_ in self.losses(run)], list(range(1, 13)))
        self.assertIn("lr = 1e-4", (run / "run.toml").read_text())
        self.assertEqual(len((run / "sources/command.txt").read_text().splitlines()), 2)

    def test_one_process_at_a_time(self):
        self.file("busy.toml", RUN)
        process = self.start("train", "busy.toml", "--set", "run.length=100000")
        for line in process.stdout:
            if line.startswith(b"saved"):
                break
        result = self.mortise("resume", "runs/busy")
        self.assertEqual(result.code, 73)
        self.assertIn("error[run_busy]: another process is training runs/busy (running, step ", result.err)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=e2e.LIMIT_S)  # on a busy machine it may wait for somebody to read its lines
        self.assertEqual(process.returncode, 75)
        self.assertIn("resume  runs/busy at step ",
                      self.mortise("resume", "runs/busy", "--set", "run.time_limit=0.1 s").err)


class Limits(e2e.Case):
    def limited(self, size, *words):
        """With files of `size` bytes at most; plugins are not copied into memory files, which count too."""
        return self.mortise("train", *words, env={"MORTISE_PLUGINS_FROM_FILES": "1"},
                            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)))

    def test_a_file_that_may_not_grow_is_a_save_that_failed(self):
        self.file("run.toml", e2e.TINY.replace("width = 16", "width = 64") + "[checkpoint]\nevery = 2\n")
        result = self.limited(1 << 16)
        self.assertEqual(result.code, 74, result)
        # 2, 4, 6; and 6 once more at the end, which is not told again
        self.assertEqual(result.err.count("warning[checkpoint_not_saved]: step "), 3, result)
        self.assertIn("File too large", result.err)
        self.assertTrue(result.err.endswith(
            "error[checkpoint_not_saved]: the run came to its end, step 6, which is not saved\n"
            "  effect: nothing of it is saved\n"
            "  fix: begin again where it can be saved: mortise train runs/run/run.toml\n"), result)
        self.assertIn("step    6/6", result.out)
        self.assertEqual(json.loads((self.dir / "runs/run/status.json").read_text())["state"], "failed")

    def test_a_directory_that_cannot_be_written_is_not_left_behind(self):
        result = self.limited(100, "--set", "run.dir=new")
        self.assertEqual(result.code, 74, result)
        self.assertIn("File too large", result.err)
        self.assertFalse((self.dir / "new").exists())

    def test_what_is_retired_meanwhile_is_chosen_anew(self):
        self.file("run.toml", e2e.TINY.replace("length = 6", "length = 100000000") +
                  "[checkpoint]\nevery = 1\nkeep = 1\n")
        process = self.start("train", "-q")
        deadline = time.monotonic() + e2e.LIMIT_S
        while not list(self.dir.glob("runs/run/checkpoints/step-*/MANIFEST.json")):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)
        for n in range(4):
            self.ok("sample", "runs/run", "--tokens", "1")
            self.ok("export", "runs/run", "-o", f"out{n}")
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=e2e.LIMIT_S)


class Changes(Checkpoints):
    def setUp(self):
        super().setUp()
        self.train("gpt", RUN)

    def test_are_reported_by_class(self):
        self.file("gpt.toml", RUN.replace("[optimizer.adamw]", "[optimizer]\nlr = 3e-4\n[optimizer.adamw]")
                  .replace("[log]\nevery = 1", "[log]\nevery = 50"))
        self.refused(["train", "gpt.toml", "--resume"],
                     "error[manifest_changed]: gpt.toml no longer describes runs/gpt\n"
                     "  numeric  optimizer.lr  none -> 3e-4     gpt.toml:16:6 (was default of optimizer.lr)\n"
                     "  free     log.every     1 -> 50     gpt.toml:30:9 (was runs/gpt/run.toml:LINE)"
                     "     (would be taken)\n".replace(
                         "run.toml:LINE", "run.toml:" + self.place("every = 1 ", "[log]")) +
                     "  fix: continue as it was:   mortise resume runs/gpt\n"
                     "       begin again:          mortise train gpt.toml\n")

    def again(self, text, lines):
        """What is proposed for a run that `text` no longer describes; each of it works, on a copy of the run."""
        self.file("gpt.toml", text)
        result = self.mortise("train", "gpt.toml", "--resume")
        self.assertEqual(result.code, 64, result)
        said = re.findall(r"^(?:  fix: |       )([a-z ]+): +mortise (.*?)(?:     .*)?$", result.err, re.M)
        self.assertEqual([name for name, _ in said], lines, result)
        shutil.copytree(self.dir / "runs", self.dir / "kept", symlinks=True)
        for _, command in said:
            self.ok(*shlex.split(command))
            shutil.rmtree(self.dir / "runs")
            shutil.copytree(self.dir / "kept", self.dir / "runs", symlinks=True)
        shutil.rmtree(self.dir / "kept")
        return dict(said).get("continue changed", "")

    def test_what_is_proposed_can_be_typed(self):
        was, changed = "continue as it was", "continue changed"
        higher = RUN.replace("[optimizer.adamw]", "[optimizer]\nlr = 3e-4\n[optimizer.adamw]")
        self.again(higher, [was, "begin again"])  # it is over
        longer = self.again(higher.replace("length = 12", "length = 14"), [was, changed, "begin again"])
        self.assertEqual(longer, "resume runs/gpt --set optimizer.lr=3e-4 --set run.length=14")
        # A key that is gone, a plugin that came, another that went.
        typed = self.again(higher.replace("length = 12", "length = 14").replace("[log]\nevery = 1\n", "[log]\n")
                           + "[guard.patience]\nevaluations = 9\n", [was, changed, "begin again"])
        self.assertIn(" --use guard.patience --set guard.patience.evaluations=9", typed)
        self.ok("resume", "runs/gpt", "--set", "run.length=16", "--set", "checkpoint.keep_every=4")
        self.again(higher, [was, "begin again"])  # it is over, and further than that
        self.assertIn(" --set checkpoint.keep_every=default",
                      self.again(higher.replace("length = 12", "length = 17"), [was, changed, "begin again"]))

    def place(self, key, table):
        lines = (self.dir / "runs/gpt/run.toml").read_text().splitlines()
        at = next(i for i, line in enumerate(lines) if i > lines.index(table) and line.startswith(key))
        return f"{at + 1}:{lines[at].index('=') + 3}"

    def test_of_what_is_fixed_are_refused(self):
        result = self.mortise("resume", "runs/gpt", "--set", "data.shuffle=false")
        self.assertEqual(result.code, 64)
        self.assertEqual(result.err,
                         "error[fixed_key]: `data.shuffle` is fixed for a run; its checkpoints are of true\n"
                         "  --> command line: --set data.shuffle=false\n"
                         "  effect: with false it would be another run\n"
                         "  fix: begin again: mortise train runs/gpt/run.toml --set data.shuffle=false\n")
        for flags in (("--use", "precision.bf16"), ("--without", "gradient.clip"),
                      ("--set", "optimizer.adamw.eps=1e-3", "--set", "model.gpt.width=32")):
            result = self.mortise("resume", "runs/gpt", *flags)
            self.assertEqual(result.code, 64, result)
            self.assertIn("error[fixed_key]: ", result.err)
        self.file("gpt.toml", RUN.replace("width = 16", "width = 32"))
        result = self.mortise("train", "gpt.toml", "--resume")
        self.assertEqual(result.code, 64)
        self.assertNotIn("continue changed", result.err)

    def test_of_what_is_free_are_taken(self):
        run = self.dir / "runs/gpt"
        self.file("gpt.toml", RUN.replace("every = 1\n", "every = 2\n")
                  .replace("length = 12", "length = 12\nnotes = \"again\""))
        self.assertIn("is finished", self.ok("train", "gpt.toml", "--resume").err)
        status = json.loads((run / "status.json").read_text())
        status["state"] = "running"
        (run / "status.json").write_text(json.dumps(status))
        shutil.rmtree(run / "checkpoints/step-12")
        self.ok("train", "gpt.toml", "--resume")
        self.assertEqual([s for s, *_ in self.losses(run)], [1, 2, 3, 4, 5, 6, 7, 8, 10, 12])
        self.assertIn('notes = "again"', (run / "run.toml").read_text())


class Kept(Checkpoints):
    def test_the_newest_two(self):
        self.assertEqual(self.steps(self.train("two", RUN, "--set", "checkpoint.every=2")), [10, 12])

    def test_one_of_each_longer_interval(self):
        self.assertEqual(self.steps(self.train("some", RUN, "--set", "checkpoint.every=1", "--set", "checkpoint.keep=1",
                                               "--set", "checkpoint.keep_every=5")), [5, 10, 12])

    def test_the_best(self):
        # A rate that is far too high: the first evaluation stays the best.
        run = self.train("best", RUN.replace("[schedule.cosine]", "[schedule.constant]")
                         .replace("warmup = 2", "warmup = 0"),
                         "--set", "checkpoint.every=100", "--set", "checkpoint.best=eval.loss", "--set", "eval.every=3",
                         "--set", "optimizer.lr=0.3", "--set", "checkpoint.keep=1")
        evals = {r["step"]: r["eval.loss"] for r in self.records(run, "eval")}
        best = min(evals, key=evals.get)
        self.assertEqual((run / "checkpoints/best").readlink(), pathlib.Path(f"step-{best}"))
        self.assertEqual(self.steps(run), sorted({best, 12}))
        self.assertIn("best", self.ok("checkpoint", "list", "runs/best").out)
        weights = self.ok("plan", "best.toml", "--set", "model.weights=runs/best", "--keys")
        self.assertIn("runs/best", weights.out)

    def test_the_best_of_a_run_that_goes_on(self):
        # A rate that is far too high from the fourth step on: what was best before the resume still is.
        run = self.train("on", LONGER + "[eval]\nevery = 3\n[checkpoint]\nbest = \"eval.loss\"\n",
                         "--set", "run.length=3")
        self.ok("resume", "runs/on", "--set", "run.length=6", "--set", "optimizer.lr=0.5")
        losses = {r["step"]: r["eval.loss"] for r in self.records(run, "eval")}
        self.assertLess(losses[3], losses[6])
        self.assertEqual((run / "checkpoints/best").readlink(), pathlib.Path("step-3"))

    def test_what_it_was_resumed_from_is_there_to_go_on_from(self):
        run = self.train("lost", RUN, "--set", "run.length=4")
        result = self.mortise("resume", "runs/lost", "--set", "run.length=40", "--set", "optimizer.lr=1e6",
                              "--set", "checkpoint.every=100")
        self.assertEqual(result.code, 76, result)
        self.assertEqual([r["resumable"] for r in self.records(run, "end")], [0, 1])

    def test_none_at_the_end_if_nobody_wants_it(self):
        run = self.train("open", RUN, "--set", "checkpoint.every=5", "--set", "checkpoint.at_end=false")
        self.assertEqual(self.steps(run)[-1], 10)

    def test_nothing_without_a_format(self):
        run = self.train("none", RUN, "--without", "checkpoint.safetensors")
        self.assertFalse((run / "checkpoints").exists())
        self.assertEqual(self.records(run, "saved"), [])


if __name__ == "__main__":
    e2e.main()
