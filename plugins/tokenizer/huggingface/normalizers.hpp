// What happens to text before it is cut: `normalizer` of tokenizer.json.
#pragma once
#include <memory>
#include <string>

#include "fields.hpp"

namespace mortise::huggingface {

// A text on its way to ids.
struct Normalized {
  std::string text;
  bool at_start = true;  // its first character is the first of what was to be encoded, or stands for that
};

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void apply(Normalized&) const = 0;
  // `at_start` is exact behind it, whatever stands before it.
  virtual bool keeps_start() const { return true; }
};
using NormalizerPtr = std::unique_ptr<const Normalizer>;

// Throws Fault for one that is not known.
NormalizerPtr make_normalizer(const Fields&);
// A SentencePiece charsmap, base64.
NormalizerPtr make_precompiled(const Fields&);

// What a text of so many bytes may become: more is no normal form but an attack on memory.
inline size_t most_bytes(size_t before) { return 64 * before + 65536; }

}  // namespace mortise::huggingface
