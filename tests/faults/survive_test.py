"""The program itself, killed and starved: what it said to be saved is there, and the run that was killed ends as the
one that was not.

MORTISE_KILLS=1000 MORTISE_SEED=7 python3 tests/faults/survive_test.py Kill      (`make soak`)
"""

import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import e2e  # noqa: E402  the path above leads to it
import refusals_test  # noqa: E402

SHIM = os.environ.get("MORTISE_SHIM", str(e2e.MORTISE.parent.parent / "tests/shim.so"))
KILLS = int(os.environ.get("MORTISE_KILLS", "40"))
SEED = int(os.environ.get("MORTISE_SEED", "1"))

# All that has a count of its own: no two of steps applied, steps attempted and micro-batches agree.
RUN = (
    e2e.TINY.replace("length = 6", "length = {length}")
    .replace("width = 16", "width = 16\ndropout = 0.1")
    .replace("sequence_length = 16", "sequence_length = 16\nvalidation = 0.1")
    + """\
[schedule]
warmup = 8
[schedule.cosine]
[gradient.clip]
norm = 0.5
[step.accumulation]
count = 2
[guard.skips]
[eval]
every = 7
samples = 4
[checkpoint]
every = {every}
[log]
every = 1
"""
)


class Survive(e2e.Case):
    def setUp(self):
        super().setUp()
        self.shim = shutil.copy(SHIM, self.dir / "shim.so")  # LD_PRELOAD takes no path with a space
        fixtures = refusals_test.Fixtures("built")
        fixtures.dir = self.dir
        listens = '\n[points]\nlistens = [{ point = "step.verdict", writes = ["votes"] }]\n'
        fixtures.built("guard.skips", listens, source="skips.c")

    def environment(self, **more):
        return super().environment(MORTISE_PLUGIN_PATH=str(self.dir / "more"), **more)

    def steps(self, name):
        """What each step was, a skipped one too."""
        records = self.records(self.dir / "runs" / name, "step")
        return [(r["step"], r["skipped"], r["loss"], r["lr"], r["grad_norm"]) for r in records]

    def newest(self, name):
        listed = json.loads(self.ok("checkpoint", "list", f"runs/{name}", "--json").out)["checkpoints"]
        good = [c for c in listed if c["verified"]]
        return (good[0]["step"], good[0]["sha256"]) if good else (-1, "")

    def faults(self, **more):
        return {
            "LD_PRELOAD": str(self.shim),
            "FAULT_REPORT": str(self.dir / "report"),
            **{f"FAULT_{k}": str(v) for k, v in more.items()},
        }

    def report(self):
        path = self.dir / "report"
        return path.read_text().splitlines() if path.exists() else []


class Kill(Survive):
    def test_the_end_is_that_of_the_run_never_killed(self):
        length, every, dice = 60, 3, random.Random(SEED)
        text = RUN.format(length=length, every=every)
        self.train("whole", text)
        _, whole = self.newest("whole")
        applied = [step for step, skipped, *_ in self.steps("whole") if not skipped]
        self.assertEqual(applied, list(range(1, length + 1)))
        self.assertGreater(len(self.steps("whole")), length, "some are skipped")
        self.file("run.toml", text)
        killed = in_save = lost = runs = 0
        while killed < KILLS:
            runs += 1
            shutil.rmtree(self.dir / "runs/run", ignore_errors=True)
            saved = -1
            while True:
                inside = dice.random() < 0.5
                (self.dir / "report").unlink(missing_ok=True)
                env = (
                    self.faults(WITH="kill", SAVE=dice.randint(1, 3), AT=dice.randint(1, 50))
                    if inside and killed < KILLS
                    else {}
                )
                process = subprocess.Popen(
                    [e2e.MORTISE, "train", "--resume"],
                    cwd=self.dir,
                    env=self.environment(**env),
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                )
                try:
                    out, err = process.communicate(
                        timeout=dice.uniform(0.15, 0.6) if not inside and killed < KILLS else e2e.LIMIT_S
                    )
                except subprocess.TimeoutExpired:
                    process.kill()
                    out, err = process.communicate()
                begun = re.search(rb"resume  runs/run at step ([\d,]+)", err)
                lost += begun is not None and int(begun[1].replace(b",", b"")) < saved
                saved = max(
                    [saved] + [int(step.replace(b",", b"")) for step in re.findall(rb"(?m)^saved   ([\d,]+)", out)]
                )
                if process.returncode == 0:
                    break
                self.assertEqual(process.returncode, -9, (out, err))
                killed += 1
                in_save += any(line.endswith(" fault") for line in self.report())
            self.assertEqual(self.newest("run"), (length, whole))
            self.assertEqual(self.steps("run"), self.steps("whole"))
        print(f"{killed} kills in {runs} runs, {in_save} of them inside a save, seed {SEED}", file=sys.stderr)
        self.assertEqual(lost, 0)
        self.assertGreaterEqual(in_save * 5, killed)


