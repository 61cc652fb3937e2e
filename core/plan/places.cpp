// Selectors: which elements a `where` takes.
#include <algorithm>
#include <numeric>

#include "core/base/text.hpp"
#include "core/plan/plan.hpp"

namespace mortise {
namespace {

bool is_atom(std::string_view pattern) {
  constexpr std::string_view kAtoms[] = {"role:", "slot:", "tag:", "dim:"};
  return std::ranges::any_of(kAtoms, [&](std::string_view atom) { return pattern.starts_with(atom); });
}

bool matches(const std::vector<std::string>& patterns, const Element& element) {
  return std::ranges::any_of(patterns, [&](const std::string& pattern) {
    if (!is_atom(pattern)) return glob_match(pattern, element.path);
    return std::ranges::any_of(atoms_of(element), [&](const std::string& atom) { return glob_match(pattern, atom); });
  });
}

}  // namespace

std::vector<std::string> atoms_of(const Element& element) {
  std::vector<std::string> atoms;
  if (!element.role.empty()) atoms.push_back("role:" + element.role);
  if (!element.slot.empty()) atoms.push_back("slot:" + element.slot);
  for (const std::string& tag : element.tags) atoms.push_back("tag:" + tag);
  for (const std::string& dim : element.dims) atoms.push_back("dim:" + dim);
  return atoms;
}

bool Selection::takes(const Element& next) {
  const Selector& s = *selector_;
  if (!s.match.empty() && !matches(s.match, next)) return false;  // `where = { every = 2 }`: of all
  if (matches(s.except, next)) return false;
  const int number = number_++;
  return number >= 0 && number % std::max(s.every, 1) == 0;
}

// `?`, one character of any width, is taken as `*`. From the ends of both.
bool globs_meet(const std::string& a, const std::string& b) {
  const auto is_wild = [](const std::string& glob, size_t i) {
    return i < glob.size() && (glob[i] == '*' || glob[i] == '?');
  };
  std::vector<std::vector<bool>> meet(a.size() + 2, std::vector<bool>(b.size() + 2));
  meet[a.size()][b.size()] = true;
  for (size_t i = a.size() + 1; i-- > 0;)
    for (size_t j = b.size() + 1; j-- > 0;) {
      if (is_wild(a, i) || is_wild(b, j)) meet[i][j] = meet[i + 1][j] || meet[i][j + 1];
      else if (i < a.size() && j < b.size()) meet[i][j] = a[i] == b[j] && meet[i + 1][j + 1];
    }
  return meet[0][0];
}

bool may_take_below(const Selector& selector, const std::string& path, const std::string& slot) {
  const auto takes = [&](const std::string& pattern) {
    if (is_atom(pattern)) return glob_match(pattern, "slot:" + slot);
    const bool means_the_layer = glob_match(pattern, path) && !pattern.ends_with('*');  // not one below it
    return !means_the_layer && globs_meet(pattern, path + ".*");
  };
  // Whatever lies below ends in a name that nobody wrote, so only a glob that takes all of them takes this one.
  const auto takes_all = [&](const std::string& pattern) {
    return glob_match(pattern, is_atom(pattern) ? "slot:" + slot : path + ".\x01");
  };
  return (selector.match.empty() || std::ranges::any_of(selector.match, takes)) &&
         std::ranges::none_of(selector.except, takes_all);
}

std::vector<size_t> select(const Selector& selector, const std::vector<Element>& elements) {
  std::vector<size_t> taken;
  Selection selection(selector);
  for (size_t i = 0; i < elements.size(); ++i)
    if (selection.takes(elements[i])) taken.push_back(i);
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
