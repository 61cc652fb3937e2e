// A real plugin, started: what it attached is found, and is told of events.
#include "core/abi/instances.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <tuple>
#include <utility>

#include "core/abi/error.hpp"
#include "core/abi/listeners.hpp"
#include "core/abi/lost_device.hpp"

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
  const Listeners listeners(instances, World());
  const int& times = *static_cast<int*>(instances.start(0).self);
  for (const Point p : {kStepBegin, kStepCommit, kStepEnd}) listeners.notify(p, {});
  EXPECT_EQ(times, 3);
  listeners.notify(kRunEnd, {});
  EXPECT_EQ(times, 3) << "it does not listen there";
  EXPECT_THROW(instances.attachment(0, "step.end", "wrap"), PluginError);
  EXPECT_THROW(instances.attachment(0, "record", "listen"), PluginError);
}

// [ranks] speaks = "first"
TEST_F(Started, OfSeveralRanksOneMaySpeakForAll) {
  Instances instances(edge, plan, "");
  const int& times = *static_cast<int*>(instances.start(0).self);
  World second;
  second.rank = 1;
  second.size = 2;
  Listeners(instances, second).notify(kStepEnd, {});
  EXPECT_EQ(times, 1);
  info.facts["ranks"]["speaks"].data = std::string("first");
  Listeners(instances, second).notify(kStepEnd, {});
  EXPECT_EQ(times, 1) << "it is silent";
  Listeners(instances, World()).notify(kStepEnd, {});
  EXPECT_EQ(times, 2);
}

struct Hearer {
  std::vector<uint32_t> heard;
  mortise_status answer = MORTISE_OK;
  static mortise_status hear(void* self, const mortise_event* e) noexcept {
    static_cast<Hearer*>(self)->heard.push_back(e->point);
    return static_cast<Hearer*>(self)->answer;
  }
};

// Each is told which event it is; after one that failed nobody is.
TEST_F(Started, ListenersAreToldOfThePointUntilOneFails) {
  Hearer first, second;
  Instance one, two;
  one.member = two.member = &plan.members[0];
  one.self = &first;
  two.self = &second;
  Listeners listeners(plan.points);
  for (Instance* i : {&one, &two}) listeners.add(kStepEnd, Hearer::hear, *i);
  listeners.notify(kStepEnd, {});
  EXPECT_EQ(first.heard, std::vector<uint32_t>{kStepEnd});
  EXPECT_EQ(second.heard, std::vector<uint32_t>{kStepEnd});
  first.answer = MORTISE_E_DATA;
  EXPECT_THROW(listeners.notify(kStepEnd, {}), PluginError);
  EXPECT_EQ(second.heard.size(), 1u);
}

// mortise::Error(status, what, fix) of the C++ wrapper.
TEST_F(Started, AFixInATextIsTheFixOfTheDiagnostic) {
  Instances instances(edge, plan, "");
  instances.start(0);
  const Diagnostic d = instances.diagnose(PluginError(
      MORTISE_E_DATA, "line 3 is no number\n  fix: write numbers\nin plugin test.strided, get", "test.strided"));
  EXPECT_EQ(d.message, "line 3 is no number");
  EXPECT_EQ(d.fixes, std::vector<std::string>{"write numbers"});
  EXPECT_EQ(d.at, "in plugin test.strided, get");
  EXPECT_EQ(d.exit, kExitData);
}

// A refused value is told with its place, of the plugin that refused it and of no other.
TEST_F(Started, WhatDoesNotRepeatItsBitsIsTheManifestsMistake) {
  Instances instances(edge, plan, "");
  const std::string text = "`sum` of LibTorch" + std::string(kNotRepeatable) + "\n  fix: another\nin plugin test.other";
  const Diagnostic d = instances.diagnose(PluginError(MORTISE_E_OPERATOR, text, "test.other"));
  EXPECT_EQ(d.code, "not_repeatable");
  EXPECT_EQ(d.message, "`sum` of LibTorch does not give the same bits in every run");
  EXPECT_EQ(d.plugin, "test.other");
  EXPECT_EQ(d.exit, kExitUsage);
}

