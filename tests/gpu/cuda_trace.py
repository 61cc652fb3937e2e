"""What a program asked of CUDA and what the GPU did, step by step, from the file that cupti/trace.cpp wrote.

    CUDA_INJECTION64_PATH=$PWD/trace.so CUDA_TRACE=trace.txt mortise train run.toml
    python3 tests/gpu/cuda_trace.py trace.txt

A step ends with its report: one copy from the GPU to pinned memory of verdict, loss, norm and rate, 32 bytes or more.
On the host a step is what was called from one of these copies to the next; on the GPU, what ran from the end of one to
the end of the next. The host is some steps ahead, so the two are of the same step, not of the same time.
"""
import bisect
import collections
import dataclasses
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile

PINNED, DEVICE = 2, 3
LEAST_REPORT = 32  # bytes; a single number that somebody reads has 8
LAUNCHES = re.compile("(cuda|cu)(Launch|GraphLaunch)")
WAITS = re.compile("(cuda|cu)(Stream|Event|Device|Ctx)Synchronize|cudaMemcpy(2D|3D|ToSymbol|FromSymbol|Peer)?$")
HANDOVER_NS = 4000  # one to two microseconds, and what writing it down adds
ALLOCATIONS = re.compile("cuda(Malloc|Free|HostAlloc|HostFree|MallocHost|FreeHost|MallocAsync|FreeAsync)$|cuMem")


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    start: int
    end: int
    thread: int
    correlation: int
    name: str


@dataclasses.dataclass(frozen=True, slots=True)
class Work:
    """Of the GPU: a kernel with its name, a copy, a fill."""

    start: int
    end: int
    correlation: int
    kind: str
    name: str
    bytes: int = 0
    to: int = 0
    stream: int = 0


@dataclasses.dataclass
class Step:
    calls: list
    work: list
    begin: int  # of its time on the GPU, ns
    end: int

    def count(self, pattern):
        return sum(bool(pattern.match(call.name)) for call in self.calls)

    def kernels(self):
        return [work for work in self.work if work.kind == "kernel"]

    def copies_to_device(self, least_bytes):
        return [work for work in self.work if work.name.startswith("copy p") and work.bytes >= least_bytes]

    def pinned_copies(self):
        return sum(work.name == "copy pinned" or work.to == PINNED for work in self.work)

    def busy(self, least_gap=0):
        return union(self.work, self.begin, self.end, least_gap)

    def length(self):
        return self.end - self.begin

    def idle_share(self):
        return 1 - self.busy() / self.length()

    def starved_share(self):
        """Of the time, how much nothing ran because nothing had been launched: gaps that are longer than those between
        two kernels which both wait in the queue."""
        return 1 - self.busy(HANDOVER_NS) / self.length()


def union(work, begin, end, least_gap=0):
    """ns of [begin, end) in which one of them ran, or that lay in a gap of less than `least_gap`."""
    busy, at = 0, begin
    for w in sorted((w for w in work if w.start < end), key=lambda w: w.start):
        stop = min(w.end, end)
        if stop > at:
            busy += stop - (at if w.start - at < least_gap else max(w.start, at))
            at = stop
    return busy + (end - at if end - at < least_gap else 0)


def plain(name):
    """As the function is called in the manual: cudaMalloc_v3020 is cudaMalloc."""
    return re.sub(r"(_v\d+|_ptsz|_ptds)+$", "", name)


def without_nested(calls):
    """Calls of the driver that a call of the runtime makes are no calls of the program."""
    kept, until = [], {}
    for call in sorted(calls, key=lambda call: (call.start, -call.end)):
        if call.end <= until.get(call.thread, 0):
            continue
        until[call.thread] = call.end
        kept.append(call)
    return kept


