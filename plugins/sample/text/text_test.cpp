#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "mortise/testing/fake_host.hpp"

namespace {
using namespace mortise;
using namespace mortise::testing;
using Ids = std::vector<int64_t>;

// A model given by what it thinks of each window: one number a token.
class TextSampler : public ::testing::Test {
 protected:
  static constexpr int64_t kVocabulary = 256;
  using Think = std::function<std::vector<float>(const Ids& window)>;

  TextSampler() {
    host_.set_tokenizer({});
    host_.clock.sequence_length = 8;
    host_.set("prompts", std::vector<std::string>{"ab"}).set("tokens", 4).set("temperature", 0.8).set("top_k", 40);
    settle(host_);
    host_.op("aten::narrow", [this](std::span<const mortise_value> args) {  // dimension 1 of [1, T, V]
      const int64_t v = Info(args[0]).size(2);
      const auto all = host_.values<float>(args[0].v.t);
      return host_.tensor<float>({1, 1, v}, {all.begin() + args[2].v.i * v, all.begin() + (args[2].v.i + 1) * v});
    });
    host_.op("aten::to.dtype", [](std::span<const mortise_value> args) { return Tensor::share(args[0].v.t); });
    host_.op("aten::contiguous", [](std::span<const mortise_value> args) { return Tensor::share(args[0].v.t); });
    host_.model = [this](mortise_batch* batch, uint32_t mode, uint32_t want, mortise_value* results,
                         uint32_t n) -> mortise_status {
      EXPECT_EQ(mode, static_cast<uint32_t>(MORTISE_SAMPLE));
      EXPECT_EQ(want, static_cast<uint32_t>(MORTISE_WANT_LOGITS));
      EXPECT_EQ(n, 2U);
      const Tensor ids = field(batch, "input_ids");
      const int64_t length = Info(ids).size(1);
      positions_ = host_.values<int64_t>(field(batch, "positions"));
      windows_.push_back(host_.values<int64_t>(ids));
      if (length < 1) return MORTISE_E_SHAPE;
      const std::vector<float> last = think_(windows_.back());
      std::vector<float> logits(static_cast<size_t>(length - 1) * last.size(), 1e9F);  // rows that nobody may look at
      logits.insert(logits.end(), last.begin(), last.end());
      Tensor t = host_.tensor<float>({1, length, static_cast<int64_t>(last.size())}, logits);
      results[1] = value(t);
      t.release();
      return MORTISE_OK;
    };
  }

  static void settle(FakeHost& host) {
    host.set("top_p", 1.0).set("stop", std::vector<std::string>()).set("ignore_eos", false).set("cache", false);
  }
  // Sure of one token.
  static std::vector<float> sure(int64_t id, size_t vocabulary = kVocabulary) {
    std::vector<float> logits(vocabulary, -30.0F);
    logits.at(static_cast<size_t>(id)) = 30.0F;
    return logits;
  }
  struct Request {
    std::string prompt = "ab";
    int tokens = 4;
    double temperature = -1;
    int top_k = -1;
    uint64_t seed = 0;
    double top_p = 0;
    std::vector<std::string> stop = {};
    uint32_t text = 0;
  };
  // The text without the prompt that was asked for, which comes first.
  std::string generate(const Request& r, mortise_status expected = MORTISE_OK) {
    Plugin plugin(host_, MORTISE_PLUGIN_FILE);
    pieces_.clear();
    std::vector<mortise_str> stop;
    for (const std::string& text : r.stop) stop.push_back(str(text));
    const mortise_sample_request request = {
        size_,
        r.tokens,
        str(r.prompt),
        r.temperature,
        r.top_k,
        0,
        r.seed,
        this,
        [](void* self, mortise_str piece) noexcept { return static_cast<TextSampler*>(self)->take_piece(view(piece)); },
        r.top_p,
        stop.empty() ? nullptr : stop.data(),
        static_cast<uint32_t>(stop.size()),
        r.text};
    EXPECT_EQ(plugin.object<mortise_sampler>("sample").generate(plugin.self(), &request), expected) << host_.error();
    EXPECT_EQ(host_.live_tensors(), 0U);
    EXPECT_EQ(host_.live_batches(), 0U);
    if (expected == MORTISE_OK && !r.prompt.empty()) {
      EXPECT_EQ(pieces_.at(0), r.prompt);
      pieces_.erase(pieces_.begin());
    }
    std::string all;
    for (const std::string& piece : pieces_) all += piece;
    return all;
  }
  mortise_status take_piece(std::string_view piece) {
    pieces_.emplace_back(piece);
    return pieces_.size() < enough_ ? MORTISE_OK : MORTISE_E_IO;
  }

