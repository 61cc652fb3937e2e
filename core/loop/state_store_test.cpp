// States in a store: what an update fetches, takes and puts, in which order, and that these are the ones it updates.
#include "core/loop/state_store.hpp"

#include <ATen/ops/all.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "core/loop/test_run.hpp"
#include "core/loop/update.hpp"

namespace mortise::testing {
namespace {

struct FakeStore : FakePlugin {
  std::string calls;
  mortise_status fails = MORTISE_OK;  // what `take` returns
  FakeStore() : FakePlugin("offload.fake") {
    object.struct_size = sizeof object;
    object.open = [](void* self, int64_t bytes, void** memory) noexcept {
      auto& s = *static_cast<FakeStore*>(self);
      s.all = at::zeros({bytes}, at::kByte);
      *memory = s.all.data_ptr();
      return mortise_status{MORTISE_OK};
    };
    object.fetch = [](void* self, const mortise_extent* extents, uint32_t n) noexcept {
      auto& s = *static_cast<FakeStore*>(self);
      std::vector<at::Tensor> parts;
      for (const mortise_extent& e : std::span(extents, n)) {
        s.calls += "fetch " + std::to_string(e.offset) + "+" + std::to_string(e.bytes) + "\n";
        parts.push_back(s.all.narrow(0, e.offset, e.bytes));
      }
      s.pieces.push_back({{extents, extents + n}, at::cat(parts)});
      return mortise_status{MORTISE_OK};
    };
    object.take = [](void* self, void** piece) noexcept {
      auto& s = *static_cast<FakeStore*>(self);
      s.calls += "take\n";
      *piece = s.pieces.at(s.taken++).bytes.data_ptr();
      return s.fails;
    };
    object.put = [](void* self, uint32_t) noexcept {
      auto& s = *static_cast<FakeStore*>(self);
      s.calls += "put\n";
      int64_t at = 0;
      for (const mortise_extent& e : s.pieces.at(s.taken - 1).extents) {
        s.all.narrow(0, e.offset, e.bytes).copy_(s.pieces[s.taken - 1].bytes.narrow(0, at, e.bytes));
        at += e.bytes;
      }
      return mortise_status{MORTISE_OK};
    };
    object.finish = [](void* self, uint32_t) noexcept {
      static_cast<FakeStore*>(self)->calls += "finish\n";
      return mortise_status{MORTISE_OK};
    };
  }
  Provided<mortise_state_store> provided() { return {&object, &instance}; }
  at::Tensor all;

 private:
  struct Piece {
    std::vector<mortise_extent> extents;
    at::Tensor bytes;
  };
  std::deque<Piece> pieces;
  size_t taken = 0;
  mortise_state_store object{};
};

constexpr int64_t kMi = int64_t{1} << 20;

// One parameter of `n` elements, 2 at first, whose gradient is 1; two states in fp32 and fp64.
class Stored : public ::testing::Test {
 protected:
  void begin(int64_t n) {
    mortise_builder b{host.declaration(), {}};
    add_segment(b, "h.0", MORTISE_BLOCK);
    mortise_param_spec spec{};
    spec.struct_size = sizeof spec;
    spec.name = MORTISE_STR("w");
    spec.role = MORTISE_STR("matrix");
    spec.init = MORTISE_STR("ones");
    spec.sizes = &n;
    spec.rank = 1;
    mortise_param* param = add_param(b, spec);
    mortise_param_info& info = param->info;
    info.value_dtype = info.master_dtype = info.grad_dtype = MORTISE_F64;
    info.states_in_store = 1;
    host.parameters().allocate(host.declaration(), host.device(), 1, [](const mortise_param&, at::Tensor& m) {
      m.fill_(2.0);
      return true;
    });
    w = &host.parameters().state(*param);
    w->grad = at::full({n}, 1.0, at::kDouble);
    w->has_gradient = true;
    declared = optimizer.of({param});
    declared.states[0].states = {{"m", {n}, MORTISE_F32, 0, false, 1}, {"v", {n}, MORTISE_F64, 0.5, false, 1}};
    declared.states[0].at_most = update_at_most(declared.states[0], 1);
    store.emplace(fake.provided(), stored_of(declared.states).bytes);
    updates.emplace(declared, host, &*store);
    ledger.begin_step(0, 0);
    ledger.begin_update(at::full({}, true, at::kBool));
  }
  bool all_are(const at::Tensor& t, double value) { return t.eq(value).all().item<bool>(); }

