"""Accumulation equals the big batch: micro-batches of unlike lengths, and a short last window (44 samples in steps of
8).

In fp64 every tensor within 1e-9 of its largest element, for every optimizer: sums are grouped in another way, an error
of 1e-16 a sum, which Adam's division by a small root amplifies. In fp32 Adam amplifies the rounding of gradients whose
true value is zero (the key bias), so the claim there is about the loss, 1e-6 relative, and, with SGD, which does not
divide, about the whole parameter vector, 1e-6 of its norm.
"""

import json
import math
import struct

import e2e

MANIFEST = """\
[run]
length = "2 epochs"
[log]
every = 1
[data]
micro_batch_size = {micro}
sequence_length = 24
pad_to_multiple = 1
[data.random]
samples = 44
low = 1
high = 60
shortest = 4
[model.gpt]
layers = 2
heads = 2
width = 16
context = 24
[optimizer]
lr = {lr}
{optimizer}
{more}
"""
FP64 = "[parameters.all]\nwhere = \"*\"\ndtype = \"fp64\"\n"
ADAMW, SGD = "[optimizer.adamw]", "[optimizer.sgd]\nmomentum = 0.9"


def tensors(path):
    data = path.read_bytes()
    (n,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + n])
    kinds = {"F32": ("f", 4), "F64": ("d", 8)}
    found = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        letter, size = kinds[entry["dtype"]]
        begin, end = (8 + n + offset for offset in entry["data_offsets"])
        found[name] = struct.unpack(f"<{(end - begin) // size}{letter}", data[begin:end])
    return found


class Compared(e2e.Case):
    """Runs as (tensors, losses)."""

    def same_tensors(self, one, other):
        self.assertEqual(one.keys(), other.keys())
        for name, values in one.items():
            self.assertEqual(len(values), len(other[name]))
            largest = max(abs(v) for v in values)
            worst = max(abs(a - b) for a, b in zip(values, other[name]))
            self.assertLessEqual(worst, 1e-9 * max(largest, 1e-3), name)

    def near(self, one, other, tolerance):
        self.assertEqual(len(one), len(other))
        for a, b in zip(one, other):
            self.assertTrue(math.isclose(a, b, rel_tol=tolerance), (one, other))


class Accumulation(Compared):
    def run_with(self, name, micro, count, lr, optimizer, more):
        accumulate = f"[step.accumulation]\ncount = {count}\n" if count > 1 else ""
        run = self.train(name, MANIFEST.format(micro=micro, lr=lr, optimizer=optimizer, more=accumulate + more))
        return tensors(self.checkpoint(run) / "model/model.safetensors"), [r["loss"] for r in self.records(run, "step")]

    def pairs(self, lr, optimizer, more):
        big = self.run_with("big", 8, 1, lr, optimizer, more)
        self.assertEqual(len(big[1]), 12)  # two epochs of five whole windows and a short one
        for micro, count in ((2, 4), (1, 8)):
            yield big, self.run_with(f"micro{micro}", micro, count, lr, optimizer, more)

    def every_tensor_in_fp64(self, lr, optimizer):
        for (big, _), (small, _) in self.pairs(lr, optimizer, FP64):
            self.same_tensors(big, small)

    def test_adamw_in_fp64(self):
        self.every_tensor_in_fp64(1e-3, ADAMW)

    def test_sgd_in_fp64(self):
        self.every_tensor_in_fp64(1e-1, SGD)

    def test_the_loss_in_fp32(self):
        for (_, big), (_, small) in self.pairs(1e-3, ADAMW, ""):
            self.near(big, small, 1e-6)

    def test_all_parameters_of_sgd_in_fp32(self):
        for (big, _), (small, _) in self.pairs(1e-1, SGD, ""):
            apart = math.sqrt(sum((a - b) ** 2 for name in big for a, b in zip(big[name], small[name])))
            norm = math.sqrt(sum(a * a for values in big.values() for a in values))
            self.assertLessEqual(apart, 1e-6 * norm)


if __name__ == "__main__":
    e2e.main()
