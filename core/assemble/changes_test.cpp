// What a difference between two manifests means for a run that is to go on.
#include "core/assemble/changes.hpp"

#include <gtest/gtest.h>

#include "core/manifest/testing.hpp"

namespace mortise {
namespace {

class Changes : public ManifestTest {
 protected:
  void SetUp() override {
    ManifestTest::SetUp();
    for (const auto& [id, schema] : catalogue) infos[id].schema = schema;
  }
  Manifest manifest(const std::string& text) {
    Manifest m = read(text);
    EXPECT_EQ(errors, "");
    return m;
  }
  std::vector<std::string> between(const std::string& was, const std::string& is) {
    const Manifest a = manifest(was), b = manifest(is);
    std::vector<std::string> lines;
    for (const Change& c : changes_between(a, b, infos))
      lines.push_back(c.change + " " + c.key + ": " + c.was + " -> " + c.is);
    return lines;
  }
  std::map<std::string, PluginInfo> infos;
};

using Lines = std::vector<std::string>;

TEST_F(Changes, AreNoneWithinOneManifest) {
  const std::string text =
      "[optimizer]\nlr = 1e-3\n[optimizer.adamw]\n[parameters.head]\nwhere = \"head.*\"\nlr_scale = 2.0\n";
  EXPECT_EQ(between(text, text), Lines{});
}

TEST_F(Changes, HaveTheClassOfTheirKeyTheGravestFirst) {
  EXPECT_EQ(
      between("[optimizer]\nlr = 1e-3\n[log]\nevery = 10\n[data]\nshuffle = true\n",
              "[optimizer]\nlr = 3e-4\n[log]\nevery = 50\n[data]\nshuffle = false\n"),
      (Lines{"fixed data.shuffle: true -> false", "numeric optimizer.lr: 0.001 -> 3e-4", "free log.every: 10 -> 50"}));
}

TEST_F(Changes, OfAPluginThatComesOrGoesAreOne) {
  EXPECT_EQ(between("[optimizer.adamw]\n", "[optimizer.sgd]\n"),
            (Lines{"fixed optimizer.adamw: on -> off", "fixed optimizer.sgd: off -> on"}));
}

TEST_F(Changes, OfWhoOnlyListensAreFree) {
  infos["schedule.constant"].schema.provides.clear();
  infos["schedule.constant"].listens.push_back({});
  EXPECT_EQ(between("", "[schedule.constant]\n"), (Lines{"free schedule.constant: off -> on"}));
  infos["schedule.constant"].listens[0].writes = {"micros"};
  EXPECT_EQ(between("", "[schedule.constant]\n"), (Lines{"fixed schedule.constant: off -> on"}));
}

// What it wraps, it may change, whatever it listens to.
TEST_F(Changes, OfWhoWrapsAreFixed) {
  infos["schedule.constant"].schema.provides.clear();
  infos["schedule.constant"].wraps.push_back({});
  EXPECT_EQ(between("", "[schedule.constant]\n"), (Lines{"fixed schedule.constant: off -> on"}));
}

TEST_F(Changes, OfPlacesAndRulesAreFound) {
  EXPECT_EQ(
      between("[parameters.head]\nwhere = \"head.*\"\nlr = 1.0\n", "[parameters.head]\nwhere = \"h.*\"\nlr = 2.0\n")
          .size(),
      2u);
  EXPECT_EQ(between("[parameters.head]\nwhere = \"head.*\"\nlr = 1.0\n", "").size(), 2u);
}

// What could not be read back is not saved.
TEST_F(Changes, OfWhatIsFixedAreBounded) {
  EXPECT_LE(fixed_text({{"model.gpt", "on"}, {"key", std::string(60'000, 'x')}}).size(), size_t{64} << 10);
  try {
    fixed_text({{"key", std::string(size_t{64} << 10, 'x')}});
    FAIL();
  } catch (const Failure& f) {
    EXPECT_EQ(f.diagnostic.code, "too_large");
  }
}

TEST_F(Changes, AreShownWithBothPositions) {
  const Manifest a = manifest("[optimizer]\nlr = 1e-3\n"),
                 b = manifest("\n[optimizer]\nlr = 3e-4\n[log]\nevery = 50\n");
  EXPECT_EQ(
      lines_of(changes_between(a, b, infos)),
      (Lines{"numeric  optimizer.lr  0.001 -> 3e-4     run.toml:3:6 (was run.toml:2:6)",
             "free     log.every     10 -> 50     run.toml:5:9 (was default of log.every)     (would be taken)"}));
}

}  // namespace
}  // namespace mortise
