#!/usr/bin/env python3
"""How often a step waits for the GPU, what it launches, and how long the GPU idles, counted by CUPTI (cupti/trace.cpp).

    export MORTISE=build/bin/mortise CUDA_TRACER=build/fixtures/cupti/trace.so
    python3 tests/gpu/gpu_counts_test.py [Class.test]

A step waits once, for the report of two steps before it, so that the host is never farther ahead. Once in 32 steps a
table of rates is copied to the device, which waits too (core/loop/ledger.hpp, kRows). Nothing else may wait, and
nothing may ask CUDA for memory, but once for one more step's copies: each of these costs as long as all launches.
"""
import collections
import os
import pathlib
import statistics
import subprocess
import sys
import unittest

import cuda_trace
from gpu_test import CUDA, FIXTURES, GRAPH, HAS_GPU, MATH, SKIPPED, TINY, Gpu

TRACER = pathlib.Path(os.environ.get("CUDA_TRACER", pathlib.Path(__file__).parent / "cupti/trace.so")).resolve()
REFILL = 32  # steps
LENGTH = 80  # of which 36 are looked at: with one refill, or two
STEPS = TINY.replace("length = 40", f"length = {LENGTH}").replace("[log]\nevery = 1\n", "[log]\nevery = 1000\n")
DROPOUT = STEPS.replace("dropout = 0\n", "dropout = 0.1\n")
CASES = {
    "fp32, math": STEPS + MATH,
    "bf16, dropout": DROPOUT + "\n[precision.bf16]\n",
    "fp16": STEPS + "\n[precision.fp16]\n",
    "accumulated": STEPS + "\n[step.accumulation]\ncount = 3\n",
    "checkpointed": STEPS + "\n[activation.checkpointing]\n",
    "adafactor": STEPS.replace("optimizer.adamw", "optimizer.adafactor"),
    "adamw_8bit": STEPS.replace("optimizer.adamw", "optimizer.adamw_8bit"),
    "adamw_anyprecision": STEPS.replace("optimizer.adamw", "optimizer.adamw_anyprecision"),
    "sgd": STEPS.replace("optimizer.adamw", "optimizer.sgd"),
}
GPT2 = """\
[run]
length = 60
[data]
micro_batch_size = 4
sequence_length = 1024
[data.random]
samples = 16
high = 50257
[model.gpt]
preset = "gpt2_124m"
vocabulary = 50304
dropout = 0
[optimizer.adamw]
[gradient.clip]
norm = 1.0
[log]
every = 1000
[checkpoint]
at_end = false
[precision.bf16]
"""
GPT2_16 = GPT2.replace("micro_batch_size = 4", "micro_batch_size = 16").replace("samples = 16", "samples = 64")


def names(steps, pattern):
    """Of the calls of these steps, those that match, with how many of each."""
    return dict(collections.Counter(call.name for step in steps for call in step.calls if pattern.match(call.name)))


