// Experts of which each rank along the axis `experts` has as many: rows go to the rank that has their expert, and what
// it makes of them comes back. Gradients go the same ways, so that an expert's is complete where it lives.
#pragma once
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "mortise/cpp/comm.hpp"
#include "mortise/cpp/ops.hpp"
#include "mortise/cpp/plugin.hpp"

namespace moe {
using namespace mortise;

// How many rows go to each rank, and come from each.
struct Ways {
  std::vector<int64_t> to, from;
  Ways back() const { return {from, to}; }
  int64_t arriving() const { return std::accumulate(from.begin(), from.end(), int64_t{0}); }
};

// Waits until they are there: on a device that is the stream, not the host.
inline Tensor exchanged(const mortise_rank_group* group, Ref rows, const Ways& ways) {
  const Tensor in = ops::contiguous(rows);
  std::vector<int64_t> sizes(Info(in).shape().begin(), Info(in).shape().end());
  sizes[0] = ways.arriving();
  Tensor out = empty(Info(in).dtype, sizes);
  const mortise_collective all = {.struct_size = sizeof all,
                                  .kind = MORTISE_ALL_TO_ALL,
                                  .in = in.get(),
                                  .out = out.get(),
                                  .group = group,
                                  .in_rows = ways.to.data(),
                                  .out_rows = ways.from.data()};
  run_collective(all);
  return out;
}

// The same, differentiated: gradients go back where the rows came from. Every rank calls it, and its backward if
// `learns`, which is the same on all of them: experts that learn may be on other ranks alone, and before the layer
// nothing.
class Trip {
 public:
  static Tensor of(const mortise_rank_group* group, Ref rows, Ways ways, bool learns) {
    const mortise_node_fns functions = {.struct_size = sizeof functions,
                                        .flags = learns ? uint32_t{MORTISE_NODE_REQUIRES_GRAD} : 0,
                                        .name = MORTISE_STR("exchange of rows among experts"),
                                        .forward = forward,
                                        .backward = backward,
                                        .drop = drop};
    const mortise_value in = value(rows);
    mortise_value out = none();
    auto trip = std::unique_ptr<Trip>(new Trip(group, std::move(ways)));
    check(api.autograd->apply(api.host, &functions, trip.release(), &in, 1, &out, 1));
    return take(out);
  }

 private:
  Trip(const mortise_rank_group* group, Ways ways) : group_(group), ways_(std::move(ways)) {}

  static mortise_status forward(void* self, mortise_node*, const mortise_value* in, uint32_t, mortise_value* out,
                                uint32_t) noexcept {
    const Trip& trip = *static_cast<Trip*>(self);
    return guard([&] { *out = value(exchanged(trip.group_, *in, trip.ways_).release()); });
  }
  static mortise_status backward(void* self, mortise_node*, mortise_tensor* const* grad_out, uint32_t,
                                 mortise_tensor** grad_in, uint32_t) noexcept {
    const Trip& trip = *static_cast<Trip*>(self);
    return guard([&] { *grad_in = exchanged(trip.group_, grad_out[0], trip.ways_.back()).release(); });
  }
  static void drop(void* self) noexcept { delete static_cast<Trip*>(self); }

  const mortise_rank_group* group_;
  Ways ways_;
};

class Exchange {
 public:
  // Shapes as suffixes: S ranks along the axis, L experts of each of them, W width.
  explicit Exchange(int64_t experts) {
    mortise_rank_group* group = nullptr;
    const mortise_status status = !api.comm ? mortise_status{MORTISE_E_NOT_FOUND}
                                            : api.comm->axis(api.host, MORTISE_STR("experts"), &group, &rank_, &size_);
    if (status != MORTISE_E_NOT_FOUND) check(status);
    else rank_ = 0, size_ = 1;
    int64_t fits = size_;
    while (experts % fits != 0) --fits;
    if (fits != size_)
      config::refuse("expert_parallel",
                     std::to_string(size_) + " ranks do not share " + std::to_string(experts) + " experts evenly",
                     "expert_parallel = " + std::to_string(fits));
    group_ = group;
    each_ = experts / size_;
  }
  bool is_shared() const { return size_ > 1; }
  int64_t each() const { return each_; }  // so many experts a rank has
  int64_t owner(int64_t expert) const { return expert / each_; }
  int64_t first() const { return is_shared() ? rank_ * each_ : 0; }  // of the experts that this rank has

