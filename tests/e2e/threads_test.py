"""How many threads compute and how they wait: [device.cpu] threads, wait."""
import os
import pathlib
import subprocess

import e2e

LONG = ("--set", "run.length=100000", "--set", "data.sequence_length=64", "--set", "model.gpt.width=64",
        "--set", "log.every=1")


class Threads(e2e.Case):
    def begun(self, *flags):
        """A long run, once its second step is out."""
        process = self.start("train", *LONG, *flags)
        for line in process.stdout:
            if line.startswith(b"step    2/"):
                return process
        self.fail(process.stderr.read().decode())

    def threads_of(self, *flags):
        process = self.begun(*flags)
        tasks = len(os.listdir(f"/proc/{process.pid}/task"))
        process.kill()
        process.communicate()
        return tasks

    def test_as_many_threads_compute_as_the_manifest_says(self):
        # The same others, a loader's and the like, run beside them in both.
        one, three = self.threads_of(), self.threads_of("--set", "device.cpu.threads=3")
        self.assertGreaterEqual(three - one, 2)  # LibTorch makes a second, idle pool where the number is set

    def test_the_device_line_says_how_many(self):
        short = ("train", "--set", "run.length=1")
        self.assertRegex(self.ok(*short).out, r"(?m)^device  device\.cpu, 1 thread, ")
        self.assertRegex(self.ok(*short, "--set", "device.cpu.threads=3").out, r"(?m)^device  device\.cpu, 3 threads, ")

    def test_the_ranks_of_a_host_share_its_processors(self):
        """Whoever starts them, where nobody says how many threads each has."""
        processors = len(os.sched_getaffinity(0))
        each = max(1, processors // 2)
        line = rf"(?m)^device +device\.cpu, {each} threads?, "
        self.assertRegex(self.unsaid("plan", "--ranks", "2").communicate()[0].decode(), line)
        # Started by variables: a launcher that binds ranks to processors has shared them already.
        each = each if processors == os.cpu_count() else processors
        place = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                 "MASTER_PORT": str(e2e.free_port())}
        first, second = (self.unsaid("train", "--set", "run.length=1", **place, RANK=str(rank), LOCAL_RANK=str(rank))
                         for rank in range(2))
        self.assertRegex(first.communicate()[0].decode(), rf"(?m)^device  device\.cpu, {each} threads?, ")
        second.communicate()
        self.assertEqual((first.returncode, second.returncode), (0, 0))

    def unsaid(self, *args, **env):
        return subprocess.Popen(["env", "-u", "OMP_NUM_THREADS", e2e.MORTISE, *args], cwd=self.dir,
                                env=self.environment(**env), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def test_threads_wait_as_the_manifest_says(self):
        for policy in ("active",):  # without a word of it, threads wait passively on a small machine
            process = self.begun("--set", f"device.cpu.wait={policy}")
            variables = pathlib.Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
            self.assertIn(f"OMP_WAIT_POLICY={policy}".encode(), variables)
            process.kill()
            process.communicate()

    def test_what_is_exported_stays_unless_the_manifest_says_otherwise(self):
        short = ("train", "--set", "run.length=1")
        result = self.ok(*short, env={"OMP_WAIT_POLICY": "active", "OMP_DISPLAY_ENV": "true"})
        self.assertIn("OMP_WAIT_POLICY = 'ACTIVE'", result.err)
        result = self.ok(*short, "--set", "device.cpu.wait=passive",
                         env={"OMP_WAIT_POLICY": "active", "OMP_DISPLAY_ENV": "true"})
        self.assertIn("OMP_WAIT_POLICY = 'PASSIVE'", result.err)
        self.assertEqual(result.out.count("device  "), 1)  # what began anew had said nothing yet


if __name__ == "__main__":
    e2e.main()
