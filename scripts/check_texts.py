#!/usr/bin/env python3
"""Laws of what is written, in the sources and in the documents. usage: scripts/check_texts.py verbs|lines

verbs   every `mortise VERB` in a text names a verb of core/cli/verbs.cpp, and its word after that if it has several
lines   no line of source is longer than 120 characters
"""
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MOST_COLUMNS = 120
SOURCE = {".cpp", ".hpp", ".h", ".c", ".cu", ".cuh", ".def", ".py", ".sh", ".cmake", ".toml"}
TEXT = SOURCE | {".md", ".in"}
NAMES = {"CMakeLists.txt", "Makefile"}


def files(suffixes):
    """Files of the tree: tracked, or new and not ignored."""
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
                            capture_output=True, text=True, check=False)
    if listed.returncode != 0:  # an archive of the sources has no git
        names = [str(path.relative_to(ROOT)) for top in sorted(ROOT.iterdir())
                 if not top.name.startswith((".", "build")) for path in ([top] if top.is_file() else top.rglob("*"))]
    else:
        names = listed.stdout.splitlines()
    for name in sorted(set(names)):
        path = ROOT / name
        if path.is_file() and not path.is_symlink() and (path.suffix in suffixes or path.name in NAMES):
            yield path.relative_to(ROOT)


def lines_of(path):
    return (ROOT / path).read_text(encoding="utf-8", errors="replace").split("\n")


def verbs():
    """Each verb of the program with the words that may follow it; none: whatever follows."""
    main = (ROOT / "core/cli/verbs.cpp").read_text(encoding="utf-8")
    table = main[main.index("Verb>& verbs()"):]
    found = re.findall(r'\{"([a-z]+)",\s*"([^"]*)",\s*"', table[:table.index("return all;")])
    return {verb: set(re.findall(r"\b[a-z]+\b", usage)) for verb, usage in found}


def check_verbs():
    known = verbs()
    if not {"train", "plugin"} <= set(known):
        return [f"core/cli/verbs.cpp: the verbs are not found where they were: {sorted(known)}"]
    said = re.compile(r"(?<![\w./-])mortise ([a-z]+)(?: ([a-z]+)\b(?![./:]))?")
    errors = []
    for path in files(TEXT):
        for number, line in enumerate(lines_of(path), 1):
            for match in said.finditer(line):
                verb, word = match[1], match[2]
                if verb not in known:
                    errors.append(f"{path}:{number}: there is no verb `{verb}`: {line.strip()[:100]}")
                elif word and known[verb] and word not in known[verb]:
                    errors.append(f"{path}:{number}: there is no `mortise {verb} {word}`: {line.strip()[:100]}")
    return errors


def check_lines():
    return [f"{path}:{number}: {len(line)} characters; a line has at most {MOST_COLUMNS}"
            for path in files(SOURCE) for number, line in enumerate(lines_of(path), 1) if len(line) > MOST_COLUMNS]


def main():
    checks = {"verbs": check_verbs, "lines": check_lines}
    if len(sys.argv) != 2 or sys.argv[1] not in checks:
        sys.exit(__doc__)
    errors = checks[sys.argv[1]]()
    print("\n".join(errors))
    sys.exit(f"{len(errors)} against the law" if errors else 0)


if __name__ == "__main__":
    main()
