#include <gtest/gtest.h>

#include "mortise/testing/fake_call.hpp"

using namespace mortise::testing;

namespace {

constexpr std::pair<const char*, uint32_t> kDtypes[] = {{"bf16", MORTISE_BF16}, {"fp16", MORTISE_F16}};

TEST(Half, SetsTheComputeDtypeOfForwardAndGoesOn) {
  for (const auto& [name, dtype] : kDtypes) {
    FakeHost host;
    host.set("dtype", name);
    uint32_t seen = 99;
    FakeChain chain(host, [&](mortise_call& call) { return seen = call.compute_dtype, MORTISE_OK; });
    Plugin plugin(host, MORTISE_PLUGIN_FILE);
    FakeCall call({}, 2);
    ASSERT_EQ(chain.wrap(plugin, "forward", call), MORTISE_OK);
    EXPECT_EQ(seen, dtype) << name;
  }
}

TEST(Half, PassesOnAFailureOfForward) {
  FakeHost host;
  host.set("dtype", "bf16");
  FakeChain chain(host, [](mortise_call&) { return mortise_status{MORTISE_E_OPERATOR}; });
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  FakeCall call({}, 2);
  EXPECT_EQ(chain.wrap(plugin, "forward", call), MORTISE_E_OPERATOR);
}

TEST(Half, HoldsEveryParameterWholeInItsDtype) {
  for (const auto& [name, dtype] : kDtypes) {
    FakeHost host;
    host.set("dtype", name);
    Plugin plugin(host, MORTISE_PLUGIN_FILE);
    for (const char* role : {"matrix", "vector", "norm", "embedding", "buffer"}) {
      mortise_event event{};
      event.param = host.add_param(role, role, {4, 4});
      ASSERT_EQ(plugin.notify("params.declared", event), MORTISE_OK) << host.error();
      const mortise_param_info info = mortise::info_of(event.param);
      EXPECT_EQ(info.value_dtype, dtype) << role;
      EXPECT_EQ(info.master_dtype, dtype) << role;
      EXPECT_EQ(info.grad_dtype, dtype) << role;
    }
  }
}

}  // namespace
