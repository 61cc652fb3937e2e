// For optimizers on the host's processor: the ledger as numbers, and the slices of a step cut into pieces for all
// threads at once.
#pragma once
#include <algorithm>
#include <array>
#include <functional>
#include <vector>

#include "mortise/cpp/ops.hpp"

namespace mortise {

// A ledger whose tensors lie in the host's memory.
struct Ledger {
  explicit Ledger(const mortise_ledger* l)
      : apply(Info(l->verdict).as<double>()[0] != 0), multiplier(Info(l->multiplier).as<double>()[0]),
        applied(Info(l->applied).as<int64_t>()[0]), lr(Info(l->lr).as<double>()),
        weight_decay(Info(l->weight_decay).as<double>()) {}
  bool apply;
  double multiplier;
  int64_t applied;                  // steps before this one
  const double *lr, *weight_decay;  // by group
};

// The key `betas` of AdamW and its relatives: two decays below 1.
inline std::array<double, 2> adamw_betas() {
  const auto betas = config::numbers("betas");
  if (betas.size() != 2) config::refuse("betas", "AdamW has two of them", "betas = [0.9, 0.999]");
  for (const double beta : betas)
    if (beta >= 1)
      config::refuse("betas", "a decay of 1 never forgets, and its bias correction divides by 0",
                     "betas = [0.9, 0.999]");
  return {betas[0], betas[1]};
}

// Does the update run on a GPU? Then it reads the ledger there, and asks the host for nothing.
inline bool is_on_gpu(const mortise_ledger* ledger) { return Info(ledger->verdict).device == MORTISE_CUDA; }

// Slice `i` of a step; a newer host's elements may be larger than this header's.
inline const mortise_slice& slice_at(const mortise_slice* slices, uint32_t i) {
  return *reinterpret_cast<const mortise_slice*>(reinterpret_cast<const char*>(slices) +
                                                 size_t{i} * slices->struct_size);
}

// Of the parameters, outside an optimizer's update; of this step. No view: <ranges> of GCC 12 is not for clang 14.
inline auto slices_now() {
  const mortise_slice* first = nullptr;
  uint32_t n = 0;
  check(api.params->slices(api.host, &first, &n));
  std::vector<std::reference_wrapper<const mortise_slice>> slices;
  for (uint32_t i = 0; i < n; ++i) slices.push_back(slice_at(first, i));
  return slices;
}

// Where an optimizer may write the slice's value in the pass of its update; null if there is none, or if it is not
// bf16.
template <class T>
T* bf16_value(const mortise_slice& s) {
  if (!s.value) return nullptr;
  const Info value(s.value);
  return value.dtype == MORTISE_BF16 ? value.as<T>() : nullptr;
}
// Tells autograd what was written. The value is cast from the master here, by the host's operator, unless the update
// has written it itself.
inline void finish_slice(const mortise_slice& s, bool value_written = false) {
  api.tensor->written(api.host, s.master);
  for (uint32_t i = 0; i < s.n_states; ++i) api.tensor->written(api.host, s.states[i]);
  if (!s.value) return;
  if (value_written) api.tensor->written(api.host, s.value);
  else ops::copy_(s.value, s.master);
}

// body(job, begin, end) for all elements of all jobs, each with a member `length`, in pieces of 64 Ki elements: one
// list of pieces, so that a large matrix is shared by the threads and a hundred small vectors cost one call.
template <class Job, class Body>
void for_pieces(const std::vector<Job>& jobs, const Body& body) {
  constexpr int64_t kPiece = 64 * 1024;
  std::vector<int64_t> first = {0};  // the first piece of each job
  for (const Job& job : jobs) first.push_back(first.back() + (job.length + kPiece - 1) / kPiece);
  parallel_for(first.back(), 1, [&](int64_t begin, int64_t end) {
    size_t j = static_cast<size_t>(std::upper_bound(first.begin(), first.end(), begin) - first.begin()) - 1;
    for (int64_t piece = begin; piece < end; ++piece) {
      while (piece >= first[j + 1]) ++j;
      const int64_t from = (piece - first[j]) * kPiece;
      body(jobs[j], from, std::min(from + kPiece, jobs[j].length));
    }
  });
}

}  // namespace mortise
