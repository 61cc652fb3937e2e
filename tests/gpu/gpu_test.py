#!/usr/bin/env python3
"""What a run on a GPU must equal, and how it ends when something is wrong; skipped, and said so, where there is no GPU.

    MORTISE=build/bin/mortise python3 tests/gpu/gpu_test.py [Class.test]

Tiny models with attention.math in fp32: the GPU adds the same numbers in another order, so losses drift apart by some
units in the last place a step; 1e-5 of them after 40 steps is ten times what an H100 shows. A recorded step is the very
same kernels in the same order: the same bits.
"""
import json
import os
import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import e2e  # noqa: E402

HAS_GPU = pathlib.Path("/dev/nvidiactl").exists()
FIXTURES = os.environ.get("FIXTURES", e2e.SOURCE / "tests/gpu/fixtures")
SKIPPED = 77  # ctest's SKIP_RETURN_CODE

TINY = """\
[run]
length = 40
[data]
micro_batch_size = 4
sequence_length = 64
[data.random]
samples = 64
high = 64
[model.gpt]
layers = 2
heads = 2
width = 64
dropout = 0
[optimizer]
lr = 3e-3
[optimizer.adamw]
[gradient.clip]
norm = 1.0
[schedule.cosine]
[log]
every = 1
[checkpoint]
at_end = false
"""
CUDA = "\n[device.cuda]\n"
CPU = "\n[device.cpu]\n"
MATH = "\n[attention.math]\n"
GRAPH = "\n[compile.cuda_graph]\n"

# GPT-2's sizes in 4 layers: here sums are long enough that kernels share them, and add in any order unless told not to.
REPEATS = """\
[run]
length = 20
deterministic = true
[data]
micro_batch_size = 4
sequence_length = 1024
[data.random]
samples = 80
high = 50257
[model.gpt]
preset = "gpt2_124m"
layers = 4
dropout = 0
[optimizer.adamw]
[gradient.clip]
norm = 1.0
[log]
every = 1
[checkpoint]
at_end = true
"""


class Gpu(e2e.Case):
    def environment(self, **more):
        """Where every other test hides the GPU."""
        return super().environment(**{"CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", "0"), **more})

    def records(self, run, event="step"):
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        return [record for record in lines if record["event"] == event]

    def losses(self, name, text):
        run = self.train(name, text)
        losses = [record["loss"] for record in self.records(run)]
        self.assertGreater(len(losses), 5, name)
        return losses

    def near(self, a, b, bound):
        self.assertEqual(len(a), len(b))
        for step, (x, y) in enumerate(zip(a, b), 1):
            self.assertLess(abs(x - y), bound * max(abs(x), abs(y)), f"step {step}: {x} and {y}")