// Who hears of it first need not know what it is.
TEST_F(Started, AnErrorOfWhateverKindIsThatOfALostDevice) {
  Instances instances(edge, plan, "");
  const auto before = std::exchange(lost_device, [] { return std::string("the GPU says: it is gone"); });
  const Diagnostic d = instances.diagnose(
      PluginError(MORTISE_E_PLUGIN, "no more\n  fix: stop\nin plugin test.other, step", "test.other"));
  const Diagnostic own = instances.diagnose(PluginError(MORTISE_E_MEMORY, "the GPU says: it is gone"));
  lost_device = before;
  EXPECT_EQ(std::tuple(d.code, d.exit, d.plugin), std::tuple("device_lost", kExitBug, "test.other"));
  EXPECT_EQ(d.message, "the GPU says: it is gone");
  EXPECT_EQ(d.at, "no more; in plugin test.other, step");
  ASSERT_EQ(d.fixes.size(), 1u);
  EXPECT_EQ(d.fixes[0].find("which call it was: "), 0u);
  EXPECT_EQ(std::tuple(own.code, own.exit, own.at), std::tuple("device_lost", kExitBug, ""));
}

TEST_F(Started, ALackOfMemorySaysWhatTakesLess) {
  Instances instances(edge, plan, "");
  const Diagnostic d = instances.diagnose(PluginError(MORTISE_E_MEMORY, "not enough memory on the GPU"));
  EXPECT_EQ(d.exit, kExitUnavailable);
  ASSERT_EQ(d.fixes.size(), 1u);
  EXPECT_NE(d.fixes[0].find("data.micro_batch_size"), std::string::npos);
  EXPECT_EQ(instances.diagnose(PluginError(MORTISE_E_MEMORY, "no\n  fix: workers = 0")).fixes,
            std::vector<std::string>{"workers = 0"});
}

TEST_F(Started, ARefusalIsOfThePluginThatFailed) {
  Instances instances(edge, plan, "");
  PluginHost& host = *instances.start(0).host;
  host.blamed = true;
  host.blame = mistake("refused_value", "too high", {}, "");
  EXPECT_EQ(instances.diagnose(PluginError(MORTISE_E_CONFIG, "no", "test.strided")).message, "too high");
  EXPECT_EQ(instances.diagnose(PluginError(MORTISE_E_CONFIG, "no", "test.other")).message, "no");
  EXPECT_EQ(instances.diagnose(PluginError(MORTISE_E_CONFIG, "no", "test.other")).exit, kExitUsage);
  EXPECT_EQ(instances.diagnose(PluginError(MORTISE_E_DATA, "no", "test.strided")).message, "no");
}

TEST(Status, IsNamedWhereThereIsNoText) {
  clear_error();
  EXPECT_EQ(take_error(MORTISE_E_PLUGIN), "returned status 9 (MORTISE_E_PLUGIN) and no text");
  EXPECT_EQ(take_error(MORTISE_E_INTERNAL), "returned status 11 (MORTISE_E_INTERNAL) and no text");
  EXPECT_EQ(take_error(77), "returned status 77 and no text");
}

// C has no exceptions: a helper that read what is not there gave 0, and `create` went on.
TEST_F(Started, AKeyThatIsReadWronglyRefusesThePlugin) {
  KeySchema key;
  key.type = "string";
  key.default_value.data = std::string("0.5");
  info.schema.config.keys["text"] = key;
  key.type = "int";
  key.default_value.data = int64_t{3};
  info.schema.config.keys["whole"] = key;
  const auto reading = [&](const char* name) -> std::string {
    setenv("STRIDED_READS", name, 1);
    try {
      Instances(edge, plan, "").start(0);
    } catch (const PluginError& e) {
      unsetenv("STRIDED_READS");
      EXPECT_EQ(e.status(), MORTISE_E_PLUGIN);
      return e.text();
    }
    unsetenv("STRIDED_READS");
    return "";
  };
  EXPECT_EQ(reading("whole"), "") << "is converted";
  EXPECT_EQ(reading("nokey"),
            "`nokey` is read as a float, and the host has no such key: is it in [config] of plugin.toml?\n"
            "in plugin test.strided, create");
  EXPECT_EQ(reading("text"),
            "`text` is read as a float, and plugin.toml says otherwise\nin plugin test.strided, create");
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
