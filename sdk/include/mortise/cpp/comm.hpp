// Collectives of the run's `comm` (mortise.comm/0, ranks.h). Every rank starts the same ones in the same order, on the
// thread that trains or in backward, and waits for each. All throw Error.
#pragma once
#include <utility>
#include <vector>

#include "mortise/cpp/plugin.hpp"

namespace mortise {

inline bool reads_in(const mortise_collective& c) {
  return c.kind == MORTISE_REDUCE_SCATTER || c.kind == MORTISE_ALL_GATHER || c.kind == MORTISE_ALL_TO_ALL;
}
inline bool reduces(const mortise_collective& c) {
  return c.kind == MORTISE_ALL_REDUCE || c.kind == MORTISE_REDUCE_SCATTER || c.kind == MORTISE_REDUCE;
}
inline bool has_root(const mortise_collective& c) { return c.kind == MORTISE_BROADCAST || c.kind == MORTISE_REDUCE; }

// Numbers on the host, in place; waits.
inline void host_all_reduce(std::vector<int64_t>& numbers, uint32_t op = MORTISE_SUM) {
  const auto& comm = need(api.comm, "mortise.comm/0");
  check(comm.host_all_reduce(api.host, numbers.data(), static_cast<uint32_t>(numbers.size()), op));
}

// A rank is known to be lost: MORTISE_E_LOST. Asked before the host uses what other ranks sent to a device, and after
// it has waited for the device: where one is lost, that may be whatever the memory had. On any thread.
inline void ranks_must_be_there() {
  check(need(api.comm, "mortise.comm/0").host_all_reduce(api.host, nullptr, 0, MORTISE_SUM));
}

// Once the run has begun: the ranks that add up the gradient of this parameter; NULL: all.
inline const mortise_rank_group* group_of(const mortise_param* param) {
  const mortise_rank_group* group = nullptr;
  check(need(api.replicas, "mortise.replicas/0").group(api.host, param, &group));
  return group;
}

// Sums, where it adds. `in`: none where `out` has what goes in; `root`: whose, of a broadcast.
inline mortise_collective collective_of(uint32_t kind, const Tensor& in, const Tensor& out,
                                        const mortise_rank_group* group, int32_t root = 0) {
  return {.struct_size = sizeof(mortise_collective),
          .kind = kind,
          .op = MORTISE_SUM,
          .root = root,
          .in = in.get(),
          .out = out.get(),
          .group = group,
          .in_rows = nullptr,
          .out_rows = nullptr};
}

inline mortise_work* start_collective(const mortise_collective& all) {
  mortise_work* work = nullptr;
  check(need(api.comm, "mortise.comm/0").start(api.host, &all, &work));
  return work;
}

// From here on `out` has the result, for the current stream.
inline void wait_for_collective(mortise_work* work) { check(need(api.comm, "mortise.comm/0").wait(api.host, work)); }

// Starts one and waits for it.
inline void run_collective(const mortise_collective& all) { wait_for_collective(start_collective(all)); }

// Collectives that are sent together: of a hundred small ones each alone would take longer to begin than to send.
class Together {
 public:
  // `work`: where its work is put when they start.
  void add(mortise_work** work, uint32_t kind, Tensor in, Tensor out, const mortise_rank_group* group,
           int32_t root = 0) {
    all_.push_back(collective_of(kind, in, out, group, root));
    works_.push_back(work);
    tensors_.push_back(std::move(in));
    tensors_.push_back(std::move(out));
  }
  void start() {
    if (all_.empty()) return;
    std::vector<const mortise_collective*> pointers;
    for (const mortise_collective& each : all_) pointers.push_back(&each);
    std::vector<mortise_work*> works(all_.size());
    const auto& comm = need(api.comm, "mortise.comm/0");
    check(comm.start_all(api.host, pointers.data(), static_cast<uint32_t>(all_.size()), works.data()));
    for (size_t i = 0; i < works.size(); ++i) *works_[i] = works[i];
    all_.clear();
    works_.clear();
    tensors_.clear();
  }

 private:
  std::vector<mortise_collective> all_;
  std::vector<mortise_work**> works_;
  std::vector<Tensor> tensors_;
};

}  // namespace mortise
