"""What training prints, writes and leaves behind, and how it stops."""
import json
import os
import re
import shlex
import signal
import subprocess
import time

import e2e
from e2e import TINY

NUMBER = r"-?\d+(\.\d+)?"
RATE = r"\d+(\.\d+)?[kM]?"
LONG = ("--set", "run.length=10000000", "--set", "log.every=1")


def steps(n, of):
    return (rf"step    {n}/{of}  loss {NUMBER}  lr \d\.\de-\d\d  grad {NUMBER}  {RATE} tok/s  mem {NUMBER}/\d+ GiB"
            rf"(  waiting for data \d+%)?" + ("" if n == of else r"(  \S+ left)?"))


class Output(e2e.Case):
    def lines(self, out, patterns):
        found = out.splitlines()
        self.assertEqual(len(found), len(patterns), out)
        for line, pattern in zip(found, patterns):
            self.assertRegex(line, f"^{pattern}$")

    def test_every_line_of_a_short_run(self):
        self.file("run.toml", TINY.replace("length = 6", "length = 6\nname = \"first\"")
                  .replace("micro_batch_size", "validation = 0.1\nmicro_batch_size"))
        result = self.ok("train", "--set", "log.every=3", "--set", "eval.every=4", "--use", "sample.text",
                         "--set", "sample.text.tokens=4")
        self.assertEqual(result.err, "")
        # The sample is any bytes; what is left are the lines with a word at their beginning.
        out = "\n".join(line for line in result.out.splitlines()
                        if re.match(r"(run|model|data|device|batch|step|eval|saved|done|next) ", line))
        self.lines(out, [
            r"run     first -> runs/first",
            r"model   model\.gpt [\d,]+ parameters",
            r"data    data\.text notes\.txt, [\d,]+ tokens .*",
            r"device  device\.cpu, \d+ threads?.*",
            r"batch   4 samples × 16 tokens \(4 a device × 1 accumulated × 1 rank\) · 6 steps",
            steps(3, 6),
            rf"eval    4/6  eval\.loss {NUMBER}  \([\d,]+ tokens, \S+\).*",
            steps(6, 6),
            rf"eval    6/6  eval\.loss {NUMBER}  \([\d,]+ tokens, \S+\).*",
            r"saved   6 .* runs/first/checkpoints/step-6",
            rf"done    6 steps in \S+  .*loss {NUMBER} -> {NUMBER}  runs/first",
            r"next    mortise sample runs/first --prompt 'The '",
        ])

        records = self.records(self.dir / "runs/first")
        self.assertEqual([r["event"] for r in records],
                         ["run", "step", "eval", "step", "eval", "sample", "saved", "end"])
        run, step, evaluation, end = records[0], records[1], records[2], records[-1]
        self.assertEqual((run["name"], run["steps"], run["dir"]), ("first", 6, "runs/first"))
        self.assertEqual((step["step"], step["of"], step["samples"], step["tokens"], step["micros"], step["skipped"]),
                         (3, 6, 12, 192, 1, 0))
        self.assertGreater(step["loss"], evaluation["eval.loss"] * 0.5)
        self.assertEqual((end["steps"], end["exit"]), (6, 0))
        for record in records:
            self.assertRegex(record["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")

    def test_json_is_what_metrics_say(self):
        result = self.ok("train", "--json", "--set", "run.length=2", "--set", "log.every=1")
        self.assertEqual(result.err, "")
        self.assertEqual(result.out, (self.dir / "runs/run/metrics.jsonl").read_text())
        self.assertEqual([json.loads(line)["event"] for line in result.out.splitlines()],
                         ["run", "step", "step", "saved", "end"])

    def test_the_example_of_the_records_prints_records_alone(self):
        out = self.ok("train", e2e.SOURCE / "plugins/log/jsonl/example.toml").out
        self.assertEqual([json.loads(line)["event"] for line in out.splitlines()],
                         ["run"] + 5 * ["step"] + ["saved", "end"])

    def test_a_schedule_may_end_before_the_run(self):
        run = self.train("over", TINY + "[schedule]\nover = 3\n[schedule.linear]\nfinal = 0.5\n[log]\nevery = 1\n")
        rates = [round(r["lr"] * 6000) for r in self.records(run, "step")]
        self.assertEqual(rates, [6, 5, 4, 3, 3, 3])

    def test_without_the_console_nothing_is_said(self):
        for flags in (("--without", "log.console"), ("-q",)):
            result = self.ok("train", "--set", "run.length=1", *flags)
            self.assertEqual((result.out, result.err), ("", ""))


class Large(e2e.Case):
    def test_a_text_of_many_mebibytes_is_encoded_whole(self):
        bytes_ = 17 << 20
        self.file("notes.txt", b"0123456789abcde\n" * (bytes_ // 16))
        out = self.ok("train", "--set", "run.length=1").out
        self.assertIn(f"notes.txt, {bytes_:,} tokens", out)


class Directory(e2e.Case):
    def test_what_a_run_leaves(self):
        self.file("base.toml", TINY)
        self.file("mine.toml", 'include = ["base.toml"]\n[run]\ntags = ["a", "b"]\nnotes = "say \\"hi\\""\n')
        self.ok("train", "mine.toml", "--set", "run.length=2", "--set", "data.text.path=notes.txt")
        run = self.dir / "runs/mine"
        files = sorted(str(p.relative_to(run)) for p in run.rglob("*") if p.is_file())
        self.assertEqual(files, ["checkpoints/step-2/MANIFEST.json", "checkpoints/step-2/data.json",
                                 "checkpoints/step-2/fixed.json",
                                 "checkpoints/step-2/model/config.json",
                                 "checkpoints/step-2/model/model.safetensors",
                                 "checkpoints/step-2/optimizer/rank-0.safetensors",
                                 "checkpoints/step-2/plugins/guard.nonfinite.json", "checkpoints/step-2/state.json",
                                 "env.json", "log.txt", "metrics.jsonl", "plan.txt", "run.toml",
                                 "sources/base.toml", "sources/command.txt",
                                 "sources/default.toml", "sources/mine.toml", "sources/origins.json", "status.json"])
        for name in ("base.toml", "mine.toml"):
            self.assertEqual((run / "sources" / name).read_bytes(), (self.dir / name).read_bytes())
        self.assertEqual((run / "sources/command.txt").read_text(),
                         f"{shlex.quote(str(e2e.MORTISE))} train mine.toml --set run.length=2 "
                         "--set data.text.path=notes.txt\n")
        self.assertEqual((run / "plan.txt").read_text(),
                         self.ok("plan", "mine.toml", "--set", "run.length=2", "--set", "data.text.path=notes.txt").out)

        status = json.loads((run / "status.json").read_text())
        self.assertRegex(status.pop("updated"), r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        self.assertGreater(status.pop("pid"), 1)
        self.assertNotEqual(status.pop("host"), "")
        self.assertEqual(status, {"state": "finished", "step": 2, "of": 2, "ranks": 1, "local_ranks": 1, "exit": 0,
                                  "resumable": False, "tags": ["a", "b"], "notes": 'say "hi"'})
        environment = json.loads((run / "env.json").read_text())
        self.assertEqual(environment["variables"], {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1",
                                                    "MKL_NUM_THREADS": "1"})

        resolved = (run / "run.toml").read_text()
        self.assertTrue(resolved.startswith("# mortise 0.1.0 · plan "), resolved)
        self.assertIn(" · from mine.toml, base.toml, default.toml, command line\n", resolved)
        self.assertIn(f'path = ["{self.dir}/notes.txt"]', resolved)
        self.assertRegex(resolved, r"(?m)^length = 2 +# command line: --set run.length=2$")
        self.assertRegex(resolved, r"(?m)^micro_batch_size = 4 +# base.toml:4:20$")
        self.assertEqual(os.readlink(self.dir / "runs/latest"), "mine")

    def test_names_are_taken_in_turn_and_no_run_is_overwritten(self):
        short = ("--set", "run.length=1")
        self.ok("train", *short)
        self.ok("train", *short)
        self.assertEqual(sorted(p.name for p in (self.dir / "runs").iterdir()), ["latest", "run", "run-2"])
        self.assertEqual(os.readlink(self.dir / "runs/latest"), "run-2")
        self.refused(["train", "--set", "run.dir=runs/run"],
                     f"error[dir_exists]: {self.dir}/runs/run already holds a run (finished, step 1)\n"
                     "  --> command line: --set run.dir=runs/run\n"
                     "  fix: another run.dir; or leave it out and the next free name is taken\n", code=73)
        self.refused(["train", "--set", "run.dir=notes.txt"],
                     f"error[dir_not_made]: {self.dir}/notes.txt cannot be made: it is no folder\n"
                     "  --> command line: --set run.dir=notes.txt\n"
                     "  fix: choose another place: --set run.dir=DIR\n", code=73)
        self.ok("train", *short, env={"MORTISE_RUNS": str(self.dir / "elsewhere")})
        self.assertTrue((self.dir / "elsewhere/run/checkpoints/step-1/model/model.safetensors").exists())


    def test_two_runs_at_once_take_two_names(self):
        processes = [self.start("train", "--set", "run.length=1", "--without", "log.console") for _ in range(3)]
        for process in processes:
            _, err = process.communicate(timeout=e2e.LIMIT_S)
            self.assertEqual((process.returncode, err), (0, b""))
        for name in ("run", "run-2", "run-3"):
            self.assertEqual(len(self.records(self.dir / "runs" / name, "end")), 1)


class Ends(e2e.Case):
    def begun(self, *flags):
        """A long run, once its second step is out."""
        process = self.start("train", *LONG, *flags)
        for line in process.stdout:
            if line.startswith(b"step    2/"):
                return process
        self.fail(process.stderr.read().decode())

    def finish(self, process):
        out, err = process.communicate(timeout=e2e.LIMIT_S)
        return process.returncode, out.decode(), err.decode()

    def status(self):
        return json.loads((self.dir / "runs/run/status.json").read_text())

    def test_an_interrupt_saves_and_says_130(self):
        process = self.begun()
        self.assertEqual(self.status()["state"], "running")
        process.send_signal(signal.SIGINT)
        code, out, err = self.finish(process)
        self.assertEqual((code, err), (130, "stopping after this step and saving; again: leave without saving\n"
                                            "next    mortise resume runs/run\n"))
        self.assertTrue((self.dir / "runs/run/checkpoints/latest/model/model.safetensors").exists())
        self.assertRegex(out.splitlines()[-2], "^saved ")
        status = self.status()
        self.assertEqual((status["state"], status["exit"]), ("stopped", 130))
        self.assertGreaterEqual(status["step"], 2)

    def test_a_termination_saves_and_says_75(self):
        process = self.begun()
        process.send_signal(signal.SIGTERM)
        code, out, err = self.finish(process)
        self.assertEqual((code, err), (75, "next    mortise resume runs/run\n"))
        self.assertTrue((self.dir / "runs/run/checkpoints/latest/model/model.safetensors").exists())

    def test_a_request_saves_and_goes_on(self):
        process = self.begun()
        weights = self.dir / "runs/run/checkpoints/latest/model/model.safetensors"
        process.send_signal(signal.SIGUSR1)
        deadline = time.monotonic() + 60
        while not weights.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertTrue(weights.exists())
        self.assertIsNone(process.poll())
        process.send_signal(signal.SIGTERM)
        self.assertEqual(self.finish(process)[0], 75)

    def test_a_time_limit_saves_and_says_75(self):
        result = self.mortise("train", *LONG, "--set", "run.time_limit=0.1 s")
        self.assertEqual((result.code, result.err), (75, "next    mortise resume runs/run\n"), result)
        self.assertTrue((self.dir / "runs/run/checkpoints/latest/model/model.safetensors").exists())
        self.assertEqual(self.status()["state"], "stopped")

    def test_a_reader_that_goes_away_ends_no_run(self):
        process = subprocess.run(["bash", "-c", '"$0" train --set log.every=1 | head -n 2; exit "${PIPESTATUS[0]}"',
                                  e2e.MORTISE], cwd=self.dir, env=self.environment(),
                                 capture_output=True, timeout=e2e.LIMIT_S, check=False)
        self.assertEqual(len(process.stdout.splitlines()), 2)
        self.assertIn(process.returncode, (0, 74), process.stderr)
        self.assertEqual(self.records(self.dir / "runs/run", "end")[0]["steps"], 6)
        self.assertEqual(self.status()["state"], "finished")

    def test_a_rate_beyond_reason_is_stopped_by_the_guard(self):
        result = self.mortise("train", "--set", "optimizer.lr=1e6", "--set", "run.length=20")
        self.assertEqual(result.code, 76, result)
        self.assertRegex(result.err, r"^error\[diverged\]: the gradient was not finite in 3 steps in a row\n"
                                     r"  at: step \d+, asked for by guard\.nonfinite\n"
                                     r"  effect: stopped after step [0-9]+\n"
                                     r"  fix: a lower rate: .*\n$")
        for n in (1, 2, 3):
            self.assertIn(f" ({n} of 3 in a row before stopping)\n", result.out)
        status = self.status()
        self.assertEqual((status["state"], status["exit"]), ("failed", 76))
        self.assertEqual(self.records(self.dir / "runs/run", "end")[0]["exit"], 76)


if __name__ == "__main__":
    e2e.main()
