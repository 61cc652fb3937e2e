"""Several ranks equal one that has the whole batch: 44 samples of unlike lengths in steps of 8, so that the last step
of an epoch is short, and a last micro-batch of one sample, which leaves nothing to the other ranks.

In fp64 every tensor within 1e-9 of its largest element: sums are grouped in another way, an error of 1e-16 a sum, which
Adam's division by a small root amplifies. In fp32 the loss, 1e-6 relative, as tests/e2e/accumulation_test.py has it.
What one rank accumulates micro-batch by micro-batch is bit for bit what as many ranks of two do: a + b is one sum.
"""
import json
import os
import signal
import subprocess
import time

import e2e
from accumulation_test import ADAMW, FP64, MANIFEST, Compared, tensors
from classifier_test import DATA, SIZES

CLOCK = os.environ.get("MORTISE_CLOCK", str(e2e.MORTISE.parent.parent / "tests/clock.so"))
COUNT = "[step.accumulation]\ncount = {}\n"
EVALUATED = MANIFEST.replace("pad_to", "validation = 0.2\npad_to")
DROPPED = MANIFEST.replace("context = 24", "context = 24\ndropout = 0.2")
LORA = "[adapter.lora]\nrank = 2\nwhere = [\"*.attn.*\"]\n"
MOE = "[layer.moe]\nexperts = 4\nwhere = \"h.1.mlp\"\njitter = 0.1\n"
NARROW = '[precision.bf16]\ngradients = "bf16"\n'
MUON = "[optimizer.muon]\nwhere = \"role:matrix\"\n" + ADAMW


class Ranks(Compared):
    def text(self, micro, more, manifest=MANIFEST, optimizer=ADAMW, samples=44):
        text = manifest.format(micro=micro, lr=1e-3, optimizer=optimizer, more=more)
        return text.replace("samples = 44", f"samples = {samples}")

    def run_of(self, ranks, micro, more, *args, **shape):
        name = f"of{ranks}"
        run = self.dir / "runs" / name
        e2e.shutil.rmtree(run, True)
        run = self.train(name, self.text(micro, more, **shape), *(["--ranks", str(ranks)] if ranks > 1 else []), *args)
        return tensors(self.checkpoint(run) / "model/model.safetensors"), self.losses(run)

    def losses(self, run):
        return [r["loss"] for r in self.records(run, "step")] + [r["eval.loss"] for r in self.records(run, "eval")]

    def saved(self, ranks, more, optimizer, manifest=MANIFEST, samples=44):
        e2e.shutil.rmtree(self.dir / "runs", True)
        text = self.text(2, more, optimizer=optimizer, manifest=manifest, samples=samples)
        run = self.train("saved", text.replace('"2 epochs"', "5"), "--ranks", str(ranks))
        return {str(p.relative_to(self.checkpoint(run))): p.read_bytes()
                for p in self.checkpoint(run).rglob("*.safetensors")}, self.losses(run)


