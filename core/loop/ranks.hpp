// What the ranks of a run put together: counts on the host before a step, sums on the device after it. One rank alone
// has it all.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "core/abi/services.hpp"
#include "core/loop/terms.hpp"

namespace mortise {

class Ranks {
 public:
  explicit Ranks(const Services& services) : services_(services) {}
  int32_t rank() const { return services_.world.rank; }
  bool alone() const { return services_.world.size == 1; }
  // Adds up, unit by unit; samples that several ranks see count once. `names`: whatever else must be the same on every
  // rank by now. Throws PluginError: something is not.
  void sum(Counts& counts, const std::string& names) const;
  // Adds up small tensors of one shape, in place: on the device, in stream order. `op`: MORTISE_MIN and MORTISE_MAX
  // likewise.
  void sum(const std::vector<at::Tensor>& scalars, uint32_t op = MORTISE_SUM) const { sum(scalars, op, nullptr); }
  // The same of what each sample brings: of ranks that see the same, once. As many numbers are sent however many there
  // are: ranks that have others find it out when they add counts up next. Throws PluginError: there are too many.
  void sum_of_samples(const std::vector<at::Tensor>& scalars) const;
  int64_t most(int64_t number) const;
  // Each of these numbers, of every rank: [number][rank].
  std::vector<std::vector<int64_t>> of_each(const std::vector<int64_t>& own) const;
  // Fills `t` with what number `root` of a parameter's replicas has in it, or of the ranks along an axis.
  void broadcast(const at::Tensor& t, const mortise_param& p, int32_t root) const;
  void broadcast_along(int axis, const at::Tensor& t, int32_t root) const;
  // The first of these that is not bit for bit that of every rank; "" if all are.
  std::string first_unlike(const std::vector<std::pair<std::string, at::Tensor>>& tensors) const;

 private:
  // `at_least`: so many numbers are sent.
  void sum(const std::vector<at::Tensor>& scalars, uint32_t op, const mortise_rank_group* group,
           size_t at_least = 0) const;
  void exchange(const mortise_collective& collective) const;
  void host_all_reduce(std::vector<int64_t>& numbers, uint32_t op) const;
  const Services& services_;
};

}  // namespace mortise
