// Masters that one rank has updated, on their way to the others.
#pragma once
#include <vector>

#include "collective.hpp"

namespace mortise {

class SentMasters {
 public:
  void start(mortise_param* param, int64_t offset, int64_t length, int32_t from) {
    mortise_tensor* master = nullptr;
    check(need(api.replicas, "mortise.replicas/0").master(api.host, param, offset, length, &master));
    const Tensor part = Tensor::own(master);
    sent_.push_back(start_collective(MORTISE_BROADCAST, {}, part, group_of(param), from));
  }
  void wait() {
    for (mortise_work* work : sent_) wait_for_collective(work);
    sent_.clear();
  }

 private:
  std::vector<mortise_work*> sent_;
};

}  // namespace mortise
