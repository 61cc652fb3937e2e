// Gradients side by side in buckets: a bucket is summed over the ranks as soon as its last gradient is there, while
// backward goes on. What parallel.ddp, parallel.dp and parallel.zero share.
#pragma once
#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "mortise/cpp/comm.hpp"
#include "mortise/cpp/ops.hpp"
#include "mortise/cpp/plugin.hpp"

namespace mortise {

constexpr int64_t kAlignment = 64;  // elements, which kernels read at once: gradients and parts begin at a multiple

class Buckets {
 public:
  // As the keys `bucket_mib` and `unused` say. `kind`: of the collective that adds a bucket up.
  Buckets(int64_t bucket_mib, std::string_view unused, uint32_t kind = MORTISE_ALL_REDUCE)
      : most_(bucket_mib << 20), kind_(kind), every_step_(unused == "every_step") {}

  void layout(uint32_t) {
    lay_out([](const Param&) { return true; });
  }

  void ready(mortise_param* param, int32_t, int32_t last) {
    if (!last) return;
    const size_t index = index_of_.at(param);
    ++buckets_[params_[index].bucket].ready;
    // In one order on every rank, whatever order backward takes here.
    while (started_ < buckets_.size() && buckets_[started_].is_full()) start(buckets_[started_++]);
  }

  void finish(uint32_t) {
    for (; started_ < buckets_.size(); ++started_) start(buckets_[started_]);
    for (Bucket& b : buckets_) {
      wait_for_collective(std::exchange(b.work, nullptr));
      b.ready = 0;
    }
    started_ = 0;
    agree_on_used();
  }

 protected:
  struct Param {
    mortise_param* handle;
    const mortise_param_info* info;
    size_t bucket = 0;
  };
  // The trainable ones, in order of declaration; once they are laid out.
  const std::vector<Param>& params() const { return params_; }

  // Of the gradients that `takes` wants; the others are somebody else's, but ranks agree on which there are of all.
  template <class Takes>
  void lay_out(const Takes& takes) {
    check(need(api.replicas, "mortise.replicas/0").recorded(api.host, &is_recorded_));
    every_step_ = every_step_ && !is_recorded_;  // nobody agrees with a rank that plays what it has recorded
    const mortise_slice* slices = nullptr;
    uint32_t n = 0;
    check(api.params->slices(api.host, &slices, &n));
    for (uint32_t i = 0; i < n; ++i) {
      index_of_[slices[i].param] = i;
      params_.push_back({slices[i].param, slices[i].info});
    }
    // Backward goes against the order of declaration, nearly. It is not waited for to know better: where an element
    // lies decides in which order its sum is added up, and a run that goes on has to add up as if it had never stopped.
    for (size_t i = params_.size(); i-- > 0;)
      if (takes(params_[i])) add(i);
    // They are sent in the order in which they are full: norms and biases of all layers may be in one.
    std::ranges::stable_sort(buckets_, std::greater{}, [](const Bucket& b) { return b.params.back(); });
    for (size_t b = 0; b < buckets_.size(); ++b)
      for (const size_t i : buckets_[b].params) params_[i].bucket = b;
    place();
  }

 private:
  struct Bucket {
    std::vector<size_t> params;
    std::vector<int64_t> offsets;
    int64_t length = 0;
    uint32_t dtype = MORTISE_NO_DTYPE;
    const mortise_rank_group* group = nullptr;  // over which it is summed
    Tensor sums;
    size_t ready = 0;
    mortise_work* work = nullptr;
    bool is_full() const { return ready >= params.size(); }
  };

  void start(Bucket& b) { b.work = start_collective(collective_of(kind_, {}, b.sums, b.group)); }

  // To the last bucket of its dtype whose sum is over the same ranks, unless that becomes larger than asked for.
  void add(size_t index) {
    const Param& p = params_[index];
    const int64_t length = (p.info->numel + kAlignment - 1) / kAlignment * kAlignment;
    const auto bytes = static_cast<int64_t>(mortise_dtype_of(p.info->grad_dtype)->bytes);
    const uint32_t dtype = p.info->grad_dtype;
    const mortise_rank_group* const group = group_of(p.handle);
    const auto is_alike = [&](const Bucket& b) { return b.dtype == dtype && b.group == group; };
    const auto last = std::find_if(buckets_.rbegin(), buckets_.rend(), is_alike);
    const bool fits = last != buckets_.rend() && (last->length + length) * bytes <= most_;
    Bucket& b = fits ? *last : buckets_.emplace_back();
    b.dtype = dtype;
    b.group = group;
    b.params.push_back(index);
    b.offsets.push_back(b.length);
    b.length += length;
  }

  void place() {
    const auto& replicas = need(api.replicas, "mortise.replicas/0");
    for (Bucket& b : buckets_) {
      b.sums = empty(b.dtype, {b.length});
      ops::fill_(b.sums, 0);
      for (size_t i = 0; i < b.params.size(); ++i)
        check(replicas.place(api.host, params_[b.params[i]].handle, b.sums.get(), b.offsets[i]));
    }
  }

  // A parameter that brought a gradient on one rank is updated on all.
  void agree_on_used() {
    std::vector<int64_t> used;
    for (const Param& p : params_) {
      int32_t has = 0;
      check(api.replicas->has_gradient(api.host, p.handle, &has));
      used.push_back(has);
    }
    if (used_.empty() || every_step_) {
      used_ = used;
      host_all_reduce(used_, MORTISE_MAX);
    }
    for (size_t i = 0; i < params_.size(); ++i) {
      if (used[i] > used_[i])
        throw Error(MORTISE_E_UNSUPPORTED,
                    std::string(view(params_[i].info->name)) + " has a gradient, and had none in the first step",
                    is_recorded_ ? "leave out [compile.cuda_graph], or freeze what only some steps use"
                                 : "`unused = \"every_step\"` in its table");
      check(api.replicas->set_has_gradient(api.host, params_[i].handle, static_cast<int32_t>(used_[i])));
    }
  }

  int64_t most_;
  uint32_t kind_;
  bool every_step_;
  int32_t is_recorded_ = 0;
  std::vector<Param> params_;
  std::map<mortise_param*, size_t> index_of_;
  std::deque<Bucket> buckets_;
  std::vector<int64_t> used_;  // on any rank
  size_t started_ = 0;         // buckets of this step
};

}  // namespace mortise
