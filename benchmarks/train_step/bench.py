"""The training step of a GPT against PyTorch eager on the same CPU and threads. usage: bench.py [PAIRS], with MORTISE
naming the binary.

GPT of 6 layers, width 384, 6 heads, sequence 256, batch 8, bytes, AdamW with two groups, fp32; at dropout 0 and 0.1.
Five interleaved pairs, each side in a fresh
process, 2 warm-up steps apart; the figure of a run is its median step, the figure of the benchmark the median of the
pairs' ratios (ours / theirs in samples/s).
The peer is written as one would in PyTorch: nn.Linear, F.scaled_dot_product_attention, torch.optim.AdamW(fused=True).
"""

import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from gpt import BATCH, HEADS, LAYERS, LENGTH, WIDTH, train  # noqa: E402  the path above leads to it

STEPS, WARM = 8, 2


def ours(dropout):
    with tempfile.TemporaryDirectory() as folder:
        records = train(folder, STEPS, dropout, "[optimizer]\nlr = 1e-3")
    return statistics.median(r["samples_per_s"] for r in records if r["event"] == "step" and r["step"] > WARM)


def theirs(dropout):
    out = subprocess.run([sys.executable, __file__, "--peer", str(dropout)], check=True, capture_output=True, text=True)
    return float(out.stdout)


def peer(dropout):
    import time

    import torch
    from torch import nn
    from torch.nn import functional as F

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.c_attn, self.c_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.c_fc, self.out = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

        def forward(self, x):
            b, t, c = x.shape
            q, k, v = (
                y.view(b, t, HEADS, c // HEADS).transpose(1, 2) for y in self.c_attn(self.ln_1(x)).split(c, dim=2)
            )
            y = (
                F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
                .transpose(1, 2)
                .reshape(b, t, c)
            )
            x = x + F.dropout(self.c_proj(y), dropout)
            return x + F.dropout(self.out(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh")), dropout)

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(256, WIDTH), nn.Embedding(LENGTH, WIDTH)
            self.h = nn.ModuleList(Block() for _ in range(LAYERS))
            self.ln_f = nn.LayerNorm(WIDTH)

        def forward(self, ids):
            x = F.dropout(self.wte(ids) + self.wpe(torch.arange(ids.shape[1])), dropout)
            for block in self.h:
                x = block(x)
            return F.linear(self.ln_f(x), self.wte.weight)

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    torch.manual_seed(0)
    model = Gpt().train()
    optimizer = torch.optim.AdamW(
        [
            {"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.01},
            {"params": [p for p in model.parameters() if p.dim() <= 1], "weight_decay": 0.0},
        ],
        lr=1e-3,
        fused=True,
    )
    seconds = []
    for _ in range(STEPS):
        ids = torch.randint(0, 256, (BATCH, LENGTH + 1))
        before = time.perf_counter()
        loss = F.cross_entropy(model(ids[:, :-1]).view(-1, 256), ids[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seconds.append(time.perf_counter() - before)
    print(BATCH / statistics.median(seconds[WARM:]))


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "--peer":
        return peer(float(sys.argv[2]))
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    print(
        f"GPT {LAYERS} x {WIDTH}, sequence {LENGTH}, batch {BATCH}, AdamW, fp32, {len(os.sched_getaffinity(0))} "
        f"threads; samples/s, medians; load {os.getloadavg()[0]:.1f}"
    )
    for dropout in (0.0, 0.1):
        rows = [(ours(dropout), theirs(dropout)) for _ in range(pairs)]
        ratios = sorted(a / b for a, b in rows)
        print(
            f"dropout {dropout}: mortise {statistics.median(a for a, _ in rows):.2f}  torch "
            f"{statistics.median(b for _, b in rows):.2f}  "
            f"ratio {statistics.median(ratios):.3f} (pairs {', '.join(f'{r:.3f}' for r in ratios)})",
            flush=True,
        )
    return None


if __name__ == "__main__":
    main()