class JointBatch(Ranks):
    def equal(self, joint, parted):
        self.same_tensors(joint[0], parted[0])
        self.near(joint[1], parted[1], 1e-9)

    def test_two_three_and_four_ranks(self):
        for ranks, micro in ((2, 4), (3, 3), (4, 2)):
            with self.subTest(ranks=ranks):
                self.equal(self.run_of(1, ranks * micro, FP64), self.run_of(ranks, micro, FP64))

    def test_a_last_micro_batch_of_one_sample(self):
        self.equal(self.run_of(1, 8, FP64, samples=41), self.run_of(2, 4, FP64, samples=41))

    def test_what_several_ranks_accumulate(self):
        self.equal(self.run_of(1, 8, FP64), self.run_of(2, 2, FP64 + COUNT.format(2)))

    def test_clipped_recomputed_adapted_and_averaged(self):
        for more in ("[gradient.clip]\nnorm = 0.05\n", "[activation.checkpointing]\n", LORA, "[ema.weights]\n",
                     "[gradient.noise]\n"):
            with self.subTest(more):
                self.equal(self.run_of(1, 8, FP64 + more), self.run_of(2, 4, FP64 + more))

    def test_evaluations(self):
        more = FP64 + "[eval]\nevery = 3\n"
        self.equal(self.run_of(1, 8, more, manifest=EVALUATED), self.run_of(2, 4, more, manifest=EVALUATED))

    def test_two_ranks_are_one_that_accumulates_bit_for_bit(self):
        for more, manifest in (("[activation.checkpointing]\n", DROPPED), (MOE, MANIFEST),
                               (MOE + "capacity_factor = 0.8\n", MANIFEST)):
            with self.subTest(more):
                one = self.run_of(1, 4, more + COUNT.format(2), manifest=manifest, samples=48)
                two = self.run_of(2, 4, more, manifest=manifest, samples=48)
                self.assertEqual(one[1], two[1])
                self.assertTrue(one[0] == two[0], "the losses are the same, the parameters are not")

    def test_the_loss_with_each_optimizer(self):
        for optimizer in (ADAMW, "[optimizer.sgd]", "[optimizer.adafactor]", MUON, "[optimizer.adamw_8bit]",
                          "[optimizer.adamw_anyprecision]"):
            with self.subTest(optimizer):
                self.near(self.run_of(1, 8, "", optimizer=optimizer)[1],
                          self.run_of(2, 4, "", optimizer=optimizer)[1], 2e-6)

    def test_the_loss_in_sixteen_bits(self):
        # A product is rounded to 16 bits in each micro-batch, 2^-11 and 2^-8 of it; NARROW's sum over ranks too.
        for more, tolerance in (("[precision.fp16]\n", 1e-5), ("[precision.bf16]\n", 1e-4), (NARROW, 1e-4)):
            with self.subTest(more):
                self.near(self.run_of(1, 8, more)[1], self.run_of(2, 4, more)[1], tolerance)


def zero(stage):
    """Of a small model: what has fewer elements than kernels read at once stays whole."""
    return f"[parallel.zero]\nstage = {stage}\nwhole_below = 64\n" if stage else ""


