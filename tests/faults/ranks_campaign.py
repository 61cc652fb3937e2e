"""Ranks that are killed and stopped at random, and gone on with until the run's end, which is that of the run that
nobody disturbed.

    MORTISE_KILLS=200 MORTISE_SEED=7 python3 tests/faults/ranks_campaign.py      (`make soak`)

Two, three or four ranks with parallel.ddp or a stage of parallel.zero. One of them, rank 0 too, is killed at a random
moment: as it starts, in a step, while rank 0 saves, or rank 0 in any call of its save; or it is stopped and hangs.
After each process:

    announced   each checkpoint that was "saved" is there, and bit for bit that of the run never disturbed
    newest      the run goes on from the newest checkpoint that is whole
    named       the parent says which rank was lost, with exit 75; of one that hangs, the others say it
    nobody      no rank is left, and each ends by itself when another is lost
    end         the last checkpoint is that of the run never disturbed, and every step has one record

MORTISE_TRACE=1 prints each event.
"""
import json
import os
import pathlib
import queue
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

import campaign
import e2e  # campaign knows where it is

KILLS = int(os.environ.get("MORTISE_KILLS", "10"))
SEED = int(os.environ.get("MORTISE_SEED", "163"))  # begins with 2 ranks of zero 3, and 3 of ddp
PATIENCE_S = 30   # the parent gives the others 2 s, and 5 s more; the machine may be busy
TIMEOUT_S = 5     # of comm.gloo, where a rank is to hang
ANYWHERE = ("in a step", "in a step", "beside a save", "in a save", "at the start")


class Kind:
    def __init__(self, ranks, stage):
        self.ranks, self.name = ranks, f"{ranks} ranks, " + (f"zero {stage}" if stage else "ddp")
        self.text = campaign.BASE.replace("every = 3", "every = 2") + "keep = 100\n[comm.gloo]\n" + (
            f"[parallel.zero]\nstage = {stage}\nwhole_below = 64\n" if stage else "")


KINDS = [Kind(ranks, stage) for ranks in (2, 3, 4) for stage in (0, 1, 2, 3)]


def begun_saves(folder):
    """Those that are under way, or were cut short."""
    found = set()
    for path in folder.glob(".tmp-step-*"):
        try:
            found.add((path.name, path.stat().st_ino))
        except OSError:
            continue
    return found


