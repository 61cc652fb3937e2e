"""Any two techniques together on a GPU: each pair trains 20 steps on the CPU, on the GPU, and there as a recorded step
(compile.cuda_graph). Losses of the GPU are the CPU's within a bound, those of the recorded step the same bits.

    gpu.py [--write] [--only TECHNIQUE,…] [--jobs N]       on a machine with a GPU; --write makes docs/pairs_gpu.md

Bound of a loss on the GPU: sums of fp32 in another order, 1e-5 of it (tests/gpu/gpu_test.py), and what numbers that are
rounded to fewer bits do to that: a last digit that differs lets one of them fall to the other side. Of two techniques
the bounds are added."""
import argparse
import collections
import concurrent.futures
import functools
import itertools
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import tomllib

import pairs

PAGE = pairs.SOURCE / "docs/pairs_gpu.md"
FP32 = 1e-5
# Relative to the loss. 16-bit numbers have 8 or 11 bits; states of 8 bits are as far apart as 1/256.
ROUNDS = {"precision.bf16": 1e-2, "precision.fp16": 2e-3, "precision.half": 2e-2, "precision.tf32": 2e-3,
          "optimizer.muon": 1e-2, "optimizer.adamw_anyprecision": 1e-2, "optimizer.adamw_8bit": 1e-3}
GRAPH = "compile.cuda_graph"
# They compute in 16 bits there: beside precision.bf16, unless the other technique is such a precision.
IN_16_BITS = {"attention.cudnn", "attention.flash", "attention.tiled"}
PRECISIONS_OF_16_BITS = {"precision.bf16", "precision.fp16", "precision.half", "optimizer.adamw_anyprecision"}


@functools.cache
def facts():
    return {i: tomllib.loads((p / "plugin.toml").read_text()) for i, p in pairs.plugins().items()}


def only_there():
    """Beside the CPU's run without them."""
    return {i for i, f in facts().items() if pairs.wants_a_gpu(f)} | {"precision.tf32", *IN_16_BITS}


def tables_of(names):
    """{table: keys}; the attention of a GPU in 16 bits, and in heads that the tiles are made for."""
    all_of = pairs.tables_of(names)
    if any(n.startswith("attention.") for n in names) and "precision.bf16" not in names:
        all_of.pop("precision.bf16", None)  # that of the example
    if IN_16_BITS & set(names) and not PRECISIONS_OF_16_BITS & set(names):
        all_of["precision.bf16"] = {}
    if "layer.moe" in names:
        all_of["layer.moe"]["capacity_factor"] = 2.0  # as many as there are: nothing is dropped, and nothing waits
    if "attention.tiled" in names:
        all_of["model.gpt"]["width"] = 128
    return all_of


def techniques():
    return sorted(i for i, f in facts().items() if "equals" in f.get("capabilities", {}) and i != GRAPH)


class Trained:
    """refused, or broken, or losses."""

    def __init__(self, names, folder, device):
        self.refused = self.broken = ""
        self.losses = []
        where = pathlib.Path(folder) / "+".join((device, *names))
        where.mkdir()
        tables = tables_of(names) | ({GRAPH: {}} if device == "graph" else {})
        if device == "cpu":
            tables = {t: k for t, k in tables.items() if t not in only_there()}
        tables = {t: k for t, k in tables.items() if t != "device.cuda"}
        tables["device.cpu" if device == "cpu" else "device.cuda"] = {}
        if "data.pack" not in names:
            del tables["data.random"]["shortest"]  # batches of one shape, so that a recording is played
        (where / "run.toml").write_text(pairs.manifest(tables))
        done = pairs.mortise(where, "train", "run.toml")
        if done.returncode in (64, 69):
            self.refused = json.loads(done.stderr.splitlines()[0])["message"]
        elif done.returncode:
            self.broken = f"{device}: exit {done.returncode}: {done.stderr.decode()[-600:]}"
        else:
            lines = (where / "runs/run/metrics.jsonl").read_text().splitlines()
            self.losses = [r["loss"] for r in map(json.loads, lines) if r["event"] == "step"]
        shutil.rmtree(where)


