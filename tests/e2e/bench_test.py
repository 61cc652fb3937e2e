"""`mortise bench`: rows in processes of their own, a table, a report, and what is missing at the next start."""
import json
import pathlib
import re
import signal
import time

import console_test
import e2e

BASE = e2e.TINY.replace("length = 6", "length = 8")
MATRIX = """\
base = "run.toml"
[[row]]
name = "vanilla"
[[row]]
name = "+ accumulation"
data.micro_batch_size = 2
step.accumulation.count = 2
[[row]]
name = "both"
from = "+ accumulation"
optimizer.sgd = {}
"""
NUMBER = r"[\d,.]+"


class Bench(e2e.Case):
    def setUp(self):
        super().setUp()
        self.file("run.toml", BASE)
        self.file("m.toml", MATRIX)

    def results(self, name="m"):
        return json.loads((self.dir / "runs" / name / "results.json").read_text())

    def row(self, name, results=None):
        return next(row for row in (results or self.results())["rows"] if row["name"] == name)

    def manifest(self, name):
        return (self.dir / "runs/m/rows" / f"{name}.toml").read_text()


class Rows(Bench):
    def test_are_measured_each_in_a_run_of_its_own(self):
        result = self.ok("bench", "m.toml")
        lines = result.out.splitlines()
        self.assertEqual(lines[0].split("  ")[0], "row")
        for name, line in zip(("vanilla", "+ accumulation", "both"), lines[1:]):
            self.assertRegex(line, rf"^{re.escape(name)}( +{NUMBER}){{6}} +- +{NUMBER} +-  \d\.\d{{3}} -> \d\.\d{{3}}$")
        self.assertRegex(lines[1], r" 1\.00 ", "the first row is what the others are compared with")
        self.assertEqual(lines[4], "3 of 3 rows measured, each in a fresh process, 2 warm-up steps apart · report "
                                   "runs/m/report.html · table runs/m/table.md")
        self.assertEqual(result.err, "", "no progress where nothing can be drawn again")

        found = self.results()
        self.assertTrue(found["complete"])
        self.assertEqual(found["command"].split()[1:], ["bench", "m.toml"])
        self.assertGreater(found["machine"]["processors"], 0)
        for row in found["rows"]:
            self.assertEqual((row["state"], row["exit"], row["steps"], row["samples"]), ("measured", 0, 8, 32), row)
            self.assertGreater(row["memory_peak_bytes"], 1 << 20)
            self.assertAlmostEqual(row["samples_per_s"], row["samples"] / row["seconds"])
            self.assertAlmostEqual(
                row["ratio"], row["steady_samples_per_s"] / found["rows"][0]["steady_samples_per_s"])
        # What was measured is what the rows say, one on the other.
        run = (self.dir / "runs/m/rows/both/run.toml").read_text()
        self.assertRegex(run, r"\[optimizer\.sgd\]")
        self.assertRegex(run, r"micro_batch_size += 2 ")
        self.assertNotRegex(run, r"\[optimizer\.adamw\]")
        self.assertFalse((self.dir / "runs/m/rows/both/checkpoints").exists())
        self.assertEqual(len(self.records(self.dir / "runs/m/rows/both", "step")), 8)

        table = (self.dir / "runs/m/table.md").read_text()
        self.assertIn("| + accumulation |", table)
        page = (self.dir / "runs/m/report.html").read_text()
        self.assertEqual(page.count("<circle "), 6)
        self.assertNotIn("http", page)

    def test_of_axes_are_every_combination(self):
        self.file("m.toml", 'base = "run.toml"\n[axis]\noptimizer = ["adamw", "sgd"]\ndata.micro_batch_size = [2, 4]\n')
        found = json.loads(self.ok("bench", "m.toml", "--steps", "3", "--json").out)
        self.assertEqual([(row["name"], row["steps"], row["samples"]) for row in found["rows"]],
                         [("adamw, micro_batch_size 2", 3, 6), ("adamw, micro_batch_size 4", 3, 12),
                          ("sgd, micro_batch_size 2", 3, 6), ("sgd, micro_batch_size 4", 3, 12)])

    def test_a_manifest_is_one_row(self):
        self.assertRegex(self.ok("bench", "run.toml", "--set", "run.length=3").out, r"(?m)^run  .*\n1 of 1 rows")
        self.assertEqual(self.row("run", self.results("run"))["steps"], 3)

    def test_one_can_be_trained_by_hand(self):
        self.ok("bench", "m.toml", "--steps", "2", "-q")
        self.ok("train", "runs/m/rows/both.toml", "--set", "run.length=2")
        self.assertEqual(len(self.records(self.dir / "runs/both", "step")), 2)

    def test_may_be_run_by_a_program(self):
        """It gets the manifest and the flags of `train`; here one that trains as `mortise` does, and says so."""
        own = self.file("bin/own", f'#!/bin/sh\necho "$1" > "{self.dir}/got"\nexec "{e2e.MORTISE}" train "$@"\n')
        own.chmod(0o755)
        self.file("m.toml", MATRIX + '[[row]]\nname = "own loop"\nfrom = "both"\nprogram = "bin/own"\n'
                                     '[[row]]\nname = "none"\nprogram = "bin/none"\n')
        result = self.mortise("bench", "m.toml", "--steps", "3")
        self.assertEqual(result.code, 1, result)
        self.assertEqual(self.row("own loop")["state"], "measured")
        self.assertEqual((self.dir / "got").read_text().strip(), str(self.dir / "runs/m/rows/own-loop.toml"))
        self.assertRegex(self.row("none")["error"], "^error: .*bin/none cannot be started: No such file or directory$")

    def test_paths_in_a_row_are_relative_to_the_matrix(self):
        self.file("sub/other.txt", "abc " * 200)
        self.file("sub/m.toml", 'base = "../run.toml"\n[[row]]\nname = "a"\ndata.text.path = "other.txt"\n')
        self.ok("bench", "sub/m.toml", "--steps", "2")
        self.assertIn(str(self.dir / "sub/other.txt"), self.manifest("a"))

    def test_the_shipped_ones_run_on_a_processor(self):
        began = time.monotonic()
        result = self.ok("bench", e2e.SOURCE / "configs/bench/quick.toml")
        self.assertIn("10 of 10 rows measured", result.out)
        guides, quick = ((e2e.SOURCE / "configs/bench" / name).read_text() for name in ("guides.toml", "quick.toml"))
        self.assertEqual(guides[guides.index("[[row"):], quick[quick.index("[[row"):])
        self.assertLess(time.monotonic() - began, e2e.LIMIT_S)


