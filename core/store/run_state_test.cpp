// Counts and plugins' states that lie are refused before anything is restored from them.
#include "core/store/run_state.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/base/diagnostic.hpp"

namespace mortise {
namespace {

using Json = nlohmann::json;

// A run with accumulation (four micro-batches a step), one skipped step, and a best that is older than the checkpoint.
RunState example() {
  RunState s;
  s.attempted = 13;
  s.applied = 12;
  s.samples = 208;
  s.tokens = 3328;
  s.cursor = 52;
  s.seed = UINT64_MAX;
  s.scale = 65536;
  s.loss_first = 5.53125;
  s.best = 4.25;
  s.best_step = 10;
  s.evaluated = 12;
  s.confirmed = 11;
  return s;
}

std::string refusal(const std::function<void()>& call, int exit, const char* code) {
  try {
    call();
    return "";
  } catch (const Failure& f) {
    EXPECT_EQ(f.diagnostic.exit, exit);
    EXPECT_EQ(f.diagnostic.code, code);
    EXPECT_NE(f.diagnostic.effect, "");
    return f.diagnostic.at + ": " + f.diagnostic.message;
  }
}

std::string refused(const std::string& text, int64_t step = 12) {
  return refusal([&] { parse_state(text, "state.json", step); }, kExitData, "other_state");
}

std::string refused_with(const char* key, const Json& value) {
  Json j = Json::parse(state_text(example()));
  j[key] = value;
  return refused(j.dump());
}

TEST(RunStateText, ComesBackAsItWas) {
  const RunState s = parse_state(state_text(example()), "state.json", 12);
  EXPECT_EQ(s.attempted, 13);
  EXPECT_EQ(s.applied, 12);
  EXPECT_EQ(s.samples, 208);
  EXPECT_EQ(s.tokens, 3328);
  EXPECT_EQ(s.cursor, 52);
  EXPECT_EQ(s.seed, UINT64_MAX);
  EXPECT_EQ(s.scale, 65536);
  EXPECT_EQ(s.loss_first, 5.53125);
  EXPECT_EQ(s.best, 4.25);
  EXPECT_EQ(s.best_step, 10);
  EXPECT_EQ(s.evaluated, 12);
  EXPECT_EQ(s.confirmed, 11);
  EXPECT_EQ(state_text(s), state_text(example()));
}

TEST(RunStateText, HasNothingForWhatIsNotKnownYet) {
  RunState s;
  s.seed = 7;
  EXPECT_EQ(Json::parse(state_text(s))["best"], Json());
  const RunState again = parse_state(state_text(s), "state.json", 0);
  EXPECT_TRUE(std::isnan(again.loss_first));
  EXPECT_TRUE(std::isnan(again.best));
  EXPECT_EQ(again.best_step, -1);
}

// Bit for bit: a run that goes on compares new losses with the best.
TEST(RunStateText, KeepsEveryBitOfANumber) {
  RunState s = example();
  s.scale = std::numeric_limits<double>::denorm_min();
  s.best = std::nextafter(1.0 / 3, 1);
  const RunState again = parse_state(state_text(s), "state.json", 12);
  EXPECT_EQ(again.scale, s.scale);
  EXPECT_EQ(again.best, s.best);
}

TEST(RunStateText, MissesNoKey) {
  const Json whole = Json::parse(state_text(example()));
  EXPECT_EQ(whole.size(), 15u);
  for (const auto& [key, value] : whole.items()) {
    Json j = whole;
    j.erase(key);
    // Checkpoints of before do not have these.
    if (key == "best_by" || key == "ranks" || key == "step_samples") continue;
    EXPECT_EQ(refused(j.dump()), "state.json: it has no `" + key + "`");
  }
}

TEST(RunStateText, IsOfTheCheckpointsStep) {
  EXPECT_EQ(refused(state_text(example()), 11), "state.json: it is of step 12, in a checkpoint of step 11");
  for (const int64_t applied : {3, 13}) {
    Json j = Json::parse(state_text(example()));
    j["applied"] = applied;
    EXPECT_NE(refused(j.dump()), "") << applied;
  }
}

TEST(RunStateText, HasCountsInTheirRange) {
  for (const char* key :
       {"attempted", "applied", "samples", "tokens", "cursor", "best_step", "evaluated", "confirmed"}) {
    for (const Json& lie : {Json(-5), Json(1'000'000'000'000'000'000), Json(UINT64_MAX), Json(INT64_MIN), Json(12.0),
                            Json("12"), Json(true), Json()})
      EXPECT_NE(refused_with(key, lie).find("`" + std::string(key) + "` is not a whole number from "),
                std::string::npos)
          << key << " " << lie;
    for (const Json& lie : {Json::array({12}), Json::object()}) EXPECT_NE(refused_with(key, lie), "") << key << lie;
  }
  for (const Json& lie : {Json(-1), Json(1.5), Json("1"), Json()}) EXPECT_NE(refused_with("seed", lie), "") << lie;
}

TEST(RunStateText, HasCountsThatAgree) {
  EXPECT_EQ(refused_with("attempted", 11), "state.json: 12 steps were applied, but only 11 attempted");
  EXPECT_EQ(refused_with("cursor", 12), "state.json: 13 steps were attempted, with 12 micro-batches");
  EXPECT_EQ(refused_with("best_step", 13), "state.json: `best_step` is later than the checkpoint");
  EXPECT_EQ(refused_with("best_step", -1), "state.json: `best` and `best_step` contradict each other");
  EXPECT_EQ(refused_with("best", Json()), "state.json: `best` and `best_step` contradict each other");
  EXPECT_EQ(refused_with("best_step", 12), "");
  EXPECT_EQ(refused_with("evaluated", 13), "state.json: `evaluated` is later than the checkpoint");
  EXPECT_EQ(refused_with("evaluated", 9), "state.json: `best_step` is later than the last evaluation");
  EXPECT_EQ(refused_with("confirmed", 13), "state.json: `confirmed` is later than the checkpoint");
  EXPECT_EQ(refused_with("confirmed", 12), "");
  EXPECT_EQ(refused_with("cursor", 13), "");
}

TEST(RunStateText, HasNumbersThatAreOnes) {
  for (const Json& lie : {Json(0), Json(-1.5), Json(), Json("1"), Json::array()})
    EXPECT_NE(refused_with("scale", lie), "") << lie;
  for (const char* key : {"loss_first", "best"})
    for (const Json& lie : {Json("nan"), Json(true), Json::object()}) EXPECT_NE(refused_with(key, lie), "") << lie;
  std::string text = state_text(example());
  text.replace(text.find("65536.0"), 7, "1e99999");
  EXPECT_NE(refused(text), "");
}

TEST(RunStateText, IsAnObjectAndNoTower) {
  for (const std::string& text : {std::string(), std::string("null"), std::string("[1]"), std::string("3"),
                                  state_text(example()).substr(0, 40), std::string("\0{}", 3)})
    EXPECT_NE(refused(text), "") << text;
  EXPECT_EQ(refused(std::string(60'000, '[')), "state.json: it is nested deeper than states are");
  std::string many = "{";
  for (int i = 0; i < 5000; ++i) many += "\"" + std::to_string(i) + "\":0,";
  EXPECT_EQ(refused(many + "\"x\":0}"), "state.json: it has more values than states have");
}

// A damaged checkpoint that verifies would be found only when somebody resumes from it.
TEST(RunStateText, IsNotWrittenIfItCouldNotBeRead) {
  RunState s = example();
  s.scale = INFINITY;
  EXPECT_EQ(refusal([&] { state_text(s); }, kExitData, "other_state"), "state.json: `scale` is not a finite number");
  s = example();
  s.cursor = -1;
  EXPECT_THROW(state_text(s), Failure);
}

TEST(PluginState, ComesBackAsItWas) {
  const PluginBlobs blobs = {
      {"", {0, ""}}, {"ünïcode", {UINT32_MAX, "\"quotes\" \\ \n \t 😀 \x7f"}}, {"zero", {1, std::string("a\0b", 3)}}};
  const PluginBlobs again = parse_blobs(blobs_text("loss.x", blobs), "plugins/loss.x.json");
  ASSERT_EQ(again.size(), 3u);
  for (const auto& [name, blob] : blobs) {
    EXPECT_EQ(again.at(name).version, blob.version) << name;
    EXPECT_EQ(again.at(name).text, blob.text) << name;
  }
  EXPECT_EQ(blobs_file("loss.x"), "plugins/loss.x.json");
}

// The plugin would get other bytes back than it gave.
TEST(PluginState, IsRefusedIfItIsNotUtf8) {
  for (const char* text : {"\xff", "half \xc3", "too long \xc0\x80", "a pair \xed\xa0\x80"})
    EXPECT_EQ(refusal([&] { blobs_text("loss.x", {{"counts", {1, text}}}); }, kExitPlugin, "plugin_state"),
              "plugin loss.x: the state `counts` that it keeps is not UTF-8");
  EXPECT_NE(refusal([&] { blobs_text("loss.x", {{"\xff", {1, ""}}}); }, kExitPlugin, "plugin_state"), "");
}

TEST(PluginState, IsNotWrittenIfItCouldNotBeRead) {
  PluginBlobs many;
  for (int i = 0; i < 5000; ++i) many[std::to_string(i)] = {};
  EXPECT_NE(refusal([&] { blobs_text("loss.x", many); }, kExitPlugin, "plugin_state"), "");
  many.erase(many.begin(), std::next(many.begin(), 5000 - 4096));
  EXPECT_EQ(parse_blobs(blobs_text("loss.x", many), "x").size(), 4096u);
  EXPECT_NE(
      refusal([&] { blobs_text("loss.x", {{"a", {1, std::string(kMaxBlobs, 'x')}}}); }, kExitPlugin, "plugin_state"),
      "");
}

TEST(PluginState, HasTheTypesThatWereWritten) {
  const auto refused_blob = [](const char* text) {
    return refusal([&] { parse_blobs(text, "plugins/loss.x.json"); }, kExitData, "other_state");
  };
  for (const char* text :
       {"", "[]", "{", R"({"a": 3})", R"({"a": null})", R"({"a": {}})", R"({"a": {"version": 1}})",
        R"({"a": {"text": ""}})", R"({"a": {"version": "1", "text": ""}})", R"({"a": {"version": -1, "text": ""}})",
        R"({"a": {"version": 1.5, "text": ""}})", R"({"a": {"version": 4294967296, "text": ""}})",
        R"({"a": {"version": 1, "text": 5}})", R"({"a": {"version": 1, "text": ["x"]}})"})
    EXPECT_NE(refused_blob(text), "") << text;
  EXPECT_EQ(refused_blob(R"({"a\u001b": {"version": 1, "text": null}})"),
            R"(plugins/loss.x.json: `a\x1b` has no `text`)");
  EXPECT_EQ(refused_blob(R"({"a": {"version": 1, "text": "x"}})"), "");
}

}  // namespace
}  // namespace mortise
