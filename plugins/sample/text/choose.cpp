#include "choose.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "mortise/cpp/core.hpp"
#include "mortise/philox.h"

namespace sample {
namespace {

// Ids of the `count` largest.
std::vector<int64_t> likeliest(const std::vector<float>& logits, size_t count) {
  std::vector<int64_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto at = [&](int64_t id) { return logits[static_cast<size_t>(id)]; };
  std::partial_sort(order.begin(), order.begin() + static_cast<ptrdiff_t>(count), order.end(),
                    [&](int64_t a, int64_t b) { return at(a) != at(b) ? at(a) > at(b) : a < b; });
  order.resize(count);
  return order;
}

}  // namespace

int64_t choose(const std::vector<float>& logits, const Draw& draw, double u) {
  using mortise::Error;
  for (const float x : logits)
    if (std::isnan(x) || x == std::numeric_limits<float>::infinity())
      throw Error(MORTISE_E_DATA, "the model's logits are not finite");
  size_t count = draw.temperature == 0 ? 1 : draw.top_k == 0 ? logits.size() : draw.top_k;
  count = std::min(count, logits.size());
  const std::vector<int64_t> order = likeliest(logits, count);
  const auto at = [&](size_t i) { return static_cast<double>(logits[static_cast<size_t>(order[i])]); };
  if (order.empty() || std::isinf(at(0))) throw Error(MORTISE_E_DATA, "the model allows no token");

  std::vector<double> up_to(count);
  double total = 0;
  for (size_t i = 0; i < count; ++i) up_to[i] = total += count == 1 ? 1 : std::exp((at(i) - at(0)) / draw.temperature);
  if (draw.top_p < 1) {
    const auto enough = std::lower_bound(up_to.begin(), up_to.end(), draw.top_p * total);
    count = std::min(static_cast<size_t>(enough - up_to.begin()) + 1, count);
    total = up_to[count - 1];
  }
  const auto end = up_to.begin() + static_cast<ptrdiff_t>(count);
  const auto chosen = static_cast<size_t>(std::upper_bound(up_to.begin(), end, u * total) - up_to.begin());
  return order[std::min(chosen, count - 1)];
}

double uniform(uint64_t seed, uint32_t text, uint32_t token) {
  const uint32_t key[2] = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  uint32_t words[4];
  mortise_philox_words(key, token, text, 0, 0, words);
  return ((words[0] >> 5) * 67108864.0 + (words[1] >> 6)) / 9007199254740992.0;  // 53 bits
}

}  // namespace sample
