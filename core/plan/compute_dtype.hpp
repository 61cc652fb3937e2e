// What a run computes in, by the plan alone.
#pragma once
#include <string>

#include "core/plan/plan.hpp"

namespace mortise {

// In one mode, by who wraps `forward`: its fact `[frame] compute_dtype`, an element type's name, or the value of the
// key that the fact names. "" where nobody says.
std::string planned_compute_dtype(const Plan& plan, int mode);

// Likewise what factors of 32 bits are rounded to in products: the fact `[frame] products`. "": nothing.
std::string planned_products(const Plan& plan, int mode);

}  // namespace mortise
