"""Llama, BERT and ViT against transformers: logits, gradients, and folders in both directions.

    MORTISE=build/bin/mortise python3 tests/parity/models.py [llama bert bert_masked vit …]

Each model is written by transformers with random weights, loaded here by `[model] weights`, and takes one step on one
batch that both get: every logit of an evaluation and every gradient of the step are compared. Then it is trained a few
steps and exported, and transformers' logits of that folder are compared with those of the run. A test plugin of data
(tests/parity/fields) brings the batch, another (tests/parity/numbers) writes the logits and gradients.

The bounds. Logits as in huggingface.py: 1e-5, in units of the largest or of 1. A gradient is a sum over all positions
of products of two such numbers, through twice as many roundings: 1e-4 of its tensor's norm leaves a factor of ten.
"""

import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

import numpy
import rows
import torch
import transformers
from plugins import build
from transformers.utils import logging

MORTISE = pathlib.Path(os.environ["MORTISE"]).absolute()
ROOT = pathlib.Path(__file__).resolve().parents[2]
SAMPLES, LENGTH, VOCABULARY, LOGITS, GRADIENTS = 6, 24, 96, 1e-5, 1e-4
SMALL = {
    "num_hidden_layers": 3,
    "hidden_size": 64,
    "num_attention_heads": 8,
    "intermediate_size": 112,
}
TYPES = {numpy.dtype("int64"): "i64", numpy.dtype("float32"): "f32"}

MANIFEST = """
[run]
length = {steps}
[data]
micro_batch_size = {samples}
shuffle = false
[test.fields]
path = "{folder}/fields"
[model]
weights = "{weights}"
[model.{model}]
{keys}
[optimizer]
lr = 1e-3
[optimizer.adamw]
[checkpoint]
every = 1000
""" + rows.ON_DEVICE


def write_fields(folder, fields):
    """fields.txt: `name type fill unit sizes…` a line, and a file of numbers each: samples one after another."""
    folder.mkdir(exist_ok=True)
    lines = []
    for name, (array, fill, sequence, unit) in fields.items():
        array = array.numpy()
        (folder / f"{name}.bin").write_bytes(array.tobytes())
        sizes = list(array.shape[1:])
        if sequence:
            sizes[0] = -1
        lines.append(" ".join([name, TYPES[array.dtype], str(fill), unit or "-", *map(str, sizes)]))
    (folder / "fields.txt").write_text(f"{SAMPLES}\n" + "\n".join(lines) + "\n")


def randomised(model):
    """Biases and norms too, so that none of them can be left out unnoticed."""
    torch.manual_seed(2)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p), alpha=0.05)
    return model.eval()


def ids(seed):
    return torch.randint(5, VOCABULARY, (SAMPLES, LENGTH), generator=torch.Generator().manual_seed(seed))


def lengths():
    """Each sample has another length; 1 where there is a token."""
    return (torch.arange(LENGTH)[None] < torch.tensor([24, 20, 7, 24, 13, 2])[:, None]).long()


def language(shifted):
    mask = lengths()
    tokens, labels = ids(1), ids(2).masked_fill(mask == 0, -100)
    positions = torch.arange(LENGTH).expand(SAMPLES, -1).contiguous()
    fields = {
        "input_ids": (tokens, 0, True, ""),
        "labels": (labels, -100, True, "tokens"),
        "positions": (positions, 0, True, ""),
    }
    return fields, {"input_ids": tokens, "position_ids": positions}, labels


def sum_of_losses(logits, labels):
    return torch.nn.functional.cross_entropy(
        logits.reshape(-1, logits.shape[-1]).float(), labels.reshape(-1), ignore_index=-100
    )


class Llama:
    model, cls, keys = "llama", transformers.LlamaForCausalLM, ""

    def __init__(self, tied=False):
        self.config = transformers.LlamaConfig(
            vocab_size=VOCABULARY,
            num_key_value_heads=2,
            max_position_embeddings=64,
            rope_theta=500.0,
            rope_parameters={"rope_type": "default", "rope_theta": 500.0},
            tie_word_embeddings=tied,
            **SMALL,
        )

    def batch(self):
        return language(shifted=True)


