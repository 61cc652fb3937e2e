"""Ranks along an axis: a linear of which each has a part (the plugin of fixtures/cut). They equal one rank that has
everything: in fp64 every tensor within 1e-9 of its largest element, as joint_batch_test.py has it, since sums are grouped
otherwise.
"""
import json
import os
import shutil
import subprocess
import unittest

import e2e
from accumulation_test import FP64, MANIFEST, tensors
from joint_batch_test import COUNT, MUON, Ranks, zero

STEPS = MANIFEST.replace('"2 epochs"', "20")
CLIP = "[gradient.clip]\nnorm = 0.05\n"
CUT = '[test.cut]\nwhere = "h.*.mlp.c_proj"\nranks = {}\n'


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


@unittest.skipIf(shutil.which(os.environ.get("CXX", "c++")) is None, "no C++ compiler")
class Cut(Meshed):
    def setUp(self):
        super().setUp()
        source = e2e.SOURCE / "tests/e2e/fixtures/cut"
        folder = self.dir / "more/test.cut"
        shutil.copytree(source, folder)
        subprocess.run([os.environ.get("CXX", "c++"), "-std=c++20", "-shared", "-fPIC", "-fvisibility=hidden",
                        f"-I{e2e.SOURCE}/sdk/include", f"-Wl,--version-script={e2e.SOURCE}/sdk/cmake/plugin.map",
                        '-DMORTISE_PLUGIN_TOML="plugin.toml"', "cut.cpp", "-o", "test.cut.so"],
                       cwd=folder, check=True, timeout=e2e.LIMIT_S)

    def text(self, micro, more, **shape):
        return '[plugins]\npath = ["more"]\n' + super().text(micro, more, **shape)

    def test_over_ranks_that_see_the_same_samples(self):
        shape = {"manifest": STEPS.replace("context = 24", "context = 24\ndropout = 0.1"), "samples": 64}
        for count, places in ((1, ((1, 1, 0), (2, 2, 0), (2, 2, 2))), (2, ((4, 2, 0), (4, 2, 1), (4, 2, 3)))):
            one = self.run_of(1, 4, FP64 + CLIP + COUNT.format(count), **shape)
            for ranks, along, stage in places:
                with self.subTest(ranks=ranks, along=along, stage=stage):
                    more = FP64 + CLIP + zero(stage) + CUT.format(along)
                    self.equal(one, self.run_of(ranks, 4, more, **shape))

    def test_a_run_goes_on_with_another_number_of_parts(self):
        more = FP64 + "[step.accumulation]\nglobal_batch_size = 8\n[ema.weights]\n"
        whole = self.train("whole", self.text(2, more).replace('"2 epochs"', "8"))
        run = self.train("begun", self.text(2, more + CUT.format(2)).replace('"2 epochs"', "2"), "--ranks", "2")
        for ranks, along, until in ((4, 2, 4), (1, 1, 6), (4, 4, 8)):
            result = self.mortise("resume", "runs/begun", "--ranks", ranks, "--set", f"run.length={until}", "--set",
                                  f"test.cut.ranks={along}", "--plugin-path", "more")
            self.assertEqual(result.code, 0, result)
        self.near(self.losses(whole), self.losses(run), 1e-12)
        for file in ("model/model.safetensors", "plugins/ema.weights.rank-0.safetensors"):
            self.same_tensors(tensors(self.checkpoint(whole) / file), tensors(self.checkpoint(run) / file))

    def test_the_plan_says_who_sees_the_same(self):
        parted = self.plan(self.text(2, CUT.format(2)), 4)
        self.assertEqual(parted["length"]["axes"], [
            "tensor: along 2 ranks (test.cut.ranks), which see the same samples, lie 4 of 28 tensors, each the same on "
            "2 ranks"])
        self.assertEqual(parted["length"]["samples_per_step"], 4)

    def test_ranks_that_do_not_fit_are_refused(self):
        for ranks, there in ((1, "there is 1"), (3, "there are 3")):
            with self.subTest(ranks=ranks):
                self.refuses(self.text(2, CUT.format(2)), ranks, "error[axes_do_not_fit]: test.cut.ranks = 2 wants a "
                             f"number of ranks that 2 divides; {there}\n")

    def test_what_needs_the_whole_matrix_is_refused(self):
        self.refuses(self.text(2, CUT.format(2), optimizer=MUON), 2,
                     "optimizer.muon does not update h.0.mlp.c_proj.weight element by element, and ranks along "
                     "`tensor` have parts of it\n")
        self.refuses(self.text(2, CUT.format(3)), 3,
                     "error[refused_value]: 3 ranks do not share 16 outputs evenly\n")


if __name__ == "__main__":
    e2e.main()
