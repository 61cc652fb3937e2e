#include <gtest/gtest.h>

#include "mortise/testing/fake_call.hpp"

using namespace mortise::testing;

namespace {

TEST(BF16, SetsTheComputeDtypeOfForwardAndGoesOn) {
  FakeHost host;
  uint32_t seen = 99;
  FakeChain chain(host, [&](mortise_call& call) { return seen = call.compute_dtype, MORTISE_OK; });
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  FakeCall call({}, 2);
  ASSERT_EQ(chain.wrap(plugin, "forward", call), MORTISE_OK);
  EXPECT_EQ(seen, static_cast<uint32_t>(MORTISE_BF16));
}

TEST(BF16, PassesOnAFailureOfForward) {
  FakeHost host;
  FakeChain chain(host, [](mortise_call&) { return mortise_status{MORTISE_E_OPERATOR}; });
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  FakeCall call({}, 2);
  EXPECT_EQ(chain.wrap(plugin, "forward", call), MORTISE_E_OPERATOR);
}

struct Declared : testing::Test {
  mortise_param_info after(const char* role) {
    mortise_param* p = host.add_param("w", role, {4, 4});
    mortise_event event{};
    event.param = p;
    EXPECT_EQ(plugin.notify("params.declared", event), MORTISE_OK) << host.error();
    return mortise::info_of(p);
  }
  FakeHost host;
  Plugin plugin{host, MORTISE_PLUGIN_FILE};
};

TEST_F(Declared, MatricesAreReadInBF16AndKeptInFP32) {
  const mortise_param_info info = after("matrix");
  EXPECT_EQ(info.value_dtype, static_cast<uint32_t>(MORTISE_BF16));
  EXPECT_EQ(info.master_dtype, static_cast<uint32_t>(MORTISE_F32));
  EXPECT_EQ(info.grad_dtype, static_cast<uint32_t>(MORTISE_F32));
}

TEST_F(Declared, NormsBiasesAndEmbeddingsStayInFP32) {
  for (const char* role : {"norm", "vector", "embedding", "buffer"})
    EXPECT_EQ(after(role).value_dtype, static_cast<uint32_t>(MORTISE_F32)) << role;
}

}  // namespace
