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

import collections
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/gpu"))
import cuda_trace  # noqa: E402

MORTISE = os.environ.get("MORTISE", "mortise")
TRACER = next((path for path in (pathlib.Path(os.environ.get("CUDA_TRACER", "")), ROOT / "tests/gpu/cupti/trace.so",
                                 ROOT / "build/fixtures/cupti/trace.so") if path.is_file()), None)
MANIFEST = """\
[run]
length = 40
[data]
micro_batch_size = 4
sequence_length = 512
[data.random]
samples = 16
high = 30000
classes = 2
[model.bert]
preset = "bert_large"
task = "classification"
[optimizer]
lr = 5e-5
[optimizer.adamw]
[gradient.clip]
norm = 1.0
[log]
every = 10
[checkpoint]
at_end = false
[device.cuda]
[precision.fp32]
[compile.cuda_graph]
"""
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


def table_of(steps):
    spent, times = collections.Counter(), collections.Counter()
    for work in (w for step in steps for w in step.work):
        spent[work.name] += work.end - work.start
        times[work.name] += 1
    for name, ns in spent.most_common(24):
        print(f"    {ns / 1e6 / len(steps):8.4f} ms {times[name] / len(steps):6.1f} x  {name[:150]}")


def row(attention, prints):
    with tempfile.TemporaryDirectory() as folder:
        path, trace = pathlib.Path(folder, "run.toml"), pathlib.Path(folder, "trace.txt")
        path.write_text(MANIFEST + attention)
        done = subprocess.run([MORTISE, "train", path, "--json"], cwd=folder, capture_output=True, text=True,
                              check=False,
                              env={**os.environ, "CUDA_INJECTION64_PATH": str(TRACER), "CUDA_TRACE": str(trace)})
        if done.returncode:
            return (done.stderr.splitlines() or [f"exit {done.returncode}"])[0]
        steps = cuda_trace.steady(cuda_trace.read(trace).steps())
    if prints:
        table_of(steps)
    records = [json.loads(line) for line in done.stdout.splitlines()]
    mib = max(record["memory_peak_bytes"] for record in records if record["event"] == "step") / 2**20
    figures = [(step.end - step.begin, step.busy(), *parts(step)) for step in steps]
    ms = [statistics.median(figure) / 1e6 for figure in zip(*figures)]
    return "{:8.2f} {:8.2f} {:8.2f} {:8.2f}".format(*ms) + f" {mib:8,.0f} MiB"


def main():
    if not TRACER:
        sys.exit("no trace.so, which counts by CUPTI: CUDA_TRACER=build/fixtures/cupti/trace.so")
    print(subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False).stdout.split(" (")[0])
    print(f"{'ms':8} {'step':>8} {'kernels':>8} {'rows':>8} {'products':>8}")
    for name in [name for name in ROWS if name in sys.argv[1:]] or list(ROWS):
        print(f"{name:8} {row(ROWS[name], '--trace' in sys.argv[1:])}", flush=True)


if __name__ == "__main__":
    main()
