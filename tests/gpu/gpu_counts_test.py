#!/usr/bin/env python3
"""How often a step waits for the GPU, what it launches, and how long the GPU idles, counted by CUPTI (cupti/trace.cpp).

    export MORTISE=build/bin/mortise CUDA_TRACER=build/fixtures/cupti/trace.so
    python3 tests/gpu/gpu_counts_test.py [Class.test]

A step waits once, for the report of two steps before it, so that the host is never farther ahead. Nothing else may
wait, and nothing may ask CUDA for memory, but once for one more step's copies: each of these costs as long as all
launches.

The GPU idles where nothing is queued for it: in a gap that is longer than those between two kernels which both wait in
the queue (cuda_trace.HANDOVER_NS). Such short gaps, a microsecond each, are the GPU's own; a step that is called has
some 700 of them, one that is recorded hardly any.
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
LENGTH = 80  # of which 36 are looked at: with one new table of rates, or two (core/loop/ledger.hpp, kRows)
STEPS = TINY.replace("length = 40", f"length = {LENGTH}").replace("[log]\nevery = 1\n", "[log]\nevery = 1000\n")
CAPACITY = '\n[layer.moe]\nwhere = "h.*.mlp"\nexperts = 6\ncapacity_factor = 1.25\njitter = 0.1\nz_loss = 0.001\n'
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
    "experts": STEPS + MATH + CAPACITY,
    "experts, bf16": STEPS + CAPACITY + "\n[precision.bf16]\n",
    "experts, grouped": STEPS + CAPACITY.replace("capacity_factor = 1.25", 'products = "grouped"') +
                        "\n[precision.bf16]\n",
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
        self.assertEqual(waits, {})
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
        """At a batch of 16: for want of work, by the trace; in all gaps together, of a step that nobody traces, as
        tracing lengthens the gaps, not the work; between two steps, by the record. All gaps are looked at where they
        are none of the GPU's own: in a step that is recorded."""
        for name, text in ("gpt2, batch 16", GPT2_16 + CUDA), ("recorded", GPT2_16 + CUDA + GRAPH):
            steps = self.steps(name, text)
            busy, starved = cuda_trace.median(steps, cuda_trace.Step.busy) / 1e6, cuda_trace.median(
                steps, cuda_trace.Step.starved_share)
            run = self.train(name.partition(",")[0], text.replace("every = 1000", "every = 1"))
            records = self.records(run)[5:-3]  # whose reports are waited for at the end
            took = statistics.median(16e3 / record["samples_per_s"] for record in records)
            between = statistics.median(record["idle_share"] for record in records)
            print(f"    {name:28} works {busy:.2f} of {took:.2f} ms: {1 - busy / took:.1%} gaps, {starved:.1%} for "
                  f"want of work, {between:.1%} between steps", flush=True)
            self.assertLess(starved, 0.02)
            self.assertLess(between, 0.02)
            if name == "recorded":
                self.assertLess(1 - busy / took, 0.02)

    def test_batches_are_copied_beside_the_steps(self):
        """From pinned memory, on a stream that no kernel is on, while the GPU computes."""
        for name, more in ("copies", ""), ("copies, recorded", GRAPH):
            steps = self.steps(name, GPT2_16 + CUDA + more)
            self.must_wait_for_reports_alone(steps)
            copies = [copy for step in steps for copy in step.copies_to_device(16 * 1024 * 8)]
            kernels = [kernel for step in steps for kernel in step.kernels()]
            self.assertGreaterEqual(len(copies), len(steps) - 4)
            self.assertEqual({copy.name for copy in copies}, {"copy pinned"})
            self.assertEqual({copy.stream for copy in copies} & {kernel.stream for kernel in kernels}, set())
            beside = sum(any(k.start < copy.end and copy.start < k.end for k in kernels) for copy in copies)
            print(f"    {beside} of {len(copies)} copies ran beside a kernel", flush=True)
            self.assertGreater(beside, len(copies) / 2)

    def test_records_say_what_the_gpu_waits_for(self):
        """Data that take two steps each: the GPU has nothing to do for half of the time, unless four threads load."""
        text = GPT2_16.replace("every = 1000", "every = 10") + CUDA
        length = cuda_trace.median(self.steps("gpt2, batch 16", GPT2_16 + CUDA), cuda_trace.Step.length)
        slow = f"\n[test.slow]\nmilliseconds = {2 * length / 1e6:.2f}\n"

        def shares(name, more):
            run = self.train(name, text + more, "--plugin-path", FIXTURES)
            found = [(r["data_wait_share"], r["idle_share"]) for r in self.records(run)[2:-1]]
            text_of = ", ".join(f"{data:.1%} {idle:.1%}" for data, idle in found)
            print(f"    {name:28} waits for data, idles: {text_of}", flush=True)
            return [statistics.median(share) for share in zip(*found)]

        data, idle = shares("slow", slow + "[loader.prefetch]\nworkers = 0\n")
        self.assertGreater(data, 0.4)
        self.assertGreater(idle, 0.3)
        data, idle = shares("ahead", slow + "[loader.prefetch]\nworkers = 4\ndepth = 8\n")
        self.assertLess(data, 0.01)
        self.assertLess(idle, 0.01)

    def test_how_long_the_gpu_waits_for_work(self):
        """GPT-2 with 124 M parameters. At a batch of 4, unless recorded, it is printed: it depends on the processor."""
        self.must_wait_for_reports_alone(self.steps("gpt2, batch 4", GPT2 + CUDA))
        steps = self.steps("gpt2, batch 4, recorded", GPT2 + CUDA + GRAPH)
        self.must_wait_for_reports_alone(steps)
        self.assertLess(cuda_trace.median(steps, cuda_trace.Step.starved_share), 0.05)
        share, length = self.starved("gpt2, batch 16", GPT2_16 + CUDA)
        self.assertLess(share, 0.02)
        slow = f"\n[test.slow]\nmilliseconds = {0.8 * length / 1e6:.2f}\n"
        self.starved("the same, slow data", GPT2_16 + CUDA + slow + "\n[loader.prefetch]\nworkers = 0\n")
        share, _ = self.starved("the same, loader.prefetch", GPT2_16 + CUDA + slow + "\n[loader.prefetch]\n")
        self.assertLess(share, 0.01)
        share, _ = self.starved("the same, recorded", GPT2_16 + CUDA + slow + "\n[loader.prefetch]\n" + GRAPH)
        self.assertLess(share, 0.01)


if __name__ == "__main__":
    if not HAS_GPU:
        print("SKIPPED: no NVIDIA driver here (/dev/nvidiactl); run this on a machine with a GPU")
        sys.exit(SKIPPED)
    unittest.main()
