"""What attention with dropout in fp32 takes of a step on a GPU: BERT-large to classify, sequence 512, batch 4, dropout
0.1, compile.cuda_graph. usage: attention.py [--trace] [ROW…]; MORTISE names the binary, CUDA_TRACER what counts
(tests/gpu/cupti). Rows: `math`, and of attention.recompute `32`, `64`, …, its MiB of `workspace`.

CUPTI says when each kernel ran. Medians of the steady steps, ms:

  step      from its begin to its end
  kernels   in which any kernel ran. What it is less than in the row `math` is what a step saves
  rows      attention.recompute's own kernels
  products  of attention.recompute: the products right beside those, which are all of its

and the allocator's peak. --trace prints the kernels of each row.
"""

import json
import re
import statistics
import sys

import bench
import traced

MANIFEST = bench.BERT.format(steps=40, batch=4, samples=16) + bench.REST + bench.FP32 + bench.GRAPH
RECOMPUTE = "[attention.recompute]\nworkspace = {}\n"
ROWS = {"math": "[attention.math]\n", **{str(mib): RECOMPUTE.format(mib) for mib in (16, 32, 64, 128, 256)}}
OURS = re.compile("mortise::kernels::.*::to_(probabilities|gradients)<")
PRODUCT = re.compile("gemm|splitK|cutlass", re.IGNORECASE)


def parts(step):
    """ns of our own kernels, and of the products in the same stretches: no other kernel is between them."""
    rows = products = stretch = 0
    has_ours = False
    for work in [*sorted(step.work, key=lambda w: w.start), None]:
        if work is not None and work.kind != "kernel":
            continue
        if work is not None and OURS.search(work.name):
            rows += work.end - work.start
            has_ours = True
        elif work is not None and PRODUCT.search(work.name):
            stretch += work.end - work.start
        else:
            products += stretch if has_ours else 0
            stretch, has_ours = 0, False
    return rows, products


def row(attention, prints):
    steps, lines = traced.train(MANIFEST + attention, "--json")
    if steps is None:
        return lines
    if prints:
        traced.print_kernels([step.work for step in steps], 24)
    records = [json.loads(line) for line in lines]
    mib = max(record["memory_peak_bytes"] for record in records if record["event"] == "step") / 2**20
    figures = [(step.length(), step.busy(), *parts(step)) for step in steps]
    ms = [statistics.median(figure) / 1e6 for figure in zip(*figures)]
    return "{:8.2f} {:8.2f} {:8.2f} {:8.2f}".format(*ms) + f" {mib:8,.0f} MiB"


def main():
    traced.begin()
    print(f"{'ms':8} {'step':>8} {'kernels':>8} {'rows':>8} {'products':>8}")
    for name in [name for name in ROWS if name in sys.argv[1:]] or list(ROWS):
        print(f"{name:8} {row(ROWS[name], '--trace' in sys.argv[1:])}", flush=True)


if __name__ == "__main__":
    main()
