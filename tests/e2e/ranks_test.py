"""`--ranks N`: the program starts N of itself. What a rank does is a script here, in the place of libmortise.so: it can
be killed, hang and fail as it likes."""
import json
import os
import pathlib
import pty
import shutil
import signal
import subprocess
import time

import e2e

LIBRARY = r"""
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>
int mortise_main(int argc, char **argv) {
  char name[16];
  prctl(PR_GET_NAME, name);
  setenv("IN_TOP", name, 1);
  char *words[64] = {"python3", "rank.py"};
  for (int i = 1; i < argc && i < 60; ++i) words[i + 1] = argv[i];
  execvp(words[0], words);
  return 1;
}
"""
# Like a training: until it handles its signals they are held, and it ends a while after the first.
RANK = r"""
import json, os, signal, sys, time
rank, n = os.environ["RANK"], {}
def write(name, text):
    with open(name + "~", "w") as f: f.write(text)
    os.rename(name + "~", name)
def on(s, _): n[s] = n.get(s, 0) + 1
ALL = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
for s in ALL: signal.signal(s, on)
if "MORTISE_TOLD_FD" in os.environ: os.pwrite(int(os.environ["MORTISE_TOLD_FD"]), b"run\n", 0)
signal.pthread_sigmask(signal.SIG_UNBLOCK, ALL)
write("rank" + rank, json.dumps({"pid": os.getpid(), "words": sys.argv[1:], "env": dict(os.environ)}))
exec(os.environ.get("DOES", ""))
end = time.monotonic() + 120
while time.monotonic() < end and not (signal.SIGTERM in n or signal.SIGINT in n): time.sleep(0.01)
time.sleep(0.3)
write("got" + rank, " ".join(f"{signal.Signals(s).name} {k}" for s, k in sorted(n.items())))
sys.exit(130 if signal.SIGINT in n else 75)
"""
LOST = ("error[rank_lost]: rank {} ended: signal 9 (Killed)\n"
        "  effect: the other rank ended too; nothing was saved yet\n"
        "  fix: mortise train run.toml --ranks 2 --resume\n")


def is_gone(pid):
    for _ in range(1000):
        try:
            if ") Z " in pathlib.Path(f"/proc/{pid}/stat").read_text():
                return True
        except OSError:
            return True
        time.sleep(0.01)
    return False