class TiedLlama(Llama):
    def __init__(self):
        super().__init__(tied=True)


class LinearLlama(Llama):
    scaling = {"rope_type": "linear", "factor": 6.0}

    def __init__(self):
        super().__init__()
        self.config.rope_parameters = {"rope_theta": 500.0, **self.scaling}


class Llama3(LinearLlama):
    # Of the four wavelengths of a head, 6, 30, 140 and 664 positions, one stays, one is scaled in part, two wholly.
    scaling = {"rope_type": "llama3", "factor": 6.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 48}


class Bert:
    model, cls, keys = "bert", transformers.BertForSequenceClassification, ""

    def __init__(self):
        self.config = transformers.BertConfig(
            vocab_size=VOCABULARY,
            max_position_embeddings=64,
            num_labels=3,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            **SMALL,
        )

    def inputs(self):
        types = (torch.arange(LENGTH)[None] > torch.tensor([3, 5, 2, 9, 30, 1])[:, None]).long()
        fields = {
            "input_ids": (ids(1), 0, True, ""),
            "attention_mask": (lengths(), 0, True, ""),
            "token_type_ids": (types, 0, True, ""),
        }
        return fields, {"input_ids": ids(1), "attention_mask": lengths(), "token_type_ids": types}

    def batch(self):
        fields, inputs = self.inputs()
        labels = torch.tensor([0, 2, 1, 1, -100, 2])
        # The loss of a sample counts samples: the one without a label is among them.
        return {**fields, "labels": (labels, -100, False, "labels")}, inputs, labels

    keys = "classes = 3"


class MaskedBert(Bert):
    cls, keys = transformers.BertForMaskedLM, 'task = "masked_lm"'

    def batch(self):
        fields, inputs = self.inputs()
        labels = torch.where((ids(3) % 4 == 0) & (lengths() == 1), ids(4), -100)
        return {**fields, "labels": (labels, -100, True, "tokens")}, inputs, labels


class Vit:
    model, cls, keys = "vit", transformers.ViTForImageClassification, "classes = 4"

    def __init__(self):
        self.config = transformers.ViTConfig(image_size=24, patch_size=8, num_channels=3, num_labels=4, **SMALL)

    def batch(self):
        pixels = torch.randn(SAMPLES, 3, 24, 24, generator=torch.Generator().manual_seed(1))
        labels = torch.tensor([0, 3, 1, 1, 2, 0])
        fields = {"pixel_values": (pixels, 0, False, ""), "labels": (labels, -100, False, "")}
        return fields, {"pixel_values": pixels}, labels


MODELS = {
    "llama": Llama,
    "llama_tied": TiedLlama,
    "llama_linear": LinearLlama,
    "llama3": Llama3,
    "bert": Bert,
    "bert_masked": MaskedBert,
    "vit": Vit,
}


