"""What may change nothing: the same seed, the resolved manifest, checkpointing, the size of a micro-batch."""
import math

import e2e
from e2e import TINY

# Of a record, what is no arithmetic.
CLOCKED = {
    "time",
    "samples_per_s",
    "tokens_per_s",
    "flop_per_s",
    "mfu",
    "data_wait_share",
    "idle_share",
    "left_s",
    "memory_bytes",
    "memory_peak_bytes",
    "memory_total_bytes",
    "memory_rank",
    "slowest_rank",
    "slowest_lag_s",
    "slowest_lag_share",
    "seconds",
    "held_seconds",
}
PLACES = {"dir", "path", "run", "name", "plan", "next"}
DROPOUT = (
    TINY.replace("width = 16", "width = 16\ndropout = 0.1")
    .replace("layers = 1", "layers = 2")
    .replace("length = 6", "length = 3")
)


class Bits(e2e.Case):
    def arithmetic(self, run):
        return [{k: v for k, v in r.items() if k not in CLOCKED | PLACES} for r in self.records(run)]

    def test_the_same_manifest_and_seed_give_the_same_bytes(self):
        every = ("--set", "log.every=1")
        one, two = self.train("one", DROPOUT, *every), self.train("two", DROPOUT, *every)
        self.assertEqual(self.weights(one), self.weights(two))
        self.assertEqual(self.arithmetic(one), self.arithmetic(two))
        other = self.train("three", DROPOUT, *every, "--set", "run.seed=1")
        self.assertNotEqual(self.weights(one), self.weights(other))

    def test_workers_change_nothing(self):
        # The same batches in the same order, whatever the workers.
        one = self.train("one", DROPOUT)
        self.assertEqual(
            self.weights(one), self.weights(self.train("three", DROPOUT, "--set", "loader.prefetch.workers=3"))
        )
        self.assertEqual(self.weights(one), self.weights(self.train("none", DROPOUT, "--without", "loader.prefetch")))

    def test_the_resolved_manifest_gives_the_same_weights_from_anywhere(self):
        # Layers that replace, share out and switch off: all of it has to survive in one file.
        self.file(
            "base.toml",
            DROPOUT
            + "betas = [0.9, 0.95]\n[precision.bf16]\n[parameters.ends]\nwhere = [\"wte.*\", \"ln_f.*\"]\n"
              "lr_scale = 0.5\n",
        )
        first = self.train(
            "first",
            'include = ["base.toml"]\n[optimizer.sgd]\nmomentum = 0.9\n[optimizer]\nlr = 0.1\n[optimizer.adamw]\n'
            'where = "role:norm"\n'
            '[precision.fp32]\n[schedule.cosine]\n[parameters.first]\nwhere = "h.0.ln_1.*"\nweight_decay = 0.3\n'
            '[parameters.last]\nwhere = "ln_f.*"\nlr_scale = 0.25\n[attention.math]\nmodes = ["eval"]\n[log.console]\n'
            'enabled = false\n',
        )
        (self.dir / "elsewhere").mkdir()
        result = self.ok("train", "-q", first / "run.toml", "--set", f"run.dir={self.dir}/elsewhere/again")
        self.assertEqual((result.out, result.err), ("", ""))
        again = self.dir / "elsewhere/again"
        self.assertEqual(self.weights(first), self.weights(again))
        self.assertEqual(self.arithmetic(first), self.arithmetic(again))

    def test_weights_of_a_run_are_where_another_begins(self):
        first = self.train("first")
        second = self.train(
            "second", TINY, "--set", "model.weights=runs/first", "--set", "optimizer.lr=0", "--set", "run.length=1"
        )
        self.assertEqual(self.weights(first), self.weights(second))
        third = self.train(
            "third", TINY, "--set", "model.weights=runs/first/checkpoints/latest/model", "--set", "run.length=1"
        )
        self.assertNotEqual(self.weights(first), self.weights(third))
        # Its run.toml says so too.
        self.ok("train", third / "run.toml", "--set", "run.dir=again")
        self.assertEqual(self.weights(third), self.weights(self.dir / "again"))

    def checkpointing(self, *flags):
        plain = self.weights(self.train("plain", DROPOUT, *flags))
        all_again = self.train("all", DROPOUT + "[activation.checkpointing]\n", *flags)
        self.assertEqual(plain, self.weights(all_again))
        kept = self.train("kept", DROPOUT + "[activation.checkpointing]\nkeep = [\"attention\"]\n", *flags)
        self.assertEqual(plain, self.weights(kept))
        some = self.train("some", DROPOUT + "[activation.checkpointing]\nwhere = { every = 2 }\n", *flags)
        self.assertEqual(plain, self.weights(some))

    def test_offloaded_activations_change_no_bit(self):
        plain = self.weights(self.train("plain", DROPOUT))
        for name, more in ("offloaded", ""), ("both", "[activation.checkpointing]\n"):
            text = DROPOUT + more + "[activation.offload]\nmin_kib = 1\n[log]\nlevel = \"debug\"\n"
            self.file(f"{name}.toml", text)
            said = self.trained(name, f"{name}.toml")
            self.assertRegex(said, r": [1-9]\d* KiB of what blocks save for backward wait")
            self.assertEqual(plain, self.weights(self.dir / "runs" / name))

    def test_checkpointing_changes_no_bit_with_dropout(self):
        self.checkpointing()

    def test_checkpointing_changes_no_bit_with_dropout_in_bf16(self):
        self.checkpointing("--use", "precision.bf16")

    def test_two_micro_batches_of_four_are_one_of_eight(self):
        def losses(run):
            return [r["loss"] for r in self.records(run, "step")]
        every = ("--set", "log.every=1")
        big = losses(self.train("big", TINY.replace("micro_batch_size = 4", "micro_batch_size = 8"), *every))
        two = losses(self.train("two", TINY + "[step.accumulation]\ncount = 2\n", *every))
        stated = losses(self.train("stated", TINY + "[step.accumulation]\nglobal_batch_size = 8\n", *every))
        self.assertEqual(two, stated)
        self.assertEqual(len(big), 6)
        # Sums are grouped in another way: rounding of fp32 (6e-8) grows by some factor over six steps of AdamW.
        for a, b in zip(big, two):
            self.assertTrue(math.isclose(a, b, rel_tol=2e-6), (big, two))


if __name__ == "__main__":
    e2e.main()