class Ranks(e2e.Case):
    """bin/mortise in a folder of its own, with a library that is the script."""

    library = None

    def setUp(self):
        super().setUp()
        (self.dir / "prefix/bin").mkdir(parents=True)
        self.program = shutil.copy(e2e.MORTISE, self.dir / "prefix/bin/mortise")
        os.symlink(e2e.PLUGINS, self.dir / "prefix/plugins")
        self.file("rank.py", RANK)

    def take_library(self):
        compiler = shutil.which(os.environ.get("CC", "cc"))
        if compiler is None:
            self.skipTest("no C compiler")
        if Ranks.library is None:
            self.file("library.c", LIBRARY)
            subprocess.run([compiler, "-shared", "-fPIC", "library.c", "-o", "library.so"], cwd=self.dir, check=True,
                           timeout=e2e.LIMIT_S)
            Ranks.library = (self.dir / "library.so").read_bytes()
        (self.dir / "prefix/lib").mkdir()
        (self.dir / "prefix/lib/libmortise.so").write_bytes(Ranks.library)

    def begin(self, *args, env=None, **more):
        process = subprocess.Popen([self.program, *args], cwd=self.dir, env=self.environment(**(env or {})),
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def ended(self, process):
        out, err = process.communicate(timeout=e2e.LIMIT_S)
        return process.returncode, out.decode(), err.decode()

    def run_it(self, *args, env=None):
        return self.ended(self.begin(*args, env=env))

    def rank(self, number):
        """What a rank wrote as it began."""
        deadline = time.monotonic() + e2e.LIMIT_S
        path = self.dir / f"rank{number}"
        while not path.exists():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        return json.loads(path.read_text())

    def got(self, number):
        return (self.dir / f"got{number}").read_text()


class Asked(Ranks):
    def test_numbers_that_are_none(self):
        for word in ("0", "-1", "two", "1.5", "1025", "99999999999", "2x"):
            self.assertEqual(self.run_it("train", "--ranks", word), (64, "", (
                f"error[wrong_type]: --ranks is a number of processes from 1 to 1024, or all; this is `{word}`\n"
                "  fix: --ranks 2, or --ranks all: one for each GPU, without one for each processor\n")))
        self.assertIn("error[flag_twice]: ", self.run_it("train", "--ranks", "2", "--ranks", "3")[2])
        self.assertIn("error[unknown_flag]: ", self.run_it("sample", "runs/run", "--ranks", "2")[2])

    def test_inside_of_a_launcher(self):
        inside = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2",
                  "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
        self.assertEqual(self.run_it("train", "--ranks", "2", env=inside), (64, "", (
            "error[ranks_not_started]: torchrun has started 2 ranks, and `--ranks` would start more in each of them\n"
            "  effect: nothing was started\n"
            "  fix: leave --ranks out, or start it without torchrun, or: unset RANK WORLD_SIZE\n")))
        inside["RANK"] = "2"
        for words in (["train"], ["train", "--ranks", "2"], ["resume", "runs/run"]):
            self.assertEqual(self.run_it(*words, env=inside), (64, "", (
                "error[ranks_not_started]: RANK=2 is no rank of WORLD_SIZE=2: they count from 0\n"
                "  effect: nothing was started\n"
                "  fix: start all of them with one command of torchrun\n")))

    def test_an_allocation_of_slurm_without_srun(self):
        job = {"SLURM_JOB_ID": "8812", "SLURM_NTASKS": "16", "SLURM_TASKS_PER_NODE": "8(x2)", "SLURM_PROCID": "0"}
        self.assertEqual(self.run_it("train", env=job), (64, "", (
            "error[ranks_not_started]: Slurm gave this job 16 tasks, and this is a single process\n"
            "  effect: nothing was started\n"
            "  fix: put srun before it: srun mortise …\n"
            "       train on this node alone: --ranks 8\n"
            "       train with this process alone: --ranks 1\n")))
        self.assertIn("error[no_library]", self.run_it("train", "--ranks", "1", env=job)[2])

    def test_a_mistake_that_all_make_is_said_once(self):
        self.file("run.toml", "[run]\nlenght = 6\n")
        alone = self.run_it("train")
        self.assertEqual(alone[0], 64)
        self.assertEqual(self.run_it("train", "--ranks", "3"), alone)
        # Each rank says it, and only the first is heard.
        self.file("run.toml", e2e.TINY)
        alone = self.run_it("train")
        self.assertEqual((alone[0], alone[2].count("error[no_library]")), (69, 1))
        self.assertEqual(self.run_it("train", "--ranks", "3"), alone)


class Started(Ranks):
    def setUp(self):
        super().setUp()
        self.take_library()

    def test_each_has_the_words_and_its_number(self):
        for words in (["train", "run.toml", "--ranks", "2", "--set", "run.length=3"],
                      ["train", "--ranks=2", "run.toml", "--set", "run.length=3"]):
            code, out, err = self.run_it(*words, env={"DOES": "print('rank', rank); sys.exit(0)"})
            self.assertEqual((code, out, err), (0, "rank 0\n", ""))
            ports = set()
            for number in range(2):
                rank = self.rank(number)
                self.assertEqual(rank["words"], ["train", "run.toml", "--set", "run.length=3"])
                env = rank["env"]
                self.assertEqual([env[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")],
                                 [str(number), "2", str(number), "2"])
                self.assertEqual("MORTISE_LISTEN_FD" in env, number == 0)
                self.assertEqual(env["IN_TOP"], "mortise")
                ports.add((env["MASTER_ADDR"], env["MASTER_PORT"]))
            self.assertEqual(len(ports), 1)

    def test_one_rank_is_no_rank(self):
        self.run_it("train", "--ranks", "1", env={"RANK": "0", "DOES": "sys.exit(0)"})
        self.assertNotIn("MORTISE_LAUNCHED_BY", self.rank(0)["env"])

    def test_a_rank_that_is_killed_ends_all(self):
        for killed in (0, 1):
            process = self.begin("train", "run.toml", "--ranks", "2")
            pids = [self.rank(number)["pid"] for number in range(2)]
            os.kill(pids[killed], signal.SIGKILL)
            began = time.monotonic()
            self.assertEqual(self.ended(process), (75, "", LOST.format(killed)))
            self.assertLess(time.monotonic() - began, 30)
            self.assertEqual(self.got(1 - killed), "SIGTERM 1")
            for number, pid in enumerate(pids):
                self.assertTrue(is_gone(pid))
                (self.dir / f"rank{number}").unlink()

    def test_an_evaluation_that_lost_a_rank(self):
        self.file("runs/run/run.toml", "")
        kill = {"DOES": "rank == '1' and os.kill(os.getpid(), signal.SIGKILL)"}
        self.assertEqual(self.run_it("eval", "runs/run", "--ranks", "2", env=kill), (75, "", (
            "error[rank_lost]: rank 1 ended: signal 9 (Killed)\n"
            "  effect: the other rank ended too; nothing was measured\n"
            "  fix: mortise eval runs/run --ranks 2\n")))

    def test_a_second_interrupt_waits_for_no_rank_that_hangs(self):
        process = self.begin("train", "--ranks", "2")
        os.kill(self.rank(1)["pid"], signal.SIGSTOP)
        self.rank(0)
        process.send_signal(signal.SIGINT)
        time.sleep(0.6)
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        code, out, err = self.ended(process)
        self.assertLess(time.monotonic() - began, 30)  # a minute, and then SIGTERM first, without it
        self.assertEqual((code, out), (130, ""))
        self.assertIn("error[rank_lost]: rank 1 did not end when it was interrupted again, and was killed\n", err)

    def test_what_to_do_when_a_resume_lost_a_rank(self):
        self.file("runs/run/run.toml", "")
        kill = {"DOES": "rank == '1' and os.kill(os.getpid(), signal.SIGKILL)"}
        code, _, err = self.run_it("resume", "runs/run", "--from", "100", "--ranks", "2", env=kill)
        self.assertEqual(code, 75)
        self.assertTrue(err.endswith("  fix: mortise resume runs/run --ranks 2\n"), err)

    def test_what_to_do_when_a_start_with_resume_lost_a_rank(self):
        kill = {"DOES": "rank == '1' and os.kill(os.getpid(), signal.SIGKILL)"}
        code, _, err = self.run_it("train", "run.toml", "--resume", "--ranks", "2", env=kill)
        self.assertEqual(code, 75)
        self.assertTrue(err.endswith("  fix: mortise train run.toml --resume --ranks 2\n"), err)

    def test_a_rank_that_fails_alone_is_told(self):
        fails = "rank == '1' and (print('error[bad_data]: broken', file=sys.stderr), os._exit(65))"
        self.assertEqual(self.run_it("train", "--ranks", "2", env={"DOES": fails}),
                         (65, "", "rank 1: error[bad_data]: broken\n"))
        fails = """rank == '1' and (print('{"level":"warning","rank":null}', file=sys.stderr),
                                    print('{"level":"error","code":"bad_data","rank":null}', file=sys.stderr),
                                    os._exit(65))"""
        code, out, err = self.run_it("train", "--json", "--ranks", "2", env={"DOES": fails})
        self.assertEqual((code, out), (65, ""))
        self.assertEqual(json.loads(err), {"level": "error", "code": "bad_data", "rank": 1})

    def test_a_parent_that_is_killed_leaves_nobody(self):
        process = self.begin("train", "--ranks", "3")
        pids = [self.rank(number)["pid"] for number in range(3)]
        process.kill()
        process.wait()
        for pid in pids:
            self.assertTrue(is_gone(pid))

    def test_signals_reach_every_rank(self):
        process = self.begin("train", "--ranks", "2")
        for number in range(2):
            self.rank(number)
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGUSR1)
        time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(self.ended(process), (75, "", ""))
        for number in range(2):
            self.assertEqual(self.got(number), "SIGUSR1 1 SIGTERM 1")

    def test_an_interrupt_of_the_parent_alone(self):
        process = self.begin("train", "--ranks", "2")
        for number in range(2):
            self.rank(number)
        process.send_signal(signal.SIGINT)
        self.assertEqual(self.ended(process), (130, "", ""))
        for number in range(2):
            self.assertEqual(self.got(number), "SIGINT 1")

    def test_an_interrupt_at_a_terminal_comes_once(self):
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(self.dir)
            os.execve(self.program, ["mortise", "train", "--ranks", "2"], self.environment())
        for number in range(2):
            self.rank(number)
        # The parent, which hears of it later than the ranks, would give them a second one.
        os.kill(pid, signal.SIGSTOP)
        os.write(terminal, b"\x03")
        time.sleep(0.1)
        os.kill(pid, signal.SIGCONT)
        _, status = os.waitpid(pid, 0)
        os.close(terminal)
        self.assertEqual(os.waitstatus_to_exitcode(status), 130)
        for number in range(2):
            self.assertEqual(self.got(number), "SIGINT 1")


if __name__ == "__main__":
    e2e.main()
