#!/usr/bin/env python3
"""The laws of core/ that a compiler does not enforce. usage: scripts/check_core.py includes|names|size

includes  the rooms include one another downwards only, without a circle; LibTorch only where it may be; plugins,
          kernels and formats see no core
names     core/ names no technique: no plugin's id or name stands in it
size      every room, and every format, keeps to its budget of lines of code
Tests (*_test.cpp, test_*, testing.*, fixtures/) may include and name what they like, except that core/ never includes
plugins/ or kernels/.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = {".cpp", ".hpp", ".h", ".c", ".def", ".cu", ".cuh"}

# Who may include whom. cli -> loop -> plan -> plugin -> manifest -> base, with host, model and store beside loop.
MAY_INCLUDE = {
    "base": set(),
    "manifest": {"base"},
    "plugin": {"manifest", "base"},
    "plan": {"plugin", "manifest", "base"},
    "model": {"plan", "base"},
    "store": {"base"},
    "abi": {"model", "plan", "plugin", "manifest", "base"},
    "declare": {"abi", "model", "plan", "plugin", "manifest", "base"},
    "host": {"abi", "model", "plan", "plugin", "manifest", "base"},  # never loop: loop drives the host
    "loop": {"host", "abi", "declare", "model", "store", "plan", "base"},
    "assemble": {"loop", "host", "declare", "abi", "model", "store", "plan", "plugin", "manifest", "base"},
    "cli": {"assemble", "host", "declare", "abi", "model", "store", "plan", "plugin", "manifest", "base"},
}
TORCH_ROOMS = {"host", "loop", "assemble"}
TORCH_HEADER = re.compile(r"^(torch|ATen|c10|caffe2)/")

# Plugins whose names are words that prose and code use in other senses: only the full id is looked for.
ORDINARY = set("""
    accumulation accuracy aten auto byte console constant context cpu cuda efficient fused gpu half host huggingface
    jsonl linear local math none offload optimizer patience pipeline prefetch random safetensors sync table tensor text
    tokens zero nonfinite memory file shell weights noise calls
""".split())
# Techniques by name, whether their plugin is in the tree yet or not.
TECHNIQUES = set("""
    adafactor adam adamw adamw_8bit adamw_anyprecision bert bf16 checkpointing clip cosine cudnn cuda_graph ddp dropless
    empty_cache flash fp16 fp32 fsdp gpt kahan lion llama lora momentum moe muon nesterov nvme rmsprop sgd tensorboard
    tf32 wandb zero1 zero2 zero3
