"""Weights in and out, against transformers: the same logits from the same folder.

    MORTISE=build/bin/mortise python3 tests/parity/huggingface.py [--folder DIR] [small|medium|large|xl …]

Each size is written by transformers with random weights (biases and norms too, so that none of them can be left out
unnoticed), loaded here, and all logits of two texts of 64 bytes are compared; small ones also as shards. The first size
is then trained ten steps, exported, and compared again, as it is and in bf16, where every weight must be torch's
rounding of the fp32 one.

The bound. A logit is a sum over `width` products, of size about 1. Two orders of summing in fp32 (2^-24 = 6e-8 a
rounding) part by about
6e-8 * sqrt(width) * (rms of a product) = 6e-8 * |logit|-ish, and the residual stream that it reads has gathered 2
roundings in each of 2 * layers
additions and as many in each part before it, some 10 * layers in all: sqrt(10 * 48) * 6e-8 = 1.3e-6 for the largest
model here, times the few sigmas of
the worst of 6.4 million logits: 6e-6. The bound is 1e-5, in units of the largest logit or of 1; a forgotten bias moves
logits by 1e-1.
"""

import argparse
import gc
import json
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import tempfile
import time

import rows
import torch
from plugins import build
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.utils import logging

MORTISE = pathlib.Path(os.environ["MORTISE"]).absolute()
ROOT = pathlib.Path(__file__).resolve().parents[2]
SIZES = {
    "small": (12, 12, 768),
    "medium": (24, 16, 1024),
    "large": (36, 20, 1280),
    "xl": (48, 25, 1600),
}  # layers, heads, width
LENGTH, TEXTS, STEPS, BOUND = 64, 2, 10, 1e-5
TEXT = (ROOT / "README.md").read_bytes()
MEASURED = TEXT[:LENGTH * TEXTS + 1]

MANIFEST = """
[run]
length = {steps}
[data]
micro_batch_size = 1
sequence_length = {length}
[data.text]
path = "{folder}/train.txt"
validation_path = "{folder}/measured.txt"
[tokenizer.byte]
[model]
weights = "{weights}"
[model.gpt]
dropout = 0.0
[optimizer]
lr = 1e-4
[optimizer.adamw]
[log]
every = 1
"""


def model_of(size):
    layers, heads, width = SIZES[size]
    torch.manual_seed(1)
    model = GPT2LMHeadModel(GPT2Config(n_layer=layers, n_head=heads, n_embd=width))
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() == 1:
                p.add_(torch.randn_like(p), alpha=0.05)
    return model.eval()


def logits_of(model):
    ids = torch.tensor(list(MEASURED[:-1])).view(TEXTS, LENGTH)
    with torch.no_grad():
        return torch.cat([model(input_ids=row[None]).logits for row in ids])


def mortise(folder, *args):
    """What it prints, and what it took: the largest resident set of any of them so far, pages of mapped files among
    them."""
    before = time.monotonic()
    done = subprocess.run([MORTISE, *map(str, args)], cwd=folder, check=True, capture_output=True, text=True)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    return done.stdout, f"{time.monotonic() - before:.0f} s, at most {peak / 2**30:.1f} GiB resident"


def logits_here(folder, source):
    file = folder / "logits.bin"
    _, cost = mortise(
        folder,
        "eval",
        source,
        "--plugin-path",
        folder / "plugins",
        "--use",
        "test.logits",
        "--set",
        f"test.logits.path={file}",
    )
    numbers = torch.frombuffer(bytearray(file.read_bytes()), dtype=torch.float32).view(TEXTS, LENGTH, -1)
    file.unlink()
    return numbers, cost


def compare(name, ours, theirs, cost=""):
    assert ours.shape == theirs.shape, (ours.shape, theirs.shape)
    scale = max(1.0, theirs.abs().max().item())
    worst = (ours - theirs).abs().max().item() / scale
    ok = worst <= BOUND
    print(
        f"{name}: {ours.numel():,} logits, largest {scale:.2f}, worst {worst:.1e} (bound {BOUND:.0e})  "
        f"{'ok' if ok else 'FAIL'}  {cost}",
        flush=True,
    )
    return rows.note("transformers", f"GPT-2, {name}: logits", f"worst {worst:.1e}", f"{BOUND:.0e}", ok)


def manifest(folder, name, weights):
    (folder / f"{name}.toml").write_text(MANIFEST.format(steps=STEPS, length=LENGTH, folder=folder, weights=weights))
    return f"{name}.toml"


def load(folder):
    return GPT2LMHeadModel.from_pretrained(folder).eval()


def loaded(folder, size, shards):
    """Written by transformers, loaded here."""
    weights = folder / size
    model = model_of(size)
    model.save_pretrained(weights, **({"max_shard_size": "100MB"} if shards else {}))
    theirs = logits_of(model)
    del model
    gc.collect()
    assert (weights / "model.safetensors.index.json").exists() or not shards
    ours, cost = logits_here(folder, manifest(folder, size, weights))
    result = compare(f"{size}{' in shards' if shards else ''}", ours, theirs, cost)
    shutil.rmtree(weights)
    return result


def trained(folder, size):
    """Trained here, exported, loaded by transformers."""
    weights, run = folder / size, folder / "runs/trained"
    model_of(size).save_pretrained(weights)
    out, _ = mortise(folder, "train", manifest(folder, "trained", weights))
    losses = [
        json.loads(line)["loss"]
        for line in (run / "metrics.jsonl").read_text().splitlines()
        if json.loads(line)["event"] == "step"
    ]
    assert len(losses) == STEPS and losses[-1] < losses[0] - 0.1, losses
    print(
        f"{size}: {STEPS} steps, loss {losses[0]:.3f} -> {losses[-1]:.3f}; "
        f"{[line for line in out.splitlines() if line.startswith('weights')][0]}",
        flush=True,
    )
    mortise(folder, "export", run, "-o", folder / "exported")
    mortise(folder, "export", run, "-o", folder / "half", "--dtype", "bf16")
    ours, cost = logits_here(folder, run)
    exported, half, checkpoint = (
        load(folder / "exported"),
        load(folder / "half"),
        load(run / "checkpoints/latest/model"),
    )
    results = [
        compare(f"{size}, trained and exported", ours, logits_of(exported), cost),
        compare(f"{size}, the checkpoint itself", ours, logits_of(checkpoint)),
    ]
    pairs = list(zip(exported.state_dict().items(), half.state_dict().items()))
    same = all(
        n == m and b.dtype == torch.bfloat16 and torch.equal(a.to(torch.bfloat16), b) for (n, a), (m, b) in pairs
    )
    print(
        f"{size}, exported in bf16: {len(pairs)} tensors as torch rounds them  {'ok' if same else 'FAIL'}", flush=True
    )
    return results + [same]


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--folder", help="where the folders are written for the time being")
    arguments.add_argument("sizes", nargs="*", metavar="SIZE")
    arguments = arguments.parse_args()
    sizes = arguments.sizes or ["small", "medium"]
    logging.disable_progress_bar()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as temporary:
        folder = pathlib.Path(temporary)
        build(folder / "plugins", "logits")
        (folder / "measured.txt").write_bytes(MEASURED)
        (folder / "train.txt").write_bytes(TEXT)
        results = [loaded(folder, size, shards=False) for size in sizes]
        if "small" in sizes:
            results += [loaded(folder, "small", shards=True), *trained(folder, "small")]
    passed = sum(results)
    print(f"{passed} passed, {len(results) - passed} failed")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
