// The table of verbs against itself: what a verb's help says is what the command line takes.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "core/base/text.hpp"
#include "core/cli/common.hpp"

namespace mortise::cli {
namespace {

size_t words_of(const std::string& usage) {
  size_t most = 0;
  for (std::string rest = usage; !rest.empty();) {  // "list [FAMILY] | info ID" are two ways
    const size_t end = std::min(rest.find(" | "), rest.size());
    const std::string way = rest.substr(0, end);
    most = std::max(most, static_cast<size_t>(std::ranges::count(way, ' ')) + 1);
    rest = rest.substr(std::min(end + 3, rest.size()));
  }
  return most;
}

TEST(Verbs, TakeAsManyWordsAsTheirUsageHas) {
  for (const Verb& v : verbs()) EXPECT_EQ(v.most_positional, words_of(v.usage)) << v.name << " " << v.usage;
}

TEST(Verbs, HaveAnExampleOfTheirOwn) {
  for (const Verb& v : verbs()) EXPECT_TRUE(v.example.starts_with("mortise " + v.name)) << v.name << ": " << v.example;
}

// Those that read a manifest. One that takes layers has their flags already.
TEST(Verbs, TakeLayersWhereTheyReadAManifest) {
  std::set<std::string> all;
  for (const Verb& v : verbs()) {
    if (v.takes_layers) all.insert(v.name);
    for (const Flag& f : v.flags)
      EXPECT_FALSE(v.takes_layers && std::ranges::count(layer_flags(), f.name, &Flag::name)) << v.name << " " << f.name;
  }
  EXPECT_EQ(all, (std::set<std::string>{"bench", "data", "eval", "plan", "resume", "sample", "train"}));
}

TEST(Verbs, HaveSwitchesThatTakeNoValue) {
  std::set<std::string> all;
  for (const Verb& v : verbs())
    for (const Flag& f : v.flags)
      if (f.value.empty()) all.insert(f.name);
  for (const Flag& f : global_flags())
    if (f.value.empty()) all.insert(f.name);
  EXPECT_EQ(all, (std::set<std::string>{"--anew", "--help", "--json", "--keys", "--list", "--markdown", "--resume",
                                        "--static", "--strict", "--weights", "-h", "-q"}));
}

}  // namespace
}  // namespace mortise::cli
