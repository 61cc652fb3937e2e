#!/usr/bin/env python3
"""What `mortise plan` says of memory beside what the GPU's allocator holds between two steps.

    MORTISE=build/bin/mortise python3 tests/gpu/gpu_memory_test.py [Class.test]

At rest, after the first steps, weights, gradients, states, casts and workspaces are all there is, but for a batch, some
scalars and what one report needs. The record of a step that is due has the allocator's figure. Its blocks are of 512
bytes and more where its segments grow (`expandable_segments`); without, it leaves up to 1 MiB of a block unused, which
is printed and is nobody's memory. The bound is 1 %, and for tiny models 1.5 MiB: a workspace of 1 MiB of cuBLAS's other
half, a batch, and blocks.
"""
import json
import shutil
import sys
import unittest

from gpu_test import CUDA, GRAPH, HAS_GPU, SKIPPED, Gpu

MIB = 2**20
RUN = """\
[run]
length = 12
[data]
micro_batch_size = 2
sequence_length = 64
[data.random]
samples = 64
high = 64
[model.gpt]
{model}
dropout = 0
[{optimizer}]
[gradient.clip]
norm = 1.0
[log]
every = 1
[checkpoint]
at_end = false
"""
TINY_MODEL = "layers = 2\nheads = 2\nwidth = 64\n"
GPT2 = 'preset = "gpt2_124m"\nvocabulary = 50304\n'
OPTIMIZERS = "adamw", "adamw_8bit", "adamw_anyprecision", "adafactor", "sgd"


class Memory(Gpu):
    def planned(self):
        memory = json.loads(self.ok("plan", "run.toml", "--json").out)["memory"]
        memory.pop("copy_bytes")
        return {name.removesuffix("_bytes"): value for name, value in memory.items()}

    def at_rest(self):
        shutil.rmtree(self.dir / "runs", ignore_errors=True)
        self.ok("train", "run.toml", "--set", "run.name=measured",
                env={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"})
        return [record["memory_bytes"] for record in self.records(self.dir / "runs/measured")]

    def compared(self, name, text):
        """Prints all figures; what the allocator holds over what is planned, and both."""
        self.file("run.toml", text)
        parts = self.planned()
        total = sum(parts.values())
        used = self.at_rest()
        self.assertLess(max(used[4:-1]) - min(used[4:-1]), MIB, "memory grows from step to step")
        said = ", ".join(f"{part} {value / MIB:.1f}" for part, value in parts.items())
        print(f"    {name:32} planned {total / MIB:9.1f} MiB ({said}); the allocator holds {used[5] / MIB:9.1f}, "
              f"{(used[5] - total) / MIB:+.2f} MiB, {used[5] / total - 1:+.2%}", flush=True)
        return used[5], total

    def near_the_plan(self, name, text):
        used, total = self.compared(name, text)
        self.assertLess(abs(used - total), max(0.01 * total, 1.5 * MIB), name)

    def near_with_each_optimizer(self, name, model):
        for dtype in ("fp32", "bf16"):
            for optimizer in OPTIMIZERS:
                with self.subTest(f"{optimizer} {dtype}"):
                    text = RUN.format(model=model, optimizer=f"optimizer.{optimizer}")
                    self.near_the_plan(f"{name}, {optimizer}, {dtype}", text + f"[precision.{dtype}]\n" + CUDA)

    def test_the_plan_of_a_tiny_model(self):
        self.near_with_each_optimizer("tiny", TINY_MODEL)

    def test_the_plan_of_gpt2(self):
        self.near_with_each_optimizer("GPT-2", GPT2)

    def test_gradients_are_gone_while_there_are_most_activations(self):
        """Where a second micro-batch adds to them they stay, and are in the peak. The other peak is in backward, when
        some are there already: half of them on an H200."""
        text = RUN.format(model="layers = 4\nheads = 8\nwidth = 512\n", optimizer="optimizer.sgd") + CUDA
        peaks = []
        for more in ("", "[step.accumulation]\ncount = 2\n"):
            self.file("run.toml", text + more)
            self.at_rest()
            peaks.append(max(r["memory_peak_bytes"] for r in self.records(self.dir / "runs/measured")))
        gradients = self.planned()["gradients"]
        self.assertGreater(gradients, 40 * MIB)
        self.assertGreater(peaks[1] - peaks[0], 0.25 * gradients, [p / MIB for p in peaks])

    def test_the_plan_of_a_recorded_step(self):
        text = RUN.format(model=GPT2, optimizer="optimizer.adamw")
        self.near_the_plan("GPT-2, recorded", text + "[precision.bf16]\n" + CUDA + GRAPH)


if __name__ == "__main__":
    if not HAS_GPU:
        print("SKIPPED: no NVIDIA driver here (/dev/nvidiactl); run this on a machine with a GPU")
        sys.exit(SKIPPED)
    unittest.main()