@unittest.skipUnless(TRACER.exists(), f"no {TRACER}: built without headers of CUPTI (pip: nvidia-cuda-cupti)")
class Counts(Gpu):
    def steps(self, name, text):
        """The steady ones."""
        path = self.dir / "trace.txt"
        self.file("run.toml", text)
        self.ok("train", "run.toml", "--set", "run.name=counted", "--plugin-path", FIXTURES,
                env={"CUDA_INJECTION64_PATH": str(TRACER), "CUDA_TRACE": str(path)})
        steps = cuda_trace.steady(cuda_trace.read(path).steps())
        path.unlink()
        subprocess.run(["rm", "-rf", self.dir / "runs"], check=True)
        self.assertGreater(len(steps), 20, f"{name}: no copy of a report is seen in each step")
        print(f"    {name:28} {cuda_trace.text(cuda_trace.summary(steps))}", flush=True)
        return steps

    def must_wait_for_reports_alone(self, steps):
        waits = names(steps, cuda_trace.WAITS)
        reports = waits.pop("cudaEventSynchronize", 0)
        self.assertLessEqual(reports, len(steps), waits)
        self.assertLessEqual(sum(waits.values()), len(steps) // REFILL + 1, waits)
        asked = names(steps, cuda_trace.ALLOCATIONS)
        # Pinned memory is used again once the GPU has read it: when that is later than ever before, more is needed, as
        # much as a step copies.
        self.assertLessEqual(asked.pop("cudaHostAlloc", 0), max(s.pinned_copies() for s in steps))
        self.assertEqual(asked, {})

    def test_a_step_waits_for_a_report_alone(self):
        for name, text in CASES.items():
            with self.subTest(name):
                self.must_wait_for_reports_alone(self.steps(name, text + CUDA))

    def test_a_recorded_step_waits_for_a_report_alone_and_is_one_launch(self):
        """Beside the recording, what fills and reads it: as many launches whatever the model is."""
        beside = set()
        for name, text in CASES.items():
            with self.subTest(name):
                steps = self.steps(f"{name}, recorded", text + CUDA + GRAPH)
                self.must_wait_for_reports_alone(steps)
                self.assertEqual(names(steps, cuda_trace.LAUNCHES).get("cudaGraphLaunch"), len(steps))
                if name in ("fp32, math", "sgd"):
                    beside.add(cuda_trace.median(steps, lambda s: s.count(cuda_trace.LAUNCHES)))
        for layers in (1, 6):
            steps = self.steps(f"{layers} layers, recorded",
                               STEPS.replace("layers = 2", f"layers = {layers}") + MATH + CUDA + GRAPH)
            beside.add(cuda_trace.median(steps, lambda s: s.count(cuda_trace.LAUNCHES)))
        self.assertEqual(len(beside), 1, beside)

    def test_an_optimizer_is_a_few_launches_however_many_parameters_there_are(self):
        for optimizer, most in (("adamw", 1), ("sgd", 1), ("adamw_anyprecision", 1), ("adamw_8bit", 2),
                                ("adafactor", 6)):
            with self.subTest(optimizer):
                text = STEPS.replace("optimizer.adamw", f"optimizer.{optimizer}").replace("layers = 2", "layers = 6")
                steps = self.steps(f"{optimizer}, 6 layers", text + MATH + CUDA)
                own = cuda_trace.median(steps, lambda s: sum("SliceTable<" in k.name for k in s.kernels()))
                self.assertTrue(1 <= own <= most, own)

    def starved(self, name, text):
        steps = self.steps(name, text)
        return cuda_trace.median(steps, cuda_trace.Step.starved_share), cuda_trace.median(steps, cuda_trace.Step.length)

    def test_how_long_the_gpu_idles(self):
        """Of a step that nobody traces, how much nothing ran there: tracing lengthens the gaps, not the work."""
        for name, text in ("gpt2, batch 16", GPT2_16 + CUDA), ("recorded", GPT2_16 + CUDA + GRAPH):
            busy = cuda_trace.median(self.steps(name, text), cuda_trace.Step.busy) / 1e6
            run = self.train(name.partition(",")[0], text.replace("every = 1000", "every = 1"))
            took = statistics.median(16e3 / record["samples_per_s"] for record in self.records(run)[5:])
            print(f"    {name:28} works {busy:.2f} of {took:.2f} ms: idle {1 - busy / took:.1%}", flush=True)
            self.assertLess(1 - busy / took, 0.02)

    def test_how_long_the_gpu_waits_for_work(self):
        """GPT-2 with 124 M parameters. At a batch of 4, unless recorded, it is printed: it depends on the processor."""
        self.must_wait_for_reports_alone(self.steps("gpt2, batch 4", GPT2 + CUDA))
        steps = self.steps("gpt2, batch 4, recorded", GPT2 + CUDA + GRAPH)
        self.must_wait_for_reports_alone(steps)
        self.assertLess(cuda_trace.median(steps, cuda_trace.Step.starved_share), 0.05)
        share, length = self.starved("gpt2, batch 16", GPT2_16 + CUDA)
        self.assertLess(share, 0.02)
        slow = f"\n[test.slow]\nmilliseconds = {0.8 * length / 1e6:.2f}\n"
        self.starved("the same, slow data", GPT2_16 + CUDA + slow)
        share, _ = self.starved("the same, loader.prefetch", GPT2_16 + CUDA + slow + "\n[loader.prefetch]\n")
        self.assertLess(share, 0.01)
        share, _ = self.starved("the same, recorded", GPT2_16 + CUDA + slow + "\n[loader.prefetch]\n" + GRAPH)
        self.assertLess(share, 0.01)


if __name__ == "__main__":
    if not HAS_GPU:
        print("SKIPPED: no NVIDIA driver here (/dev/nvidiactl); run this on a machine with a GPU")
        sys.exit(SKIPPED)
    unittest.main()
