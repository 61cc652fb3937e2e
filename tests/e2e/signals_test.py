"""An interrupt twice: the person does not want to wait."""
import json
import os
import pathlib
import shutil
import signal
import time

import e2e
from e2e import TINY
from refusals_test import Fixtures

# One step of a hundred thousand micro-batches: minutes.
ENDLESS = (
    TINY.replace('[data.text]\npath = "notes.txt"', "[data.random]\nsamples = 1_000_000")
    + "[step.accumulation]\ncount = 100_000\n"
)


class Twice(e2e.Case):
    def begun(self):
        """A run inside its first step."""
        self.file("run.toml", ENDLESS)
        process = self.start("train")
        deadline = time.monotonic() + e2e.LIMIT_S
        while not (self.dir / "runs/run/status.json").exists():
            self.assertIsNone(process.poll(), "it ended before it began")
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)
        # By what it computed, not by a clock: on a busy machine the step would not have begun yet.
        computed = self.computed(process)
        while self.computed(process) < computed + 0.3:
            self.assertIsNone(process.poll(), "it ended before its first step")
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)
        return process

    def computed(self, process):
        """Its seconds of a processor."""
        user, system = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def ended(self, process, within):
        """Left at the second interrupt, with a line that says so and a status that says stopped."""
        began = time.monotonic()
        out, err = process.communicate(timeout=e2e.LIMIT_S)
        self.assertLess(time.monotonic() - began, within)
        self.assertEqual(err.decode(), "stopping after this step and saving; again: leave without saving\n"
                                       "left without saving; there is no checkpoint yet\n")
        status = json.loads((self.dir / "runs/run/status.json").read_text())
        self.assertEqual((status["state"], status["exit"], status["step"]), ("stopped", 130, 0))
        self.assertNotRegex(out.decode(), "(?m)^(step|saved|stopped|done) ")
        self.assertFalse((self.dir / "runs/run/model/model.safetensors").exists(), "nobody waited for a save")
        return process.returncode

    def test_the_first_waits_for_the_step_and_the_second_leaves_within_two_seconds(self):
        process = self.begun()
        process.send_signal(signal.SIGINT)
        time.sleep(1)
        self.assertIsNone(process.poll(), "once: the step is finished first")
        process.send_signal(signal.SIGINT)
        self.assertEqual(self.ended(process, within=2), 130)
        # What was there is whole.
        self.assertEqual([r["event"] for r in self.records(self.dir / "runs/run")], ["run"])

    def test_a_signal_that_comes_twice_at_once_is_one(self):
        process = self.begun()
        for _ in range(3):
            process.send_signal(signal.SIGINT)
            time.sleep(0.05)
        time.sleep(0.6)
        self.assertIsNone(process.poll())
        process.send_signal(signal.SIGINT)
        self.assertEqual(self.ended(process, within=2), 130)

    def test_who_is_killed_is_not_waited_for(self):
        process = self.begun()
        waits = self.mortise("sample", "runs/run")
        self.assertIn("runs/run has no checkpoint yet\n", waits.err)
        process.kill()
        process.communicate()
        self.refused(["sample", "runs/run"],
                     "error[no_checkpoint]: runs/run has no checkpoint, and no process is training it\n"
                     "  fix: mortise resume runs/run\n", code=65)
        self.assertEqual(self.ok("checkpoint", "list", "runs/run").out,
                         "runs/run has no checkpoint, and no process is training it\n")
        self.assertEqual(self.mortise("checkpoint", "verify", "runs/run").code, 65)  # there is nothing that is whole

    def test_who_waits_for_other_ranks_leaves_two_seconds_after_either(self):
        env = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
               "MASTER_PORT": str(e2e.free_port())}
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 75)):
            for env["RANK"] in ("0", "1"):
                with self.subTest(number.name, rank=env["RANK"]):
                    shutil.rmtree(self.dir / "runs", ignore_errors=True)
                    self.file("run.toml", TINY)
                    process = self.start("train", env=env)
                    while "comm.gloo.so" not in pathlib.Path(f"/proc/{process.pid}/maps").read_text():
                        self.assertIsNone(process.poll(), "it ended")
                    time.sleep(0.5)
                    process.send_signal(number)
                    began = time.monotonic()
                    _, err = process.communicate(timeout=e2e.LIMIT_S)
                    self.assertEqual(process.returncode, code, err)
                    self.assertLess(time.monotonic() - began, 10)
                    if env["RANK"] == "1":
                        continue
                    self.assertIn(b"stopped before the first step; next    mortise resume runs/run --ranks 2\n", err)
                    status = json.loads((self.dir / "runs/run/status.json").read_text())
                    self.assertEqual((status["state"], status["exit"], status["step"]), ("stopped", code, 0))

    def test_a_second_that_comes_twice_is_one(self):
        """As `--ranks` passes on what its process group has got too."""
        process = self.begun()
        process.send_signal(signal.SIGINT)
        time.sleep(0.7)
        process.send_signal(signal.SIGINT)
        time.sleep(0.001)
        process.send_signal(signal.SIGINT)
        self.assertEqual(self.ended(process, within=2), 130)

    def test_a_termination_before_does_not_make_the_first_interrupt_the_second(self):
        process = self.begun()
        process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        time.sleep(0.7)
        self.assertIsNone(process.poll())
        process.send_signal(signal.SIGINT)
        self.assertEqual(self.ended(process, within=2), 130)


