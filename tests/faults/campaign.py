"""Runs that are killed, stopped, damaged, moved and gone on with at random; each ends as the run that nobody disturbed.

    MORTISE_ADVERSITIES=300 MORTISE_SEED=7 python3 tests/faults/campaign.py      (`make soak`)

survive_test.py kills a run that keeps everything it needs. Here the run keeps as little as it may (keep = 1, best),
what it finds when it goes on is not what it left, and it is told to stop in every way there is. After each process, by
a verifier of its own:

    announced   a checkpoint that was "saved" is there and whole, unless retention may have removed it or this test
                damaged it
    newest      the run goes on from the newest checkpoint that is whole, never from an older one
    past        nothing newer than that stays among the checkpoints, except what was saved since
    best        the one that state.json calls the best is there
    bound       no more stay than [checkpoint] says
    exit        the code that the way of stopping has
    end         the last checkpoint has the hash of the run that was never stopped, and every step has one record

MORTISE_TRACE=1 prints each event.
"""
import hashlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import e2e  # noqa: E402  the path above leads to it

SHIM = os.environ.get("MORTISE_SHIM", str(e2e.MORTISE.parent.parent / "tests/shim.so"))
ADVERSITIES = int(os.environ.get("MORTISE_ADVERSITIES", "8"))
SEED = int(os.environ.get("MORTISE_SEED", "1"))
TRACE = bool(os.environ.get("MORTISE_TRACE"))

LENGTH = 30
BASE = e2e.TINY.replace("length = 6", f"length = {LENGTH}").replace("width = 16", "width = 16\ndropout = 0.1") \
    .replace("sequence_length = 16", "sequence_length = 16\nvalidation = 0.1") + """\
[schedule.cosine]
[schedule]
warmup = 4
[gradient.clip]
norm = 1.0
[step.accumulation]
count = 2
[log]
every = 1
[eval]
every = 4
[checkpoint]
every = 3
"""


class Kind:
    """A way to keep checkpoints."""

    def __init__(self, name, keep, keep_every=0, more=""):
        self.name, self.keep, self.keep_every = name, keep, keep_every
        self.text = BASE + f"keep = {keep}\n" + (f"keep_every = {keep_every}\n" if keep_every else "") + more


KINDS = [
    Kind("one and the best", 1, more='best = "eval.loss"\n'),
    Kind("one, in the background", 1, keep_every=12, more="background = true\n"),
    Kind("two", 2),
]
SIGNALS = {"terminate": (signal.SIGTERM, 75), "interrupt": (signal.SIGINT, 130), "kill": (signal.SIGKILL, -9),
           "stop and kill": (signal.SIGSTOP, -9)}
STOPS = [*SIGNALS, "kill in a save", "kill in a resume"]
DAMAGES = ["flip", "truncate", "delete", "link", "fifo"]


def is_regular(path):
    """No link on the way from the checkpoint's folder either."""
    return stat.S_ISREG(path.lstat().st_mode) and not path.parent.is_symlink()


def whole_hash(folder):
    """The hash of a checkpoint that is what was saved; None of any other. Nothing of Mortise's own reader is used."""
    try:
        manifest = folder / "MANIFEST.json"
        if folder.is_symlink() or not is_regular(manifest):
            return None
        text = manifest.read_bytes()
        said = json.loads(text)
        body = text[:text.rindex(b",\n \"sha256\"")]
        if hashlib.sha256(body).hexdigest() != said["sha256"] or f"step-{said['step']}" != folder.name:
            return None
        for name, file in said["files"].items():
            path = folder / name
            if not is_regular(path) or hashlib.sha256(path.read_bytes()).hexdigest() != file["sha256"]:
                return None
        return said["sha256"]
    except (OSError, ValueError, KeyError):
        return None


