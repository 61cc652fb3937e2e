// A real plugin, started: what it attached is found, and is told of events.
#include "core/abi/instances.hpp"

#include <gtest/gtest.h>

#include "core/abi/listeners.hpp"

namespace mortise {
namespace {

struct Started : ::testing::Test {
  Started() {
    Report report;
    const std::string library = MORTISE_STRIDED;
    info = read_plugin_info(library.substr(0, library.size() - 3) + ".toml", "test.strided", report).value();
    info.library = library;
    plan.members = {{&info, nullptr}};
    plan.at.resize(plan.points.size());
    for (const Point p : {kStepBegin, kStepCommit, kStepEnd}) plan.at[p].listeners.emplace_back().member = 0;
  }
  PluginInfo info;
  Plan plan;
  Edge edge{plan.points, 1};
};

// The list is as wide as the plugin says; whoever walks by the host's own size reads the second from the middle of the
// first.
TEST_F(Started, AttachmentsStandAtThePluginsStride) {
  Instances instances(edge, plan, "");
  ASSERT_EQ(instances.start(0).attachments.size(), 3u);
  const Listeners listeners(instances);
  const int& times = *static_cast<int*>(instances.start(0).self);
  for (const Point p : {kStepBegin, kStepCommit, kStepEnd}) listeners.notify(p, {});
  EXPECT_EQ(times, 3);
  listeners.notify(kRunEnd, {});
  EXPECT_EQ(times, 3) << "it does not listen there";
  EXPECT_THROW(instances.attachment(0, "step.end", "wrap"), PluginError);
  EXPECT_THROW(instances.attachment(0, "record", "listen"), PluginError);
}

// What plugin.toml does not say was not planned.
TEST_F(Started, AttachmentsThatPluginTomlDoesNotSayAreRefused) {
  info.listens.pop_back();
  Instances instances(edge, plan, "");
  try {
    instances.start(0);
    ADD_FAILURE() << "it was started";
  } catch (const PluginError& e) {
    EXPECT_EQ(e.text(), "test.strided attaches to `step.end` in a way that its plugin.toml does not say");
  }
}

}  // namespace
}  // namespace mortise
