// A `comm` of two ranks, for tests.
#pragma once
#include <functional>

#include "core/host/handle.hpp"
#include "core/loop/test_run.hpp"

namespace mortise::testing {

// This is rank 0 of two; the other brings what a test says.
struct FakeComm : FakePlugin {
  std::function<int64_t(int64_t own, size_t i)> other = [](int64_t own, size_t) { return own; };
  std::function<void(at::Tensor own, uint32_t op)> meet = [](const at::Tensor& own, uint32_t op) {
    if (op == MORTISE_SUM) own.mul_(2);  // it has the same
  };
  int calls = 0;
  uint32_t asked = 0;                         // numbers of the last call
  const mortise_rank_group* group = nullptr;  // of the last collective
  mortise_status status = MORTISE_OK;
  bool has_lost = false;  // the other one, of which only those are told that ask whether it is there
  mortise_comm object{};
  void join(Services& services) {
    services.comm = {&object, &instance};
    services.world.size = 2;
  }
  // Of the numbers that are compared, by their least and their largest, it has another one here.
  void differ_in(size_t number) {
    other = [this, number](int64_t own, size_t i) {
      return asked == 2 || i / 2 != number ? own : i % 2 == 0 ? own + 1 : own - 1;
    };
  }
  FakeComm() : FakePlugin("comm.fake") {
    object.struct_size = sizeof object;
    object.host_all_reduce = [](void* self, int64_t* numbers, uint32_t n, uint32_t op) noexcept {
      auto& comm = *static_cast<FakeComm*>(self);
      ++comm.calls;
      comm.asked = n;
      for (size_t i = 0; i < n; ++i) {
        const int64_t theirs = comm.other(numbers[i], i);
        numbers[i] = op == MORTISE_SUM ? numbers[i] + theirs : std::max(numbers[i], theirs);
      }
      return n == 0 && comm.has_lost ? mortise_status{MORTISE_E_LOST} : comm.status;
    };
    object.start = [](void* self, const mortise_collective* c, mortise_work** work) noexcept {
      auto& comm = *static_cast<FakeComm*>(self);
      ++comm.calls;
      comm.group = c->group;
      comm.meet(share(c->out), c->op);
      *work = nullptr;
      return mortise_status{MORTISE_OK};
    };
    object.wait = [](void*, mortise_work*) noexcept { return mortise_status{MORTISE_OK}; };
  }
};

}  // namespace mortise::testing
