// Which tokens go through the model, and when the whole text does. That the numbers are the same with every attention
// there is: tests/e2e/sample_test.py.
#include <gtest/gtest.h>

#include <numeric>

#include "mortise/cpp/model.hpp"
#include "mortise/testing/fake_call.hpp"

namespace {
using namespace mortise;
using namespace mortise::testing;
using Ids = std::vector<int64_t>;

// A model with one attention, of which each token gets the sum of the values up to its own: all tokens of a text
// decide the next.
class CachedSampler : public ::testing::Test {
 protected:
  CachedSampler() {
    host_.set_tokenizer({});
    host_.clock.sequence_length = 64;
    host_.set("prompts", std::vector<std::string>{"ab"}).set("tokens", 4).set("temperature", 0.0).set("top_k", 0);
    host_.set("top_p", 1.0).set("stop", std::vector<std::string>()).set("ignore_eos", false).set("cache", true);
    add_operators();
    host_.model = [this](mortise_batch* batch, uint32_t, uint32_t, mortise_value* results, uint32_t) {
      return forward(batch, results);
    };
  }

  void add_operators() {
    const auto same = [](std::span<const mortise_value> args) { return Tensor::share(args[0].v.t); };
    host_.op("aten::to.dtype", same);
    host_.op("aten::contiguous", same);
    host_.op("aten::clone", [this](std::span<const mortise_value> args) { return along(args[0].v.t, 1); });
    host_.op("aten::narrow", [this](std::span<const mortise_value> args) {
      const Info x(args[0]);
      const auto all = host_.values<float>(args[0].v.t);
      const int64_t dim = args[1].v.i, begin = args[2].v.i, length = args[3].v.i, rows = x.size(1), width = x.size(2);
      std::vector<float> part;
      for (int64_t r = dim == 1 ? begin : 0; r < (dim == 1 ? begin + length : rows); ++r)
        for (int64_t c = dim == 2 ? begin : 0; c < (dim == 2 ? begin + length : width); ++c)
          part.push_back(all[static_cast<size_t>(r * width + c)]);
      return dim == 1 ? host_.tensor<float>({1, length, width}, part) : host_.tensor<float>({1, rows, length}, part);
    });
    host_.op("aten::cat", [this](std::span<const mortise_value> args) {
      std::vector<float> all;
      for (uint32_t i = 0; i < args[0].count; ++i) {
        const auto part = host_.values<float>(args[0].v.ts[i]);
        all.insert(all.end(), part.begin(), part.end());
      }
      return host_.tensor<float>({1, static_cast<int64_t>(all.size()), 1}, all);
    });
  }
  Tensor along(mortise_tensor* t, int64_t width) {
    const auto all = host_.values<float>(t);
    return host_.tensor<float>({1, static_cast<int64_t>(all.size()) / width, width}, all);
  }

  mortise_status forward(mortise_batch* batch, mortise_value* results) {
    const Ids ids = host_.values<int64_t>(field(batch, "input_ids"));
    const Ids positions = host_.values<int64_t>(field(batch, "positions"));
    EXPECT_EQ(positions.back() + 1, positions.front() + static_cast<int64_t>(ids.size()));
    passes_.emplace_back(positions.front(), ids.size());
    float sum = static_cast<float>(ids.back());
    for (int i = 0; i < attentions_; ++i) {
      const mortise_status s = attend(ids, sum);
      if (s != MORTISE_OK) return s;
    }
    sum += other_(ids);
    std::vector<float> logits(ids.size() * 256, -30.0F);
    logits[(ids.size() - 1) * 256 + 'a' + static_cast<size_t>(sum) % 26] = 30.0F;
    Tensor t = host_.tensor<float>({1, static_cast<int64_t>(ids.size()), 256}, logits);
    results[1] = value(t);
    t.release();
    return MORTISE_OK;
  }

