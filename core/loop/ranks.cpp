#include "core/loop/ranks.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/stack.h>

#include <array>
#include <bit>

#include "core/abi/error.hpp"
#include "core/base/text.hpp"
#include "core/host/handle.hpp"

namespace mortise {

void Ranks::host_all_reduce(std::vector<int64_t>& numbers, uint32_t op) const {
  services_.wait(true, [&] {
    services_.comm.call(&mortise_comm::host_all_reduce, "host_all_reduce", numbers.data(),
                        static_cast<uint32_t>(numbers.size()), uint32_t{op});
  });
}

void Ranks::exchange(const mortise_collective& collective) const {
  mortise_work* work = nullptr;
  services_.comm.call(&mortise_comm::start, "start", &collective, &work);
  services_.wait(false, [&] { services_.comm.call(&mortise_comm::wait, "wait", work); });
}

void Ranks::broadcast(const at::Tensor& t, const mortise_param& p, int32_t root) const {
  exchange({.struct_size = sizeof(mortise_collective),
            .kind = MORTISE_BROADCAST,
            .root = root,
            .out = borrow(t),
            .group = services_.groups.of(p.placement.axis)});
}

void Ranks::broadcast_along(int axis, const at::Tensor& t, int32_t root) const {
  exchange({.struct_size = sizeof(mortise_collective),
            .kind = MORTISE_BROADCAST,
            .root = root,
            .out = borrow(t),
            .group = services_.groups.along[static_cast<size_t>(axis)]});
}

// Ranks that name other units would send numbers that do not belong together, so as many are sent whatever there is,
// and a hash of what they are.
void Ranks::sum(Counts& counts, const std::string& names) const {
  if (alone()) return;
  constexpr size_t kMostUnits = 32;
  if (counts.size() > kMostUnits)
    throw PluginError(MORTISE_E_UNSUPPORTED, "the data counts " + std::to_string(counts.size()) +
                                                 " units; of several ranks at most " + std::to_string(kMostUnits) +
                                                 " are put together");
  std::string all = names;
  std::vector<int64_t> numbers;
  for (const auto& [unit, n] : counts) {
    all += " " + unit;
    numbers.push_back(n);
  }
  numbers.resize(kMostUnits + 1);
  const auto hash = static_cast<int64_t>(hash_text(all) >> 24);
  numbers[kMostUnits] = hash;
  host_all_reduce(numbers, MORTISE_SUM);
  if (numbers[kMostUnits] != hash * services_.world.size)
    throw PluginError(MORTISE_E_PLUGIN, "the ranks do not do the same: this one counts " + all);
  size_t i = 0;
  for (auto& [unit, n] : counts) n = numbers[i++] / services_.mesh.copies();
}

void Ranks::sum(const std::vector<at::Tensor>& scalars, uint32_t op, const mortise_rank_group* group,
                size_t at_least) const {
  if (alone() || scalars.empty()) return;
  const at::NoGradGuard no_grad;
  at::Tensor packed = at::stack(scalars);
  const auto more = static_cast<int64_t>(at_least) - packed.numel();
  if (more > 0) packed = at::constant_pad_nd(packed, {0, more});
  exchange({.struct_size = sizeof(mortise_collective),
            .kind = MORTISE_ALL_REDUCE,
            .op = op,
            .out = borrow(packed),
            .group = group});
  for (size_t i = 0; i < scalars.size(); ++i) scalars[i].copy_(packed[static_cast<int64_t>(i)]);
}

void Ranks::sum_of_samples(const std::vector<at::Tensor>& scalars) const {
  if (alone() || scalars.empty()) return;
  constexpr size_t kMost = 64;
  if (scalars.size() > kMost)
    throw PluginError(MORTISE_E_UNSUPPORTED, "the model has " + std::to_string(scalars.size()) +
                                                 " terms; of several ranks at most " + std::to_string(kMost) +
                                                 " are put together");
  sum(scalars, MORTISE_SUM, services_.groups.data, kMost);
}

namespace {
// Of integers [n]: the sums of every 1,021st, each with a weight. Where rows of a matrix change places it is another
// one, unless their length is a multiple of this prime.
int64_t digest_of(const at::Tensor& bits) {
  constexpr int64_t kWidth = 1021;
  const int64_t whole = bits.numel() / kWidth * kWidth, rest = bits.numel() - whole;
  at::Tensor sums = bits.narrow(0, 0, whole).view({-1, kWidth}).sum(0, false, at::kLong);
  sums.narrow(0, 0, rest).add_(bits.narrow(0, whole, rest));
  return sums.mul_(at::arange(1, 2 * kWidth, 2, sums.options())).sum().item<int64_t>();
}
}  // namespace

// A number of which the ranks have others is one whose least and largest are not the same.
std::string Ranks::first_unlike(const std::vector<std::pair<std::string, at::Tensor>>& tensors) const {
  if (alone()) return "";
  const auto first = [&](const std::vector<int64_t>& own) {
    std::vector<int64_t> ends;
    for (const int64_t n : own) ends.insert(ends.end(), {n, -n});
    host_all_reduce(ends, MORTISE_MAX);
    size_t i = 0;
    while (i < own.size() && ends[2 * i] == -ends[2 * i + 1]) ++i;
    return i;
  };
  std::string names;
  std::vector<int64_t> digests;  // not negative: each has an opposite
  for (const auto& [name, t] : tensors) {
    names += name + "\n";
    const auto bits = std::array{at::kByte, at::kShort, at::kInt, at::kLong}.at(
        std::bit_width(static_cast<uint64_t>(t.element_size())) - 1);
    digests.push_back(digest_of(t.contiguous().view(bits).flatten()) & INT64_MAX);
  }
  if (first({static_cast<int64_t>(hash_text(names) >> 1)}) == 0)
    throw PluginError(MORTISE_E_PLUGIN, "the ranks do not have the same tensors whole, of which this one has " +
                                            std::to_string(tensors.size()) +
                                            ": a plugin places a parameter, or keeps something, on some of them alone");
  const size_t i = first(digests);
  return i < tensors.size() ? tensors[i].first : "";
}

int64_t Ranks::most(int64_t number) const {
  if (alone()) return number;
  std::vector<int64_t> numbers = {number};
  host_all_reduce(numbers, MORTISE_MAX);
  return numbers[0];
}

std::vector<std::vector<int64_t>> Ranks::of_each(const std::vector<int64_t>& own) const {
  const auto size = static_cast<size_t>(services_.world.size);
  std::vector<int64_t> all(own.size() * size);  // of the others 0, to which they add theirs
  for (size_t i = 0; i < own.size(); ++i) all[i * size + static_cast<size_t>(rank())] = own[i];
  if (!alone()) host_all_reduce(all, MORTISE_SUM);
  std::vector<std::vector<int64_t>> each;
  for (auto from = all.begin(); from != all.end(); from += services_.world.size)
    each.emplace_back(from, from + services_.world.size);
  return each;
}

}  // namespace mortise
