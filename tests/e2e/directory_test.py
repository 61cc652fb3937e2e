"""A run directory by all its names, and one that a stranger made."""
import json
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import time

import e2e
from e2e import TINY
from refusals_test import Fixtures

LONG = TINY.replace("length = 6", "length = 8").replace(
    "sequence_length = 16", "sequence_length = 16\nvalidation = 0.1") + (
    "[checkpoint]\nevery = 2\nkeep = 9\n[log]\nevery = 1\n")


class Names(e2e.Case):
    def unfinished(self, name="run", text=LONG):
        run = self.train(name, text)
        for step in (6, 8):
            shutil.rmtree(run / f"checkpoints/step-{step}")
        status = json.loads((run / "status.json").read_text())
        status["state"] = "stopped"
        (run / "status.json").write_text(json.dumps(status))
        return run

    def test_resume_goes_on_in_the_directory_that_a_name_means(self):
        run, kept = self.unfinished(), self.dir / "kept"
        (self.dir / "runs").rename(kept)
        for name, folder in (("runs/latest", "."), ("runs/run/", "."), ("runs/latest/", "."),
                             ("./runs/../runs/run", "."), (".", "runs/run"), ("../latest", "runs/run")):
            shutil.copytree(kept, self.dir / "runs", symlinks=True)
            result = e2e.Result(subprocess.run([e2e.MORTISE, "resume", name], cwd=self.dir / folder,
                                               env=self.environment(), capture_output=True, timeout=e2e.LIMIT_S,
                                               check=False))
            self.assertEqual(result.code, 0, (name, result))
            shown = "runs/run" if folder == "." else str(run)
            self.assertTrue(result.err.startswith(f"resume  {shown} at step 4 "), (name, result))
            self.assertIn(f"{shown}/checkpoints/step-8", result.out)
            self.assertTrue((run / "checkpoints/step-8/MANIFEST.json").exists())
            self.assertEqual(os.readlink(self.dir / "runs/latest"), "run", name)
            self.assertEqual(sorted(p.name for p in (self.dir / "runs").iterdir()), ["latest", "run"], name)
            shutil.rmtree(self.dir / "runs")

    def test_every_verb_says_the_same_of_each_name(self):
        self.train("run", LONG)
        for verb in (["sample", "--tokens", "2", "--temperature", "0"], ["eval", "--json"], ["checkpoint", "list"],
                     ["plan"], ["plan", "--static"]):
            words = verb[1:] if verb[0] != "checkpoint" else []
            start = verb[:1] if verb[0] != "checkpoint" else verb
            seen = set()
            for name in ("runs/run", "runs/latest", "runs/run/", "./runs/latest/"):
                result = self.ok(*start, name, *words)
                seen.add(json.dumps({k: v for k, v in json.loads(result.out).items() if k != "seconds"})
                         if verb[0] == "eval" else result.out)
            self.assertEqual(len(seen), 1, (verb, seen))
        for n, name in enumerate(("runs/latest", "runs/run/")):
            self.ok("export", name, "-o", f"out{n}")
            self.assertTrue((self.dir / f"out{n}/README.md").read_text().startswith("# run\n"))

    def test_a_path_with_a_space_can_be_typed_again(self):
        self.file("run.toml", LONG)
        result = self.mortise("train", "--set", "run.length=100000000", "--set", "run.time_limit=0.1 s",
                              env={"MORTISE_RUNS": "my runs"})
        self.assertEqual(result.code, 75, result)
        self.assertEqual(result.err, "next    mortise resume 'my runs/run'\n")
        self.assertEqual(self.mortise(*shlex.split(result.err)[2:], "--set", "run.time_limit=0.1 s").code, 75)
        result = self.mortise("resume", "my runs/run", "--set", "data.shuffle=false")
        self.assertIn("fix: begin again: mortise train 'my runs/run/run.toml' --set data.shuffle=false\n", result.err)

    def test_a_beginning_again_of_a_path_with_a_space_can_be_typed(self):
        runs = {"env": {"MORTISE_RUNS": "my runs"}}
        self.file("my run.toml", TINY)
        self.ok("train", "my run.toml", **runs)
        (run,) = (path for path in (self.dir / "my runs").iterdir() if not path.is_symlink())
        manifest = f"'my runs/{run.name}/run.toml'"
        said = self.mortise("train", f"my runs/{run.name}").err
        self.assertIn(f"begin again:     mortise train {manifest}\n", said)
        said = self.mortise("train", "my run.toml", "--resume", "--set", "run.seed=7", **runs).err
        self.assertIn("begin again:          mortise train 'my run.toml' --set run.seed=7\n", said)
        shutil.rmtree(run / "checkpoints")
        said = self.mortise("resume", f"my runs/{run.name}", "--set", "run.length=9").err
        self.assertIn(f"begin another like it: mortise train {manifest}\n", said)