  mortise_status attend(const Ids& ids, float& sum) {
    const auto length = static_cast<int64_t>(ids.size());
    std::vector<float> numbers(ids.begin(), ids.end()), packed;
    for (const float x : numbers) packed.insert(packed.end(), {1, x, x});
    const Tensor k =
        packed_ ? host_.tensor<float>({1, length, 3}, packed) : host_.tensor<float>({1, length, 1}, numbers);
    std::vector<mortise_value> args{value(k)};
    if (!packed_) args.insert(args.end(), {value(k), value(k)});
    if (mask_) args.push_back(value(k));
    FakeCall call(std::move(args), 1);
    call.mode = MORTISE_SAMPLE;
    call.path = MORTISE_STR("h.0.attn");
    call.layer = layer_.handle();
    const std::vector<mortise_value> before(call.args, call.args + call.n_args);
    const mortise_status s = chain_.wrap(*plugin_, "attention", call);
    EXPECT_EQ(call.args, call.arguments.data()) << "a call comes back with its own arguments";
    EXPECT_EQ(call.n_args, before.size());
    if (s == MORTISE_OK) sum = host_.values<float>(call.results[0].v.t).back();
    return s;
  }

  // What the provider is called with: the last query sees all keys.
  mortise_status attended(mortise_call& call) {
    const bool is_packed = call.n_args == 1;
    const Info q(call.args[0]);
    if (!is_packed && q.size(1) != Info(call.args[1]).size(1) && refuses_fewer_)
      return host_.fail(&host_, MORTISE_E_SHAPE, MORTISE_STR("as many queries as keys, please"));
    const auto numbers = host_.values<float>(call.args[is_packed ? 0 : 2].v.t);
    if (!is_packed) {
      EXPECT_EQ(host_.values<float>(call.args[1].v.t), numbers) << "of this model keys are values";
    }
    float sum = 0;
    for (size_t i = is_packed ? 2 : 0; i < numbers.size(); i += is_packed ? 3 : 1) sum += numbers[i];
    live_ = std::max(live_, host_.live_tensors());
    Tensor y = host_.tensor<float>({1, 1, 1}, {sum});
    call.results[0] = value(y);
    y.release();
    return MORTISE_OK;
  }

  std::string generate(const std::string& prompt = "ab", int tokens = 4) {
    passes_.clear();
    std::string text;
    mortise_sample_request request = {};
    request.struct_size = sizeof request;
    request.prompt = str(prompt);
    request.tokens = tokens;
    request.temperature = -1;
    request.top_k = -1;
    request.user = &text;
    request.emit = [](void* user, mortise_str piece) noexcept -> mortise_status {
      *static_cast<std::string*>(user) += view(piece);
      return MORTISE_OK;
    };
    if (!plugin_) plugin_.emplace(host_, MORTISE_PLUGIN_FILE);
    EXPECT_EQ(plugin_->object<mortise_sampler>("sample").generate(plugin_->self(), &request), MORTISE_OK)
        << host_.error();
    EXPECT_EQ(host_.live_tensors(), 0U) << "nothing is kept behind a text";
    return text;
  }
  // The same by a plugin of its own that keeps nothing.
  std::string without_cache(const std::string& prompt = "ab", int tokens = 4) {
    host_.set("cache", false);
    plugin_.reset();
    std::string text = generate(prompt, tokens);
    plugin_.reset();
    host_.set("cache", true);
    host_.log.clear();
    return text;
  }
  void expect_fallback(const std::string& why) {
    const std::string whole = without_cache();
    EXPECT_EQ(generate(), whole);
    ASSERT_EQ(host_.log.size(), 1U);
    EXPECT_EQ(host_.log[0].level, static_cast<uint32_t>(MORTISE_LOG_WARNING));
    EXPECT_NE(host_.log[0].text.find(": " + why + ";"), std::string::npos) << host_.log[0].text;
    EXPECT_EQ(generate(), whole);
    EXPECT_EQ(passes_, (Passes{{0, 2}, {0, 3}, {0, 4}, {0, 5}})) << "not tried again";
    EXPECT_EQ(host_.log.size(), 1U) << "said once";
  }

