"""Eight hostile values for every key of every plugin and of the core's own tables, given to the program as people run
it. Whatever a manifest says, the program trains, or it refuses with one error and the exit code of that kind of
trouble: no signal, no hang, no trace of an exception.

    MORTISE=build/bin/mortise python3 tests/hostile_values/hostile_values_test.py

By default as many cases as SECONDS allow, in an order drawn from a seed that is printed. MORTISE_HOSTILE=all runs all
of them (some minutes), MORTISE_HOSTILE=model.gpt.width those whose name contains this text,
MORTISE_HOSTILE_SEED=7 the sample of that seed again.
"""
import concurrent.futures
import json
import os
import pathlib
import random
import resource
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import e2e  # noqa: E402

try:
    import tomllib
except ImportError:  # Python 3.10: as pip has it
    from pip._vendor import tomli as tomllib

SECONDS = 6  # for the sample: a hundred cases or more
AT_ONCE = 2
ADDRESS_SPACE = 6 << 30  # of one process: what it asks beyond is an allocation that fails
PROCESSOR_S = 20  # of one process: a hang that computes
WALL_S = 120  # a hang that waits
ALLOWED = {0, 64, 65, 69}
TRACES = ("Exception raised", "terminate called", "what():", "c10::", "Traceback", "std::", "runtime error:")

VALUES = ["-1", "0", "1e308", "nan", "inf", str(2**63 - 1), '""']

# Tables that a tiny training needs, as TOML of each key. Every plugin gets its keys tried in this surrounding.
TINY = {
    "run": {"length": "2"},
    "data": {"micro_batch_size": "2", "sequence_length": "8", "validation": "0.2"},
    "eval": {"samples": "2"},
    "log": {"every": "1"},
    "data.text": {"path": '"notes.txt"'},
    "tokenizer.byte": {},
    "model.gpt": {"layers": "1", "heads": "2", "width": "16"},
    "optimizer.adamw": {},
    "sample.text": {"tokens": "4"},
}
# What a key needs beside it to mean anything.
BESIDE = {
    "optimizer.adafactor.warmup_init": {"relative_step": "true"},
    "optimizer.sgd.nesterov": {"momentum": "0.9"},
    "step.accumulation.count": {},
    "data.tokens.vocabulary": {"path": '"notes.txt"', "format": '"raw"', "dtype": '"uint8"'},
    "data.table.classes": {"path": '"notes.txt"', "format": '"csv"', "text": '"a"', "label": '"b"'},
    "data.mixture.from_step": {"weights": "[1, 1]"},
    "data.table.bos": {"path": '"notes.txt"', "format": '"csv"', "text": '"a"'},
}
# Plugins of a family whose provider they work with.
WITH_PROVIDER = {"data.masking", "data.mixture", "data.pack"}
# What works on a part of the model.
WHERE = {"parameters": '"role:matrix"', "adapter.lora": '"h.*.attn.c_attn"', "layer.moe": '"h.*.mlp"'}
# A value of these may be right and yet make a training that never ends: the plan alone is made.
PLAN_ONLY = {"run.length"}
# A number so large that training diverges is no mistake of the manifest's: the guard ends the run.
MAY_DIVERGE = ("optimizer", "parameters", "gradient", "schedule")


def wrong_type(kind):
    return "true" if kind.startswith("list") or kind in ("where", "string", "path") else "[1, 2]"


def keys_of_plugins():
    """(table, key, type) of every plugin, as the program itself lists them."""
    def ask(*args):
        return subprocess.run([e2e.MORTISE, *args], capture_output=True, check=True, text=True).stdout
    ids = [line.split()[0] for line in ask("plugin", "list").splitlines() if line]
    for plugin in ids:
        for key in json.loads(ask("plugin", "info", plugin, "--json"))["keys"]:
            yield plugin, key["key"], key["type"]


def keys_of_the_core():
    schema = tomllib.loads((e2e.SOURCE / "core/manifest/core_schema.toml").read_text())
    for table, keys in schema.items():
        if table == "later":
            continue
        for key, description in keys.items():
            place = {"every_plugin": "optimizer.adamw", "parameters": "parameters.mine"}.get(table, table)
            yield place, "block" if key == "any_point" else key, description["type"]


# Within its bounds, and more than this address space holds.
TOO_MUCH = [("model.gpt", "vocabulary", "2000000000"), ("data.random", "high", "2147483647"),
            ("data.random", "samples", "1000000000"), ("data.tokens", "vocabulary", "2147483647")]


def cases():
    for table, key, kind in [*keys_of_plugins(), *keys_of_the_core()]:
        for value in [*VALUES, wrong_type(kind)]:
            yield table, key, value
    yield from TOO_MUCH