class Failing(Bench):
    def test_a_row_that_fails_says_why_and_the_others_go_on(self):
        """A rate that makes it diverge; two plugins that do not go together."""
        self.file("m.toml", MATRIX.replace('[[row]]\nname = "both"', """\
[[row]]
name = "too fast"
optimizer.lr = 1e6
[[row]]
name = "no model"
model.gpt.enabled = false
[[row]]
name = "both\""""))
        result = self.mortise("bench", "m.toml")
        self.assertEqual(result.code, 1, result)
        self.assertRegex(result.out, r"(?m)^too fast +failed: error\[diverged\]: the gradient was not finite in 3")
        self.assertRegex(result.out, r"(?m)^no model +failed: error\[nothing_provides\]: nothing provides `model`")
        self.assertRegex(result.out, rf"(?m)^both +{NUMBER} ")
        self.assertIn("3 of 5 rows measured", result.out)
        self.assertEqual((self.row("too fast")["exit"], self.row("no model")["exit"]), (76, 64))
        self.assertIsNone(self.row("too fast")["ratio"])
        self.assertIn("error[diverged]", (self.dir / "runs/m/rows/too-fast.txt").read_text())
        self.assertIn("error[diverged]", (self.dir / "runs/m/report.html").read_text())

        # They are tried again, the others are not.
        self.file("m.toml", self.dir.joinpath("m.toml").read_text().replace("1e6", "1e-3"))
        kept = self.row("both")
        result = self.mortise("bench", "m.toml")
        self.assertIn("4 of 5 rows measured (3 before)", result.out)
        self.assertEqual(self.row("too fast")["state"], "measured")
        self.assertEqual(self.row("both"), kept)