  Think think_ = [](const Ids& window) { return sure((window.back() + 1) % kVocabulary); };  // the alphabet
  std::vector<Ids> windows_;
  Ids positions_;
  std::vector<std::string> pieces_;
  uint32_t size_ = sizeof(mortise_sample_request);
  size_t enough_ = std::numeric_limits<size_t>::max();
  FakeHost host_;
};

TEST_F(TextSampler, EmitsThePromptAndGoesOnPieceByPiece) {
  EXPECT_EQ(generate({.prompt = "ab"}), "cdef");
  EXPECT_EQ(pieces_.size(), 4U);
  EXPECT_EQ(windows_.front(), (Ids{'a', 'b'}));
  EXPECT_EQ(windows_.back(), (Ids{'a', 'b', 'c', 'd', 'e'}));
}

TEST_F(TextSampler, ShowsTheModelNoMoreThanTheLengthItWasTrainedOn) {
  EXPECT_EQ(generate({.prompt = "abcdef", .tokens = 6}), "ghijkl");
  EXPECT_EQ(windows_.back(), (Ids{'d', 'e', 'f', 'g', 'h', 'i', 'j', 'k'}));
  EXPECT_EQ(positions_, (Ids{0, 1, 2, 3, 4, 5, 6, 7}));
}

TEST_F(TextSampler, CutsAPromptThatIsTooLongFromTheLeft) {
  generate({.prompt = "0123456789abcdef", .tokens = 1});
  EXPECT_EQ(windows_.front(), (Ids{'8', '9', 'a', 'b', 'c', 'd', 'e', 'f'}));
}

TEST_F(TextSampler, ShowsEverythingWhereTheRunHasNoLength) {
  host_.clock.sequence_length = 0;
  generate({.prompt = "0123456789abcdef", .tokens = 1});
  EXPECT_EQ(windows_.front().size(), 16U);
}

TEST_F(TextSampler, UsesItsOwnPromptsAndCountsWhenNobodySaysOtherwise) {
  host_.set("prompts", std::vector<std::string>{"a", "x"}).set("tokens", 2);
  EXPECT_EQ(generate({.prompt = "", .tokens = 0}), "abc\nxyz");
}

TEST_F(TextSampler, DrawsTheSameForTheSameSeedAndOtherwiseNot) {
  think_ = [](const Ids&) { return std::vector<float>(kVocabulary, 0.0F); };
  const Request all = {.tokens = 16, .temperature = 1, .top_k = 0, .seed = 5};
  const std::string first = generate(all);
  EXPECT_EQ(generate(all), first);
  Request other = all;
  other.seed = uint64_t{5} << 32;
  EXPECT_NE(generate(other), first);
}

TEST_F(TextSampler, DrawsBySoftmaxOfLogitsOverTemperature) {
  think_ = [](const Ids&) {
    std::vector<float> logits(kVocabulary, -std::numeric_limits<float>::infinity());
    logits['x'] = 0.0F;
    logits['y'] = 1.0F;
    return logits;
  };
  std::map<char, int> counts;
  for (const char c : generate({.tokens = 4000, .temperature = 2, .top_k = 0})) ++counts[c];
  const double p = 1 / (1 + std::exp(0.5));                               // of x
  EXPECT_NEAR(counts['x'], 4000 * p, 5 * std::sqrt(4000 * p * (1 - p)));  // five deviations of a binomial count
  EXPECT_EQ(counts['x'] + counts['y'], 4000);
}

TEST_F(TextSampler, DrawsOnlyFromTheLikeliest) {
  think_ = [](const Ids&) {
    std::vector<float> logits(kVocabulary, 0.0F);
    logits['a'] = logits['b'] = logits['c'] = 0.1F;
    return logits;
  };
  const std::string text = generate({.tokens = 200, .temperature = 5, .top_k = 3});
  EXPECT_EQ(text.find_first_not_of("abc"), std::string::npos);
  EXPECT_NE(text.find('c'), std::string::npos);
}

TEST_F(TextSampler, TakesTheLikeliestAtTemperatureZeroTheFirstOfEquals) {
  think_ = [](const Ids&) {
    std::vector<float> logits(kVocabulary, 0.0F);
    logits['p'] = logits['q'] = 1e-6F;
    return logits;
  };
  EXPECT_EQ(generate({.tokens = 3, .temperature = 0, .top_k = 0}), "ppp");
}

// x has 0.6 of the probability, y 0.3, z 0.1.
std::vector<float> of_three(const std::vector<int64_t>&) {
  std::vector<float> logits(256, -std::numeric_limits<float>::infinity());
  logits['x'] = std::log(0.6F);
  logits['y'] = std::log(0.3F);
  logits['z'] = std::log(0.1F);
  return logits;
}

TEST_F(TextSampler, DrawsFromTheFewestThatHaveTheShare) {
  think_ = of_three;
  const auto letters = [&](double top_p, int top_k = 0, double temperature = 1) {
    const std::string text = generate({.tokens = 200, .temperature = temperature, .top_k = top_k, .top_p = top_p});
    std::string found;
    for (const char c : std::string("xyz"))
      if (text.find(c) != text.npos) found += c;
    return found;
  };
  EXPECT_EQ(letters(0.5), "x");
  EXPECT_EQ(letters(0.7), "xy") << "0.6 is not enough";
  EXPECT_EQ(letters(0.89), "xy");
  EXPECT_EQ(letters(0.95), "xyz");
  EXPECT_EQ(letters(1), "xyz");
  EXPECT_EQ(letters(0.65, 2), "x") << "of the two likeliest, x has 2/3";
  EXPECT_EQ(letters(0.65, 0, 0.5), "x") << "at temperature 0.5 x has 0.36 of 0.46";
  EXPECT_EQ(letters(1e-300), "x") << "one at least";
}

TEST_F(TextSampler, DrawsWithinTheShareAsBefore) {
  think_ = of_three;
  std::map<char, int> counts;
  for (const char c : generate({.tokens = 4000, .temperature = 1, .top_k = 0, .top_p = 0.7})) ++counts[c];
  EXPECT_NEAR(counts['x'], 4000 * 2 / 3., 5 * std::sqrt(4000 * 2 / 9.));  // five deviations of a binomial count
}

TEST_F(TextSampler, ItsOwnShareHoldsWhereNobodySaysAnother) {
  think_ = of_three;
  host_.set("top_p", 0.5);
  EXPECT_EQ(generate({.tokens = 50, .temperature = 1}), std::string(50, 'x'));
  EXPECT_NE(generate({.tokens = 50, .temperature = 1, .top_p = 1}), std::string(50, 'x'));
}

TEST_F(TextSampler, EndsBeforeATextToStopAt) {
  EXPECT_EQ(generate({.tokens = 20, .stop = {"f"}}), "cde");
  EXPECT_EQ(windows_.size(), 4U) << "and computes nothing more";
  EXPECT_EQ(generate({.tokens = 20, .stop = {"efg"}}), "cd") << "over the borders of tokens";
  EXPECT_EQ(generate({.tokens = 20, .stop = {"hi", "fg"}}), "cde") << "the first that comes";
  EXPECT_EQ(generate({.tokens = 4, .stop = {"fgh"}}), "cdef") << "what only began is shown at the end";
  EXPECT_EQ(generate({.tokens = 6, .stop = {"efz"}}), "cdefgh");
  EXPECT_EQ(generate({.tokens = 3, .stop = {"ab"}}), "cde") << "the prompt's own text stops nothing";
}

TEST_F(TextSampler, HoldsBackOnlyWhatMayStillBecomeAStop) {
  generate({.tokens = 6, .stop = {"efz"}});
  EXPECT_EQ(pieces_, (std::vector<std::string>{"c", "d", "efg", "h"}));
}

TEST_F(TextSampler, FindsAStopThatBeginsInsideAnother) {
  think_ = [](const Ids& window) { return sure("aab"[(window.size() - 1) % 3]); };
  host_.clock.sequence_length = 100;
  EXPECT_EQ(generate({.prompt = "x", .tokens = 9, .stop = {"abaab"}}), "a");
}

TEST_F(TextSampler, ItsOwnStopsHoldWhereNobodySaysOthers) {
  host_.set("stop", std::vector<std::string>{"f"});
  EXPECT_EQ(generate({.tokens = 20}), "cde");
  EXPECT_EQ(generate({.tokens = 20, .stop = {"e"}}), "cd");
  host_.set("stop", std::vector<std::string>{""});
  EXPECT_THROW(Plugin(host_, MORTISE_PLUGIN_FILE), PluginError);
  EXPECT_EQ(host_.blamed.value().key, "stop");
}

TEST_F(TextSampler, EndsAtTheTokenizersEndOfText) {
  FakeTokenizer ends;
  ends.special = {{"eos", 'f'}};
  host_.set_tokenizer(ends);
  EXPECT_EQ(generate({.tokens = 20}), "cde");
  host_.set("ignore_eos", true);
  EXPECT_EQ(generate({.tokens = 5}), "cdefg");
}

TEST_F(TextSampler, ARequestOfAnOlderHostEndsBeforeWhatIsNew) {
  host_.set("stop", std::vector<std::string>{"f"});
  size_ = offsetof(mortise_sample_request, top_p);
  EXPECT_EQ(generate({.tokens = 20, .top_p = 1e-9, .stop = {"d"}, .text = 7}), "cde");
}

TEST_F(TextSampler, EqualPromptsDrawOtherBitsAsDifferentTexts) {
  think_ = [](const Ids&) { return std::vector<float>(kVocabulary, 0.0F); };
  const std::string first = generate({.tokens = 16, .temperature = 1, .top_k = 0});
  EXPECT_NE(generate({.tokens = 16, .temperature = 1, .top_k = 0, .text = 1}), first);
}

TEST_F(TextSampler, EmitsWholeCharactersOnly) {
  const std::string text = "é€😀";
  think_ = [&](const Ids& window) { return sure(static_cast<unsigned char>(text[(window.size() - 1) % text.size()])); };
  host_.clock.sequence_length = 100;
  EXPECT_EQ(generate({.prompt = "a", .tokens = 9}), text);
  EXPECT_EQ(pieces_, (std::vector<std::string>{"é", "€", "😀"}));
  EXPECT_EQ(generate({.prompt = "a", .tokens = 8}), "é€") << "half a character at the end is dropped";
}

TEST_F(TextSampler, ShowsBytesThatAreNoCharacterAsOneThatSaysSo) {
  const std::string text = "\xE2\x82x\xFFy";
  think_ = [&](const Ids& window) { return sure(static_cast<unsigned char>(text[window.size() - 1])); };
  EXPECT_EQ(generate({.prompt = "a", .tokens = 5}), "\uFFFD\uFFFDx\uFFFDy");
}

TEST_F(TextSampler, ShowsATokenAsItStandsBehindTheOthers) {
  FakeTokenizer words;  // as WordPiece: a space before each token but the first
  words.decode = [](std::span<const int64_t> ids) {
    std::string text;
    for (const int64_t id : ids) text += (text.empty() ? "" : " ") + std::string(1, static_cast<char>(id));
    return text;
  };
  host_.set_tokenizer(words);
  EXPECT_EQ(generate({.prompt = "ab", .tokens = 3}), " c d e");
  EXPECT_EQ(generate({.prompt = "a", .tokens = 8}), " b c d e f g h i");
}

TEST_F(TextSampler, WaitsForTheCharacterThatATokenizerCannotShowYet) {
  FakeTokenizer pairs;  // two tokens a letter; a half is shown as U+FFFD
  pairs.decode = [](std::span<const int64_t> ids) {
    std::string text;
    for (size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] % 2) text += i > 0 && ids[i - 1] % 2 == 0 ? std::string(1, static_cast<char>(ids[i])) : "\uFFFD";
      else if (i + 1 == ids.size()) text += "\uFFFD";
    }
    return text;
  };
  host_.set_tokenizer(pairs);
  EXPECT_EQ(generate({.prompt = "a", .tokens = 4}), "ce");  // b c d e
  EXPECT_EQ(generate({.prompt = "a", .tokens = 3}), "c");
}

