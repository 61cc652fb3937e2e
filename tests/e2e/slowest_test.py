"""Which rank the others wait for, and which has the most memory: in the records and on the console.

A slow rank sleeps for 30 ms in each step; the bounds are wide, since a busy machine adds what it likes. A step of this
model takes some milliseconds, in which ranks on few processors wait for one another by chance: where nobody is to be
named, all sleep for longer.
"""
import re
import socket

import e2e
from joint_batch_test import zero
from refusals_test import Fixtures

TEXT = e2e.TINY.replace("length = 6", "length = 40") + "[guard.slow]\n"


class Slowest(Fixtures):
    def of(self, ranks, more="", point="step.begin", **env):
        """The records of steps that are due, but the first, which has the beginning in it, and their lines."""
        self.built("guard.slow", f'\n[points]\nlistens = [{{ point = "{point}" }}]\n', f'-DFIXTURE_POINT="{point}"',
                   source="slow.c")
        e2e.shutil.rmtree(self.dir / "runs", True)
        self.file("run.toml", TEXT + more)
        out = self.ok(*self.train("--ranks", ranks), env=env).out
        due = [r for r in self.records(self.dir / "runs/run", "step") if r["step"] % 10 == 0]
        self.assertEqual(len(due), 4)
        return due[1:], [line for line in out.splitlines() if line.startswith("step ")][1:]

    def is_named(self, rank, due, lines):
        for record, line in zip(due, lines, strict=True):
            self.assertEqual(record["slowest_rank"], rank)
            self.assertEqual(record["slowest_host"], socket.gethostname())
            self.assertGreater(record["slowest_lag_s"], 0.01)
            self.assertLess(record["slowest_lag_s"], 0.3)
            self.assertGreater(record["slowest_lag_share"], 0.05)
            self.assertLessEqual(record["slowest_lag_share"], 1)
            self.assertRegex(line, rf"  rank {rank} is \d+ ms behind")

    def test_it_is_named_with_its_lag(self):
        for ranks in (2, 3):
            for slow in (0, ranks - 1):
                with self.subTest(ranks=ranks, slow=slow):
                    self.is_named(slow, *self.of(ranks, SLOW_RANK=str(slow), SLOW_MS="30"))

    def test_wherever_in_a_step_it_is_slow(self):
        for point in ("step.verdict", "step.commit", "step.end"):
            for more in ("", zero(3)):
                with self.subTest(point, more=more):
                    self.is_named(1, *self.of(2, more, point, SLOW_RANK="1", SLOW_MS="30"))

    def test_nobody_is_named_where_all_are_as_slow(self):
        due, lines = self.of(2, SLOW_RANK="", SLOW_MS="100")
        self.assertEqual([re.search("rank.*", line) for line in lines], [None] * 3)
        for record in due:
            self.assertIn(record["slowest_rank"], (0, 1))
            self.assertLess(record["slowest_lag_share"], 0.05)

    def test_one_rank_is_compared_with_nobody(self):
        due, _ = self.of(1, SLOW_RANK="", SLOW_MS="1")
        self.assertEqual({name for r in due for name in r if "rank" in name or "slowest" in name}, set())

    def test_who_has_the_most_memory(self):
        for fullest in (0, 1):
            with self.subTest(fullest):
                due, _ = self.of(2, SLOW_RANK=str(fullest), SLOW_MIB="300")
                for record in due:
                    self.assertEqual(record["memory_rank"], fullest)
                    self.assertGreater(record["memory_bytes"], 300 << 20)
                    self.assertGreaterEqual(record["memory_peak_bytes"], record["memory_bytes"])


if __name__ == "__main__":
    e2e.main()
