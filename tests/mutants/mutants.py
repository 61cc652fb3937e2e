#!/usr/bin/env python3
"""Small wrong changes to the program, and which test sees each: python3 tests/mutants/mutants.py [--only ID,…|ROOM,…]

mutants.toml lists them: one line `old` of `file` becomes `new`. Each is applied to a copy of this working tree in
build-mutants/, built there, tested until the first test fails, and taken back. A test that fails must have passed
without the change, too. Results are kept as they come; what was judged of the same change and the same tree is not
judged again. Exit 1: fewer than 95 % were caught.
"""
import argparse
import collections
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

try:
    import tomllib
except ImportError:  # Python 3.10: as pip has it
    from pip._vendor import tomli as tomllib

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIST = pathlib.Path(__file__).with_name("mutants.toml")
WORK = ROOT / "build-mutants"
TREE, BUILD, TEMPORARY = WORK / "tree", WORK / "tree/build", WORK / "tmp"
ENOUGH = 0.95
# They read sources, and would see that a line changed rather than what it does.
NO_JUDGE = re.compile(r"check_(core|texts|format|tests|users|complete|mutants).*")
END_TO_END = re.compile(r"e2e_.*|survive|campaign|hostile_(plugins|values)")


class Mutant:
    def __init__(self, entry):
        self.id, self.file, self.old, self.new = entry["id"], entry["file"], entry["old"], entry["new"]
        self.wrong, self.tests = entry["wrong"], entry.get("tests", "")
        parts = self.file.split("/")
        self.room = "/".join(parts[:2]) if parts[0] == "core" else parts[0]

    @property
    def key(self):
        return hashlib.sha256("\0".join((self.file, self.old, self.new)).encode()).hexdigest()[:16]

    def problem(self):
        """Why it does not apply; "" if it does."""
        if "\n" in self.old + self.new:
            return "`old` and `new` are one line each"
        if self.old == self.new:
            return "`old` and `new` are the same"
        path = ROOT / self.file
        n = path.read_text().count(self.old) if path.is_file() else -1
        return "" if n == 1 else "no such file" if n < 0 else f"`old` occurs {n} times in {self.file}, not once"


def read_list():
    mutants = [Mutant(entry) for entry in tomllib.loads(LIST.read_text())["mutant"]]
    errors = [f"{m.id}: {m.problem()}" for m in mutants if m.problem()]
    twice = [name for name, n in collections.Counter(m.id for m in mutants).items() if n > 1]
    errors += [f"{name}: two have this id" for name in twice]
    return mutants, errors


# ---- the copy ----

def tracked_files():
    names = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, check=True,
                           capture_output=True, text=True).stdout.split("\0")
    return [name for name in names if name and (ROOT / name).is_file()]


def update_copy():
    """The tree as it is now; only what differs is written, so that little is built again. A hash of it."""
    TREE.mkdir(parents=True, exist_ok=True)
    if not (TREE / ".deps").exists():
        (TREE / ".deps").symlink_to((ROOT / ".deps").resolve())
    names, whole = tracked_files(), hashlib.sha256()
    for path in sorted(TREE.rglob("*")):
        name = str(path.relative_to(TREE))
        if path.is_file() and not name.startswith(("build/", ".deps", "runs/")) and name not in names:
            path.unlink()
    for name in sorted(names):
        data, target = (ROOT / name).read_bytes(), TREE / name
        if not name.startswith(("docs/", "tests/mutants/")):
            whole.update(f"{name}\0{len(data)}\0".encode() + data)
        if not target.is_file() or target.read_bytes() != data:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
            shutil.copymode(ROOT / name, target)
    return whole.hexdigest()


