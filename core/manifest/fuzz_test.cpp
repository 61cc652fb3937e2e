// Whatever the bytes: a manifest or diagnostics, never a crash. Meant to run under the sanitizers; the seeds are fixed.
#include <random>

#include "core/manifest/testing.hpp"

namespace mortise {
namespace {

const char* const kWhole = R"(include = ["mortise:small"]
[run]
length = "10 B tokens"
tags = ["a", 'b']
[optimizer]
lr = 3e-4
[optimizer.adamw]
betas = [0.9, 0.95]
where = { match = ["role:matrix", "x.*"], except = "y", every = 2, from = 1 }
[model.bert]
preset = "large"
dropout = 0.1
[data.text]
path = ["${HOME:-/x}/*.none", "~/y"]
[parameters.no_decay]
where = ["role:vector", "role:norm"]
[log.wandb]
key_env = """WANDB"""
[device.cuda]
fallback = ["device.cpu"]
)";

class Fuzz : public ManifestTest {
 protected:
  void SetUp() override {
    ManifestTest::SetUp();
    file("shipped/small.toml", "[log]\nevery = 3\n");
  }
  int pick(int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); }
  // Reads it, and prints what it says in both forms.
  void survive(const std::string& text) {
    file("run.toml", text);
    request.file = "run.toml";
    Report report;
    read_manifest(request, report);
    plugin_paths_of(request);
    std::ostringstream out;
    report.print(out, true, "nothing was started.");
    report.print_json(out);
  }
  std::mt19937 random{7};
};

TEST_F(Fuzz, SurvivesEveryTruncation) {
  const std::string whole = kWhole;
  for (size_t length = 0; length <= whole.size(); ++length) survive(whole.substr(0, length));
}

TEST_F(Fuzz, SurvivesChangedBytes) {
  const std::string alphabet = "\"'[]{}.=#\n \\\xff\x00\xc3,e_-0$~";
  for (int round = 0; round < 400; ++round) {
    std::string text = kWhole;
    for (int edits = 1 + pick(4); edits > 0; --edits) {
      const size_t at = static_cast<size_t>(pick(static_cast<int>(text.size())));
      const char c = pick(3) == 0 ? static_cast<char>(pick(256))
                                  : alphabet[static_cast<size_t>(pick(static_cast<int>(alphabet.size())))];
      if (pick(2)) text[at] = c;
      else if (pick(2)) text.insert(at, static_cast<size_t>(1 + pick(40)), c);
      else text.erase(at, static_cast<size_t>(1 + pick(8)));
    }
    survive(text);
  }
}

TEST_F(Fuzz, SurvivesShuffledLines) {
  std::vector<std::string> lines;
  std::istringstream in(kWhole);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  for (int round = 0; round < 300; ++round) {
    std::string text;
    for (int i = pick(30); i > 0; --i) text += lines[static_cast<size_t>(pick(static_cast<int>(lines.size())))] + "\n";
    survive(text);
  }
}

TEST_F(Fuzz, SurvivesRandomBytes) {
  for (int round = 0; round < 300; ++round) {
    std::string text;
    for (int i = pick(200); i > 0; --i) text += static_cast<char>(pick(256));
    survive(text);
  }
}

TEST_F(Fuzz, SurvivesWhatIsLong) {
  for (const char* piece : {"[", "{", "[[", "a.", "a={", "a=[", "\"\".", "'", "\"\"\"", "#", "1", "1,", "\\", "x = 1\n",
                            "[a]\n", "a = [[1],\n", "${", "*"}) {
    std::string text;
    while (text.size() < 200'000) text += piece;
    survive(text);
    survive("v = " + text);
    survive("[optimizer.adamw]\nwhere = " + text);
  }
  survive("[run]\nnotes = \"" + std::string(900'000, 'x') + "\"\n");
  survive("[data.text]\npath = \"" + std::string(5'000, '*') + "\"\n");
}

TEST_F(Fuzz, SurvivesTheCommandLine) {
  const std::string pieces[] = {"optimizer", "adamw", ".",    "=",          "default",       "[",
                                "\"",        "where", "run",  "length",     "{match=\"x\"}", "1e999",
                                "\n",        "#",     "\xff", "parameters", "include"};
  for (int round = 0; round < 500; ++round) {
    request.set.clear();
    for (int i = pick(3); i >= 0; --i) {
      std::string text;
      for (int n = pick(9); n > 0; --n) text += pieces[static_cast<size_t>(pick(static_cast<int>(std::size(pieces))))];
      request.set.push_back(text);
    }
    request.use = request.without = request.includes = {request.set[0]};
    survive("[optimizer.adamw]\n[run]\n");
  }
}

}  // namespace
}  // namespace mortise
