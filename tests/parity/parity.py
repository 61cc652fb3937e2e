"""A GPT trained for 100 steps by Mortise and by transformers' GPT2LMHeadModel with torch.optim.AdamW and others: same
weights, same batches, dropout 0.

fp32: the loss of the first step within 1e-6 relative, of every step within 1e-5. Both sides do the same sums in another
order, and 100 steps of AdamW make such a difference grow: transformers' own training, from weights changed in their
last bit (four seeds and four texts), moves by 1.6e-7 to 5.7e-7 of the loss; ours was 1.6e-7 and 2.6e-7 apart. 1e-5 is
17 times the first and a hundredth of a mistake (a wrong decay group moves the loss by 1e-3). That is at a rate of 3e-4:
at 1e-3, without warm-up, the same training moves by 2e-5 to 2e-1, as the text has it, and shows nothing.

bf16: Mortise's policy against torch's CPU autocast. They differ by design: autocast gives its norms and softmax in bf16
on the CPU, Mortise in fp32. One bf16 rounding is 2^-9 = 2e-3 relative; the loss is a mean over 1,024 tokens of a sum
over some twenty roundings in sequence (4 blocks x 5), which are independent, so its error is about sqrt(20) * 2e-3 /
sqrt(1024) of a nat's spread (1 nat) = 2.8e-4, at the first step and, of other roundings, at each. Weights part too:
the reference's own loss, from weights changed in their last bit, moves by 1.0e-4. Ours was 1.8e-4 and 3.9e-4 apart,
2.8e-6 and 5.3e-5 at the first step; the bounds are 2e-3 and 3e-4.

fp16: the same against torch's CPU autocast with GradScaler. One fp16 rounding is 2^-11, an eighth as much, and so are
the bounds. The factor of the loss must be GradScaler's after every step, exactly: while it grows, and while it falls
from 2^40. Two to the 40 over the 1,024 tokens of the mean is 2^30 a logit; fp16 ends at 2^16, so the first twelve
steps overflow whatever the weights are, and only these are compared.

Adafactor in fp32, as transformers' own and with the paper's rates: the bounds of fp32. Its own at a rate of 1e-4, where
each element moves by about that much a step: the reference's own loss moves by 2.8e-6.

Any-precision AdamW over fp32 weights has a variance in bf16: a gradient that differs in its last bits now and then
turns a rounding of 2^-9 round. One element's step is then 2^-10 of the rate larger: the reference's own loss moves by
up to 3.8e-6, ours was 2.9e-6 apart. The bound is 3e-5.

Muon beside AdamW: torch.optim.Muon, with its rates and each of queries, keys and values by itself. With its iterations
in fp32 (torch's function, written in fp32) the bounds are those of fp32; torch's own are in bf16. Gradients whose last
bits differ then turn roundings of 2^-9 round, which the iterations make up to 1e-2 of an update; the loss falls by 3
over the 100 steps, so updates that are off by that much, all in one direction, move it by 3e-2 of 2.4, or 1.3e-2. The
reference's own loss moves by 1.1e-2; ours was 3.8e-3 apart. The bound is 2e-2.

ema: the mean is of the masters of each step, which both sides are given: torch's own AveragedModel over them, bit for
bit.

adamw_8bit: a mean that lies on the border of two values of the map takes another one on each side once sums differ in
their last bit, so after some steps the roundings of the two runs have little to do with each other. A rounding is off
by at most half a distance, of 1/64 to 1/7 of the mean: by 2e-2 of it, say. Over 100 steps at 3e-4 that puts an element
sqrt(100) * 6e-6 = 6e-5 aside in a random direction. The algorithm's own loss, from weights changed in their last bit,
moves by up to 1.0e-5; ours was 1.0e-5 and 1.8e-5 apart. The bound is 1e-4, and states are compared too: after 5 steps
less than 1 % of the indices may differ. Sums that differ by 1e-6, in values 1/64 to 1/7 apart, make it up to 1e-4 a
step; measured 2e-4 in all. Another map, block or rounding changes most.

On a GPU (PARITY_DEVICE=cuda) both sides compute there, torch's own attention beside attention.auto, and the bounds are
the same. bitsandbytes' AdamW8bit, whose kernels are for GPUs, is a row of its own where it is installed. An infinite
gradient is put into chosen steps on both sides, so that the factor of the loss falls and grows in a known order.

half: a model cast whole to bf16, with Kahan summation. Every activation has the rounding of bf16 on both sides, in
other places, and so have values that are read: twice the bounds of bf16.
"""

import importlib.util
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

