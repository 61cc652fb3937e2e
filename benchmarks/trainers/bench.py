"""The same training by Mortise, transformers' Trainer and Lightning, on the CPU. usage: bench.py [ROUNDS], with MORTISE
naming the binary.

GPT-2's architecture (6 layers, width 384, 6 heads, sequence 256, 256 ids), batch 8, fp32, AdamW in two groups, warm-up
and cosine, clipping at 1.0, no checkpoints; a record of every step here, of every tenth there; at dropout 0.1, as GPT-2
is, and 0. The peers train transformers' GPT2LMHeadModel with their own defaults besides. Rounds of all three
interleaved, each in a fresh process. Two figures: samples a second, the median step after the first four; and seconds
from the shell to the end of 24 steps. How many times as fast is the median of the ratios of the rounds, not the ratio
of the medians.
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from gpt import BATCH, HEADS, LAYERS, LENGTH, WIDTH, command  # noqa: E402  the path above leads to it

STEPS, WARM = 24, 4
MORE = """
[optimizer]
lr = 1e-3
weight_decay = 0.01
[schedule]
warmup = 3
[schedule.cosine]
[gradient.clip]
norm = 1.0
"""


def mortise(dropout, folder):
    # A record of each step has no time of its own; the clock is this process's, at the other end of the pipe.
    stamps = []
    with subprocess.Popen(
        [*command(folder, STEPS, dropout, MORE), "--json"], stdout=subprocess.PIPE, text=True
    ) as process:
        for line in process.stdout:
            if json.loads(line)["event"] == "step":
                stamps.append(time.perf_counter())
    assert process.returncode == 0
    return stamps


def model_and_data(dropout):
    import torch
    import transformers

    torch.manual_seed(0)
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    config = transformers.GPT2Config(
        vocab_size=256,
        n_positions=LENGTH,
        n_embd=WIDTH,
        n_layer=LAYERS,
        n_head=HEADS,
        resid_pdrop=dropout,
        embd_pdrop=dropout,
        attn_pdrop=dropout,
        bos_token_id=0,
        eos_token_id=0,
        use_cache=False,
    )
    ids = torch.randint(0, 256, (512, LENGTH))
    return transformers.GPT2LMHeadModel(config), [{"input_ids": row, "labels": row} for row in ids]


def trainer(dropout, folder):
    import transformers

    stamps = []

    class Stamp(transformers.TrainerCallback):
        def on_step_end(self, *args, **more):
            stamps.append(time.perf_counter())

    model, data = model_and_data(dropout)
    arguments = transformers.TrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=BATCH,
        max_steps=STEPS,
        learning_rate=1e-3,
        weight_decay=0.01,
        max_grad_norm=1.0,
        lr_scheduler_type="cosine",
        warmup_steps=3,
        logging_steps=10,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    transformers.Trainer(model, arguments, train_dataset=data, callbacks=[Stamp()]).train()
    return stamps


def lightning(dropout, folder):
    import lightning.pytorch as pl
    import torch
    import transformers

    stamps = []

    class Stamp(pl.Callback):
        def on_train_batch_end(self, *args):
            stamps.append(time.perf_counter())

    class Module(pl.LightningModule):
        def __init__(self, model):
            super().__init__()
            self.model = model

        def training_step(self, batch, _):
            loss = self.model(**batch).loss
            self.log("loss", loss)
            return loss

        def configure_optimizers(self):
            decayed = [p for p in self.parameters() if p.dim() > 1]
            others = [p for p in self.parameters() if p.dim() <= 1]
            optimizer = torch.optim.AdamW(
                [{"params": decayed, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}], lr=1e-3
            )
            return [optimizer], [
                {"scheduler": transformers.get_cosine_schedule_with_warmup(optimizer, 3, STEPS), "interval": "step"}
            ]

    model, data = model_and_data(dropout)
    fit = pl.Trainer(
        accelerator="cpu",
        max_steps=STEPS,
        gradient_clip_val=1.0,
        enable_checkpointing=False,
        logger=False,
        enable_progress_bar=False,
        default_root_dir=folder,
        callbacks=[Stamp()],
    )
    fit.fit(Module(model), torch.utils.data.DataLoader(data, batch_size=BATCH, shuffle=True))
    return stamps


def measure(name, dropout):
    """Samples a second, and seconds in all."""
    before = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        if name == "mortise":
            stamps = mortise(dropout, folder)
        else:
            out = subprocess.run(
                [sys.executable, "-W", "ignore", __file__, "--peer", name, str(dropout), folder],
                check=True,
                capture_output=True,
                text=True,
            )
            stamps = json.loads(out.stdout.splitlines()[-1])
        seconds = time.perf_counter() - before
    steps = [b - a for a, b in zip(stamps, stamps[1:])]
    assert len(stamps) == STEPS, (name, len(stamps))
    return BATCH / statistics.median(steps[WARM - 1:]), seconds


def main():
    if sys.argv[1:2] == ["--peer"]:
        name, dropout, folder = sys.argv[2:]
        print("\n" + json.dumps({"trainer": trainer, "lightning": lightning}[name](float(dropout), folder)))
        return
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    names = ("mortise", "trainer", "lightning")
    print(
        f"GPT {LAYERS} x {WIDTH}, sequence {LENGTH}, batch {BATCH}, fp32, {len(os.sched_getaffinity(0))} threads, "
        f"{rounds} rounds, {STEPS} steps; load {os.getloadavg()[0]:.1f}"
    )
    for dropout in (0.1, 0.0):
        rows = [{name: measure(name, dropout) for name in names} for _ in range(rounds)]
        for name in names:
            rate, seconds = (statistics.median(row[name][i] for row in rows) for i in (0, 1))
            # Of each round, how many times as fast Mortise is.
            faster = (
                [row["mortise"][0] / row[name][0] for row in rows],
                [row[name][1] / row["mortise"][1] for row in rows],
            )
            steps, whole = (f"{statistics.median(r):.2f} (rounds {min(r):.2f} to {max(r):.2f})" for r in faster)
            print(
                f"dropout {dropout}  {name:10} {rate:6.2f} samples/s  {seconds:5.1f} s"
                + (
                    ""
                    if name == "mortise"
                    else f"   Mortise is {steps} times as fast, {whole} with the start"
                ),
                flush=True,
            )


if __name__ == "__main__":
    main()
