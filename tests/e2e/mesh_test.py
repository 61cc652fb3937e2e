"""Ranks along an axis: experts of which each rank has some, and a linear of which each has a part (the plugin of
examples/05_tensor_parallel). They equal one rank that has everything: of experts one that accumulates as many
micro-batches, since tokens are balanced by micro-batch.

In fp64 every tensor within 1e-9 of its largest element, as joint_batch_test.py has it: an expert's rows come from other
ranks in other groups, and sums are grouped otherwise.
"""
import json
import shutil

import e2e
from accumulation_test import ADAMW, FP64, MANIFEST, tensors
from joint_batch_test import COUNT, EVALUATED, LORA, MUON, Ranks, zero

STEPS = MANIFEST.replace('"2 epochs"', "20")
EXPERTS = '[layer.moe]\nexperts = 4\nwhere = "h.*.mlp"\n'
SHARED = EXPERTS + "expert_parallel = {}\n"
EVEN = "balance = 0.0\n"  # no loss that is one of each micro-batch
CLIP = "[gradient.clip]\nnorm = 0.05\n"
TWICE = """\
[plugin]
id      = "test.twice"
version = "0.1.0"
summary = "A norm that gives each row twice"
status  = "alpha"
abi     = "0.2"

[points]
provides = ["residual_norm"]

[residual_norm]
attributes = ["name", "width", "eps", "kind", "dropout"]
"""
CUT = '[linear.cut]\nwhere = "h.*.mlp.c_proj"\nranks = {}\n'


class Meshed(Ranks):
    def plan(self, text, ranks):
        self.file("planned.toml", text)
        return json.loads(self.ok("plan", "planned.toml", "--ranks", ranks, "--json").out)

    def refuses(self, text, ranks, message):
        self.file("refused.toml", text)
        for verb in ("plan", "train"):
            result = self.mortise(verb, "refused.toml", *(["--ranks", ranks] if ranks > 1 else []))
            self.assertEqual(result.code, 64, result)
            self.assertIn(message, result.err)

    def equal(self, one, parted):
        self.same_tensors(one[0], parted[0])
        self.near(one[1], parted[1], 1e-9)


