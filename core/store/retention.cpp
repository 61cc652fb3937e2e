#include "core/store/retention.hpp"

#include <algorithm>
#include <functional>

namespace mortise {

Retention read_retention(const CheckpointKey& key) {
  return {.keep = key("keep").value(), .keep_every = key("keep_every").value_or(0)};
}

std::vector<int64_t> steps_to_remove(std::vector<int64_t> there, const Retention& retention, const Held& held) {
  std::ranges::sort(there, std::greater());
  const int64_t newest = std::max(held.saved, held.resumed);
  std::erase_if(there, [&](int64_t step) { return step > newest; });
  const auto confirmed = std::ranges::find_if(there, [&](int64_t step) { return step <= held.confirmed; });
  std::vector<int64_t> removed;
  for (size_t i = 0; i < there.size(); ++i) {
    const int64_t step = there[i];
    const bool is_best = step == held.best || (step == held.best_before && held.best > held.confirmed);
    const bool is_held = step == held.saved || step == held.resumed || is_best;
    const bool is_confirmed = confirmed != there.end() && step == *confirmed;
    const bool is_regular = retention.keep_every > 0 && step % retention.keep_every == 0;
    const bool is_new = static_cast<int64_t>(i) < retention.keep;
    if (!is_held && !is_confirmed && !is_regular && !is_new) removed.push_back(step);
  }
  return removed;
}

}  // namespace mortise
