#!/usr/bin/env python3
"""Two ranks on two GPUs equal one GPU that has the whole batch, and end together; skipped, and said so, where there are
no two GPUs.

    MORTISE=build/bin/mortise python3 tests/gpu/gpu_ranks_test.py [Class.test]

A step of two ranks with a micro-batch each is that of one GPU that accumulates two: the same kernels over the same
rows, and a + b of two gradients is one sum, so in fp32 only the norm and the reports are grouped otherwise. The bound
is that of gpu_test.py.
"""
import ctypes
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import time
import unittest

from gpu_memory_test import GPT2, MIB, RUN
from gpu_test import CUDA, FIXTURES, GRAPH, HAS_GPU, MATH, SKIPPED, TINY, Gpu

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import e2e  # noqa: E402

GPUS = len(list(pathlib.Path("/dev").glob("nvidia[0-9]*"))) if HAS_GPU else 0
TWO = "\n[step.accumulation]\ncount = 2\n"
SHARDED = "\n[parallel.zero]\nstage = {}\nwhole_below = 64\n"
BASE = TINY.replace("length = 40", "length = 24") + MATH
VARIED = BASE.replace("high = 64\n", "high = 64\nshortest = 8\n").replace("samples = 64", "samples = 128")
NARROW = '\n[precision.bf16]\ngradients = "bf16"\n'
SAVED = BASE.replace("at_end = false", "at_end = true")
TIMEOUT_S = 6
# A loss that stays, so that one which lacks a rank is seen.
LONG = (TINY.replace("length = 40", "length = 1_000_000").replace("at_end = false", "every = 10\nkeep = 2")
        .replace("lr = 3e-3", "lr = 0") + MATH + f'\n[comm.nccl]\ntimeout = "{TIMEOUT_S} s"\n')


class Ranks(Gpu):
    def environment(self, **more):
        return super().environment(**{"CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", "0,1"), **more})

    def planned(self, manifest):
        """Bytes of a rank of two, by what they are for; all but the copy that a save is made of."""
        memory = json.loads(self.ok("plan", manifest, "--ranks", "2", "--json").out)["memory"]
        return {part.removesuffix("_bytes"): n for part, n in memory.items() if part != "copy_bytes"}

    def of_two(self, name, text, *args):
        self.file(f"{name}.toml", text)
        result = self.mortise("train", f"{name}.toml", "--ranks", "2", *args)
        self.assertEqual(result.code, 0, result)
        run = self.dir / "runs" / name
        self.assertTrue(self.records(run, "run")[-1]["device"].startswith("device.cuda, NVIDIA "))
        return [record["loss"] for record in self.records(run)], run


