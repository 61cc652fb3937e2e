"""adapter.lora against PEFT: a run is exported as PEFT's folder before its first step and after its last.

    MORTISE=build/bin/mortise python3 tests/parity/adapters.py [gpt llama bert bert_frozen]

Each model is written by transformers with random weights. PEFT loads what the run began with beside it, and trains it
with torch.optim.AdamW on the batch that the run has: the loss of each of 20 steps is compared. Then PEFT's logits with
what the run ended with are compared with the run's, and with those of the merged export.

The bounds. Losses: 1e-5 relative, as in parity.py, but at least 2e-7: a loss is the difference of numbers of size 1,
three roundings of 2^-24 each, however small it is. BERT's falls to 7e-4 here, and was 2e-8 apart there in one run,
which is 2.5e-5 of it. Logits: 1e-5, as in models.py.
"""

import json
import pathlib
import sys
import tempfile

import models
import torch
import transformers
from models import SAMPLES, SMALL, VOCABULARY, mortise, report
from peft import PeftModel
from transformers.utils import logging

STEPS, LR, LOSSES, SMALLEST = 20, 1e-2, 1e-5, 0.02  # 1e-5 of 0.02 is 2e-7

ADAPTER = """
[adapter.lora]
where = {where}
also = {also}
rank = 4
alpha = 6.0
[log]
every = 1
"""


class Gpt:
    model, cls, keys = "gpt", transformers.GPT2LMHeadModel, ""
    where = ["h.*.attn.c_attn", "h.1.mlp.*"]

    def __init__(self):
        self.config = transformers.GPT2Config(
            vocab_size=VOCABULARY,
            n_positions=64,
            n_layer=SMALL["num_hidden_layers"],
            n_embd=SMALL["hidden_size"],
            n_head=SMALL["num_attention_heads"],
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=None,
            eos_token_id=None,
        )

    def batch(self):
        return models.language(shifted=True)


class Llama(models.Llama):
    where = ["*.q_proj", "*.v_proj", "*.down_proj"]


class Bert(models.Bert):
    where = ["*.query", "*.value", "*.dense"]
    also = ["classifier.*"]


class FrozenBert(models.Bert):
    where = ["*.query"]


MODELS = {"gpt": Gpt, "llama": Llama, "bert": Bert, "bert_frozen": FrozenBert}


def trained(folder, name, case, run, *more):
    manifest = models.MANIFEST.format(
        steps=STEPS, samples=SAMPLES, folder=folder, weights=folder / name, model=case.model, keys=case.keys
    )
    manifest += ADAPTER.format(where=json.dumps(case.where), also=json.dumps(getattr(case, "also", [])))
    (folder / f"{name}.toml").write_text(manifest)
    sets = ("--set", f"run.name={run}", "--set", f"optimizer.lr={LR}", *more)
    mortise(folder, "train", f"{name}.toml", "--plugin-path", folder / "plugins", *sets)
    mortise(folder, "export", f"runs/{run}", "-o", folder / f"{run}-peft", "--to", "peft")
    records = [json.loads(line) for line in (folder / "runs" / run / "metrics.jsonl").read_text().splitlines()]
    return [r["loss"] for r in records if r["event"] == "step"]


def loaded(folder, name, case, run, **more):
    base = case.cls.from_pretrained(folder / name)
    return PeftModel.from_pretrained(base, folder / f"{run}-peft", **more)


def loss_of(model, inputs, labels):
    valid = (labels != -100).sum()
    count = SAMPLES if labels.dim() == 1 else valid
    return models.sum_of_losses(model(**inputs).logits, labels) * valid / count


def trained_by_peft(model, inputs, labels, head_learns):
    for n, p in model.named_parameters():  # PEFT trains every head that it saves whole
        p.requires_grad_(p.requires_grad and (head_learns or "modules_to_save" not in n))
    learning = [p for p in model.parameters() if p.requires_grad]
    groups = [{"params": [p for p in learning if p.dim() > 1], "weight_decay": 0.01},
              {"params": [p for p in learning if p.dim() == 1], "weight_decay": 0.0}]
    optimizer, losses = torch.optim.AdamW(groups, lr=LR), []
    for _ in range(STEPS):
        loss = loss_of(model, inputs, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def checked(folder, name):
    case = MODELS[name]()
    fields, inputs, labels = case.batch()
    models.write_fields(folder / "fields", fields)
    base = models.randomised(case.cls(case.config))
    base.save_pretrained(folder / name)

    trained(folder, name, case, "first", "--set", "run.length=1", "--set", "optimizer.lr=0.0")
    ours = trained(folder, name, case, "last")
    theirs = trained_by_peft(loaded(folder, name, case, "first", is_trainable=True).eval(), inputs, labels,
                             hasattr(case, "also"))
    assert ours[-1] < ours[0] - 0.01, "training moved nothing"
    apart = max(abs(a - b) / max(abs(b), SMALLEST) for a, b in zip(ours, theirs, strict=True))
    results = [report(f"{name}: {STEPS} losses of a training by PEFT", apart, LOSSES)]

    mortise(folder, "export", "runs/last", "-o", "merged")
    with torch.no_grad():
        before = base(**inputs).logits
        with_adapter = loaded(folder, name, case, "last").eval()(**inputs).logits
        merged = case.cls.from_pretrained(folder / "merged").eval()(**inputs).logits
    run = models.with_numbers(folder, "eval", "runs/last")["logits"]
    assert (with_adapter - before).abs().max() > 1e-2, "the adapter changed nothing"
    results.append(models.compare_logits(f"{name}, by PEFT and by the run", run, with_adapter))
    results.append(models.compare_logits(f"{name}, by PEFT and merged", merged.flatten(), with_adapter))
    return results


def main():
    logging.disable_progress_bar()
    torch.set_num_threads(1)
    results = []
    for name in sys.argv[1:] or MODELS:
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary)
            for plugin in ("fields", "numbers"):
                models.build(folder / "plugins", plugin)
            results += checked(folder, name)
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