class Disturbed:
    """One run on its way from beginning to end."""

    def __init__(self, case, kind, dice):
        self.case, self.kind, self.dice = case, kind, dice
        self.dir = case.dir / "runs/run"
        self.announced = []   # steps, oldest first, of the past that counts
        self.damaged = set()  # by this test
        self.retired = set()  # steps that retention was free to remove once
        self.bests = []       # as each newest checkpoint called it
        self.log = [kind.name]
        shutil.rmtree(self.dir, ignore_errors=True)
        case.file("run.toml", kind.text)

    def event(self, text):
        self.log.append(text)
        if TRACE:
            print("   ", text, file=sys.stderr, flush=True)

    def violation(self, what, text):
        self.case.violations.append(f"{what}: {text}\n      after " + "; ".join(self.log[-6:]))
        if TRACE:
            print("!!!", what, text, file=sys.stderr, flush=True)

    # What lies there

    def folders(self):
        found = {}
        for path in (self.dir / "checkpoints").glob("step-*"):
            if re.fullmatch(r"step-(0|[1-9]\d*)", path.name):
                found[int(path.name[5:])] = path
        return found

    def whole(self):
        return {step: sha for step, path in self.folders().items() if (sha := whole_hash(path))}

    def best(self):
        whole = self.whole()
        return json.loads((self.folders()[max(whole)] / "state.json").read_text())["best_step"] if whole else -1

    # What happens to it between two processes

    def disturb(self):
        if self.dice.random() < 0.6:
            self.damage()
        if self.dice.random() < 0.3:
            self.move()

    def damage(self):
        """Of a newer checkpoint: a copy under a later step, or the newest itself if there is another one to go on
        from."""
        whole = self.whole()
        if not whole:
            return
        newest = max(whole)
        if len(whole) > 1 and self.dice.random() < 0.5:
            at = newest
        else:
            at = newest + self.dice.randint(1, 9)
            target = self.dir / f"checkpoints/step-{at}"
            if at in self.folders():
                return
            shutil.copytree(self.folders()[newest], target, symlinks=True)
        self.damaged.add(at)
        how = self.dice.choice(DAMAGES)
        folder = self.folders()[at]
        files = sorted(p for p in folder.rglob("*") if p.is_file() and not p.is_symlink())
        path = self.dice.choice(files)
        self.event(f"{how} {path.relative_to(self.dir / 'checkpoints')}")
        size = path.stat().st_size
        if how == "flip":
            with path.open("r+b") as file:
                file.seek(self.dice.randrange(size))
                byte = file.read(1)
                file.seek(-1, 1)
                file.write(bytes([byte[0] ^ 1 << self.dice.randrange(8)]))
        elif how == "truncate":
            os.truncate(path, self.dice.randrange(size))
        else:
            aside = self.case.dir / "aside"
            aside.unlink(missing_ok=True)
            path.rename(aside)
            if how == "link":
                path.symlink_to(aside)
            elif how == "fifo":
                os.mkfifo(path)

    def move(self):
        elsewhere = self.case.dir / self.dice.choice(["runs/run", "runs/moved", "elsewhere/a run"])
        if elsewhere == self.dir or elsewhere.exists():
            return
        elsewhere.parent.mkdir(exist_ok=True)
        self.dir.rename(elsewhere)
        self.dir = elsewhere
        self.event(f"moved to {elsewhere.relative_to(self.case.dir)}")

    def words(self):
        """How a person calls the run's directory."""
        path = str(self.dir.relative_to(self.case.dir))
        return self.dice.choice([path, path + "/", "./" + path, str(self.dir)])

    # One process

    def go_on(self, stop):
        """Starts or resumes, stops it by `stop` (None: lets it end) and looks at what there is. False: it cannot go
        on."""
        before = self.whole()
        env, target = {}, None
        if stop == "kill in a save":
            env = self.case.faults(WITH="kill", SAVE=self.dice.randint(1, 3), AT=self.dice.randint(1, 45))
        elif stop == "kill in a resume":
            env = self.case.faults(WITH="kill", SAVE=0, AT=self.dice.randint(1, 12))
        elif stop:
            target = max(before, default=0) + self.dice.randint(2, 9)
        begun = (self.dir / "run.toml").exists()
        args = ["resume", self.words()] if begun else ["train", "--resume"]
        self.event(" ".join(args) + (f", {stop}" if stop else "") + (f" at step {target}" if target else ""))
        code, out, err = self.process(args, env, stop, target)
        saved = [int(step.replace(",", "")) for step in re.findall(r"(?m)^saved +([\d,]+) ", out)]
        at = re.search(r"(?m)^resume  .* at step ([\d,]+) ", err)
        resumed = int(at[1].replace(",", "")) if at else None
        finished = " is finished, at step " in err
        self.event(f"exit {code}" + (f", from {resumed}" if at else "") + (f", saved {saved}" if saved else ""))
        wanted = {None: [0], "kill in a save": [-9, 0], "kill in a resume": [-9, 0]}.get(stop) or [SIGNALS[stop][1], 0]
        if code not in wanted:
            self.violation("exit", f"{code} and not one of {wanted}: {err.strip()[-400:]}")
            if code == 65:
                return False
        newest = max(before, default=None)
        if resumed is not None and resumed != newest:
            self.violation("newest", f"it went on from step {resumed}, and {newest} was whole")
        if resumed is not None:
            self.announced = [step for step in self.announced if step <= resumed]
        self.announced += saved
        self.damaged -= set(saved)
        self.retired -= set(saved)
        self.look(resumed, saved, code)
        return code != 0 or finished or stop is not None or self.end(out)

    def process(self, args, env, stop, target):
        process = subprocess.Popen([e2e.MORTISE, *args], cwd=self.case.dir, env=self.case.environment(**env),
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        head = b""
        try:
            if target:
                for line in process.stdout:
                    head += line
                    step = re.match(rb"step +([\d,]+)/", line)
                    if step and int(step[1].replace(b",", b"")) >= target:
                        time.sleep(self.dice.choice([0, 0, 0.005, 0.02]))
                        process.send_signal(SIGNALS[stop][0])
                        break
                if stop == "stop and kill":
                    time.sleep(0.02)
                    process.kill()
            out, err = process.communicate(timeout=e2e.LIMIT_S)
        except subprocess.TimeoutExpired:
            self.violation("exit", "it hangs")
            process.kill()
            out, err = process.communicate()
        return process.returncode, (head + out).decode(), err.decode()

    def look(self, resumed, saved, code):
        whole, folders = self.whole(), self.folders()
        for step in self.announced[-self.kind.keep:]:
            # One that was saved and not announced any more, when the process was killed, takes its place too.
            superseded = len([s for s in whole if s > step]) >= self.kind.keep
            if step not in whole and not superseded and step not in self.damaged | self.retired:
                self.violation("announced", f"step {step} was saved and is {'damaged' if step in folders else 'gone'}; "
                                            f"there are {sorted(folders)}")
        self.retired |= set(self.announced[:-self.kind.keep])
        if resumed is not None and code != -9 or saved:
            since = -1 if resumed is None else resumed
            stale = [step for step in folders if step > since and step not in whole]
            if stale:
                self.violation("past", f"{stale} are newer than step {since}, which it went on from, "
                                       "and nobody saved them")
        best = self.best()
        # What an older one than the last that was announced calls the best may be gone, since there was a better one.
        lost_the_last = any(step > max(whole, default=-1) for step in self.announced)
        was_beaten = best in self.bests and best != self.bests[-1]
        if not was_beaten:
            self.bests.append(best)
        if best >= 0 and best not in whole and best not in self.damaged and not lost_the_last and not was_beaten:
            self.violation("best", f"the best is of step {best}; there are {sorted(whole)}")
        if saved and code in (0, 75, 130):
            # Beside what [checkpoint] names: what it went on from, and the newest that the step after has confirmed.
            counted = [s for s in whole if s not in (best, resumed) and
                       not (self.kind.keep_every and s % self.kind.keep_every == 0)]
            if len(counted) > self.kind.keep + 1:
                self.violation("bound", f"keep = {self.kind.keep}, and there are {sorted(whole)}")

    def end(self, out):
        whole = self.whole()
        if max(whole, default=-1) != LENGTH or whole[LENGTH] != self.case.hashes[self.kind.name]:
            self.violation("end", f"the last checkpoint is {max(whole, default=None)}, or has another hash; "
                                  f"{out[-200:]}")
        steps = [r["step"] for r in self.case.records(self.dir, "step")]
        if steps != list(range(1, LENGTH + 1)):
            self.violation("end", f"the records are of steps {steps}")
        return False


class Campaign(e2e.Case):
    def setUp(self):
        super().setUp()
        self.shim = shutil.copy(SHIM, self.dir / "shim.so")  # LD_PRELOAD takes no path with a space
        self.violations, self.hashes = [], {}

    def faults(self, **more):
        return {"LD_PRELOAD": str(self.shim), **{f"FAULT_{k}": str(v) for k, v in more.items()}}

    def never_stopped(self, kind):
        if kind.name not in self.hashes:
            run = self.train(f"whole-{KINDS.index(kind)}", kind.text)
            self.hashes[kind.name] = whole_hash(self.checkpoint(run))
            self.assertIsNotNone(self.hashes[kind.name])

    def test_every_run_ends_as_the_one_never_stopped(self):
        dice, runs, count = random.Random(SEED), 0, 0
        while count < ADVERSITIES:
            kind = KINDS[runs % len(KINDS)]
            self.never_stopped(kind)
            for left in ("elsewhere", "runs/moved"):
                shutil.rmtree(self.dir / left, ignore_errors=True)
            run = Disturbed(self, kind, dice)
            runs += 1
            some = min(dice.randint(3, 8), ADVERSITIES - count)
            for _ in range(some):
                count += 1
                if not run.go_on(dice.choice(STOPS)):
                    break
                run.disturb()
            else:
                run.go_on(None)
        print(f"{count} adversities in {runs} runs, {len(self.violations)} violations, seed {SEED}", file=sys.stderr)
        self.assertEqual(self.violations, [], "\n" + "\n".join(self.violations))


class ChangedText(Campaign):
    """The text that a run was trained on is part of it: with another one it would be another run, under the old one's
    name."""

    def refuses_until_it_is_put_back(self, change):
        kind = KINDS[2]
        self.never_stopped(kind)
        run = Disturbed(self, kind, random.Random(SEED))
        while not run.announced:
            run.go_on("kill")
        notes = self.dir / "notes.txt"
        text = notes.read_text()
        notes.write_text(change(text))
        records = (run.dir / "metrics.jsonl").read_bytes()
        refused = self.mortise("resume", "runs/run")
        self.assertIn(refused.code, (64, 65), refused)
        self.assertIn("notes.txt", refused.err)
        self.assertEqual((run.dir / "metrics.jsonl").read_bytes(), records)
        notes.write_text(text)
        run.go_on(None)
        self.assertEqual(self.violations, [])

    def test_reversed(self):
        self.refuses_until_it_is_put_back(lambda text: text[::-1])

    def test_doubled(self):
        self.refuses_until_it_is_put_back(lambda text: text + text)

    def test_cut(self):
        self.refuses_until_it_is_put_back(lambda text: text[:len(text) // 2])

    test_every_run_ends_as_the_one_never_stopped = None  # is the campaign's


if __name__ == "__main__":
    e2e.main()
