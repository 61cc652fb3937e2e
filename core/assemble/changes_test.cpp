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

TEST_F(Changes, OfWhoSaysThatNothingDependsOnItAreFree) {
  infos["schedule.constant"].schema.provides.clear();
  infos["schedule.constant"].wraps.push_back({});
  infos["schedule.constant"].change = "free";
  EXPECT_EQ(between("[schedule.constant]\n", ""), (Lines{"free schedule.constant: on -> off"}));
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

// Who may take a plugin's place changes nothing until it does, and then who is on says it.
TEST_F(Changes, OfAFallbackAreFree) {
  EXPECT_EQ(between("[schedule.constant]\n", "[schedule.constant]\nfallback = [\"schedule.cosine\"]\n"),
            (Lines{"free schedule.constant.fallback: none -> schedule.cosine"}));
}

TEST_F(Changes, OfWhereAndModesAreFixed) {
  for (const std::string key : {"where = \"h.*\"", "modes = [\"eval\"]"}) {
    const Lines lines = between("[schedule.constant]\n", "[schedule.constant]\n" + key + "\n");
    ASSERT_EQ(lines.size(), 1u) << key;
    EXPECT_TRUE(lines[0].starts_with("fixed schedule.constant." + key.substr(0, key.find(' ')) + ": ")) << lines[0];
  }
  const Lines lines =
      between("[parameters.head]\nwhere = \"head.*\"\nlr = 1.0\n", "[parameters.head]\nwhere = \"h.*\"\nlr = 1.0\n");
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_TRUE(lines[0].starts_with("fixed parameters.head.where: ")) << lines[0];
}

TEST_F(Changes, OfKeysThatComeAndGoSayOffOfPluginsAlone) {
  EXPECT_EQ(between("[parameters.head]\nwhere = \"head.*\"\nlr_scale = 2.0\n",
                    "[parameters.head]\nwhere = \"head.*\"\nlr = 2.0\n"),
            (Lines{"numeric parameters.head.lr_scale: 2.0 -> none", "numeric parameters.head.lr: none -> 2.0"}));
}

TEST_F(Changes, OfTheNameOfARunAreNone) {
  EXPECT_EQ(between("[run]\nname = \"a\"\ndir = \"a\"\n", "[run]\nname = \"b\"\ndir = \"b\"\n"), Lines{});
}

TEST_F(Changes, OfAPluginThatIsOffAreNone) {
  EXPECT_EQ(between("[schedule.cosine]\nenabled = false\n", "[schedule.cosine]\nenabled = false\nfinal = 0.5\n"),
            Lines{});
}

// ---- what is fixed for a run, beside what a checkpoint says ----

TEST_F(Changes, FixedIsWhatNoCheckpointMayHaveOtherwise) {
  const Fixed fixed = fixed_of(manifest("[run]\nname = \"a\"\n[optimizer]\nlr = 1e-3\n[log]\nevery = 10\n"
                                        "[data]\nshuffle = true\n[data.text]\npath = [\"a.txt\"]\n[model.bert]\n"
                                        "layers = 3\n[schedule.cosine]\nenabled = false\n"),
                               infos);
  EXPECT_EQ(fixed.at("data.shuffle"), "true");
  EXPECT_EQ(fixed.at("data.text"), "on");
  EXPECT_EQ(fixed.at("model.bert.layers"), "3");
  for (const char* key : {"run.name", "run.dir", "optimizer.lr", "log.every", "data.text.path", "schedule.cosine"})
    EXPECT_FALSE(fixed.contains(key)) << key;
}

class Checkpoint : public Changes {
 protected:
  // What is wrong with a checkpoint that says `text`; "" if it is taken.
  std::string refusal(const Fixed& is, const std::string& text) {
    file("checkpoint/fixed.json", text);
    return refusal(is);
  }
  std::string refusal(const Fixed& is) {
    try {
      check_fixed(is, {(folder / "checkpoint").string(), 3});
    } catch (const Failure& f) {
      EXPECT_EQ(f.diagnostic.code, "other_state");
      EXPECT_EQ(f.diagnostic.exit, kExitData);
      EXPECT_EQ(f.diagnostic.effect, "nothing was restored");
      EXPECT_EQ(f.diagnostic.at, (folder / "checkpoint/fixed.json").string());
      return f.diagnostic.message;
    }
    return "";
  }
  const Fixed was = {{"data.shuffle", "true"}, {"model.bert", "on"}, {"model.bert.layers", "3"}};
};

TEST_F(Checkpoint, OfTheSameRunIsTaken) {
  EXPECT_EQ(refusal(was, fixed_text(was)), "");
  file("checkpoint/other.json", "");
  std::filesystem::remove(folder / "checkpoint/fixed.json");
  EXPECT_EQ(refusal(was), "") << "one of before it was recorded";
}

TEST_F(Checkpoint, OfAnotherValueIsRefused) {
  Fixed is = was;
  is["model.bert.layers"] = "4";
  EXPECT_EQ(refusal(is, fixed_text(was)),
            "it is of another run: `model.bert.layers` is \"3\" there, and \"4\" in this run");
}

TEST_F(Checkpoint, OfAnotherPluginIsRefusedWhicheverHasIt) {
  Fixed more = was;
  more["data.text"] = "on";
  EXPECT_EQ(refusal(was, fixed_text(more)),
            "it is of another run: `data.text` is \"on\" there, and \"off\" in this run");
  EXPECT_EQ(refusal(more, fixed_text(was)),
            "it is of another run: `data.text` is \"off\" there, and \"on\" in this run");
}

TEST_F(Checkpoint, OfAPluginThatMayComeAndGoIsTaken) {
  infos["loader.x"].change = "free";
  const Fixed is = fixed_of({}, infos), was_on = {{"loader.x", "on"}};
  EXPECT_EQ(refusal(is, fixed_text({})), "");
  EXPECT_EQ(refusal(is, fixed_text(was_on)), "") << "saved before its plugin.toml said so";
  EXPECT_EQ(refusal(was_on, fixed_text(is)), "");
}

// A key that is only in one of the two came with another version of Mortise or of the plugin.
TEST_F(Checkpoint, OfAKeyThatOnlyOneOfTheTwoKnowsIsTaken) {
  Fixed more = was;
  more["model.bert.heads"] = "2";
  EXPECT_EQ(refusal(was, fixed_text(more)), "");
  EXPECT_EQ(refusal(more, fixed_text(was)), "");
}

TEST_F(Checkpoint, ThatSaysNothingReadableIsRefused) {
  EXPECT_EQ(refusal(was, "[]"), "it is no JSON object");
  EXPECT_EQ(refusal(was, "{"), "it is no JSON object");
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