class GoingOn(Bench):
    def interrupted(self, number=signal.SIGINT):
        """Ended in the second of three rows, which would not end by itself."""
        self.file("m.toml", MATRIX.replace("micro_batch_size = 2", 'micro_batch_size = 2\nrun.length = 10_000_000'))
        process = self.start("bench", "m.toml")
        records = self.dir / "runs/m/rows/accumulation/metrics.jsonl"
        deadline = time.monotonic() + e2e.LIMIT_S
        while not (records.exists() and records.read_text().count('"step"') > 2):
            self.assertIsNone(process.poll())
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)
        process.send_signal(number)
        out, err = process.communicate(timeout=e2e.LIMIT_S)
        return process.returncode, out.decode(), err.decode()

    def test_control_c_leaves_what_there_is(self):
        code, out, err = self.interrupted()
        self.assertEqual(code, 130, out + err)
        self.assertRegex(out, r"(?m)^vanilla +\d")
        self.assertIn("1 of 3 rows measured", out)
        self.assertRegex(err, r"^stopping\nstopped; the missing rows: \S+ bench m.toml\n$")
        found = self.results()
        self.assertFalse(found["complete"])
        self.assertEqual([row["state"] for row in found["rows"]], ["measured", "missing", "missing"])
        status = json.loads((self.dir / "runs/m/rows/accumulation/status.json").read_text())
        self.assertNotEqual(status["state"], "running", "its process has ended, too")

    def test_the_next_start_measures_what_is_missing(self):
        code, out, err = self.interrupted(signal.SIGTERM)
        self.assertEqual(code, 75, out + err)
        before = self.results()
        self.file("m.toml", MATRIX)
        again = self.ok("bench", "m.toml")
        self.assertIn("3 of 3 rows measured (1 before)", again.out)
        self.assertEqual(self.row("vanilla"), before["rows"][0])
        self.assertEqual(self.results()["began"], before["began"])

        # Nothing is missing now; another value makes its row, and those on it, missing again.
        self.assertIn("3 of 3 rows measured (3 before)", self.ok("bench", "m.toml").out)
        self.file("m.toml", MATRIX.replace("count = 2", "count = 4"))
        self.assertIn("(1 before)", self.ok("bench", "m.toml").out)
        self.file("run.toml", BASE + "[schedule.cosine]\n")
        self.assertNotIn("before", self.ok("bench", "m.toml").out)
        self.assertNotIn("before", self.ok("bench", "m.toml", "--anew").out)

    def test_rows_of_another_build_or_machine_are_measured_again(self):
        own = self.file("bin/own", f'#!/bin/sh\nexec "{e2e.MORTISE}" train "$@"\n')
        own.chmod(0o755)
        self.file("m.toml", MATRIX + '[[row]]\nname = "own"\nprogram = "bin/own"\n')
        bench = ("bench", "m.toml", "--steps", "2")
        self.ok(*bench)
        again = self.ok(*bench)
        self.assertIn("(4 before)", again.out)
        self.assertEqual(again.err, "")
        own.write_text(own.read_text() + "# built again\n")
        again = self.ok(*bench)
        self.assertIn("(3 before)", again.out)
        self.assertEqual(again.err, "1 row was measured by another build of Mortise, of a plugin or of a program: "
                                    "it is measured again\n")
        found = self.results()
        found["rows"][0]["machine"] = "elsewhere, NVIDIA H100"
        found["rows"][1]["machine"] = "elsewhere, NVIDIA H100"
        (self.dir / "runs/m/results.json").write_text(json.dumps(found))
        again = self.ok(*bench)
        self.assertIn("(2 before)", again.out)
        self.assertEqual(again.err, "2 rows were measured on another machine or device: they are measured again\n")
        self.assertEqual(len({row["machine"] for row in self.results()["rows"]}), 1)

    def test_one_bench_at_a_time_and_nothing_of_others(self):
        self.file("runs/m/mine.txt", "")
        self.refused(["bench", "m.toml"], f"error[dir_not_empty]: {self.dir}/runs/m holds other files, and no results "
                                          "of a bench\n  fix: another directory: -o DIR\n")
        self.assertEqual([path.name for path in (self.dir / "runs/m").iterdir()], ["mine.txt"])
        self.file("m.toml", MATRIX.replace("micro_batch_size = 2", "micro_batch_size = 2\nrun.length = 10_000_000"))
        process = self.start("bench", "m.toml", "-o", "runs/other")
        while not (self.dir / "runs/other/rows/vanilla.txt").exists():
            self.assertIsNone(process.poll())
            time.sleep(0.05)
        self.refused(["bench", "m.toml", "-o", "runs/other"],
                     f"error[run_busy]: another bench is working in {self.dir}/runs/other\n"
                     "  fix: wait until it ends, or stop it; or another directory: -o DIR\n", code=73)
        # Nobody is left behind, not even by a bench that is killed.
        while not (self.dir / "runs/other/rows/accumulation/status.json").exists():
            time.sleep(0.05)
        child = json.loads((self.dir / "runs/other/rows/accumulation/status.json").read_text())["pid"]
        process.kill()
        process.communicate()
        deadline = time.monotonic() + 10
        while pathlib.Path(f"/proc/{child}/status").exists() and time.monotonic() < deadline:
            if "State:\tZ" in pathlib.Path(f"/proc/{child}/status").read_text():
                break  # it has ended, and the system has not yet taken note
            time.sleep(0.05)
        else:
            self.assertLess(time.monotonic(), deadline, "the row goes on alone")
        self.file("m.toml", MATRIX)
        self.assertIn("3 of 3 rows measured (1 before)", self.ok("bench", "m.toml", "-o", "runs/other").out)


