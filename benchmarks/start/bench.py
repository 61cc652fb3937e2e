"""From the shell to the first step of the quickstart. usage: bench.py [TIMES], with MORTISE naming the binary.

A fresh process each time, files in the page cache; until the record of step 1 stands on standard output: the text read
and tokenised, the plugins checked and loaded, the step itself included; nothing is held out, so nothing is evaluated
before it. The peer is what a script of transformers' Trainer imports before its first line runs.
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]


def first_step():
    with tempfile.TemporaryDirectory() as folder:
        command = [
            os.environ["MORTISE"],
            "train",
            ROOT / "configs/quickstart.toml",
            "--json",
            "--set",
            "run.length=1",
            "--set",
            f"run.dir={folder}/run",
            "--set",
            "log.every=1",
            "--set",
            "data.validation=0.0",
        ]
        before = time.perf_counter()
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            step = next(line for line in process.stdout if json.loads(line)["event"] == "step")
            seconds = time.perf_counter() - before
            process.communicate()
        assert json.loads(step)["step"] == 1 and process.returncode == 0
        return seconds


def imports():
    before = time.perf_counter()
    subprocess.run([sys.executable, "-c", "from transformers import GPT2LMHeadModel, Trainer"], check=True)
    return time.perf_counter() - before


def main():
    times = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    first_step(), imports()  # the page cache
    ours, theirs = [first_step() for _ in range(times)], [imports() for _ in range(times)]
    print(f"shell to the first step: {statistics.median(ours):.2f} s ({min(ours):.2f} to {max(ours):.2f});  "
          f"import of transformers' Trainer: {statistics.median(theirs):.2f} s")


if __name__ == "__main__":
    main()