  using Passes = std::vector<std::pair<int64_t, size_t>>;  // first position, tokens
  FakeHost host_;
  FakeLayer layer_{{attr("heads", 1), attr("head_dim", 1), attr("causal", true)}};
  FakeChain chain_{host_, [this](mortise_call& call) { return attended(call); }};
  std::optional<Plugin> plugin_;
  Passes passes_;
  int attentions_ = 1;
  bool packed_ = false, mask_ = false, refuses_fewer_ = false;
  std::function<float(const Ids&)> other_ = [](const Ids&) { return 0.0F; };
  size_t live_ = 0;
};

TEST_F(CachedSampler, EachNewTokenGoesThroughTheModelAloneButOnceToCompare) {
  const std::string whole = without_cache();
  EXPECT_EQ(passes_, (Passes{{0, 2}, {0, 3}, {0, 4}, {0, 5}}));
  EXPECT_EQ(generate(), whole);
  EXPECT_EQ(passes_, (Passes{{0, 2}, {2, 1}, {0, 3}, {3, 1}, {4, 1}}));
  EXPECT_TRUE(host_.log.empty());
}

TEST_F(CachedSampler, PackedQueriesKeysAndValuesAreTakenApart) {
  const std::string whole = without_cache();
  packed_ = true;
  EXPECT_EQ(generate(), whole);
  EXPECT_EQ(passes_.back(), (std::pair<int64_t, size_t>{4, 1}));
}

TEST_F(CachedSampler, EveryAttentionOfTheModelHasItsOwnKeys) {
  attentions_ = 3;
  EXPECT_EQ(generate(), without_cache());
}

TEST_F(CachedSampler, ATextBeginsWithNothingOfTheOneBefore) {
  const std::string x = without_cache("x"), ab = without_cache();
  EXPECT_EQ(generate("x"), x);
  EXPECT_EQ(generate(), ab);
}

TEST_F(CachedSampler, ATextThatOutgrowsTheWindowIsComputedWhole) {
  host_.clock.sequence_length = 4;
  const std::string whole = without_cache("ab", 6);
  EXPECT_EQ(generate("ab", 6), whole);
  EXPECT_EQ(passes_, (Passes{{0, 2}, {2, 1}, {0, 3}, {3, 1}, {0, 4}, {0, 4}, {0, 4}}));
  EXPECT_TRUE(host_.log.empty()) << "that is no fault of anybody's";
}

TEST_F(CachedSampler, NoCacheForAnAttentionThatSeesWhatComesLater) {
  layer_.attributes = {attr("heads", 1), attr("head_dim", 1)};
  expect_fallback("h.0.attn is not causal: what it gives a token changes with those behind it");
}

TEST_F(CachedSampler, NoCacheForAModelWithoutAttention) {
  attentions_ = 0;
  expect_fallback("the model calls no `attention`");
}

TEST_F(CachedSampler, NoCacheUnderAMask) {
  mask_ = true;
  expect_fallback("h.0.attn gets a mask or a bias");
}

TEST_F(CachedSampler, NoCacheForAModelThatMixesPositionsElsewhereToo) {
  other_ = [](const Ids& ids) { return static_cast<float>(std::accumulate(ids.begin(), ids.end(), int64_t{0})); };
  expect_fallback("a token alone has other logits than in the whole text");
}

TEST_F(CachedSampler, NoCacheOverAProviderThatWantsAsManyQueriesAsKeys) {
  refuses_fewer_ = true;
  expect_fallback("h.0.attn cannot have fewer queries than keys");
}

TEST_F(CachedSampler, NoCacheForAModelThatCallsAnotherNumberOfAttentions) {
  const std::string whole = without_cache();
  other_ = [this](const Ids& ids) { return attentions_ = ids.size() == 1 ? 1 : 2, 0.0F; };
  attentions_ = 2;
  EXPECT_EQ(generate(), whole);
}

TEST_F(CachedSampler, OutsideOfATextAttentionIsLeftAlone) {
  plugin_.emplace(host_, MORTISE_PLUGIN_FILE);
  float sum = 0;
  EXPECT_EQ(attend({1, 2, 3}, sum), MORTISE_OK);
  EXPECT_EQ(sum, 6);
  EXPECT_EQ(host_.live_tensors(), 0U);
}
}  // namespace