class OnATerminal(console_test.Terminal):
    def test_a_line_shows_how_far_a_row_is_and_goes_when_it_ends(self):
        self.file("run.toml", BASE.replace("length = 8", "length = 1500"))
        self.file("m.toml", MATRIX.replace("micro_batch_size = 2", "micro_batch_size = 2\nrun.length = 8"))
        code, seen, _ = self.on_terminal("bench", "m.toml", columns=60)
        self.assertEqual(code, 0, seen)
        screen = console_test.Screen(seen, 60)
        self.assertEqual([line.split("  ")[0] for line in screen.lines[:4]],
                         ["row", "vanilla", "+ accumulation", "both"])
        self.assertEqual(len(screen.lines), 6, screen.text)
        step = re.compile(r"^1/3  vanilla  step [\d,]+/1,500  \S+ samples/s")
        self.assertTrue(any(step.match(line) for line in screen.drawn), screen.drawn)


class Mistakes(Bench):
    def test_of_a_matrix_stop_everything_before_it_starts(self):
        for old, new, err in (
            ('base = "run.toml"', 'base = "rn.toml"',
             "error[file_missing]: no file `rn.toml`\n"
             f"  --> m.toml:1:8    looked at {self.dir}/rn.toml\n"
             "  fix: a path is relative to the matrix that states it\n"),
            ("optimizer.sgd = {}", "optimizer.sdg = {}",
             "error[unknown_table]: no plugin is called `optimizer.sdg`\n  --> m.toml:11:11    "),
            ("data.micro_batch_size = 2", "data.micro_batch_sze = 2",
             "error[unknown_key]: [data] has no key `micro_batch_sze`\n  --> m.toml:6:6\n"),
            ("accumulation.count = 2", 'accumulation.count = "x"',
             "error[wrong_type]: step.accumulation.count is"),
            ('from = "+ accumulation"', 'from = "accumulation"',
             "error[bad_matrix]: no row further up is called `accumulation`\n  --> m.toml:10:8\n"
             '  fix: from = "+ accumulation"\n'),
            ("[[row]]", "[[rows]]",
             "error[unknown_key]: a matrix has no key `rows`\n  --> m.toml:2:3\n  fix: [[row]]\n\n1 error; "),
        ):
            with self.subTest(new):
                self.file("m.toml", MATRIX.replace(old, new))
                result = self.mortise("bench", "m.toml")
                self.assertEqual(result.code, 64, result)
                self.assertTrue(result.err.startswith(err), result.err)
                self.assertEqual(result.out, "")
                self.assertFalse((self.dir / "runs/m").exists())
        self.assertRegex(self.mortise("bench", "no.toml").err, r"^error\[file_missing\]: no file `no.toml`\n")
        self.assertRegex(self.mortise("bench", "m.toml", "--steps", "x").err, r"^error\[wrong_type\]: --steps ")

    def test_of_a_value_are_where_the_matrix_has_it(self):
        self.file("m.toml", MATRIX.replace("accumulation.count = 2", 'accumulation.count = "x"'))
        self.assertIn("\n  --> m.toml:7:27\n", self.mortise("bench", "m.toml").err)

    def test_of_the_base_are_told_once(self):
        self.file("run.toml", BASE.replace("layers = 1", "layrs = 1"))
        err = self.mortise("bench", "m.toml").err
        self.assertEqual(err.count("error[unknown_key]"), 1, err)
        self.assertIn("\n  --> run.toml:", err)


if __name__ == "__main__":
    e2e.main()
