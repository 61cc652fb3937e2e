#include "core/loop/terms.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/logical_or.h>
#include <ATen/ops/lt.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "core/abi/error.hpp"

namespace mortise {

static std::string said(const std::string& term, const std::string& by) {
  return "the term `" + term + "`" + (by.empty() ? "" : " of " + by);
}

void add_counts(Counts& counts, const mortise_batch& batch) {
  for (const auto& [unit, n] : batch.counts) counts[unit] += n;
}

void Denominators::set(const Counts& counts) {
  counts_ = counts;
  for (auto& [unit, tensor] : by_unit_)
    if (!counts.contains(unit)) tensor.fill_(std::numeric_limits<double>::infinity());
  for (const auto& [unit, n] : counts) {
    at::Tensor& tensor = by_unit_[unit];
    if (!tensor.defined()) tensor = at::empty({}, scalar_);
    tensor.fill_(n > 0 ? static_cast<double>(n) : std::numeric_limits<double>::infinity());
  }
}

const at::Tensor& Denominators::of(const std::string& unit, const std::string& term, const std::string& by) const {
  const auto found = by_unit_.find(unit);
  if (found != by_unit_.end()) return found->second;
  throw PluginError(MORTISE_E_PLUGIN, said(term, by) + " counts `" + unit + "`, which the data does not", by);
}

bool Denominators::any(const std::string& unit) const {
  const auto found = counts_.find(unit);
  return found != counts_.end() && found->second > 0;
}

at::Tensor Denominators::scalar(double value) const { return at::full({}, value, scalar_); }

void TermSums::add(const Terms& terms, bool as_nothing) {
  for (const auto& t : terms) {
    const at::Tensor given = t.sum.detach().to(at::kDouble).reshape(at::IntArrayRef());
    const at::Tensor sum = as_nothing ? at::zeros_like(given) : given;
    const auto known = std::ranges::find(sums_, t.name, &Sum::name);
    if (known == sums_.end()) {
      sums_.push_back({t.name, t.unit, t.weight, sum.clone(), true});
      continue;
    }
    if (known->given && (known->weight != t.weight || known->unit != t.unit))
      throw PluginError(MORTISE_E_ARGUMENT, said(t.name, t.by) + " changes its weight or its unit within one step",
                        t.by);
    known->weight = t.weight;
    known->unit = t.unit;
    known->total.add_(sum);
    known->given = true;
  }
}

void TermSums::restart() {
  for (auto& s : sums_) {
    s.total.zero_();
    s.given = false;
  }
}

std::vector<at::Tensor> TermSums::totals() const {
  std::vector<at::Tensor> totals;
  for (const Sum& s : sums_) totals.push_back(s.total);
  return totals;
}

std::string TermSums::names() const {
  std::string names;
  for (const Sum& s : sums_)
    names += (names.empty() ? "" : ", ") + s.name + " by " + s.unit + (s.given ? "" : " (not given)");
  return names;
}

std::vector<bool> TermSums::given() const {
  std::vector<bool> given;
  for (const Sum& s : sums_) given.push_back(s.given);
  return given;
}

void TermSums::set_given(const std::vector<bool>& given) {
  for (size_t i = 0; i < given.size(); ++i) sums_[i].given = given[i];
}

bool TermSums::is_counted(const Denominators& denominators) const {
  return std::ranges::any_of(sums_, [&](const Sum& s) { return s.weight != 0 && s.given && denominators.any(s.unit); });
}

at::Tensor TermSums::counted(const Denominators& denominators) const {
  at::Tensor counted;
  std::set<std::string_view> units;  // mostly one, of which nothing is said twice
  for (const Sum& s : sums_) {
    if (s.weight == 0 || !s.given || !units.insert(s.unit).second) continue;
    const at::Tensor any = denominators.of(s.unit, s.name).lt(std::numeric_limits<double>::infinity());
    counted = counted.defined() ? counted.logical_or(any) : any;
  }
  return counted.defined() ? counted : denominators.scalar(1).to(at::kBool);
}

at::Tensor TermSums::loss(const Denominators& denominators) const {
  at::Tensor loss;
  for (const auto& s : sums_) {
    if (s.weight == 0 || !s.given) continue;
    const at::Tensor part = s.total.mul(s.weight).div(denominators.of(s.unit, s.name));
    loss = loss.defined() ? loss.add(part) : part;
  }
  return is_counted(denominators) ? loss : denominators.scalar(NAN);
}

std::vector<std::pair<std::string, at::Tensor>> TermSums::metrics(const Denominators& denominators) const {
  std::vector<std::pair<std::string, at::Tensor>> all;
  for (const auto& s : sums_) {
    if (s.weight != 0 || !s.given) continue;
    const at::Tensor average = s.total.div(denominators.of(s.unit, s.name));
    all.emplace_back(s.name, denominators.any(s.unit) ? average : denominators.scalar(NAN));
  }
  return all;
}

}  // namespace mortise