class Save(Fixtures):
    """One that every rank is asked for, as a launcher asks them that signals all, and some hear of it after others."""

    def started(self, **env):
        self.built("guard.slow", '\n[points]\nlistens = [{ point = "step.begin" }]\n', source="slow.c")
        self.file("run.toml", TINY.replace("length = 6", "length = 1_000_000") + "[guard.slow]\n")
        env |= {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(e2e.free_port())}
        self.ranks = [self.start(*self.train("--set", "log.every=1"), env=env | {"RANK": rank, "LOCAL_RANK": rank})
                      for rank in "01"]
        self.until((self.dir / "runs/run/metrics.jsonl").exists)

    def saves(self):
        return len(self.records(self.dir / "runs/run", "saved"))

    def until(self, is_so):
        deadline = time.monotonic() + e2e.LIMIT_S
        while not is_so():
            self.assertEqual([rank.poll() for rank in self.ranks], [None] * 2)
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)

    def all_end(self):
        for rank in self.ranks:
            rank.send_signal(signal.SIGTERM)
        for rank in self.ranks:
            _, err = rank.communicate(timeout=e2e.LIMIT_S)
            self.assertEqual(rank.returncode, 75, err)

    def test_is_one_and_so_is_the_next(self):
        self.started()
        for saves in (1, 2):
            self.ranks[1].send_signal(signal.SIGUSR1)
            time.sleep(0.2)
            self.ranks[0].send_signal(signal.SIGUSR1)
            self.until(lambda: self.saves() >= saves)
            time.sleep(1.5)
            self.assertEqual(self.saves(), saves)
        self.all_end()

    def test_is_one_where_a_step_takes_longer_than_all_need_to_hear_of_it(self):
        self.started(SLOW_RANK="", SLOW_MS="1500")
        self.until(lambda: self.records(self.dir / "runs/run", "step"))
        self.ranks[1].send_signal(signal.SIGUSR1)
        self.until((self.dir / "runs/run/checkpoints/latest").exists)
        self.ranks[0].send_signal(signal.SIGUSR1)
        steps = len(self.records(self.dir / "runs/run", "step"))
        self.until(lambda: len(self.records(self.dir / "runs/run", "step")) >= steps + 3)
        self.assertEqual(self.saves(), 1)
        self.all_end()


if __name__ == "__main__":
    e2e.main()