def manifest(table, key, value):
    tables = {name: dict(keys) for name, keys in TINY.items()}
    family, _, name = table.partition(".")
    if name and family != "parameters" and table not in WITH_PROVIDER:  # one provider of a family
        tables = {t: keys for t, keys in tables.items() if t == table or not t.startswith(family + ".")}
    if table in ("model.bert", "model.vit"):  # which no text goes on from
        del tables["sample.text"]
    tables.setdefault(table, {}).update(BESIDE.get(f"{table}.{key}", {}))
    if where := WHERE.get(table, WHERE.get(family)):
        tables[table].setdefault("where", where)
    tables[table][key] = value
    return "".join(f"[{t}]\n" + "".join(f"{k} = {v}\n" for k, v in keys.items()) for t, keys in tables.items())


def limits():
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CPU, (PROCESSOR_S, PROCESSOR_S))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, 1 << 30))


def complaint(case, code, out, err):
    """What is wrong with this end; "" if nothing is."""
    if code < 0:
        return f"signal {-code}"
    diverged = code == 76 and "error[diverged]" in err and case[0].startswith(MAY_DIVERGE)
    if code not in ALLOWED and not diverged:
        return f"exit {code}"
    for trace in TRACES:
        if trace in out + err:
            return f"`{trace}` in what it says"
    # A plugin that this machine cannot run is told beside what is wrong with its value.
    errors = err.count("error[")
    of_the_machine = err.count("error[device_unusable]") + err.count("error[wrong_device]")
    if code != 0 and (errors == 0 or errors - of_the_machine > 1):
        return f"{errors} errors"
    return ""


class Bounds(unittest.TestCase):
    def test_every_number_of_every_plugin_has_bounds(self):
        missing = []
        for path in sorted((e2e.SOURCE / "plugins").glob("*/*/plugin.toml")):
            for key, schema in tomllib.loads(path.read_text()).get("config", {}).items():
                if schema["type"] not in ("int", "list<int>", "float", "list<float>", "amount", "duration", "bytes"):
                    continue
                whole = schema["type"] in ("int", "list<int>")  # counts and sizes, which multiply and are allocated
                if not {"min", "exclusive_min"} & schema.keys() or (whole and "max" not in schema):
                    missing.append(f"{path.parent.parent.name}.{path.parent.name}.{key}")
        self.assertEqual(missing, [])


class HostileValues(e2e.Case):
    def run_case(self, number, case):
        table, key, value = case
        folder = self.dir / str(number)
        folder.mkdir()
        text = manifest(table, key, value)
        (folder / "run.toml").write_text(text)
        (folder / "notes.txt").write_text(" ".join(str(n) for n in range(100)))
        verb = "plan" if f"{table}.{key}" in PLAN_ONLY else "train"
        try:
            done = subprocess.run([e2e.MORTISE, verb, "run.toml"], cwd=folder, env=self.environment(), timeout=WALL_S,
                                  stdin=subprocess.DEVNULL, capture_output=True, check=False, preexec_fn=limits)
        except subprocess.TimeoutExpired:
            return f"[{table}] {key} = {value}: hangs"
        out, err = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
        wrong = complaint(case, done.returncode, out, err)
        if not wrong:
            return ""
        said = f"[{table}] {key} = {value}: {wrong}\n{err[-600:]}"
        print(said, file=sys.stderr, flush=True)
        return said

    def test_every_key_takes_or_refuses_every_value(self):
        which = os.environ.get("MORTISE_HOSTILE", "")
        chosen = [c for c in cases() if which in ("", "all") or which in f"{c[0]}.{c[1]} = {c[2]}"]
        self.assertGreater(len(chosen), 0, which)
        deadline = None
        if not which:
            seed = int(os.environ.get("MORTISE_HOSTILE_SEED", random.randrange(10000)))
            random.Random(seed).shuffle(chosen)
            deadline = time.monotonic() + SECONDS
            print(f"seed {seed}: MORTISE_HOSTILE_SEED={seed} draws the same", file=sys.stderr)

        def run(numbered):
            late = deadline is not None and time.monotonic() > deadline
            return None if late else self.run_case(*numbered)
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            results = list(pool.map(run, enumerate(chosen)))
        ran = [r for r in results if r is not None]
        print(f"{len(ran)} of {len(chosen)} cases", file=sys.stderr)
        self.assertGreater(len(ran), 0)
        wrong = [r for r in ran if r]
        self.assertEqual(wrong, [], f"{len(wrong)} of {len(ran)}:\n" + "\n".join(wrong))


if __name__ == "__main__":
    e2e.main()
