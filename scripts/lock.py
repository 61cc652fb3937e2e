#!/usr/bin/env python3
"""Writes a requirements file with the hash of every wheel, for every Python that LibTorch has wheels for (Linux
x86_64).

scripts/lock.py OUTPUT [--with-dependencies] REQUIREMENT...

Only for whoever changes a pinned version; set-up and CI read the files that it wrote. The hashes are those that pip
reports for whatever index this machine is configured with; nothing is downloaded but metadata where the index offers it
alone.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile

PYTHONS = ["3.10", "3.11", "3.12", "3.13", "3.14"]
PLATFORMS = [f"manylinux_2_{n}_x86_64" for n in range(28, 4, -1)] + [
    "manylinux2014_x86_64",
    "manylinux2010_x86_64",
    "manylinux1_x86_64",
]


def interpreter(python):
    """pip takes the markers of the interpreter that runs it, so that version itself where it is installed."""
    name = f"python{python}"
    works = (
        subprocess.run(
            [name, "-m", "pip", "--version"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False
        )
        if shutil.which(name)
        else None
    )
    if works is not None and works.returncode == 0:
        return name
    print(f"  there is no {name} here; this interpreter's markers stand in for its own", file=sys.stderr)
    return sys.executable


def resolve(python, requirements, dependencies):
    """What pip would install with this Python: {name: (version, sha256)}."""
    with tempfile.TemporaryDirectory() as scratch:
        report = os.path.join(scratch, "report.json")
        command = [
            interpreter(python),
            "-m",
            "pip",
            "install",
            "--quiet",
            "--dry-run",
            "--ignore-installed",
            "--report",
            report,
            "--target",
            scratch,
            "--only-binary=:all:",
            "--python-version",
            python,
        ]
        command += [word for platform in PLATFORMS for word in ("--platform", platform)]
        command += [] if dependencies else ["--no-deps"]
        subprocess.run(command + requirements, check=True, stderr=sys.stderr)
        with open(report, encoding="utf-8") as file:
            found = json.load(file)["install"]
    return {
        item["metadata"]["name"]
        .lower()
        .replace("_", "-"): (item["metadata"]["version"], item["download_info"]["archive_info"]["hashes"]["sha256"])
        for item in found
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("output")
    parser.add_argument("--with-dependencies", action="store_true")
    parser.add_argument("requirements", nargs="+")
    args = parser.parse_args()

    pins = {}  # (name, version) -> {python: sha256}
    for python in PYTHONS:
        print(f"Python {python} …", file=sys.stderr)
        for name, (version, sha256) in resolve(python, args.requirements, args.with_dependencies).items():
            pins.setdefault((name, version), {})[python] = sha256

    lines = [
        f"# Written by: scripts/{os.path.basename(__file__)} {' '.join(sys.argv[1:])}",
        f"# Wheels for Python {PYTHONS[0]} to {PYTHONS[-1]}, Linux x86_64.",
    ]
    for (name, version), hashes in sorted(pins.items()):
        marker = ""
        if len(hashes) < len(PYTHONS):
            marker = " ; " + " or ".join(f'python_version == "{python}"' for python in hashes)
        lines.append(
            " \\\n".join(
                [f"{name}=={version}{marker}"]
                + [f"    --hash=sha256:{sha256}" for sha256 in sorted(set(hashes.values()))]
            )
        )
    with open(args.output, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
