// data.masking: some tokens are hidden, and only they are labels: masked language modelling.
//
// Bits of one token: Philox words at (position, row, micro-batch, split), key = (run.seed, data.masking). So they are
// others in each epoch, since micro-batches are numbered through, and the same in every evaluation. Of whole words, the
// words of the first piece say whether all are hidden, and those of each piece what stands in its place.
#include <cctype>
#include <cmath>
#include <cstring>

#include "mortise/cpp/batch.hpp"
#include "mortise/cpp/data.hpp"
#include "mortise/cpp/plugin.hpp"

namespace {
using namespace mortise;

constexpr int64_t kNoLabel = -100;
constexpr double kWords = 0x1p32;

class Masking {
 public:
  // The tokenizer is open by now.
  void declared(const mortise_event*) {
    if (mask_ >= 0) return;
    open_api(api.host);
    const auto mask = special_token("mask");
    if (!mask)
      throw Error(MORTISE_E_CONFIG, "data.masking hides tokens behind the tokenizer's `mask`, and it has none",
                  "the tokenizer of a masked language model, such as BERT's");
    for (const char* role : {"bos", "eos", "pad", "cls", "sep", "unk", "mask"})
      if (const auto id = special_token(role)) special_.push_back(*id);
    check(need(api.tokenizer, "mortise.tokenizer/0").size(api.host, &vocabulary_));
    if (config::flag("whole_words")) find_continuations(*mask);
    mask_ = *mask;
  }

  // On the thread of the loop, before anything is loaded for a step or an evaluation.
  void step_begin(const mortise_event*) { find_place(); }
  void eval(mortise_call* call, mortise_next* next) {
    find_place();
    check(api.call->next(api.host, next, call));
  }

  void load(mortise_call* call, mortise_next* next) const {
    const Batch samples = load_next(call, next);
    const Tensor ids_BT = field(samples.get(), "input_ids");
    if (!ids_BT || Info(ids_BT).dtype != MORTISE_I64 || Info(ids_BT).rank != 2)
      throw Error(MORTISE_E_DATA, "data.masking hides tokens, and the data has no `input_ids` of one int64 a position");
    Batch masked = Batch::create(samples.get());
    each_field(samples.get(),
               [&](mortise_str name, mortise_tensor* t) { check(api.batch->set(api.host, masked.get(), name, t)); });
    const bool evaluates = view(call->args[0].v.s) != "train";
    const Place ranks = data_place_now();  // among the micro-batches of all, as one rank alone would number them
    hide(masked, ids_BT, sample_lengths(samples.get()), call->args[1].v.i * ranks.size + ranks.rank, evaluates);
    call->results[0] = value(masked.release());
  }

 private:
  void find_place() {
    if (!is_placed_) check(api.random->stream(api.host, MORTISE_STR("masks"), &place_));
    is_placed_ = true;
  }

  // A piece goes on with a word if the tokenizer writes no white space before it: WordPiece's "##", all without "Ġ" or
  // "▁". What it writes at the beginning of a text says nothing: there it may leave the white space out.
  void find_continuations(int64_t mask) {
    const size_t before = text_of({mask}).size();
    for (int64_t id = 0; id < vocabulary_; ++id) {
      const std::string text = text_of({mask, id});
      continues_.push_back(text.size() <= before || !std::isspace(static_cast<unsigned char>(text[before])));
    }
    const auto n = std::ranges::count(continues_, true);
    if (n == 0 || n == vocabulary_)
      config::refuse("whole_words",
                     n == 0 ? "the tokenizer writes white space before every token, so none goes on with a word"
                            : "the tokenizer writes white space before no token, so a row is one word",
                     "whole_words = false");
  }
  static std::string text_of(const std::vector<int64_t>& ids) {
    std::string text(64, '\0');
    size_t needed = 0;
    const auto decode = [&] {
      check(api.tokenizer->decode(api.host, ids.data(), ids.size(), text.data(), text.size(), &needed));
    };
    decode();
    const bool fits = needed <= text.size();
    text.resize(needed);
    if (!fits) decode();
    return text;
  }
  bool continues(int64_t id) const {
    return id >= 0 && std::cmp_less(id, continues_.size()) && continues_[static_cast<size_t>(id)];
  }

  void hide(const Batch& batch, Ref ids_BT, const std::vector<int64_t>& lengths, int64_t index, bool evaluates) const {
    const Info in(ids_BT);
    const Tensor out_BT = empty(MORTISE_I64, in.shape(), true), labels_BT = empty(MORTISE_I64, in.shape(), true),
                 seen_BT = empty(MORTISE_U8, in.shape(), true);
    const auto out = Info(out_BT).as<int64_t>(), labels = Info(labels_BT).as<int64_t>();
    const auto seen = Info(seen_BT).as<uint8_t>();
    int64_t n_hidden = 0;
    for (int64_t row = 0; row < in.size(0); ++row) {
      bool in_word = false, drawn = false;
      for (int64_t t = 0; t < in.size(1); ++t) {
        const int64_t at = row * in.size(1) + t, id = in.as<const int64_t>()[at];
        const bool is_token = t < lengths[static_cast<size_t>(row)];
        uint32_t words[4];
        mortise_philox_words(place_.key, static_cast<uint32_t>(t), static_cast<uint32_t>(row),
                             static_cast<uint32_t>(index), place_.site + evaluates, words);
        const bool of_word = is_token && std::ranges::find(special_, id) == special_.end();
        if (!in_word || !continues(id)) drawn = words[0] < probability_ * kWords;
        in_word = of_word;
        const bool hidden = of_word && drawn;
        out[at] = hidden ? shown(id, words) : id;
        labels[at] = hidden ? id : kNoLabel;
        seen[at] = is_token;
        n_hidden += hidden;
      }
    }
    for (const auto& [name, t] :
         {std::pair("input_ids", &out_BT), {"labels", &labels_BT}, {"attention_mask", &seen_BT}})
      check(api.batch->set(api.host, batch.get(), str(name), t->get()));
    check(api.batch->set_count(api.host, batch.get(), MORTISE_STR("tokens"), n_hidden));
  }

  // What stands in the place of a hidden token: 8 of 10 times the mask, once any token, once the token itself.
  int64_t shown(int64_t id, const uint32_t words[4]) const {
    if (words[1] < 0.8 * kWords) return mask_;
    if (words[1] < 0.9 * kWords)
      return static_cast<int64_t>(uint64_t{words[2]} * static_cast<uint64_t>(vocabulary_) >> 32);
    return id;
  }

  const double probability_ = config::number("probability");
  int64_t mask_ = -1, vocabulary_ = 0;
  std::vector<int64_t> special_;
  std::vector<bool> continues_;  // by id; empty: each token is a word
  bool is_placed_ = false;
  mortise_philox place_ = {};
};
}  // namespace

MORTISE_PLUGIN(Masking, mortise::wrap<&Masking::load>("load"), mortise::wrap<&Masking::eval>("eval"),
               mortise::listen<&Masking::declared>("params.declared"),
               mortise::listen<&Masking::step_begin>("step.begin"))
