"""A step of each optimizer here and in PyTorch, over the same tensors on the same CPU and threads.
usage: bench.py [ROUNDS [OPTIMIZER …]], with MORTISE naming the binary.

The tensors are those of a GPT-2 of 30 M parameters in fp32: 6 layers, width 384, 50,257 tokens, 256 positions; the
rate is the same; weight decay is 0.01 (here not of vectors). Rounds are interleaved, each side's figure of a round is
its median step after two, the table's the median of the rounds; a ratio (ours / theirs) is the median of the rounds'
ratios, below 1 is better.

Ours is `step_ms` without `gradients_ms` of profile.calls: norm of all gradients, verdict, update and commit. A sample
has 8 tokens, so that a step is little but this. Theirs is `torch.nn.utils.get_total_norm` and `step()`, the same work:
Trainer, too, has that norm in each step. Of the forms that torch has of an optimizer (foreach, fused) the fastest one.
Muon has the matrices of the blocks, queries, keys and values each by
themselves on both sides, and AdamW the rest. Of a peer that is not installed, and of the two without one on the CPU,
the table says so.
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import torch

LAYERS, WIDTH, VOCABULARY, CONTEXT, STEPS, WARM = 6, 384, 50_257, 256, 8, 2
THREADS = len(os.sched_getaffinity(0))
MANIFEST = f"""
[run]
length = {STEPS}
[log]
every = 1
[data]
micro_batch_size = 1
sequence_length = 8
[data.random]
high = {VOCABULARY}
[model.gpt]
layers = {LAYERS}
heads = 6
width = {WIDTH}
context = {CONTEXT}
dropout = 0.0
[device.cpu]
threads = {THREADS}
[profile.calls]
[checkpoint]
at_end = false
[optimizer]
lr = 1e-4
weight_decay = 0.01
"""
# What stands in the manifest below that.
TABLES = {
    "sgd": "[optimizer.sgd]\nmomentum = 0.9\n",
    "adamw": "[optimizer.adamw]\n",
    "adafactor": "[optimizer.adafactor]\n",
    "adamw_8bit": "[optimizer.adamw_8bit]\n",
    "adamw_anyprecision": "[optimizer.adamw_anyprecision]\n",
    "muon": '[optimizer.muon]\nwhere = ["h.*.attn.*.weight", "h.*.mlp.*.weight"]\n[optimizer.adamw]\n',
}


def ours(name):
    """Milliseconds of a step."""
    with tempfile.TemporaryDirectory() as folder:
        manifest = pathlib.Path(folder) / "bench.toml"
        manifest.write_text(MANIFEST + TABLES[name])
        command = [os.environ["MORTISE"], "train", manifest, "--set", f"run.dir={folder}/run"]
        subprocess.run([*command, "--without", "log.console"], check=True)
        lines = (pathlib.Path(folder) / "run/metrics.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    steps = [r for r in records if r["event"] == "step" and r["step"] > WARM]
    return statistics.median(r["step_ms"] - r["gradients_ms"] for r in steps)


def tensors():
    """Of the model: the matrices of its blocks, c_attn in three, and the rest."""
    block = [(WIDTH, WIDTH)] * 4 + [(4 * WIDTH, WIDTH), (WIDTH, 4 * WIDTH)]
    vectors = [(WIDTH,)] * 6 + [(3 * WIDTH,), (4 * WIDTH,)]
    rest = [(VOCABULARY, WIDTH), (CONTEXT, WIDTH)] + vectors * LAYERS + [(WIDTH,)] * 2

    def made(sizes):
        # Pages are touched and numbers are ordinary ones, in the gradients, too.
        all_of_them = [torch.nn.Parameter(torch.randn(size) * 0.02) for size in sizes]
        for p in all_of_them:
            p.grad = torch.randn_like(p) * 1e-3
        return all_of_them

    return made(block * LAYERS), made(rest)


def forms(make):
    """Each form of an optimizer that torch has for these tensors, by name."""
    found = {}
    for form in ({"foreach": False}, {"foreach": True}, {"fused": True}):
        try:
            found["fused" if "fused" in form else "foreach" if form["foreach"] else "one by one"] = make(**form)
        except (RuntimeError, TypeError, ValueError):  # it has no such form
            pass
    return found


def peers(name, matrices, rest):
    """Lists of optimizers that are one step together, by what they are called. Empty: there is none on the CPU."""
    everything, common = matrices + rest, {"lr": 1e-4, "weight_decay": 0.01}
    if name == "sgd":
        made = forms(lambda **form: [torch.optim.SGD(everything, momentum=0.9, **common, **form)])
        return {f"torch.optim.SGD, {form}": o for form, o in made.items()}
    if name == "adamw":
        made = forms(lambda **form: [torch.optim.AdamW(everything, **common, **form)])
        return {f"torch.optim.AdamW, {form}": o for form, o in made.items()}
    if name == "adafactor":
        from transformers.optimization import Adafactor

        return {"transformers.Adafactor": [Adafactor(everything, scale_parameter=False, relative_step=False, **common)]}
    if name == "adamw_8bit":
        try:
            from bitsandbytes.optim import AdamW8bit
        except ImportError:
            return {}
        return {"bitsandbytes AdamW8bit": [AdamW8bit(everything, **common)]}
    if name == "muon":
        muon = torch.optim.Muon(matrices, **common)
        made = forms(lambda **form: [muon, torch.optim.AdamW(rest, **common, **form)])
        return {f"torch.optim.Muon beside AdamW, {form}": o for form, o in made.items()}
    return {}  # torchdistx, whose AnyPrecisionAdamW it is, is no longer built


def their_steps(optimizers):
    """Milliseconds of a step, the median after the first ones."""
    gradients = [p.grad for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]]
    taken = []
    for _ in range(STEPS):
        before = time.perf_counter()
        torch.nn.utils.get_total_norm(gradients)
        for optimizer in optimizers:
            optimizer.step()
        taken.append((time.perf_counter() - before) * 1e3)
    return statistics.median(taken[WARM:])


def row(name, rounds):
    torch.manual_seed(0)
    matrices, rest = tensors()
    own, theirs = [], {}
    for _ in range(rounds):
        own.append(ours(name))
        # Made anew, so that the moments of one form are not in memory beside another's.
        for called in peers(name, matrices, rest):
            try:
                theirs.setdefault(called, []).append(their_steps(peers(name, matrices, rest)[called]))
            except (RuntimeError, NotImplementedError) as error:
                theirs.pop(called, None)
                print(f"{called} does not run here: {str(error).splitlines()[0]}", file=sys.stderr)
    ours_ms = statistics.median(own)
    if not theirs:
        return f"| `{name}` | {ours_ms:.1f} ms | no CPU peer | | |"
    best = min(theirs, key=lambda called: statistics.median(theirs[called]))
    ratios = sorted(a / b for a, b in zip(own, theirs[best]))
    spread = f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
    return (f"| `{name}` | {ours_ms:.1f} ms | {statistics.median(theirs[best]):.1f} ms | {best} "
            f"| {statistics.median(ratios):.2f} ({spread}) |")


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    torch.set_num_threads(THREADS)
    count = sum(p.numel() for group in tensors() for p in group)
    print(f"{count:,} parameters in fp32, {THREADS} threads, {rounds} rounds, torch {torch.__version__}, "
          f"load {os.getloadavg()[0]:.1f}\n")
    print("| optimizer | here | there | the fastest form of the peer | here / there (spread) |\n|---|---|---|---|---|")
    for name in sys.argv[2:] or TABLES:
        print(row(name, rounds), flush=True)


if __name__ == "__main__":
    main()
