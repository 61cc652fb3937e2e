#include <gtest/gtest.h>

#include <cmath>

#include "mortise/testing/fake_call.hpp"

using namespace mortise::testing;
using mortise::Batch;
using Ids = std::vector<int64_t>;

namespace {

constexpr int64_t kRows = 40, kLength = 500, kVocabulary = 1000, kCls = 1, kSep = 2, kPad = 0, kMask = 4;
const std::map<std::string, int64_t, std::less<>> kSpecial = {
    {"cls", kCls}, {"sep", kSep}, {"pad", kPad}, {"unk", 3}, {"mask", kMask}};

// A tokenizer of which only the ids that end in 3, 4 or 7 go on with a word. It writes as BERT's does: white space
// between words, none at the beginning, and "##" if a piece stands there.
bool continues(int64_t id) { return id % 10 == 3 || id % 10 == 4 || id % 10 == 7; }
std::string written(std::span<const int64_t> ids) {
  std::string text;
  for (const int64_t id : ids)
    text += (continues(id) ? text.empty() ? "##" : "" : text.empty() ? "" : " ") + ("t" + std::to_string(id));
  return text;
}

// Rows [cls] words … [sep], the last ones shorter; words are 10 to 59, the others of the vocabulary come by chance.
struct Masking : testing::Test {
  Masking() {
    host.set("probability", 0.15);
    host.set("whole_words", false);
    host.set_tokenizer({.size = kVocabulary, .special = kSpecial});
    for (int64_t row = 0; row < kRows; ++row)
      for (int64_t t = 0; t < kLength; ++t) {
        const int64_t end = length(row);
        ids.push_back(t >= end ? 20 : t == 0 ? kCls : t + 1 == end ? kSep : 10 + (row + t) % 50);
        seen.push_back(t < end);
      }
  }
  ~Masking() override { plugin.reset(); }
  static int64_t length(int64_t row) { return row < 30 ? kLength : 100; }

  mortise_status data(mortise_call& call) {
    Batch batch = Batch::create(nullptr);
    const mortise::Tensor a = host.tensor<int64_t>({kRows, kLength}, ids),
                          b = host.tensor<uint8_t>({kRows, kLength}, seen);
    if (has_ids) mortise::check(mortise::api.batch->set(&host, batch.get(), MORTISE_STR("input_ids"), a.get()));
    mortise::check(mortise::api.batch->set(&host, batch.get(), MORTISE_STR("attention_mask"), b.get()));
    mortise::check(mortise::api.batch->set_count(&host, batch.get(), MORTISE_STR("tokens"), 12345));
    call.results[0] = mortise::value(batch.release());
    return MORTISE_OK;
  }
  void begin() {
    plugin.emplace(host, MORTISE_PLUGIN_FILE);
    ASSERT_EQ(plugin->notify("params.declared"), MORTISE_OK);
    ASSERT_EQ(plugin->notify("params.declared"), MORTISE_OK) << "it is told of each parameter";
    ASSERT_EQ(plugin->notify("step.begin"), MORTISE_OK);
  }
  struct Masked {
    Ids ids, labels;
    int64_t tokens = -1;
    bool operator==(const Masked&) const = default;
  };
  Masked load(int64_t index = 0, const char* split = "train") {
    if (!plugin) begin();
    FakeCall call({mortise::value(split), mortise::value(index)}, 1);
    if ((status = chain.wrap(*plugin, "load", call)) != MORTISE_OK) return {};
    const mortise_batch* batch = call.results[0].v.b;
    Masked m{host.values<int64_t>(mortise::field(batch, "input_ids")),
             host.values<int64_t>(mortise::field(batch, "labels"))};
    EXPECT_EQ(host.values<uint8_t>(mortise::field(batch, "attention_mask")), seen);
    mortise::api.batch->count(&host, batch, MORTISE_STR("tokens"), &m.tokens);
    return m;
  }