class Numbers(Ranks):
    def test_two_ranks_are_one_that_accumulates_two(self):
        for name, more, bound in (("fp32", "", 1e-5), ("accumulated", "", 1e-5), ("bf16", "\n[precision.bf16]\n", 5e-3),
                                  ("bf16_gradients", NARROW, 5e-3), ("zero", "\n[parallel.zero]\n", 1e-5),
                                  ("zero_2", SHARDED.format(2), 1e-5), ("zero_3", SHARDED.format(3), 1e-5),
                                  ("zero_3_bf16", SHARDED.format(3) + "[precision.bf16]\n", 5e-3),
                                  ("checkpointed", "\n[activation.checkpointing]\n", 1e-5)):
            with self.subTest(name):
                one, two = (TWO, "") if name != "accumulated" else (TWO.replace("2", "4"), TWO)
                alone = self.losses(f"{name}_one", BASE + CUDA + more + one)
                self.near(alone, self.of_two(f"{name}_two", BASE + CUDA + more + two)[0], bound)

    def test_without_a_device_in_the_manifest(self):
        self.of_two("default", BASE)
        self.assertIn("comm.nccl", self.ok("plan", "default.toml", "--ranks", "2").out)

    def test_the_same_bits_run_to_run_and_recorded(self):
        for name, more in (("fp32", ""), ("accumulated", TWO), ("bf16", "\n[precision.bf16]\n"),
                           ("bf16_gradients", NARROW), ("fp16", "\n[precision.fp16]\n"),
                           ("zero", "\n[parallel.zero]\n"), ("zero_bf16_gradients", "\n[parallel.zero]\n" + NARROW),
                           *((f"zero_{stage}", SHARDED.format(stage) + TWO) for stage in (2, 3)),
                           *((f"zero_{stage}_bf16", SHARDED.format(stage) + NARROW) for stage in (2, 3))):
            with self.subTest(name):
                first = self.of_two(f"{name}_first", SAVED + CUDA + more)
                again = self.of_two(f"{name}_again", SAVED + CUDA + more)
                played = self.of_two(f"{name}_graph", SAVED + CUDA + more + GRAPH)
                self.assertEqual(first[0], again[0])
                self.assertEqual(first[0], played[0])
                self.assertEqual(self.weights(first[1]), self.weights(again[1]))
                self.assertEqual(self.weights(first[1]), self.weights(played[1]))

    def test_lengths_of_their_own_are_recorded_by_each_rank(self):
        """One plays what it has recorded while the other sees such batches for the first time."""
        text = VARIED + CUDA
        for name, more in (("ddp", ""), ("zero", "\n[parallel.zero]\nwhole_below = 64\n"),
                           ("zero_2", SHARDED.format(2)), ("zero_3", SHARDED.format(3))):
            with self.subTest(name):
                eager = self.of_two(f"varied_{name}", text + more)[0]
                recorded = self.of_two(f"varied_{name}_graph", text + more + GRAPH + "signatures = 3\n")[0]
                self.assertEqual(recorded, eager)

    def test_what_overflows_on_one_rank_is_skipped_on_both(self):
        """fp16 begins at a scale that overflows at once, so that steps are skipped before the first that is not."""
        text = SAVED + CUDA + "\n[precision.fp16]\ninitial = 1e9\n"
        _, run = self.of_two("skipped", text)
        skipped = [record["skipped"] for record in self.records(run)]
        self.assertTrue(any(skipped) and not all(skipped), skipped)
        self.assertEqual(skipped, [r["skipped"] for r in self.records(self.of_two("skipped_graph", text + GRAPH)[1])])

    def test_evaluations(self):
        more = "\n[eval]\nevery = 8\n" + CUDA
        text = BASE.replace("samples = 64", "samples = 96\nvalidation_samples = 8")
        alone = [r["eval.loss"] for r in self.records(self.train("eval_one", text + more + TWO), "eval")]
        for name, way in (("ddp", ""), ("recorded", GRAPH), *(
                (f"zero_{stage}_recorded", SHARDED.format(stage) + GRAPH) for stage in (2, 3))):
            with self.subTest(name):
                _, run = self.of_two(f"eval_{name}", text + more + way)
                self.near(alone, [r["eval.loss"] for r in self.records(run, "eval")], 1e-5)

    def test_an_evaluation_by_itself(self):
        text = SAVED.replace("samples = 64", "samples = 96\nvalidation_samples = 9") + CUDA
        run = self.train("measured", text)
        alone, two = (json.loads(self.ok("eval", run, "--json", *ranks).out) for ranks in ((), ("--ranks", "2")))
        self.near([alone["eval.loss"]], [two["eval.loss"]], 1e-5)
        for name in ("samples", "tokens", "checkpoint"):
            self.assertEqual(alone[name], two[name])


