"""What `plan` shows of several ranks without starting one: each gradient is summed once, each norm counts an element
once, each term is divided once. Mistakes that plugins are given here are each found, by `train` as well. That what
plugins say is so, numbers show: mesh_test.py and joint_batch_test.py.
"""
import re

import e2e
from joint_batch_test import LORA, MUON, Ranks, zero
from mesh_test import CLIP, CUT, EXPERTS, SHARED, Meshed, WithCut
from refusals_test import LISTENS, Fixtures

REPLICAS = '\n[points]\nprovides = ["replicas"]\n[ranks]\n'
OF_OTHERS = "the 2 ranks that see other samples"


class Proofs(Meshed, Fixtures):
    def proof(self, more, ranks, **shape):
        return self.plan(self.with_plugins(more, **shape), ranks)["length"]["proof"]

    def with_plugins(self, more, **shape):
        return '[plugins]\npath = ["more"]\n' + Ranks.text(self, 2, more, **shape)

    def disproved(self, more, ranks, message, *path, fix="leave out ["):
        """Refused by `plan` and by `train`, which leaves nothing behind."""
        self.file("refused.toml", self.with_plugins(more))
        said = [f"error[not_proven]: {message}", *[f"  {line}" for line in path], f"  fix: {fix}"]
        for verb in ("plan", "train"):
            result = self.mortise(verb, "refused.toml", "--ranks", ranks)
            self.assertEqual(result.code, 64, result)
            self.assertIn("\n".join(said), re.sub("  --> refused.toml:.*\n", "", result.err))
            self.assertIn("1 error; nothing was started.\n", result.err)
        self.assertEqual(list(self.dir.glob("runs/*")), [])


class Holds(Proofs):
    def test_of_each_provider_of_replicas(self):
        for more, by in ((CLIP, "ddp"), (zero(1), "zero"), (zero(2), "zero"), (zero(3) + CLIP, "zero"),
                         ("[parallel.dp]\n", "dp"), (LORA + "[ema.weights]\n", "ddp")):
            with self.subTest(more):
                gradients, norm, terms = self.proof(more, 2)
                self.assertRegex(gradients, f"^gradients of \\d+ tensors: summed once over 2 ranks by parallel.{by}$")
                self.assertEqual(norm, "norm: each element counts once")
                self.assertEqual(terms, "terms: each is divided once, by what 2 ranks have counted")

    def test_of_experts_under_each(self):
        for more in ("", zero(1), zero(3)):
            with self.subTest(more):
                lines = self.proof(SHARED.format(2) + more, 4)
                self.assertRegex(lines[0], r"^gradients of 22 tensors: summed once over 4 ranks by parallel\.")
                self.assertRegex(lines[1], "^gradients of 32 tensors: whole along `experts` by layer.moe, summed once "
                                           r"over 2 ranks by parallel\.")
        self.assertIn("gradients of 32 tensors: whole along `experts` by layer.moe, not summed: no other rank has a "
                      "part of it", self.proof(SHARED.format(2), 2))
        self.assertEqual(self.proof(EXPERTS, 4)[0], "gradients of 54 tensors: summed once over 4 ranks by parallel.ddp")
        self.assertEqual(len(self.proof(SHARED.format(2) + LORA.replace("attn", "mlp"), 2)), 4)
        self.assertEqual(len(self.proof(SHARED.format(2), 2, optimizer=MUON)), 4)

    def test_is_printed_where_there_are_several_ranks(self):
        self.file("planned.toml", self.with_plugins(SHARED.format(2)))
        out = self.ok("plan", "planned.toml", "--ranks", "2").out
        self.assertIn("\n  norm: each element counts once\n  terms: each is divided once, by what 2 ranks have "
                      "counted\n", out)
        self.file("planned.toml", self.with_plugins(EXPERTS))
        self.assertNotIn("norm: ", self.ok("plan", "planned.toml").out)


