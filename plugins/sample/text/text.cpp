// Text from the model, one token after another: forward over the window, draw from the last row of logits, emit whole
// characters.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "mortise/cpp/ops.hpp"
#include "mortise/cpp/plugin.hpp"
#include "mortise/cpp/text.hpp"

namespace {
using namespace mortise;

std::vector<int64_t> encode(std::string_view text) {
  size_t needed = 0;
  check(api.tokenizer->encode(api.host, str(text), nullptr, 0, &needed));
  std::vector<int64_t> ids(needed);
  if (needed) check(api.tokenizer->encode(api.host, str(text), ids.data(), ids.size(), &needed));
  return ids;
}

std::string decode(std::span<const int64_t> ids) {
  size_t needed = 0;
  check(api.tokenizer->decode(api.host, ids.data(), ids.size(), nullptr, 0, &needed));
  std::string text(needed, '\0');
  if (needed) check(api.tokenizer->decode(api.host, ids.data(), ids.size(), text.data(), text.size(), &needed));
  return text;
}

// ---- from ids to logits ----

void put(const Batch& batch, const char* name, std::span<const int64_t> elements) {
  const Tensor here = empty(MORTISE_I64, {1, static_cast<int64_t>(elements.size())}, true);
  std::copy(elements.begin(), elements.end(), Info(here).as<int64_t>());
  api.tensor->written(api.host, here.get());
  Tensor there;
  check(api.batch->to_device(api.host, here.get(), there.put()));
  check(api.batch->set(api.host, batch.get(), str(name), there.get()));
}

// What the model thinks comes after `ids`: one number for each token that the tokenizer knows.
std::vector<float> next_logits(std::span<const int64_t> ids) {
  std::vector<int64_t> positions(ids.size());
  std::iota(positions.begin(), positions.end(), 0);
  const Batch batch = Batch::create(nullptr);
  put(batch, "input_ids", ids);
  put(batch, "positions", positions);

  mortise_value results[2] = {};
  check(api.model->forward(api.host, batch.get(), MORTISE_SAMPLE, MORTISE_WANT_LOGITS, results, 2));
  const Tensor loss = take(results[0]), logits_1TV = take(results[1]);
  if (!logits_1TV || Info(logits_1TV).rank != 3)
    throw Error(MORTISE_E_UNSUPPORTED, "sample.text needs logits [1, T, vocab], and this model gives none");

  const Tensor last_11V =
      ops::contiguous(ops::to(ops::narrow(logits_1TV, 1, Info(logits_1TV).size(1) - 1, 1), MORTISE_F32));
  std::vector<float> logits(static_cast<size_t>(Info(last_11V).numel));
  check(api.tensor->read(api.host, last_11V.get(), logits.data(), logits.size() * sizeof(float)));
  int64_t known = 0;
  check(api.tokenizer->size(api.host, &known));
  logits.resize(std::min(logits.size(), static_cast<size_t>(known)));  // a padded vocabulary has rows without a token
  return logits;
}

// ---- from logits to an id ----

// `u` in [0, 1) decides among the `top_k` likeliest, the likeliest first; equals in the order of their ids.
int64_t choose(const std::vector<float>& logits, double temperature, size_t top_k, double u) {
  for (const float x : logits)
    if (std::isnan(x) || x == std::numeric_limits<float>::infinity())
      throw Error(MORTISE_E_DATA, "the model's logits are not finite");
  std::vector<int64_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const size_t count = temperature == 0 ? 1 : top_k == 0 ? order.size() : std::min(top_k, order.size());
  const auto at = [&](int64_t id) { return static_cast<double>(logits[static_cast<size_t>(id)]); };
  std::partial_sort(order.begin(), order.begin() + static_cast<ptrdiff_t>(count), order.end(),
                    [&](int64_t a, int64_t b) { return at(a) != at(b) ? at(a) > at(b) : a < b; });
  order.resize(count);
  if (order.empty() || std::isinf(at(order[0]))) throw Error(MORTISE_E_DATA, "the model allows no token");

  std::vector<double> up_to(count);
  double total = 0;
  for (size_t i = 0; i < count; ++i)
    up_to[i] = total += count == 1 ? 1 : std::exp((at(order[i]) - at(order[0])) / temperature);
  const size_t chosen = static_cast<size_t>(std::upper_bound(up_to.begin(), up_to.end(), u * total) - up_to.begin());
  return order[std::min(chosen, count - 1)];
}

double uniform(uint64_t seed, uint32_t text, uint32_t token) {
  const uint32_t key[2] = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  uint32_t words[4];
  mortise_philox_words(key, token, text, 0, 0, words);
  return ((words[0] >> 5) * 67108864.0 + (words[1] >> 6)) / 9007199254740992.0;  // 53 bits
}

// ---- pieces ----

// Lets whole characters through; what can never become one is shown as U+FFFD, and half of one at the very end is
// dropped.
class Pieces {
 public:
  explicit Pieces(const mortise_sample_request& request) : request_(request) {}
  // False: whoever listens has enough.
  bool emit(std::string_view bytes) {
    pending_ += bytes;
    std::string whole;
    for (bool missing = false; !pending_.empty();) {
      const size_t length = utf8_length(pending_, &missing);
      if (missing) break;
      whole += length ? pending_.substr(0, length) : "\uFFFD";
      pending_.erase(0, std::max<size_t>(length, 1));
    }
    return whole.empty() || request_.emit(request_.user, str(whole)) == MORTISE_OK;
  }

