#include <gtest/gtest.h>

#include "mortise/testing/fake_call.hpp"

using namespace mortise::testing;

namespace {

TEST(BF16, SetsTheComputeDtypeOfForwardAndGoesOn) {
  FakeHost host;
  host.set("gradients", "fp32");
  uint32_t seen = 99;
  FakeChain chain(host, [&](mortise_call& call) { return seen = call.compute_dtype, MORTISE_OK; });
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  FakeCall call({}, 2);
  ASSERT_EQ(chain.wrap(plugin, "forward", call), MORTISE_OK);
  EXPECT_EQ(seen, static_cast<uint32_t>(MORTISE_BF16));
}

TEST(BF16, PassesOnAFailureOfForward) {
  FakeHost host;
  host.set("gradients", "fp32");
  FakeChain chain(host, [](mortise_call&) { return mortise_status{MORTISE_E_OPERATOR}; });
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  FakeCall call({}, 2);
  EXPECT_EQ(chain.wrap(plugin, "forward", call), MORTISE_E_OPERATOR);
}

// What becomes of a parameter of this role.
mortise_param_info declared(const char* role, const char* gradients = "fp32") {
  FakeHost host;
  host.set("gradients", gradients);
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  mortise_event event{};
  event.param = host.add_param("w", role, {4, 4});
  EXPECT_EQ(plugin.notify("params.declared", event), MORTISE_OK) << host.error();
  return mortise::info_of(event.param);
}

TEST(Declared, MatricesAreReadInBF16AndKeptInFP32) {
  const mortise_param_info info = declared("matrix");
  EXPECT_EQ(info.value_dtype, uint32_t{MORTISE_BF16});
  EXPECT_EQ(info.master_dtype, uint32_t{MORTISE_F32});
  EXPECT_EQ(info.grad_dtype, uint32_t{MORTISE_F32});
}

TEST(Declared, NormsBiasesAndEmbeddingsStayInFP32) {
  for (const char* role : {"norm", "vector", "embedding", "buffer"}) {
    EXPECT_EQ(declared(role).value_dtype, uint32_t{MORTISE_F32}) << role;
    EXPECT_EQ(declared(role).grad_dtype, uint32_t{MORTISE_F32}) << role;
  }
}

TEST(Declared, GradientsInBF16AreThoseOfMatricesAndEmbeddings) {
  for (const char* role : {"matrix", "embedding"}) {
    EXPECT_EQ(declared(role, "bf16").grad_dtype, uint32_t{MORTISE_BF16}) << role;
    EXPECT_EQ(declared(role, "bf16").master_dtype, uint32_t{MORTISE_F32}) << role;
  }
  EXPECT_EQ(declared("embedding", "bf16").value_dtype, uint32_t{MORTISE_F32});
  for (const char* role : {"norm", "vector"})
    EXPECT_EQ(declared(role, "bf16").grad_dtype, uint32_t{MORTISE_F32}) << role;
}

}  // namespace