class Experts(Meshed):
    def one(self, ranks, more="", **shape):
        return self.run_of(1, 2, FP64 + EXPERTS + COUNT.format(ranks) + more, **shape)

    def shared(self, ranks, along, more="", **shape):
        return self.run_of(ranks, 2, FP64 + SHARED.format(along) + more, **shape)

    def test_over_two_and_four_ranks(self):
        shape = {"manifest": STEPS, "samples": 160}
        for ranks, along in ((2, (2,)), (4, (4, 2))):
            one = self.one(ranks, CLIP, **shape)
            for size in along:
                for stage in (0, 1, 2, 3):
                    with self.subTest(ranks=ranks, along=size, stage=stage):
                        self.equal(one, self.shared(ranks, size, CLIP + zero(stage), **shape))

    def test_with_a_capacity_and_lengths_that_differ_between_ranks(self):
        """Ranks send as many rows whatever they have: `random` gives lengths of 4 to 24, and a last row alone."""
        for capacity in ("1.25", "0.5", "4.0"):
            for ranks, along in ((2, 2), (4, 2), (4, 4)):
                with self.subTest(capacity=capacity, ranks=ranks, along=along):
                    moe = EXPERTS.replace("experts = 4", "experts = 8") + f"capacity_factor = {capacity}\n"
                    shape = {"manifest": STEPS, "samples": 161}
                    one = self.run_of(1, 2, FP64 + COUNT.format(ranks) + moe, **shape)
                    self.equal(one, self.run_of(ranks, 2, FP64 + moe + f"expert_parallel = {along}\n", **shape))

    def test_with_what_else_there_is(self):
        shape = {"manifest": EVALUATED.replace('"2 epochs"', "8"), "samples": 96}
        for more, optimizer in (("[activation.checkpointing]\n[gradient.noise]\n[ema.weights]\n[eval]\nevery = 3\n",
                                 ADAMW), (LORA.replace("attn", "mlp"), ADAMW), ("", MUON)):
            with self.subTest(f"{more} {optimizer}"):
                one = self.one(2, more, optimizer=optimizer, **shape)
                for stage in (0, 2):
                    self.equal(one, self.shared(2, 2, more + zero(stage), optimizer=optimizer, **shape))

    def test_the_loss_with_a_capacity_in_sixteen_bits_and_by_rows_and_columns(self):
        for more, optimizer, tolerance in (("capacity_factor = 1.0\n", ADAMW, 1e-5),
                                           ("[precision.bf16]\n", ADAMW, 1e-3),
                                           ("", "[optimizer.adafactor]", 1e-5), ("", "[optimizer.adamw_8bit]", 1e-5),
                                           ("", "[optimizer.adamw_8bit]\nmin_8bit_size = 1", 1e-3)):
            with self.subTest(f"{more} {optimizer}"):
                shape = {"samples": 48, "optimizer": optimizer}
                one = self.run_of(1, 2, EXPERTS + more + COUNT.format(2), **shape)
                for stage in (0, 2):
                    two = self.run_of(2, 2, SHARED.format(2) + more + zero(stage), **shape)
                    self.near(one[1], two[1], tolerance)

    def test_where_experts_of_one_rank_learn_and_nothing_before_them(self):
        """All ranks go back through the exchange, or those that do wait for the others."""
        lora = '[adapter.lora]\nrank = 2\nwhere = {}\n'
        frozen = '[parameters.still]\nwhere = {{ match = "*", except = {} }}\nfreeze = true\n'
        wait = '[comm.gloo]\ntimeout = "20 s"\n'
        for more in (lora.format('["h.0.mlp.experts.0.*", "h.1.attn.c_attn"]'), lora.format('"h.0.mlp.experts.1*"'),
                     lora.format('["h.0.mlp.experts.0.*", "h.1.mlp.experts.3.*"]'),
                     frozen.format('["h.0.mlp.experts.0.*", "ln_f*"]')):
            for capacity in ("", "capacity_factor = 1.25\n"):
                with self.subTest(f"{more} {capacity}"):
                    one = self.run_of(1, 2, FP64 + more + COUNT.format(2) + EXPERTS + capacity, samples=32)
                    for stage in (0, 3):
                        two = FP64 + more + wait + zero(stage) + SHARED.format(2) + capacity
                        self.equal(one, self.run_of(2, 2, two, samples=32))

    def test_with_a_capacity_there_is_room_for_a_micro_batch_and_no_more(self):
        self.file("more/test.twice/plugin.toml", TWICE)
        text = '[plugins]\npath = ["more"]\n' + self.text(2, SHARED.format(2) + "capacity_factor = 1.0\n")
        self.file("run.toml", text + '[test.twice]\nwhere = "h.1.ln_2"\n')
        for along, shape in ((0, r"4 × \d+"), (1, r"2 × (2[5-9]|[34]\d)")):
            self.compiled(self.dir / "more/test.twice", e2e.SOURCE / "tests/e2e/fixtures/twice.cpp", f"-DALONG={along}")
            result = self.mortise("train", "run.toml", "--ranks", "2")
            self.assertEqual(result.code, 71, result)
            self.assertRegex(result.err, r"error\[plugin_failed\]: ranks that share experts with a capacity make room "
                             rf"for data.micro_batch_size × data.sequence_length positions; here are {shape}\n")
            self.assertIn("capacity_factor = 0, or expert_parallel = 1\n", result.err)

    def test_a_run_goes_on_on_other_ranks_and_along_others(self):
        more = FP64 + EXPERTS + EVEN + "[step.accumulation]\nglobal_batch_size = 12\n[ema.weights]\n"
        whole = self.train("whole", self.text(1, more, samples=48).replace('"2 epochs"', "12"))
        run = self.train("begun", self.text(1, more + zero(3), samples=48).replace('"2 epochs"', "2"), "--ranks", "4",
                         "--set", "layer.moe.expert_parallel=4")
        for ranks, along, stage, until in ((2, 2, 2, 4), (1, 1, 3, 6), (4, 2, 3, 8), (2, 1, 1, 10), (4, 2, None, 12)):
            flags = ("--without", "parallel.zero") if stage is None else ("--set", f"parallel.zero.stage={stage}")
            result = self.mortise("resume", "runs/begun", "--ranks", ranks, "--set", f"run.length={until}", "--set",
                                  f"layer.moe.expert_parallel={along}", *flags)
            self.assertEqual(result.code, 0, result)
        self.near(self.losses(whole), self.losses(run), 1e-12)
        for file in ("model/model.safetensors", "plugins/ema.weights.rank-0.safetensors"):
            self.same_tensors(tensors(self.checkpoint(whole) / file), tensors(self.checkpoint(run) / file))
        names = {str(p.relative_to(self.checkpoint(run))) for p in self.checkpoint(run).rglob("*.safetensors")}
        self.assertEqual(names, {str(p.relative_to(self.checkpoint(whole)))
                                 for p in self.checkpoint(whole).rglob("*.safetensors")})

    def test_one_process_evaluates_and_exports_what_ranks_have_trained(self):
        text = self.text(2, SHARED.format(2), manifest=EVALUATED).replace('"2 epochs"', "4")
        run = self.train("run", text, "--ranks", "2")
        result = self.ok("eval", "runs/run", "--json")
        self.near([json.loads(result.out.splitlines()[-1])["eval.loss"]],
                  [self.records(run, "eval")[-1]["eval.loss"]], 1e-5)

    def test_a_rank_has_its_own_alone(self):
        # Wide experts, so that little else counts: a quarter of each, with its gradient and states.
        text = self.text(2, EXPERTS).replace("width = 16", "width = 64")
        whole, parted = self.plan(text, 4), self.plan(text + "expert_parallel = 4\n", 4)
        self.assertEqual(whole["model"], parted["model"])
        inner = 2 * 4 * (64 * 256 * 2 + 256 + 64)  # of the experts of two layers
        for what, each in (("weights", 4), ("gradients", 4), ("optimizer", 8)):
            with self.subTest(what):
                less = whole["memory"][f"{what}_bytes"] - parted["memory"][f"{what}_bytes"]
                self.assertEqual(less, inner * each * 3 // 4)
        self.assertEqual(parted["length"]["axes"], [
            "experts: along 4 ranks (layer.moe.expert_parallel) lie 32 of 54 tensors, which no other rank has"])
        self.assertEqual(whole["length"]["axes"], [])
        # Of a sum over n ranks each sends 2 (n - 1) / n; over itself nothing.
        self.assertEqual(whole["length"]["sent_bytes"] - parted["length"]["sent_bytes"], inner * 4 * 6 // 4)
        self.file("planned.toml", text + "expert_parallel = 2\n")
        self.assertIn("  experts: along 2 ranks (layer.moe.expert_parallel) lie 32 of 54 tensors, each the same on 2 "
                      "ranks\n", self.ok("plan", "planned.toml", "--ranks", "4").out)

    def test_ranks_that_do_not_share_them_evenly_are_refused(self):
        self.refuses(self.text(2, SHARED.format(2)), 3, "error[axes_do_not_fit]: layer.moe.expert_parallel = 2 wants a "
                     "number of ranks that 2 divides; there are 3\n")
        self.refuses(self.text(2, SHARED.format(3)), 3,
                     "error[refused_value]: 3 ranks do not share 4 experts evenly")


class WithCut(Meshed):
    def build(self, old="", new="", file="plugin.toml"):
        """The plugin, with another text in one of its files."""
        source = e2e.SOURCE / "examples/05_tensor_parallel"
        folder = self.dir / "more/linear.cut"
        shutil.rmtree(folder, True)
        shutil.copytree(source, folder)
        text = (source / file).read_text()
        self.assertIn(old, text)
        (folder / file).write_text(text.replace(old, new) if old else text)
        self.compiled(folder, "cut.cpp")

    def text(self, micro, more, **shape):
        return '[plugins]\npath = ["more"]\n' + super().text(micro, more, **shape)


class Cut(WithCut):
    def setUp(self):
        super().setUp()
        self.build()

    def test_over_ranks_that_see_the_same_samples(self):
        shape = {"manifest": STEPS.replace("context = 24", "context = 24\ndropout = 0.1"), "samples": 64}
        for count, places in ((1, ((1, 1, 0), (2, 2, 0), (2, 2, 2))), (2, ((4, 2, 0), (4, 2, 1), (4, 2, 3)))):
            one = self.run_of(1, 4, FP64 + CLIP + COUNT.format(count), **shape)
            for ranks, along, stage in places:
                with self.subTest(ranks=ranks, along=along, stage=stage):
                    more = FP64 + CLIP + zero(stage) + CUT.format(along)
                    self.equal(one, self.run_of(ranks, 4, more, **shape))

    def test_with_experts_on_other_ranks(self):
        more, shape = FP64 + EXPERTS.replace("h.*", "h.1") + CLIP, {"manifest": STEPS, "samples": 160}
        cut = CUT.format(2).replace("h.*.mlp.c_proj", "h.*.attn.c_proj")
        one = self.run_of(1, 2, more + COUNT.format(2), **shape)
        for stage in (0, 2):
            with self.subTest(stage=stage):
                shared = more.replace(CLIP, "expert_parallel = 2\n" + CLIP)
                self.equal(one, self.run_of(4, 2, shared + cut + zero(stage), **shape))

    def test_a_run_goes_on_with_another_number_of_parts(self):
        more = FP64 + "[step.accumulation]\nglobal_batch_size = 8\n[ema.weights]\n"
        whole = self.train("whole", self.text(2, more).replace('"2 epochs"', "8"))
        run = self.train("begun", self.text(2, more + CUT.format(2)).replace('"2 epochs"', "2"), "--ranks", "2")
        for ranks, along, until in ((4, 2, 4), (1, 1, 6), (4, 4, 8)):
            result = self.mortise("resume", "runs/begun", "--ranks", ranks, "--set", f"run.length={until}", "--set",
                                  f"linear.cut.ranks={along}", "--plugin-path", "more")
            self.assertEqual(result.code, 0, result)
        self.near(self.losses(whole), self.losses(run), 1e-12)
        for file in ("model/model.safetensors", "plugins/ema.weights.rank-0.safetensors"):
            self.same_tensors(tensors(self.checkpoint(whole) / file), tensors(self.checkpoint(run) / file))

    def test_ranks_that_see_the_same_samples_count_where_others_are_refused(self):
        self.train("begun", self.text(2, CUT.format(2)).replace('"2 epochs"', "2"), "--ranks", "4")
        result = self.mortise("resume", "runs/begun", "--ranks", "2", "--set", "run.length=4", "--plugin-path", "more")
        self.assertEqual(result.code, 64, result)
        self.assertIn("error[batch_changed]: the run has steps of 4 ranks with 4 samples; with 2 a step has 2\n",
                      result.err)
        self.assertIn("  fix: --ranks 4, which has the same steps\n", result.err)

    def test_the_plan_says_who_sees_the_same(self):
        parted = self.plan(self.text(2, CUT.format(2)), 4)
        self.assertEqual(parted["length"]["axes"], [
            "tensor: along 2 ranks (linear.cut.ranks), which see the same samples, lie 4 of 28 tensors, each the same "
            "on 2 ranks"])
        self.assertEqual(parted["length"]["samples_per_step"], 4)

    def test_a_linear_without_a_bias_and_in_bf16(self):
        llama = STEPS.replace("[model.gpt]", "[model.llama]").replace("width = 16", "width = 32")
        cut = CUT.format(2).replace("h.*.mlp.c_proj", "*.mlp.down_proj")
        for more in (FP64, "[precision.bf16]\n"):
            one = self.run_of(1, 4, more, manifest=llama, samples=64)
            two = self.run_of(2, 4, more + cut, manifest=llama, samples=64)
            self.assertEqual(sorted(one[0]), sorted(two[0]))
            # Products in bf16 have 8 bits, and are of other sizes.
            self.near(one[1], two[1], 1e-9 if more == FP64 else 2e-2)

    def test_ranks_that_do_not_fit_are_refused(self):
        self.refuses(self.text(2, CUT.format(2**32)), 2, "error[axes_do_not_fit]: linear.cut.ranks = ")
        for ranks, there in ((1, "there is 1"), (3, "there are 3")):
            with self.subTest(ranks=ranks):
                self.refuses(self.text(2, CUT.format(2)), ranks, "error[axes_do_not_fit]: linear.cut.ranks = 2 wants a "
                             f"number of ranks that 2 divides; {there}\n")

    def test_a_place_that_only_one_rank_says_is_refused(self):
        for line, instead in (
                ("if (layer->has(e->param))", "if (layer->has(e->param) && place_now().rank == 0)"),
                ('value("out")', 'value(place_now().rank == 0 || info_of(e->param).rank < 2 ? "out" : "in")')):
            with self.subTest(instead):
                self.build(line, instead, file="cut.cpp")
                self.file("run.toml", self.text(2, CUT.format(2)))
                result = self.mortise("train", "run.toml", "--ranks", "2")
                self.assertEqual(result.code, 71, result)
                self.assertIn("`place.AXIS` of a parameter is not the same on every rank", result.err)

    def test_what_needs_the_whole_matrix_is_refused(self):
        self.refuses(self.text(2, CUT.format(2), optimizer=MUON), 2,
                     "optimizer.muon does not update h.0.mlp.c_proj.weight element by element, and ranks along "
                     "`tensor` have parts of it\n")
        self.refuses(self.text(2, CUT.format(3)), 3,
                     "error[refused_value]: 3 ranks do not share 16 outputs evenly\n")


if __name__ == "__main__":
    e2e.main()
