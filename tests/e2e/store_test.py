"""Optimizer states in a file on a disk: every bit of a run without it; a disk that is full or fails; a process that is
killed. What offload_test.py asks of states in memory is asked of these too."""
import errno
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

import e2e
import offload_test

SHIM = os.environ.get("MORTISE_SHIM", str(e2e.MORTISE.parent.parent / "tests/shim.so"))
# A disk, where there is one: the folders of the tests lie in memory.
DISK = pathlib.Path(tempfile.mkdtemp(prefix="mortise_store.", dir=os.environ.get("TMPDIR", "/var/tmp")))
e2e.atexit.register(shutil.rmtree, DISK, True)
STORE = f'[offload.nvme]\npath = "{DISK}"\n'
# 12.6 M elements in one tensor: an embedding that is updated in two parts.
WIDE = e2e.TINY.replace("length = 6", "length = 2").replace("width = 16", "width = 48\nvocabulary = 262144")


MOUNT = ["unshare", "--map-root-user", "--mount", "sh", "-c"]
CAN_MOUNT = shutil.which("unshare") and subprocess.run(
    [*MOUNT, f"mount -t ramfs none {DISK}"], capture_output=True, check=False).returncode == 0


class Stored(offload_test.Offloaded):
    PLUGIN, KEYS = "offload.nvme", f'path = "{DISK}"\n'

    def tearDown(self):
        self.assertEqual(list(DISK.iterdir()), [])

    def test_a_tensor_that_is_updated_in_parts(self):
        for more in ("", "[precision.bf16]\n"):
            with self.subTest(more):
                plain = self.tensors_of("wide", WIDE + more)
                for there in (STORE, "[offload.optimizer]\n"):
                    self.assertTrue(plain == self.tensors_of("wide", WIDE + more + there), there)

    def test_some_states_on_the_disk_and_others_in_memory(self):
        both = self.table + 'where = "role:embedding"\n[offload.optimizer]\nwhere = "role:matrix"\n'
        self.assertTrue(self.saved("") == self.saved(both))

    def test_saved_while_training_goes_on_and_an_optimizer_without_states(self):
        more = "[checkpoint]\nevery = 1\nkeep = 9\nbackground = true\n"
        self.assertTrue(self.saved(more) == self.saved(more + self.table))
        self.assertTrue(self.saved("", "[optimizer.sgd]\n") == self.saved(self.table, "[optimizer.sgd]\n"))

    def tensors_of(self, name, text):
        shutil.rmtree(self.dir / "runs" / name, True)
        folder = self.checkpoint(self.train(name, text))
        return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*.safetensors")}