class Numbers(Gpu):
    def test_a_run_on_the_gpu_is_that_on_the_cpu(self):
        self.near(self.losses("cpu", TINY + MATH + CPU), self.losses("cuda", TINY + MATH + CUDA), 1e-5)

    def test_a_recorded_step_has_the_same_bits(self):
        for name, more in (("plain", ""), ("accumulated", "\n[step.accumulation]\ncount = 3\n"),
                           ("bf16", "\n[precision.bf16]\n"), ("fp16", "\n[precision.fp16]\n"),
                           ("checkpointed", "\n[activation.checkpointing]\n")):
            with self.subTest(name):
                eager = self.losses(f"{name}_eager", TINY + MATH + CUDA + more)
                self.assertEqual(self.losses(f"{name}_graph", TINY + MATH + CUDA + more + GRAPH), eager)

    def test_random_bits_are_those_of_the_cpu(self):
        """In a recorded step, too, which reads its number on the device."""
        dropout = TINY.replace("dropout = 0", "dropout = 0.1") + MATH
        noise = TINY + MATH + "\n[gradient.noise]\neta = 0.1\n"
        for name, text in (("dropout", dropout), ("noise", noise)):
            with self.subTest(name):
                cuda = self.losses(f"{name}_cuda", text + CUDA)
                self.near(self.losses(f"{name}_cpu", text + CPU), cuda, 1e-4)
                self.assertEqual(self.losses(f"{name}_graph", text + CUDA + GRAPH), cuda)

    def test_models_in_each_precision(self):
        """BERT's stream is in 16 bits where GPT-2's is not; Llama has other norms, shared heads and gates."""
        models = {"bert": "[model.bert]\nlayers = 2\nheads = 2\nwidth = 64\n",
                  "llama": "[model.llama]\nlayers = 2\nheads = 4\nkv_heads = 2\nwidth = 64\n"}
        for model, table in models.items():
            text = TINY.replace("[model.gpt]\nlayers = 2\nheads = 2\nwidth = 64\ndropout = 0\n", table)
            if model == "bert":
                text = text.replace("high = 64\n", "high = 64\nclasses = 2\n")
            for dtype, bound in (("fp32", 1e-4), ("bf16", 5e-2), ("fp16", 5e-2)):
                with self.subTest(f"{model} {dtype}"):
                    precise = text + f"\n[precision.{dtype}]\n"
                    cuda = self.losses(f"{model}_{dtype}_cuda", precise + CUDA)
                    self.near(self.losses(f"{model}_{dtype}_cpu", precise + CPU), cuda, bound)

    def test_lengths_that_change_make_recordings_of_their_own_and_then_none(self):
        text = TINY.replace("high = 64\n", "high = 64\nshortest = 8\n") + MATH + CUDA
        self.file("varied_graph.toml", text + GRAPH)
        said = self.ok("train", "varied_graph.toml").err
        self.assertIn("batches have had 4 shapes by now; steps of other shapes are not recorded", said)
        played = [record["loss"] for record in self.records(self.dir / "runs/varied_graph")]
        self.assertEqual(played, self.losses("varied", text))

    def test_each_attention_is_the_plain_one_within_its_dtype(self):
        bounds = {"fp32": 1e-4, "bf16": 3e-2}
        for attention, dtype in (("efficient", "fp32"), ("efficient", "bf16"), ("flash", "bf16"), ("cudnn", "bf16"),
                                 ("auto", "fp32"), ("auto", "bf16")):
            with self.subTest(f"{attention} {dtype}"):
                text = TINY.replace("length = 40", "length = 12") + CUDA + f"\n[precision.{dtype}]\n"
                self.near(self.losses(f"math_{dtype}", text + MATH),
                          self.losses(f"{attention}_{dtype}", text + f"\n[attention.{attention}]\n"), bounds[dtype])

    def test_attention_by_tiles_drops_what_the_plain_one_drops(self):
        wide = TINY.replace("length = 40", "length = 12").replace("width = 64", "width = 128") + CUDA
        for name, more in (("bare", ""), ("dropped", ""), ("odd", "shortest = 9\n")):
            for dtype in ("bf16", "fp16"):
                with self.subTest(f"{name} {dtype}"):
                    text = wide.replace("high = 64\n", "high = 64\n" + more) + f"\n[precision.{dtype}]\n"
                    text = text if name == "bare" else text.replace("dropout = 0", "dropout = 0.3")
                    tiled = self.losses(f"{name}_{dtype}_tiled", text + "\n[attention.tiled]\n")
                    self.near(self.losses(f"{name}_{dtype}_math", text + MATH), tiled, 3e-2)
                    self.assertEqual(self.losses(f"{name}_{dtype}_again", text + "\n[attention.tiled]\n"), tiled)

    def test_attention_that_is_recomputed_drops_what_the_plain_one_drops(self):
        """Also where a sample's heads are more than are taken at a time, and in a recorded step."""
        llama = "[model.llama]\nlayers = 2\nheads = 4\nkv_heads = 2\nwidth = 64\nattention_dropout = 0.3\n"
        short = TINY.replace("length = 40", "length = 12").replace("dropout = 0", "dropout = 0.3") + CUDA
        shared = short.replace("[model.gpt]\nlayers = 2\nheads = 2\nwidth = 64\ndropout = 0.3\n", llama)
        for name, text in (("gpt", short), ("bare", short.replace("dropout = 0.3", "dropout = 0")),
                           ("odd", short.replace("high = 64\n", "high = 64\nshortest = 9\n")),
                           ("long", short.replace("sequence_length = 64", "sequence_length = 600").replace(
                               "width = 64", "width = 64\ncontext = 600")), ("llama", shared)):
            with self.subTest(name):
                again = text + "\n[attention.recompute]\nworkspace = 1\n"
                made = self.losses(f"{name}_recompute", again)
                self.near(self.losses(f"{name}_math", text + MATH), made, 1e-4)
                self.assertEqual(self.losses(f"{name}_again", again), made)
                if name != "odd":
                    self.assertEqual(self.losses(f"{name}_graph", again + GRAPH), made)

    def test_attention_that_is_recomputed_keeps_no_probabilities(self):
        """Of eight layers: 8 heads of 512 by 512 in fp32 for each of four samples, 32 MiB a layer."""
        text = TINY.replace("sequence_length = 64", "sequence_length = 512").replace("length = 40", "length = 6")
        text = text.replace("layers = 2\nheads = 2\n", "layers = 8\nheads = 8\ncontext = 512\n") + CUDA

        def peak(name, more):
            run = self.train(name, text.replace("dropout = 0", "dropout = 0.1") + more)
            return max(record["memory_peak_bytes"] for record in self.records(run))

        plain, auto = peak("keeps", MATH), peak("keeps_none", "\n[precision.fp32]\n")
        self.assertGreater(plain - auto, 8 * (32 << 20) - (64 << 20))

    def test_optimizers_update_as_on_the_cpu(self):
        muon = 'optimizer.muon]\nwhere = "role:matrix"\n[optimizer.adamw'
        for optimizer, bound in (("optimizer.adamw", 1e-5), ("optimizer.sgd", 1e-5), ("optimizer.adafactor", 1e-4),
                                 ("optimizer.adamw_anyprecision", 1e-4), ("optimizer.adamw_8bit", 1e-3), (muon, 1e-2)):
            name = optimizer.split("]")[0].split(".")[1]
            with self.subTest(name):
                text = TINY.replace("optimizer.adamw", optimizer) + MATH
                cpu, cuda = self.losses(f"{name}_cpu", text + CPU), self.losses(f"{name}_cuda", text + CUDA)
                self.near(cpu, cuda, bound)
                self.assertEqual(self.losses(f"{name}_graph", text + CUDA + GRAPH), cuda)

    def test_the_optimizer_of_the_guide(self):
        if not (pathlib.Path(FIXTURES) / "optimizer.heavyball.so").exists():
            self.skipTest("the page's optimizer was not built: there was no nvcc")
        text = TINY.replace("adamw", "heavyball") + MATH + f'\n[plugins]\npath = ["{FIXTURES}"]\n'
        eager = self.losses("cuda", text + CUDA)
        self.near(self.losses("cpu", text + CPU), eager, 1e-5)
        self.assertEqual(self.losses("graph", text + CUDA + GRAPH), eager)
        half = self.losses("bf16", text + CUDA + "\n[precision.bf16]\n")
        self.assertEqual(self.losses("bf16_graph", text + CUDA + GRAPH + "\n[precision.bf16]\n"), half)

    def test_the_same_run_has_the_same_bits(self):
        text = TINY + CUDA + "\n[precision.bf16]\n"
        self.assertEqual(self.losses("first", text), self.losses("second", text))

    def test_a_head_over_a_large_vocabulary(self):
        """Logits in rows that are no multiples of sixteen bytes, too, with labels that are left out."""
        for vocabulary in (5003, 5008):
            for dtype, bound in (("fp32", 1e-5), ("bf16", 5e-2), ("fp16", 5e-2)):
                with self.subTest(f"{vocabulary} {dtype}"):
                    text = TINY.replace("high = 64", f"high = {vocabulary}\nshortest = 32").replace(
                        "length = 40", "length = 12") + MATH + f"\n[precision.{dtype}]\n"
                    name = f"head_{vocabulary}_{dtype}"
                    cuda = self.losses(f"{name}_cuda", text + CUDA)
                    self.near(self.losses(f"{name}_cpu", text + CPU), cuda, bound)
                    self.assertEqual(self.losses(f"{name}_again", text + CUDA), cuda)

    def test_the_head_has_one_array_of_logits(self):
        """In bf16: its weights, their states and workspaces are a third of that; fp32 probabilities are twice it."""
        text = TINY.replace("high = 64", "high = 50304").replace("length = 40", "length = 6")
        text = text.replace("sequence_length = 64", "sequence_length = 256").replace("size = 4", "size = 16")
        run = self.train("one_array", text + CUDA + "\n[precision.bf16]\n")
        peak = max(record["memory_peak_bytes"] for record in self.records(run))
        self.assertLess(peak, 2 * 16 * 256 * 50304 * 2)