  FakeHost host;
  Ids ids;
  std::vector<uint8_t> seen;
  bool has_ids = true;
  FakeChain chain{host, [this](mortise_call& call) { return data(call); }};
  std::optional<Plugin> plugin;
  mortise_status status = MORTISE_OK;
};

// A binomial count of n stays within five deviations but once in 1.7 million times.
void expect_share(int64_t count, int64_t n, double share) {
  const double expected = static_cast<double>(n) * share;
  EXPECT_NEAR(static_cast<double>(count), expected, 5 * std::sqrt(expected * (1 - share)));
}

TEST_F(Masking, HidesTheSharesOfBert) {
  const Masked m = load();
  int64_t words = 0, hidden = 0, masks = 0, kept = 0, others = 0;
  std::set<int64_t> drawn;
  for (size_t at = 0; at < ids.size(); ++at) {
    const bool is_word = seen[at] && ids[at] >= 10;
    words += is_word;
    if (m.labels[at] == -100) {
      ASSERT_EQ(m.ids[at], ids[at]) << "what is no label is not changed";
      continue;
    }
    ASSERT_TRUE(is_word) << "neither special tokens nor padding are guessed";
    ASSERT_EQ(m.labels[at], ids[at]);
    ++hidden;
    masks += m.ids[at] == kMask;
    kept += m.ids[at] == ids[at];
    others += m.ids[at] != kMask && m.ids[at] != ids[at];
    if (m.ids[at] != kMask && m.ids[at] != ids[at]) drawn.insert(m.ids[at]);
  }
  ASSERT_EQ(words, 30 * 498 + 10 * 98);
  expect_share(hidden, words, 0.15);
  // A random id is the mask, or the word itself, once in 1,000 times.
  expect_share(masks, hidden, 0.8 + 0.1 / kVocabulary);
  expect_share(kept, hidden, 0.1 + 0.1 / kVocabulary);
  expect_share(others, hidden, 0.1 * (1 - 2.0 / kVocabulary));
  EXPECT_EQ(m.tokens, hidden);
  EXPECT_GT(*drawn.rbegin(), 900) << "of the whole vocabulary";
  EXPECT_LT(*drawn.rbegin(), kVocabulary);
  EXPECT_LT(*drawn.begin(), 100);
}

TEST_F(Masking, TheShareIsThatOfTheManifest) {
  host.set("probability", 1.0);
  EXPECT_EQ(load().tokens, 30 * 498 + 10 * 98);
  plugin.reset();
  host.set("probability", 0.5);
  expect_share(load().tokens, 30 * 498 + 10 * 98, 0.5);
}

TEST_F(Masking, IsPureInTheMicroBatchTheSplitAndTheSeed) {
  const Masked first = load(3), second = load(4), evaluated = load(3, "validation");
  EXPECT_NE(first.labels, second.labels);
  EXPECT_NE(first.labels, evaluated.labels);
  host.clock.attempted = 77;
  ASSERT_EQ(plugin->notify("step.begin"), MORTISE_OK);
  EXPECT_EQ(load(3), first);
  EXPECT_EQ(load(3, "validation"), evaluated);
  plugin.reset();
  EXPECT_EQ(load(3), first) << "a run that goes on";
  plugin.reset();
  host.seed = 1;
  EXPECT_NE(load(3).labels, first.labels);
}

// As unrelated draws have it: both hide a position 0.15² of the time.
TEST_F(Masking, RowsAndPositionsAreDrawnApart) {
  const Masked m = load();
  int64_t in_both_rows = 0, in_both_neighbours = 0;
  const auto hidden = [&](int64_t row, int64_t t) { return m.labels[static_cast<size_t>(row * kLength + t)] != -100; };
  for (int64_t row = 0; row < 30; row += 2)
    for (int64_t t = 1; t < 499; ++t) in_both_rows += hidden(row, t) && hidden(row + 1, t);
  for (int64_t row = 0; row < 30; ++row)
    for (int64_t t = 1; t < 499; t += 2) in_both_neighbours += hidden(row, t) && hidden(row, t + 1);
  expect_share(in_both_rows, 15 * 498, 0.15 * 0.15);
  expect_share(in_both_neighbours, 30 * 249, 0.15 * 0.15);
}

// Words of this data are 10 11 (12 13 14) 15 (16 17) 18 19 20 21 (22 23 24) …
TEST_F(Masking, ThePiecesOfAWordAreHiddenTogether) {
  const Masked single = load();
  plugin.reset();
  host.set("whole_words", true);
  host.set_tokenizer({.size = kVocabulary, .decode = written, .special = kSpecial});
  const Masked m = load();
  int64_t words = 0, hidden = 0, tokens = 0, masks = 0, unlike = 0;
  for (int64_t row = 0; row < kRows; ++row)
    for (int64_t t = 1; t + 1 < length(row); ++t) {
      const auto at = static_cast<size_t>(row * kLength + t);
      const bool is_hidden = m.labels[at] != -100;
      ASSERT_EQ(m.labels[at], is_hidden ? ids[at] : -100);
      tokens += is_hidden;
      masks += m.ids[at] == kMask;
      if (t > 1 && continues(ids[at])) {
        ASSERT_EQ(is_hidden, m.labels[at - 1] != -100) << "row " << row << ", position " << t;
        unlike += is_hidden && (m.ids[at] == kMask) != (m.ids[at - 1] == kMask);
        continue;
      }
      ASSERT_EQ(is_hidden, single.labels[at] != -100) << "the first piece is drawn as a token is";
      ++words;
      hidden += is_hidden;
    }
  expect_share(hidden, words, 0.15);
  EXPECT_EQ(m.tokens, tokens);
  EXPECT_GT(unlike, 0) << "what stands in its place is drawn for each piece";
  expect_share(masks, tokens, 0.8 + 0.1 / kVocabulary);
  const auto at_ends = [&](int64_t row, int64_t t) { return m.labels[static_cast<size_t>(row * kLength + t)]; };
  for (int64_t row = 0; row < kRows; ++row) EXPECT_EQ(at_ends(row, 0) & at_ends(row, length(row) - 1), -100);
}

// "Ġ" of a byte-level BPE: white space stands in front of a token also where the text begins.
TEST_F(Masking, ATokenThatBringsItsOwnWhiteSpaceBeginsAWord) {
  host.set("whole_words", true);
  host.set_tokenizer({.size = kVocabulary,
                      .decode =
                          [](std::span<const int64_t> all) {
                            std::string text;
                            for (const int64_t id : all) text += (continues(id) ? "t" : "\nt") + std::to_string(id);
                            return text;
                          },
                      .special = kSpecial});
  const Masked bytes = load();
  plugin.reset();
  host.set_tokenizer({.size = kVocabulary, .decode = written, .special = kSpecial});
  EXPECT_EQ(load(), bytes);
}

TEST_F(Masking, WordsOfOnePieceAreHiddenAsTokensAre) {
  ids.assign(ids.size(), 20);
  const Masked tokens = load();
  plugin.reset();
  host.set("whole_words", true);
  host.set_tokenizer({.size = kVocabulary, .decode = written, .special = kSpecial});
  EXPECT_EQ(load(), tokens);
}

TEST_F(Masking, RefusesWholeWordsOfATokenizerThatWritesNone) {
  host.set("whole_words", true);
  for (const auto& [between, why] : {std::pair(" ",
                                               "the tokenizer writes white space before every token, so none "
                                               "goes on with a word"),
                                     std::pair("",
                                               "the tokenizer writes white space before no token, so a row is one "
                                               "word")}) {
    host.set_tokenizer({.size = kVocabulary,
                        .decode =
                            [&, between = std::string(between)](std::span<const int64_t> all) {
                              std::string text;
                              for (const int64_t id : all) text += between + std::to_string(id);
                              return text;
                            },
                        .special = kSpecial});
    plugin.emplace(host, MORTISE_PLUGIN_FILE);
    EXPECT_EQ(plugin->notify("params.declared"), MORTISE_E_CONFIG);
    EXPECT_NE(host.error().find(why), std::string::npos) << host.error();
    plugin.reset();
  }
}

TEST_F(Masking, RefusesATokenizerWithoutAMask) {
  host.set_tokenizer({});
  plugin.emplace(host, MORTISE_PLUGIN_FILE);
  EXPECT_EQ(plugin->notify("params.declared"), MORTISE_E_CONFIG);
  EXPECT_EQ(host.error(),
            "data.masking hides tokens behind the tokenizer's `mask`, and it has none\n"
            "  fix: the tokenizer of a masked language model, such as BERT's");
}

TEST_F(Masking, RefusesDataWithoutIds) {
  has_ids = false;
  load();
  EXPECT_EQ(status, MORTISE_E_DATA);
}

}  // namespace
