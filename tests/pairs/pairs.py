"""Any two techniques together: each pair trains 20 steps beside the run without one of them, and is resumed from the
middle. docs/pairs.md is made of what came.

    pairs.py --write     every pair, and the page (make pairs: some ten minutes)
    pairs.py --sample N  N pairs drawn by the page's own text, each compared with its cell; and that no technique lacks

A technique says in plugin.toml, [capabilities] equals, what a run with it equals:
    "exact"   the bits of the run without it
    "1e-3"    its losses, within this
    "other"   nothing: it is another training
Its table is that of its example.toml, with the plugins of the families `optimizer` and `precision` beside it."""
import argparse
import concurrent.futures
import functools
import hashlib
import itertools
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import tomllib

SOURCE = pathlib.Path(__file__).resolve().parents[2]
MORTISE = pathlib.Path(os.environ.get("MORTISE", SOURCE / "build/bin/mortise")).absolute()
PAGE = SOURCE / "docs/pairs.md"
STEPS, MIDDLE = 20, 10
# 80 samples are 20 steps of 4; the rest is evaluated on.
PLAIN = {
    "run": {"length": STEPS},
    "data": {"micro_batch_size": 4, "sequence_length": 16},
    "data.random": {"samples": 80, "validation_samples": 8, "shortest": 5},
    "tokenizer.byte": {},
    "model.gpt": {"layers": 2, "heads": 2, "width": 32},
    "optimizer": {"lr": 1e-3},
    "optimizer.adamw": {},
    "eval": {"every": MIDDLE},
    "log": {"every": 1},
    "checkpoint": {"every": MIDDLE, "keep": 3},
}
# The same joint batch, in two parts.
BESIDE = {"step.accumulation": {"data": {"micro_batch_size": 2}, "step.accumulation": {"count": 2}}}
# What computes in numbers of 8 or 11 bits: a difference in the last bit of fp32 may become one in the last of theirs.
ROUNDS = {"optimizer.adamw_anyprecision": 1e-3, "optimizer.muon": 1e-3, "precision.half": 1e-3}
# Pairs that are not what their parts say, and why.
BALANCE = "the balance of experts is that of a micro-batch, which is another one with"
EXCEPTIONS = {("data.pack", "layer.moe"): f"{BALANCE} data.pack",
              ("layer.moe", "step.accumulation"): f"{BALANCE} step.accumulation"}


def plugins():
    return {tomllib.loads(p.read_text())["plugin"]["id"]: p.parent for p in SOURCE.glob("plugins/*/*/plugin.toml")}


WORDS = ("exact", "other")


def wants_a_gpu(facts):
    return any(isinstance(keys, dict) and keys.get("devices") == ["cuda"] for table, keys in facts.items()
               if table != "repeat")


@functools.cache
def techniques():
    """id: what it equals, in the order of ids; of those that the CPU runs."""
    facts = {i: tomllib.loads((p / "plugin.toml").read_text()) for i, p in plugins().items()}
    all_of = {i: f.get("capabilities", {}) for i, f in facts.items() if not wants_a_gpu(f)}
    return {i: c["equals"] if c["equals"] in WORDS else float(c["equals"])
            for i, c in sorted(all_of.items()) if "equals" in c}


def flat(tables):
    """{"a": {"b": {…}, "c": 1}} as {"a": {"c": 1}, "a.b": {…}}, where a.b is a plugin."""
    out = {}
    for family, keys in tables.items():
        if not isinstance(keys, dict):
            continue  # `include`
        own = {k: v for k, v in keys.items() if f"{family}.{k}" not in plugins()}
        out |= {family: own} if own else {}
        out |= {f"{family}.{k}": v for k, v in keys.items() if k not in own}
    return out


@functools.cache
def example(technique):
    """(its own tables, those of plugins beside it)"""
    tables = flat(tomllib.loads((plugins()[technique] / "example.toml").read_text()))
    beside = {t: k for t, k in tables.items()
              if t != technique and t.partition(".")[0] in ("optimizer", "precision") and "." in t and t not in PLAIN}
    own = BESIDE.get(technique) or {technique: tables.get(technique, {})}
    return own, beside