class Memory(Ranks):
    """At rest, after the first steps, as gpu_memory_test.py compares one GPU; the record has the most of any rank."""

    def test_the_fullest_rank_has_what_is_planned(self):
        zero = "[parallel.zero]\nstage = {}\n"
        for name, more in (("ddp", ""), *((f"zero {stage}", zero.format(stage)) for stage in (1, 2, 3))):
            for dtype in ("fp32", "bf16"):
                with self.subTest(f"{name} {dtype}"):
                    text = RUN.format(model=GPT2, optimizer="optimizer.adamw")
                    self.file("run.toml", text + f"[precision.{dtype}]\n" + CUDA + more)
                    parts = self.planned("run.toml")
                    total = sum(parts.values())
                    subprocess.run(["rm", "-rf", self.dir / "runs"], check=True)
                    self.ok("train", "run.toml", "--ranks", "2",
                            env={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"})
                    records = self.records(self.dir / "runs/run")[4:-1]
                    used = max(record["memory_bytes"] for record in records)
                    said = ", ".join(f"{part} {n / MIB:.1f}" for part, n in parts.items())
                    print(f"    {name}, {dtype}: planned {total / MIB:.1f} MiB ({said}); the allocator of rank "
                          f"{records[0]['memory_rank']} holds {used / MIB:.1f}, {used / total - 1:+.2%}", flush=True)
                    # What is gathered for a while is planned as a bound, and need not be there between two steps.
                    self.assertLess(used, 1.05 * total)
                    self.assertGreater(used, 0.95 * (total - parts["transient"]))


EXPERTS = '\n[layer.moe]\nwhere = "h.*.mlp"\nexperts = 4\n'


class Groups(Ranks):
    """Experts of which each rank has some: groups beside the communicator of all ranks, and all_to_all."""

    def test_experts_over_two_ranks_are_those_of_one(self):
        # Rows of both ranks are multiplied together, so sums are cut into other pieces: the bound is gpu_test.py's.
        for name, more, bound in (("fp32", "", 1e-5), ("bf16", "\n[precision.bf16]\n", 5e-3),
                                  ("zero_2", SHARDED.format(2), 1e-5),
                                  ("checkpointed", "\n[activation.checkpointing]\n", 1e-5)):
            with self.subTest(name):
                alone = self.losses(f"{name}_one", BASE + CUDA + EXPERTS + TWO + more)
                shared = self.of_two(f"{name}_two", BASE + CUDA + EXPERTS + "expert_parallel = 2\n" + more)
                self.near(alone, shared[0], bound)

    def test_recorded_they_have_the_bits_of_steps_that_are_called(self):
        """With a capacity each rank sends as many rows for each expert, whatever the length of its batch."""
        capacity = EXPERTS + "expert_parallel = 2\ncapacity_factor = 1.25\n"
        for name, more, bound in (("fp32", "", 1e-5), ("bf16", "\n[precision.bf16]\n", 5e-3),
                                  ("zero_2", SHARDED.format(2), 1e-5)):
            with self.subTest(name):
                text = VARIED + CUDA + more
                alone = self.losses(f"{name}_alone", text + EXPERTS + "capacity_factor = 1.25\n" + TWO)
                called = self.of_two(f"{name}_called", text + capacity)
                recorded = self.of_two(f"{name}_recorded", text + capacity + GRAPH + "signatures = 3\n")
                self.near(alone, called[0], bound)
                self.assertEqual(called[0], recorded[0])

    def test_the_same_bits_run_to_run_and_a_checkpoint_of_one(self):
        text = SAVED + CUDA + EXPERTS + "expert_parallel = 2\n[step.accumulation]\nglobal_batch_size = 8\n"
        first, again = self.of_two("first", text), self.of_two("again", text)
        self.assertEqual(first[0], again[0])
        self.assertEqual(self.weights(first[1]), self.weights(again[1]))
        self.ok("resume", "runs/first", "--set", "run.length=30", "--set", "layer.moe.expert_parallel=1")


class Resume(Ranks):
    def test_two_then_one_then_two(self):
        batch = "\n[step.accumulation]\nglobal_batch_size = 8\n"
        text = SAVED + CUDA + batch + "\n[schedule]\nover = \"24 steps\"\n"
        whole = self.losses("whole", text)
        _, run = self.of_two("begun", text.replace("length = 24", "length = 8"))
        for ranks, until in ((1, 16), (2, 24)):
            flags = ["--ranks", "2"] if ranks == 2 else []
            self.ok("resume", "runs/begun", "--set", f"run.length={until}", *flags)
        self.near(whole, [record["loss"] for record in self.records(run)], 1e-5)


class Lost(Ranks):
    """Killed or stopped in the middle of training: the others end, say who it was, and the run goes on."""

    def launched(self, text, ranks=2, flags=()):
        self.file("run.toml", text)
        env = self.environment(WORLD_SIZE=str(ranks), LOCAL_WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1",
                               MASTER_PORT=str(e2e.free_port()), CUDA_VISIBLE_DEVICES=",".join(map(str, range(ranks))))
        all_ranks = [subprocess.Popen([e2e.MORTISE, "train", *flags], cwd=self.dir, stdout=subprocess.DEVNULL,
                                      stderr=subprocess.PIPE, text=True,
                                      env={**env, "RANK": str(rank), "LOCAL_RANK": str(rank)})
                     for rank in range(ranks)]
        for process in all_ranks:
            self.addCleanup(process.stderr.close)
            self.addCleanup(process.wait)
            self.addCleanup(process.kill)
        return all_ranks

    def until_saved(self, processes, step):
        run, end = self.dir / "runs/run", time.monotonic() + 120
        while not (run / "metrics.jsonl").exists() or not any(
                record["step"] >= step for record in self.records_so_far(run)):
            self.assertLess(time.monotonic(), end)
            for process in processes:
                self.assertIsNone(process.poll(), process.stderr.read() if process.poll() is not None else "")
            time.sleep(0.05)
        return run

    def records_so_far(self, run):
        try:
            return self.records(run, "saved")
        except ValueError:  # a line that is being written
            return []

    def test_a_rank_that_is_killed_or_stopped(self):
        for how, within_s in ((signal.SIGKILL, 2), (signal.SIGSTOP, TIMEOUT_S + 2)):
            for lost in (0, 1):
                for more in ("", GRAPH):
                    with self.subTest(f"{how.name} of rank {lost}, {'recorded' if more else 'eager'}"):
                        self.ends(how, within_s, lost, LONG + CUDA + more)

    def test_a_rank_that_is_killed_while_rows_are_exchanged(self):
        """The host waits for the device, which waits in a group's communicator: that it is aborted ends both."""
        for lost in (0, 1):
            with self.subTest(lost):
                self.ends(signal.SIGKILL, TIMEOUT_S + 2, lost, LONG + CUDA + EXPERTS + "expert_parallel = 2\n")

    def ends(self, how, within_s, lost, text):
        subprocess.run(["rm", "-rf", self.dir / "runs"], check=True)
        processes = self.launched(text)
        run = self.until_saved(processes, 20)
        time.sleep(0.2)
        processes[lost].send_signal(how)
        began = time.monotonic()
        _, err = processes[1 - lost].communicate(timeout=within_s + 30)
        took = time.monotonic() - began
        print(f"    {how.name} of rank {lost}: the other ended after {took:.1f} s: {err.splitlines()[:1]}", flush=True)
        self.assertEqual(processes[1 - lost].returncode, 75, err)
        self.assertIn(f"rank {lost} ", err)
        self.assertIn("error[rank_lost]: ", err)
        self.assertLess(took, within_s)
        processes[lost].kill()
        processes[lost].wait()
        last = max(record["step"] for record in self.records(run))
        losses = [record["loss"] for record in self.records(run)]
        for loss in losses[-3:]:  # none is of a sum that was given up, which has the half of one rank alone
            self.assertGreater(loss, 0.75 * statistics.median(losses[-40:-3]))
        self.ok("resume", "runs/run", "--ranks", "2", "--set", f"run.length={last + 20}")
        self.assertEqual(self.records(run, "end")[-1]["exit"], 0)

    def test_a_rank_that_lives_and_does_not_come(self):
        """By a fixture that sleeps for longer than the timeout: every process answers, and the other gives it up."""
        sleeps = f"\n[loader.prefetch]\nworkers = 0\n[test.slow]\nmilliseconds = {1000 * TIMEOUT_S + 3000}\nrank = 1\n"
        for more in ("", GRAPH):
            with self.subTest(more):
                subprocess.run(["rm", "-rf", self.dir / "runs"], check=True)
                processes = self.launched(LONG + CUDA + more + sleeps, flags=("--plugin-path", str(FIXTURES)))
                for rank, process in enumerate(processes):
                    err = process.communicate(timeout=60)[1]
                    print(f"    rank {rank}: {err.splitlines()[:1]}", flush=True)
                    self.assertEqual(process.returncode, 75, err)
                    self.assertRegex(err, rf"(?m)^error\[rank_lost\]: .*\brank {1 - rank} ")

    @unittest.skipIf(GPUS < 3, "three GPUs")
    def test_of_three_the_others_name_it(self):
        for lost in range(3):
            with self.subTest(lost):
                subprocess.run(["rm", "-rf", self.dir / "runs"], check=True)
                processes = self.launched(LONG + CUDA, ranks=3)
                self.until_saved(processes, 20)
                self.others_name(lost, processes)

    def others_name(self, lost, processes):
        processes[lost].kill()
        began = time.monotonic()
        for process in processes[:lost] + processes[lost + 1:]:
            _, err = process.communicate(timeout=30)
            self.assertEqual(process.returncode, 75, err)
            self.assertIn("error[rank_lost]: ", err)
            self.assertIn(f"rank {lost} ended", err)
        took = time.monotonic() - began
        print(f"    rank {lost} of {len(processes)} killed: all ended after {took:.1f} s", flush=True)

    @unittest.skipIf(GPUS < 4, "four GPUs")
    def test_of_four_that_exchange_rows_the_others_name_it(self):
        """One that is no neighbour of the lost one hears of it from those that are, before they end what it is in."""
        for lost in range(4):
            with self.subTest(lost):
                subprocess.run(["rm", "-rf", self.dir / "runs"], check=True)
                processes = self.launched(LONG + CUDA + EXPERTS + "expert_parallel = 2\n", ranks=4)
                self.until_saved(processes, 20)
                self.others_name(lost, processes)

    def test_a_rank_that_stops_while_they_connect(self):
        """In the meeting, or while NCCL begins: it is lost, and no trouble of NCCL's."""
        for after_s in (0, 0.1, 0.2, 0.4, 0.8):
            with self.subTest(after_s):
                subprocess.run(["rm", "-rf", self.dir / "runs"], check=True)
                processes = self.launched(LONG + CUDA)
                while "comm.nccl.so" not in pathlib.Path(f"/proc/{processes[1].pid}/maps").read_text():
                    self.assertIsNone(processes[1].poll())
                time.sleep(after_s)
                processes[1].send_signal(signal.SIGSTOP)
                _, err = processes[0].communicate(timeout=60)
                print(f"    stopped {after_s} s after comm.nccl was there: {err.splitlines()[:1]}", flush=True)
                self.assertEqual(processes[0].returncode, 75, err)
                self.assertRegex(err, r"rank 1 |did not come within 6.0 s: 1")
                processes[1].kill()
                processes[1].wait()

    def test_started_by_ranks_the_parent_names_it(self):
        self.file("run.toml", LONG + CUDA)
        parent = self.start("train", "--ranks", "2")
        self.until_saved([], 10)
        children = e2e.ranks_of(parent.pid)
        os.kill(children[1], signal.SIGKILL)
        _, err = parent.communicate(timeout=60)
        self.assertEqual(parent.returncode, 75, err)
        self.assertRegex(err.decode(), r"error\[rank_lost\]: rank 1 ended: signal 9 \(Killed\)")
        for pid in children.values():
            self.assertFalse(pathlib.Path(f"/proc/{pid}").exists(), "a rank is left")
        self.assertIn(b"the other rank ended too", err, "it waits in NCCL")


class Places(Ranks):
    def test_two_ranks_that_are_shown_one_gpu_are_refused(self):
        self.file("one.toml", BASE + CUDA)
        result = self.mortise("train", "one.toml", "--ranks", "2", env={"CUDA_VISIBLE_DEVICES": "0"})
        self.assertEqual(result.code, 69, result)
        self.assertIn("each of the 2 ranks here needs its own, and there is 1", result.err)
        # Without a name for the device it is the processor.
        self.file("any.toml", BASE)
        self.ok("train", "any.toml", "--ranks", "2", env={"CUDA_VISIBLE_DEVICES": "0"})
        device = self.records(self.dir / "runs/any", "run")[-1]["device"]
        self.assertIn("each of the 2 ranks here needs its own", device)

    def test_those_before_the_first_are_not_counted(self):
        self.file("second.toml", BASE + CUDA + "\n[device]\nindex = 1\n")
        result = self.mortise("train", "second.toml", "--ranks", "2", env={"CUDA_VISIBLE_DEVICES": "0,1"})
        self.assertEqual(result.code, 69, result)
        self.assertIn("each of the 2 ranks here needs its own, from number 1 on, and there are 2", result.err)

    def test_each_with_one_that_is_its_own(self):
        """As Slurm's --gpus-per-task shows them; and twice the same, which nobody can know beforehand."""
        for shown, code in ((("0", "1"), 0), (("0", "0"), 64)):
            self.file("slurm.toml", BASE.replace("length = 24", "length = 3") + CUDA)
            env = self.environment(SLURM_JOB_ID="1", SLURM_STEP_ID="0", SLURM_STEP_NUM_TASKS="2",
                                   SLURM_STEP_TASKS_PER_NODE="2", SLURM_STEP_NODELIST="localhost",
                                   MASTER_ADDR="127.0.0.1", MASTER_PORT=str(e2e.free_port()))
            ranks = [subprocess.Popen([e2e.MORTISE, "train", "slurm.toml"], cwd=self.dir, stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE, text=True,
                                      env={**env, "SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank),
                                           "CUDA_VISIBLE_DEVICES": gpu}) for rank, gpu in enumerate(shown)]
            for rank in ranks:
                _, err = rank.communicate(timeout=120)
                self.assertEqual(rank.returncode, code, err)
                if code:
                    self.assertRegex(err, r"ranks 0 and 1 have the same GPU, GPU-[0-9a-f]{8}-")


class Ballast:
    """Takes the memory of every GPU but for so many bytes, by the driver alone."""

    def __init__(self, left):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.taken = []
        self.must("cuInit", 0)
        for device in range(2):
            context, free, total, at = (ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_uint64())
            self.must("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
            self.must("cuCtxSetCurrent", context)
            self.must("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
            self.must("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(free.value - left))
            self.taken.append((context, at))

    def must(self, name, *arguments):
        assert (code := getattr(self.cuda, name)(*arguments)) == 0, (name, code)

    def drop(self):
        for device, (context, at) in enumerate(self.taken):
            self.must("cuCtxSetCurrent", context)
            self.must("cuMemFree_v2", at)
            self.must("cuDevicePrimaryCtxRelease_v2", device)


class Budget(Ranks):
    """GPT-2 with 355 M parameters on GPUs that have room for a part of it. Beside what the plan says there are a
    context, NCCL's buffers and activations, for which 2 GiB are left."""

    def test_what_does_not_fit_whole_trains_in_parts(self):
        text = RUN.format(model=GPT2.replace("124m", "355m"), optimizer="optimizer.adamw")
        ways = {"ddp": "", "zero_3": "[parallel.zero]\nstage = 3\n",
                "zero_3_offloaded": "[parallel.zero]\nstage = 3\n[offload.optimizer]\n"}
        needs = {}
        for name, more in ways.items():
            self.file(f"{name}.toml", text + "[precision.bf16]\n" + more + CUDA)
            parts = self.planned(f"{name}.toml")
            needs[name] = sum(parts.values()) - parts["host"] - parts["stored"]
        print("    " + ", ".join(f"{name} {bytes_ / 2**30:.2f} GiB" for name, bytes_ in needs.items()), flush=True)
        for too_large, fits in (("ddp", "zero_3"), ("zero_3", "zero_3_offloaded")):
            left = needs[fits] + (2 << 30)
            ballast = Ballast(left)
            try:
                refused = self.mortise("train", f"{too_large}.toml", "--ranks", "2")
                trained = self.mortise("train", f"{fits}.toml", "--ranks", "2")
            finally:
                ballast.drop()
            print(f"    {left / 2**30:.2f} GiB left: {too_large} exit {refused.code}, {fits} exit {trained.code}",
                  flush=True)
            self.assertNotEqual(refused.code, 0, refused)
            self.assertIn("error[out_of_memory]: not enough memory on the GPU", refused.err)
            self.assertEqual(trained.code, 0, trained)
            subprocess.run(["rm", "-rf", self.dir / "runs"], check=True)


class Slowest(Ranks):
    """The device's time, in steps that are not recorded; seen on rank 0, whose records are there."""

    def test_a_rank_that_waits_for_nobody_is_named(self):
        """By a fixture that sleeps while a micro-batch of rank 1 is loaded, where nothing is loaded ahead."""
        for name, more, slow in (("alike", "", 0), ("ddp", "", 30), ("zero_3", SHARDED.format(3), 30)):
            with self.subTest(name):
                text = BASE.replace("every = 1\n", "every = 8\n") + CUDA + more + "\n[loader.prefetch]\nworkers = 0\n"
                text += f"[test.slow]\nmilliseconds = {slow}\nrank = 1\n"
                _, run = self.of_two(name, text, "--plugin-path", str(FIXTURES))
                last = self.records(run)[-1]
                print(f"    {name}: rank {last['slowest_rank']} is {1e3 * last['slowest_lag_s']:.1f} ms behind, "
                      f"{last['slowest_lag_share']:.0%} of a step; idle {last['idle_share']:.0%}", flush=True)
                if slow:
                    self.assertEqual(last["slowest_rank"], 1)
                    self.assertTrue(0.01 < last["slowest_lag_s"] < 0.3, last)

    def test_nobody_is_named_where_steps_are_recorded(self):
        _, run = self.of_two("recorded", BASE + CUDA + GRAPH)
        self.assertNotIn("slowest_rank", self.records(run)[-1])
        self.assertIn("memory_rank", self.records(run)[-1])


class Waits(Ranks):
    def test_a_step_waits_no_more_often_than_that_of_one_rank(self):
        """Counted by CUPTI on rank 0, as gpu_counts_test.py does: the report, and nothing else."""
        import cuda_trace
        from gpu_counts_test import STEPS, TRACER
        if not TRACER.exists():
            self.skipTest(f"no {TRACER}")
        for name, more in (("eager", ""), ("recorded", GRAPH)):
            with self.subTest(name):
                counted = []
                for ranks in (1, 2):
                    steps, said = cuda_trace.train(e2e.MORTISE, TRACER, STEPS + MATH + CUDA + more, ranks=ranks)
                    self.assertTrue(steps, said)
                    print(f"    {name}, {ranks} ranks: {cuda_trace.text(cuda_trace.summary(steps))}", flush=True)
                    counted.append(sorted(sum(bool(re.search("Synchronize", call.name)) for call in step.calls)
                                          for step in steps)[len(steps) // 2])
                self.assertEqual(counted[0], counted[1])


if __name__ == "__main__":
    if GPUS < 2:
        print(f"skipped: {GPUS} GPUs, and these tests want two")
        sys.exit(SKIPPED)
    unittest.main(verbosity=2)
