#include "tokenizer.hpp"

#include <algorithm>

#include "formats/huggingface/json.hpp"
#include "mortise/cpp/strings.hpp"

namespace mortise::huggingface {
namespace {

constexpr size_t kMostBytes = size_t{1} << 30;  // of a text, also on its way to ids

// Older files, as that of GPT-2 and BERT, do not say it.
std::string type_of_model(const Fields& f) {
  if (f.has("type")) return f.type();
  return f.has("merges") ? "BPE" : f.has("max_input_chars_per_word") ? "WordPiece" : f.type();
}

std::unique_ptr<const Model> make_model(const Fields& f, bool bytes) {
  const std::string type = type_of_model(f);
  if (type == "BPE") return make_bpe(f, bytes);
  if (type == "WordPiece") return make_word_piece(f);
  if (type == "Unigram") return make_unigram(f);
  f.refuse("type", " is `" + type + "`, a model that is not supported");
}

void refuse_what_is_no_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t length = utf8_length(text.substr(at));
    if (length == 0) throw Fault("the text is not UTF-8 at byte " + with_commas(static_cast<int64_t>(at)));
    at += length;
  }
}

}  // namespace

class Tokenizer::Borrowed {
 public:
  explicit Borrowed(const Tokenizer& owner) : owner_(owner) {
    const std::lock_guard lock(owner.mutex_);
    if (owner.free_.empty()) return;
    work_ = std::move(owner.free_.back());
    owner.free_.pop_back();
  }
  ~Borrowed() {
    if (!work_) return;
    const std::lock_guard lock(owner_.mutex_);
    owner_.free_.push_back(std::move(work_));
  }
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;
  Work& work() {
    if (!work_) work_ = std::make_unique<Work>();
    return *work_;
  }

 private:
  const Tokenizer& owner_;
  std::unique_ptr<Work> work_;
};

Tokenizer::Tokenizer(std::string_view json) {
  const Json parsed = parse_json(json);
  if (!parsed.is_object()) throw Fault("it is no JSON object, is cut short, or is nested too deeply");
  const Fields f(parsed, "");
  // Ids come without special tokens and whole: what adds them, cuts or pads is not for us.
  f.only({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor",
          "decoder", "model"});
  if (f.has("version") && f.text("version") != "1.0") f.refuse("version", " is `" + f.text("version") + "`, not 1.0");
  if (f.has("normalizer")) normalizer_ = make_normalizer(f.inside("normalizer"));
  if (f.has("pre_tokenizer")) add_pre_tokenizers(f.inside("pre_tokenizer"), pre_tokenizers_);
  const Fields model = f.inside("model");
  const bool bytes = !pre_tokenizers_.empty() && pre_tokenizers_.back()->maps_bytes() && type_of_model(model) == "BPE";
  if (bytes) pre_tokenizers_.pop_back();
  model_ = make_model(model, bytes);
  if (f.has("decoder")) decoder_ = make_decoder(f.inside("decoder"));
  added_ = AddedTokens(f, model_->vocabulary, normalizer_.get());
  refuse_unknown_start();
}

// `prepend_scheme` "first" asks whether a piece begins where the text began. Behind a part that makes several pieces
// of the first character we do not know.
void Tokenizer::refuse_unknown_start() const {
  for (const auto& p : pre_tokenizers_) {
    if (!p->needs_start()) continue;
    const bool known =
        p == pre_tokenizers_.front() && (!normalizer_ || (normalizer_->keeps_start() && !added_.any_normalized()));
    if (!known) throw Fault("pre_tokenizer: `prepend_scheme` \"first\" is not supported beside these other parts");
  }
}

Ids Tokenizer::encode(std::string_view text) const {
  refuse_what_is_no_utf8(text);
  if (text.size() > kMostBytes) throw Fault("the text is longer than 1 GiB");
  Ids ids;
  ids.reserve(text.size() / 3);
  Borrowed borrowed(*this);
  Work& work = borrowed.work();
  added_.cut(text, false, [&](std::string_view part, size_t begin, const AddedToken* token) {
    if (token) ids.push_back(token->id);
    else encode_text(part, begin == 0, work, ids);
  });
  return ids;
}

void Tokenizer::encode_text(std::string_view text, bool at_start, Work& work, Ids& ids) const {
  Normalized n = {std::string(text), at_start};
  if (normalizer_) normalizer_->apply(n);
  if (n.text.size() > kMostBytes) throw Fault("the normalizer makes the text too long");
  added_.cut(n.text, true, [&](std::string_view part, size_t begin, const AddedToken* token) {
    if (token) return ids.push_back(token->id);
    Pieces pieces = {std::string(part), {{0, part.size()}}, n.at_start && begin == 0};
    const size_t most = std::min(most_bytes(text.size()), kMostBytes);
    for (const auto& p : pre_tokenizers_) {
      p->apply(pieces);
      if (pieces.text.size() > most) throw Fault("the pre-tokenizer makes the text too long");
    }
    for (const Span s : pieces.spans) encode_piece(*model_, pieces.view(s), work, ids);
  });
}

std::string Tokenizer::decode(const int64_t* ids, size_t n) const {
  std::vector<std::string> tokens;
  tokens.reserve(n);
  for (size_t i = 0; i < n; ++i) {
    if (ids[i] < 0) throw Fault("id " + std::to_string(ids[i]) + " is no token");
    if (ids[i] >= Vocabulary::kMostIds) continue;
    const auto id = static_cast<uint32_t>(ids[i]);
    if (const AddedToken* t = added_.find(id)) tokens.push_back(t->found_as);
    else if (const std::string* token = model_->vocabulary.token(id)) tokens.push_back(*token);
  }
  if (decoder_) decoder_->apply(tokens);
  std::string text;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0 && !decoder_) text += ' ';
    text += tokens[i];
  }
  return text;
}

bool Tokenizer::find(std::string_view token, uint32_t& id) const {
  if (const AddedToken* t = added_.find(token)) return id = t->id, true;
  const uint32_t* known = model_->vocabulary.find(token);
  if (known) id = *known;
  return known != nullptr;
}

int64_t Tokenizer::size() const {
  return static_cast<int64_t>(std::max<size_t>(model_->vocabulary.end(), added_.end()));
}

}  // namespace mortise::huggingface