class Zero(Ranks):
    """What is shared out among the ranks (by stages: states; gradients and masters; values) changes no bit of two
    ranks, whose sums have one order, and nothing of a checkpoint. Of more ranks a sum depends on where an element lies
    in what is sent; a norm is that of parts, rounded in another place, which clipping shows."""

    STAGES = (1, 2, 3)

    def test_two_ranks_are_ddp_bit_for_bit(self):
        for more, optimizer in (("", ADAMW), ("", "[optimizer.sgd]\nmomentum = 0.9\n"), ("", "[optimizer.adafactor]"),
                                ("", MUON), (LORA, MUON), ("", "[optimizer.adamw_8bit]"),
                                ("[precision.bf16]\n", "[optimizer.adamw_anyprecision]"),
                                ("[precision.half]\n", "[optimizer.adamw_anyprecision]"), (NARROW, ADAMW),
                                (LORA + "[ema.weights]\n", ADAMW),
                                # One of the last block alone is large and trained: backward goes on below it.
                                (LORA + 'also = ["h.1.mlp.c_fc.weight"]\n', ADAMW),
                                ("[activation.offload]\nmin_kib = 1\n", ADAMW),
                                (MOE + "[activation.checkpointing]\n", ADAMW),
                                (MOE + 'products = "grouped"\n', ADAMW)):
            ddp = self.saved(2, more, optimizer)
            for stage in self.STAGES:
                with self.subTest(f"{optimizer} {more}", stage=stage):
                    self.assertTrue(ddp == self.saved(2, more + zero(stage), optimizer))

    def test_more_ranks_are_ddp_bit_for_bit_while_gradients_are_whole(self):
        for ranks, more, optimizer in ((3, "[gradient.clip]\nnorm = 0.05\n", ADAMW), (3, "", MUON),
                                       (4, "[precision.bf16]\n", "[optimizer.adamw_anyprecision]")):
            with self.subTest(f"{ranks} {optimizer} {more}"):
                self.assertTrue(self.saved(ranks, more, optimizer) == self.saved(ranks, more + zero(1), optimizer))

    def test_each_stage_is_the_joint_batch(self):
        # Clipped, noisy and averaged, with a last micro-batch of one sample, a short last step, and accumulation.
        more = (FP64 + "[gradient.clip]\nnorm = 0.05\n[gradient.noise]\n[ema.weights]\n[activation.checkpointing]\n"
                "[eval]\nevery = 7\n")
        length, shape = ('"2 epochs"', "20"), {"manifest": EVALUATED.replace('"2 epochs"', "20"), "samples": 51}
        joint = self.run_of(1, 12, more, **shape)
        for stage in self.STAGES:
            for ranks, micro, count in ((2, 3, 2), (3, 4, 1), (4, 3, 1)):
                with self.subTest(stage=stage, ranks=ranks):
                    parted = self.run_of(ranks, micro, more + zero(stage) + COUNT.format(count), **shape)
                    self.same_tensors(joint[0], parted[0])
                    self.near(joint[1], parted[1], 1e-9)

    def test_saves_by_the_clock_are_of_all_ranks(self):
        # Rank 1's is slow. Where each went by its own, rank 0 would gather for a save while rank 1 is in its next step.
        self.file("run.toml", self.text(2, zero(2) + '[comm.gloo]\ntimeout = "5 s"\n[checkpoint]\nevery = "0.1 s"\n'))
        shim = e2e.shutil.copy(CLOCK, self.dir / "clock.so")  # LD_PRELOAD takes no path with a space
        self.ok("train", "--ranks", "2", "--set", "run.length=60",
                env={"LD_PRELOAD": str(shim), "CLOCK_RANK": "1", "CLOCK_SHARE": "0.3"})
        self.assertGreater(len(self.records(self.dir / "runs/run", "saved")), 2)

    def test_what_is_drawn_by_micro_batch_is_that_of_one_rank(self):
        one = self.run_of(1, 4, MOE + COUNT.format(2), manifest=DROPPED, samples=48)
        for stage in self.STAGES:
            with self.subTest(stage=stage):
                two = self.run_of(2, 4, MOE + zero(stage), manifest=DROPPED, samples=48)
                self.assertTrue(one == two)

    def test_the_loss_of_three_ranks_with_each_optimizer(self):
        for optimizer in (ADAMW, "[optimizer.sgd]", "[optimizer.adafactor]", MUON, "[optimizer.adamw_8bit]",
                          "[optimizer.adamw_anyprecision]"):
            joint = self.run_of(1, 9, "", optimizer=optimizer)
            for stage in (2, 3):
                with self.subTest(optimizer, stage=stage):
                    self.near(joint[1], self.run_of(3, 3, zero(stage), optimizer=optimizer)[1], 2e-6)

    def test_the_scale_is_found_as_by_ddp(self):
        # From a scale at which every rank's gradients overflow, down past those at which one rank's do.
        # What is named is the first that overflowed: with adapters not the first that a rank has a part of.
        def steps(stage, more):
            more += "[precision.fp16]\ninitial = 68719476736.0\n[log.jsonl]\n" + zero(stage)
            e2e.shutil.rmtree(self.dir / "runs", True)
            run = self.train("scaled", self.text(2, more).replace('"2 epochs"', "5"), "--ranks", "2")
            return [[r.get(name) for name in ("loss", "skipped", "skipped_parameter", "scale")]
                    for r in self.records(run, "step")]

        for more in ("", LORA.replace("rank = 2", "rank = 8")):
            ddp = steps(0, more)
            self.assertEqual({bool(skipped) for _, skipped, _, _ in ddp}, {True, False})
            for stage in self.STAGES:
                with self.subTest(more, stage=stage):
                    self.assertEqual(ddp, steps(stage, more))

    def test_evaluations_and_samples_are_those_of_ddp(self):
        # Of the mean of the weights, whose place is that of the masters meanwhile; in bf16 it is cast, and cast back.
        def told(stage, more):
            e2e.shutil.rmtree(self.dir / "runs", True)
            text = e2e.TINY.replace("[data]\n", "[data]\nvalidation = 0.2\n") + zero(stage)
            text += "[eval]\nevery = 2\n[ema.weights]\n[sample.text]\ntokens = 8\n[log.jsonl]\n" + more
            run = self.train("told", text, "--ranks", "2")
            return [(r["event"], r.get("eval.loss"), r.get("text")) for kind in ("eval", "sample")
                    for r in self.records(run, kind)]

        for more in ("", "[precision.bf16]\n"):
            ddp = told(0, more)
            self.assertEqual({event for event, _, _ in ddp}, {"eval", "sample"})
            for stage in self.STAGES:
                with self.subTest(more, stage=stage):
                    self.assertEqual(ddp, told(stage, more))

    def plan(self, name, ranks):
        env = {"RANK": "0", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1",
               "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks)}
        result = subprocess.run([e2e.MORTISE, "plan", f"{name}.toml", "--json"], cwd=self.dir, text=True,
                                env=self.environment(**env), capture_output=True)
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)["memory"]

    def test_a_rank_has_its_part(self):
        # What matrices are computed with in 16 bits has a master of its own, of which stage 2 keeps a part.
        whole = None
        for stage in (0, *self.STAGES):
            self.file("run.toml", self.text(2, "[precision.bf16]\n" + zero(stage)).replace("width = 16", "width = 64"))
            memory = self.plan("run", 4)
            whole = whole or memory
            for what, parted_from in (("optimizer", 1), ("gradients", 2), ("weights", 3)):
                with self.subTest(what, stage=stage):
                    is_between = what == "weights" and stage == 2
                    part = memory[f"{what}_bytes"] / whole[f"{what}_bytes"]
                    expected = 0.3 if is_between else 0.25 if stage >= parted_from else 1
                    self.near([expected], [part], 0.08)
            self.assertEqual(memory["transient_bytes"] > 0, stage >= 2)
            self.assertEqual(memory["casts_bytes"] > 0, stage < 3)
            self.assertEqual(self.plan("run", 1)["transient_bytes"], 0)

    def test_from_any_number_of_ranks_a_run_goes_on_on_any_other(self):
        # A step each, at another stage or without it; each of 1, 2, 3 and 4 comes once after each. An epoch is 44
        # samples, three steps of 12 and a short one. Which samples a step has, its loss tells.
        order = (1, 1, 2, 1, 3, 1, 4, 2, 2, 3, 2, 4, 3, 3, 4, 4, 1)
        self.assertEqual(len({*zip(order, order[1:])}), 16)
        more = FP64 + "[step.accumulation]\nglobal_batch_size = 12\n[ema.weights]\n"
        whole = self.train("whole", self.text(1, more).replace('"2 epochs"', str(len(order))))
        self.file("begun.toml", self.text(1, more + zero(3)).replace('"2 epochs"', "1"))
        for step, ranks in enumerate(order, 1):
            stage = step * 3 % 4  # other ones than the ranks have had before
            flags = ("--set", f"parallel.zero.stage={stage}") if stage else ("--without", "parallel.zero")
            flags = ("--use", "parallel.zero", *flags) if stage else flags
            resume = ("resume", "runs/begun", "--set", f"run.length={step}", *flags)
            result = self.mortise(*(resume if step > 1 else ("train", "begun.toml")), "--ranks", ranks)
            self.assertEqual(result.code, 0, result)
        run = self.dir / "runs/begun"
        self.near(self.losses(whole), self.losses(run), 1e-12)
        for file in ("model/model.safetensors", "optimizer/rank-0.safetensors",
                     "plugins/ema.weights.rank-0.safetensors"):
            self.same_tensors(tensors(self.checkpoint(whole) / file), tensors(self.checkpoint(run) / file))

    def test_the_best_is_saved_though_nothing_else_is(self):
        text = self.text(4, zero(3) + "[eval]\nevery = 2\n[checkpoint]\nbest = \"eval.loss\"\nat_end = false\n",
                         manifest=EVALUATED)
        run = self.train("best", text, "--ranks", "2")
        best = [r["step"] for r in self.records(run, "eval") if r["best"]]
        self.assertEqual([r["step"] for r in self.records(run, "saved")], best)


