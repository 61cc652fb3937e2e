#include "kernels/jitter/jitter.h"

#include "kernels/jitter/element.h"

namespace mortise::kernels {

void jitter(const mortise_philox& place, double amount, float* factor, int64_t begin, int64_t end) {
  uint16_t bits[8];
  for (int64_t e = begin; e < end; ++e) {
    if (e == begin || e % 8 == 0) mortise_philox_block(&place, static_cast<uint64_t>(e / 8), bits);
    factor[e] = jitter_element(amount, bits[e % 8]);
  }
}

}  // namespace mortise::kernels
