"""The time of an optimizer's step on a GPU, clipping at 1.0 included: BERT-large, 335 M parameters and gradients in
fp32. usage: optimizers.py [--trace] [OPTIMIZER…]; MORTISE names the binary, CUDA_TRACER what counts (tests/gpu/cupti).
Beside it, in this Python where it has PyTorch: torch.optim's fused AdamW and SGD, transformers' Adafactor, AdamW8bit of
bitsandbytes if it is there, and AnyPrecisionAdamW as of torchdistx in plain operations.

Mortise's binary trains 40 steps of one sample of 16 tokens, and CUPTI says when each kernel ran. A step of the
optimizer begins with the first kernel of the gradients' norm and ends with the last one of the optimizer; the figures
are medians of the steady steps:

  recorded  from begin to end under compile.cuda_graph, where no kernel waits for the host
  eager     the same without: what the host takes to launch is in it
  kernels   the sum of the kernels' own times: what is left when nothing is between them

A peer's step is timed by events of CUDA around clip_grad_norm_ and step(), median of 30. `floor` is the time in which
this GPU copies as many bytes as the update must move, the norm's reading of the gradients included. --trace prints the
kernels of each row.
"""

import importlib.util
import json
import os
import statistics
import subprocess
import sys

import traced
from traced import ROOT, cuda_trace

MANIFEST = """\
[run]
length = 40
[data]
micro_batch_size = 1
sequence_length = 16
[data.random]
samples = 8
high = 30000
classes = 2
[model.bert]
preset = "bert_large"
vocabulary = 30522
task = "classification"
[optimizer]
lr = 1e-5
[optimizer.{optimizer}]
[gradient.clip]
norm = 1.0
[log]
every = 1000
[checkpoint]
at_end = false
[device.cuda]
"""
# Bytes a parameter: the norm reads the gradient (4), the update reads it again, reads and writes the weight and states.
# Embeddings, a tenth of this model, have fp32 states in 8-bit AdamW too; Adafactor reads gradients three times.
# name: bytes, what an H200 is to need at most (ms), the peers
OPTIMIZERS = {
    "adamw": (4 + 4 + 8 + 8 + 8, 3.2, ["torch AdamW fused", "torch AdamW foreach"]),
    "adafactor": (4 + 4 + 4 + 4 + 8, 4.0, ["transformers Adafactor", "torch Adafactor"]),
    "adamw_8bit": (4 + 4 + 8 + 2 + 2, 3.0, ["bitsandbytes AdamW8bit"]),
    "adamw_anyprecision": (4 + 4 + 8 + 8 + 4, 2.5, ["torchdistx AnyPrecisionAdamW"]),
    "sgd": (4 + 4 + 8, None, ["torch SGD fused"]),
}
NORM = ("LpNorm", "grad_norm", "norm_of", "norms")


def of_optimizer(step):
    """The work of one step from the norm to the optimizer's last kernel."""
    begin = next((i for i, work in enumerate(step.work) if any(word in work.name for word in NORM)), None)
    own = [i for i, work in enumerate(step.work)
           if begin is not None and i > begin and work.kind == "kernel" and "mortise::kernels" in work.name]
    if not own:
        names = sorted({work.name[:100] for work in step.work})
        sys.exit("no kernel of a norm, or none of the optimizer after it, in a step of\n  " + "\n  ".join(names))
    return step.work[begin:own[-1] + 1]


def span(work):
    return (max(w.end for w in work) - work[0].start) / 1e6


def busy(work):
    return cuda_trace.union(work, 0, 1 << 63) / 1e6


def mortise(optimizer, more, prints):
    """Medians of a steady step's span and kernels, ms; or why there are none."""
    steps, said = traced.train(MANIFEST.format(optimizer=optimizer) + more)
    if steps is None:
        return {"error": said}
    if prints:
        traced.print_kernels([of_optimizer(step) for step in steps], 12)
    return {"span": statistics.median(span(of_optimizer(s)) for s in steps),
            "busy": statistics.median(busy(of_optimizer(s)) for s in steps)}


# ---- the peers, in a process of their own ----


def has(module):
    return importlib.util.find_spec(module) is not None


def peers_there():
    """Rows of this Python's peers: name -> ms, or why there is none; and the bandwidth of a copy, TB/s."""
    if not has("torch"):
        return {}, None
    done = subprocess.run([sys.executable, __file__, "--peers"], capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"the peers ended: {done.stderr.strip().splitlines()[-1:]}")
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    bandwidth = next((row["tb_s"] for row in rows if "tb_s" in row), None)
    return {row["name"]: row.get("ms", row.get("why")) for row in rows if "name" in row}, bandwidth