class DataParallel(Ranks):
    """Gradients go to the first rank, which updates alone: the bits and checkpoints of parallel.ddp on two ranks."""

    DP = "[parallel.dp]\n"

    def test_two_ranks_are_ddp_bit_for_bit(self):
        clip = "[gradient.clip]\nnorm = 0.05\n"
        for more, optimizer in ((clip + "[gradient.noise]\n[ema.weights]\n" + COUNT.format(2), ADAMW), ("", MUON),
                                (LORA + clip, "[optimizer.adafactor]"), ("[offload.optimizer]\n", ADAMW),
                                ("[precision.bf16]\n", "[optimizer.adamw_8bit]"),
                                (MOE + "[activation.checkpointing]\n", "[optimizer.sgd]\nmomentum = 0.9\n")):
            with self.subTest(f"{optimizer} {more}"):
                self.assertTrue(self.saved(2, more, optimizer) == self.saved(2, more + self.DP, optimizer))

    def test_three_ranks_are_the_joint_batch(self):
        more = FP64 + "[gradient.clip]\nnorm = 0.05\n[activation.checkpointing]\n"
        shape = {"manifest": MANIFEST.replace('"2 epochs"', "20"), "samples": 51}
        joint = self.run_of(1, 12, more, **shape)
        parted = self.run_of(3, 4, more + self.DP, **shape)
        self.same_tensors(joint[0], parted[0])
        self.near(joint[1], parted[1], 1e-9)

    def test_a_scale_that_one_rank_overflows_is_lowered_on_all(self):
        def steps(more):
            e2e.shutil.rmtree(self.dir / "runs", True)
            more += "[precision.fp16]\ninitial = 68719476736.0\n[log.jsonl]\n"
            run = self.train("scaled", self.text(2, more).replace('"2 epochs"', "5"), "--ranks", "2")
            return [[r.get(name) for name in ("loss", "skipped", "skipped_parameter", "scale", "grad_norm")]
                    for r in self.records(run, "step")]

        ddp = steps("")
        self.assertEqual({bool(step[1]) for step in ddp}, {True, False})
        self.assertEqual(ddp, steps(self.DP))


