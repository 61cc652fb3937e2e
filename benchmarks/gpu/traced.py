"""A training under CUPTI, for what times kernels; MORTISE names the binary, CUDA_TRACER what counts (tests/gpu/cupti).
"""

import collections
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

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
    """The steady steps, and the lines that it printed; or None, and why. Of several ranks those of rank 0, which alone
    is traced: all would write one file."""
    with tempfile.TemporaryDirectory() as folder:
        path, trace = pathlib.Path(folder, "run.toml"), pathlib.Path(folder, "trace.txt")
        path.write_text(manifest)
        port = random.randrange(20000, 32000)  # below those that the system gives out by itself
        started = []
        for rank in range(ranks):
            env = {"CUDA_INJECTION64_PATH": str(TRACER), "CUDA_TRACE": str(trace)} if rank == 0 else {}
            if ranks > 1:
                env |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": str(rank),
                        "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks)}
            started.append(subprocess.Popen([MORTISE, "train", path, *flags], cwd=folder, stdout=subprocess.PIPE,
                                            stderr=subprocess.PIPE, text=True, env={**os.environ, **env}))
        said = [process.communicate() for process in started]
        for process, (_, error) in zip(started, said):
            if process.returncode:
                return None, (error.splitlines() or [f"exit {process.returncode}"])[0]
        return cuda_trace.steady(cuda_trace.read(trace).steps()), said[0][0].splitlines()


def print_kernels(steps, most):
    """`steps` are lists of work: the names that took the longest, ms and times a step."""
    spent, times = collections.Counter(), collections.Counter()
    for work in (w for step in steps for w in step):
        spent[work.name] += work.end - work.start
        times[work.name] += 1
    for name, ns in spent.most_common(most):
        print(f"    {ns / 1e6 / len(steps):8.4f} ms {times[name] / len(steps):6.1f} x  {name[:150]}")
