"""A GPT trained for 100 steps by Mortise and by transformers' GPT2LMHeadModel with torch.optim.AdamW: same weights,
same batches, dropout 0.

fp32: the loss of every step within 1e-5 relative. Both sides do the same sums in another order; over 100 AdamW steps
that perturbation was measured to grow to 2.5e-7 relative, so 1e-5 leaves a factor of forty and is far below any mistake
(a wrong decay group moves the loss by 1e-3).

bf16: Mortise's policy against torch's CPU autocast. They differ by design: autocast gives its norms and softmax in bf16
on the CPU, Mortise in fp32. One bf16 rounding is 2^-9 = 2e-3 relative; the loss is a mean over 1,024 tokens of a sum
over some twenty roundings in sequence (4 blocks x 5), which are independent, so its error is about sqrt(20) * 2e-3 /
sqrt(1024) of a nat's spread (1 nat) = 2.8e-4 at the first step; weights then part, each step adding as much. The bound
is 2e-2 relative over 100 steps, and the first step must agree within 2e-3.

fp16: the same against torch's CPU autocast with GradScaler. One fp16 rounding is 2^-11, an eighth as much, and so are
the bounds. The factor of the loss must be GradScaler's after every step, exactly: while it grows, and while it falls
from 2^40. Two to the 40 over the 1,024 tokens of the mean is 2^30 a logit; fp16 ends at 2^16, so the first twelve steps
overflow whatever the weights are, and only these are compared.
"""

import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel

MORTISE = os.environ["MORTISE"]
LAYERS, HEADS, WIDTH, LENGTH, BATCH, STEPS, LR = 4, 4, 128, 128, 8, 100, 1e-3
ROOT = pathlib.Path(__file__).resolve().parents[2]

MANIFEST = """
[run]
length = {steps}
dir = "{dir}"
[log]
every = 1
[data]
micro_batch_size = {batch}
sequence_length = {length}
shuffle = false
[data.text]
path = "{text}"
[tokenizer.byte]
[model.gpt]
layers = {layers}
heads = {heads}
width = {width}
context = {length}
[optimizer]
lr = {lr}
[optimizer.adamw]
{more}
"""


def train(folder, name, text, steps, lr, more=""):
    run = folder / name
    manifest = folder / (name + ".toml")
    manifest.write_text(
        MANIFEST.format(
            steps=steps,
            dir=run,
            batch=BATCH,
            length=LENGTH,
            text=text,
            layers=LAYERS,
            heads=HEADS,
            width=WIDTH,
            lr=lr,
            more=more,
        )
    )
    subprocess.run([MORTISE, "train", str(manifest), "--without", "log.console"], check=True)
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return run, [r for r in records if r["event"] == "step"]


def read_safetensors(path):
    data = path.read_bytes()
    (n,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + n])
    body = bytearray(data[8 + n:])
    kinds = {"F32": torch.float32, "F64": torch.float64, "BF16": torch.bfloat16}
    return {
        name: torch.frombuffer(
            body,
            dtype=kinds[e["dtype"]],
            count=(e["data_offsets"][1] - e["data_offsets"][0]) // kinds[e["dtype"]].itemsize,
            offset=e["data_offsets"][0],
        )
        .reshape(e["shape"])
        .clone()
        for name, e in header.items()
        if name != "__metadata__"
    }