import rows
import torch
from adamw8bit import AdamW8bit
from anyprecision import AnyPrecisionAdamW
from muon import MuonBesideAdamW, in_fp32
from plugins import build
from rows import DEVICE
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from transformers import Adafactor, GPT2Config, GPT2LMHeadModel

MORTISE = os.environ["MORTISE"]
LAYERS, HEADS, WIDTH, LENGTH, BATCH, STEPS, LR = 4, 4, 128, 128, 8, 100, 3e-4
INFINITE = 3, 4, 11, 17, 18, 19, 41  # steps whose gradients overflow, on both sides

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
weight_decay = 0.01
{more}
""" + rows.ON_DEVICE


def train(folder, name, text, steps, lr, more="[optimizer.adamw]", flags=()):
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
    subprocess.run([MORTISE, "train", str(manifest), "--without", "log.console", *flags], check=True)
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return run, [r for r in records if r["event"] == "step"]


def read_safetensors(path):
    data = path.read_bytes()
    (n,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + n])
    body = bytearray(data[8 + n:])
    kinds = {"F32": torch.float32, "F64": torch.float64, "BF16": torch.bfloat16, "U8": torch.uint8}
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


def adamw(groups):
    return torch.optim.AdamW(groups, lr=LR)


def adafactor(groups):
    return Adafactor(groups, lr=1e-4, scale_parameter=False, relative_step=False)


def adafactor_of_the_paper(groups):
    return Adafactor(groups)


def any_precision(groups):
    return AnyPrecisionAdamW(groups, LR)


def any_precision_in_bf16(groups):
    return AnyPrecisionAdamW(groups, LR, momentum_dtype=torch.bfloat16, kahan_summation=True)


def adamw_8bit(groups):
    return AdamW8bit(groups, LR, wide=groups[0]["params"][:2])  # wte, which is the head too, and wpe


def of_bitsandbytes(groups):
    """With 32-bit states for embeddings, as Trainer has them."""
    import bitsandbytes

    manager = bitsandbytes.optim.GlobalOptimManager.get_instance()
    manager.initialize()
    manager.override_config(groups[0]["params"][:2], "optim_bits", 32)
    manager.register_parameters(groups)
    return bitsandbytes.optim.AdamW8bit(groups, lr=LR)


def muon(groups):
    return MuonBesideAdamW(groups, LR, 0.02, "original")


def muon_in_fp32(groups):
    return MuonBesideAdamW(groups, LR, LR, "match_rms_adamw", orthogonal=in_fp32)


def reference(weights, text, optimizer_of=adamw, autocast=None, dtype=torch.float32, scaler=None, steps=STEPS,
              infinite=()):
    """The losses, and the factor of the loss after each step. `infinite`: steps whose gradient overflows."""
    scaler = scaler or torch.amp.GradScaler(DEVICE, enabled=False)
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
    model.to(DEVICE, dtype).train()
    # The groups of default.toml: no decay on biases and norms.
    decayed = [p for p in model.parameters() if p.dim() > 1]
    plain = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = optimizer_of([{"params": decayed, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}])
    tokens = torch.tensor(list(text), dtype=torch.long, device=DEVICE)
    losses, scales = [], []
    for step in range(steps):
        first = step * BATCH * LENGTH
        x = tokens[first:first + BATCH * LENGTH].view(BATCH, LENGTH)
        y = tokens[first + 1:first + BATCH * LENGTH + 1].view(BATCH, LENGTH)
        with torch.autocast(DEVICE, dtype=autocast or torch.bfloat16, enabled=autocast is not None):
            logits = model(input_ids=x).logits
            if autocast is None:
                logits = logits.float()  # as transformers' own loss
            loss = torch.nn.functional.cross_entropy(logits.view(-1, 256), y.reshape(-1))
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        if step in infinite:
            decayed[0].grad.fill_(float("inf"))
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
        scales.append(scaler.get_scale())
    return losses, scales


def compare(name, peer, records, theirs, bound, first_bound):
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
    figure = f"worst of {STEPS} steps {worst:.1e}, first {first:.1e}"
    return rows.note(peer, f"losses, {name}", figure, f"{bound:.0e}, first {first_bound:.0e}", ok)


def scaler(initial, interval):
    return torch.amp.GradScaler(DEVICE, init_scale=initial, growth_interval=interval)


def compare_scales(name, records, theirs, steps):
    ours = [r["scale"] for r in records]
    ok = len(ours) >= steps and ours[:steps] == theirs[:steps]
    print(f"{name}: {ours[0]:.0f} -> {ours[steps - 1]:.0f} over {steps} steps, GradScaler {theirs[0]:.0f} -> "
          f"{theirs[steps - 1]:.0f}, {'equal  ok' if ok else 'FAIL'}", flush=True)
    return rows.note("torch GradScaler", name, f"{ours[0]:.0f} -> {ours[steps - 1]:.0f} in {steps} steps", "equal", ok)


def compare_mean(folder, text):
    """The mean of the weights of ten steps, against torch's of the same weights."""
    tables = "[optimizer.adamw]\n[checkpoint]\nevery = 1\nkeep = 99\n[ema.weights]\ndecay = 0.9\n"
    run, _ = train(folder, "ema", text, 10, LR, tables)
    steps = [read_safetensors(run / f"checkpoints/step-{n}/model/model.safetensors") for n in range(1, 11)]
    model = torch.nn.ParameterList([torch.nn.Parameter(t) for t in steps[0].values()])
    mean = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    for weights in steps:
        with torch.no_grad():
            for parameter, value in zip(model, weights.values()):
                parameter.copy_(value)
        mean.update_parameters(model)
    ours = read_safetensors(run / "checkpoints/latest/plugins/ema.weights.rank-0.safetensors")
    equal = sum(torch.equal(ours[f"{name}/mean"], t) for name, t in zip(steps[0], mean.module))
    ok = equal == len(ours) == len(steps[0])
    print(f"ema: {equal} of {len(steps[0])} tensors equal torch's to the last bit  {'ok' if ok else 'FAIL'}",
          flush=True)
    return rows.note("torch AveragedModel", "ema.weights", f"{equal} of {len(steps[0])} tensors equal", "bit for bit",
                     ok)


