// `pattern` of tokenizer.json: {"String": …} or {"Regex": …}.
#pragma once
#include "fields.hpp"
#include "pattern.hpp"

namespace mortise::huggingface {

inline Pattern pattern_of(const Fields& f) {
  const Fields p = f.inside("pattern");
  p.only({"String", "Regex"});
  const bool is_literal = p.has("String");
  const std::string text = p.text(is_literal ? "String" : "Regex");
  try {
    return is_literal ? Pattern::literal(text) : Pattern::regex(text);
  } catch (const Fault& fault) {
    f.refuse("pattern", std::string(": ") + fault.what());
  }
}

}  // namespace mortise::huggingface
