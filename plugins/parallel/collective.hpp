// Collectives of the run's `comm`, as parallel.ddp and parallel.zero start them.
#pragma once
#include "mortise/cpp/plugin.hpp"

namespace mortise {

// Sums, where it adds. `in`: none where `out` has what goes in; `root`: whose, of a broadcast.
inline mortise_work* start_collective(uint32_t kind, const Tensor& in, const Tensor& out, int32_t root = 0) {
  const mortise_collective all = {sizeof all, kind, MORTISE_SUM, root, in.get(), out.get()};
  mortise_work* work = nullptr;
  check(need(api.comm, "mortise.comm/0").start(api.host, &all, &work));
  return work;
}

inline void wait_for_collective(mortise_work* work) { check(need(api.comm, "mortise.comm/0").wait(api.host, work)); }

}  // namespace mortise