class Resumed(Ranks):
    def resumed(self, run, ranks, length, *flags):
        return self.mortise("resume", f"runs/{run.name}", "--ranks", ranks, "--set", f"run.length={length}", *flags)

    def begun(self, ranks, more, micro):
        return self.train("begun", self.text(micro, more).replace('"2 epochs"', "4"), "--ranks", str(ranks))

    def test_the_same_ranks_go_on_bit_for_bit(self):
        for ranks, more in ((2, ""), (4, ""), (4, zero(1))):
            with self.subTest(ranks=ranks, more=more):
                e2e.shutil.rmtree(self.dir / "runs", True)
                whole = self.train("whole", self.text(2, more).replace('"2 epochs"', "8"), "--ranks", str(ranks))
                run = self.begun(ranks, more, 2)
                # What stood in until now may be stated.
                result = self.resumed(run, ranks, 8, "--use", "comm.gloo", "--set", "comm.gloo.timeout=100 s")
                self.assertEqual(result.code, 0, result)
                self.assertTrue(self.weights(run) == self.weights(whole), "the bits differ")

    def test_another_number_of_ranks_has_the_same_batch_or_is_refused(self):
        run = self.begun(2, "", 4)
        before = sorted((p, p.read_bytes()) for p in (run / "checkpoints").rglob("*") if p.is_file())
        result = self.resumed(run, 1, 8)
        self.assertEqual(result.code, 64, result)
        self.assertIn("error[batch_changed]: the run has steps of 2 ranks with 8 samples; with 1 a step has 4\n",
                      result.err)
        self.assertEqual(before, sorted((p, p.read_bytes()) for p in (run / "checkpoints").rglob("*") if p.is_file()))
        # It is finished, and what would make it longer has as many.
        self.assertIn(" --ranks 2 --set run.length=…\n", self.ok("resume", run).err)


    def test_ranks_that_drop_other_samples_are_refused(self):
        text = self.text(2, "[step.accumulation]\nglobal_batch_size = 8\n", samples=45).replace('"2 epochs"', "4")
        run = self.train("begun", text, "--ranks", "2", "--set", "data.drop_last=true")
        result = self.resumed(run, 4, 8)
        self.assertEqual(result.code, 64, result)
        self.assertIn("error[batch_changed]: the run has steps of 2 ranks, and `data.drop_last` leaves other samples "
                      "out with 4\n", result.err)
        self.assertEqual(self.resumed(run, 1, 8).code, 0)
        self.assertEqual((run / "sources/command.txt").read_text().splitlines()[0].split()[-2:], ["--ranks", "2"])

    def test_lost_before_the_first_save_it_begins_again_where_it_was(self):
        text = self.text(2, "").replace('"2 epochs"', "400")
        self.train("begun", text.replace("400", "2"))
        self.file("run.toml", text)
        run = self.dir / "runs/begun-2"
        process = self.in_a_step("run.toml", "--ranks", "2", "--set", "run.name=begun", of=run)
        os.kill(e2e.ranks_of(process.pid)[1], signal.SIGKILL)
        _, err = process.communicate(timeout=e2e.LIMIT_S)
        fix = "train run.toml --set run.name=begun --ranks 2 --set run.dir=runs/begun-2 --resume"
        self.assertIn(f"  fix: mortise {fix}\n", err)
        self.ok(*fix.split())
        self.assertEqual(len(self.records(run, "step")), 400)

    def test_a_rank_that_hangs_as_all_are_asked_to_end(self):
        """Rank 0 loses it and cannot save: the minute in which it may is not waited for."""
        self.file("run.toml", self.text(2, '[comm.gloo]\ntimeout = "3 s"\n').replace('"2 epochs"', "100000"))
        process = self.in_a_step("--ranks", "2", of=self.dir / "runs/run")
        os.kill(e2e.ranks_of(process.pid)[1], signal.SIGSTOP)
        process.send_signal(signal.SIGTERM)
        began = time.monotonic()
        _, err = process.communicate(timeout=e2e.LIMIT_S)
        self.assertEqual(process.returncode, 75, err)
        self.assertLess(time.monotonic() - began, 40)  # 3 of the call, 2 of patience, 5 after SIGTERM
        self.assertIn("error[rank_lost]: rank 1 did not end when another had, and was killed\n", err)

    def in_a_step(self, *args, of):
        process = self.start("train", *args, text=True)
        deadline = time.monotonic() + e2e.LIMIT_S
        while not ((of / "metrics.jsonl").exists() and self.records(of, "step")):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)
        return process