def measure_peers():
    import torch

    sys.path.insert(0, str(ROOT / "tests/parity"))
    from anyprecision import AnyPrecisionAdamW

    os.environ["HF_HUB_OFFLINE"] = "1"
    sizes = bert_large() if not has("transformers") else bert_of_transformers()
    parameters = [torch.nn.Parameter(torch.randn(size, device="cuda") * 0.02) for size in sizes]

    def elapsed(run):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        torch.cuda.synchronize()
        return begin.elapsed_time(end)

    def row(name, make):
        try:
            for p in parameters:
                p.grad = torch.randn_like(p) * 1e-3
            optimizer = make()

            def step():
                torch.nn.utils.clip_grad_norm_(parameters, 1.0)
                optimizer.step()

            for _ in range(5):
                step()
            torch.cuda.synchronize()
            print(json.dumps({"name": name, "ms": statistics.median(elapsed(step) for _ in range(30))}), flush=True)
        except Exception as e:  # one peer that fails leaves the others
            print(json.dumps({"name": name, "why": f"{type(e).__name__}: {e}".splitlines()[0][:90]}), flush=True)

    source, target = (torch.empty(1 << 30, device="cuda") for _ in range(2))
    copies = [elapsed(lambda: target.copy_(source)) for _ in range(12)]
    print(json.dumps({"tb_s": 8 * (1 << 30) / (statistics.median(copies[2:]) * 1e-3) / 1e12}), flush=True)
    del source, target
    row("torch AdamW fused", lambda: torch.optim.AdamW(parameters, 1e-5, fused=True))
    row("torch AdamW foreach", lambda: torch.optim.AdamW(parameters, 1e-5, foreach=True))
    row("torch SGD fused", lambda: torch.optim.SGD(parameters, 1e-5, fused=True))
    row("torch Adafactor", lambda: torch.optim.Adafactor(parameters, lr=1e-5))
    if has("transformers"):
        from transformers.optimization import Adafactor

        row("transformers Adafactor",
            lambda: Adafactor(parameters, lr=1e-5, scale_parameter=False, relative_step=False))
    row("torchdistx AnyPrecisionAdamW",
        lambda: AnyPrecisionAdamW([{"params": parameters, "weight_decay": 0.01}], 1e-5))
    if has("bitsandbytes"):
        import bitsandbytes

        row("bitsandbytes AdamW8bit", lambda: bitsandbytes.optim.AdamW8bit(parameters, 1e-5))


def bert_of_transformers():
    import torch
    import transformers

    config = transformers.BertConfig(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16,
                                     intermediate_size=4096)
    with torch.device("meta"):
        return [p.shape for p in transformers.BertForSequenceClassification(config).parameters()]


def bert_large():
    """The same sizes, where there is no transformers."""
    norm = [(1024,), (1024,)]
    block = 4 * [(1024, 1024), (1024,)] + norm + [(4096, 1024), (4096,), (1024, 4096), (1024,)] + norm
    embeddings = [(30522, 1024), (512, 1024), (2, 1024)] + norm
    return embeddings + 24 * block + [(1024, 1024), (1024,), (2, 1024), (2,)]


def main():
    names = [name for name in OPTIMIZERS if name in sys.argv[1:]] or list(OPTIMIZERS)
    prints = "--trace" in sys.argv[1:]
    traced.begin()
    peers, bandwidth = peers_there()
    print(f"parameters {sum(count(size) for size in bert_large()):,}; a copy moves " +
          (f"{bandwidth:.2f} TB/s" if bandwidth else "nobody knows how much: no PyTorch here"))
    rows = []
    for name in names:
        size, aim, beside = OPTIMIZERS[name]
        recorded, eager = (mortise(name, more, prints and more) for more in ("[compile.cuda_graph]\n", ""))
        if wrong := recorded.get("error") or eager.get("error"):
            print(f"{name}: {wrong}", flush=True)
            continue
        floor = size * sum(count(s) for s in bert_large()) / bandwidth / 1e9 if bandwidth else None
        ms = recorded["span"]
        rows.append([name, f"{ms:.2f}", f"{eager['span']:.2f}", f"{recorded['busy']:.2f}",
                     f"{floor:.2f}" if floor else "", f"{aim} {'ok' if ms <= aim else 'MISSED'}" if aim else "",
                     "; ".join(f"{peer} " + (f"{peers[peer]:.2f}, {peers[peer] / ms:.2f} x"
                                             if isinstance(peers.get(peer), float) else str(peers.get(peer, "absent")))
                               for peer in beside)])
        print(f"{name}: recorded {rows[-1][1]} ms, eager {rows[-1][2]}", flush=True)
    print("\n| optimizer | recorded, ms | eager | kernels | floor | aim | beside it, ms, over `recorded` |\n"
          "|---|---|---|---|---|---|---|")
    for row in rows:
        print("| " + " | ".join(row) + " |")


def count(size):
    n = 1
    for length in size:
        n *= length
    return n


if __name__ == "__main__":
    if sys.argv[1:] == ["--peers"]:
        measure_peers()
    else:
        main()