def tables_of(names):
    """PLAIN with these techniques: an optimizer without `where` takes the place of PLAIN's, and of any beside."""
    own, beside = {}, {}
    for name in names:
        for into, tables in zip((own, beside), example(name)):
            for table, keys in tables.items():
                into[table] = into.get(table, {}) | keys
    all_of = {t: dict(k) for t, k in PLAIN.items()}
    open_ones = [t for t in own if t.startswith("optimizer.") and "where" not in own[t]]
    beside = {t: k for t, k in beside.items() if not (open_ones and t.startswith("optimizer."))}
    if open_ones or any(t.startswith("optimizer.") for t in beside):
        del all_of["optimizer.adamw"]
    for tables in (beside, own):
        for table, keys in tables.items():
            all_of[table] = all_of.get(table, {}) | keys
    return all_of


def manifest(tables):
    return "".join(f"[{table}]\n" + "".join(f"{k} = {toml(v)}\n" for k, v in keys.items())
                   for table, keys in tables.items())


def toml(value):
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{k} = {toml(v)}" for k, v in value.items()) + " }"
    return json.dumps(value)


def mortise(folder, *args, **more):
    env = {k: v for k, v in os.environ.items() if k in ("PATH", "LD_LIBRARY_PATH", "TMPDIR")}
    env |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "HOME": str(folder)} | more
    return subprocess.run([MORTISE, *args, "--json"], cwd=folder, capture_output=True, check=False, timeout=600,
                          env=env)


class Trained:
    """A run of these techniques: refused, or its losses, its weights' hash, and whether it is resumed exactly."""

    def __init__(self, names, folder):
        self.refused = self.broken = ""
        self.dir = pathlib.Path(folder) / "+".join(names or ["plain"])
        self.dir.mkdir()
        (self.dir / "run.toml").write_text(manifest(tables_of(names)))
        done = mortise(self.dir, "train", "run.toml", CUDA_VISIBLE_DEVICES="")
        if done.returncode in (64, 69):
            error = json.loads(done.stderr.splitlines()[0])
            self.refused = f"{error['message']}"
        elif done.returncode:
            self.broken = done.stderr.decode()
        else:
            self.read()
        shutil.rmtree(self.dir)

    def read(self):
        run = self.dir / "runs/run"
        records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        self.losses = [r["loss"] for r in records if r["event"] == "step"]
        self.evaluated = [r["eval.loss"] for r in records if r["event"] == "eval"]
        self.weights = digest(run / f"checkpoints/step-{STEPS}/model/model.safetensors")
        done = mortise(self.dir, "resume", "runs/run", "--from", str(MIDDLE), CUDA_VISIBLE_DEVICES="")
        if done.returncode:
            self.broken = "resume: " + done.stderr.decode()
            return
        again, first = run / f"checkpoints/step-{STEPS}", run / f"checkpoints/abandoned/step-{STEPS}"
        for file in sorted(f for f in again.rglob("*") if f.is_file() and f.name != "MANIFEST.json"):
            if digest(file) != digest(first / file.relative_to(again)):
                self.broken = f"resumed from step {MIDDLE}, {file.relative_to(again)} is another"


def digest(file):
    return hashlib.sha256(file.read_bytes()).hexdigest()


class Judge:
    def __init__(self, folder):
        self.folder, self.known = folder, {}

    @functools.cached_property
    def pool(self):
        return concurrent.futures.ThreadPoolExecutor(os.cpu_count())

    def trained(self, *names):
        key = tuple(sorted(names))
        if key not in self.known:
            self.known[key] = self.pool.submit(Trained, key, self.folder)
        return self.known[key]

    def cell(self, a, b):
        """(sign, text): "=" bits, "≈" within the bound, "·" nothing to compare with, "×" refused; "!" wrong."""
        both = self.trained(a, b).result()
        if both.broken:
            return "!", both.broken
        if both.refused:
            return "×", both.refused
        sign = "·"
        for x, other in ((a, b), (b, a)):
            equals, alone = techniques()[x], self.trained(other).result()
            if equals == "other" or alone.refused:
                continue
            if alone.broken:
                return "!", f"{other} alone: {alone.broken}"
            if equals == "exact":
                if (both.losses, both.weights) != (alone.losses, alone.weights):
                    return "!", f"{x} changes the bits of a run with {other}"
                sign = "=" if sign == "·" else sign
                continue
            bound = equals + ROUNDS.get(other, techniques()[other] if techniques()[other] not in WORDS else 0)
            far = max(abs(m - n) for m, n in zip(both.losses, alone.losses))
            if far > bound:
                return "!", f"{x} changes losses of a run with {other} by {far:.1e}, more than {bound:.1e}"
            sign = "≈"
        return sign, ""


