#include "core/declare/work.hpp"

#include <algorithm>
#include <map>
#include <string_view>
#include <vector>

#include "core/base/dtype.hpp"
#include "core/plan/compute_dtype.hpp"
#include "mortise/cpp/strings.hpp"
#include "mortise/dtype.h"

namespace mortise {
namespace {

// A whole number among a layer's attributes; 0: it has none of that name.
int64_t number_of(const mortise_layer& layer, std::string_view key) {
  for (const mortise_attr& a : layer.attrs)
    if (view(a.key) == key && a.value.tag == MORTISE_INT) return a.value.v.i;
  return 0;
}

// A table that is looked up multiplies nothing; one that is a matrix elsewhere too, as the head's, does.
bool is_tied_table(const mortise_param& p) { return p.role == "embedding" && !p.other_names.empty(); }

}  // namespace

double flop_per_token(const Declaration& d, int64_t sequence_length) {
  const int last = static_cast<int>(d.segments.size()) - 1;
  int first_trained = last + 1;
  for (const mortise_param& p : d.params)
    if (p.info.trainable) first_trained = std::min(first_trained, p.segment);
  // Below whatever is trained nothing is differentiated.
  const auto is_differentiated = [&](int segment) { return segment >= first_trained ? 1 : 0; };

  double products = 0;  // pairs of numbers that are multiplied, and added to a sum
  for (const mortise_param& p : d.params) {
    if (p.role != "matrix" && !is_tied_table(p)) continue;
    const int passes = 1 + is_differentiated(is_tied_table(p) ? last : p.segment) + (p.info.trainable ? 1 : 0);
    const double share = p.declarer.layer ? p.declarer.layer->share : 1;
    products += share * static_cast<double>(p.whole_numel()) * passes;
  }

  std::vector<bool> is_made_of_others(d.layers.size());
  for (const mortise_layer& l : d.layers)
    if (l.declarer.layer) is_made_of_others[l.declarer.layer->index] = true;
  for (const mortise_layer& l : d.layers) {
    if (is_made_of_others[l.index]) continue;
    const int64_t width = number_of(l, "heads") * number_of(l, "head_dim"), window = number_of(l, "window");
    const int64_t keys = window > 0 ? std::min(window, sequence_length) : sequence_length;
    // Queries with keys, and what comes of that with values; backward two products for each of them.
    products +=
        l.share * 2 * static_cast<double>(width) * static_cast<double>(keys) * (1 + 2 * is_differentiated(l.segment));
  }
  return 2 * products;
}

std::string factors_of_products(const Plan& plan, const Declaration& d) {
  std::string factors = planned_compute_dtype(plan, MORTISE_TRAIN);
  if (factors.empty()) {  // then as most of the parameters are
    std::map<uint32_t, int64_t> elements;
    for (const mortise_param& p : d.params) elements[p.info.value_dtype] += p.whole_numel();
    if (elements.empty()) return "";
    factors =
        mortise_dtype_of(std::ranges::max_element(elements, {}, [](const auto& e) { return e.second; })->first)->name;
  }
  const std::string rounded = planned_products(plan, MORTISE_TRAIN);
  return dtype_named(factors) == MORTISE_F32 && !rounded.empty() ? rounded : factors;
}

}  // namespace mortise
