"""The work that benchmarks share: the quickstart's big brother, a GPT of 6 layers, width 384, 6 heads, sequence 256,
batch 8, over random bytes, with AdamW in fp32."""

import json
import os
import pathlib
import subprocess

LAYERS, HEADS, WIDTH, LENGTH, BATCH = 6, 6, 384, 256, 8

MANIFEST = """
[run]
length = {steps}
dir = "{folder}/run"
[log]
every = 1
[data]
micro_batch_size = {batch}
sequence_length = {length}
[data.random]
samples = 512
low = 0
high = 256
[model.gpt]
layers = {layers}
heads = {heads}
width = {width}
context = {length}
dropout = {dropout}
[optimizer.adamw]
[checkpoint]
at_end = false
{more}
"""


def command(folder, steps, dropout=0.0, more=""):
    """What trains it in the run directory FOLDER/run. `more` goes on in [checkpoint], and may begin tables."""
    manifest = pathlib.Path(folder) / "bench.toml"
    manifest.write_text(
        MANIFEST.format(
            steps=steps,
            folder=folder,
            batch=BATCH,
            length=LENGTH,
            layers=LAYERS,
            heads=HEADS,
            width=WIDTH,
            dropout=dropout,
            more=more,
        )
    )
    return [os.environ["MORTISE"], "train", str(manifest)]


def train(folder, steps, dropout=0.0, more=""):
    """The records of a training."""
    subprocess.run([*command(folder, steps, dropout, more), "--without", "log.console"], check=True)
    return [json.loads(line) for line in (pathlib.Path(folder) / "run" / "metrics.jsonl").read_text().splitlines()]