def build(jobs, targets=()):
    """"", or what the compiler said."""
    done = subprocess.run(["ninja", "-C", BUILD, f"-j{jobs}", *targets], capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stdout[-4000:] or done.stderr[-4000:]


# ---- tests ----

class Test:
    def __init__(self, shown):
        properties = {p["name"]: p["value"] for p in shown.get("properties", [])}
        self.name = shown["name"]
        self.command = shown["command"]
        self.folder = properties.get("WORKING_DIRECTORY", str(BUILD))
        self.environment = dict(pair.split("=", 1) for pair in properties.get("ENVIRONMENT", []))
        self.fails_with = properties.get("FAIL_REGULAR_EXPRESSION", [])
        self.passes_with = properties.get("PASS_REGULAR_EXPRESSION", [])
        self.skipped = int(properties.get("SKIP_RETURN_CODE", 0))
        first = pathlib.Path(self.command[0])
        # What must be built for it; none: all there is.
        self.targets = [str(first.relative_to(BUILD))] if first.is_relative_to(BUILD) else []
        if END_TO_END.fullmatch(self.name):
            self.targets = ["product", "mortise_shim"]
        if self.name == "e2e_own_loop":  # runs programs of ours
            self.targets += ["own_loop", "alternating_loop", "bert_loop"]


def all_tests():
    shown = subprocess.run(["ctest", "--test-dir", BUILD, "--show-only=json-v1"], check=True, capture_output=True,
                           text=True).stdout
    return [Test(t) for t in json.loads(shown)["tests"] if not NO_JUDGE.fullmatch(t["name"])]


class Runner:
    """Runs tests, a few at a time, until one fails."""

    def __init__(self, jobs, seconds):
        self.jobs, self.seconds = jobs, seconds  # of each test that has passed
        self.stop, self.lock, self.running = False, threading.Lock(), set()

    def cost(self, test):
        guess = 60 if END_TO_END.fullmatch(test.name) else 5
        return self.seconds.get(test.name, guess)

    def limit(self, test):
        return 60 + 10 * self.seconds.get(test.name, 100)

    def fails(self, test):
        """None: it passed, or was stopped. Else what came of it."""
        with self.lock:
            if self.stop:
                return None
            begun = time.monotonic()
            process = subprocess.Popen(test.command, cwd=test.folder, env={**os.environ, **test.environment},
                                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                       start_new_session=True)
            self.running.add(process)
        try:
            out = process.communicate(timeout=self.limit(test))[0].decode(errors="replace")
            took, hung = time.monotonic() - begun, False
        except subprocess.TimeoutExpired:
            kill(process)
            out, took, hung = process.communicate()[0].decode(errors="replace"), 0, True
        with self.lock:
            self.running.discard(process)
            if self.stop:
                return None
        if hung:
            return "hangs", out
        matches = [re.search(e, out) for e in test.fails_with]
        passed = any(re.search(e, out) for e in test.passes_with) if test.passes_with \
            else process.returncode in (0, test.skipped)
        if passed and not any(matches):
            self.seconds.setdefault(test.name, took)
            return None
        return "fails", out

    def first_failure(self, tests):
        """(test, "fails" or "hangs", output), or None."""
        self.stop = False
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            waiting = {pool.submit(self.fails, test): test for test in tests}
            for done in concurrent.futures.as_completed(waiting):
                if done.result() is None:
                    continue
                with self.lock:
                    self.stop = True
                    for process in self.running:
                        kill(process)
                return waiting[done], *done.result()
        return None


def kill(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def is_near(test, mutant):
    """Does it test the room or the plugin that is changed?"""
    parts = mutant.file.split("/")
    names = [".".join(parts[1:3])] if parts[0] == "plugins" else [parts[1]]
    return any(re.fullmatch(rf"(kernel_|format_)?{re.escape(name)}_test", test.name) for name in names)


# ---- one change ----

class Judge:
    def __init__(self, tests, runner, jobs, near, caught_before):
        self.tests, self.runner, self.jobs, self.near, self.caught_before = tests, runner, jobs, near, caught_before

    def groups(self, mutant):
        """What caught it last and what the list hints at; its own room's; then the others, the quick ones first."""
        left = sorted(self.tests, key=self.runner.cost)
        def take(wanted):
            taken = [t for t in left if wanted(t)]
            left[:] = [t for t in left if t not in taken]
            return taken
        before = self.caught_before.get(mutant.id)
        yield take(lambda t: t.name == before or mutant.tests and re.fullmatch(mutant.tests, t.name))
        yield take(lambda t: is_near(t, mutant))
        if not self.near:
            yield left

    def verdict(self, mutant):
        while True:
            failure = self.first_failure(mutant)
            if failure is None:
                return {"verdict": "open" if self.near else "survived"}
            test, how, output = failure
            if self.stands_without(test):
                return {"verdict": "caught" if test else how, "test": test and test.name, "how": how,
                        "output": output[-2000:]}
            print(f"{test.name} fails without any change: it judges nothing", flush=True)
            self.tests.remove(test)

    def first_failure(self, mutant):
        """(test, "fails" or "hangs" or "does not build", output), or None."""
        shutil.rmtree(TEMPORARY, ignore_errors=True)  # tests that were stopped leave theirs
        TEMPORARY.mkdir()
        source = TREE / mutant.file
        text = source.read_text()
        source.write_text(text.replace(mutant.old, mutant.new))
        try:
            for group in self.groups(mutant):
                everything = not all(t.targets for t in group)
                self.built = () if everything else sorted({target for t in group for target in t.targets})
                if group and (said := build(self.jobs, self.built)):
                    return None, "does not build", said
                if failure := self.runner.first_failure(group):
                    return failure
            return None
        finally:
            source.write_text(text)

    def stands_without(self, test):
        """Does the tree build, and pass this, without the change?"""
        if test and test.name in self.runner.seconds:
            return True
        if said := build(self.jobs, self.built):
            sys.exit(f"{said}\nThe tree does not build.")
        return test is None or self.runner.first_failure([test]) is None


# ---- what is kept ----

class Results:
    def __init__(self):
        self.path = WORK / "results.jsonl"
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        self.all = [json.loads(line) for line in lines]

    def of(self, mutant, tree=None):
        """The last verdict; of this tree, or of any."""
        return next((r for r in reversed(self.all) if r["key"] == mutant.key and tree in (None, r["tree"])), None)

    def add(self, result):
        self.all.append(result)
        with self.path.open("a") as out:
            out.write(json.dumps(result) + "\n")


def kind_of(test, mutant):
    if END_TO_END.fullmatch(test):
        return "end to end"
    return "its own unit test" if any(is_near(t, mutant) for t in [collections.namedtuple("T", "name")(test)]) \
        else "another unit test"


def table(judged):
    """Markdown: counts by room and by kind of test, then one line each."""
    kinds = ["its own unit test", "another unit test", "end to end", "survived", "open", "does not build"]
    rooms = collections.defaultdict(collections.Counter)
    for mutant, result in judged:
        kind = kind_of(result["test"], mutant) if result["verdict"] == "caught" else result["verdict"]
        rooms[mutant.room][kind] += 1
        rooms["all"][kind] += 1
    lines = ["| | changes | " + " | ".join(kinds) + " |", "|---" * (len(kinds) + 2) + "|"]
    for room in sorted(rooms, key=lambda room: (room == "all", room)):
        counts = rooms[room]
        cells = [room, str(sum(counts.values())), *(str(counts[kind] or "") for kind in kinds)]
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "| change | what goes wrong | |", "|---|---|---|"]
    for mutant, result in judged:
        how = f"{result['test']} {result['how']}" if result["verdict"] == "caught" else f"**{result['verdict']}**"
        lines.append(f"| `{mutant.id}` | {mutant.wrong} | {how} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="ID,… or ROOM,… (core/store, plugins): expressions")
    parser.add_argument("--list", action="store_true", help="print the changes, run nothing")
    parser.add_argument("--check", action="store_true", help="only: does each still apply?")
    parser.add_argument("--jobs", type=int, default=2, help="compilers, and tests, at a time (2)")
    parser.add_argument("--again", action="store_true", help="also what was judged before")
    parser.add_argument("--missed", action="store_true",
                        help="only what was not caught yet; verdicts of earlier trees count")
    parser.add_argument("--near", action="store_true",
                        help="run the tests that the list names and those of the changed room alone; what they let "
                             "through stays open")
    parser.add_argument("--out", type=pathlib.Path, default=WORK / "table.md",
                        help="where the table goes (build-mutants/table.md)")
    parser.add_argument("cmake", nargs="*", help="arguments for the configuration")
    args = parser.parse_args()

    mutants, errors = read_list()
    if errors:
        sys.exit("\n".join(errors))
    if args.check:
        return print(f"{len(mutants)} changes apply")
    wanted = [re.compile(each) for each in args.only.split(",")] if args.only else []
    chosen = [m for m in mutants if not wanted or any(w.fullmatch(each) for w in wanted for each in (m.id, m.room))]
    if args.list:
        return print("\n".join(f"{m.id:34} {m.file}: {m.wrong}" for m in chosen))
    if not chosen:
        sys.exit(f"no change is called {args.only}")

    os.environ["PATH"] = f"{ROOT / '.deps/bin'}:{os.environ['PATH']}"
    os.environ["TMPDIR"] = str(TEMPORARY)
    os.environ["GTEST_FAIL_FAST"] = "1"  # one failure is enough
    tree = update_copy()
    TEMPORARY.mkdir(exist_ok=True)
    results = Results()
    def is_judged(mutant):
        before = results.of(mutant, tree) or args.missed and results.of(mutant)
        settled = ("caught",) if args.missed else ("caught", "survived", "does not build")
        return before and not args.again and before["verdict"] in settled
    left = [m for m in chosen if not is_judged(m)]
    if left:
        judge_all(left, tree, results, args)
    judged = [(m, results.of(m, tree) or results.of(m)) for m in chosen]
    args.out.write_text(table(judged))
    caught = sum(r["verdict"] == "caught" for m, r in judged)
    print(f"{caught} of {len(judged)} caught: {args.out}")
    for m, r in judged:
        if r["verdict"] != "caught":
            print(f"{r['verdict']}: {m.id}: {m.wrong}")
    sys.exit(caught < ENOUGH * len(judged))


def judge_all(left, tree, results, args):
    if not (BUILD / "build.ninja").exists() or args.cmake:
        subprocess.run(["cmake", "--preset", "release", *args.cmake], cwd=TREE, check=True, stdout=subprocess.DEVNULL)
    if said := build(args.jobs):  # else ctest knows the commands of some tests only
        sys.exit(said)
    seconds = WORK / "seconds.json"
    known = json.loads(seconds.read_text()) if seconds.exists() else {}
    runner = Runner(args.jobs, known.get("tests", {}) if known.get("tree") == tree else {})
    judge = Judge(all_tests(), runner, args.jobs, args.near,
                  {r["id"]: r["test"] for r in results.all if r["verdict"] == "caught"})
    for n, mutant in enumerate(left, 1):
        begun = time.monotonic()
        result = judge.verdict(mutant)
        results.add({"id": mutant.id, "key": mutant.key, "tree": tree, **result,
                     "seconds": round(time.monotonic() - begun)})
        what = f"caught by {result['test']}" if result["verdict"] == "caught" else result["verdict"]
        seconds.write_text(json.dumps({"tree": tree, "tests": runner.seconds}))
        print(f"[{n}/{len(left)}] {mutant.id}: {what} ({results.all[-1]['seconds']} s)", flush=True)


if __name__ == "__main__":
    main()
