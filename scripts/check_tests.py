#!/usr/bin/env python3
"""Every test of the tree is one that ctest runs. usage: scripts/check_tests.py BUILD_FOLDER CTEST

*_test.py   stands in the command of a registered test
*_test.cpp  is compiled into an executable that a registered test starts
"""
import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("core", "examples", "formats", "kernels", "plugins", "sdk", "tests")


def files(pattern):
    return sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob(pattern) if "fixtures" not in path.parts)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    build, ctest = Path(sys.argv[1]).resolve(), sys.argv[2]
    shown = subprocess.run([ctest, "--test-dir", build, "--show-only=json-v1"], check=True, capture_output=True,
                           text=True).stdout
    tests = json.loads(shown)["tests"]
    words = {word for test in tests for word in test.get("command", [])}
    # One that is not built yet has no command; its name is that of the executable all the same.
    programs = {Path(word).name for word in words} | {test["name"] for test in tests}
    compiled = {}  # source -> targets
    for entry in json.loads((build / "compile_commands.json").read_text()):
        target = re.search(r"CMakeFiles/([^/]+)\.dir/", entry["output"])
        compiled.setdefault(Path(entry["file"]).resolve(), set()).add(target[1] if target else "")
    errors = [f"{path.relative_to(ROOT)}: no registered test runs it" for path in files("*_test.py")
              if str(path) not in words]
    errors += [f"{path.relative_to(ROOT)}: no registered test has it" for path in files("*_test.cpp")
               if not compiled.get(path, set()) & programs]
    print(f"{len(files('*_test.py'))} tests in Python, {len(files('*_test.cpp'))} in C++")
    for error in errors:
        print(error)
    sys.exit(f"{len(errors)} not registered" if errors else 0)


if __name__ == "__main__":
    main()
