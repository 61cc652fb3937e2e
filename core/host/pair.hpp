// Operators as pairs: the host runs forward with autograd off and builds the node that calls backward.
#pragma once
#include "core/host/call.hpp"

namespace mortise {

// The last link of an operator's chain. Throws.
void run_operator(const mortise_next& link, mortise_call& call);

}  // namespace mortise
