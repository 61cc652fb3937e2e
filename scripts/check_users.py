#!/usr/bin/env python3
"""Nothing of the interface is there for nobody. usage: scripts/check_users.py

functions  of a table that the host gives out: a plugin, an example or a test calls it, by itself or through a function
           of the wrapper that one of them calls; the fake host has it, but for those that need LibTorch (BY_TORCH)
objects    what a plugin gives: the core calls each of its functions
points     of the core: a plugin.toml of the tree attaches there; operators: a plugin's code asks for a layer of it
keys       of the core and of each plugin: a source of the core, or of the plugin or the C++ wrapper, names it, or a
           fact of the plugin.toml does
plugins    each has a test that includes the fake host, but a native one, which tests/gpu runs
"""
import re
import sys
from pathlib import Path

from check_core import is_native
from check_texts import tomllib

ROOT = Path(__file__).resolve().parent.parent
HEADERS = ROOT / "sdk/include/mortise"
CODE = {".c", ".cpp", ".h", ".hpp", ".def"}

# What the fake host leaves to tests over LibTorch, in core/host and tests/: graphs, and layers of other plugins.
BY_TORCH = {"autograd": {"apply", "save", "saved", "detach", "backward", "next_saving"}, "call": {"layer"}}


def text_of(path):
    return path.read_text(encoding="utf-8")


def sources(*folders, suffixes=frozenset(CODE)):
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*")) if path.suffix in suffixes]


def members(kind, ending):
    """Of each struct of the C headers whose name ends so: its functions of a kind, FN or PLUG."""
    found = {}
    for path in sorted(HEADERS.glob("*.h")):
        for name, body in re.findall(r"typedef struct mortise_(\w+) \{(.*?)\n\} mortise_\1;", text_of(path), re.S):
            functions = re.findall(kind + r"\((\w+)", body)
            if functions and name.endswith(ending):
                found[name.removesuffix("_api")] = functions
    return found


def wrappers():
    """The functions and classes of the C++ wrapper and of the C helpers, with their text."""
    found = []
    for path in [*sorted((HEADERS / "cpp").glob("*.hpp")), HEADERS / "plugin.h", HEADERS / "simple_optimizer.h"]:
        # Blocks begin in the first column, and so does what they are called.
        for block in re.split(r"\n(?=\S)", text_of(path)):
            head = block.split("{")[0]
            name = re.search(r"(?:class|struct) (\w+)", head) or re.search(r"(\w+)\(", head)
            if name:
                found.append((name[1], block))
    return found


def calls(table, function):
    # `api.loop->term(`, `loop_table().term(`, `kGradsApi.sum(`, and in C `ops->call1(`
    return re.compile(rf"(?:\b{table}\b|k{table.capitalize()}Api|{table}_table\(\))(?:->|\.){function}\b"
                      rf"|need\(api\.{table}[^;]*?\)\.{function}\b")


def function_errors():
    users = {path: text_of(path) for path in sources("plugins", "kernels", "examples", "tests", "sdk/tests", "core")
             if path.is_relative_to(ROOT / "plugins") or path.is_relative_to(ROOT / "kernels")
             or path.is_relative_to(ROOT / "examples") or path.is_relative_to(ROOT / "tests")
             or path.is_relative_to(ROOT / "sdk/tests") or "_test." in path.name or path.name.startswith("test_")
             or "fixtures" in path.parts}
    everything = "\n".join(users.values())
    wrapped = wrappers()
    fakes = "\n".join(text_of(path) for path in sorted((HEADERS / "testing").glob("*.hpp")))
    errors = []
    for table, functions in members("MORTISE_FN(?:_VOID)?", "_api").items():
        fake = "".join(re.findall(rf"mortise_{table}_api table = (.*?)\n    }};|\Z", fakes, re.S))
        fake += "".join(re.findall(rf"mortise_{table}_api table = ([^;]*?}});", fakes))
        for function in functions:
            pattern = calls(table, function)
            # Through one function of the wrapper that calls another, too.
            names = {name for name, block in wrapped if pattern.search(block)}
            for _ in range(2):
                names |= {name for name, block in wrapped
                          for inner in names if name != inner and re.search(rf"\b{inner}\b", block)}
            used = pattern.search(everything) or any(re.search(rf"\b{name}\b", everything) for name in names)
            if not used:
                errors.append(f"mortise.{table}/0 `{function}`: no plugin, example or test calls it")
            in_fake = re.search(rf"\.{function} =", fake)
            if not in_fake and function not in BY_TORCH.get(table, ()):
                errors.append(f"mortise.{table}/0 `{function}`: the fake host does not have it")
            if in_fake and function in BY_TORCH.get(table, ()):
                errors.append(f"mortise.{table}/0 `{function}`: the fake host has it: take it out of BY_TORCH")
    return errors


