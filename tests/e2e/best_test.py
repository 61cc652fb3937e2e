"""[checkpoint] best by any number that evaluations measure."""
import e2e
from e2e import TINY

MEASURED = TINY.replace("micro_batch_size = 4", "micro_batch_size = 4\nvalidation = 0.2") + """
[eval]
every = 1
at_start = false
[metric.accuracy]
[checkpoint]
every = 100
keep = 1
"""


class Best(e2e.Case):
    def best_of(self, run):
        return (run / "checkpoints/best").readlink().name

    def evaluated(self, run, name):
        return {f"step-{r['step']}": r[name] for r in self.records(run) if r["event"] == "eval"}

    def test_is_the_largest_where_larger_is_better(self):
        run = self.train("run", MEASURED + 'best = "eval.accuracy"\n', "--set", "optimizer.lr=0.03")
        measured = self.evaluated(run, "eval.accuracy")
        best = max(measured.values())
        self.assertEqual(self.best_of(run), next(step for step, value in measured.items() if value == best))
        self.assertGreater(best, min(measured.values()))

    def test_by_another_number_begins_anew_in_a_resumed_run(self):
        run = self.train("run", MEASURED + 'best = "eval.loss"\n', "--set", "run.length=3")
        self.ok("resume", "runs/run", "--set", "run.length=6", "--set", "checkpoint.best=eval.accuracy")
        measured = {s: v for s, v in self.evaluated(run, "eval.accuracy").items() if int(s[5:]) > 3}
        best = max(measured.values())
        self.assertEqual(self.best_of(run), next(step for step, value in measured.items() if value == best))

    def test_a_number_that_nothing_measures(self):
        self.file("run.toml", MEASURED.replace("[metric.accuracy]\n", "") + 'best = "eval.accuracy"\n')
        said = self.mortise("plan", "run.toml")
        self.assertEqual(said.code, 64)
        self.assertIn("error[not_measured]: nothing of this run measures `eval.accuracy`\n  --> run.toml:", said.err)
        self.assertIn('fix: best = "eval.loss"; or switch on the plugin that measures it\n', said.err)


if __name__ == "__main__":
    e2e.main()
