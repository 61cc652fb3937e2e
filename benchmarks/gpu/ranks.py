"""Training on one GPU and on several: GPT-2 (124 M, sequence 1,024, bf16, no dropout, AdamW, clipping), 4 and 16
samples a GPU, as it is, recorded, and recorded with gradients in bf16. usage: ranks.py [--ranks N] [--peer] [ROW…],
with MORTISE naming the binary.

Each row is one run on 1 GPU and one on N, once more with NCCL_P2P_DISABLE=1, where the GPUs exchange through the host's
memory, with [parallel.dp], both ways, and with the stages of [parallel.zero]. A figure is tokens a second of all ranks,
the median of the steady half's intervals of ten steps; the share is of N times one GPU. --peer: transformers' Trainer
under torchrun too, which needs PyTorch, transformers and accelerate in this Python. A row takes one to two minutes.
"""

import argparse
import itertools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from bench import BF16, GPT2, GRAPH, MORTISE, NARROW, REST

STEPS, SEQUENCE = 60, 1024
DP = "[parallel.dp]\n"
ZERO = "[parallel.zero]\nstage = {}\n"
ROWS = {f"batch {batch}{name}": (batch, tables) for batch in (4, 16)
        for name, tables in (("", BF16), (", recorded", BF16 + GRAPH),
                             (", bf16 gradients", NARROW + GRAPH))}


def mortise(batch, tables, ranks, **env):
    text = GPT2.format(batch=batch, steps=STEPS, samples=4 * batch * ranks, vocabulary=50304) + REST + tables
    return trained(text, ranks, **env)


def trained(manifest, ranks, **env):
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "run.toml").write_text(manifest)
        done = subprocess.run([MORTISE, "train", "run.toml", "--json", *(["--ranks", str(ranks)] if ranks > 1 else [])],
                              cwd=folder, capture_output=True, text=True, check=False, env={**os.environ, **env})
        if done.returncode:
            return {"error": (done.stderr.splitlines() or [f"exit {done.returncode}"])[0]}
        records = [json.loads(line) for line in done.stdout.splitlines()]
    due = [r for r in records if r["event"] == "step" and "tokens_per_s" in r]
    steady = due[len(due) // 2:-1]
    return {"tokens_per_s": statistics.median(r["tokens_per_s"] for r in steady),
            "mib": max(r["memory_peak_bytes"] for r in due) / 2**20,
            "rest_mib": max(r["memory_bytes"] for r in steady) / 2**20}


def peer(batch, ranks):
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": ",".join(map(str, range(ranks)))}
    done = subprocess.run([*launch, __file__, "--one-peer", str(batch)], capture_output=True, text=True, check=False,
                          env=env)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if done.returncode == 0 and lines else {"error": done.stderr[-300:]}


def train_peer(batch):
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    torch.manual_seed(0)
    ranks = int(os.environ["WORLD_SIZE"])
    net = transformers.GPT2LMHeadModel(transformers.GPT2Config(resid_pdrop=0, embd_pdrop=0, attn_pdrop=0))
    ids = torch.randint(100, 50257, (4 * batch * ranks, SEQUENCE))

    class Samples(torch.utils.data.Dataset):
        def __len__(self):
            return STEPS * batch * ranks

        def __getitem__(self, i):
            return {"input_ids": ids[i % len(ids)], "labels": ids[i % len(ids)]}

    class Clock(transformers.TrainerCallback):
        stamps = []

        def on_step_end(self, *_, **__):
            torch.cuda.synchronize()
            self.stamps.append(time.perf_counter())

    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            output_dir=folder, num_train_epochs=1, per_device_train_batch_size=batch, learning_rate=5e-5, bf16=True,
            optim="adamw_torch_fused", report_to="none", save_strategy="no", logging_strategy="no", disable_tqdm=True,
            dataloader_num_workers=4, ddp_find_unused_parameters=False)
        transformers.Trainer(model=net, args=arguments, train_dataset=Samples(), callbacks=[Clock()]).train()
    times = [b - a for a, b in zip(Clock.stamps, Clock.stamps[1:])]
    if os.environ["RANK"] == "0":
        median = statistics.median(times[len(times) // 2:])
        print(json.dumps({"tokens_per_s": ranks * batch * SEQUENCE / median,
                          "mib": torch.cuda.max_memory_allocated() / 2**20}), flush=True)


def told(name, one, several):
    """`several`: pairs of how many ranks and their result, told as they come."""
    for ranks, result in itertools.chain([(1, one)], several):
        what = f"{name}, {ranks} GPU{'s' if ranks > 1 else ''}"
        if "error" in result:
            print(f"{what:44} {result['error']}", flush=True)
            return
        share = f"  {100 * result['tokens_per_s'] / ranks / one['tokens_per_s']:.1f} %" if ranks > 1 else ""
        print(f"{what:44} {result['tokens_per_s']:>12,.0f} tok/s  {result['mib']:>8,.0f} MiB{share}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=", ".join(ROWS))
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--peer", action="store_true")
    parser.add_argument("--one-peer", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one_peer:
        train_peer(arguments.one_peer)
        return
    if unknown := [row for row in arguments.rows if row not in ROWS]:
        parser.error(f"there is no row {unknown[0]!r}")
    ranks = arguments.ranks
    for name, (batch, tables) in ROWS.items():
        if arguments.rows and name not in arguments.rows:
            continue
        one = mortise(batch, tables, 1)
        told(name, one, [(ranks, mortise(batch, tables, ranks))])
        told(f"{name}, without P2P", one, [(ranks, mortise(batch, tables, ranks, NCCL_P2P_DISABLE="1"))])
        told(f"{name}, dp", one, [(ranks, mortise(batch, tables + DP, ranks))])
        for stage in (1, 2, 3):
            told(f"{name}, zero {stage}", one, [(ranks, mortise(batch, tables + ZERO.format(stage), ranks))])
        told(f"{name}, dp without P2P", one, [(ranks, mortise(batch, tables + DP, ranks, NCCL_P2P_DISABLE="1"))])
    for batch in (4, 16) if arguments.peer else ():
        told(f"Trainer, batch {batch}", peer(batch, 1), [(ranks, peer(batch, ranks))])


if __name__ == "__main__":
    main()