class Theirs(e2e.Case):
    """What was there before a run is not the run's."""

    def test_a_failed_start_removes_nothing_of_others(self):
        thesis = self.file("runs/run/thesis.txt", "x")
        result = self.mortise("train", "--resume")
        self.assertEqual(result.code, 64, result)
        self.assertRegex(result.err, r"^error\[dir_not_empty\]: runs/run is not empty, and holds no run: .*\n"
                                     r"  effect: .*\n  fix: a folder that is new or empty: --set run\.dir=DIR\n$")
        self.assertEqual(thesis.read_text(), "x")
        run = self.train("lost")
        (run / "run.toml").unlink()
        for words in ((), ("--set", "run.length=8"), ("--set", "data.text.path=nope.txt")):
            self.assertEqual(self.mortise("train", "lost.toml", "--resume", *words).code, 64)
            self.assertTrue((run / "checkpoints/step-6/MANIFEST.json").exists())
        for n, words in enumerate((("--set", "data.text.path=empty.txt"), ("--set", "data.sequence_length=100000"))):
            self.file("empty.txt", "")
            (self.dir / f"runs/none{n}").mkdir()
            self.file(f"none{n}.toml", TINY)
            self.assertNotEqual(self.mortise("train", f"none{n}.toml", "--resume", *words).code, 0)
            self.assertEqual(list((self.dir / f"runs/none{n}").iterdir()), [])

    def test_train_does_not_begin_a_run_again_unasked(self):
        run = self.train("small")
        for word in ("runs/small", "runs/small/", "runs/latest"):
            for more in ((), ("--resume",)):
                self.refused(["train", word, *more],
                             f"error[is_a_run]: {word} is the directory of a run, and `mortise train` takes a "
                             "manifest\n"
                             "  effect: nothing was started\n"
                             "  fix: go on with it:   mortise resume runs/small\n"
                             "       begin again:     mortise train runs/small/run.toml\n")
        self.assertEqual(sorted(os.listdir(run.parent)), ["latest", "small"])
        self.assertEqual(self.ok("train", "runs/small/run.toml").err, "begins  another run like runs/small; to go on "
                         "with that one: mortise resume runs/small\n")
        self.assertTrue((run.parent / "small-2/run.toml").exists())
        self.assertEqual(self.ok("train", "runs/small/run.toml", "-q").err, "")

    def test_a_folder_with_files_is_no_run_directory(self):
        mine = {"sources/a.txt": "1", "log.txt": "2", "plan.txt": "3", "env.json": "4", "metrics.jsonl": "5"}
        for name, text in mine.items():
            self.file(name, text)
        for words in (["train"], ["train", "--resume"], ["train", "mine.toml"], ["train", "mine.toml", "--resume"]):
            self.file("mine.toml", TINY)
            self.assertEqual(self.mortise(*words, "--set", "run.dir=.").code, 64, words)
        self.assertEqual(self.mortise("resume", ".").code, 64)
        self.assertEqual(self.mortise("train", "--set", "run.dir=/").code, 64)
        self.assertEqual({name: (self.dir / name).read_text() for name in mine}, mine)


