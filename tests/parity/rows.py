"""What the comparisons share: the device that Mortise and its peers compute on, PARITY_DEVICE ("cpu" or "cuda"), and
where their results go, the file that PARITY_ROWS names: a line of JSON each, from which fidelity.py makes a page."""

import json
import os
import pathlib

DEVICE = os.environ.get("PARITY_DEVICE", "cpu")
ON_DEVICE = f"\n[device.{DEVICE}]\n"
ROOT = pathlib.Path(__file__).resolve().parents[2]


def note(peer, what, figure, bound, ok):
    """`ok`, noted. `figure` and `bound` are texts, as a person reads them."""
    if path := os.environ.get("PARITY_ROWS"):
        row = {"device": DEVICE, "peer": peer, "what": what, "figure": figure, "bound": bound, "ok": bool(ok)}
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
    return ok


def text(size):
    """That many bytes of what people wrote: of this tree, or of the tests in a folder that was carried elsewhere."""
    files = sorted((ROOT / "core").rglob("*.cpp")) or sorted((ROOT / "tests").rglob("*.py"))
    data = b"".join(path.read_bytes() for path in files)[:size]
    assert len(data) == size, (ROOT, len(data))
    return data
