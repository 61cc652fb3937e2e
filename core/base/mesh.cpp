#include "core/base/mesh.hpp"

#include <algorithm>
#include <utility>

namespace mortise {

Mesh::Mesh(int rank, int size, std::vector<Axis> axes) : rank_(rank), size_(size), axes_(std::move(axes)) {
  std::ranges::stable_sort(axes_, std::greater(), &Axis::shares_data);
  int stride = 1;
  for (Axis& axis : axes_) {
    axis.stride = stride;
    stride *= axis.size;
    if (axis.shares_data) copies_ = stride;
  }
}

int Mesh::find(std::string_view name) const {
  const auto found = std::ranges::find(axes_, name, &Axis::name);
  return found == axes_.end() ? -1 : static_cast<int>(found - axes_.begin());
}

int Mesh::place(int axis) const { return place_of(rank_, axes_[static_cast<size_t>(axis)]); }

std::vector<int32_t> Mesh::along(int axis) const {
  const Axis& a = axes_[static_cast<size_t>(axis)];
  std::vector<int32_t> ranks;
  for (int i = 0; i < a.size; ++i) ranks.push_back(rank_ + (i - place(axis)) * a.stride);
  return ranks;
}

std::vector<int32_t> Mesh::sharers(int axis) const {
  const bool is_same_along = axis >= 0 && !axes_[static_cast<size_t>(axis)].shares_data;
  std::vector<int32_t> ranks;
  for (int rank = rank_ % copies_; rank < size_; rank += copies_)
    if (!is_same_along || place_of(rank, axes_[static_cast<size_t>(axis)]) == place(axis)) ranks.push_back(rank);
  return ranks;
}

bool Mesh::is_first_copy(int axis) const {
  for (int other = 0; other < static_cast<int>(axes_.size()); ++other)
    if (axes_[static_cast<size_t>(other)].shares_data && other != axis && place(other) != 0) return false;
  return true;
}

}  // namespace mortise