TEST_F(TextSampler, NeverDrawsATokenThatTheTokenizerLacks) {
  think_ = [](const Ids&) {
    std::vector<float> logits = sure(300, 320);
    logits['k'] = 20.0F;
    return logits;
  };
  EXPECT_EQ(generate({.tokens = 2, .temperature = 0}), "kk");
}

TEST_F(TextSampler, StopsWhenItsListenerHasEnough) {
  enough_ = 3;  // the prompt is a piece too
  EXPECT_EQ(generate({.tokens = 100}), "cd");
}

TEST_F(TextSampler, RefusesLogitsThatAreNoNumbersOrAllowNothing) {
  think_ = [](const Ids&) { return std::vector<float>(kVocabulary, std::nanf("")); };
  generate({}, MORTISE_E_DATA);
  EXPECT_EQ(host_.error(), "the model's logits are not finite");
  think_ = [](const Ids&) { return std::vector<float>(kVocabulary, -std::numeric_limits<float>::infinity()); };
  generate({}, MORTISE_E_DATA);
  EXPECT_EQ(host_.error(), "the model allows no token");
}

TEST_F(TextSampler, RefusesAPromptWithoutTokens) {
  FakeTokenizer deaf;
  deaf.encode = [](std::string_view) { return Ids(); };
  host_.set_tokenizer(deaf);
  generate({}, MORTISE_E_ARGUMENT);
}

