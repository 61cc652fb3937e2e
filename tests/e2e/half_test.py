"""A model held whole in half precision, [precision.half], and who trains such weights."""
import json
import math
import struct

import e2e
from e2e import TINY

EVERY = ("--set", "log.every=1")
VALIDATED = TINY.replace("sequence_length = 16", "sequence_length = 16\nvalidation = 0.1")


def with_optimizer(tables):
    return TINY.replace("[optimizer.adamw]", tables) + "[precision.half]\n"


class Half(e2e.Case):
    def dtypes(self, run, file):
        data = (self.checkpoint(run) / file).read_bytes()
        (n,) = struct.unpack("<Q", data[:8])
        return {e["dtype"] for name, e in json.loads(data[8:8 + n]).items() if name != "__metadata__"}

    def losses(self, run):
        return [r["loss"] for r in self.records(run, "step")]

    def test_weights_are_stored_and_saved_in_its_dtype(self):
        any_precision = "[optimizer.adamw_anyprecision]\nmomentum_dtype = \"bf16\"\nkahan_summation = true\n"
        for name, tables, dtype, saved in (("one", any_precision, "bf16", "BF16"),
                                           ("two", "[optimizer.adafactor]\n", "bf16", "BF16"),
                                           ("three", "[optimizer.adafactor]\n", "fp16", "F16")):
            run = self.train(name, with_optimizer(tables), *EVERY, "--set", f"precision.half.dtype={dtype}")
            self.assertEqual(self.dtypes(run, "model/model.safetensors"), {saved}, name)
            losses = self.losses(run)
            self.assertLess(losses[-1], losses[0], name)

    # The rounding of a weight or an activation is 2^-9 of it in bf16, 2^-12 in fp16; the loss is a mean over 64 tokens
    # of sums over some ten roundings of about 1: sqrt(10 / 64) * 2^-9 = 8e-4 of a nat, of 5.5. Ten times that.
    def test_the_first_loss_is_that_of_fp32_but_for_rounding(self):
        wide = self.losses(self.train("wide", TINY, *EVERY))[0]
        half = self.losses(self.train("half", with_optimizer("[optimizer.adafactor]\n"), *EVERY))[0]
        self.assertNotEqual(wide, half)
        self.assertTrue(math.isclose(wide, half, abs_tol=8e-3), (wide, half))

    def test_a_run_in_fp32_is_evaluated_in_half(self):
        self.train("run", VALIDATED)
        text = VALIDATED + '[model]\nweights = "runs/run"\n'

        def loss(tables, dtype):
            self.file("eval.toml", text + tables)
            self.assertIn(f"{dtype}, batch", self.ok("eval", "eval.toml").out)
            return json.loads(self.ok("eval", "eval.toml", "--json").out)["eval.loss"]
        wide = loss("", "fp32")
        self.assertAlmostEqual(loss('[parameters.all]\nwhere = "*"\ndtype = "fp64"\n', "fp64"), wide, delta=1e-5)
        for dtype in ("bf16", "fp16"):  # the optimizer of the run, AdamW, trains no such weights, and need not
            half = loss(f'[precision.half]\ndtype = "{dtype}"\n', dtype)
            self.assertNotEqual(half, wide)
            self.assertTrue(math.isclose(half, wide, abs_tol=8e-3), dtype)

    def test_optimizers_of_wider_weights_refuse_and_name_those_that_do_not(self):
        for optimizer in ("optimizer.adamw", "optimizer.sgd"):
            self.file("run.toml", with_optimizer(f"[{optimizer}]\n"))
            result = self.mortise("train")
            self.assertEqual(result.code, 64, result)
            self.assertEqual(result.err.count("error["), 1, result)
            for text in (f"{optimizer} updates weights in fp32 or fp64; those of wte.weight are in another dtype",
                         "  fix: [precision.bf16], which keeps fp32 weights beside bf16 ones",
                         "[optimizer.adamw_anyprecision]", "[optimizer.adafactor]"):
                self.assertIn(text, result.err)


if __name__ == "__main__":
    e2e.main()
