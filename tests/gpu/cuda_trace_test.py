#!/usr/bin/env python3
"""The arithmetic of cuda_trace.py, on traces written by hand; a GPU is not needed."""
import unittest

import cuda_trace


def of(*lines):
    return cuda_trace.Trace(["\t".join(map(str, line)) for line in lines])


NAMES = (("name", 0, "cudaLaunchKernel_v7000"), ("name", 1, "cudaMemcpyAsync_v3020"),
         ("name", 2, "cudaStreamSynchronize_v3020"), ("name", 3, "cuLaunchKernelEx"),
         ("name", 4, "cudaMalloc_v3020"), ("name", 5, "void kernel()"), ("name", 6, "cudaGraphLaunch_v10000"),
         ("name", 7, "cudaEventQuery_v3020"))


def report(at, correlation):
    """The host asks for it at `at`; the GPU is 1,000 behind."""
    return (("call", at, at + 1, 9, correlation, 1),
            ("copy", at + 1000, at + 1002, 7, correlation, 48, cuda_trace.DEVICE, cuda_trace.PINNED))


class Steps(unittest.TestCase):
    def test_what_is_between_two_reports_is_of_the_later_step(self):
        [step] = of(*NAMES, *report(100, 1), ("call", 110, 112, 9, 2, 0), ("kernel", 1110, 1130, 7, 2, 5),
                    ("call", 120, 121, 9, 3, 2), ("call", 122, 123, 9, 5, 7), *report(200, 4),
                    ("call", 210, 211, 9, 6, 0), ("kernel", 1210, 1230, 7, 6, 5), ("end",)).steps()
        self.assertEqual(len(step.kernels()), 1)
        self.assertEqual(step.count(cuda_trace.LAUNCHES), 1)
        self.assertEqual(step.count(cuda_trace.WAITS), 1, "who asks whether an event is over does not wait")
        self.assertEqual(step.count(cuda_trace.ALLOCATIONS), 0)
        self.assertEqual((step.begin, step.end), (1102, 1202))
        # 20 of the kernel and 2 of the report's own copy, of 100.
        self.assertAlmostEqual(step.idle_share(), 0.78)

    def test_a_number_that_somebody_reads_is_no_report(self):
        steps = of(*NAMES, *report(100, 1), ("call", 150, 151, 9, 2, 1),
                   ("copy", 1150, 1151, 7, 2, 8, cuda_trace.DEVICE, cuda_trace.PINNED), *report(200, 3),
                   ("end",)).steps()
        self.assertEqual(len(steps), 1)

    def test_a_call_of_the_driver_within_one_of_the_runtime_counts_once(self):
        calls = of(*NAMES, ("call", 11, 19, 9, 2, 3), ("call", 10, 20, 9, 2, 0), ("call", 12, 15, 8, 3, 3),
                   ("call", 30, 31, 9, 4, 3), ("end",)).calls
        self.assertEqual([(call.start, call.name) for call in calls],
                         [(10, "cudaLaunchKernel"), (12, "cuLaunchKernelEx"), (30, "cuLaunchKernelEx")])

    def test_a_recording_is_one_launch_of_many_kernels(self):
        [step] = of(*NAMES, *report(100, 1), ("call", 110, 112, 9, 2, 6), ("kernel", 1110, 1120, 7, 2, 5),
                    ("kernel", 1115, 1130, 8, 2, 5), *report(200, 4), ("end",)).steps()
        self.assertEqual((step.count(cuda_trace.LAUNCHES), len(step.kernels())), (1, 2))
        self.assertEqual(step.busy(), 22, "what runs at the same time is busy once")

    def test_copies_to_the_device_have_their_size_and_their_stream(self):
        [step] = of(*NAMES, *report(100, 1), ("kernel", 1105, 1130, 7, 2, 5), ("copy", 1110, 1120, 13, 3, 4096, 2, 3),
                    ("copy", 1121, 1122, 7, 4, 8, 1, 3), ("copy", 1123, 1124, 7, 5, 4096, 3, 3), *report(200, 6),
                    ("end",)).steps()
        self.assertEqual([(c.name, c.stream) for c in step.copies_to_device(0)],
                         [("copy pinned", 13), ("copy pageable", 7)])
        self.assertEqual([c.start for c in step.copies_to_device(4096)], [1110])
        self.assertEqual([k.stream for k in step.kernels()], [7])

    def test_short_gaps_between_kernels_are_not_for_want_of_work(self):
        [step] = of(*NAMES, *report(100, 1), ("kernel", 1110, 1120, 7, 2, 5), ("kernel", 1125, 1150, 7, 2, 5),
                    *report(200, 4), ("end",)).steps()
        self.assertEqual(step.busy(), 37)
        self.assertEqual(step.busy(9), 50, "with gaps of 8 and 5; one of 50 is none")
        self.assertEqual(step.busy(51), 100)
        self.assertEqual(step.starved_share(), 0, "all of it is shorter")

    def test_what_lies_outside_of_a_stretch_is_none_of_it(self):
        work = of(*NAMES, *(("kernel", start, start + 10, 7, 2, 5) for start in (0, 20, 40, 80)), ("end",)).work
        self.assertEqual(cuda_trace.union(work, 12, 45), 15, "one whole, and 5 of the next")
        self.assertEqual(cuda_trace.union(work, 52, 70), 0)

    def test_memory_that_is_asked_for_is_counted(self):
        [step] = of(*NAMES, *report(100, 1), ("call", 110, 112, 9, 2, 4), *report(200, 4), ("end",)).steps()
        self.assertEqual((step.count(cuda_trace.ALLOCATIONS), step.count(cuda_trace.WAITS)), (1, 0))


class Whole(unittest.TestCase):
    def test_a_trace_that_is_not_whole_is_refused(self):
        for lines, why in (((*NAMES,), "did not come to its end"),
                           ((("error", "7 records were dropped"), ("end",)), "7 records were dropped")):
            with self.assertRaisesRegex(ValueError, why):
                of(*lines)


if __name__ == "__main__":
    unittest.main()
