// From logits to the next token.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace sample {

// What a token is drawn from.
struct Draw {
  double temperature = 1;  // softmax of logits / temperature; 0: always the likeliest
  size_t top_k = 0;        // of so many of the likeliest; 0: of all
  double top_p = 1;        // of the fewest of these whose share of the softmax is this large
};

// `u` in [0, 1) decides; the likeliest come first, equals in the order of their ids. Throws of logits that are not
// finite, or that allow nothing.
int64_t choose(const std::vector<float>& logits, const Draw& draw, double u);

// The uniform number of one token of one text.
double uniform(uint64_t seed, uint32_t text, uint32_t token);

}  // namespace sample
