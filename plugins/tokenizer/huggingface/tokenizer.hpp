// A tokenizer.json: text to ids and back, as Hugging Face's tokenizers does it without special tokens around.
#pragma once
#include <mutex>

#include "added_tokens.hpp"
#include "decoders.hpp"
#include "pre_tokenizers.hpp"

namespace mortise::huggingface {

class Tokenizer {
 public:
  // The text of the file. Throws Fault.
  explicit Tokenizer(std::string_view json);

  // UTF-8. Any number of threads at once. Throws Fault.
  Ids encode(std::string_view text) const;
  // Ids without a token are left out, as the library does. Throws Fault for a negative one.
  std::string decode(const int64_t* ids, size_t n) const;
  // The id of a token by its text; false: there is none.
  bool find(std::string_view token, uint32_t& id) const;
  std::string unknown() const { return model_->unknown(); }
  int64_t size() const;  // one more than the largest id

 private:
  // Memory of a thread that encodes; taken for a call, and given back.
  class Borrowed;
  void refuse_unknown_start() const;
  void encode_text(std::string_view text, bool at_start, Work&, Ids&) const;

  NormalizerPtr normalizer_;
  PreTokenizers pre_tokenizers_;
  std::unique_ptr<const Model> model_;
  std::unique_ptr<const Decoder> decoder_;
  AddedTokens added_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Work>> free_;
};

}  // namespace mortise::huggingface