def distance(a, b):
    """The furthest apart that two losses of a step are, relative to them."""
    if len(a) != len(b) or not a:
        return float("inf")
    return max(abs(x - y) / max(abs(x), abs(y), 1e-9) for x, y in zip(a, b))


def judge(names, cpu, cuda, graph):
    """(sign, difference to the CPU, text)"""
    for run in (cpu, cuda, graph):
        if run.broken:
            return "!", 0, run.broken
    if cuda.refused or cpu.refused:
        return "×", 0, cuda.refused or cpu.refused
    far, bound = distance(cpu.losses, cuda.losses), FP32 + sum(ROUNDS.get(t, 0) for t in tables_of(names))
    if not far <= bound:
        return "!", far, f"losses of the GPU and of the CPU are {far:.1e} apart, more than {bound:.1e}"
    if graph.refused:
        return "e", far, graph.refused
    if graph.losses != cuda.losses:
        return "!", far, f"losses of the recorded step are {distance(graph.losses, cuda.losses):.1e} from the other's"
    return "=", far, ""


HEAD = """# Any two techniques together on a GPU

Made by `python3 tests/pairs/gpu.py --write` on a machine with a GPU ({device}): each pair trains {steps} steps of a
small GPT on the CPU, on the GPU, and there as a recorded step.

| | |
|---|---|
| `=` | the GPU's losses are the CPU's within the bound of tests/pairs/gpu.py, and a recorded step's are the same bits |
| `e` | the same, without a recorded step, which is refused for the reason below |
| `×` | refused before anything is trained, for the reason below |

The diagonal is the technique alone. `precision.tf32`, attention in 16 bits and what only a GPU runs stand beside the
CPU's run without them. The furthest from the CPU of all that compute in fp32 alone: {fp32:.1e} of the loss (bound
{bound:.0e}); of all: {far:.1e}.

"""


def page(cells, names):
    device = subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], capture_output=True,
                                  text=True, check=True).stdout.strip()
    fp32 = max((far for key, (_, far, _) in cells.items() if not set(tables_of(key)) & set(ROUNDS)), default=0)
    far = max(far for _, far, _ in cells.values())
    head = HEAD.format(device=device, steps=pairs.STEPS, fp32=fp32, bound=FP32, far=far)
    table = pairs.grid(names, lambda a: "", lambda a, b: cells[tuple(sorted({a, b}))][0])
    reasons = collections.defaultdict(list)
    for key, (_, _, text) in cells.items():
        if text:
            reasons[text].append(" with ".join(f"`{n}`" for n in key))
    return head + table + "\n" + "".join(f"- {text}: {', '.join(who)}\n" for text, who in sorted(reasons.items()))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--out", type=pathlib.Path, default=PAGE)
    parser.add_argument("--only", help="pairs with one of these")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    asked = parser.parse_args()
    names = techniques()
    keys = [(n,) for n in names] + list(itertools.combinations(names, 2))
    if asked.only:
        keys = [k for k in keys if set(k) & set(asked.only.split(","))]
    with tempfile.TemporaryDirectory(prefix="mortise_pairs.") as folder, \
            concurrent.futures.ThreadPoolExecutor(asked.jobs) as pool:
        runs = {(key, device): pool.submit(Trained, key, folder, device)
                for key in keys for device in ("cuda", "graph", "cpu")}
        cells = {key: judge(key, *(runs[key, d].result() for d in ("cpu", "cuda", "graph"))) for key in keys}
    wrong = [f"{' with '.join(key)}: {text}" for key, (sign, _, text) in cells.items() if sign == "!"]
    if asked.write:
        asked.out.write_text(page(cells, names))
    print("\n".join(wrong))
    counts = collections.Counter(sign for sign, _, _ in cells.values())
    print(f"{len(cells)} cells: " + ", ".join(f"{n} {sign}" for sign, n in counts.items()))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
