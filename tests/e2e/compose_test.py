"""Several plugins of one kind in one run, by places and modes; what is refused; what is switched off."""
import re

import e2e
from e2e import TINY
from refusals_test import Fixtures

WRAPPER = """\
[plugin]
id      = "activation.twice"
version = "0.1.0"
summary = "Another wrapper of blocks"
status  = "alpha"
tier    = "portable"
abi     = "0.1"
[points]
wraps = [{ point = "block", band = "repeat" }]
"""


class Compose(e2e.Case):
    def plan(self, text, *flags):
        self.file("run.toml", text)
        return self.ok("plan", *flags).out

    def test_two_optimizers_by_role(self):
        text = TINY + '[optimizer.sgd]\nwhere = "role:norm"\n'
        out = self.plan(text)
        self.assertRegex(out, r"(?m)^  optimizer +optimizer\.sgd +at role:norm")
        self.assertRegex(out, r"(?m)^  6 tensors, .*: optimizer\.sgd, cut by element$")  # of ln_1, ln_2 and ln_f
        self.assertRegex(out, r"(?m)^  \d+ tensors, lr 1\.0e-03, weight decay 0\.01: optimizer\.adamw, cut by element$")
        self.assertNotEqual(self.weights(self.train("two", text)), self.weights(self.train("one")))

    def test_two_optimizers_each_with_its_own_lr(self):
        text = (
            "[optimizer]\nlr = 7e-3\nweight_decay = 0.1\n"
            + TINY
            + 'lr = 2e-3\n[optimizer.sgd]\nwhere = "role:norm"\nlr = 0.5\n'
        )
        out = self.plan(text)
        self.assertRegex(out, r"(?m)^  6 tensors, lr 5\.0e-01, .*: optimizer\.sgd, cut by element$")
        self.assertRegex(out, r"(?m)^  \d+ tensors, lr 2\.0e-03, weight decay 0\.1: optimizer\.adamw, cut by element$")
        own = self.train("own", text)
        self.assertNotEqual(
            self.weights(own), self.weights(self.train("shared", text.replace("lr = 0.5\n", "lr = 2e-3\n")))
        )
        self.assertEqual(
            self.weights(own),
            self.weights(self.train("set", text.replace("lr = 0.5\n", ""), "--set", "optimizer.sgd.lr=0.5")),
        )
        # The resolved manifest says it too.
        self.assertEqual(
            self.weights(own),
            self.weights(self.train("again", (own / "run.toml").read_text().replace('name = "own"', 'name = "again"'))),
        )
        # With one provider, there is one place for it.
        self.file("one.toml", TINY + "lr = 2e-3\n")
        self.refused(
            ["plan", "one.toml"],
            "error[unknown_key]: [optimizer.adamw] has no key `lr`\n  --> one.toml:14:1\n"
            "  fix: `lr` belongs in [optimizer]\n\n1 error; nothing was started.\n",
        )

    def test_another_attention_in_evaluation(self):
        text = (
            TINY.replace("micro_batch_size", "validation = 0.2\nmicro_batch_size")
            + '[attention.math]\nmodes = ["eval"]\n'
        )
        out = self.plan(text)
        self.assertRegex(out, r"(?m)^  attention +attention\.math +.*eval")
        self.assertRegex(out, r"(?m)^  attention +attention\.auto +in train, sample; -> attention\.flash")
        run = self.train("modes", text)
        self.assertEqual(len(self.records(run, "eval")), 1)
        # Training never saw it.
        self.assertEqual(self.weights(run), self.weights(self.train("plain", text.split("[attention")[0])))

    def test_two_wrappers_of_one_band_need_an_order(self):
        self.file("more/activation.twice/plugin.toml", WRAPPER)
        self.file("run.toml", TINY + "[activation.checkpointing]\n[activation.twice]\n")
        result = self.mortise("plan", "--static", "--plugin-path", "more")
        self.assertEqual(result.code, 64, result)
        self.assertRegex(
            result.err,
            r"^error\[\w+\]: activation\.checkpointing and activation\.twice both wrap in band `repeat` at `block`, "
            r"and nothing orders them\n",
        )
        self.assertIn("  --> run.toml:14:1 and run.toml:15:1\n", result.err)
        self.file(
            "more/activation.twice/plugin.toml", WRAPPER + '[capabilities]\nafter = ["activation.checkpointing"]\n'
        )
        result = self.mortise("plan", "--static", "--plugin-path", "more")
        self.assertEqual(result.code, 0, result)

    def test_what_is_switched_off_takes_no_part(self):
        out = self.plan(TINY + "[gradient.clip]\nenabled = false\n[loader.prefetch]\nenabled = false\n")
        self.assertNotIn("gradient.clip", out)
        self.assertNotIn("loader.prefetch", out)
        self.assertIn("gradient.clip", self.plan(TINY + "[gradient.clip]\n"))
        self.assertEqual(self.mortise("plan", "--set", "gradient.clip.enabled=false", "--static").code, 0)

    def test_an_adapter_on_some_layers_freezes_the_others_too(self):
        fixtures = Fixtures("built")
        fixtures.dir = self.dir
        points = '\n[points]\nwraps = [{ point = "mlp", band = "adapt" }]\n'
        listens = points + 'listens = [{ point = "params.declared", writes = ["trainable"]%s }]\n'
        self.file("run.toml", TINY + '[adapter.freezes]\nwhere = "h.0.mlp*"\n')
        for everywhere, frozen in (("", r"h\.0\.mlp\..*"), (", everywhere = true", r"(?!.*ln_).*")):
            fixtures.built("adapter.freezes", listens % everywhere, source="freezes.c")
            for line in self.ok("plan", "--weights", "--plugin-path", "more").out.splitlines():
                self.assertEqual("  frozen" in line, bool(re.fullmatch(frozen, line.split()[0])), line)
        # What another one adds stays as it begins: no mistake of the manifest's text, and nobody else would say so.
        lora = ('[adapter.lora]\nwhere = "h.0.attn.c_attn"\nalso = ["ln_f.*"]\n[order]\n'
                '"params.declared" = ["adapter.lora", "adapter.freezes"]\n')
        self.file("run.toml", (self.dir / "run.toml").read_text() + lora)
        self.assertIn("warning[new_and_frozen]: adapter.freezes freezes h.0.attn.c_attn.lora_A.weight and 1 more, new "
                      "in this run: it stays as it begins\n",
                      self.mortise("plan", "--plugin-path", "more").err)

    def test_a_later_layer_replaces_and_the_plan_says_so(self):
        self.file("base.toml", TINY + "[precision.bf16]\n")
        out = self.plan('include = ["base.toml"]\n[optimizer.sgd]\n[precision.fp32]\n[schedule.cosine]\n')
        self.assertRegex(
            out,
            r"replaced +optimizer\.adamw \(base\.toml:13\) by optimizer\.sgd\n +precision\.bf16 \(base\.toml:14\) by "
            r"precision\.fp32\n"
            r" +schedule\.constant \(default\.toml:\d+\) by schedule\.cosine\n",
        )
        self.refused(["plan", "--set", "precision.bf16.enabled=true"],
                     "error[set_not_on]: precision.bf16 is not on: precision.fp32 (run.toml:3) replaced it\n"
                     "  --> command line: --set precision.bf16.enabled=true\n"
                     "  fix: leave it out, or --use precision.bf16\n\n1 error; nothing was started.\n")


if __name__ == "__main__":
    e2e.main()