class Evaluated(Ranks):
    """`mortise eval` of several ranks has the numbers of one: counts are sums, losses of fp32 differ in last bits."""

    def same(self, *words, of=(3,)):  # of a last micro-batch some have nothing
        alone = json.loads(self.ok("eval", *words, "--json").out)
        for ranks in of:
            with self.subTest(ranks=ranks):
                result = self.ok("eval", *words, "--json", "--ranks", ranks)
                self.assertEqual(result.err, "")
                several = json.loads(result.out)
                for name, value in alone.items():
                    if name.startswith("eval."):
                        self.near([value], [several[name]], 1e-6)
                    elif name != "seconds":
                        self.assertEqual(value, several[name], name)

    def test_a_run(self):
        text = self.text(4, "[ema.weights]\n", manifest=EVALUATED, samples=51)  # 10 samples, of the mean of the weights
        self.same(self.train("run", text), of=(2, 3, 4))
        self.same(self.dir / "runs/run", "--set", "eval.micro_batch_size=3")

    def test_a_run_whose_states_and_values_were_shared_out(self):
        more = zero(3) + "[step.accumulation]\nglobal_batch_size = 8\n"  # which three ranks could not train with
        self.same(self.train("run", self.text(2, more, manifest=EVALUATED), "--ranks", "2"))

    def test_metrics_of_a_classifier(self):
        for name, n in (("train.csv", 24), ("test.csv", 19)):
            rows = (f"{'xyz'[k % 3] * (k % 5 + 1)},{'abc'[k * k % 3]}\n" for k in range(n))
            self.file(name, "text,mood\n" + "".join(rows))
        self.same(self.train("run", DATA + SIZES + '[metric.f1]\naverage = "macro"\n'))

    def test_the_weights_that_a_manifest_names(self):
        run = self.train("run", self.text(4, "", manifest=EVALUATED))
        text = self.text(4, "", manifest=EVALUATED)
        self.file("weights.toml", text.replace("[model.gpt]", f'[model]\nweights = "{run}"\n[model.gpt]'))
        self.same("weights.toml")

    def test_what_is_said(self):
        run = self.train("run", self.text(4, "", manifest=EVALUATED))
        self.assertRegex(self.ok("eval", run, "--ranks", "2").out, r", batch \d+ × 2 ranks, ")
        for words in (["eval", "runs/nowhere"], ["eval", "runs/run", "--checkpoint", "99"],
                      ["eval", "runs/run", "--split", "other"]):
            alone, several = self.mortise(*words), self.mortise(*words, "--ranks", "2")
            self.assertNotEqual(alone.code, 0)
            # On a busy machine rank 1 may be heard: rank 0, which had not begun 2 s later, was ended.
            self.assertEqual((several.code, several.err.replace("rank 1: ", "")), (alone.code, alone.err))


