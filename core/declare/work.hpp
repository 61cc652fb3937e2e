// The arithmetic of training, by the declaration alone.
#pragma once
#include <cstdint>
#include <string>

#include "core/model/declaration.hpp"
#include "core/plan/plan.hpp"

namespace mortise {

// The floating-point operations of a token's matrix products, forward and backward, a multiplication and an addition
// each counted: 6 for a parameter that is trained, and attention's. As PaLM counts (Chowdhery et al. 2022, appendix B):
// causal attention as if each query saw all keys of `sequence_length`, and nothing that is computed again.
double flop_per_token(const Declaration& d, int64_t sequence_length);

// What the factors of most products are: an element type, or what `[frame] products` says that such are rounded to.
std::string factors_of_products(const Plan& plan, const Declaration& d);

}  // namespace mortise
