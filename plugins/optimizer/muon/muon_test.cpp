// What Muon keeps and refuses; no LibTorch. Its numbers: tests/optimizer/muon_test.cpp.
#include <gtest/gtest.h>

#include "mortise/testing/fake_slice.hpp"

using namespace mortise::testing;

namespace {

struct Muon : testing::Test {
  Muon() {
    host.set("momentum", 0.95).set("nesterov", true).set("eps", 1e-7).set("ns_steps", 5).set("ns_dtype", "bf16");
    host.set("ns_coefficients", std::vector<double>{3.4445, -4.775, 2.0315}).set("adjust_lr_fn", "original");
  }
  // Why a parameter is refused, and the fix; empty: it is not.
  std::string refused(const std::string& role, const std::vector<int64_t>& sizes) {
    Plugin plugin(host, MORTISE_PLUGIN_FILE);
    mortise_state_spec specs[MORTISE_MAX_STATES] = {};
    uint32_t n = 0;
    const mortise_param_info& info = mortise::info_of(host.add_param("h.0.w", role, sizes));
    const auto status = plugin.object<mortise_optimizer>("optimizer").states(plugin.self(), &info, specs, &n);
    return status == MORTISE_OK ? "" : host.error();
  }
  std::string blamed() {
    host.blamed.reset();
    EXPECT_THROW(Plugin(host, MORTISE_PLUGIN_FILE), PluginError);
    return host.blamed ? host.blamed->key : "";
  }
  FakeHost host;
};

TEST_F(Muon, KeepsTheMomentumInFP32) {
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  const FakeSlice slice(host, plugin, host.add_param("w", "matrix", {2, 3}), std::vector<uint16_t>(6),
                        std::vector<float>(6));
  EXPECT_EQ(slice.state_names(), std::vector<std::string>{"momentum_buffer"});
  EXPECT_EQ(host.values<float>(slice.slice.states[0]), std::vector<float>(6));
}

TEST_F(Muon, RefusesWhatIsNoMatrixWithItsNameAndTheFix) {
  EXPECT_EQ(refused("matrix", {4, 2}), "");
  EXPECT_EQ(refused("vector", {4}),
            "where: Muon updates matrices; h.0.w has the role vector and 1 dimensions\n"
            "  fix: where = \"role:matrix\", and a second optimizer for the rest: [optimizer.adamw]");
  EXPECT_NE(refused("embedding", {4, 2}), "");
  EXPECT_EQ(refused("matrix", {4, 2, 2}),
            "where: Muon updates matrices; h.0.w has the role matrix and 3 dimensions\n"
            "  fix: where = { match = \"role:matrix\", except = \"h.0.w\" }, and a second optimizer for the rest: "
            "[optimizer.adamw]");
}

TEST_F(Muon, RefusesValuesThatMeanNothing) {
  host.set("momentum", 1.0);
  EXPECT_EQ(blamed(), "momentum");
  host.set("momentum", 0.95).set("ns_coefficients", std::vector<double>{1.5, -0.5});
  EXPECT_EQ(blamed(), "ns_coefficients");
}

}  // namespace