def compare_8bit_states(folder, file, text, weights, of=adamw_8bit, named=("m", "v"), peer="bitsandbytes' algorithm",
                        steps=5):
    """Indices of every parameter that has 8-bit states, after some steps."""
    kept = []
    reference(weights, text, lambda groups: kept.append(of(groups)) or kept[0], steps=steps)
    theirs = kept[0].param_groups[0]["params"][2:]  # without wte and wpe
    parts = "attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"
    names = [f"h.{layer}.{part}.weight" for layer in range(LAYERS) for part in parts]
    run, _ = train(folder, f"adamw_8bit_{named[0]}", file, steps, LR, "[optimizer.adamw_8bit]")
    ours = read_safetensors(run / "checkpoints/latest/optimizer/rank-0.safetensors")
    count = differ = 0
    for name, p in zip(names, theirs):
        for own, other in zip(("exp_avg", "exp_avg_sq"), named):
            index = ours[f"{name}/{own}"].view(-1).long()
            differ += (index != kept[0].state[p][other].view(-1)[:p.numel()].cpu()).sum().item()
            count += p.numel()
    narrow = sum(name.endswith("_sq") and t.dtype == torch.uint8 for name, t in ours.items())
    ok = len(names) == len(theirs) == narrow and differ < 0.01 * count
    print(f"adamw_8bit: after {steps} steps {differ} of {count} indices of {narrow} matrices differ from {peer} "
          f"(bound 1 %)  {'ok' if ok else 'FAIL'}", flush=True)
    return rows.note(peer, f"8-bit states after {steps} steps",
                     f"{differ} of {count} indices differ", "1 %", ok)


def compare_injected(folder, file, text, weights):
    """Factors of the loss while gradients overflow in chosen steps: halved after each, doubled after five without."""
    build(folder / "plugins", "overflow")
    steps = 60
    tables = (f"[optimizer.adamw]\n[precision.fp16]\ninitial = 1024.0\ninterval = 5\n"
              f"[test.overflow]\nsteps = [{', '.join(f'{n}.0' for n in INFINITE)}]")
    _, ours = train(folder, "injected", file, steps - len(INFINITE), LR, tables,
                    ["--plugin-path", folder / "plugins"])
    _, theirs = reference(weights, text, autocast=torch.float16, scaler=scaler(1024.0, 5), steps=steps,
                          infinite=INFINITE)
    skipped = tuple(n for n, record in enumerate(ours) if record["skipped"])
    ok = compare_scales("fp16, with overflows in chosen steps", ours, theirs, steps)
    print(f"fp16, with overflows: steps {skipped} are skipped  {'ok' if skipped == INFINITE else 'FAIL'}", flush=True)
    return ok and rows.note("torch GradScaler", "steps that are skipped", f"{len(skipped)} of {steps}",
                            f"the {len(INFINITE)} chosen", skipped == INFINITE)


