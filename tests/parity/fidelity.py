"""docs/fidelity.md from what the last comparisons found. usage: fidelity.py ROWS… > docs/fidelity.md

A file of rows is what PARITY_ROWS named while tests/parity ran on one machine: its first line says which, by `--begin`:

    fidelity.py --begin ROWS     begins a file anew, with this machine, its versions and the date
"""

import datetime
import json
import os
import pathlib
import platform
import subprocess
import sys

HEAD = """\
# Fidelity

What a run here has in common with the same run in PyTorch, transformers and bitsandbytes: same weights, same batches,
same settings. This page is generated from the last comparisons by `tests/parity/fidelity.py`; how each bound was found
stands at the head of its script in `tests/parity`. `make parity` compares on the CPU, `build-gpu/parity.sh` on a
machine with a GPU ([contributing](contributing.md)).
"""


def version(module):
    try:
        return f"{module} {__import__(module).__version__}"
    except ImportError:
        return f"no {module}"


def machine(device):
    if device == "cuda":
        import torch

        return f"{torch.cuda.get_device_name()}, CUDA {torch.version.cuda}"
    names = [line.split(":", 1)[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
             if line.startswith("model name")]
    return f"{len(os.sched_getaffinity(0))} cores of {names[0] if names else platform.machine()}"


def begin(path):
    device = os.environ.get("PARITY_DEVICE", "cpu")
    mortise = subprocess.run([os.environ["MORTISE"], "--version"], capture_output=True, text=True, check=True).stdout
    about = {"device": device, "machine": machine(device), "date": datetime.date.today().isoformat(),
             "versions": ", ".join([mortise.splitlines()[0], *map(version, ("torch", "transformers", "bitsandbytes"))])}
    pathlib.Path(path).write_text(json.dumps(about) + "\n")


def page(paths):
    lines = [HEAD]
    for path in paths:
        about, *found = map(json.loads, pathlib.Path(path).read_text().splitlines())
        failed = sum(not row["ok"] for row in found)
        lines += [f"## On {'a GPU' if about['device'] == 'cuda' else 'the CPU'}", "",
                  f"{about['machine']}; {about['versions']}; {about['date']}. {len(found)} comparisons, "
                  f"{failed or 'none'} failed.", "", "| what | beside | found | bound | |", "|---|---|---|---|---|"]
        for row in found:
            cells = [row["what"], row["peer"], row["figure"], row["bound"], "" if row["ok"] else "**failed**"]
            lines.append("| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    if sys.argv[1] == "--begin":
        begin(sys.argv[2])
    else:
        print(page(sys.argv[1:]), end="")