""".split())
# Names of plugins that are names of element types too. In capitals ("BF16" of safetensors), or in a line with the
# type's own constant (`if (name == "bf16") return MORTISE_BF16;`), the type is meant.
ELEMENT_TYPES = {"bf16", "fp16", "fp32"}
# A name of LibTorch that has such a word in it.
OF_LIBTORCH = re.compile(r"\bcall_(un)?pack_hook\b")
ELEMENT_CONSTANT = re.compile(r"\bMORTISE_(BF16|F16|F32)\b|\bat::k(BFloat16|Half|Float)\b")

# Lines of code a room may have: docs/adr/0013-a-budget-a-room.md.
BUDGETS = {
    "base": 758,
    "manifest": 2021,
    "plugin": 1831,
    "plan": 2022,
    "model": 415,
    "host": 2362,
    "loop": 2632,
    "abi": 1734,
    "declare": 2007,
    "assemble": 1320,
    "store": 1396,
    "cli": 7100,
}
FORMAT_BUDGETS = {"elf": 200, "huggingface": 860, "safetensors": 300, "toml": 350}


def is_test(path):
    return (
        path.name.endswith(("_test.cpp", "_test.hpp"))
        or path.name.startswith(("test_", "testing."))
        or bool({"fixtures", "testdata"} & set(path.parts))
    )


def files(*folders, suffixes=SOURCES):
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and path.suffix in suffixes:
                yield path.relative_to(ROOT)


def includes(path):
    """(line number, what is included, True when in quotes)"""
    for number, line in enumerate((ROOT / path).read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        match = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
        if match:
            yield number, match[2], match[1] == '"'


def resolve(path, name):
    """The file of the tree that an include names, or None."""
    for candidate in (Path(name), path.parent / name):
        if (ROOT / candidate).is_file():
            return Path((ROOT / candidate).resolve().relative_to(ROOT))
    return None


def is_native(toml):
    """Is this the plugin.toml of a plugin that is pinned to one build of LibTorch?"""
    return toml.is_file() and re.search(r'^tier *= *"native"', toml.read_text(encoding="utf-8"), re.M) is not None


def is_of_family(path):
    """Does this file lie beside the plugins of a family, which share it?"""
    return path.parts[0] == "plugins" and len(path.parts) == 3


def is_of_native(path):
    if is_of_family(path):
        return any(is_native(toml) for toml in (ROOT / path.parent).glob("*/plugin.toml"))
    return is_native(ROOT / path.parent / "plugin.toml")


def check_includes():
    errors = []
    graph = {}  # file of core/ -> files of core/
    for path in files("core"):
        room = path.parts[1]
        if len(path.parts) < 3 or room not in MAY_INCLUDE:
            errors.append(f"{path}: core/ has no room `{room}` in scripts/check_core.py")
            continue
        for number, name, quoted in includes(path):
            at = f"{path}:{number}"
            target = resolve(path, name)
            if name.startswith(("plugins/", "kernels/")) or (target and target.parts[0] in ("plugins", "kernels")):
                errors.append(f"{at}: core/ includes nothing of plugins/ or kernels/: {name}")
            if is_test(path):
                continue
            if TORCH_HEADER.match(name) and room not in TORCH_ROOMS:
                errors.append(
                    f"{at}: LibTorch's headers belong in core/{' and core/'.join(sorted(TORCH_ROOMS))}: {name}"
                )
            if target and target.parts[0] == "core":
                graph.setdefault(path, []).append(target)
                if target.parts[1] != room and target.parts[1] not in MAY_INCLUDE[room]:
                    errors.append(f"{at}: core/{room} may not include core/{target.parts[1]}: {name}")
                if is_test(target):
                    errors.append(f"{at}: a test's file, included by one that is not: {name}")
            elif quoted and name.startswith("core/"):
                errors.append(f"{at}: there is no such file: {name}")

    for path in files("plugins", "kernels", "formats"):
        if is_test(path):
            continue
        for number, name, _ in includes(path):
            target = resolve(path, name)
            at = f"{path}:{number}"
            if path.parts[0] == "formats":
                if name.startswith("mortise/") or (target and target.parts[0] != "formats"):
                    errors.append(f"{at}: formats/ includes nothing of the tree but itself: {name}")
            elif name.startswith("core/") or (target and target.parts[0] == "core"):
                errors.append(f"{at}: {path.parts[0]}/ sees sdk/ and kernels/, never core/: {name}")
            if TORCH_HEADER.match(name) and not is_of_native(path):
                errors.append(f"{at}: no LibTorch here: {name}")
            if (
                path.parts[0] == "plugins"
                and target
                and target.parts[0] == "plugins"
                and target.parts[:3] != path.parts[:3]
                and not (is_of_family(target) and target.parts[1] == path.parts[1])
            ):
                errors.append(f"{at}: a plugin does not include another plugin's files: {name}")

    return errors + circles(graph)


def circles(graph):
    errors, state = [], {}

    def visit(node, trail):
        state[node] = "open"
        for target in graph.get(node, []):
            if state.get(target) == "open":
                errors.append("a circle: " + " -> ".join(str(step) for step in trail[trail.index(target):] + [target]))
            elif target not in state:
                visit(target, trail + [target])
        state[node] = "done"

    for node in graph:
        if node not in state:
            visit(node, [node])
    return errors


def check_names():
    ids = {f"{path.parts[-3]}.{path.parts[-2]}" for path in (ROOT / "plugins").glob("*/*/plugin.toml")}
    words = TECHNIQUES | {name for name in (plugin.split(".")[1] for plugin in ids) if name not in ORDINARY}
    # A word by itself or as a part of a longer name: `adamw`, `AdamW`, `fused_adamw_`, not `gradient_clipped` for
    # `clip`.
    any_case = re.compile(
        r"(?<![A-Za-z0-9])(" + "|".join(sorted(words - ELEMENT_TYPES, key=len, reverse=True)) + r")(?![A-Za-z0-9])",
        re.IGNORECASE,
    )
    types = re.compile(r"(?<![A-Za-z0-9])(" + "|".join(sorted(words & ELEMENT_TYPES)) + r")(?![A-Za-z0-9])")
    full = (
        re.compile(r"(?<![\w.])(" + "|".join(re.escape(plugin) for plugin in sorted(ids)) + r")(?![\w])")
        if ids
        else None
    )
    errors = []
    for path in files("core", suffixes={".cpp", ".hpp", ".h", ".c", ".def", ".toml"}):
        if is_test(path):
            continue
        for number, line in enumerate((ROOT / path).read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            for pattern in (full, any_case, types):
                match = pattern.search(OF_LIBTORCH.sub("", line)) if pattern else None
                if match and not (pattern is types and ELEMENT_CONSTANT.search(line)):
                    errors.append(
                        f"{path}:{number}: the core names no technique: `{match[1]}` in: {line.strip()[:120]}"
                    )
                    break
    return errors


def check_size():
    code, every = {}, {}
    budgets = {f"core/{room}": most for room, most in BUDGETS.items()}
    budgets |= {f"formats/{name}": most for name, most in FORMAT_BUDGETS.items()}
    for path in files("core", "formats"):
        if is_test(path) or path.suffix == ".def" or len(path.parts) < 3:  # rows of data; what formats share
            continue
        room = "/".join(path.parts[:2])
        lines = (ROOT / path).read_text(encoding="utf-8", errors="replace").splitlines()
        every[room] = every.get(room, 0) + len(lines)
        code[room] = code.get(room, 0) + sum(1 for line in lines if not re.fullmatch(r"\s*(//.*)?", line))
    for room, count in sorted(code.items()):
        print(f"{room}: {count} lines of code of {budgets.get(room, 0)}, {every[room]} with comments and blank lines")
    core = sum(count for room, count in code.items() if room.startswith("core/"))
    print(f"core: {core} lines of code of {sum(BUDGETS.values())}")
    return [
        f"{room} has {count} lines of code, its budget is {budgets.get(room, 0)}: move something out, or raise it"
        " in a record that says what came in (docs/adr/0013-a-budget-a-room.md)"
        for room, count in sorted(code.items())
        if count > budgets.get(room, 0)
    ]


def main():
    checks = {"includes": check_includes, "names": check_names, "size": check_size}
    if len(sys.argv) != 2 or sys.argv[1] not in checks:
        sys.exit(__doc__)
    errors = checks[sys.argv[1]]()
    for error in errors:
        print(error)
    sys.exit(f"{len(errors)} against the law" if errors else 0)


if __name__ == "__main__":
    main()