class Offload(Gpu):
    def test_activations_wait_on_the_host(self):
        """Of eight blocks; the same bits, as a recorded step too, and less memory of the GPU."""
        wide = TINY.replace("layers = 2", "layers = 8").replace("width = 64", "width = 256").replace(
            "sequence_length = 64", "sequence_length = 256").replace("length = 40", "length = 8") + CUDA
        for name, more in (("fp32", MATH), ("bf16", "\n[precision.bf16]\n"),
                           ("recomputed", "\n[activation.checkpointing]\n[precision.bf16]\n")):
            with self.subTest(name):
                plain = self.train(f"plain_{name}", wide + more)
                away = self.train(f"away_{name}", wide + more + "\n[activation.offload]\n")
                played = self.train(f"played_{name}", wide + more + "\n[activation.offload]\n" + GRAPH)
                losses = [[r["loss"] for r in self.records(run)] for run in (plain, away, played)]
                self.assertEqual(losses[0], losses[1])
                self.assertEqual(losses[0], losses[2])
                mib = [max(r["memory_peak_bytes"] for r in self.records(run)) / 2**20 for run in (plain, away)]
                print(f"    {name}: {mib[0]:.0f} MiB, with activations on the host {mib[1]:.0f}", flush=True)
                if name != "recomputed":  # there the most is what one block computes again
                    self.assertLess(mib[1], mib[0])