TEST_F(TextSampler, RefusesAModelWithoutLogitsAndPassesOnItsErrors) {
  host_.model = [](mortise_batch*, uint32_t, uint32_t, mortise_value*, uint32_t) -> mortise_status {
    return MORTISE_OK;
  };
  generate({}, MORTISE_E_UNSUPPORTED);
  host_.model = [this](mortise_batch*, uint32_t, uint32_t, mortise_value*, uint32_t) {
    return host_.fail(&host_, MORTISE_E_OPERATOR, MORTISE_STR("mm"));
  };
  generate({}, MORTISE_E_OPERATOR);
  EXPECT_EQ(host_.error(), "mm");
}

TEST_F(TextSampler, SaysWhatItMissesInAHostThatLacksIt) {
  for (const char* id : {"mortise.tokenizer/0", "mortise.model/0", "mortise.batch/0", "mortise.ops/0"}) {
    FakeHost host;
    host.set("prompts", std::vector<std::string>{"ab"}).set("tokens", 4).set("temperature", 0.8).set("top_k", 40);
    settle(host);
    host.set_tokenizer({});
    host.model = host_.model;
    host.withhold(id);
    Plugin plugin(host, MORTISE_PLUGIN_FILE);
    const mortise_sample_request request = {};
    EXPECT_EQ(plugin.object<mortise_sampler>("sample").generate(plugin.self(), &request), MORTISE_E_NOT_FOUND);
    EXPECT_EQ(host.error(), std::string("this host has no ") + id);
  }
}

TEST_F(TextSampler, RefusesAPromptWithoutAnything) {
  host_.set("prompts", std::vector<std::string>{"ab", ""});
  EXPECT_THROW(Plugin(host_, MORTISE_PLUGIN_FILE), PluginError);
  EXPECT_EQ(host_.blamed.value().key, "prompts");
}
}  // namespace
