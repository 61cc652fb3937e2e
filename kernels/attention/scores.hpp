// What our own kernels of attention take of a call alike: how scores are made, and what is dropped of probabilities.
#pragma once
#include <algorithm>

#include "kernels/attention/attention.hpp"
#include "kernels/cuda/place.hpp"

namespace mortise::kernels {

// The numbers that are added to the scores, as [B, H, T, S] by strides; empty if none are.
inline Tensor added_by_strides(const AttentionLayer& layer, const Tensor& mask, const AttentionLayer::Heads& x) {
  const Tensor numbers = layer.added_to_scores(mask, x, false);
  if (!numbers) return {};
  return ops::expand(numbers, {Info(x.q).size(0), layer.heads(), Info(x.q).size(2), Info(x.k).size(2)});
}

// `Job` is a kernel's description of its work; `added` as above, borrowed.
template <class Job>
void describe_scores(Job& job, const AttentionLayer& layer, mortise_call* call, const Tensor& added) {
  job.heads = static_cast<int>(layer.heads());
  job.causal = layer.causal();
  job.scale = static_cast<float>(layer.scale());
  if (added) {
    const Info numbers(added);
    job.added = numbers.as<const float>();
    std::copy_n(numbers.strides, 4, job.added_strides);
  }
  if (layer.dropout() > 0 && call->mode == MORTISE_TRAIN) {
    job.dropout = layer.dropout();
    job.place = on_device(random_site(call));
  }
}

}  // namespace mortise::kernels
