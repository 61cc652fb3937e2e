// What is wrong with a file of a tokenizer, or of this plugin's knowledge of it. The text names the place in the file.
#pragma once
#include <stdexcept>
#include <string>

namespace mortise::huggingface {

struct Fault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace mortise::huggingface
