"""The guides' table (configs/bench/guides.toml) and transformers' Trainer on the same work, row by row, each in a fresh
process. usage: guides.py [STEPS [ROW…]], with MORTISE naming the binary; 128 steps are the guides' epoch. Named rows
are those that Trainer trains too; here all are measured, as one matrix.

BERT-large in fp32 or fp16 to classify 512 tokens, dropout 0.1, AdamW at 5e-5 with clipping at 1.0 on both sides, four
samples a step, true fp32 (tf32 off). `steady` is the median of single steps on the peer's side, with the device waited
for after each, and the rate without the first two steps here. MiB: the most that the allocator held, and what NVML or
the driver says of the whole GPU at the end."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import bench

ROOT = pathlib.Path(__file__).resolve().parents[2]  # of the tree, or of a folder of `make gpu-folder`
MATRIX = next(path for path in (ROOT / "configs/bench/guides.toml", ROOT / "share/mortise/bench/guides.toml")
              if path.is_file())
ACCUMULATED = {"gradient_accumulation_steps": 4}
CHECKPOINTED = {**ACCUMULATED, "gradient_checkpointing": True}
# The matrix's rows: batch, arguments of Trainer.
PEERS = {
    "vanilla": (4, {}),
    "accumulation": (1, ACCUMULATED),
    "+ checkpointing": (1, CHECKPOINTED),
    "fp16": (4, {"fp16": True}),
    "all": (1, {**CHECKPOINTED, "fp16": True}),
    "Adafactor": (4, {"optim": "adafactor"}),
    "all, Adafactor": (1, {**CHECKPOINTED, "fp16": True, "optim": "adafactor"}),
    "8-bit Adam": (4, {"optim": "adamw_bnb_8bit"}),
    "all, 8-bit Adam": (1, {**CHECKPOINTED, "fp16": True, "optim": "adamw_bnb_8bit"}),
    "own loop": (1, {**ACCUMULATED, "fp16": True, "optim": "adamw_bnb_8bit"}),
}


def mortise(steps, folder, *more):
    """{row: result}"""
    out = pathlib.Path(folder, "-".join(("out", *more)).replace(".", "_"))
    subprocess.run([os.environ.get("MORTISE", "mortise"), "bench", MATRIX, "--steps", str(steps), "-o", out,
                    "--use", "device.cuda", "--use", "metric.gpu", *more], stdout=subprocess.DEVNULL, check=False)
    return {row["name"]: row for row in json.loads((out / "results.json").read_text())["rows"]}


def main():
    steps = int(sys.argv[1]) if sys.argv[1:] else 128
    with tempfile.TemporaryDirectory() as folder:
        eager = mortise(steps, folder)
        graph = mortise(steps, folder, "--use", "compile.cuda_graph")
    print(subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False).stdout.split(" (")[0])
    print("| row | Trainer: steady, MiB, GPU MiB | here | ratios | as a graph | ratio |\n|---|---|---|---|---|---|")
    for name, (batch, flags) in PEERS.items():
        if sys.argv[2:] and name not in sys.argv[2:]:
            continue
        there = bench.peer("bert", batch, {"tf32": False, "steps": steps, **flags})
        print(f"| {name} | {peer_text(there)} | {text(eager[name])} | {ratios(eager[name], there)} | "
              f"{text(graph[name])} | {ratios(graph[name], there)} |", flush=True)


def text(row):
    if row["state"] != "measured":
        return row["error"]
    return f"{row['steady_samples_per_s']:.1f}, {mib(row['memory_peak_bytes'])}, {mib(row['nvml_peak_bytes'])}"


def mib(n):
    return f"{n / 2**20:,.0f}" if n else "?"


def peer_text(row):
    if "error" in row:
        return (row["error"].strip().splitlines() or ["no result"])[-1][:100]
    return f"{row['samples_per_s']:.1f}, {row['mib']:,.0f}, {row['gpu_mib']:,.0f}"


def ratios(row, there):
    if row["state"] != "measured" or "error" in there:
        return ""
    speed = row["steady_samples_per_s"] / there["samples_per_s"]
    memory = [f"{n / 2**20 / m:.2f}" for n, m in ((row["memory_peak_bytes"], there["mib"]),
                                                  (row["nvml_peak_bytes"], there["gpu_mib"])) if n]
    return ", ".join([f"{speed:.2f} ×", *memory])


if __name__ == "__main__":
    main()