class Default(Gpu):
    """What a run takes that names no device."""

    def device(self, name):
        return self.records(self.dir / "runs" / name, "run")[-1]["device"]

    def test_is_the_gpu(self):
        losses = self.losses("default", TINY + MATH)
        self.assertTrue(self.device("default").startswith("device.cuda, NVIDIA "), self.device("default"))
        self.assertEqual(losses, self.losses("named", TINY + MATH + CUDA))
        self.assertRegex(self.ok("plan", "default.toml").out, r"(?m)^  device +device\.cuda .* default\.toml:\d+$")

    def test_is_the_processor_where_the_gpu_is_hidden(self):
        self.file("hidden.toml", (TINY + MATH).replace("at_end = false", "at_end = true"))
        self.assertEqual(self.ok("train", "hidden.toml", env={"CUDA_VISIBLE_DEVICES": ""}).err, "")
        self.assertIn("device.cuda cannot run here: CUDA_VISIBLE_DEVICES hides it", self.device("hidden"))
        # The manifest asks for no device, so it goes on on the GPU, and says so.
        said = self.ok("resume", "runs/hidden", "--set", "run.length=42").err
        self.assertIn("warning[other_device]: it was computed with device.cpu, ", said)
        self.assertTrue(self.device("hidden").startswith("device.cuda, "), self.device("hidden"))

    def test_is_the_processor_with_a_warning_where_the_gpu_cannot_be_used(self):
        self.file("unusable.toml", TINY + MATH)
        result = self.ok("train", "unusable.toml", env={"CUDA_VISIBLE_DEVICES": "99"})
        self.assertIn("warning[device_unusable]: device.cuda cannot run: no NVIDIA GPU here\n", result.err)
        self.assertIn("\n  effect: the run is on device.cpu\n", result.err)
        self.assertTrue(self.device("unusable").startswith("device.cpu, "), self.device("unusable"))

    def test_of_several_ranks_on_one_gpu_is_the_processor(self):
        self.file("ranks.toml", TINY + MATH)
        self.ok("train", "ranks.toml", "--ranks", "2")
        self.assertIn("each of the 2 ranks here needs its own, and there is 1", self.device("ranks"))


class Repeats(Gpu):
    """[run] deterministic = true."""
    def bits(self, name, text):
        """What a step showed of itself, and the bytes of the weights that were left."""
        run = self.train(name, text)
        steps = [(record["loss"], record["grad_norm"]) for record in self.records(run)]
        self.assertEqual(len(steps), 20)
        return steps, next(run.glob("checkpoints/*20/model/model.safetensors")).read_bytes()

    def test_the_same_run_has_the_same_bits_at_gpt2s_sizes(self):
        for dtype in ("fp32", "bf16"):
            text = REPEATS + CUDA + f"\n[precision.{dtype}]\n"
            with self.subTest(dtype):
                first = self.bits(f"{dtype}_first", text)
                self.assertEqual(self.bits(f"{dtype}_second", text), first)
                for name in ("graph", "graph_again"):
                    self.assertEqual(self.bits(f"{dtype}_{name}", text + GRAPH), first)

    def test_attention_auto_takes_what_repeats(self):
        for dtype, taken in (("fp32", "efficient"), ("bf16", "flash")):
            with self.subTest(dtype):
                self.file(f"{dtype}.toml", REPEATS + CUDA + f"\n[precision.{dtype}]\n")
                plan = self.ok("plan", f"{dtype}.toml").out
                self.assertRegex(plan, rf"attention +attention\.auto +-> attention\.{taken} ")
                self.assertIn("bits repeatable, for that without attention.cudnn (backward adds", plan)

    def test_each_that_repeats_does_so_where_it_is_named(self):
        for attention, dtype in (("math", "bf16"), ("efficient", "bf16")):
            with self.subTest(attention):
                text = REPEATS + CUDA + f"\n[precision.{dtype}]\n[attention.{attention}]\n"
                self.assertEqual(self.bits(f"{attention}_second", text), self.bits(f"{attention}_first", text))

    def test_who_does_not_is_refused_where_it_is_named(self):
        self.file("run.toml", REPEATS + CUDA + "\n[attention.cudnn]\n[precision.bf16]\n")
        result = self.mortise("train", "run.toml")
        self.assertEqual(result.code, 64, result)
        self.assertIn("error[not_repeatable]: attention.cudnn does not give the same bits in every run", result.err)
        self.assertIn("fix: --use attention.auto", result.err)
        self.ok("train", "run.toml", "--use", "attention.auto")


