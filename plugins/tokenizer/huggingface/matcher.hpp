// `pattern` of tokenizer.json: {"String": …} or {"Regex": …}.
#pragma once
#include "fields.hpp"
#include "pattern.hpp"

namespace mortise::huggingface {

inline Pattern pattern_of(const Fields& f) {
  const Fields p = f.inside("pattern");
  p.only({"String", "Regex"});
  try {
    return p.has("String") ? Pattern::literal(p.text("String")) : Pattern::regex(p.text("Regex"));
  } catch (const Fault& fault) {
    f.refuse("pattern", std::string(": ") + fault.what());
  }
}

}  // namespace mortise::huggingface