class Starve(Survive):
    """Every call of a save fails once, one save after another, or from there to the end of that save."""

    def calls_of_a_save(self):
        self.file("count.toml", RUN.format(length=4, every=1))
        self.ok("train", "count.toml", env=self.faults())
        return max(sum(line.startswith(f"{save} ") for line in self.report()) for save in (3, 4))

    def test_training_goes_on_and_the_last_good_one_stays(self):
        calls = self.calls_of_a_save()
        self.assertGreater(calls, 25)
        length = calls + 6
        self.file("whole.toml", RUN.format(length=length, every=1))
        self.ok("train", "whole.toml")
        whole = self.newest("whole")
        for behaviour in ("ENOSPC", "EIO", "short", "eintr"):
            for times in ("once", "ever"):
                if (behaviour, times) == ("eintr", "ever"):
                    continue  # a call that is interrupted for ever never ends, and that is right
                name = f"{behaviour}-{times}".lower()
                (self.dir / "report").unlink(missing_ok=True)
                self.file(f"{name}.toml", RUN.format(length=length, every=1))
                result = self.mortise(
                    "train", f"{name}.toml", env=self.faults(WITH=behaviour, TIMES=times, SAVE=3, EACH=1)
                )
                fired = sum(line.endswith(" fault") for line in self.report())
                with self.subTest(name):
                    # The last saves are longer than `calls` and free of faults, so the end is saved.
                    self.assertEqual(result.code, 0, result)
                    self.assertIn(f"step    {length}/{length}", result.out)
                    self.assertEqual(self.newest(name), whole)
                    not_saved = result.err.count("warning[checkpoint_not_saved]: ")
                    saved = len(re.findall(r"(?m)^saved ", result.out))
                    self.assertEqual(not_saved + saved, length)
                    if behaviour in ("short", "eintr"):
                        self.assertEqual(not_saved, 0, result.err)
                        self.assertGreater(fired, 3)
                    else:
                        self.assertGreaterEqual(fired, calls - 2)
                        self.assertGreater(not_saved, calls // 2)
                        self.assertIn("effect: training goes on; step ", result.err)

    def test_a_disk_that_is_full_at_the_start(self):
        full = self.faults(BELOW="new", CALLS="write", WITH="ENOSPC", TIMES="ever")
        result = self.mortise("train", "--set", "run.dir=new", env=full)
        self.assertEqual(result.code, 74, result)
        self.assertRegex(
            result.err,
            r"\Aerror\[no_space\]: \S*/new/run\.toml cannot be written: No space left on device\n"
            r"  effect: what was there before, if anything, is untouched\n"
            r"  fix: make room there, or choose another place\n\Z",
        )
        self.assertFalse((self.dir / "new").exists())

    def test_a_last_save_that_fails_is_an_exit_of_its_own(self):
        self.file("last.toml", RUN.format(length=4, every=2))
        full = self.faults(CALLS="mkdir,write", WITH="ENOSPC", TIMES="ever", SAVE=2, AT=1)
        result = self.mortise("train", "last.toml", env=full)
        self.assertEqual(result.code, 74, result)
        self.assertRegex(
            result.err,
            r"warning\[checkpoint_not_saved\]: step 4 is not saved: .*No space left on device\n"
            r"  effect: training is over; step 2 is kept and is still the latest\n  fix: free space",
        )
        self.assertTrue(result.err.endswith(
            "error[checkpoint_not_saved]: the run came to its end, step 4, which is not saved\n"
            "  effect: the newest checkpoint is step 2\n"
            "  fix: when it can be saved: mortise resume runs/last\n"), result.err)
        self.assertEqual(self.newest("last")[0], 2)
        self.assertIn("resume  runs/last at step 2 ", self.ok("train", "last.toml", "--resume").err)


if __name__ == "__main__":
    e2e.main()
