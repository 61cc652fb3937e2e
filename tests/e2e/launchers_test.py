"""One manifest under every launcher, and on two hosts: torchrun, mpirun and the variables of Slurm end with the bits of
`--ranks`. The hosts are network namespaces of this machine, joined by a cable that can be pulled.

    TORCHRUN=PATH python3 tests/e2e/launchers_test.py

What is not here is skipped, and said: torchrun is looked for in .deps/parity (`make parity`) and on the PATH, mpirun on
the PATH (Debian: openmpi-bin), and namespaces want root and iproute2.
"""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest

import e2e

RANKS = 4
LENGTH = 12
MANIFEST = e2e.TINY.replace("length = 6", f"length = {LENGTH}") + """\
[parallel.zero]
stage = 3
whole_below = 64
[checkpoint]
every = 5
[log]
every = 1
[comm.gloo]
timeout = "6 s"
"""

# A library that ends the process where libmortise asks for the name of this host.
DIES_AT_ITS_HOST = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
int gethostname(char* name, size_t size) {
  Dl_info by;
  if (dladdr(__builtin_return_address(0), &by) && strstr(by.dli_fname, "libmortise")) raise(SIGKILL);
  return ((int (*)(char*, size_t))dlsym(RTLD_NEXT, "gethostname"))(name, size);
}
"""


def found(program, *places):
    """Where it is; None, and it is said, if it is nowhere."""
    for place in (os.environ.get(program.upper()), *places, shutil.which(program)):
        if place and pathlib.Path(place).exists():
            return str(pathlib.Path(place).absolute())
    print(f"SKIPPED: no {program}", file=sys.stderr)
    return None


TORCHRUN = found("torchrun", e2e.SOURCE / ".deps/parity/bin/torchrun")
MPIRUN = found("mpirun")


class Hosts:
    """Two namespaces, each with an end of a cable."""

    ADDRESSES = ("10.77.0.1", "10.77.0.2")

    def __init__(self):
        self.names = [f"mortise{os.getpid()}{end}" for end in "ab"]
        self.ends = [f"m{os.getpid()}{end}"[-15:] for end in "ab"]
        for name in self.names:
            self.ip("netns", "add", name)
        self.ip("link", "add", self.ends[0], "netns", self.names[0], "type", "veth", "peer", "name", self.ends[1],
                "netns", self.names[1])
        for name, end, address in zip(self.names, self.ends, self.ADDRESSES):
            self.ip("-n", name, "address", "add", f"{address}/24", "dev", end)
            self.ip("-n", name, "link", "set", "lo", "up")
            self.ip("-n", name, "link", "set", end, "up")

    @staticmethod
    def ip(*words):
        subprocess.run(["ip", *words], check=True, capture_output=True, timeout=e2e.LIMIT_S)

    def cable(self, state):
        self.ip("-n", self.names[0], "link", "set", self.ends[0], state)

    def on(self, host):
        return ["ip", "netns", "exec", self.names[host]]

    def remove(self):
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


def hosts_or_none():
    try:
        hosts = Hosts()
    except (OSError, subprocess.SubprocessError) as e:
        said = getattr(e, "stderr", b"") or str(e).encode()
        print(f"SKIPPED: no network namespaces: {said.decode().strip()}", file=sys.stderr)
        return None
    return hosts


class Launched(e2e.Case):
    def setUp(self):
        super().setUp()
        self.file("run.toml", MANIFEST)

    def of_ranks(self):
        """What `--ranks` comes to."""
        run = self.train("whole", MANIFEST, "--ranks", str(RANKS))
        return self.weights(run)

    def start_all(self, commands, **env):
        processes = []
        for words, own in commands:
            processes.append(subprocess.Popen([str(word) for word in words], cwd=self.dir,
                                              env=self.environment(**env, **own), stdout=subprocess.PIPE,
                                              stderr=subprocess.PIPE, text=True))
            self.addCleanup(processes[-1].wait)
            self.addCleanup(processes[-1].kill)
        return processes

    def ended(self, processes):
        outputs = [process.communicate(timeout=e2e.LIMIT_S) for process in processes]
        return [(process.returncode, *output) for process, output in zip(processes, outputs)]

    def comes_to_the_same(self, commands, **env):
        results = self.ended(self.start_all(commands, **env))
        for code, out, err in results:
            self.assertEqual(code, 0, out + err)
        self.assertEqual("".join(out for _, out, _ in results).count(f"step    {LENGTH}/{LENGTH}"), 1)
        self.assertEqual(os.listdir(self.dir / "runs"), ["latest", "run"])
        self.assertTrue(self.weights(self.dir / "runs/run") == self.of_ranks(), "the bits differ")


class OneHost(Launched):
    def test_lost_before_the_first_save(self):
        words = [e2e.MORTISE, "train", "--set", "run.length=400", "--set", "checkpoint.every=400"]
        variables = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                     "MASTER_PORT": str(e2e.free_port())}
        processes = self.start_all([(words, {**variables, "RANK": rank, "LOCAL_RANK": rank}) for rank in ("0", "1")])
        metrics = self.dir / "runs/run/metrics.jsonl"
        deadline = time.monotonic() + e2e.LIMIT_S
        while not (metrics.exists() and self.records(self.dir / "runs/run", "step")):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)
        processes[1].kill()
        code, _, err = self.ended(processes)[0]
        self.assertEqual(code, 75, err)
        self.assertRegex(err, r"error\[rank_lost\]: \w+: rank 1 ended, or did not come, ")
        self.assertIn("\n  fix: nothing is saved yet: start it again as before, with --resume\n", err)
        again = self.start_all([([*words, "--resume"], {**variables, "RANK": rank, "LOCAL_RANK": rank})
                                for rank in ("0", "1")])
        for code, out, err in self.ended(again):
            self.assertEqual(code, 0, out + err)

    def test_an_address_that_other_hosts_do_not_reach(self):
        code, _, err = self.ended(self.start_all([([e2e.MORTISE, "train"], {
            "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1", "RANK": "0", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(e2e.free_port())})]))[0]
        self.assertEqual(code, 64, err)
        self.assertIn("1 of 2 ranks are on this host (LOCAL_WORLD_SIZE, WORLD_SIZE), and those of other hosts do not "
                      "reach 127.0.0.1", err)

    def test_lost_before_it_says_its_host(self):
        """All have met by then, and the run has not begun."""
        self.file("dies.c", DIES_AT_ITS_HOST)
        subprocess.run([shutil.which(os.environ.get("CC", "cc")), "-shared", "-fPIC", "dies.c", "-o", "dies.so"],
                       cwd=self.dir, check=True, timeout=e2e.LIMIT_S)
        variables = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                     "MASTER_PORT": str(e2e.free_port())}
        (code, _, err), (lost, *_) = self.ended(self.start_all([
            ([e2e.MORTISE, "train"], {**variables, "RANK": rank, "LOCAL_RANK": rank, **more})
            for rank, more in (("0", {}), ("1", {"LD_PRELOAD": str(self.dir / "dies.so")}))]))
        self.assertEqual(lost, -signal.SIGKILL)
        self.assertEqual(code, 75, err)
        self.assertRegex(err, r"error\[rank_lost\]: \w+: rank 1 ended, or did not come, [0-9.]+ s after")
        self.assertEqual(json.loads((self.dir / "runs/run/status.json").read_text())["exit"], 75)

    @unittest.skipUnless(TORCHRUN, "no torchrun")
    def test_torchrun(self):
        for how in (["--standalone"], ["--master-port", str(e2e.free_port())]):
            with self.subTest(how[0]):
                shutil.rmtree(self.dir / "runs", True)
                self.comes_to_the_same([([TORCHRUN, *how, "--no-python", "--nproc-per-node", RANKS, e2e.MORTISE,
                                          "train"], {})])

    @unittest.skipUnless(TORCHRUN, "no torchrun")
    def test_torchrun_starts_again_what_was_killed(self):
        # Each attempt meets at a place of its own, and goes on with what was saved.
        words = [TORCHRUN, "--standalone", "--max-restarts", 1, "--no-python", "--nproc-per-node", RANKS,
                 e2e.MORTISE, "train", "--resume", "--set", "checkpoint.every=1", "--set", "run.length=60"]
        process, = self.start_all([(words, {})])
        metrics = self.dir / "runs/run/metrics.jsonl"
        deadline = time.monotonic() + e2e.LIMIT_S
        while not (metrics.exists() and len(self.records(self.dir / "runs/run", "step")) > 5):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)
        children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(children[-1]), signal.SIGKILL)
        (code, out, err), = self.ended([process])
        self.assertEqual(code, 0, out + err)
        self.assertRegex(err, r"resume  runs/run at step \d+ ")
        steps = [r["step"] for r in self.records(self.dir / "runs/run", "step")]
        self.assertEqual(steps, list(range(1, 61)))

    @unittest.skipUnless(MPIRUN, "no mpirun")
    def test_mpirun(self):
        self.comes_to_the_same([([MPIRUN, "--allow-run-as-root", "--oversubscribe", "-n", RANKS, e2e.MORTISE, "train"],
                                 {})])

    def test_a_host_that_lets_few_files_be_open(self):
        process, = self.start_all([(["bash", "-c", f"ulimit -n 40; exec {e2e.MORTISE} train --ranks 2"], {})])
        (code, _, err), = self.ended([process])
        self.assertEqual(code, 69, err)
        self.assertIn(": open: this process may open 40 files, and rank 0 of 2 needs some 74\n", err)
        self.assertIn("\n  fix: ulimit -n 1024\n", err)

    def test_the_variables_of_slurm(self):
        job = {"SLURM_JOB_ID": str(10_000 + os.getpid()), "SLURM_STEP_ID": "0", "SLURM_NTASKS": str(RANKS),
               "SLURM_STEP_NUM_TASKS": str(RANKS), "SLURM_STEP_TASKS_PER_NODE": str(RANKS),
               "SLURM_STEP_NODELIST": "node017"}
        self.comes_to_the_same([([e2e.MORTISE, "train"], {"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank)})
                                for rank in range(RANKS)], **job)


class TwoHosts(Launched):
    @classmethod
    def setUpClass(cls):
        cls.hosts = hosts_or_none()
        if cls.hosts is None:
            raise unittest.SkipTest("no network namespaces")

    @classmethod
    def tearDownClass(cls):
        cls.hosts.remove()

    def commands(self, *words):
        """The ranks by hand, two a host, with torchrun's variables."""
        port = str(e2e.free_port())
        return [([*self.hosts.on(rank // 2), e2e.MORTISE, *words],
                 {"RANK": str(rank), "LOCAL_RANK": str(rank % 2), "WORLD_SIZE": str(RANKS), "LOCAL_WORLD_SIZE": "2",
                  "MASTER_ADDR": Hosts.ADDRESSES[0], "MASTER_PORT": port}) for rank in range(RANKS)]

    def test_ranks_by_hand(self):
        self.comes_to_the_same(self.commands("train"))

    @unittest.skipUnless(TORCHRUN, "no torchrun")
    def test_torchrun(self):
        port = str(e2e.free_port())
        for how in (["--master-addr", Hosts.ADDRESSES[0], "--master-port", port],
                    ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"{Hosts.ADDRESSES[0]}:{port}", "--rdzv-id", port]):
            with self.subTest(how[0]):
                shutil.rmtree(self.dir / "runs", True)
                self.comes_to_the_same([([*self.hosts.on(host), TORCHRUN, "--nnodes", 2, "--node-rank", host,
                                          "--local-addr", Hosts.ADDRESSES[host], *how, "--rdzv-conf",
                                          f"is_host={1 - host}", "--no-python",
                                          "--nproc-per-node", 2, e2e.MORTISE, "train"], {}) for host in range(2)])

    @unittest.skipUnless(MPIRUN, "no mpirun")
    def test_mpirun(self):
        agent = self.file("agent.sh", "#!/bin/sh\nhost=$1; shift\ncase $host in\n" + "".join(
            f"{address}) exec ip netns exec {name} unshare --uts sh -c 'hostname {name}; '\"$*\" ;;\n"
            for address, name in zip(Hosts.ADDRESSES, self.hosts.names)) + "esac\n")
        agent.chmod(0o755)
        self.comes_to_the_same([([*self.hosts.on(0), MPIRUN, "--allow-run-as-root", "--mca", "plm_rsh_agent", agent,
                                  "--mca", "oob_tcp_if_include", "10.77.0.0/24", "--host",
                                  ",".join(f"{address}:2" for address in Hosts.ADDRESSES), "-n", RANKS, "-x",
                                  f"MASTER_ADDR={Hosts.ADDRESSES[0]}", e2e.MORTISE, "train"], {})])

    def test_the_variables_of_slurm(self):
        job = {"SLURM_JOB_ID": str(10_000 + os.getpid()), "SLURM_STEP_ID": "0", "SLURM_NTASKS": str(RANKS),
               "SLURM_STEP_NUM_TASKS": str(RANKS), "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
               "SLURM_STEP_NODELIST": ",".join(Hosts.ADDRESSES)}
        self.comes_to_the_same([([*self.hosts.on(rank // 2), e2e.MORTISE, "train"],
                                 {"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank % 2),
                                  "SLURM_NODEID": str(rank // 2)}) for rank in range(RANKS)], **job)

    def test_a_cable_that_is_pulled(self):
        run = self.dir / "runs/run"
        processes = self.start_all(self.commands("train", "--set", "run.length=1_000_000"))
        deadline = time.monotonic() + e2e.LIMIT_S
        while not (run / "checkpoints/step-10").exists():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)
        self.hosts.cable("down")
        self.addCleanup(self.hosts.cable, "up")
        began = time.monotonic()
        results = self.ended(processes)
        print(f"all had ended {time.monotonic() - began:.1f} s after the cable was pulled", file=sys.stderr)
        self.assertLess(time.monotonic() - began, 60)
        for rank, (code, _, err) in enumerate(results):
            self.assertEqual(code, 75, err)
            lost = "ranks 2, 3" if rank < 2 else "rank 0"  # who has the store, without which nobody is asked
            self.assertRegex(err, rf"error\[rank_lost\]: \w+: {lost} ended, or did not come, ")
            self.assertEqual("  fix: mortise resume runs/run\n" in err, rank == 0, err)
        # And it goes on, to the same end as if nothing had been.
        self.hosts.cable("up")
        newest = max(int(p.name[5:]) for p in (run / "checkpoints").glob("step-*"))
        length = ("--set", f"run.length={newest + 7}")
        for code, out, err in self.ended(self.start_all(self.commands("resume", "runs/run", *length))):
            self.assertEqual(code, 0, out + err)
        self.ok("train", "--ranks", RANKS, *length)
        self.assertTrue(self.weights(run) == self.weights(self.dir / "runs/run-2"), "the bits differ")


if __name__ == "__main__":
    e2e.main()
