"""What more GPUs of one host give. usage: scaling.py [--ranks N] [SECTION…], with MORTISE naming the binary.

  curve    GPT-2 124M as in ranks.py, parallel.ddp, recorded, on 1, 2, 4, … N GPUs: tokens/s of all, and the share of
           as many times one GPU; batches of 4 and 16, gradients in fp32 and in bf16
  large    GPT-2 1.5B, batch 4, on one GPU and on N with parallel.ddp and each stage of parallel.zero, as it is and
           recorded, with the fullest rank's memory at rest beside what `mortise plan` says, without what is gathered
           for a while
  experts  a Llama with 8 experts as in experts.py, on one GPU and shared by N ranks; rows as there
  lost     a rank is killed, 0 and the last: how long the others take to end, what they say, and that half as many go on
"""

import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import experts
import ranks as several
from bench import BF16, GPT2, GRAPH, MORTISE, NARROW, REST
from traced import ROOT

sys.path.insert(0, str(ROOT / "tests/e2e"))
import e2e  # noqa: E402

LOST = """\
[run]
length = {length}
[data]
micro_batch_size = 2
sequence_length = 64
[data.random]
samples = 256
[step.accumulation]
global_batch_size = {batch}
[model.gpt]
layers = 2
heads = 2
width = 64
[optimizer.adamw]
[checkpoint]
every = 10
keep = 2
"""


def curve(ranks):
    for batch in (4, 16):
        for name, tables, ways in (("fp32", BF16 + GRAPH, ("",)),
                                   ("bf16", NARROW + GRAPH, ("", several.ZERO.format(2)))):
            one = several.mortise(batch, tables, 1)
            for way in ways:
                several.told(f"batch {batch}, {name} gradients" + ", zero 2" * bool(way), one,
                             ((n, several.mortise(batch, tables + way, n)) for n in (2, 4, 8, 16) if n <= ranks))


def planned(manifest, ranks):
    """Bytes of a rank at rest on its GPU."""
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "run.toml").write_text(manifest)
        said = subprocess.run([MORTISE, "plan", "run.toml", "--ranks", str(ranks), "--json"], cwd=folder, text=True,
                              capture_output=True, check=True)
    memory = json.loads(said.stdout)["memory"]
    return sum(memory[f"{part}_bytes"] for part in ("weights", "gradients", "optimizer", "casts", "workspaces"))


def large(ranks):
    model = GPT2.replace("gpt2_124m", "gpt2_1558m")
    text = model.format(batch=4, steps=30, samples=16 * ranks, vocabulary=50304) + REST + NARROW
    ways = (("one GPU", "", 1), ("ddp", "", ranks), *((f"zero {stage}", several.ZERO.format(stage), ranks)
                                                      for stage in (1, 2, 3)))
    for way, more, n in ((way + how, more + graph, n) for how, graph in (("", ""), (", graph", GRAPH))
                         for way, more, n in ways):
        result = several.trained(text + more, n)
        if "error" in result:
            print(f"1.5B, {way}: {result['error']}", flush=True)
            continue
        plan = planned(text + more, n) / 2**20
        print(f"1.5B, {way:14} {result['tokens_per_s']:>10,.0f} tok/s  peak {result['mib']:>7,.0f} MiB  at rest "
              f"{result['rest_mib']:>7,.0f}, planned {plan:>7,.0f}, {result['rest_mib'] / plan - 1:+.1%}", flush=True)


def of_experts(ranks):
    text = experts.LLAMA.format(steps=60, batch=experts.BATCH, sequence=experts.SEQUENCE, inner=2048,
                                samples=4 * experts.BATCH * ranks) + REST + BF16
    capacity = experts.MOE + "capacity_factor = 1.25\n"
    for name, layer, more in (("each", experts.MOE, ""), ("capacity", capacity, ""),
                              ("capacity, graph", capacity, GRAPH)):
        one, along = several.trained(text + layer + more, 1), f"expert_parallel = {ranks}\n"
        several.told(f"8 experts, {name}", one, [(ranks, several.trained(text + layer + along + more, ranks))])


def lost(ranks):
    for number in (0, ranks - 1):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "run.toml").write_text(LOST.format(length=1_000_000, batch=4 * ranks))
            run = subprocess.Popen([MORTISE, "train", "run.toml", "--ranks", str(ranks), "-q"], cwd=folder, text=True,
                                   stderr=subprocess.PIPE)
            while not list(pathlib.Path(folder).glob("runs/run/checkpoints/step-*")):
                if run.poll() is not None:
                    sys.exit(run.communicate()[1])
                time.sleep(0.1)
            os.kill(e2e.ranks_of(run.pid)[number], signal.SIGKILL)
            began = time.monotonic()
            said = run.communicate(timeout=60)[1]
            print(f"rank {number} of {ranks} killed: all have ended after {time.monotonic() - began:.1f} s, exit "
                  f"{run.returncode}", *said.splitlines(), sep="\n    ", flush=True)
            saved = max(int(p.name[5:]) for p in pathlib.Path(folder).glob("runs/run/checkpoints/step-*"))
            resumed = subprocess.run([MORTISE, "resume", "runs/run", "--ranks", str(ranks // 2), "-q", "--set",
                                      f"run.length={saved + 20}"], cwd=folder, capture_output=True, text=True,
                                     check=False)
            print(f"    from step {saved} on {ranks // 2}: exit {resumed.returncode} {resumed.stderr.strip()}",
                  flush=True)


SECTIONS = {"curve": curve, "large": large, "experts": of_experts, "lost": lost}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(SECTIONS))
    parser.add_argument("--ranks", type=int, default=4)
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.sections if name not in SECTIONS]:
        parser.error(f"there is no section {unknown[0]!r}")
    for name in arguments.sections or SECTIONS:
        SECTIONS[name](arguments.ranks)


if __name__ == "__main__":
    sys.exit(main())