class Trace:
    def __init__(self, lines):
        names, calls, self.work, is_over = {}, [], [], False
        for line in lines:
            kind, *rest = line.rstrip("\n").split("\t")
            if kind == "name":
                names[rest[0]] = rest[1]
            elif kind == "error":
                raise ValueError(f"the trace is not whole: {rest[0]}")
            elif kind == "end":
                is_over = True
            else:
                start, end, where, correlation, *more = rest
                start, end, where, correlation = int(start), int(end), int(where), int(correlation)
                if kind == "call":
                    calls.append(Call(start, end, where, correlation, plain(names[more[0]])))
                elif kind == "kernel":
                    self.work.append(Work(start, end, correlation, kind, names[more[0]], stream=where))
                elif kind == "copy":
                    name = {("1", "3"): "pageable", ("2", "3"): "pinned", ("3", "3"): "within"}.get(
                        (more[1], more[2]), "to the host")
                    self.work.append(Work(start, end, correlation, kind, f"copy {name}", int(more[0]), int(more[2]),
                                          where))
                else:
                    self.work.append(Work(start, end, correlation, kind, "fill", int(more[0]), stream=where))
        if not is_over:
            raise ValueError("the trace is not whole: the program did not come to its end")
        self.calls = without_nested(calls)
        self.work.sort(key=lambda work: work.start)

    def steps(self):
        """All but the first, which nothing stands before."""
        started = {call.correlation: call.start for call in self.calls}
        reports = [work for work in self.work
                   if work.name == "copy to the host" and work.to == PINNED and work.bytes >= LEAST_REPORT and
                   work.correlation in started]
        call_starts = [call.start for call in self.calls]
        work_starts = [work.start for work in self.work]
        steps = []
        for before, after in zip(reports, reports[1:]):
            first, last = (bisect.bisect_left(call_starts, started[report.correlation]) for report in (before, after))
            begin, end = (bisect.bisect_left(work_starts, report.end) for report in (before, after))
            steps.append(Step(self.calls[first:last], self.work[begin:end], before.end, after.end))
        return steps


def read(path):
    with open(path, encoding="utf-8", errors="replace") as lines:
        return Trace(lines)


def steady(steps, last=4):
    """The later half, without the steps that the end of a run waits for."""
    return steps[len(steps) // 2:-last]


def train(mortise, tracer, manifest, *flags, ranks=1):
    """The steady steps of a training, and the lines that it printed; or None, and why. Of several ranks those of rank
    0, which alone is traced: all would write one file."""
    with tempfile.TemporaryDirectory() as folder:
        path, trace = pathlib.Path(folder, "run.toml"), pathlib.Path(folder, "trace.txt")
        path.write_text(manifest, encoding="utf-8")
        port = random.randrange(20000, 32000)  # below those that the system gives out by itself
        started = []
        for rank in range(ranks):
            env = {"CUDA_INJECTION64_PATH": str(tracer), "CUDA_TRACE": str(trace)} if rank == 0 else {}
            if ranks > 1:
                env |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": str(rank),
                        "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks)}
            started.append(subprocess.Popen([mortise, "train", path, *flags], cwd=folder, stdout=subprocess.PIPE,
                                            stderr=subprocess.PIPE, text=True, env={**os.environ, **env}))
        said = [process.communicate() for process in started]
        for process, (_, error) in zip(started, said):
            if process.returncode:
                return None, (error.splitlines() or [f"exit {process.returncode}"])[0]
        return steady(read(trace).steps()), said[0][0].splitlines()


def median(steps, of):
    return statistics.median(of(step) for step in steps)


def summary(steps):
    """The figures of a step, as medians."""
    return {
        "launches": median(steps, lambda s: s.count(LAUNCHES)),
        "kernels": median(steps, lambda s: len(s.kernels())),
        "waits": median(steps, lambda s: s.count(WAITS)),
        "allocations": median(steps, lambda s: s.count(ALLOCATIONS)),
        "step_ms": median(steps, lambda s: s.length() / 1e6),
        "idle_share": median(steps, Step.idle_share),
        "starved_share": median(steps, Step.starved_share),
    }


def text(figures):
    return ("{launches:g} launches, {kernels:g} kernels, {waits:g} waits, {allocations:g} allocations, {step_ms:.2f} "
            "ms, idle {idle_share:.1%}, starved {starved_share:.1%}").format(**figures)


def main():
    steps = steady(read(sys.argv[1]).steps())
    if not steps:
        sys.exit("too few steps in this trace")
    print(f"of {len(steps)} steady steps: {text(summary(steps))}")
    spent, times = collections.Counter(), collections.Counter()
    for step in steps:
        for work in step.work:
            spent[work.name] += work.end - work.start
            times[work.name] += 1
    for name, ns in spent.most_common(30):
        print(f"{ns / 1e6 / len(steps):9.3f} ms {times[name] / len(steps):7.1f} x  {name[:120]}")
    asked = collections.Counter(call.name for step in steps for call in step.calls)
    for name, n in asked.most_common(15):
        print(f"{n / len(steps):9.1f} x  {name}")


if __name__ == "__main__":
    main()
