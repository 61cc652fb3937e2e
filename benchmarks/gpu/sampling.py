"""Sampling on a GPU: with kept keys and values, with the whole text again for each token, and transformers' generate
with its own cache over the same weights. usage: sampling.py [ROUNDS] [fp32|bf16…], MORTISE names the binary.

GPT-2's 124 M but for its table of words (bytes): 12 layers, width 768, 12 heads, context 1,024; one text, the likeliest
token each time, until the window is full. Each side in a fresh process; tokens/s from the prompt to the end, so without
start and load, the median of the rounds. With SMALL=1 a tiny model, to try the script without a GPU.
"""

import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

MORTISE = os.path.abspath(os.environ.get("MORTISE", "mortise"))
SMALL = bool(os.environ.get("SMALL"))
LAYERS, HEADS, WIDTH, CONTEXT = (2, 2, 32, 64) if SMALL else (12, 12, 768, 1024)
PROMPT = "The text "
TOKENS = CONTEXT - len(PROMPT)
MANIFEST = f"""
[run]
length = 1
[data]
micro_batch_size = 1
sequence_length = {CONTEXT}
[data.text]
path = "notes.txt"
[tokenizer.byte]
[model.gpt]
layers = {LAYERS}
heads = {HEADS}
width = {WIDTH}
context = {CONTEXT}
dropout = 0.0
[optimizer.adamw]
"""
PEER = """
import sys, time, torch, transformers
folder, dtype, prompt, tokens = sys.argv[1], getattr(torch, sys.argv[2]), sys.argv[3], int(sys.argv[4])
device = "cuda" if torch.cuda.is_available() else "cpu"
model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).to(device).eval()
ids = torch.tensor([list(prompt.encode())], device=device)
def run(n):
    return model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=n, min_new_tokens=n,
                          do_sample=False, pad_token_id=0, eos_token_id=None)
run(8)
begin = time.perf_counter()
out = run(tokens)[0].tolist()
print(time.perf_counter() - begin)
print(bytes(out).hex())
"""


def ours(folder, cache):
    """Seconds from the prompt to the end, and the text."""
    command = [MORTISE, "sample", "runs/bench", "--prompt", PROMPT, "--tokens", str(TOKENS), "--temperature", "0",
               "--set", f"sample.text.cache={cache}"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE) as process:
        begin = process.stdout.read(len(PROMPT))
        before = time.perf_counter()
        rest = process.stdout.read()
        seconds = time.perf_counter() - before
    assert process.returncode == 0
    return seconds, begin + rest


def theirs(folder, dtype):
    done = subprocess.run([sys.executable, "-c", PEER, "exported", dtype, PROMPT, str(TOKENS)], cwd=folder, check=True,
                          stdout=subprocess.PIPE, text=True, env={**os.environ, "HF_HUB_OFFLINE": "1"})
    seconds, text = done.stdout.split()[-2:]
    return float(seconds), bytes.fromhex(text)


def measure(precision, rounds):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "notes.txt").write_text(" ".join(str(n) for n in range(2000)))
        (folder / "bench.toml").write_text(MANIFEST + (f"[precision.{precision}]\n" if precision != "fp32" else ""))
        subprocess.run([MORTISE, "train", "-q", "bench.toml"], cwd=folder, check=True)
        subprocess.run([MORTISE, "export", "-q", "runs/bench", "-o", "exported"], cwd=folder, check=True,
                       stdout=subprocess.DEVNULL)
        sides = {"kept": lambda: ours(folder, "true"), "whole": lambda: ours(folder, "false"),
                 "transformers": lambda: theirs(folder, {"fp32": "float32", "bf16": "bfloat16"}[precision])}
        found = {side: [] for side in sides}
        for _ in range(rounds):
            texts = {}
            for side, run in sides.items():
                seconds, text = run()
                found[side].append(TOKENS / seconds)
                texts[side] = text.rstrip(b"\n")
        rates = {side: statistics.median(each) for side, each in found.items()}
        same = texts["kept"].decode(errors="replace") == texts["transformers"].decode(errors="replace")
        print(f"{precision}: {TOKENS} tokens; tokens/s "
              + ", ".join(f"{side} {rate:.1f} ({min(found[side]):.1f} to {max(found[side]):.1f})"
                          for side, rate in rates.items())
              + f"; kept / whole {rates['kept'] / rates['whole']:.2f}, "
                f"kept / transformers {rates['kept'] / rates['transformers']:.2f}; "
                f"transformers' text is {'the same' if same else 'another'}",
              flush=True)


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    for precision in sys.argv[2:] or ["fp32", "bf16"]:
        measure(precision, rounds)


if __name__ == "__main__":
    main()
