"""A training under CUPTI, for what times kernels; MORTISE names the binary, CUDA_TRACER what counts (tests/gpu/cupti).
"""

import collections
import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/gpu"))
import cuda_trace  # noqa: E402

# Absolute: they are used from another folder.
MORTISE = os.path.abspath(shutil.which(os.environ.get("MORTISE", "mortise")) or "mortise")
TRACER = next((path.resolve() for path in (pathlib.Path(os.environ.get("CUDA_TRACER", "")),
                                           ROOT / "tests/gpu/cupti/trace.so", ROOT / "build/fixtures/cupti/trace.so")
               if path.is_file()), None)


def begin():
    """Prints the GPU's name; ends the program where nothing counts."""
    if not TRACER:
        sys.exit("no trace.so, which counts by CUPTI: CUDA_TRACER=build/fixtures/cupti/trace.so")
    print(subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False).stdout.split(" (")[0])


def train(manifest, *flags, ranks=1):
    """The steady steps of a training, and the lines that it printed; or None, and why."""
    return cuda_trace.train(MORTISE, TRACER, manifest, *flags, ranks=ranks)


def print_kernels(steps, most):
    """`steps` are lists of work: the names that took the longest, ms and times a step."""
    spent, times = collections.Counter(), collections.Counter()
    for work in (w for step in steps for w in step):
        spent[work.name] += work.end - work.start
        times[work.name] += 1
    for name, ns in spent.most_common(most):
        print(f"    {ns / 1e6 / len(steps):8.4f} ms {times[name] / len(steps):6.1f} x  {name[:150]}")
