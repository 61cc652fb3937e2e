"""States and masters in the host's memory, and the update on its processor: every bit of a run without it.

On the CPU the same code runs as beside a GPU, gradients and values copied as there, so everything but the GPU's own
copies is tested here; those in tests/gpu/gpu_test.py OffloadedOptimizer.
"""
import e2e
from accumulation_test import ADAMW
from joint_batch_test import EVALUATED, LORA, MUON, Ranks, zero

CLIP = "[gradient.clip]\nnorm = 0.05\n"
# Its first gradients do not fit into fp16: steps are skipped until the scale has come down.
SKIPPED = "[precision.fp16]\ninitial = 1e8\n"


class Offloaded(Ranks):
    PLUGIN, KEYS = "offload.optimizer", ""

    @property
    def table(self):
        return f"[{self.PLUGIN}]\n{self.KEYS}"

    def saved(self, more, optimizer=ADAMW, ranks=1, name="saved", length="5"):
        text = self.text(2, more, optimizer=optimizer, manifest=EVALUATED).replace('"2 epochs"', length)
        e2e.shutil.rmtree(self.dir / "runs" / name, True)
        run = self.train(name, text, *(["--ranks", str(ranks)] if ranks > 1 else []))
        folder = self.checkpoint(run)
        return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*.safetensors")}, self.losses(run)

    def test_each_optimizer_has_the_same_bits(self):
        for more, optimizer in (("", ADAMW), ("", "[optimizer.sgd]\nmomentum = 0.9\n"), ("", "[optimizer.adafactor]"),
                                ("", MUON), ("", "[optimizer.adamw_8bit]"),
                                ("[precision.bf16]\n", "[optimizer.adamw_anyprecision]"),
                                ("[precision.half]\n", "[optimizer.adamw_anyprecision]")):
            with self.subTest(f"{optimizer} {more}"):
                self.assertTrue(self.saved(more, optimizer) == self.saved(more + self.table, optimizer))

    def test_what_else_a_step_has_is_the_same(self):
        for more in ("[precision.bf16]\n" + CLIP, "[step.accumulation]\ncount = 2\n" + CLIP,
                     "[ema.weights]\n[eval]\nevery = 2\n", LORA + "[ema.weights]\n",
                     "[gradient.noise]\n[activation.checkpointing]\n"):
            with self.subTest(more):
                self.assertTrue(self.saved(more) == self.saved(more + self.table))

    def test_a_step_that_is_skipped_changes_nothing(self):
        self.assertTrue(self.saved(SKIPPED, length="12") == self.saved(SKIPPED + self.table, length="12"))
        records = self.records(self.dir / "runs/saved", "step")
        skipped = [r["grad_norm"] is None for r in records]
        self.assertTrue(any(skipped) and not all(skipped), skipped)

    def test_parameters_by_where_beside_those_of_the_device(self):
        more = self.table + "where = \"role:matrix\"\n"
        self.assertTrue(self.saved("[precision.bf16]\n") == self.saved("[precision.bf16]\n" + more))

    def test_a_run_goes_on_with_it_and_without_it(self):
        never = self.saved("[precision.bf16]\n[ema.weights]\n", length="6", name="never")
        on, off = ["--use", self.PLUGIN], ["--set", f"{self.PLUGIN}.enabled=false"]
        for first, second in (("", on), (self.table, off)):
            with self.subTest(second):
                self.saved("[precision.bf16]\n[ema.weights]\n" + first, length="3", name="stopped")
                run = self.dir / "runs/stopped"
                self.ok("resume", str(run), "--set", "run.length=6", *second)
                found = {str(p.relative_to(self.checkpoint(run))): p.read_bytes()
                         for p in self.checkpoint(run).rglob("*.safetensors")}
                self.assertTrue(found == never[0])

    def test_two_ranks_each_with_its_part(self):
        for more, optimizer in (("", ADAMW), ("[precision.bf16]\n[ema.weights]\n" + CLIP, ADAMW), ("", MUON)):
            for stage in (0, 1, 2, 3):
                with self.subTest(f"{optimizer} {more}", stage=stage):
                    self.assertTrue(self.saved(more + zero(stage), optimizer, 2) ==
                                    self.saved(more + zero(stage) + self.table, optimizer, 2))

    def test_three_ranks_whose_parts_are_not_even(self):
        more = "[precision.bf16]\n" + zero(1)
        self.assertTrue(self.saved(more, ADAMW, 3) == self.saved(more + self.table, ADAMW, 3))


if __name__ == "__main__":
    e2e.main()
