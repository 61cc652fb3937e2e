// How text is cut into the pieces that the model sees: `pre_tokenizer` of tokenizer.json.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "fields.hpp"

namespace mortise::huggingface {

struct Span {
  size_t begin, end;
  bool empty() const { return begin == end; }
};

// A text and its pieces, none of which is empty.
struct Pieces {
  std::string text;
  std::vector<Span> spans;
  bool at_start = true;  // see Normalized

  std::string_view view(Span s) const { return std::string_view(text).substr(s.begin, s.end - s.begin); }
};

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void apply(Pieces&) const = 0;
  // Gives each byte its letter (of GPT-2), and that is all: a model of bytes can leave it out.
  virtual bool maps_bytes() const { return false; }
  virtual bool needs_start() const { return false; }
};
using PreTokenizers = std::vector<std::unique_ptr<const PreTokenizer>>;

// Adds those that `pre_tokenizer` is made of. Throws Fault for one that is not known.
void add_pre_tokenizers(const Fields&, PreTokenizers&);

}  // namespace mortise::huggingface
