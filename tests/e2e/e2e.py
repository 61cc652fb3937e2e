"""What the end-to-end tests share: a folder of their own, the program, and a model that trains in a second.

    MORTISE=build/bin/mortise python3 tests/e2e/train_test.py [Class.test]
"""
import atexit
import json
import os
import pathlib
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
MORTISE = pathlib.Path(os.environ.get("MORTISE", SOURCE / "build/bin/mortise")).absolute()
PLUGINS = MORTISE.parent.parent / "plugins"
LIMIT_S = 300  # of one process: a busy machine is slow, a hang is for ever


def in_memory():
    """/dev/shm, where a sync waits for no disk: a short run makes forty. Not if TMPDIR names a place, or if programs
    cannot be started there, or if it is small."""
    try:
        found = os.statvfs("/dev/shm")
    except OSError:
        return None
    fits = found.f_bavail * found.f_frsize >= 2 << 30 and not found.f_flag & os.ST_NOEXEC
    return "/dev/shm" if fits and os.access("/dev/shm", os.W_OK) and "TMPDIR" not in os.environ else None


def ranks_of(parent):
    """The processes that `--ranks` has started, by number, as far as they have begun."""
    found = {}
    for pid in pathlib.Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        try:
            rank = re.search(rb"\0RANK=(\d+)\0", b"\0" + pathlib.Path(f"/proc/{pid}/environ").read_bytes())
        except OSError:
            continue
        if rank:
            found[int(rank[1])] = int(pid)
    return found


def free_port():
    """Below those that the system gives out by itself: one of these may be in use again before it is listened at."""
    for port in random.sample(range(20000, 32000), 100):
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", port)) != 0:
                return port
    raise OSError("no port of 100 is free")


ROOM = pathlib.Path(tempfile.mkdtemp(prefix="mortise_e2e.", dir=in_memory())).resolve()
ROOM.chmod(0o711)  # some tests let another user into their own folder
atexit.register(shutil.rmtree, ROOM, True)
# Of a build in there: ccache, where it is, knows the objects of the last time.
COMPILES = {"CMAKE_C_COMPILER_LAUNCHER": "ccache", "CMAKE_CXX_COMPILER_LAUNCHER": "ccache", "CCACHE_BASEDIR": str(ROOM),
            "CCACHE_NOHASHDIR": "1"} if shutil.which("ccache") else {}
TRAINED = {}  # what a training read: where a copy of its runs/ lies

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
        # One test after the other in one place, so that a run of one, which names its place, is the run of another.
        self.dir = ROOM / "test"
        shutil.rmtree(self.dir, True)
        self.dir.mkdir(mode=0o700)
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
        env.update(HOME=str(self.dir / "home"), OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", LC_ALL="C.UTF-8",
                   CUDA_VISIBLE_DEVICES="",  # the processor, on a machine with a GPU too
                   MALLOC_PERTURB_="85")  # what is freed is overwritten
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

    def start(self, *args, env=None, **more):
        process = subprocess.Popen(
            [MORTISE, *map(str, args)],
            cwd=self.dir,
            env=self.environment(**(env or {})),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **more,
        )
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def compiled(self, folder, source, *definitions):
        """The C++ plugin that a folder with a plugin.toml is named after."""
        compiler = shutil.which(os.environ.get("CXX", "c++"))
        if compiler is None:
            self.skipTest("no C++ compiler")
        subprocess.run([compiler, "-std=c++20", "-shared", "-fPIC", "-fvisibility=hidden", f"-I{SOURCE}/sdk/include",
                        f"-Wl,--version-script={SOURCE}/sdk/cmake/plugin.map", '-DMORTISE_PLUGIN_TOML="plugin.toml"',
                        *definitions, source, "-o", f"{folder.name}.so"], cwd=folder, check=True, timeout=LIMIT_S)

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
        self.assertEqual(self.trained(name, f"{name}.toml", *args), "")
        return self.dir / "runs" / name

    def trained(self, name, *args):
        """What `mortise train` says on stderr as it makes runs/NAME. A run that an earlier test trained of the very
        same files, none of them of another run, is not trained again: it is copied."""
        runs, run = self.dir / "runs", self.dir / "runs" / name
        files = sorted(path for path in self.dir.rglob("*") if path.is_file() and runs not in path.parents)
        key = repr((args, [(str(path), path.read_bytes()) for path in files], sorted(self.environment().items())))
        alone = not run.exists() and not any("runs" in str(text) for text in (args, *(
            path.read_text(errors="replace") for path in files if path.suffix == ".toml")))
        if alone and key in TRAINED:
            err, kept = TRAINED[key]
            shutil.copytree(kept, run, symlinks=True)
            (runs / "latest").unlink(missing_ok=True)
            (runs / "latest").symlink_to(name)
            return err
        beside = {"runs", *os.listdir(self.dir)}
        err = self.ok("train", *args).err
        if alone and set(os.listdir(self.dir)) == beside:
            TRAINED[key] = err, shutil.copytree(run, ROOM / f"trained-{len(TRAINED)}", symlinks=True)
        return err

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
