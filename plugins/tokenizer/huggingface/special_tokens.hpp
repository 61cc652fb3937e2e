// Which tokens begin, end, pad and separate texts: what tokenizer_config.json and special_tokens_map.json beside
// tokenizer.json say, else the names that are usual.
#pragma once
#include <map>
#include <string>

#include "tokenizer.hpp"

namespace mortise::huggingface {

// "bos" to its id; only those that there are. `texts`: those of the files beside, by name, as far as they are there.
std::map<std::string, int64_t, std::less<>> special_tokens(const Tokenizer&,
                                                           const std::map<std::string, std::string>& texts);

}  // namespace mortise::huggingface