def reference(weights, text, dtype=None, scaler=None):
    """The losses, and the factor of the loss after each step."""
    scaler = scaler or torch.amp.GradScaler("cpu", enabled=False)
    config = GPT2Config(
        vocab_size=256,
        n_positions=LENGTH,
        n_embd=WIDTH,
        n_layer=LAYERS,
        n_head=HEADS,
        resid_pdrop=0,
        embd_pdrop=0,
        attn_pdrop=0,
    )
    model = GPT2LMHeadModel(config)
    missing, unexpected = model.transformer.load_state_dict(weights, strict=False)
    assert not unexpected and all("attn.bias" in m for m in missing), (missing, unexpected)
    model.tie_weights()
    model.train()
    # The groups of default.toml: no decay on biases and norms.
    decayed = [p for p in model.parameters() if p.dim() > 1]
    plain = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}], lr=LR
    )
    tokens = torch.tensor(list(text), dtype=torch.long)
    losses, scales = [], []
    for step in range(STEPS):
        first = step * BATCH * LENGTH
        x = tokens[first:first + BATCH * LENGTH].view(BATCH, LENGTH)
        y = tokens[first + 1:first + BATCH * LENGTH + 1].view(BATCH, LENGTH)
        with torch.autocast("cpu", dtype=dtype or torch.bfloat16, enabled=dtype is not None):
            logits = model(input_ids=x).logits
            loss = torch.nn.functional.cross_entropy(logits.view(-1, 256), y.reshape(-1))
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
        scales.append(scaler.get_scale())
    return losses, scales


def compare(name, records, theirs, bound, first_bound):
    ours = [r["loss"] for r in records]
    worst = max(abs(a - b) / abs(b) for a, b in zip(ours, theirs))
    first = abs(ours[0] - theirs[0]) / abs(theirs[0])
    ok = worst <= bound and first <= first_bound and len(ours) == len(theirs) == STEPS
    print(
        f"{name}: loss {ours[0]:.6f} -> {ours[-1]:.6f}, transformers {theirs[0]:.6f} -> {theirs[-1]:.6f}; "
        f"worst of {STEPS} steps {worst:.1e} (bound {bound:.0e}), first {first:.1e} (bound {first_bound:.0e})  "
        f"{'ok' if ok else 'FAIL'}",
        flush=True,
    )
    return ok


def scaler(initial, interval):
    return torch.amp.GradScaler("cpu", init_scale=initial, growth_interval=interval)


def compare_scales(name, records, theirs, steps):
    ours = [r["scale"] for r in records]
    ok = len(ours) >= steps and ours[:steps] == theirs[:steps]
    print(f"{name}: {ours[0]:.0f} -> {ours[steps - 1]:.0f} over {steps} steps, GradScaler {theirs[0]:.0f} -> "
          f"{theirs[steps - 1]:.0f}, {'equal  ok' if ok else 'FAIL'}", flush=True)
    return ok


def main():
    torch.set_num_threads(max(1, os.cpu_count() or 1))
    text = b"".join(p.read_bytes() for p in sorted((ROOT / "core").rglob("*.cpp")))[:STEPS * BATCH * LENGTH + 1]
    assert len(text) == STEPS * BATCH * LENGTH + 1
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        file = folder / "text.txt"
        file.write_bytes(text)
        start, _ = train(folder, "start", file, 1, 0.0, "[parameters.still]\nwhere = \"*\"\nweight_decay = 0.0")
        weights = read_safetensors(start / "checkpoints/latest/model/model.safetensors")
        _, fp32 = train(folder, "fp32", file, STEPS, LR)
        _, bf16 = train(folder, "bf16", file, STEPS, LR, "[precision.bf16]")
        results = [
            compare("fp32", fp32, reference(weights, text)[0], 1e-5, 1e-6),
            compare("bf16", bf16, reference(weights, text, torch.bfloat16)[0], 2e-2, 2e-3),
        ]
        _, grows = train(folder, "fp16", file, STEPS, LR, "[precision.fp16]\ninitial = 1024.0\ninterval = 20")
        losses, scales = reference(weights, text, torch.float16, scaler(2.0**10, 20))
        results += [
            compare("fp16", grows, losses, 2.5e-3, 2.5e-4),
            compare_scales("fp16, a factor that grows", grows, scales, STEPS),
        ]
        _, falls = train(folder, "overflow", file, 1, LR, f"[precision.fp16]\ninitial = {2.0**40}")
        _, scales = reference(weights, text, torch.float16, scaler(2.0**40, 2000))
        results.append(compare_scales("fp16, a factor that falls", falls, scales, 12))
    passed = sum(results)
    print(f"{passed} passed, {len(results) - passed} failed")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