class Moved(e2e.Case):
    def test_a_directory_that_is_moved_ends_its_training(self):
        text = TINY.replace("length = 6", "length = 100000000") + "[checkpoint]\nevery = 100000000\n[log]\nevery = 1\n"
        self.file("run.toml", text)
        for replaced in (True, False):
            process = self.start("train")
            for line in process.stdout:
                if line.startswith(b"step"):
                    break
            run, moved = self.dir / "runs/run", self.dir / f"moved-{replaced}"
            run.rename(moved)
            if replaced:
                shutil.copytree(moved, run)
            before = (run / "status.json").read_bytes() if replaced else None
            process.send_signal(signal.SIGUSR1)
            out, err = process.communicate(timeout=e2e.LIMIT_S)
            self.assertEqual(process.returncode, 74, (out, err))
            self.assertRegex(err.decode(), r"(?m)^error\[dir_moved\]: runs/run was moved or replaced .*\n"
                                           rf"  effect: .*\n  fix: mortise resume {moved}\n")
            if replaced:
                self.assertEqual((run / "status.json").read_bytes(), before)
                self.assertFalse((run / "checkpoints").exists())
                shutil.rmtree(run)
            self.assertFalse(run.exists())
            shutil.rmtree(self.dir / "runs")


    def begun(self):
        self.file("run.toml", TINY.replace("length = 6", "length = 100000000") +
                  "[checkpoint]\nevery = 100000000\n[log]\nevery = 1\n")
        process = self.start("train")
        for line in process.stdout:
            if line.startswith(b"step"):
                return process
        return self.fail(process.stderr.read())

    def test_a_directory_that_is_emptied_gets_its_manifest_again(self):
        process, run = self.begun(), self.dir / "runs/run"
        manifest, origins = (run / "run.toml").read_bytes(), (run / "sources/origins.json").read_bytes()
        for path in list(run.iterdir()):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=e2e.LIMIT_S)
        self.assertEqual(process.returncode, 75, err)
        self.assertEqual(err.decode().count("warning[run_emptied]: runs/run/run.toml was removed while "), 1, err)
        self.assertEqual((run / "run.toml").read_bytes(), manifest)
        self.assertEqual((run / "sources/origins.json").read_bytes(), origins)
        again = self.mortise("resume", "runs/run", "--set", "run.time_limit=0.1 s")
        self.assertIn("resume  runs/run at step ", again.err)

    def test_a_directory_that_is_removed_is_not_proposed(self):
        process, run = self.begun(), self.dir / "runs/run"
        shutil.rmtree(run)
        process.send_signal(signal.SIGUSR1)
        _, err = process.communicate(timeout=e2e.LIMIT_S)
        self.assertEqual(process.returncode, 74, err)
        self.assertRegex(err.decode(), r"(?m)^error\[dir_moved\]: runs/run was removed while it was trained in\n"
                                       r"  effect: stopped; nothing of the run is left\n"
                                       r"  fix: train it again: its checkpoints are gone\n")
        self.assertNotIn("(deleted)", err.decode())


class Refused(e2e.Case):
    """A resume that is refused leaves the run as it was."""

    def test_checkpoints_stay_where_they_are(self):
        run = self.train("run", TINY + "[checkpoint]\nevery = 2\nkeep = 9\n")
        status = (run / "status.json").read_bytes()
        notes = (self.dir / "notes.txt").read_bytes()
        self.file("notes.txt", notes + b"more")
        self.assertEqual(self.mortise("resume", "runs/run", "--from", "2").code, 65)
        self.assertEqual((run / "status.json").read_bytes(), status)
        self.file("notes.txt", notes)
        self.assertTrue((run / "checkpoints/step-6").is_dir())
        self.assertIn("is finished", self.ok("resume", "runs/run").err)
        self.ok("resume", "runs/run", "--from", "2")
        self.assertTrue((run / "checkpoints/abandoned/step-4").is_dir())

    def test_a_value_that_a_plugin_refuses_is_not_recorded(self):
        run = self.train("run", TINY + "[checkpoint]\nevery = 3\nkeep = 9\n")
        recorded = (run / "run.toml").read_bytes()
        for words in (["--set", "run.length=8"], ["--from", "3"]):
            result = self.mortise("resume", "runs/run", *words, "--set", "optimizer.adamw.betas=[0.9]")
            self.assertEqual(result.code, 64, result)
            self.assertEqual((run / "run.toml").read_bytes(), recorded)
        self.assertIn("resume  runs/run at step 6 ", self.ok("resume", "runs/run", "--set", "run.length=8").err)