def object_errors():
    core = "\n".join(text_of(path) for path in sources("core", suffixes={".cpp", ".hpp"}) if "_test" not in path.name)
    return [f"mortise_{name}: the core never calls `{function}`"
            for name, functions in members("MORTISE_PLUG", "").items() if not name.endswith("_api")
            for function in functions
            if not re.search(rf"(?:mortise_{name}::|->|\.){function}\b", core)]


def point_errors():
    tomls = [text_of(path) for path in sources("plugins", "sdk/tests", "core", suffixes={".toml"})]
    points = [re.search(r"\[points\](.*?)(?:\n\[|\Z)", toml, re.S) for toml in tomls]
    attached = "\n".join(found[1] for found in points if found)
    rows = re.findall(r'^POINT\(\w+, "([^"]+)", \w+, (\w+)', text_of(ROOT / "core/plan/points.def"), re.M)
    errors = [f"point `{row}`: no plugin.toml of the tree attaches there" for row, kind in rows
              if f'"{row}"' not in attached and not (kind == "Call" and '"*"' in attached)]
    brought = "\n".join(text_of(path) for path in sources("plugins", suffixes={".toml"}))
    operators = sorted(set(re.findall(r"^\[operator\.(\w+)\]", brought, re.M)))
    code = "\n".join(text_of(path) for path in [*sources("plugins"), *sorted((HEADERS / "cpp").glob("*.hpp"))]
                     if "_test." not in path.name)
    tests = "\n".join(text_of(path) for path in sources("plugins", "tests", "core")
                      if "_test." in path.name or "fixtures" in path.parts)
    for name in operators:
        asks = re.search(rf'(?:layer|operator|linear|table)\(\s*"{name}"', code) or f'layer("{name}"' in code
        if not asks and not re.search(rf'"{name}", *\w*(?:path|spec)', code):
            errors.append(f"operator `{name}`: no plugin's code asks for a layer of it")
        if f'"{name}"' not in tests:
            errors.append(f"operator `{name}`: no test names it")
    return errors


def key_errors():
    """Whether who names a key reads it is not seen: a key that nobody names is read by nobody."""
    def unnamed(keys, code):
        return [key for key in keys if f'"{key}"' not in code]

    def code_of(*folders):
        return "\n".join(text_of(path) for path in sources(*folders) if "_test." not in path.name)

    core = code_of("core")
    schema = tomllib.loads(text_of(ROOT / "core/manifest/core_schema.toml"))
    errors = [f"core/manifest/core_schema.toml: no source of the core names [{table}] `{key}`"
              for table, keys in schema.items() if table != "later" for key in unnamed(keys, core)]
    wrapper = code_of("sdk/include/mortise/cpp") + code_of("sdk/include/mortise/runtime")
    for path in sorted(ROOT.glob("plugins/*/*/plugin.toml")):
        toml = tomllib.loads(text_of(path))
        facts = " ".join(f'"{value}"' for name, table in toml.items() if name != "config" and isinstance(table, dict)
                         for value in table.values())
        presets = '"preset"' if "preset" in toml else ""  # read by the core
        errors += [f"{path.relative_to(ROOT)}: no source of the plugin names its key `{key}`"
                   for key in unnamed(toml.get("config", {}), code_of(path.parent) + wrapper + facts + presets)]
    return errors


def plugin_errors():
    tested = {path.parent for path in sources("plugins") if ("_test." in path.name or path.name == "testing.hpp")
              and re.search(r"testing/fake_\w+\.hpp", text_of(path))}
    return [f"{toml.parent.relative_to(ROOT)}: no test of it includes the fake host"
            for toml in sources("plugins", suffixes={".toml"})
            if toml.name == "plugin.toml" and not is_native(toml)
            and not any(folder.is_relative_to(toml.parent) for folder in tested)]


def main():
    if len(sys.argv) != 1:
        sys.exit(__doc__)
    errors = function_errors() + object_errors() + point_errors() + key_errors() + plugin_errors()
    for error in errors:
        print(error)
    sys.exit(f"{len(errors)} things of the interface are there for nobody" if errors else 0)


if __name__ == "__main__":
    main()