 private:
  const mortise_sample_request& request_;
  std::string pending_;
};

// What new tokens add to the text. A token by itself may say less than behind others (the space before a word), and
// only with others what its bytes mean: U+FFFD until then.
class Tail {
 public:
  explicit Tail(size_t prompt) : begin_(prompt - std::min(prompt, kMostOfACharacter)), shown_(prompt) {}
  std::string take(std::span<const int64_t> ids) {
    const std::string before = decode(ids.subspan(begin_, shown_ - begin_)), all = decode(ids.subspan(begin_));
    if (all.ends_with("\uFFFD") && ids.size() - shown_ < kMostOfACharacter) return "";
    begin_ = std::exchange(shown_, ids.size());
    return all.substr(std::min(before.size(), all.size()));
  }

 private:
  static constexpr size_t kMostOfACharacter = 4;  // tokens
  size_t begin_, shown_;
};

class Text {
 public:
  Text() {
    for (const std::string_view p : config::texts("prompts")) {
      if (p.empty()) config::refuse("prompts", "an empty prompt has no token to go on from", "prompts = [\"The \"]");
      prompts_.emplace_back(p);
    }
  }

  void generate(const mortise_sample_request* request) {
    open_api(api.host);  // the model and the tokenizer may have come after us
    need(api.tokenizer, "mortise.tokenizer/0");
    need(api.model, "mortise.model/0");
    need(api.batch, "mortise.batch/0");
    need(api.tensor, "mortise.tensor/0");
    need(api.ops, "mortise.ops/0");
    if (request->prompt.len > 0) {
      continue_text(*request, view(request->prompt), 0);
      return;
    }
    for (uint32_t i = 0; i < prompts_.size(); ++i)
      if (!continue_text(*request, prompts_[i], i)) return;
  }

 private:
  // Emits the prompt, then what comes after it; the second text and those after it on a line of their own.
  bool continue_text(const mortise_sample_request& request, std::string_view prompt, uint32_t text) const {
    std::vector<int64_t> ids = encode(prompt);
    if (ids.empty()) throw Error(MORTISE_E_ARGUMENT, "the prompt has no tokens: there is nothing to go on from");
    const int64_t tokens = request.tokens > 0 ? request.tokens : tokens_;
    const double temperature = request.temperature < 0 ? temperature_ : request.temperature;
    const size_t top_k = static_cast<size_t>(request.top_k < 0 ? top_k_ : request.top_k), window = window_size();
    Pieces pieces(request);
    Tail tail(ids.size());
    if (!pieces.emit((text ? "\n" : "") + std::string(prompt))) return false;
    for (int64_t i = 0; i < tokens; ++i) {
      const std::span<const int64_t> seen = std::span(ids).last(std::min(ids.size(), window));
      ids.push_back(
          choose(next_logits(seen), temperature, top_k, uniform(request.seed, text, static_cast<uint32_t>(i))));
      if (!pieces.emit(tail.take(ids))) return false;
    }
    return true;
  }

  // The model was trained on no more tokens than this.
  static size_t window_size() {
    const int64_t length = api.loop ? clock_now().sequence_length : 0;
    return length > 0 ? static_cast<size_t>(length) : std::numeric_limits<size_t>::max();
  }

  std::vector<std::string> prompts_;
  const int64_t tokens_ = config::integer("tokens"), top_k_ = config::integer("top_k");
  const double temperature_ = config::number("temperature");
};

const mortise_sampler kObject = {sizeof(mortise_sampler), 0, thunk<&Text::generate>};
}  // namespace

MORTISE_PLUGIN(Text, mortise::provide("sample", &kObject))
