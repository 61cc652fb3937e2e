"""What the end-to-end tests share: a folder of their own, the program, and a model that trains in a second.

    MORTISE=build/bin/mortise python3 tests/e2e/train_test.py [Class.test]
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
MORTISE = pathlib.Path(os.environ.get("MORTISE", SOURCE / "build/bin/mortise")).absolute()
PLUGINS = MORTISE.parent.parent / "plugins"
LIMIT_S = 300  # of one process: a busy machine is slow, a hang is for ever

TINY = """\
[run]
length = 6
[data]
micro_batch_size = 4
sequence_length = 16
[data.text]
path = "notes.txt"
[tokenizer.byte]
[model.gpt]
layers = 1
heads = 2
width = 16
[optimizer.adamw]
"""


class Result:
    def __init__(self, done):
        self.code = done.returncode
        self.out = done.stdout.decode()
        self.err = done.stderr.decode()

    def __repr__(self):
        return f"exit {self.code}\n--- stdout\n{self.out}--- stderr\n{self.err}"


class Case(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="mortise_e2e.")).resolve()
        self.addCleanup(shutil.rmtree, self.dir, True)
        self.file("notes.txt", " ".join(str(n) for n in range(400)))
        self.file("run.toml", TINY)

    def file(self, name, text):
        path = self.dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    def environment(self, **more):
        """Of the caller's environment only what finds the program's libraries; no plugins of the person who runs the
        tests."""
        env = {k: v for k, v in os.environ.items() if k in ("PATH", "LD_LIBRARY_PATH", "TMPDIR")}
        env.update(HOME=str(self.dir / "home"), OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", LC_ALL="C.UTF-8")
        env.update(more)
        return env

    def mortise(self, *args, stdin=b"", env=None, **more):
        done = subprocess.run(
            [MORTISE, *map(str, args)],
            cwd=self.dir,
            env=self.environment(**(env or {})),
            input=stdin,
            capture_output=True,
            timeout=LIMIT_S,
            check=False,
            **more,
        )
        return Result(done)

    def start(self, *args, **more):
        process = subprocess.Popen(
            [MORTISE, *map(str, args)],
            cwd=self.dir,
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **more,
        )
        self.addCleanup(process.kill)
        return process

    def ok(self, *args, **more):
        result = self.mortise(*args, **more)
        self.assertEqual(result.code, 0, result)
        return result

    def refused(self, args, err, code=64):
        """Exactly this on stderr, nothing on stdout, this exit."""
        result = self.mortise(*args)
        self.assertEqual(result.err, err)
        self.assertEqual(result.out, "")
        self.assertEqual(result.code, code)

    def train(self, name, text=TINY, *args):
        """Trains `text` as NAME.toml; the run directory."""
        self.file(f"{name}.toml", text)
        result = self.ok("train", f"{name}.toml", *args)
        self.assertEqual(result.err, "")
        return self.dir / "runs" / name

    def weights(self, run):
        return (self.checkpoint(run) / "model/model.safetensors").read_bytes()

    def checkpoint(self, run):
        """The newest one, as the link says."""
        return (run / "checkpoints/latest").resolve()

    def records(self, run, event=None):
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        return [r for r in lines if event in (None, r["event"])]


def main():
    if not MORTISE.exists():
        sys.exit(f"no {MORTISE}\n  fix: cmake --build build --target product, or MORTISE=PATH")
    unittest.main(verbosity=2)
