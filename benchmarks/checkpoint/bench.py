"""What saving in the background costs. usage: bench.py [PAIRS], with MORTISE naming the binary.

The quickstart's big brother (GPT of 6 layers, width 384, sequence 256, batch 8, AdamW, fp32: 122 MiB of state) for 39 steps, with a checkpoint every ten steps in
the background and without any; interleaved pairs, each side in a fresh process. The figure of a pair is the time of training with saves over that without, where
the saves of steps 10, 20 and 30 have ended within it; the figure of the benchmark is the median of the pairs. The bound is 1.02.
"""
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

MANIFEST = """
[run]
length = 39
dir = "{dir}"
[log]
every = 1
[checkpoint]
every = {every}
background = true
at_end = false
[data]
micro_batch_size = 8
sequence_length = 256
[data.random]
samples = 512
low = 0
high = 256
[model.gpt]
layers = 6
heads = 6
width = 384
context = 256
[optimizer.adamw]
"""


def seconds(every):
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR", ".")) as folder:
        folder = str(pathlib.Path(folder).resolve())  # run.dir is relative to its manifest
        manifest = pathlib.Path(folder) / "bench.toml"
        manifest.write_text(MANIFEST.format(dir=folder + "/run", every=every))
        subprocess.run([os.environ["MORTISE"], "train", str(manifest), "--without", "log.console"], check=True)
        records = [json.loads(line) for line in (pathlib.Path(folder) / "run" / "metrics.jsonl").read_text().splitlines()]
        saved = [r for r in records if r["event"] == "saved"]
        assert [r["step"] for r in saved] == ([10, 20, 30] if every == 10 else []), saved
        return next(r["seconds"] for r in records if r["event"] == "end"), saved


def main():
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    ratios = []
    for _ in range(pairs):
        (plain, _), (saving, saved) = seconds(1000), seconds(10)
        ratios.append(saving / plain)
        wrote = ", ".join(f"{r['seconds']:.2f}" for r in saved)
        print(f"{plain:.1f} s without, {saving:.1f} s with three saves of {saved[0]['bytes'] / 2**20:.0f} MiB ({wrote} s each): {ratios[-1]:.3f}", flush=True)
    print(f"saving in the background: {statistics.median(ratios):.3f} of the time without, median of {pairs} pairs")


if __name__ == "__main__":
    main()