class Experts(Gpu):
    def test_the_same_run_has_the_same_bits(self):
        """Of four results a token adds, and four gradients that come back to it: of what is added in any order some
        would differ in 40 steps. Unasked, without `run.deterministic`."""
        moe = '\n[layer.moe]\nwhere = "h.*.mlp"\nexperts = 6\ntop_k = 4\n'
        for dtype in ("fp32", "bf16"):
            for name, more in ("each", ""), ("grouped", 'products = "grouped"\n'):
                with self.subTest(f"{name} {dtype}"):
                    text = TINY + MATH + CUDA + moe + more + f"\n[precision.{dtype}]\n"
                    first = self.losses(f"{name}_{dtype}_first", text)
                    self.assertEqual(self.losses(f"{name}_{dtype}_second", text), first)

    def test_a_run_on_the_gpu_is_that_on_the_cpu(self):
        """A choice between two experts whose scores are as good as equal may fall the other way: looser than 1e-5."""
        text = TINY.replace("length = 40", "length = 12") + MATH
        moe = '\n[layer.moe]\nwhere = "h.*.mlp"\nexperts = 6\ntop_k = 4\n'
        for name, more in ("all", ""), ("some", "capacity_factor = 0.8\n"), ("groups", 'products = "grouped"\n'):
            with self.subTest(name):
                self.near(self.losses(f"{name}_cpu", text + moe + more + CPU),
                          self.losses(f"{name}_cuda", text + moe + more + CUDA), 1e-3)

    def test_groups_are_the_experts_one_by_one(self):
        """In bf16, where a GPU from sm_90 on has one launch for all. 256 tokens: half of 512 experts have none, and
        LibTorch promises nothing of those. Gradients are rounded to bf16 here and not there."""
        moe = '\n[layer.moe]\nwhere = "h.*.mlp"\nexperts = %d\ntop_k = %d\n'
        text = TINY.replace("length = 40", "length = 12") + MATH + CUDA + "\n[precision.bf16]\n"
        for name, experts, top_k, more in (("many", 512, 1, ""), ("two", 16, 2, ""), ("padded", 16, 2, ""),
                                           ("capacity", 16, 2, "capacity_factor = 0.8\n")):
            with self.subTest(name):
                each = text.replace("high = 64\n", "high = 64\nshortest = 9\n") if name == "padded" else text
                each += moe % (experts, top_k) + more
                self.near(self.losses(f"{name}_each", each),
                          self.losses(f"{name}_grouped", each + 'products = "grouped"\n'), 1e-2)

    def test_a_recorded_step_with_groups_has_the_same_bits(self):
        moe = '\n[layer.moe]\nwhere = "h.*.mlp"\nexperts = 6\ntop_k = 2\nproducts = "grouped"\n'
        for name, more in ("all", ""), ("capacity", "capacity_factor = 0.8\n"):
            with self.subTest(name):
                text = TINY + MATH + CUDA + moe + more + "\n[precision.bf16]\n"
                self.assertEqual(self.losses(f"{name}_graph", text + GRAPH), self.losses(name, text))
        self.file("run.toml", TINY + MATH + CUDA + moe + GRAPH)
        refused = self.mortise("plan")
        self.assertEqual(refused.code, 64, refused)
        self.assertIn("grouped products wait for the device but in bf16 on a GPU", refused.err)

    def test_a_recorded_step_has_the_same_bits_and_needs_a_capacity(self):
        moe = '\n[layer.moe]\nwhere = "h.*.mlp"\nexperts = 6\ntop_k = 2\njitter = 0.1\nz_loss = 0.001\n'
        for dtype in ("fp32", "bf16"):
            for factor in ("0.7", "1.25"):
                with self.subTest(f"{dtype} {factor}"):
                    text = TINY + MATH + CUDA + moe + f"capacity_factor = {factor}\n\n[precision.{dtype}]\n"
                    name, played = f"{dtype}_{factor[-1]}", f"{dtype}_{factor[-1]}_graph"
                    self.assertEqual(self.losses(played, text + GRAPH), self.losses(name, text))
                    dropped = [[record["moe_dropped"] for record in self.records(self.dir / "runs" / run)]
                               for run in (name, played)]
                    self.assertEqual(*dropped)
                    self.assertGreater(max(dropped[0]), 0)
        self.file("run.toml", TINY + MATH + CUDA + moe + GRAPH)
        refused = self.mortise("plan")
        self.assertEqual(refused.code, 64, refused)
        self.assertIn("layer.moe cannot run at h.0.mlp: the step is recorded", refused.err)
        self.assertIn("fix: capacity_factor = 1.25", refused.err)


