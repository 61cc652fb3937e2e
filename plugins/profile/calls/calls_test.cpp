#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "mortise/testing/fake_call.hpp"

using namespace mortise::testing;

namespace {

void spend(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

// `forward` calls two layers of one point, each longer than what it does by itself.
struct Calls : testing::Test {
  mortise_status layer(const char* path) {
    FakeChain chain(host, [&](mortise_call&) { return spend(8), layer_status; });
    chain.provider = "operators.own";
    FakeCall call({}, 0);
    call.path = mortise::str(path);
    chains.push_back(&chain);
    return chain.wrap(*plugin, "linear", call);
  }
  mortise_status forward(uint32_t mode = MORTISE_TRAIN) {
    FakeChain chain(host, [&](mortise_call&) { return layer("h.0.fc"); });
    FakeCall call({}, 0);
    call.mode = mode;
    return chain.wrap(*plugin, "forward", call);
  }
  std::string column(const std::string& name) {
    const mortise_record* added = host.columns.get();
    for (uint32_t i = 0; i < added->n_columns; ++i)
      if (mortise::view(added->columns[i].name) == name) return std::string(mortise::view(added->columns[i].value.v.s));
    return "";
  }
  double number(const std::string& name) {
    const mortise_record* added = host.columns.get();
    for (uint32_t i = 0; i < added->n_columns; ++i)
      if (mortise::view(added->columns[i].name) == name) return added->columns[i].value.v.f;
    return -1;
  }
  std::string written(const std::filesystem::path& dir) {
    std::ifstream in(dir / "profile.txt");
    return {std::istreambuf_iterator<char>(in), {}};
  }
  FakeHost host;
  FakeChain none{host, [](mortise_call&) { return MORTISE_OK; }};  // mortise.call/0 is there when the plugin is made
  std::optional<Plugin> plugin{std::in_place, host, MORTISE_PLUGIN_FILE};
  std::vector<FakeChain*> chains;
  mortise_status layer_status = MORTISE_OK;
};

TEST_F(Calls, SayWhereTheTimeWent) {
  ASSERT_EQ(forward(), MORTISE_OK);
  plugin->notify("run.end", FakeRecord("end"));
  EXPECT_TRUE(column("profile").starts_with("linear ")) << column("profile") << ": own time, without what is inside";
}

TEST_F(Calls, AreColumnsOfStepsThatAreDue) {
  for (int i = 0; i < 2; ++i) forward();
  plugin->notify("record", FakeRecord("step").add("due", 0));
  EXPECT_FALSE(host.columns.has("forward_ms"));
  plugin->notify("record", FakeRecord("step").add("due", 1));
  EXPECT_GE(number("forward_ms"), 8) << "two calls in two steps";
  EXPECT_LT(number("forward_ms"), 1000);
  EXPECT_FALSE(host.columns.has("linear_ms")) << "layers are in the table";
  plugin->notify("record", FakeRecord("step").add("due", 1));
  EXPECT_FALSE(host.columns.has("forward_ms")) << "none since";
}

TEST_F(Calls, OfAnEvaluationAreNoTimeOfASteps) {
  forward(MORTISE_EVAL);
  plugin->notify("record", FakeRecord("step").add("due", 1));
  EXPECT_FALSE(host.columns.has("forward_ms"));
}

TEST_F(Calls, AreATableByPointLayerAndProvider) {
  const std::filesystem::path dir =
      std::filesystem::path(testing::TempDir()) / ("profile_calls." + std::to_string(getpid()));
  std::filesystem::create_directories(dir);
  plugin->notify("record", FakeRecord("run").add("dir", std::string_view(dir.string())));
  forward();
  plugin->notify("run.end");
  const std::string text = written(dir);
  EXPECT_NE(text.find("\nlinear  operators.own  train  "), text.npos) << text;
  EXPECT_NE(text.find("\nh.0.fc  linear  operators.own  train  "), text.npos) << text;
  EXPECT_NE(text.find("\n-  forward  core  train  "), text.npos) << text;
  std::filesystem::remove_all(dir);
}

TEST_F(Calls, AreNotWrittenWithoutARunDirectory) {
  forward();
  EXPECT_EQ(plugin->notify("run.end"), MORTISE_OK);
  EXPECT_TRUE(host.log.empty());
}

TEST_F(Calls, ThatFailPassTheFailureOn) {
  layer_status = MORTISE_E_DATA;
  EXPECT_EQ(forward(), MORTISE_E_DATA);
}

}  // namespace
