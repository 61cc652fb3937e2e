// Selectors: which elements a `where` takes.
#include <algorithm>
#include <numeric>

#include "core/base/text.hpp"
#include "core/plan/plan.hpp"

namespace mortise {
namespace {

bool any_matches(std::string_view pattern, const std::vector<std::string>& names) {
  return std::ranges::any_of(names, [&](const std::string& name) { return glob_match(pattern, name); });
}

bool matches(std::string_view pattern, const Element& element) {
  const size_t colon = pattern.find(':');
  if (colon != std::string_view::npos) {
    const std::string_view atom = pattern.substr(0, colon), value = pattern.substr(colon + 1);
    if (atom == "role") return !element.role.empty() && glob_match(value, element.role);
    if (atom == "slot") return !element.slot.empty() && glob_match(value, element.slot);
    if (atom == "tag") return any_matches(value, element.tags);
    if (atom == "dim") return any_matches(value, element.dims);
  }
  return glob_match(pattern, element.path);
}

bool any_pattern(const std::vector<std::string>& patterns, const Element& element) {
  return std::ranges::any_of(patterns, [&](const std::string& pattern) { return matches(pattern, element); });
}

}  // namespace

std::vector<size_t> select(const Selector& selector, const std::vector<Element>& elements) {
  std::vector<size_t> taken;
  int number = -selector.from;
  for (size_t i = 0; i < elements.size(); ++i) {
    if (!selector.match.empty() && !any_pattern(selector.match, elements[i])) continue;  // `where = { every = 2 }`: of all
    if (any_pattern(selector.except, elements[i])) continue;
    if (number >= 0 && number % std::max(selector.every, 1) == 0) taken.push_back(i);
    ++number;
  }
  return taken;
}

std::vector<size_t> select(const Place& place, const std::vector<Element>& elements, int mode) {
  if (!(place.modes >> mode & 1)) return {};
  if (place.where) return select(*place.where, elements);
  std::vector<size_t> all(elements.size());
  std::iota(all.begin(), all.end(), size_t{0});
  return all;
}

std::vector<size_t> select(const Attached& attached, const std::vector<Element>& elements, int mode) {
  std::vector<size_t> taken = select(static_cast<const Place&>(attached), elements, mode);
  for (const Place& other : attached.except)
    for (size_t i : select(other, elements, mode)) std::erase(taken, i);
  return taken;
}

}  // namespace mortise