  FakeStore fake;
  FakeOptimizer optimizer;
  FakeSchedule schedule;
  PointTable points;
  Host host{points, 1};
  Ledger ledger{c10::kCPU, {{0, 0.5, 0}}, schedule.provided(), {0, 1000}};
  DeclaredOptimizer declared;
  std::optional<StateStore> store;
  std::optional<Optimizer> updates;
  ParameterState* w = nullptr;
};

TEST_F(Stored, AreUpdatedThereAndAreThereAsMemory) {
  begin(5);
  EXPECT_EQ(fake.all.numel(), 2 * 4096) << "each begins with a block";
  const std::vector<NamedState> states = updates->states();
  EXPECT_TRUE(all_are(states[0].tensor, 0) && all_are(states[1].tensor, 0.5)) << "they begin as the optimizer says";
  updates->step(ledger);
  EXPECT_EQ(fake.calls, "fetch 0+4096\nfetch 4096+4096\ntake\nput\nfinish\n");
  EXPECT_TRUE(all_are(states[0].tensor, 1) && all_are(states[1].tensor, 0.5));
  EXPECT_TRUE(all_are(w->master, 2 - 0.5 * 1.0) && all_are(w->value, 2 - 0.5 * 1.0));
}

TEST_F(Stored, AreTheOptimizersInTheirOrder) {
  optimizer.object.step = [](void*, const mortise_slice* slices, uint32_t n, const mortise_ledger*) noexcept {
    for (uint32_t i = 0; i < n; ++i)
      for (uint32_t s = 0; s < slices[i].n_states; ++s) share(slices[i].states[s]).add_(s + 1);
    return mortise_status{MORTISE_OK};
  };
  begin(5);
  updates->step(ledger);
  const std::vector<NamedState> states = updates->states();
  EXPECT_TRUE(all_are(states[0].tensor, 1) && all_are(states[1].tensor, 2.5));
}

// The next piece comes while one is updated: it is fetched before that is taken.
TEST_F(Stored, ComeAndGoInPartsOfWhatIsLarge) {
  begin(9 * kMi);
  updates->step(ledger);
  const auto fetched = [](int64_t begin, int64_t end) {
    return "fetch " + std::to_string(begin * kMi * 4) + "+" + std::to_string((end - begin) * kMi * 4) + "\nfetch " +
           std::to_string(9 * kMi * 4 + begin * kMi * 8) + "+" + std::to_string((end - begin) * kMi * 8) + "\n";
  };
  EXPECT_EQ(fake.calls,
            fetched(0, 4) + fetched(4, 8) + "take\nput\n" + fetched(8, 9) + "take\nput\ntake\nput\nfinish\n");
  for (const NamedState& s : updates->states()) EXPECT_TRUE(all_are(s.tensor, s.name == "w/m" ? 1 : 0.5)) << s.name;
  EXPECT_TRUE(all_are(w->value, 2 - 0.5 * 1.0));
  EXPECT_EQ(w->grad.use_count(), 1) << "a device has its memory for activations, once a step is over";
}

TEST_F(Stored, StayWhereTheyAreInAStepThatIsSkipped) {
  begin(5);
  ledger.vote(at::full({}, false, at::kBool));
  updates->step(ledger);
  EXPECT_EQ(fake.calls, "finish\n");
  EXPECT_TRUE(all_are(w->master, 2));
}

TEST_F(Stored, ThatCannotBeHadEndTheStep) {
  begin(5);
  fake.fails = MORTISE_E_IO;
  try {
    updates->step(ledger);
    FAIL() << "it went on without them";
  } catch (const PluginError& e) {
    EXPECT_EQ(e.status(), MORTISE_E_IO);
    EXPECT_EQ(e.plugin(), "offload.fake");
  }
  EXPECT_TRUE(all_are(w->master, 2));
}

}  // namespace
}  // namespace mortise::testing
