"""Sampling with kept keys and values beside the whole text again for each token. usage: bench.py [PAIRS], with MORTISE
naming the binary.

GPT of 6 layers, width 384, 6 heads, bytes, fp32, after one step: 192 new tokens behind a prompt of 9. Interleaved
pairs, each side in a fresh process with one thread. Two figures, each the median of the pairs' ratios: the time from
the prompt to the end, without start and load of the checkpoint, which other programs on the machine disturb; and the
processor time of the whole process, start included, which they hardly do.
"""

import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from gpt import HEADS, LAYERS, LENGTH, WIDTH  # noqa: E402  the path above leads to it

TOKENS, PROMPT = 192, "The text "
MANIFEST = f"""
[run]
length = 1
[data]
micro_batch_size = 1
sequence_length = {LENGTH}
[data.text]
path = "notes.txt"
[tokenizer.byte]
[model.gpt]
layers = {LAYERS}
heads = {HEADS}
width = {WIDTH}
context = {LENGTH}
[optimizer.adamw]
"""


def train(folder):
    (folder / "notes.txt").write_text(" ".join(str(n) for n in range(2000)))
    (folder / "bench.toml").write_text(MANIFEST)
    subprocess.run([os.environ["MORTISE"], "train", "-q", "bench.toml"], cwd=folder, check=True)


def sampled(folder, cache):
    """Seconds from the prompt to the end, seconds of the processor, and the text."""
    command = [os.environ["MORTISE"], "sample", "runs/bench", "--prompt", PROMPT, "--tokens", str(TOKENS),
               "--temperature", "0", "--set", f"sample.text.cache={cache}", "--set", "device.cpu.threads=1"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE) as process:
        begin = process.stdout.read(len(PROMPT))
        before = time.perf_counter()
        rest = process.stdout.read()
        seconds = time.perf_counter() - before
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return seconds, used.ru_utime + used.ru_stime, begin + rest


def main():
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        train(folder)
        found = []
        for _ in range(pairs):
            *kept, text = sampled(folder, "true")
            *whole, same = sampled(folder, "false")
            assert text == same, "another text"
            found.append((kept, whole))
    for i, what in enumerate(("prompt to end", "processor, start included")):
        kept, whole = (statistics.median(pair[side][i] for pair in found) for side in (0, 1))
        ratios = sorted(pair[1][i] / pair[0][i] for pair in found)
        print(f"{TOKENS} tokens, {what}: {kept:.2f} s kept, {whole:.2f} s whole;  "
              f"ratio {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}), {pairs} pairs")


if __name__ == "__main__":
    main()
