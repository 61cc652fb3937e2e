"""Each attention against float64: logits of a step and gradients of all parameters.

    MORTISE=build/bin/mortise python3 tests/parity/attention.py

A Llama with shared key heads and a BERT whose samples have unlike lengths, heads of 64, weights by transformers. The
reference is transformers' model in float64, its attention written out. What is compared is ‖ours - reference‖ over
‖reference‖, of all logits and of all gradients together.

The bounds. In fp32 those of models.py: 1e-5 and 1e-4. In 16 bits the products around attention round too:
attention.math has them all, and a fused one adds no more than it has, so each may be twice as far off as
attention.math; this itself may be 2^-8 off a rounding in bf16, of some ten in sequence, 3e-2, and an eighth of that in
fp16. Printed beside them is what torch's autocast with its own fused attention gives on the same device.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

import models
import rows
import torch
import transformers
from plugins import build
from rows import DEVICE

LARGER = {"num_hidden_layers": 2, "hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 320}
DTYPES = {"fp32": (torch.float32, 1e-5, 1e-4), "bf16": (torch.bfloat16, 3e-2, 3e-2),
          "fp16": (torch.float16, 4e-3, 4e-3)}
BACKENDS = {
    "cpu": {"fp32": ("math", "flash"), "bf16": ("math", "flash")},
    "cuda": {"fp32": ("math", "efficient", "recompute"), "bf16": ("math", "efficient", "flash", "cudnn", "tiled"),
             "fp16": ("math", "efficient", "flash", "cudnn", "tiled")},
}[DEVICE]
# Refused on a GPU: heads of keys that are shared, a mask.
REFUSED = {("Llama", "efficient"), ("BERT", "flash")} if DEVICE == "cuda" else set()


class Llama(models.Llama):
    def __init__(self):
        super().__init__()
        for key, value in LARGER.items():
            setattr(self.config, key, value)
        self.config.head_dim = 64


class Bert(models.Bert):
    def __init__(self):
        super().__init__()
        for key, value in LARGER.items():
            setattr(self.config, key, value)


def step(case, model, inputs, labels, dtype):
    """Logits and gradients of one step of transformers' model, in float64 on the host; `dtype` of autocast, if any."""
    model.zero_grad()
    device = next(model.parameters()).device
    with torch.autocast(device.type, dtype=dtype or torch.bfloat16, enabled=dtype not in (None, torch.float32)):
        logits = model(**{name: tensor.to(device) for name, tensor in inputs.items()}).logits
    labels = labels.to(device)
    valid = (labels != -100).sum()
    flat, wanted = logits.reshape(-1, logits.shape[-1]), labels.reshape(-1)
    flat = flat if flat.dtype == torch.float64 else flat.float()
    loss = torch.nn.functional.cross_entropy(flat, wanted, ignore_index=-100) * valid
    (loss / (models.SAMPLES if labels.dim() == 1 else valid)).backward()
    gradients = {models.in_file(name): p.grad for name, p in model.named_parameters() if p.grad is not None}
    return (logits.detach().double().cpu().flatten(),
            {name: g.double().cpu().flatten() for name, g in gradients.items()})


def apart(ours, theirs):
    """Of the logits, and of all gradients as one vector."""
    logits = (ours[0] - theirs[0]).norm() / theirs[0].norm()
    assert set(ours[1]) == set(theirs[1]), sorted(set(ours[1]) ^ set(theirs[1]))
    difference = sum((ours[1][name] - g).square().sum() for name, g in theirs[1].items())
    return logits.item(), (difference / sum(g.square().sum() for g in theirs[1].values())).sqrt().item()


def here(folder, manifest):
    """The same of Mortise; a text where it refuses."""
    (folder / "run.toml").write_text(manifest)
    numbers = folder / "numbers.bin"
    command = [models.MORTISE, "train", "run.toml", "--plugin-path", folder / "plugins", "--use", "test.numbers",
               "--set", f"test.numbers.path={numbers}"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    subprocess.run(["rm", "-rf", folder / "runs"], check=True)
    if done.returncode:
        return next((line for line in done.stderr.splitlines() if line.startswith("error")), done.stderr[-300:])
    numbers = {name: values.double() for name, values in models.read_numbers(numbers).items()}
    return numbers.pop("logits"), numbers


def compare(name, found, bounds):
    logits, gradients = found
    ok = logits <= bounds[0] and gradients <= bounds[1]
    print(f"{name}: logits {logits:.1e} (bound {bounds[0]:.1e}), gradients {gradients:.1e} (bound {bounds[1]:.1e})  "
          f"{'ok' if ok else 'FAIL'}", flush=True)
    return rows.note("float64", name, f"logits {logits:.1e}, gradients {gradients:.1e}",
                     f"{bounds[0]:.0e}, {bounds[1]:.0e}", ok)


def checked(folder, name, case):
    fields, inputs, labels = case.batch()
    models.write_fields(folder / "fields", fields)
    model = models.randomised(case.cls(case.config))
    model.save_pretrained(folder / name)
    exact = case.cls.from_pretrained(folder / name, dtype=torch.float64, attn_implementation="eager").eval()
    reference = step(case, exact, inputs, labels, None)
    model = case.cls.from_pretrained(folder / name).to(DEVICE).eval()
    results = []
    for dtype, backends in BACKENDS.items():
        autocast, *bounds = DTYPES[dtype]
        theirs = apart(step(case, model, inputs, labels, autocast), reference)
        print(f"{name}, {dtype}: torch's own is {theirs[0]:.1e} and {theirs[1]:.1e} off", flush=True)
        for backend in backends:
            if (name, backend) in REFUSED:
                continue
            manifest = models.MANIFEST.format(steps=1, samples=models.SAMPLES, folder=folder, weights=folder / name,
                                              model=case.model, keys=case.keys)
            # The gradients that are compared are those of the loss, not of its multiple.
            precision = f"[precision.{dtype}]\n" + ("initial = 1.0\n" if dtype == "fp16" else "")
            ours = here(folder, manifest + f"\n[attention.{backend}]\n{precision}")
            what = f"attention.{backend}, {dtype}, {name}"
            if isinstance(ours, str):
                print(f"{what}: {ours}  FAIL", flush=True)
                results.append(rows.note("float64", what, ours, "", False))
                continue
            found = apart(ours, reference)
            results.append(compare(what, found, bounds))
            if backend == "math" and dtype != "fp32":
                bounds = [2 * share for share in found]
    return results


def main():
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(max(1, os.cpu_count() or 1))
    results = []
    for name, case in (("Llama", Llama()), ("BERT", Bert())):
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary)
            for plugin in ("fields", "numbers"):
                build(folder / "plugins", plugin)
            results += checked(folder, name, case)
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