class Rates(Gpu):
    def test_each_step_has_the_rate_of_its_own_time(self):
        """Reports are read two steps late, and several at once before a save: none of them took no time."""
        for name, more in ("eager", ""), ("recorded", GRAPH):
            text = (TINY + CUDA + MATH + more).replace("at_end = false", "every = 20")
            run = self.train(name, text.replace("length = 40", "length = 90"))
            steps = self.records(run)
            took = [4 / record["samples_per_s"] for record in steps]
            usual = sorted(took)[len(took) // 2]
            with self.subTest(name):
                self.assertEqual(len(steps), 90)
                self.assertGreater(min(took), usual / 3, took)
                self.assertLess(sum(took), 1.02 * self.records(run, "end")[0]["seconds"])
                self.assertGreater(sum(took), 90 * usual / 2)


    def test_a_step_says_its_share_of_what_the_gpu_reaches(self):
        chips = ("H100", "H200", "A100", "B200")  # of device.cuda's table
        for name, more, rated in ("fp32", "", 66.9e12), ("tf32", "\n[precision.tf32]\n", 494.7e12), (
            "bf16",
            "\n[precision.bf16]\n",
            989.4e12,
        ):
            run = self.train(name, TINY + CUDA + MATH + more)
            device, step = self.records(run, "run")[0]["device"], self.records(run)[-1]
            if not any(chip in device for chip in chips):
                self.skipTest(device + " is not in the table")
            with self.subTest(name):
                self.assertGreater(step["mfu"], 0)
                if "HBM3" in device or "H200" in device and "NVL" not in device:
                    self.assertAlmostEqual(step["flop_per_s"] / step["mfu"] / rated, 1, 6)


class Resume(Gpu):
    def test_a_run_goes_on_on_the_other_device(self):
        text = TINY.replace("at_end = false", 'every = "20 steps"')
        whole = self.losses("whole", text + MATH + CUDA)
        for first, then in ((CUDA, "device.cpu"), (CPU, "device.cuda")):
            with self.subTest(f"on to {then}"):
                name = then.replace(".", "_")
                self.train(name, text + MATH + first)
                # From the middle, on the other device.
                self.ok("resume", f"runs/{name}", "--from", "20", "--use", then)
                run = [record["loss"] for record in self.records(self.dir / "runs" / name)]
                self.near(whole[-20:], run[-20:], 1e-4)

    def test_a_resumed_run_has_the_bits_of_one_never_stopped(self):
        text = TINY.replace("at_end = false", 'every = "20 steps"') + MATH + CUDA
        for name, more in (("eager", ""), ("graph", GRAPH)):
            with self.subTest(name):
                whole = self.losses(f"{name}_whole", text + more)
                self.train(f"{name}_part", text + more)
                self.ok("resume", f"runs/{name}_part", "--from", "20")
                run = [record["loss"] for record in self.records(self.dir / "runs" / f"{name}_part")]
                self.assertEqual(run[-20:], whole[-20:])


    # Where an evaluation follows, it is in fp32, and so is one of the saved weights without the technique.
    def test_tf32_of_training_ends_with_it(self):
        text = TINY.replace("at_end = false", 'every = "20 steps"')
        text = text.replace("64\nhigh", "64\nvalidation_samples = 32\nhigh")
        text += MATH + CUDA + '\n[eval]\nevery = "10 steps"\n[precision.tf32]\nmodes = ["train"]\n'
        whole = self.train("whole", text)
        self.train("part", text)
        self.ok("resume", "runs/part", "--from", "20")
        losses = [[r["loss"] for r in self.records(run)][-20:] for run in (whole, self.dir / "runs/part")]
        self.assertEqual(*losses)
        plain = self.train("plain", text[:text.index("[precision.tf32]")])
        self.assertNotEqual([r["loss"] for r in self.records(plain)][-20:], losses[0])
        measured = json.loads(self.ok("eval", "runs/whole", "--without", "precision.tf32", "--json").out)
        self.assertEqual(measured["eval.loss"], self.records(whole, "eval")[-1]["eval.loss"])


class Saves(Gpu):
    # Of 25 MiB each, and many small ones: through pinned memory in several pieces.
    LARGE = TINY.replace("width = 64", "width = 128").replace("high = 64", "high = 50304")

    def checkpoint(self, name, more, background="true"):
        keys = f'every = "20 steps"\nbackground = {background}'
        run = self.train(name, self.LARGE.replace("at_end = false", keys) + MATH + CUDA + more)
        return {path.name: path.read_bytes() for path in run.glob("checkpoints/step-20/*/*.safetensors")}

    def test_a_checkpoint_has_the_same_bytes_in_the_background_and_of_a_recorded_step(self):
        now = self.checkpoint("now", "", "false")
        self.assertEqual(len(now), 2)
        self.assertGreater(min(map(len, now.values())), 16 << 20)
        for name, more in ("background", ""), ("recorded", GRAPH):
            with self.subTest(name):
                self.assertTrue(self.checkpoint(name, more) == now)

    def test_a_run_of_large_tensors_goes_on_with_its_bits(self):
        text = self.LARGE.replace("at_end = false", 'every = "20 steps"') + MATH + CUDA
        whole = self.losses("whole", text)
        self.train("part", text)
        self.ok("resume", "runs/part", "--from", "20")
        self.assertEqual([record["loss"] for record in self.records(self.dir / "runs/part")][-20:], whole[-20:])

    def test_what_a_save_in_the_background_holds_up(self):
        """GPT-2 with AdamW, 1.4 GiB: 0.34 s of the 2.2 that a save takes, on an H100 with others beside. The first
        one makes the memory that it is copied to."""
        text = TINY.replace("length = 40", "length = 800").replace("sequence_length = 64", "sequence_length = 1024")
        text = text.replace("layers = 2\nheads = 2\nwidth = 64\n", 'preset = "gpt2_124m"\nvocabulary = 50304\n')
        text = text.replace("every = 1\n", "every = 100\n").replace("at_end", 'every = "200 steps"\nat_end')
        saves = self.records(self.train("held", text + CUDA + "\n[precision.bf16]\n"), "saved")
        held = [save["held_seconds"] for save in saves]
        print("    held for " + ", ".join(f"{s:.3f} s" for s in held), f"of {saves[-1]['seconds']:.1f}", flush=True)
        self.assertTrue(all(save["background"] and save["bytes"] > 1.4e9 for save in saves), saves)
        self.assertLess(min(held[1:]), saves[-1]["seconds"] / 3)


class OffloadedOptimizer(Gpu):
    """GPT-2's sizes in 4 layers: AdamW's states are 8 bytes of each of 67 M parameters. Its kernels have the same bits
    on both sides, and so has the run."""

    def run_of(self, name, more):
        run = self.train(name, REPEATS + MATH + CUDA + more)
        memory = json.loads(self.ok("plan", f"{name}.toml", "--json").out)["memory"]
        rates = sorted(r["tokens_per_s"] for r in self.records(run) if "tokens_per_s" in r)
        print(f"{name}: {rates[len(rates) // 2]:.0f} tokens/s, on the host {memory['host_bytes'] >> 20} MiB")
        return [r["loss"] for r in self.records(run)], memory

    def test_has_the_bits_of_a_run_without_it_and_less_on_the_gpu(self):
        for precision in ("fp32", "bf16"):
            with self.subTest(precision):
                more = f"\n[precision.{precision}]\n"
                plain, there = self.run_of(f"plain_{precision}", more)
                offloaded, here = self.run_of(f"offloaded_{precision}", more + "\n[offload.optimizer]\n")
                self.assertEqual(plain, offloaded)
                self.assertEqual(here["optimizer_bytes"], 0)
                self.assertGreaterEqual(here["host_bytes"], there["optimizer_bytes"])

    def test_clips_skips_and_averages(self):
        for name, more in (("fp16", "\n[precision.fp16]\n"), ("mean", "\n[ema.weights]\n"),
                           ("count", "\n[step.accumulation]\ncount = 2\n")):
            text = TINY + MATH + CUDA + more
            plain = self.losses(name, text)
            for where in ("optimizer", "nvme"):
                with self.subTest(name, where=where):
                    self.assertEqual(plain, self.losses(f"{name}_{where}", f"{text}\n[offload.{where}]\n"))

    def test_has_the_bits_with_states_on_a_disk_and_less_in_memory(self):
        """Two parts of the embedding, and others beside: copies of gradients and values, and the disk, are under way
        at the same time. A save in the background copies what the disk has."""
        more = "\n[precision.bf16]\n"
        plain, there = self.run_of("plain", more + "\n[offload.optimizer]\n")
        stored, here = self.run_of("stored", more + "\n[offload.nvme]\n")
        self.assertEqual(plain, stored)
        self.assertGreater(here["stored_bytes"], 0)
        self.assertLess(here["host_bytes"], there["host_bytes"])


class Trouble(Gpu):
    def test_an_index_that_is_too_high(self):
        self.file("run.toml", TINY + CUDA + "\n[device]\nindex = 99\n")
        result = self.mortise("train", "run.toml")
        self.assertEqual(result.code, 64, result)
        self.assertIn("device.cuda has no device 99", result.err)
        self.assertNotIn("Traceback", result.err)

    def test_no_gpu_is_visible(self):
        self.file("run.toml", TINY + CUDA)
        result = self.mortise("train", "run.toml", env={"CUDA_VISIBLE_DEVICES": ""})
        self.assertEqual(result.code, 69, result)
        self.assertIn("error[device_unusable]: device.cuda cannot run: CUDA_VISIBLE_DEVICES hides it", result.err)
        result = self.mortise("train", "run.toml", env={"CUDA_VISIBLE_DEVICES": "99"})
        self.assertEqual(result.code, 69, result)
        self.assertIn("error[device_unusable]: device.cuda cannot run: no NVIDIA GPU here", result.err)

    def test_a_kernel_that_asserts(self):
        """In step 21, after a checkpoint was made, which the run goes on from."""
        self.file("run.toml", TINY.replace("at_end = false", 'every = "20 steps"') + CUDA)
        result = self.mortise("train", "run.toml", "--use", "test.asserting", "--plugin-path", FIXTURES)
        self.assertEqual(result.code, 70, result)
        self.assertIn("error[device_lost]: the GPU says: CUDA error: ", result.err)  # whoever hears of it
        self.assertIn("last checkpoint is step 20", result.err)
        self.assertNotIn("terminate", result.err)
        self.ok("resume", "runs/run", "--without", "test.asserting", "--plugin-path", FIXTURES)

    def test_a_lost_gpu_ends_every_verb(self):
        """Of a run of 20 steps, behind which the plugin asks for a row that is not there."""
        self.train("lost", e2e.TINY.replace("length = 6", "length = 20") + CUDA)
        asserting = ("--use", "test.asserting", "--plugin-path", FIXTURES)
        for words in (("eval", "runs/lost", "--data", "notes.txt"), ("sample", "runs/lost", "--prompt", "a")):
            result = self.mortise(*words, *asserting)
            self.assertEqual(result.code, 70, result)
            self.assertIn("error[device_lost]: the GPU says: CUDA error: ", result.err)
            self.assertNotIn("terminate", result.err)
            result = self.mortise(*words, *asserting, "--json")
            self.assertEqual(result.code, 70, result)
            said = [json.loads(line) for line in result.err.splitlines() if line.startswith("{")]
            self.assertEqual([line["code"] for line in said if line["level"] == "error"], ["device_lost"], result)

    def test_a_lost_gpu_ends_a_loop_of_ones_own(self):
        self.file("run.toml", """\
[run]
length = 30
[data]
micro_batch_size = 4
sequence_length = 32
[data.random]
samples = 80
high = 1000
classes = 2
[model.host]
sizes = [2, 2, 64, 128]
[optimizer.adamw]
[checkpoint]
every = "20 steps"
""" + CUDA)

        def run(*words):
            command = [e2e.MORTISE.parent / "mortise-bert-loop", *words, "--plugin-path", FIXTURES]
            return e2e.Result(subprocess.run(command, cwd=self.dir, env=self.environment(), capture_output=True,
                                             timeout=e2e.LIMIT_S, check=False))

        result = run("--use", "test.asserting")
        self.assertEqual(result.code, 70, result)
        self.assertIn("error[device_lost]: the GPU says: CUDA error: ", result.err)
        self.assertIn("last checkpoint is step 20", result.err)
        self.assertNotIn("terminate", result.err)
        result = run("resume", "runs/run", "--without", "test.asserting")
        self.assertEqual(result.code, 0, result)

    def test_labels_that_are_no_classes(self):
        """No assert of the device: their loss is not a number, and the guard skips such steps until it has had enough.
        """
        self.file("run.toml", TINY + CUDA)
        result = self.mortise("train", "run.toml", "--use", "test.mislabelling", "--plugin-path", FIXTURES)
        self.assertEqual(result.code, 76, result)
        self.assertIn("guard.nonfinite", result.err)
        self.assertNotIn("assert triggered", result.err)
        skipped = [record["step"] for record in self.records(self.dir / "runs/run") if record.get("skipped")]
        self.assertGreaterEqual(len(skipped), 3, result)
        self.assertGreater(min(skipped), 4)

    def test_memory_that_is_not_enough(self):
        self.file("run.toml", TINY.replace("micro_batch_size = 4", "micro_batch_size = 60000").replace(
            "samples = 64", "samples = 60000").replace("width = 64", "width = 1024") + MATH + CUDA)
        result = self.mortise("train", "run.toml")
        self.assertEqual(result.code, 69, result)
        self.assertIn("error[out_of_memory]: not enough memory on the GPU", result.err)
        self.assertLess(len(result.err.splitlines()), 12, result)


class Verbs(Gpu):
    def test_a_bench_has_every_row_of_the_guides(self):
        """On a tiny model, a loop of one's own among them. On this machine nothing is measured twice."""
        shipped = next(path for path in (e2e.SOURCE / "configs/bench/quick.toml",
                                         e2e.MORTISE.parent.parent / "share/mortise/bench/quick.toml")
                       if path.is_file())
        bench = ("bench", shipped, "-o", "out", "--use", "device.cuda")
        self.assertIn("10 of 10 rows measured, ", self.ok(*bench).out)
        found = json.loads((self.dir / "out/results.json").read_text())
        self.assertEqual([row["name"] for row in found["rows"] if not row["memory_peak_bytes"]], [])
        self.assertIn("(10 before)", self.ok(*bench).out)

    def test_evaluation_sampling_and_export(self):
        self.train("verbs", e2e.TINY + CUDA)
        evaluated = [json.loads(self.ok("eval", "runs/verbs", "--json", "--data", "notes.txt", *more).out)["eval.loss"]
                     for more in ((), ("--use", "device.cpu"))]
        self.near(evaluated[:1], evaluated[1:], 1e-5)
        sample = ("sample", "runs/verbs", "--tokens", "32", "--temperature", "0")
        self.assertEqual(self.ok(*sample).out, self.ok(*sample, "--use", "device.cpu").out)
        self.ok("export", "runs/verbs", "-o", "out")
        self.assertTrue((self.dir / "out/model.safetensors").exists())


if __name__ == "__main__":
    if not HAS_GPU:
        print("SKIPPED: no NVIDIA driver here (/dev/nvidiactl); run this on a machine with a GPU")
        sys.exit(SKIPPED)
    print(subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False).stdout, end="", flush=True)
    unittest.main()
