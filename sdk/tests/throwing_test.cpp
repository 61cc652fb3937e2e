// No exception leaves a plugin that is written with the C++ wrapper: each becomes a status with its text.
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>

#include "mortise/cpp/model.hpp"
#include "mortise/testing/fake_call.hpp"

namespace {
using namespace mortise;
using namespace mortise::testing;

struct Throwing : ::testing::Test {
  Throwing() { host.set("where", "nowhere").set("what", "exception").set("rate", 0.5); }
  // The text and status that the library gives when `where` throws `what`, as the host hears them.
  std::pair<mortise_status, std::string> thrown(const std::string& where, const std::string& what = "exception") {
    host.set("where", where).set("what", what);
    try {
      Plugin plugin(host, where == "attachments" ? fresh() : THROWING);
      const mortise_status s = call(plugin, where);
      const std::string text = host.error();
      host.set("where", "nowhere");
      return {s, text};
    } catch (const PluginError& e) {
      host.set("where", "nowhere");
      return {e.status, e.what()};
    }
  }
  // The library as a file that was not loaded yet: one that was knows its attachments.
  static std::string fresh() {
    static int n = 0;
    const std::string file =
        ::testing::TempDir() + "throwing." + std::to_string(::getpid()) + "." + std::to_string(n++);
    std::filesystem::copy_file(THROWING, file);
    return file;
  }
  mortise_status call(Plugin& plugin, const std::string& where) {
    FakeCall frame({}, 0);
    double factor = 0;
    if (where == "object") return plugin.object<mortise_schedule>("schedule").factor(plugin.self(), 0, &factor);
    if (where == "call") return plugin.call("batch", frame);
    if (where == "wrap") return chain.wrap(plugin, "block", frame);
    return plugin.notify("record", FakeRecord("step"));
  }
  void TearDown() override {
    for (const auto& e : std::filesystem::directory_iterator(::testing::TempDir()))
      if (e.path().filename().string().starts_with("throwing." + std::to_string(::getpid()))) remove(e.path());
  }
  using Outcome = std::pair<mortise_status, std::string>;
  FakeHost host;
  FakeChain chain{host, [](mortise_call&) { return mortise_status{MORTISE_OK}; }};
};

TEST_F(Throwing, EveryFunctionReturnsAStatusAndKeepsTheText) {
  for (const char* where : {"create", "attachments", "object", "call", "wrap", "listen", "parallel"})
    EXPECT_EQ(thrown(where), Outcome(MORTISE_E_PLUGIN, std::string("out of luck in ") + where));
  EXPECT_EQ(host.log.size(), 0U);
}

TEST_F(Throwing, EveryKindOfExceptionHasItsStatus) {
  for (const char* where : {"create", "attachments", "listen", "parallel"}) {
    EXPECT_EQ(thrown(where, "number"), Outcome(MORTISE_E_PLUGIN, "an exception of an unknown type"));
    for (const auto& [what, type] : {std::pair{"type", "a string"}, {"int", "an int"}})
      EXPECT_EQ(thrown(where, what), Outcome(MORTISE_E_PLUGIN, std::string("`rate` is read as ") + type +
                                                                   ", and plugin.toml says otherwise"));
    EXPECT_EQ(thrown(where, "memory"), Outcome(MORTISE_E_MEMORY, "out of memory"));
    EXPECT_EQ(thrown(where, "error"),
              Outcome(MORTISE_E_DATA, std::string("bad luck in ") + where + "\n  fix: another day"));
  }
}

TEST_F(Throwing, WhatAnotherTimeSucceedsIsNotRememberedAsAFailure) {
  const std::string file = fresh();
  host.set("where", "attachments");
  EXPECT_THROW(Plugin(host, file), PluginError);
  host.set("where", "nowhere");
  EXPECT_EQ(Plugin(host, file).attachments().size(), 4U);
}

TEST_F(Throwing, ADestructorThatMayThrowIsLogged) {
  {
    Plugin plugin(host, THROWING);
    host.set("where", "destroy");
  }
  ASSERT_EQ(host.log.size(), 1U);
  EXPECT_EQ(host.log[0].level, static_cast<uint32_t>(MORTISE_LOG_ERROR));
  EXPECT_EQ(host.log[0].text, "an exception left the plugin's destructor: out of luck in destroy");
}

// `attr("eps", "1e-5")` is a text: its pointer is no number.
TEST(Attributes, AreReadAsWhatTheyAre) {
  const mortise_attr list[] = {attr("eps", "1e-5"), attr("width", 64), attr("scale", 0.5), attr("causal", true)};
  mortise_layer_spec spec{};
  spec.attrs = list;
  spec.n_attrs = std::size(list);
  const Attrs attrs(&spec);
  EXPECT_EQ(attrs.text("eps", ""), "1e-5");
  EXPECT_EQ(attrs.integer("width"), 64);
  EXPECT_EQ(attrs.number("width", 0), 64.0);
  EXPECT_EQ(attrs.number("scale", 0), 0.5);
  EXPECT_TRUE(attrs.flag("causal", false));
  EXPECT_EQ(attrs.number("missing", 3), 3.0);
  EXPECT_EQ(attrs.integer("missing", 3), 3);
  EXPECT_EQ(attrs.param("missing"), nullptr);
  EXPECT_THROW(attrs.number("eps", 0), Error);
  EXPECT_THROW(attrs.integer("eps"), Error);
  EXPECT_THROW(attrs.integer("scale", 1), Error);
  EXPECT_THROW(attrs.flag("eps", false), Error);
  EXPECT_THROW(attrs.flag("scale", false), Error);
  EXPECT_THROW(attrs.text("width", ""), Error);
  EXPECT_THROW(attrs.param("width"), Error);
}
}  // namespace