class Foreign(Fixtures):
    """Somebody sends a run directory, with a folder of plugins that its run.toml names."""

    def setUp(self):
        super().setUp()
        self.built("log.fixture", '\n[points]\nlistens = [{ point = "run.end" }]\n')
        self.file("run.toml", TINY + "[log.fixture]\n")
        self.trained("run", "--plugin-path", "more", "--set", "checkpoint.every=3")
        self.verbs = [["sample", "runs/run", "--tokens", "2"], ["eval", "runs/run", "--data", "notes.txt"],
                      ["resume", "runs/run", "--set", "run.length=7"], ["plan", "runs/run"],
                      ["plan", "runs/run/run.toml"], ["plan", "--static", "runs/latest"],
                      ["eval", "runs/run/run.toml"], ["train", "runs/run/run.toml"]]

    def test_its_plugins_are_not_loaded(self):
        for verb in self.verbs:
            result = self.mortise(*verb)
            self.assertEqual((result.code, result.out), (64, ""), (verb, result))
            self.assertRegex(result.err, r"^error\[foreign_plugins\]: runs/run/run\.toml names a folder of plugins, " +
                                         str(self.dir / "more") + r", which is not on your plugin path\n"
                                         r"  --> runs/run/run\.toml\n"
                                         r"  effect: no plugin was loaded: .*\n"
                                         r"  fix: if you trust it: --plugin-path " + str(self.dir / "more") + r"\n$")

    def test_they_are_where_the_person_says_so(self):
        for verb in self.verbs[:6]:
            self.ok(*verb, "--plugin-path", "more")
        self.ok(*self.verbs[0], env={"MORTISE_PLUGIN_PATH": f"/nowhere:{self.dir}/more"})
        home = self.dir / "home/.local/share/mortise"
        home.mkdir(parents=True)
        os.symlink(self.dir / "more", home / "plugins")
        self.ok(*self.verbs[0])

    def test_a_manifest_of_ones_own_names_what_it_likes(self):
        self.file("own.toml", '[plugins]\npath = ["more"]\n' + TINY + "[log.fixture]\n")
        self.ok("train", "own.toml")
        self.assertIn("is finished", self.ok("train", "own.toml", "--resume").err)
        result = self.mortise("train", "own.toml", "--set", "run.length=100000000", "--set", "run.time_limit=0.1 s")
        self.assertEqual(result.err, f"next    mortise resume runs/own-2 --plugin-path {self.dir}/more\n")

    def test_its_files_are_files(self):
        secret = self.file("secret", "mine")
        for name in ("status.json", "log.txt", "metrics.jsonl", "sources/command.txt"):
            for kind in ("link", "pipe"):
                shutil.copytree(self.dir / "runs/run", self.dir / "runs/sent", symlinks=True)
                path = self.dir / "runs/sent" / name
                path.unlink(missing_ok=True)
                if kind == "link":
                    path.symlink_to(secret)
                else:
                    os.mkfifo(path)
                result = self.mortise("resume", "runs/sent", "--plugin-path", "more", "--set", "run.length=7")
                self.assertEqual(result.code, 65, (name, kind, result))
                self.assertIn(f"error[not_a_file]: runs/sent/{name} is ", result.err)
                self.assertEqual(secret.read_text(), "mine")
                shutil.rmtree(self.dir / "runs/sent")
        shutil.copytree(self.dir / "runs/run", self.dir / "runs/sent", symlinks=True)
        (self.dir / "runs/sent/run.toml").unlink()
        os.mkfifo(self.dir / "runs/sent/run.toml")
        self.assertEqual(self.mortise("sample", "runs/sent").code, 65)

    def test_export_takes_what_was_saved_and_nothing_beside_it(self):
        model = self.checkpoint(self.dir / "runs/run") / "model"
        secret = self.file("secret", "mine")
        (model / "tokenizer.json").symlink_to(secret)
        (model / "notes.txt").write_text("not saved")
        result = self.ok("export", "runs/run", "-o", "out")
        self.assertEqual(sorted(os.listdir(self.dir / "out")), ["README.md", "config.json", "model.safetensors"],
                         result)


class Early(e2e.Case):
    """Signals that come before the first step, while libraries and plugins load."""

    def signalled(self, number, after):
        """A training that gets a signal `after` seconds from when it began to load its libraries."""
        self.file("run.toml", TINY.replace("length = 6", "length = 100000000"))
        process = self.start("train")
        while process.poll() is None and "libmortise.so" not in pathlib.Path(f"/proc/{process.pid}/maps").read_text():
            pass
        time.sleep(after)
        process.send_signal(number)
        return process

    def test_a_termination_is_75_whenever_it_comes(self):
        for after in (0, 0.01, 0.05, 0.1, 0.2, 0.4):
            process = self.signalled(signal.SIGTERM, after)
            out, err = process.communicate(timeout=e2e.LIMIT_S)
            self.assertEqual(process.returncode, 75, (after, out, err))
            if list(self.dir.glob("runs/run*/run.toml")):
                self.assertIn(b"next    mortise resume runs/run", err)
            shutil.rmtree(self.dir / "runs", ignore_errors=True)

    def test_a_closed_terminal_ends_nothing_and_a_request_is_kept(self):
        process = self.signalled(signal.SIGHUP, 0)
        process.send_signal(signal.SIGUSR1)
        deadline = time.monotonic() + e2e.LIMIT_S
        while not list(self.dir.glob("runs/run/checkpoints/step-1/MANIFEST.json")):
            self.assertIsNone(process.poll(), "it ended")
            self.assertLess(time.monotonic(), deadline,
                            "the checkpoint that was asked for before the first step is that of step 1")
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=e2e.LIMIT_S)
        self.assertEqual(process.returncode, 75)


if __name__ == "__main__":
    e2e.main()