def judged(pairs):
    with tempfile.TemporaryDirectory(prefix="mortise_pairs.") as folder:
        judge = Judge(folder)
        for a, b in pairs:
            for names in ((a, b), (a,), (b,)):
                judge.trained(*names)
        cells = {}
        for pair in pairs:
            sign, text = judge.cell(*pair)
            if sign == "!" and pair in EXCEPTIONS:
                sign, text = "†", EXCEPTIONS[pair]
            cells[pair] = sign, text
        return cells


def all_pairs():
    return list(itertools.combinations(techniques(), 2))


HEAD = f"""# Any two techniques together

Made by `make pairs` (tests/pairs/pairs.py): each pair trains {STEPS} steps of a small GPT beside the run without one of
them, and goes on again from step {MIDDLE}; every file of the last checkpoint is then the same, bit for bit, in every
cell but those that are refused. Bounds of two that have one are added; beside one that rounds to 16 bits
({", ".join(sorted(ROUNDS))}) 1e-3 is.

| | |
|---|---|
| `=` | each that says so leaves the bits of the other's run as they are |
| `≈` | losses stay within the bound that plugin.toml states, [capabilities] `equals` |
| `·` | both are another training: there is nothing to compare with |
| `×` | refused before anything is trained, for the reason below |
| `†` | another training, for the reason below |

"""


def grid(names, about, sign):
    """A table of each technique with each: `about` stands beside a name, sign(a, b) in a cell."""
    out = ["| | | " + " | ".join(str(i + 1) for i in range(len(names))) + " |\n",
           "|---|---|" + "---|" * len(names) + "\n"]
    for i, a in enumerate(names):
        out.append(f"| {i + 1} | `{a}`{about(a)} | " + " | ".join(sign(a, b) for b in names) + " |\n")
    return "".join(out)


def page(cells):
    table = grid(list(techniques()), lambda a: " " + shown(techniques()[a]), lambda a, b: sign_of(cells, a, b))
    reasons = [f"- `{a}` with `{b}`: {text}\n" for (a, b), (sign, text) in cells.items() if text]
    return HEAD + table + ("\n" + "".join(reasons) if reasons else "")


def sign_of(cells, a, b):
    return "" if a == b else cells.get((a, b), cells.get((b, a)))[0]


def shown(equals):
    return {"exact": "=", "other": "·"}.get(equals, f"≈ {equals}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--sample", type=int)
    parser.add_argument("--only", help="pairs with this technique")
    asked = parser.parse_args()
    pairs = all_pairs()
    if asked.only:
        pairs = [p for p in pairs if asked.only in p]
    if asked.sample:
        pairs = random.Random(PAGE.read_text()).sample(pairs, asked.sample)
    cells = judged(pairs)
    wrong = [f"{a} with {b}: {text}" for (a, b), (sign, text) in cells.items() if sign == "!"]
    if asked.write and not wrong:
        PAGE.write_text(page(cells))
    if asked.sample:
        wrong += differences(cells)
    print("\n".join(wrong))
    counted = (f"{sum(s == sign for s, _ in cells.values())} {sign}" for sign in "=≈·×†!")
    print(f"{len(cells)} pairs: " + ", ".join(counted))
    sys.exit(bool(wrong))


def differences(cells):
    """Where the page says something else."""
    rows = [line.split("|") for line in PAGE.read_text().splitlines() if line.startswith("| ") and "`" in line]
    table = {row[2].split("`")[1]: [c.strip() for c in row[3:-1]] for row in rows if row[1].strip().isdigit()}
    names = list(techniques())
    if list(table) != names:
        return [f"{PAGE.name} is of {sorted(set(table) ^ set(names))} another: make pairs"]
    return [f"{a} with {b} is {sign}, {PAGE.name} says {table[a][names.index(b)]}: make pairs"
            for (a, b), (sign, _) in cells.items() if table[a][names.index(b)] != sign]


if __name__ == "__main__":
    main()
