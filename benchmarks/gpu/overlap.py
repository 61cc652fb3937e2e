"""What the sums of gradients cost a step on several GPUs: GPT-2 as in ranks.py, each step traced by CUPTI on rank 0.
usage: overlap.py [--ranks N] [--each] [ROW…]; MORTISE names the binary, CUDA_TRACER what counts (tests/gpu/cupti). What
the environment says to NCCL counts, so one may compare (NCCL_MAX_CTAS=8 overlap.py …).

Medians of the steady steps, ms:

  step     from its begin to its end, on one GPU and on N
  work     in which a kernel ran that is none of NCCL's, on one and on N: longer where NCCL takes processors of the
           GPU, and memory, from it
  sums     in which a kernel of NCCL's ran, waiting for the other ranks too
  beside   of sums, beside another kernel: hidden
  alone    of sums, beside none

--each: of one step, when each sum began and ended, ms from the step's begin, and the last work before the end of sums.
"""

import argparse
import statistics
import sys

import ranks as several
import traced
from bench import GPT2, REST
from traced import cuda_trace

STEPS = 40


def is_sum(work):
    return work.name.startswith("ncclDevKernel") or work.name.startswith("ncclSymk")


def steps_of(batch, tables, ranks):
    text = GPT2.format(batch=batch, steps=STEPS, samples=4 * batch * ranks, vocabulary=50304) + REST + tables
    steps, said = traced.train(text, ranks=ranks)
    return steps if steps is not None else sys.exit(said)


def parts(step):
    sums = [w for w in step.kernels() if is_sum(w)]
    work = [w for w in step.kernels() if not is_sum(w)]
    lasts = {name: cuda_trace.union(of, step.begin, step.end) / 1e6
             for name, of in (("work", work), ("sums", sums), ("either", work + sums))}
    alone = lasts["either"] - lasts["work"]
    return {"step": step.length() / 1e6, "work": lasts["work"], "sums": lasts["sums"],
            "beside": lasts["sums"] - alone, "alone": alone}


def medians(steps):
    all_of = [parts(step) for step in steps]
    return {name: statistics.median(each[name] for each in all_of) for name in all_of[0]}


def print_each(step):
    sums = [w for w in step.kernels() if is_sum(w)]
    for w in sums:
        beside = cuda_trace.union([k for k in step.kernels() if not is_sum(k)], w.start, w.end)
        print(f"    {(w.start - step.begin) / 1e6:7.3f} to {(w.end - step.begin) / 1e6:7.3f} ms, "
              f"{beside / max(w.end - w.start, 1):4.0%} beside  {w.name[:60]}")
    last = max((k for k in step.kernels() if not is_sum(k) and k.start < sums[-1].end), key=lambda k: k.end)
    print(f"    {(last.end - step.begin) / 1e6:7.3f} ms: the end of {last.name[:80]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=", ".join(several.ROWS))
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--each", action="store_true")
    arguments = parser.parse_args()
    if unknown := [row for row in arguments.rows if row not in several.ROWS]:
        parser.error(f"there is no row {unknown[0]!r}")
    traced.begin()
    print(f"{'':20} {'step':>15} {'work':>15} {'sums':>7} {'beside':>7} {'alone':>7}")
    for name, (batch, tables) in several.ROWS.items():
        if arguments.rows and name not in arguments.rows:
            continue
        one = medians(steps_of(batch, tables, 1))
        steps = steps_of(batch, tables, arguments.ranks)
        found = medians(steps)
        print(f"{name:20} {one['step']:7.2f} {found['step']:7.2f} {one['work']:7.2f} {found['work']:7.2f} "
              f"{found['sums']:7.2f} {found['beside']:7.2f} {found['alone']:7.2f}", flush=True)
        if arguments.each:
            print_each(steps[len(steps) // 2])


if __name__ == "__main__":
    main()
