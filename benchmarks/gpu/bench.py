"""Training on one GPU by Mortise and by transformers' Trainer, each row in a fresh process. usage: bench.py [ROW…],
with MORTISE naming the binary; the peer needs PyTorch, transformers and accelerate in this Python.

GPT-2 (124 M, sequence 1,024, bf16, no dropout, AdamW, clipping at 1.0 here as there) at batches of 16, 4 and 1, and
BERT-large to classify (sequence 512, batch 4, dropout 0.1), in fp32 with attention.math too. Samples are random ids. A
figure is the median of the steady half of the run: here of intervals of ten steps as the records have them, there of
single steps with the device waited for after each. Memory is the allocator's peak. The ratio is to the peer's row of
the same model and batch.
"""

import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

# Absolute: it is used from another folder.
MORTISE = os.path.abspath(shutil.which(os.environ.get("MORTISE", "mortise")) or "mortise")
STEPS = 60
GPT2 = """\
[run]
length = {steps}
[data]
micro_batch_size = {batch}
sequence_length = 1024
[data.random]
samples = {samples}
high = 50257
[model.gpt]
preset = "gpt2_124m"
vocabulary = {vocabulary}
dropout = 0
"""
BERT = """\
[run]
length = {steps}
[data]
micro_batch_size = {batch}
sequence_length = 512
[data.random]
samples = {samples}
high = 30000
classes = 2
[model.bert]
preset = "bert_large"
task = "classification"
"""
REST = """\
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
"""
BF16, FP32, TF32, GRAPH = "[precision.bf16]\n", "[precision.fp32]\n", "[precision.tf32]\n", "[compile.cuda_graph]\n"
NARROW = BF16 + 'gradients = "bf16"\n'
# name: model, batch, what is on beside; None is the peer, with its arguments
ROWS = {
    **{f"gpt2 bf16 batch {batch}{name}": ("gpt2", batch, tables)
       for batch in (16, 4, 1)
       for name, tables in ((", Trainer", {"bf16": True}), ("", BF16), (", graph", BF16 + GRAPH))},
    **{f"bert-large {dtype} batch 4{name}": ("bert", 4, tables)
       for dtype, flags, own in (("bf16", {"bf16": True}, BF16), ("fp32", {"tf32": False}, FP32))
       for name, tables in ((", Trainer", flags), ("", own), (", graph", own + GRAPH))},
    **{f"bert-large fp32 batch 4, math{name}": ("bert", 4, FP32 + "[attention.math]\n" + own)
       for name, own in (("", ""), (", graph", GRAPH))},
    "bert-large tf32 batch 4, graph": ("bert", 4, TF32 + GRAPH),
}


def mortise(model, batch, tables):
    text = (GPT2 if model == "gpt2" else BERT).format(batch=batch, steps=STEPS, samples=4 * batch, vocabulary=50304)
    return measure(text + REST + tables)


def measure(manifest):
    """Medians of the steady half of a training, or why there are none."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "run.toml")
        path.write_text(manifest)
        done = subprocess.run([MORTISE, "train", path, "--json"], cwd=folder, capture_output=True, text=True,
                              check=False)
        if done.returncode:
            return {"error": done.stderr.splitlines()[0] if done.stderr else f"exit {done.returncode}"}
        records = [json.loads(line) for line in done.stdout.splitlines()]
    due = [r for r in records if r["event"] == "step" and "samples_per_s" in r]
    steady = due[len(due) // 2:-1]
    figures = ("samples_per_s", "flop_per_s", "mfu")
    median = {name: statistics.median(r.get(name, 0) for r in steady) for name in figures}
    return {**median, "mib": max(r["memory_peak_bytes"] for r in due) / 2**20}


def reached(result):
    if not result.get("mfu"):
        return ""
    return f"  {result['flop_per_s'] / 1e12:.1f} TFLOP/s, {100 * result['mfu']:.1f} % of the chip's"


def peer(model, batch, flags):
    done = subprocess.run([sys.executable, __file__, "--peer", model, str(batch), json.dumps(flags)],
                          capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    return json.loads(lines[-1]) if done.returncode == 0 and lines else {"error": done.stderr[-200:]}


def train_peer(model, batch, flags):
    """`flags` are Trainer's arguments, and `steps`."""
    import time

    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    torch.manual_seed(0)
    flags = dict(flags)
    steps, together = flags.pop("steps", STEPS), batch * flags.get("gradient_accumulation_steps", 1)
    length, high = (1024, 50257) if model == "gpt2" else (512, 30000)
    if model == "gpt2":
        config = transformers.GPT2Config(resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)
        net = transformers.GPT2LMHeadModel(config)
    else:
        config = transformers.BertConfig(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16,
                                         intermediate_size=4096, num_labels=2)
        net = transformers.BertForSequenceClassification(config)
    ids = torch.randint(100, high, (4 * batch, length))

    class Samples(torch.utils.data.Dataset):
        def __len__(self):
            return steps * together

        def __getitem__(self, i):
            x = ids[i % len(ids)]
            return {"input_ids": x, "labels": x if model == "gpt2" else torch.tensor(i % 2)}

    class Clock(transformers.TrainerCallback):
        stamps = []

        def on_step_end(self, *_, **__):
            torch.cuda.synchronize()
            self.stamps.append(time.perf_counter())

    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(**{
            "output_dir": folder, "num_train_epochs": 1, "per_device_train_batch_size": batch, "learning_rate": 5e-5,
            "optim": "adamw_torch_fused", "report_to": "none", "save_strategy": "no", "logging_strategy": "no",
            "disable_tqdm": True, "dataloader_num_workers": 4, **flags})
        transformers.Trainer(model=net, args=arguments, train_dataset=Samples(), callbacks=[Clock()]).train()
    times = [b - a for a, b in zip(Clock.stamps, Clock.stamps[1:])]
    free, total = torch.cuda.mem_get_info()
    print(json.dumps({"samples_per_s": together / statistics.median(times[len(times) // 2:]),
                      "mib": torch.cuda.max_memory_allocated() / 2**20, "gpu_mib": (total - free) / 2**20}))


def main():
    print(subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False).stdout.split(" (")[0])
    peers = {}
    for name, (model, batch, how) in ROWS.items():
        if sys.argv[1:] and not any(word in name for word in sys.argv[1:]):
            continue
        result = peer(model, batch, how) if isinstance(how, dict) else mortise(model, batch, how)
        if "error" in result:
            print(f"{name:36} {result['error']}", flush=True)
            continue
        beside = (model, batch, "bf16" in name)
        if isinstance(how, dict):
            peers[beside] = result
        tokens = result["samples_per_s"] * (1024 if model == "gpt2" else 512)
        ratio = f"{result['samples_per_s'] / peers[beside]['samples_per_s']:5.2f} x" if beside in peers else ""
        print(f"{name:36} {result['samples_per_s']:8.1f} samples/s {tokens:10,.0f} tok/s "
              f"{result['mib']:8,.0f} MiB {ratio}{reached(result)}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--peer"]:
        train_peer(sys.argv[2], int(sys.argv[3]), json.loads(sys.argv[4]))
    else:
        main()