def mortise(folder, *args):
    done = subprocess.run([MORTISE, *map(str, args)], cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"mortise {' '.join(map(str, args))}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def with_numbers(folder, verb, *args):
    """The verb with test.numbers on: what it wrote."""
    file = folder / "numbers.bin"
    numbers = ["--plugin-path", folder / "plugins", "--use", "test.numbers", "--set", f"test.numbers.path={file}"]
    mortise(folder, verb, *args, *numbers)
    numbers = read_numbers(file)
    file.unlink()
    return numbers


def read_numbers(file):
    """What test.numbers wrote: names and tensors."""
    data, all_numbers = file.read_bytes(), {}
    while data:
        name_bytes, count = struct.unpack_from("<qq", data)
        name = data[16:16 + name_bytes].decode()
        begin = 16 + name_bytes
        all_numbers[name] = torch.frombuffer(bytearray(data[begin:begin + 4 * count]), dtype=torch.float32)
        data = data[begin + 4 * count:]
    return all_numbers


def in_file(name):
    """transformers calls ViT's parts otherwise in memory than in files."""
    for memory, file in {
        "vit.layers.": "vit.encoder.layer.",
        "attention.q_proj": "attention.attention.query",
        "attention.k_proj": "attention.attention.key",
        "attention.v_proj": "attention.attention.value",
        "attention.o_proj": "attention.output.dense",
        "mlp.fc1": "intermediate.dense",
        "mlp.fc2": "output.dense",
    }.items():
        name = name.replace(memory, file) if name.startswith("vit.") else name
    return name


def report(what, worst, bound):
    print(f"{what}: worst {worst:.1e} (bound {bound:.0e})  {'ok' if worst <= bound else 'FAIL'}", flush=True)
    return rows.note("transformers", what, f"worst {worst:.1e}", f"{bound:.0e}", worst <= bound)


def compare_logits(name, ours, theirs):
    assert ours.numel() == theirs.numel(), (ours.numel(), theirs.shape)
    scale = max(1.0, theirs.abs().max().item())
    return report(f"{name}: {theirs.numel():,} logits", (ours - theirs.flatten()).abs().max().item() / scale, LOGITS)


def compare_gradients(name, ours, model):
    theirs = {in_file(n): p.grad for n, p in model.named_parameters() if p.grad is not None}
    assert set(theirs) == set(ours), sorted(set(theirs) ^ set(ours))

    # A bias of keys moves all scores of a query alike: its gradient is 0 but for rounding, and is held against that of
    # the matrix beside it.
    def scale(n):
        return theirs[n.replace("key.bias", "key.weight")].norm().item()

    apart = {n: (ours[n] - g.flatten()).norm().item() / scale(n) for n, g in theirs.items()}
    worst = max(apart, key=apart.get)
    return report(f"{name}: {len(theirs)} gradients, the farthest of {worst}", apart[worst], GRADIENTS)


def checked(folder, name):
    case = MODELS[name]()
    fields, inputs, labels = case.batch()
    write_fields(folder / "fields", fields)
    model = randomised(case.cls(case.config))
    model.save_pretrained(folder / name)
    keys = case.keys
    manifest = MANIFEST.format(
        steps=1, samples=SAMPLES, folder=folder, weights=folder / name, model=case.model, keys=keys
    )
    (folder / f"{name}.toml").write_text(manifest)
    logits = model(**inputs).logits
    results = []
    numbers = with_numbers(folder, "train", f"{name}.toml")
    results.append(compare_logits(f"{name}, loaded", numbers.pop("logits"), logits.detach()))
    valid = (labels != -100).sum()
    sum_loss = sum_of_losses(logits, labels) * valid
    denominator = SAMPLES if labels.dim() == 1 else valid
    (sum_loss / denominator).backward()
    results.append(compare_gradients(name, numbers, model))

    (folder / f"{name}.toml").write_text(manifest.replace("length = 1", "length = 8"))
    mortise(folder, "train", f"{name}.toml", "--plugin-path", folder / "plugins", "--set", "run.name=trained")
    mortise(folder, "export", "runs/trained", "-o", f"{name}-exported")
    exported, info = case.cls.from_pretrained(folder / f"{name}-exported", output_loading_info=True)
    results.append(not any(info[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys")))
    print(f"{name}, exported: {info}  {'ok' if results[-1] else 'FAIL'}")
    ours = with_numbers(folder, "eval", "runs/trained")["logits"]
    with torch.no_grad():
        theirs = exported.eval()(**inputs).logits
    results.append(compare_logits(f"{name}, trained and exported", ours, theirs))
    assert (theirs - logits).abs().max() > 1e-3, "training moved nothing"
    subprocess.run(["rm", "-rf", folder / "runs"], check=True)
    return results


def main():
    logging.disable_progress_bar()
    torch.set_num_threads(1)
    results = []
    for name in sys.argv[1:] or MODELS:
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary)
            for plugin in ("fields", "numbers"):
                build(folder / "plugins", plugin)
            results += checked(folder, name)
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
