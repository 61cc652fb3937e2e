"""Sampling with kept keys and values beside the whole text again for each token. usage: bench.py [PAIRS], with MORTISE
naming the binary.

GPT of 6 layers, width 384, 6 heads, bytes, fp32, after one step: 192 new tokens behind a prompt of 9. Interleaved
pairs, each side in a fresh process; the time of a side is from its prompt to its end, so start and load of the
checkpoint are not in it, and the token that is computed both ways is. The figure is the median of the pairs' ratios.
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
    """Seconds, and the text."""
    command = [os.environ["MORTISE"], "sample", "runs/bench", "--prompt", PROMPT, "--tokens", str(TOKENS),
               "--temperature", "0", "--set", f"sample.text.cache={cache}"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE) as process:
        begin = process.stdout.read(len(PROMPT))
        before = time.perf_counter()
        rest = process.stdout.read()
        seconds = time.perf_counter() - before
    assert process.returncode == 0
    return seconds, begin + rest


def main():
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        train(folder)
        kept, whole = [], []
        for _ in range(pairs):
            (a, text), (b, same) = sampled(folder, "true"), sampled(folder, "false")
            assert text == same, "another text"
            kept.append(a), whole.append(b)
        ratios = sorted(b / a for a, b in zip(kept, whole))
    print(f"{TOKENS} tokens: {statistics.median(kept):.2f} s kept, {statistics.median(whole):.2f} s whole;  "
          f"ratio {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}), {pairs} pairs")


if __name__ == "__main__":
    main()