ASKS = """\
[plugin]
id      = "test.asks"
version = "0.1.0"
summary = "Asks for the end of the run"
status  = "alpha"
abi     = "0.2"

[points]
listens = [{ point = "step.end" }, { point = "record" }]
"""


class Ended(Ranks):
    def asked(self, ranks, fails):
        self.file("more/test.asks/plugin.toml", ASKS)
        self.compiled(self.dir / "more/test.asks", e2e.SOURCE / "tests/e2e/fixtures/asks.cpp", f"-DFAILS={fails}")
        self.file("run.toml", '[plugins]\npath = ["more"]\n' + self.text(2, "[test.asks]\n"))
        return self.mortise("train", "run.toml", "--ranks", str(ranks))

    def test_who_fails_between_steps_saves_nothing_alone(self):
        """A save is everybody's, and the other rank is at the next step."""
        result = self.asked(2, fails=1)
        self.assertIn("error[bad_data]: what 0 met\n  at: after step 3; in plugin test.asks, record\n", result.err)
        self.assertEqual(list(self.dir.glob("runs/run/checkpoints/step-*")), [])
        self.assertEqual(result.code, 65, result)

    def test_what_most_asks_for_has_its_own_reason(self):
        """Rank 0 asks for a stop, 1 and 2 for an abort, which ends all, as the first of them says."""
        result = self.asked(3, fails=0)
        self.assertEqual(result.code, 76, result)
        self.assertTrue(result.err.startswith("error[diverged]: what 1 saw\n"
                                              "  at: step 4, asked for by test.asks on rank 1\n"), result.err)


