"""Training with experts on one GPU beside a dense model of as many active parameters, each row in a fresh process.
usage: experts.py [ROW…]; MORTISE names the binary.

A Llama of 12 layers, width 768, sequence 1,024, batch 8, bf16, AdamW, clipping at 1.0. Each mlp is 8 experts of inner
size 2,048, of which a token takes 2; the dense model's mlp has the inner size 4,096, so a token is multiplied with as
many numbers, but for the routers. Rows:

  dense     no experts; its throughput is what `of dense` is a share of, eager of eager and recorded of recorded
  each      experts as they come: the host waits once a layer for how many tokens each expert got
  capacity  capacity_factor = 1.25: nothing waits, a quarter more rows are computed than there are choices
  grouped   products = "grouped": each product of all experts is one, nothing waits, weights are copied side by side
  …, graph  the step is recorded (compile.cuda_graph)

A figure is the median of the steady half of the run, of intervals of ten steps as the records have them; memory is the
allocator's peak.
"""

import subprocess
import sys

import bench

SEQUENCE, BATCH = 1024, 8
LLAMA = """\
[run]
length = {steps}
[data]
micro_batch_size = {batch}
sequence_length = {sequence}
[data.random]
samples = {samples}
high = 32000
[model.llama]
layers = 12
heads = 12
width = 768
inner = {inner}
vocabulary = 32000
context = {sequence}
"""
MOE = '[layer.moe]\nwhere = "*.mlp"\nexperts = 8\ntop_k = 2\n'
DENSE, EACH, CAPACITY = (4096, ""), (2048, MOE), (2048, MOE + "capacity_factor = 1.25\n")
GROUPED = (2048, MOE + 'products = "grouped"\n')
# name: inner size, tables, and the row that it is a share of
ROWS = {
    "dense": (*DENSE, "dense"),
    "each": (*EACH, "dense"),
    "capacity": (*CAPACITY, "dense"),
    "grouped": (*GROUPED, "dense"),
    "dense, graph": (DENSE[0], DENSE[1] + bench.GRAPH, "dense, graph"),
    "capacity, graph": (CAPACITY[0], CAPACITY[1] + bench.GRAPH, "dense, graph"),
    "grouped, graph": (GROUPED[0], GROUPED[1] + bench.GRAPH, "dense, graph"),
}


def main():
    print(subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False).stdout.split(" (")[0])
    rates, lines = {}, []
    for name, (inner, tables, beside) in ROWS.items():
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        text = LLAMA.format(steps=bench.STEPS, batch=BATCH, sequence=SEQUENCE, samples=4 * BATCH, inner=inner)
        result = bench.measure(text + bench.REST + bench.BF16 + tables)
        if "error" in result:
            print(f"{name}: {result['error']}", flush=True)
            continue
        rates[name] = result["samples_per_s"] * SEQUENCE
        share = f"{rates[name] / rates[beside]:.2f}" if beside in rates else ""
        lines.append(f"| {name} | {rates[name]:,.0f} | {share} | {result['mib']:,.0f} |")
        print(f"{name}: {rates[name]:,.0f} tokens/s{bench.reached(result)}", flush=True)
    print("\n| | tokens/s | of dense | MiB |\n|---|---|---|---|", *lines, sep="\n")


if __name__ == "__main__":
    main()
