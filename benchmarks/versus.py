"""This tree against another build of Mortise, side by side on this machine.
usage: versus.py OTHER_BUILD [PAIRS], with MORTISE naming this tree's binary.

Interleaved pairs, each side in a fresh process: the start (shell to the record of step 1), the training
step (the GPT of gpt.py at dropout 0 and 0.1; the median step after two), a background save of it (training
with three saves over training without), the verbs that compute nothing, and the table of ABI costs where both builds
made `bench_abi`. A ratio is the median of the ratios of the pairs, with the spread beside it; under 1 is better.
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from checkpoint.bench import seconds as with_saves_every  # noqa: E402  the path above leads to it
from gpt import BATCH, command, train  # noqa: E402

WARM = 2
VERBS = {
    "--help": ["--help"],
    "points": ["points"],
    "plugin list": ["plugin", "list"],
    "plan --static": ["plan", "--static"],
    "plan": ["plan"],
}


def step(dropout):
    with tempfile.TemporaryDirectory() as folder:
        records = train(folder, 10, dropout, "[optimizer]\nlr = 1e-3")
    steps = (r for r in records if r["event"] == "step" and r["step"] > WARM)
    return statistics.median(BATCH / r["samples_per_s"] for r in steps)


def background_save():
    return with_saves_every(10)[0] / with_saves_every(1000)[0]


def first_step():
    with tempfile.TemporaryDirectory() as folder:
        before = time.perf_counter()
        with subprocess.Popen([*command(folder, 1), "--json"], stdout=subprocess.PIPE, text=True) as process:
            next(line for line in process.stdout if json.loads(line)["event"] == "step")
            seconds = time.perf_counter() - before
            process.communicate()
        assert process.returncode == 0
        return seconds


def verb(arguments, times=10):
    """Wall time of one call."""
    with tempfile.TemporaryDirectory() as folder:
        manifest = command(folder, 1)[-1:] if arguments[0] == "plan" else []
        before = time.perf_counter()
        for _ in range(times):
            subprocess.run([os.environ["MORTISE"], *arguments, *manifest], check=True, stdout=subprocess.DEVNULL)
        return (time.perf_counter() - before) / times


def compare(name, measure, ours, other, pairs, unit=1e3, word="ms"):
    sides = ours, other
    figures = {side: [] for side in sides}
    for pair in range(pairs + 1):  # the first fills the page cache
        for side in sides if pair % 2 else reversed(sides):
            os.environ["MORTISE"] = side
            figures[side].append(measure())
    here, there = figures[ours][1:], figures[other][1:]
    ratios = sorted(a / b for a, b in zip(here, there))
    print(f"{name:24} {statistics.median(here) * unit:9.2f} {statistics.median(there) * unit:9.2f} {word:3}"
          f"  {statistics.median(ratios):.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f})", flush=True)


def main():
    ours, other = os.environ["MORTISE"], str(pathlib.Path(sys.argv[1]).resolve() / "bin/mortise")
    pairs = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    print(f"{'':24} {'here':>9} {'there':>9}      here / there, median and spread of {pairs} pairs", flush=True)
    for name, arguments in VERBS.items():
        compare(name, lambda: verb(arguments), ours, other, pairs)
    compare("shell to the first step", first_step, ours, other, pairs)
    compare("step, dropout 0", lambda: step(0.0), ours, other, pairs)
    compare("step, dropout 0.1", lambda: step(0.1), ours, other, pairs)
    compare("background save", background_save, ours, other, max(2, pairs // 2), 1, "x")
    for binary in ours, other:
        bench = pathlib.Path(binary).parents[1] / "bin/bench_abi"
        print(f"\n{bench}" if bench.exists() else f"\n{bench} is not there: build the target bench_abi", flush=True)
        if bench.exists():
            subprocess.run([bench], check=True)


if __name__ == "__main__":
    main()