def main():
    torch.set_num_threads(max(1, os.cpu_count() or 1))
    text = rows.text(STEPS * BATCH * LENGTH + 1)
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        file = folder / "text.txt"
        file.write_bytes(text)
        still = "[optimizer.adamw]\n[parameters.still]\nwhere = \"*\"\nweight_decay = 0.0"
        start, _ = train(folder, "start", file, 1, 0.0, still)
        weights = read_safetensors(start / "checkpoints/latest/model/model.safetensors")
        any_bf16 = "[optimizer.adamw_anyprecision]\nmomentum_dtype = \"bf16\"\nkahan_summation = true\n"
        paper = "[optimizer.adafactor]\nscale_parameter = true\nrelative_step = true"
        beside = "[optimizer.muon]\nwhere = \"role:matrix\"\n"
        cases = [
            ("fp32", "[optimizer.adamw]", LR, {}, 1e-5, 1e-6),
            ("bf16", "[optimizer.adamw]\n[precision.bf16]", LR, {"autocast": torch.bfloat16}, 2e-3, 3e-4),
            ("fp16", "[optimizer.adamw]\n[precision.fp16]\ninitial = 1024.0\ninterval = 20", LR,
             {"autocast": torch.float16, "scaler": scaler(2.0**10, 20)}, 2.5e-4, 4e-5),
            ("adafactor", "[optimizer.adafactor]", 1e-4, {"optimizer_of": adafactor}, 1e-5, 1e-6),
            ("adafactor_of_the_paper", paper, 1.0, {"optimizer_of": adafactor_of_the_paper}, 1e-5, 1e-6),
            ("anyprecision", "[optimizer.adamw_anyprecision]", LR, {"optimizer_of": any_precision}, 3e-5, 1e-6),
            ("adamw_8bit", "[optimizer.adamw_8bit]", LR, {"optimizer_of": adamw_8bit}, 1e-4, 1e-6),
            ("half", any_bf16 + "[precision.half]", LR,
             {"optimizer_of": any_precision_in_bf16, "dtype": torch.bfloat16}, 4e-3, 6e-4),
            ("muon", beside + "lr = 0.02\n[optimizer.adamw]", LR, {"optimizer_of": muon}, 2e-2, 1e-6),
            ("muon_in_fp32", beside + "ns_dtype = \"fp32\"\nadjust_lr_fn = \"match_rms_adamw\"\n[optimizer.adamw]",
             LR, {"optimizer_of": muon_in_fp32}, 1e-5, 1e-6),
        ]
        has_bitsandbytes = DEVICE == "cuda" and importlib.util.find_spec("bitsandbytes")
        if has_bitsandbytes:
            cases.append(("adamw_8bit beside bitsandbytes", "[optimizer.adamw_8bit]", LR,
                          {"optimizer_of": of_bitsandbytes}, 1e-4, 1e-6))
        peers = {"bf16": "torch autocast", "fp16": "torch autocast and GradScaler", "half": "torch in bf16",
                 "adafactor": "transformers Adafactor", "adafactor_of_the_paper": "transformers Adafactor",
                 "anyprecision": "torchdistx' algorithm", "adamw_8bit": "bitsandbytes' algorithm",
                 "adamw_8bit beside bitsandbytes": "bitsandbytes", "muon": "torch Muon", "muon_in_fp32": "torch Muon"}
        results = []
        for name, tables, lr, theirs, bound, first_bound in cases:
            if len(sys.argv) > 1 and name not in sys.argv[1:]:
                continue
            _, ours = train(folder, name, file, STEPS, lr, tables)
            losses, scales = reference(weights, text, **theirs)
            results.append(compare(name, peers.get(name, "torch AdamW"), ours, losses, bound, first_bound))
            if "scaler" in theirs:
                results.append(compare_scales("fp16, a factor that grows", ours, scales, STEPS))
        if not sys.argv[1:] or "adamw_8bit" in sys.argv[1:]:
            results.append(compare_8bit_states(folder, file, text, weights))
            if has_bitsandbytes:
                results.append(compare_8bit_states(folder, file, text, weights, of_bitsandbytes, ("state1", "state2"),
                                                   "bitsandbytes"))
        if not sys.argv[1:] or "ema" in sys.argv[1:]:
            results.append(compare_mean(folder, file))
        if not sys.argv[1:] or "injected" in sys.argv[1:]:
            results.append(compare_injected(folder, file, text, weights))
        if not sys.argv[1:] or "overflow" in sys.argv[1:]:
            tables = f"[optimizer.adamw]\n[precision.fp16]\ninitial = {2.0**40}"
            _, falls = train(folder, "overflow", file, 1, LR, tables)
            _, scales = reference(weights, text, autocast=torch.float16, scaler=scaler(2.0**40, 2000), steps=12)
            results.append(compare_scales("fp16, a factor that falls", falls, scales, 12))
    passed = sum(results)
    print(f"{passed} passed, {len(results) - passed} failed")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