class Disk(e2e.Case):
    def faults(self, **how):
        return {"LD_PRELOAD": shutil.copy(SHIM, self.dir / "shim.so"), "FAULT_BELOW": "scratch",
                "FAULT_REPORT": str(self.dir / "report"), **{f"FAULT_{name}": str(how[name]) for name in how}}

    def made(self):
        return (self.dir / "report").read_text().count(" fault\n")

    def setUp(self):
        super().setUp()
        (self.dir / "scratch").mkdir()
        self.file("run.toml", e2e.TINY + '[checkpoint]\nevery = 2\n[offload.nvme]\npath = "scratch"\n')

    def test_a_plan_says_what_lies_where(self):
        plan = self.ok("plan", "run.toml")
        self.assertIn(f"states in {self.dir}/scratch, ", plan.out)
        self.assertRegex(plan.out, r"\n  optimizer +0\.0   its states, and what plugins keep beside parameters\n")
        memory = e2e.json.loads(self.ok("plan", "run.toml", "--json").out)["memory"]
        plain = e2e.json.loads(self.ok("plan", "run.toml", "--without", "offload.nvme", "--json").out)["memory"]
        self.assertEqual(memory["optimizer_bytes"], 0)
        # Each state begins with a block of 4,096 bytes.
        self.assertGreaterEqual(memory["stored_bytes"], plain["optimizer_bytes"])
        self.assertEqual(memory["stored_bytes"] % 4096, 0)
        # Masters, and two buffers of the only piece.
        self.assertEqual(memory["host_bytes"], plain["weights_bytes"] + 2 * memory["stored_bytes"])
        self.assertEqual(list((self.dir / "scratch").iterdir()), [])

    def test_a_disk_that_fails_ends_the_run_and_it_can_go_on(self):
        self.ok("train", "run.toml", "--set", "run.name=whole", "--without", "offload.nvme")
        for call, at, what in (("write", 4, "written to"), ("read", 5, "read from")):
            for error, text in (("EIO", "Input/output error"), ("ENOSPC", "No space left on device")):
                with self.subTest(call, error=error):
                    shutil.rmtree(self.dir / "runs/run", True)
                    result = self.mortise("train", "run.toml", env=self.faults(CALLS=call, WITH=error, AT=at))
                    self.assertEqual(result.code, 74, result)
                    self.assertEqual(result.err.count("error["), 1, result.err)
                    self.assertIn(f"states cannot be {what} the file in {self.dir}/scratch: {text}\n", result.err)
                    self.assertRegex(result.err, r"fix: look after that disk, or take another: \[offload\.nvme\] path")
                    self.assertIn("at step 2 ", self.ok("train", "run.toml", "--resume").err)
                    self.assertTrue(self.bytes_of("run") == self.bytes_of("whole"))

    def test_a_file_system_without_files_that_have_no_name(self):
        self.ok("train", "run.toml", "--set", "run.name=whole", "--without", "offload.nvme")
        self.ok("train", "run.toml", env=self.faults(CALLS="open", WITH=errno.EOPNOTSUPP, AT=1))
        self.assertEqual(self.made(), 1)
        self.assertEqual(list((self.dir / "scratch").iterdir()), [])
        self.assertTrue(self.bytes_of("run") == self.bytes_of("whole"))

    def test_what_is_cut_short_is_gone_on_with(self):
        self.ok("train", "run.toml", "--set", "run.name=whole")
        self.ok("train", "run.toml", env=self.faults(CALLS="write", WITH="short", AT=1))
        self.assertEqual(self.made(), 1)
        self.assertTrue(self.bytes_of("run") == self.bytes_of("whole"))

    def test_a_disk_without_room_is_told_before_the_first_step(self):
        for where, text in (("gone", f"no file can be made in {self.dir}/gone: No such file or directory\n"),
                            ("/proc", "in /proc")):
            with self.subTest(where):
                result = self.mortise("train", "run.toml", "--set", f"offload.nvme.path={where}")
                self.assertEqual(result.code, 74, result)
                self.assertIn(text, result.err)
                self.assertNotIn("step    ", result.out)

    def mounted(self, how):
        """A training with another file system in the folder, which nobody else sees."""
        command = f"mount {how} none scratch && exec '{e2e.MORTISE}' train run.toml"
        return e2e.Result(subprocess.run([*MOUNT, command], cwd=self.dir, env=self.environment(), capture_output=True,
                                         check=False, timeout=e2e.LIMIT_S))

    @unittest.skipUnless(CAN_MOUNT, "no file system can be mounted here")
    def test_a_file_system_without_room(self):
        result = self.mounted("-t tmpfs -o size=64k")
        self.assertEqual(result.code, 74, result)
        self.assertRegex(result.err, r"optimizer states take 0\.\d MiB in .*/scratch, which has 0\.1 MiB free: "
                                     r"No space left on device\n")
        self.assertIn("fix: [offload.nvme] path = a folder on a disk with that much room\n", result.err)
        self.assertNotIn("step    ", result.out)

    @unittest.skipUnless(CAN_MOUNT, "no file system can be mounted here")
    def test_a_file_system_without_direct_io_is_told_once(self):
        self.ok("train", "run.toml", "--set", "run.name=whole", "--without", "offload.nvme")
        result = self.mounted("-t ramfs")
        self.assertEqual(result.code, 0, result)
        self.assertEqual((result.out + result.err).count("no direct I/O"), 1, result)
        self.assertTrue(self.bytes_of("run") == self.bytes_of("whole"))

    def test_a_process_that_is_killed_leaves_nothing(self):
        process = self.start("train", "run.toml", "--set", "run.length=100000", "--set", "checkpoint.every=50")
        latest = self.dir / "runs/run/checkpoints/latest"
        deadline = time.monotonic() + e2e.LIMIT_S
        while not latest.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertTrue(latest.exists())
        files = [os.readlink(f"/proc/{process.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{process.pid}/fd")]
        self.assertTrue(any(f.startswith(f"{self.dir}/scratch/") and f.endswith(" (deleted)") for f in files), files)
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.assertEqual(list((self.dir / "scratch").iterdir()), [])
        length = f"run.length={int(os.readlink(latest).removeprefix('step-')) + 5}"
        self.ok("resume", "runs/run", "--set", length)
        self.ok("train", "run.toml", "--set", length, "--set", "run.name=whole", "--without", "offload.nvme")
        self.assertTrue(self.bytes_of("run") == self.bytes_of("whole"))

    def bytes_of(self, name):
        folder = self.checkpoint(self.dir / "runs" / name)
        return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*.safetensors")}


if __name__ == "__main__":
    e2e.main()
