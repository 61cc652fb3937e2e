// Masters that some ranks have updated, on their way to the others: sent together.
#pragma once
#include <deque>
#include <utility>

#include "mortise/cpp/comm.hpp"
#include "mortise/cpp/ops.hpp"

namespace mortise {

class SentMasters {
 public:
  // Elements that rank `from` has updated, of those that have the same.
  void add(mortise_param* param, int64_t offset, int64_t length, int32_t from) {
    sent_.add(&works_.emplace_back(), MORTISE_BROADCAST, {}, part(param, offset, length), group_of(param), from);
  }
  // All `each` * n elements of a parameter, of which this rank, `own` of n, has updated its `each`.
  void add_even(mortise_param* param, int64_t each, int32_t own, int32_t n) {
    Tensor whole = part(param, 0, each * n), mine = ops::narrow(whole, 0, each * own, each);
    sent_.add(&works_.emplace_back(), MORTISE_ALL_GATHER, std::move(mine), std::move(whole), group_of(param));
  }
  void send() {
    sent_.start();
    for (mortise_work* work : works_) wait_for_collective(work);
    works_.clear();
  }

 private:
  static Tensor part(mortise_param* param, int64_t offset, int64_t length) {
    mortise_tensor* master = nullptr;
    check(need(api.replicas, "mortise.replicas/0").master(api.host, param, offset, length, &master));
    return Tensor::own(master);
  }
  Together sent_;
  std::deque<mortise_work*> works_;
};

}  // namespace mortise
