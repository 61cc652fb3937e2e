// What a mixture of experts declares and refuses; no LibTorch. Its arithmetic: tests/operators.
#include <gtest/gtest.h>

#include <optional>

#include "exchange.hpp"
#include "mortise/testing/fake_build.hpp"

using namespace mortise::testing;
using mortise::attr;

namespace {

struct Moe : testing::Test {
  Moe() {
    host.set("experts", 3).set("top_k", 2).set("capacity_factor", 0.0).set("jitter", 0.0);
    host.set("balance", 0.01).set("z_loss", 0.0).set("products", "each");
  }
  FakeHost host;
  FakeBuild build{host};
};

TEST_F(Moe, AsksForARouterAndAnMlpAnExpert) {
  const Plugin plugin(host, MORTISE_PLUGIN_FILE);
  build.layer(plugin, "mlp", "h.1.mlp",
              {attr("name", "mlp"), attr("width", 16), attr("inner", 64), attr("up", "c_fc"), attr("bias", false)});
  ASSERT_EQ(build.layers.size(), 4u);
  const std::map<std::string, std::string> router = {
      {"name", "mlp.router"}, {"in", "16"}, {"out", "3"}, {"bias", "false"}};
  EXPECT_EQ(build.at("h.1.mlp.router").slot, "linear");
  EXPECT_EQ(build.at("h.1.mlp.router").attrs, router);
  const std::map<std::string, std::string> expert = {
      {"name", "mlp.experts.2"}, {"width", "16"}, {"inner", "64"}, {"up", "c_fc"}, {"bias", "false"}};
  EXPECT_EQ(build.at("h.1.mlp.experts.2").slot, "mlp");
  EXPECT_EQ(build.at("h.1.mlp.experts.2").attrs, expert);
  EXPECT_DOUBLE_EQ(build.at("h.1.mlp.experts.2").share, 2.0 / 3) << "of the tokens";
  EXPECT_EQ(build.at("h.1.mlp.router").share, 0) << "all";
}

TEST_F(Moe, ATokenTakesNoMoreExpertsThanThereAre) {
  host.set("top_k", 4);
  EXPECT_THROW(Plugin(host, MORTISE_PLUGIN_FILE), PluginError);
  ASSERT_TRUE(host.blamed);
  EXPECT_EQ(host.blamed->key, "top_k");
  EXPECT_EQ(host.blamed->why, "a token cannot take more experts than there are, 3");
  EXPECT_EQ(host.blamed->fix, "top_k = 3, or more experts");
}

// Without a capacity the host waits for the device in each forward.
TEST_F(Moe, RefusesAStepThatIsRecordedUnlessItHasACapacity) {
  const auto refusal = [&](double capacity_factor, bool is_recorded) {
    host.set("capacity_factor", capacity_factor);
    const Plugin plugin(host, MORTISE_PLUGIN_FILE);
    mortise_place place{};
    place.is_recorded = is_recorded;
    return FakeBuild::refusal(plugin, "mlp", place, {attr("width", 16), attr("inner", 64)});
  };
  EXPECT_EQ(refusal(0, false), "");
  EXPECT_EQ(refusal(1.25, true), "");
  EXPECT_EQ(refusal(0, true),
            "the step is recorded, and the host waits in it for the number of tokens of each expert\n"
            "  fix: capacity_factor = 1.25 or so, products = \"grouped\" in bf16, or leave out what records the step");
}

TEST_F(Moe, ExpertsInGroupsAreOneMlp) {
  host.set("products", "grouped");
  const Plugin plugin(host, MORTISE_PLUGIN_FILE);
  build.layer(plugin, "mlp", "h.1.mlp", {attr("name", "mlp"), attr("width", 16), attr("inner", 64)});
  ASSERT_EQ(build.layers.size(), 2u);
  const std::map<std::string, std::string> experts = {
      {"name", "mlp.experts.*"}, {"width", "16"}, {"inner", "64"}, {"groups", "3"}};
  EXPECT_EQ(build.at("h.1.mlp.experts").attrs, experts);
  EXPECT_DOUBLE_EQ(build.at("h.1.mlp.experts").share, 2.0 / 3);
}

TEST_F(Moe, RefusesGroupsWhereTheyCannotBeOrWait) {
  host.set("products", "grouped");
  const auto refusal = [&](uint32_t device, uint32_t dtype, bool is_recorded, int64_t width = 16) {
    const Plugin plugin(host, MORTISE_PLUGIN_FILE);
    mortise_place place{};
    place.device = device, place.compute_dtype = dtype, place.is_recorded = is_recorded;
    return FakeBuild::refusal(plugin, "mlp", place, {attr("width", width), attr("inner", 64)});
  };
  EXPECT_EQ(refusal(MORTISE_CUDA, MORTISE_BF16, true), "");
  EXPECT_EQ(refusal(MORTISE_CUDA, MORTISE_F32, false), "");
  EXPECT_EQ(refusal(MORTISE_CPU, MORTISE_NO_DTYPE, false), "");
  EXPECT_EQ(refusal(MORTISE_CPU, MORTISE_F32, false, 12),
            "grouped products need sizes that are multiples of 8\n  fix: products = \"each\"");
  const std::string waits =
      "the step is recorded, and grouped products wait for the device but in bf16 on a GPU\n"
      "  fix: precision.bf16, or products = \"each\" with capacity_factor = 1.25 or so";
  EXPECT_EQ(refusal(MORTISE_CUDA, MORTISE_F32, true), waits);
  host.set("capacity_factor", 1.0);
  EXPECT_EQ(refusal(MORTISE_CUDA, MORTISE_F16, true), waits) << "also with a capacity";
  host.set("experts", 1024);
  EXPECT_EQ(refusal(MORTISE_CUDA, MORTISE_BF16, false),
            "grouped products on a GPU are of 1,023 experts at most\n  fix: experts = 1023, or products = \"each\"");
}

// With a capacity they need not tell one another how many rows they send.
TEST_F(Moe, RefusesSharedExpertsInGroupsOrRecordedWithoutACapacity) {
  host.axes["experts"] = {0, 3};
  const auto refusal = [&](const char* products, double capacity_factor, bool is_recorded) {
    host.set("products", products).set("capacity_factor", capacity_factor);
    const Plugin plugin(host, MORTISE_PLUGIN_FILE);
    mortise_place place{};
    place.device = MORTISE_CUDA, place.compute_dtype = MORTISE_BF16, place.is_recorded = is_recorded;
    return FakeBuild::refusal(plugin, "mlp", place, {attr("width", 16), attr("inner", 64)});
  };
  EXPECT_EQ(refusal("each", 0, false), "");
  EXPECT_EQ(refusal("each", 1.25, true), "");
  EXPECT_EQ(refusal("grouped", 1.25, false),
            "grouped products are of experts that are on one rank\n"
            "  fix: products = \"each\", or expert_parallel = 1");
  EXPECT_NE(refusal("each", 0, true), "");
}

// Of six experts each of two ranks has three, with what an adapter adds to them.
TEST_F(Moe, PutsExpertsOnTheirRanks) {
  host.axes["experts"] = {1, 2};
  host.set("experts", 6);
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  build.layer(plugin, "mlp", "h.1.mlp", {attr("name", "h.1.mlp"), attr("width", 16), attr("inner", 64)});
  const std::pair<const char*, const char*> expected[] = {
      {"h.1.mlp.experts.0.c_fc.weight", "0"}, {"h.1.mlp.experts.2.c_fc.bias", "0"},
      {"h.1.mlp.experts.3.c_fc.weight", "1"}, {"h.1.mlp.experts.5.c_fc.lora_A.weight", "1"},
      {"h.1.mlp.router.weight", ""},          {"h.0.mlp.c_fc.weight", ""}};
  for (const auto& [name, rank] : expected) {
    mortise_event event{};
    event.param = host.add_param(name, "matrix", {2, 2});
    ASSERT_EQ(plugin.notify("params.declared", event), MORTISE_OK) << host.error();
    EXPECT_EQ(host.places.contains(event.param) ? host.places[event.param] : "", rank) << name;
  }
}

TEST_F(Moe, RefusesExpertsThatRanksDoNotShareEvenly) {
  host.axes["experts"] = {0, 2};
  const Plugin plugin(host, MORTISE_PLUGIN_FILE);
  EXPECT_THROW(build.layer(plugin, "mlp", "h.1.mlp", {attr("width", 16), attr("inner", 64)}), PluginError);
  ASSERT_TRUE(host.blamed);
  EXPECT_EQ(host.blamed->key, "expert_parallel");
  EXPECT_EQ(host.blamed->why, "2 ranks do not share 3 experts evenly");
}

// Where the other rank is lost, its counts are whatever the memory had.
TEST_F(Moe, UsesNoCountsThatALostRankWasToSend) {
  host.ranks = 2;
  host.axes["experts"] = {0, 2};
  host.meet = [&](const FakeHost::Collective& c) {
    for (int64_t i = 0; i < 4; ++i) host.set_element(c.out, i, -1e18);
    host.has_lost = true;
  };
  host.op("aten::contiguous", [](auto args) { return mortise::Tensor::share(args[0].v.t); });
  const moe::Exchange exchange(4);
  const mortise::Tensor rows = mortise::empty(MORTISE_F32, {4, 8});
  try {
    exchange.computed(rows, {1, 1, 1, 1}, true, [](const mortise::Tensor& x, auto&) { return x; });
    ADD_FAILURE() << "it went on";
  } catch (const mortise::HostError& e) {
    EXPECT_EQ(e.status, MORTISE_E_LOST);
  }
  EXPECT_EQ(host.collectives.size(), 1U);
}

TEST_F(Moe, RefusesJitterWhereItCannotDrawIt) {
  const auto refusal = [&](double jitter, uint32_t device) {
    host.set("jitter", jitter);
    const Plugin plugin(host, MORTISE_PLUGIN_FILE);
    mortise_place place{};
    place.device = device;
    return FakeBuild::refusal(plugin, "mlp", place, {attr("width", 16), attr("inner", 64)});
  };
  const std::string refused = "its jitter was built for the CPU only\n  fix: jitter = 0";
  constexpr uint32_t kOther = 7;  // a device of a kind that nobody knows
  EXPECT_EQ(refusal(0.1, MORTISE_CPU), "");
  EXPECT_EQ(refusal(0.1, MORTISE_CUDA), MORTISE_HAS_CUDA ? "" : refused);
  EXPECT_EQ(refusal(0.1, kOther), refused);
  EXPECT_EQ(refusal(0, kOther), "");
}

}  // namespace
