// The ranks of a run as a grid. Along an axis, which a plugin has, ranks do one thing together: of the experts each has
// some, of a matrix each has a part. Ranks that see the same samples stand side by side.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mortise {

struct Axis {
  std::string name;
  std::string by;  // whose it is: "FAMILY.NAME.KEY", the key that says its size
  int size = 1;
  bool shares_data = false;  // ranks along it see the same samples
  int stride = 1;            // from one rank along it to the next
};

class Mesh {
 public:
  Mesh() = default;
  // `size` is a multiple of what the sizes of the axes multiply to.
  Mesh(int rank, int size, std::vector<Axis> axes);
  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::vector<Axis>& axes() const { return axes_; }
  int find(std::string_view name) const;  // the index of an axis; -1: there is none
  int place(int axis) const;              // of this rank along it

  // Samples are dealt out among `data_size` ranks, as whose number `data_rank` this one counts; `copies` see each.
  int copies() const { return copies_; }
  int data_size() const { return size_ / copies_; }
  int data_rank() const { return rank_ / copies_; }

  // This one, and those that differ from it along the axis alone; in its order.
  std::vector<int32_t> along(int axis) const;
  // Those that have the same elements of a parameter and see other samples, so that its gradient is summed over them;
  // of one that has other elements along an axis, or, -1, of one that everybody has.
  std::vector<int32_t> sharers(int axis) const;
  // Of the ranks that have the same elements of it and see the same samples, this is the first: the one that counts.
  bool is_first_copy(int axis) const;

  static int place_of(int rank, const Axis& axis) { return rank / axis.stride % axis.size; }

 private:
  int rank_ = 0, size_ = 1, copies_ = 1;
  std::vector<Axis> axes_;
};

}  // namespace mortise
