// Factors around 1 from counter-based bits, over raw pointers, on the host's processor.
#pragma once
#include <cstdint>

#include "mortise/philox.h"

namespace mortise::kernels {

/** Writes the factors of elements [begin, end): even between 1 - amount and 1 + amount, from the element's 16 bits.
 *
 *  Memory   borrows `factor`, which points to element 0; allocates nothing.
 *  Threads  [any-thread]; ranges that do not overlap may run at once.
 *  Repeats  bitwise equal on every machine, for every split.
 *  Since    0.2 */
void jitter(const mortise_philox& place, double amount, float* factor, int64_t begin, int64_t end);

}  // namespace mortise::kernels
