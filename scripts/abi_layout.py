#!/usr/bin/env python3
"""Every struct and constant that crosses the ABI, with sizes and offsets: scripts/abi_layout.py [--check] [CC]

Prints what the SDK's C headers say on this machine: of a struct its size, of a member its offset, its size and its
declaration. sdk/abi_layout.txt is that text; `--check` (in `make test`) fails where it differs. A difference is a
change of the interface: below 1.0 the minor version in abi.h goes up with it, and from then on members are only added,
at the end of a struct.
"""
import difflib
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
INCLUDE, KEPT = ROOT / "sdk/include", ROOT / "sdk/abi_layout.txt"
HEADERS = "".join(f'#include "mortise/{p.name}"\n' for p in sorted((INCLUDE / "mortise").glob("*.h"))
                  if p.name != "simple_optimizer.h")  # compiled into the plugin: nothing of it crosses


def preprocessed(cc):
    """What the headers of the SDK say once macros are expanded, without those of the C library."""
    command = [cc, "-std=c11", "-E", f"-I{INCLUDE}", "-x", "c", "-"]
    lines, ours = [], False
    for line in subprocess.run(command, input=HEADERS, capture_output=True, text=True, check=True).stdout.splitlines():
        if marker := re.match(r'# \d+ "([^"]*)"', line):
            ours = "/mortise/" in marker[1]
        elif ours:
            lines.append(line)
    text = " ".join(" ".join(lines).split())
    return re.sub(r" ?\* ?(\*?) ?", r" *\1", text).replace("( *", "(*")  # compilers differ in their spaces


def closing(text, at):
    """The place of the brace that closes the one at `at`."""
    depth = 0
    for i in range(at, len(text)):
        depth += (text[i] == "{") - (text[i] == "}")
        if depth == 0:
            return i
    raise ValueError(text[at : at + 60])


def split(text, separator):
    """`text` at separators that stand in no brackets."""
    parts, depth, begin = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "({[") - (c in ")}]")
        if c == separator and depth == 0:
            parts.append(text[begin:i].strip())
            begin = i + 1
    return [p for p in parts + [text[begin:].strip()] if p]


def members(body):
    """(name, declaration) of each member."""
    for declaration in split(body, ";"):
        if function := re.search(r"\( ?\* ?(\w+) ?\)", declaration):
            yield function[1], declaration
            continue
        first, *others = split(declaration, ",")
        kind = first if first.endswith("]") else first[: re.search(r"\w+$", first).start()]
        for each in [first, *others]:
            name = re.search(r"(\w+)(\[[^]]*\])?$", each)[1]
            yield name, each if each is first else f"{kind.rstrip('* ')} {each}"


def structs(text):
    for found in re.finditer(r"struct (mortise_\w+) \{", text):
        end = closing(text, found.end() - 1)
        yield found[1], list(members(text[found.end() : end]))


def constants(text):
    for found in re.finditer(r"enum (?:\w+ )?\{", text):
        for each in split(text[found.end() : closing(text, found.end() - 1)], ","):
            yield each.split("=")[0].strip()


def quoted(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def layout(cc):
    text = preprocessed(cc)
    body = []
    for name in ("MORTISE_ABI_MAJOR", "MORTISE_ABI_MINOR", *constants(text)):
        body.append(f'printf("%s = %lld\\n", {quoted(name)}, (long long){name});')
    for name, all_members in structs(text):
        body.append(f'printf("\\n%s: %zu bytes\\n", {quoted(name)}, sizeof(struct {name}));')
        for member, declaration in all_members:
            place = f"struct {name}, {member}"
            body.append(f'printf("%4zu %3zu  %s\\n", offsetof({place}), sizeof(((struct {name}*)0)->{member}), '
                        f"{quoted(declaration)});")
    with tempfile.TemporaryDirectory() as folder:
        source, program = pathlib.Path(folder) / "layout.c", pathlib.Path(folder) / "layout"
        source.write_text(f"#include <stdio.h>\n{HEADERS}int main(void) {{\n" + "\n".join(body) + "\nreturn 0;\n}\n")
        subprocess.run([cc, "-std=gnu11", f"-I{INCLUDE}", str(source), "-o", str(program)], check=True)
        return subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout


def main():
    words = [w for w in sys.argv[1:] if w != "--check"]
    now = layout(words[0] if words else "cc")
    if "--check" not in sys.argv:
        return print(now, end="")
    kept = KEPT.read_text() if KEPT.exists() else ""
    if now != kept:
        sys.stdout.writelines(difflib.unified_diff(kept.splitlines(True), now.splitlines(True), str(KEPT.name), "now"))
        sys.exit("the interface changed: if that is meant, raise MORTISE_ABI_MINOR and write the file anew with\n"
                 "  scripts/abi_layout.py > sdk/abi_layout.txt")


if __name__ == "__main__":
    main()