class Process:
    """`mortise … --ranks N`, and what it says as it goes."""

    def __init__(self, case, words, kind, env):
        self.ranks = kind.ranks
        self.process = subprocess.Popen(
            [e2e.MORTISE, *words, "--ranks", str(kind.ranks)], cwd=case.dir, env=case.environment(**env),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.lines, self.out, self.err, self.pids = queue.Queue(), [], "", {}
        self.readers = [threading.Thread(target=self.read_out), threading.Thread(target=self.read_err)]
        for reader in self.readers:
            reader.start()

    def read_out(self):
        for line in self.process.stdout:
            self.out.append(line)
            self.lines.put(line)
        self.lines.put(None)

    def read_err(self):
        self.err = self.process.stderr.read()

    def find_ranks(self):
        """Their processes, by number, as they begin; False: it has ended before."""
        while len(self.pids) < self.ranks:
            if self.process.poll() is not None:
                return False
            self.pids |= e2e.ranks_of(self.process.pid)
            time.sleep(0.01)
        return True

    def wait_for_step(self, at_least):
        """Until a step so late is said; False: it ended before."""
        while line := self.lines.get(timeout=e2e.LIMIT_S):
            step = re.match(r"step +([\d,]+)/", line)
            if step and int(step[1].replace(",", "")) >= at_least:
                return True
        return False

    def wait_for_save(self, folder, left):
        """`left`: of a save that was cut short before."""
        while self.process.poll() is None:
            if begun_saves(folder) - left:
                return True
            time.sleep(0.0005)
        return False

    def heard_all(self):
        for reader, pipe in zip(self.readers, (self.process.stdout, self.process.stderr)):
            reader.join()
            pipe.close()

    def left(self):
        """Ranks that are still there, but for those that nobody has waited for."""
        def is_there(pid):
            try:
                return ") Z " not in pathlib.Path(f"/proc/{pid}/stat").read_text()
            except OSError:
                return False
        return [rank for rank, pid in self.pids.items() if is_there(pid)]

    def end(self, limit):
        """Its exit code; None: it hangs."""
        try:
            self.process.wait(limit)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self.heard_all()
        return None if self.process.returncode == -signal.SIGKILL else self.process.returncode


class Disturbed:
    """One run on its way from its beginning to its end."""

    def __init__(self, case, kind, dice):
        self.case, self.kind, self.dice, self.log = case, kind, dice, [kind.name]
        self.dir = case.dir / "runs/run"
        self.announced = set()
        shutil.rmtree(self.dir, ignore_errors=True)
        case.file("run.toml", kind.text)
        if campaign.TRACE:
            print(kind.name, file=sys.stderr, flush=True)

    def violation(self, what, text):
        self.case.violations.append(f"{what}: {text}\n      after " + "; ".join(self.log[-4:]))

    def event(self, text):
        self.log.append(text)
        if campaign.TRACE:
            print("   ", text, file=sys.stderr, flush=True)

    def whole(self):
        found = {}
        for path in (self.dir / "checkpoints").glob("step-*"):
            if sha := campaign.whole_hash(path):
                found[int(path.name[5:])] = sha
        return found

    def go_on(self, moment):
        """One process, whose victim is killed at `moment` ("hangs": stopped); None: nobody is. True: it came to the
        end."""
        before, victim = self.whole(), self.dice.randrange(self.kind.ranks)
        env = {}
        if moment == "in a save":
            victim = 0
            env = self.case.faults(WITH="kill", SAVE=self.dice.randint(1, 3), AT=self.dice.randint(1, 45))
        words = ["train", "--resume"]
        if moment == "hangs":
            words += ["--set", f"comm.gloo.timeout={TIMEOUT_S} s"]
        self.left = begun_saves(self.dir / "checkpoints")
        process = Process(self.case, words, self.kind, env)
        struck = self.strike(process, moment, victim, max(before, default=0)) if moment else None
        began = time.monotonic()
        code = process.end(PATIENCE_S if struck else e2e.LIMIT_S)
        took = time.monotonic() - began
        out = "".join(process.out)
        saved = {int(step.replace(",", "")) for step in re.findall(r"(?m)^saved +([\d,]+) ", out)}
        self.event(f"{moment or 'undisturbed'}, rank {victim}, from {max(before, default=None)}: exit {code} after "
                   f"{took:.1f} s, saved {sorted(saved)}")
        self.look(process, saved, before)
        if moment == "hangs" and not struck and code == 75 and "open: " in process.err:
            return False  # on a busy machine they have not even met within that time
        if moment == "in a save":
            struck = code != 0
        if code == 0 and not struck:
            return True
        if moment != "in a save":  # else it is the time from the start on
            self.case.slowest = max(self.case.slowest, took)
        if "did not end, and w" in process.err:
            self.violation("nobody", f"a rank did not see that another was lost: {process.err[-400:]}")
        if code is None:
            self.violation("nobody", f"it does not end: {process.err[-400:]}")
        elif moment is None or (code, struck) == (0, True):
            if code != 0 or not self.at_its_end():  # a rank that was killed as all was done changes nothing
                self.violation("named", f"exit {code}: {process.err[-400:]}")
            return True
        elif code != 75 or not re.search(rf"error\[rank_lost\]: rank {victim} ended: signal 9 ", process.err):
            self.violation("named", f"exit {code}, and rank {victim} was lost: {process.err[-600:]}")
        return False

    def strike(self, process, moment, victim, at):
        """True: it was struck."""
        if not process.find_ranks():
            return False
        if moment == "at the start":
            time.sleep(self.dice.uniform(0, 1.5))
        elif moment == "beside a save":
            if not process.wait_for_save(self.dir / "checkpoints", self.left):
                return False
            time.sleep(self.dice.choice([0, 0, 0.001, 0.003]))
        elif moment in ("in a step", "hangs"):
            if not process.wait_for_step(at + self.dice.randint(1, 7)):
                return False
            time.sleep(self.dice.uniform(0, 0.03))
        else:
            return False
        try:
            os.kill(process.pids[victim], signal.SIGSTOP if moment == "hangs" else signal.SIGKILL)
        except ProcessLookupError:
            return False
        if moment == "hangs":
            self.wait_for_the_others(process, victim)
        return process.process.poll() != 0

    def wait_for_the_others(self, process, victim):
        """Until they have given up; who hangs is then killed, as nobody waits the minute that the parent does."""
        deadline = time.monotonic() + TIMEOUT_S + PATIENCE_S
        while process.left() not in ([victim], []) and time.monotonic() < deadline:
            time.sleep(0.02)
        if process.left() != [victim]:
            self.violation("nobody", f"ranks {process.left()} are there, and rank {victim} hangs")
        os.kill(process.pids[victim], signal.SIGKILL)
        process.process.wait()
        process.heard_all()
        self.case.hung += 1
        named = f"rank {victim} ended, or did not come"
        if victim != 0 and named not in process.err:  # rank 0 is the one that is heard
            self.violation("named", f"the others do not say `{named}`: {process.err[-600:]}")

    def look(self, process, saved, before):
        whole, known = self.whole(), self.case.known[self.kind.name]
        at = re.search(r"(?m)^resume  .* at step ([\d,]+) ", process.err)
        if at and int(at[1].replace(",", "")) != max(before, default=-1):
            self.violation("newest", f"it went on from step {at[1]}, and {max(before, default=None)} was whole")
        self.announced |= saved
        for step in sorted(self.announced):
            if step not in whole or whole[step] != known.get(step, whole[step]):
                self.violation("announced", f"step {step} was saved, and is " +
                               ("another" if step in whole else "gone"))
                self.announced.discard(step)  # it is said once
        time.sleep(0.05)
        if process.left():
            self.violation("nobody", f"ranks {process.left()} are left")

    def at_its_end(self):
        return self.whole().get(campaign.LENGTH) == self.case.known[self.kind.name][campaign.LENGTH]

    def check_end(self):
        if not self.at_its_end():
            self.violation("end", f"the last checkpoint is {max(self.whole(), default=None)}, or has another hash")
        steps = [r["step"] for r in self.case.records(self.dir, "step")]
        if steps != list(range(1, campaign.LENGTH + 1)):
            self.violation("end", f"the records are of steps {steps}")


class Killed(e2e.Case):
    def setUp(self):
        super().setUp()
        self.shim = shutil.copy(campaign.SHIM, self.dir / "shim.so")
        self.violations, self.known, self.slowest, self.hung = [], {}, 0, 0

    def faults(self, **more):
        return {"LD_PRELOAD": str(self.shim), **{f"FAULT_{k}": str(v) for k, v in more.items()}}

    def never_disturbed(self, kind):
        if kind.name in self.known:
            return
        run = self.train(f"whole-{KINDS.index(kind)}", kind.text, "--ranks", str(kind.ranks))
        self.known[kind.name] = {int(p.name[5:]): campaign.whole_hash(p) for p in (run / "checkpoints").glob("step-*")}
        self.assertIn(campaign.LENGTH, self.known[kind.name])

    def test_every_run_ends_as_the_one_never_disturbed(self):
        dice, runs, count = random.Random(SEED), 0, 0
        counts = {}
        kinds = KINDS[:]
        dice.shuffle(kinds)
        while count < KILLS:
            kind = kinds[runs % len(kinds)]
            self.never_disturbed(kind)
            run = Disturbed(self, kind, dice)
            runs += 1
            some = min(dice.randint(4, 8), KILLS - count)
            for n in range(some):
                moment = "hangs" if 0 < n == some - 1 and runs % 2 else dice.choice(ANYWHERE)
                if run.go_on(moment):
                    break
                count += 1
                counts[moment] = counts.get(moment, 0) + 1
            else:
                while not run.go_on(None):
                    self.assertLess(len(self.violations), 20, "\n".join(self.violations))
            run.check_end()
        print(f"{count} ranks lost in {runs} runs ({json.dumps(counts)}), {len(self.violations)} violations, at most "
              f"{self.slowest:.1f} s until all had ended, seed {SEED}", file=sys.stderr)
        self.assertEqual(self.violations, [], "\n" + "\n".join(self.violations))


if __name__ == "__main__":
    e2e.main()