class Launched(Ranks):
    """As torchrun starts them, by its variables."""

    def launched(self, ranks, args_of, meanwhile=lambda: None, folder_of=lambda rank: "."):
        env = self.environment(WORLD_SIZE=str(ranks), LOCAL_WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1",
                               MASTER_PORT=str(e2e.free_port()))
        processes = [
            subprocess.Popen([e2e.MORTISE, *args_of(rank)], cwd=self.dir / folder_of(rank), stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True, env={**env, "RANK": str(rank), "LOCAL_RANK": str(rank)})
            for rank in range(ranks)
        ]
        self.processes = processes
        meanwhile()
        outputs = [p.communicate(timeout=e2e.LIMIT_S) for p in processes]
        return [(p.returncode, out, err) for p, (out, err) in zip(processes, outputs)]

    def test_one_run_of_which_the_first_rank_speaks(self):
        self.file("run.toml", self.text(4, ""))
        first, second = self.launched(2, lambda rank: ["train"])
        self.assertEqual((first[0], second), (0, (0, "", "")), first)
        self.assertIn("(4 a device × 1 accumulated × 2 ranks)", first[1])
        self.assertEqual(sorted(os.listdir(self.dir / "runs")), ["latest", "run"])

    def test_who_waits_for_the_others_says_so_after_ten_seconds(self):
        self.file("run.toml", self.text(4, '[comm.gloo]\ntimeout = "11 s"\n'))
        env = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
        port = str(e2e.free_port())
        result = self.mortise("train", "run.toml", env={**env, "MASTER_PORT": port})
        self.assertEqual(result.code, 75, result)
        self.assertIn(f"rank 0 waits for the other ranks at 127.0.0.1 port {port}, 11.0 s at most\n",
                      result.out + result.err)

    def test_a_rank_that_is_asked_to_stop_stops_all(self):
        self.file("run.toml", self.text(4, "").replace('"2 epochs"', "1_000_000") + "[log.jsonl]\n")

        def ask():
            for _ in range(1000):
                if (self.dir / "runs/run/metrics.jsonl").exists() and self.records(self.dir / "runs/run", "step"):
                    break
                time.sleep(0.05)
            self.processes[1].send_signal(signal.SIGTERM)

        for code, _, err in self.launched(2, lambda rank: ["train"], ask):
            self.assertEqual(code, 75, err)
        self.assertTrue((self.dir / "runs/run/checkpoints/latest/MANIFEST.json").exists())

    def test_ranks_of_another_manifest_do_not_train(self):
        self.file("run.toml", self.text(4, ""))
        self.file("elsewhere/notes.txt", "1 2 3 " * 300)
        here = e2e.TINY.replace("notes.txt", "/proc/self/cwd/notes.txt")  # one path, as on two hosts
        self.file("elsewhere/run.toml", here)
        for what, flags, folder, first_said in (
                ("run", ["--set", "optimizer.lr=2e-3"], ".", r"in \[optimizer\] `lr += 0.002`, where rank 0 has `lr "),
                ("run", ["--use", "parallel.zero"], ".", r"`\[parallel.zero\]`, where rank 0 has nothing"),
                ("run", ["--set", "eval.every=3"], ".", r"in \[eval\] `every += 3`, where rank 0 has "),
                ("data", [], "elsewhere", '`"fingerprint": "1.* tokens.*`, where rank 0 has `"fingerprint": "1')):
            with self.subTest(what):
                if folder != ".":
                    self.file("run.toml", here)
                first, second = self.launched(2, lambda rank: ["train", *(flags if rank else [])],
                                              folder_of=lambda rank: folder if rank else ".")
                self.assertEqual(second[0], 64, second)
                self.assertRegex(second[2],
                                 rf"error\[ranks_differ\]: rank 1 has another {what} than rank 0: {first_said}")
                self.assertEqual(first[0], 64, first)
                self.assertIn(f"error[ranks_differ]: another rank has another {what} than rank 0: it says which\n",
                              first[2])

    def test_where_a_rank_has_its_manifest_from_is_nothing(self):
        text = self.text(4, "").replace("notes.txt", str(self.dir / "notes.txt"))
        self.file("run.toml", text)
        self.file("elsewhere/run.toml", "# The same elsewhere.\n\n" + text)
        folders = {"folder_of": lambda rank: "elsewhere" if rank else "."}
        for code, _, err in self.launched(2, lambda rank: ["train"], **folders):
            self.assertEqual(code, 0, err)
        other = self.launched(2, lambda rank: ["train", "--set", f"optimizer.lr={rank + 1}"], **folders)[1]
        self.assertIn(" than rank 0: in [optimizer] `lr = 2", other[2])

    def test_a_run_that_is_finished_is_so_on_every_rank(self):
        self.file("run.toml", self.text(4, ""))
        for _ in range(2):
            for code, out, err in self.launched(2, lambda rank: ["train", "--resume"]):
                self.assertEqual(code, 0, err)
        self.assertEqual(len(self.records(self.dir / "runs/run", "end")), 1)

    def test_a_text_is_made_by_one_process(self):
        run = self.train("one", self.text(4, ""))
        for code, out, err in self.launched(2, lambda rank: ["sample", str(run)]):
            self.assertEqual((code, out, err), (64, "", (
                "error[ranks_not_started]: torchrun started 2 processes, and a text is made by one\n"
                "  effect: each process would have given the same text\n"
                "  fix: start one process, without torchrun, or: unset RANK WORLD_SIZE\n")))

    def test_an_evaluation_of_which_the_first_rank_speaks(self):
        run = self.train("one", self.text(4, "", manifest=EVALUATED))
        alone = json.loads(self.ok("eval", run, "--json").out)
        first, second = self.launched(2, lambda rank: ["eval", str(run), "--json"])
        self.assertEqual((first[0], second), (0, (0, "", "")), first)
        self.assertEqual(json.loads(first[1])["samples"], alone["samples"])

    def test_ranks_that_measure_something_else_do_not(self):
        run = self.train("one", self.text(4, "", manifest=EVALUATED))
        first, second = self.launched(2, lambda rank: ["eval", str(run), "--set", f"eval.samples={rank + 4}"])
        self.assertEqual((first[0], second[0]), (64, 64), (first, second))
        self.assertIn("error[ranks_differ]: rank 1 has another run than rank 0: in [eval] `samples = 5`, where rank 0 "
                      "has `samples = 4`\n  effect: nothing was measured\n", second[2])


if __name__ == "__main__":
    e2e.main()