class DoesNotHold(Proofs):
    def replicas(self, says):
        self.built("parallel.test", REPLICAS + says, source="replicas.c")

    def test_a_sum_that_is_missing(self):
        self.replicas('sums = "none"\n')
        self.disproved("[parallel.test]\n", 2, f"the gradient of wte.weight is summed by nobody over {OF_OTHERS}",
                       "each rank has that of the samples which it sees", "parallel.test sums it over no other rank")

    def test_who_does_not_say_what_is_summed(self):
        self.replicas("")
        self.disproved("[parallel.test]\n", 2, f"the gradient of wte.weight is summed by nobody over {OF_OTHERS}",
                       "each rank has that of the samples which it sees",
                       "parallel.test does not say over which ranks it sums: [ranks] sums")
        self.file("planned.toml", self.with_plugins("[parallel.test]\n"))
        self.ok("plan", "planned.toml")

    def test_an_experts_gradient_that_is_doubled(self):
        self.replicas('sums = "all"\n')
        self.assertEqual(len(self.proof(EXPERTS + "[parallel.test]\n", 4)), 3)
        self.disproved(SHARED.format(2) + "[parallel.test]\n", 4,
                       "the gradient of h.0.mlp.experts.0.c_fc.weight is whole along `experts`, and summed there: it "
                       "counts 2 times", "layer.moe at h.0.mlp leaves it whole along `experts`",
                       "parallel.test sums it over all 4 ranks")

    def test_terms_that_are_divided_twice(self):
        self.replicas('averages = "replicas"\n')
        self.disproved("[parallel.test]\n", 2,
                       "parallel.test divides gradients by the number of ranks: each term would be divided twice",
                       "the core divides each term by what 2 ranks have counted",
                       'parallel.test: [ranks] averages = "replicas"')

    def test_a_norm_over_replicas(self):
        self.built("gradient.test", LISTENS + '[ranks]\nnorms = "all"\n')
        self.disproved("[gradient.test]\n", 2, "gradient.test counts wte.weight 2 times in a norm",
                       "2 ranks have the same elements of it", 'gradient.test: [ranks] norms = "all"')
        self.assertEqual(len(self.proof("[gradient.test]\n" + zero(2).replace("64", "0"), 2)), 3)

    def test_a_norm_of_the_part_that_a_rank_has(self):
        self.built("gradient.test", LISTENS + '[ranks]\nnorms = "none"\n')
        self.assertEqual(len(self.proof("[gradient.test]\n", 2)), 3)
        self.disproved("[gradient.test]\n" + SHARED.format(2), 2,
                       "gradient.test leaves out of a norm what other ranks have of h.0.mlp.experts.0.c_fc.weight",
                       "each rank has other elements of it", 'gradient.test: [ranks] norms = "none"')


class OfALayer(WithCut, Proofs):
    """The linear of examples/05_tensor_parallel, whose plugin.toml says something else."""

    def test_holds_as_it_is(self):
        self.build()
        for more in ("", zero(2)):
            lines = self.proof(CUT.format(2) + more, 4)
            self.assertRegex(lines[0], r"^gradients of 24 tensors: summed once over 2 ranks by parallel\.")
            self.assertRegex(lines[1], "^gradients of 4 tensors: whole along `tensor` by linear.cut, summed once over "
                                       r"2 ranks by parallel\.")
            self.assertEqual(lines[3], "terms: each is divided once, by what 2 ranks have counted, the others see the "
                                       "same samples")
        both = EXPERTS.replace("h.*", "h.1") + "expert_parallel = 2\n" + CUT.format(2).replace("mlp", "attn")
        self.assertEqual(len(self.proof(both, 4)), 5)

    def test_a_partial_sum_that_it_gives(self):
        self.build('gives = "same" ', 'gives = "partial" ')
        self.disproved(CUT.format(2), 2,
                       "linear.cut at h.0.mlp.c_proj gives a partial sum along `tensor`, and the same on "
                       "each rank is expected", "ranks along `tensor` see the same samples",
                       'linear.cut: [ranks] gives = "partial"')

    def test_a_partial_sum_that_it_gives_back(self):
        self.build('gives_back = "same"', 'gives_back = "partial"')
        self.disproved(CUT.format(2), 2,
                       "linear.cut at h.0.mlp.c_proj gives back a partial sum along `tensor`, and the same "
                       "on each rank is expected", "ranks along `tensor` see the same samples",
                       'linear.cut: [ranks] gives_back = "partial"')

    def test_one_sum_too_many(self):
        self.build('gradient = "whole"', 'gradient = "whole"\nsums = "replicas"')
        both = "sums it over the 2 ranks that have the same elements and see other samples"
        self.disproved(CUT.format(2), 4, f"the gradient of h.0.mlp.c_proj.weight is summed 2 times over {OF_OTHERS}",
                       "each rank has that of the samples which it sees", f"parallel.ddp {both}", f"linear.cut {both}",
                       fix="leave out [linear.cut]")

    def test_a_gradient_that_nothing_can_add_up(self):
        self.build('gradient = "whole"', 'gradient = "partial"')
        self.disproved(CUT.format(2), 2,
                       "the gradient of h.0.mlp.c_proj.weight is partial along `tensor`, where no other "
                       "rank has its elements: nothing can add it up",
                       "linear.cut at h.0.mlp.c_proj leaves it partial along `tensor`",
                       "parallel.ddp sums it over no other rank")


if __name__ == "__main__":
    e2e.main()
