// No exception leaves a plugin that is written with the C++ wrapper: each becomes a status with its text.
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>

#include "mortise/testing/fake_call.hpp"

namespace {
using namespace mortise;
using namespace mortise::testing;

struct Throwing : ::testing::Test {
  Throwing() { host.set("where", "nowhere").set("what", "exception"); }
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
}  // namespace
