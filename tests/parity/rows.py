"""What the comparisons share: the device that Mortise and its peers compute on, PARITY_DEVICE ("cpu" or "cuda"), and
where their results go, the file that PARITY_ROWS names: a line of JSON each, from which fidelity.py makes a page."""

import importlib.util
import json
import os
import pathlib

DEVICE = os.environ.get("PARITY_DEVICE", "cpu")
ON_DEVICE = f"\n[device.{DEVICE}]\n"


def note(peer, what, figure, bound, ok):
    """`ok`, noted. `figure` and `bound` are texts, as a person reads them."""
    if path := os.environ.get("PARITY_ROWS"):
        row = {"device": DEVICE, "peer": peer, "what": what, "figure": figure, "bound": bound, "ok": bool(ok)}
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
    return ok


def text(size):
    """That many bytes of what people wrote, the same wherever the peers' versions are: transformers' own source. How
    far two trainings part from a last bit on depends on the text, so it is none that changes with this tree."""
    package = pathlib.Path(importlib.util.find_spec("transformers").origin).parent
    data = (package / "trainer.py").read_bytes()[:size]
    assert len(data) == size, (package, len(data))
    return data
