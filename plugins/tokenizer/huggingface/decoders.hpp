// From tokens back to text: `decoder` of tokenizer.json.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "fields.hpp"

namespace mortise::huggingface {

class Decoder {
 public:
  virtual ~Decoder() = default;
  virtual void apply(std::vector<std::string>& tokens) const = 0;
};

// Throws Fault for one that is not known.
std::unique_ptr<const Decoder> make_decoder(const Fields&);

}  // namespace mortise::huggingface
