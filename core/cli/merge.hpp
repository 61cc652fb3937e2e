// Parameters that were added to a model, merged into its own for an export.
#pragma once
#include <deque>
#include <vector>

#include "formats/huggingface/config.hpp"
#include "formats/safetensors/safetensors.hpp"

namespace mortise::cli {

// Takes the factors out of the file and puts each sum, computed in double and rounded once, in the place of its
// parameter. The bytes of the sums are the caller's to keep. Throws Failure (exit 65): the file has other tensors.
std::deque<std::vector<char>> merge_products(TensorFile& file, const std::vector<huggingface::Product>& products);

}  // namespace mortise::cli