  // `compute(rows, sizes)` gives what the experts of this rank make of rows that stand side by side, `sizes` of each.
  // `rows`: those for all experts, one after another, `sizes` of each. `learns`: some expert does, on whatever rank.
  template <class Compute>
  Tensor computed(const Tensor& rows, const std::vector<int64_t>& sizes, bool learns, const Compute& compute) const {
    const std::vector<int64_t> from_SL = told(sizes);
    Ways ways;
    std::vector<int64_t> sizes_L(static_cast<size_t>(each_));
    for (int32_t s = 0; s < size_; ++s) {
      const auto of_rank = [&](const std::vector<int64_t>& all) { return all.begin() + s * each_; };
      ways.to.push_back(std::accumulate(of_rank(sizes), of_rank(sizes) + each_, int64_t{0}));
      ways.from.push_back(std::accumulate(of_rank(from_SL), of_rank(from_SL) + each_, int64_t{0}));
      for (int64_t l = 0; l < each_; ++l) sizes_L[static_cast<size_t>(l)] += of_rank(from_SL)[l];
    }
    const auto [order, back] = by_expert(from_SL);
    const Tensor x = ops::index_select(Trip::of(group_, rows, ways, learns), order);
    return Trip::of(group_, ops::index_select(compute(x, sizes_L), back), ways.back(), learns);
  }

  // The same with `capacity` rows for each expert, whatever it was given, on every rank alike: nobody tells anybody how
  // many there are, so nothing waits for the device.
  template <class Compute>
  Tensor computed_evenly(const Tensor& rows, int64_t capacity, bool learns, const Compute& compute) const {
    const std::vector<int64_t> as_many(static_cast<size_t>(size_), each_ * capacity);
    const Ways ways = {as_many, as_many};
    const auto turned = [&](const Tensor& x, int64_t outer, int64_t inner) {  // from [outer, inner] to [inner, outer]
      const int64_t width = Info(x).size(1);
      return ops::reshape(ops::transpose(ops::reshape(x, {outer, inner, capacity, width}), 0, 1), {-1, width});
    };
    const std::vector<int64_t> sizes_L(static_cast<size_t>(each_), size_ * capacity);
    const Tensor y = compute(turned(Trip::of(group_, rows, ways, learns), size_, each_), sizes_L);
    return Trip::of(group_, turned(y, each_, size_), ways, learns);
  }

 private:
  // How many rows each rank has for each expert of this one. The host waits for it.
  std::vector<int64_t> told(const std::vector<int64_t>& sizes) const {
    const std::vector<int64_t> as_many(static_cast<size_t>(size_), each_);
    const Tensor from =
        exchanged(group_, on_device({sizes.begin(), sizes.begin() + size_ * each_}), {as_many, as_many});
    const Tensor host = empty(MORTISE_I64, {size_ * each_}, true);
    ops::copy_(host, from);
    ranks_must_be_there();
    const Info info(host);
    return {info.as<int64_t>(), info.as<int64_t>() + info.numel};
  }

  // Of rows that arrive rank by rank, where those of one expert after another are; and the way back.
  struct Orders {
    Tensor order, back;
  };
  Orders by_expert(const std::vector<int64_t>& from_SL) const {
    std::vector<int64_t> begins(from_SL.size());
    std::exclusive_scan(from_SL.begin(), from_SL.end(), begins.begin(), int64_t{0});
    std::vector<int64_t> order, back(static_cast<size_t>(begins.back() + from_SL.back()));
    for (int64_t l = 0; l < each_; ++l)
      for (int32_t s = 0; s < size_; ++s) {
        const auto at = static_cast<size_t>(s * each_ + l);
        for (int64_t row = 0; row < from_SL[at]; ++row) {
          back[static_cast<size_t>(begins[at] + row)] = std::ssize(order);
          order.push_back(begins[at] + row);
        }
      }
    return {on_device(order), on_device(back)};
  }

  static Tensor on_device(const std::vector<int64_t>& numbers) {
    const auto n = static_cast<int64_t>(numbers.size());
    const Tensor host = empty(MORTISE_I64, {n}, true);
    std::ranges::copy(numbers, Info(host).as<int64_t>());
    Tensor device = empty(MORTISE_I64, {n});
    ops::copy_(device, host);
    return device;
  }

  const mortise_rank_group* group_ = nullptr;
  int32_t rank_ = 0, size_ = 1;
  int64_t each_ = 1;
};

}  // namespace moe
