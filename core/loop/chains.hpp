// Chains: the link that a call enters at each point, segment and mode. Links run from the outermost wrapper to the
// provider; core/assemble builds them from the plan, and nothing changes them while the run runs.
#pragma once
#include <array>
#include <vector>

#include "core/host/call.hpp"
#include "core/plan/points.hpp"

namespace mortise {

class Chains {
 public:
  using Modes = std::array<const mortise_next*, MORTISE_MODES>;

  Chains() : points_(kFirstOperator), core_(kFirstOperator) {}

  const mortise_next* at(Point point, uint32_t mode) const { return points_[point][mode]; }
  const mortise_next* segment(size_t index, uint32_t mode) const { return segments_[index][mode]; }
  void set(uint32_t point, const Modes& links) { points_[point] = links; }
  void add_segment(const Modes& links) { segments_.push_back(links); }

  // What the core itself runs at a call point, as the last link; empty: a plugin provides it.
  void provide(Point point, CoreFunction fn) { core_[point] = std::move(fn); }
  const CoreFunction& provided(uint32_t point) const { return core_[point]; }

 private:
  std::vector<Modes> points_, segments_;
  std::vector<CoreFunction> core_;
};

}  // namespace mortise
