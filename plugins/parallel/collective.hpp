// Collectives of the run's `comm`, as the plugins of this folder start them.
#pragma once
#include "mortise/cpp/plugin.hpp"

namespace mortise {

// The ranks that add up the gradient of this parameter; NULL: all.
inline const mortise_rank_group* group_of(const mortise_param* param) {
  const mortise_rank_group* group = nullptr;
  check(need(api.replicas, "mortise.replicas/0").group(api.host, param, &group));
  return group;
}

// Sums, where it adds. `in`: none where `out` has what goes in; `root`: whose, of a broadcast.
inline mortise_work* start_collective(uint32_t kind, const Tensor& in, const Tensor& out,
                                      const mortise_rank_group* group, int32_t root = 0) {
  const mortise_collective all = {.struct_size = sizeof all,
                                  .kind = kind,
                                  .op = MORTISE_SUM,
                                  .root = root,
                                  .in = in.get(),
                                  .out = out.get(),
                                  .group = group};
  mortise_work* work = nullptr;
  check(need(api.comm, "mortise.comm/0").start(api.host, &all, &work));
  return work;
}

inline void wait_for_collective(mortise_work* work) { check(need(api.comm, "mortise.comm/0").wait(api.host, work)); }

}  // namespace mortise
