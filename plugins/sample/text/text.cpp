// Text from the model, one token after another: the logits behind the text, a draw from them, the characters that it
// adds.
#include <algorithm>
#include <limits>

#include "choose.hpp"
#include "model.hpp"
#include "mortise/cpp/plugin.hpp"
#include "pieces.hpp"

namespace sample {
namespace {
using namespace mortise;

// A request with the plugin's own keys where it says nothing.
struct Asked {
  int64_t tokens;
  Draw draw;
  std::vector<std::string> stop;
};

class Text {
 public:
  Text() : model_(config::flag("cache")) {
    for (const std::string_view p : config::texts("prompts")) {
      if (p.empty()) config::refuse("prompts", "an empty prompt has no token to go on from", "prompts = [\"The \"]");
      prompts_.emplace_back(p);
    }
    for (const std::string_view s : config::texts("stop")) {
      if (s.empty()) config::refuse("stop", "an empty text stands before every token", "stop = [\"\\n\\n\"]");
      stop_.emplace_back(s);
    }
  }

  void generate(const mortise_sample_request* request) {
    open_api(api.host);  // the model and the tokenizer may have come after us
    need(api.tokenizer, "mortise.tokenizer/0");
    need(api.model, "mortise.model/0");
    need(api.batch, "mortise.batch/0");
    need(api.tensor, "mortise.tensor/0");
    need(api.ops, "mortise.ops/0");
    const Asked asked = asked_by(*request);
    if (request->prompt.len > 0) {
      const uint32_t number = MORTISE_HAS_ROOM(request, text) ? request->text : 0;
      continue_text(*request, asked, view(request->prompt), number);
      return;
    }
    for (uint32_t i = 0; i < prompts_.size(); ++i)
      if ((i > 0 && request->emit(request->user, MORTISE_STR("\n")) != MORTISE_OK) ||
          !continue_text(*request, asked, prompts_[i], i))
        return;
  }

  void attention(mortise_call* call, mortise_next* next) { model_.cache().attention(call, next); }

 private:
  Asked asked_by(const mortise_sample_request& r) const {
    Asked asked{r.tokens > 0 ? r.tokens : tokens_, draw_, stop_};
    if (r.temperature >= 0) asked.draw.temperature = r.temperature;
    if (r.top_k >= 0) asked.draw.top_k = static_cast<size_t>(r.top_k);
    if (MORTISE_HAS_ROOM(&r, top_p) && r.top_p > 0) asked.draw.top_p = r.top_p;
    if (!MORTISE_HAS_ROOM(&r, n_stop) || !r.stop) return asked;
    asked.stop.clear();
    for (uint32_t i = 0; i < r.n_stop; ++i) {
      if (r.stop[i].len == 0) throw Error(MORTISE_E_ARGUMENT, "an empty text to stop at stands before every token");
      asked.stop.emplace_back(view(r.stop[i]));
    }
    return asked;
  }

  // Emits the prompt, then what comes after it. False: whoever listens has enough.
  bool continue_text(const mortise_sample_request& request, const Asked& asked, std::string_view prompt,
                     uint32_t text) {
    std::vector<int64_t> ids = encode(prompt);
    if (ids.empty()) throw Error(MORTISE_E_ARGUMENT, "the prompt has no tokens: there is nothing to go on from");
    const size_t window = window_size();
    if (ids.size() > window)
      log_line(MORTISE_LOG_WARNING, "the prompt has " + std::to_string(ids.size()) +
                                        " tokens; the model sees the last " + std::to_string(window) +
                                        " of them (data.sequence_length)");
    const int64_t end = end_of_text();
    const Forget forget(model_);
    Pieces pieces(request);
    Tail tail(ids.size());
    Stop stop(asked.stop);
    if (!pieces.emit(prompt)) return false;
    for (int64_t i = 0; i < asked.tokens && !stop.is_reached(); ++i) {
      const double u = uniform(request.seed, text, static_cast<uint32_t>(i));
      ids.push_back(choose(model_.next_logits(ids, window), asked.draw, u));
      if (ids.back() == end) break;
      if (!pieces.emit(stop.pass(tail.take(ids)))) return false;
    }
    return pieces.emit(stop.rest());
  }

  // Nothing is kept from one text to the next, however this one ends.
  class Forget {
   public:
    explicit Forget(Model& model) : model_(model) { model_.forget(); }
    Forget(const Forget&) = delete;
    Forget& operator=(const Forget&) = delete;
    ~Forget() { model_.forget(); }

   private:
    Model& model_;
  };

  // The token that ends a text, -1 if none does.
  int64_t end_of_text() const {
    int64_t id = -1;
    if (!ignore_eos_ && MORTISE_HAS(api.tokenizer, special) &&
        api.tokenizer->special(api.host, MORTISE_STR("eos"), &id) != MORTISE_OK)
      return -1;
    return id;
  }

  // The model was trained on no more tokens than this.
  static size_t window_size() {
    const int64_t length = api.loop ? clock_now().sequence_length : 0;
    return length > 0 ? static_cast<size_t>(length) : std::numeric_limits<size_t>::max();
  }

  Model model_;
  std::vector<std::string> prompts_, stop_;
  const int64_t tokens_ = config::integer("tokens");
  const Draw draw_{config::number("temperature"), static_cast<size_t>(config::integer("top_k")),
                   config::number("top_p")};
  const bool ignore_eos_ = config::flag("ignore_eos");
};

const mortise_sampler kObject = {sizeof(mortise_sampler), 0, thunk<&Text::generate>};
}  // namespace
}  // namespace sample

MORTISE_PLUGIN(sample::Text, mortise::provide("sample", &sample::kObject),
               mortise::wrap<&sample::Text::attention>("attention"))
