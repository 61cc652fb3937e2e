// AdamW whose two means are 8-bit indices into a map, with a scale for each block of 256 elements, over raw pointers on
// the host's processor.
#pragma once
#include <array>
#include <cstdint>

#include "kernels/adamw/adamw.h"

namespace mortise::kernels {

constexpr int64_t kAdamW8BitBlock = 256;
constexpr int kZeroOfSignedMap = 127;  // its index; that of the other is 0

/** The 256 values of an index, ascending: 0, 1, and in each of seven decades below 1 twice as many means as in the one
 *  below, at equal distances. The signed map has the negative of each mean, and no -1. The bits are
 *  those of bitsandbytes' create_dynamic_map(signed) with torch 2.11 on a processor with AVX2 or AVX-512; where
 *  torch.linspace has no fused multiply-add, some are a unit in the last place off. */
const std::array<float, 256>& dynamic_map(bool is_signed);

// The arrays of one parameter. `p` has the dtype `master` (MORTISE_F32, _BF16 or _F16), `g` the dtype `grad` (these or
// _F64); `copy` gets a p in F32 in BF16, or is null. The means m and v are map[index] * scale; scales are one a block.
struct AdamW8BitArrays {
  uint32_t master = MORTISE_F32, grad = MORTISE_F32;
  void* p = nullptr;
  uint8_t *m = nullptr, *v = nullptr;  // into the signed map, and into the other
  float *m_scale = nullptr, *v_scale = nullptr;
  const void* g = nullptr;
  uint16_t* copy = nullptr;
};

/** Updates elements [begin, end) block by block; `begin` is a multiple of 256, and so is `end` if it is not the end of
 *  the parameter. In fp32, in the order of operations of bitsandbytes, in which the decay comes last:
 *
 *    g = multiplier * grad
 *    m = map1[m] * m_scale * beta1 + (1 - beta1) * g       v = map2[v] * v_scale * beta2 + (1 - beta2) * g * g
 *    p = p - lr * c / correction1 * (m / (sqrt(v) + c * eps))    with c = sqrt(correction2)
 *    p = p * (1 - lr * weight_decay)
 *    m_scale = largest |m| of the block    m = index of the value of map1 nearest to m / m_scale; v likewise
 *
 *  Rounding   of two values as near, that with the even index. A negative m never gets the index of 0, but the next
 *             below. Where all of a block is 0, or below the smallest normal float, indices are those of 0.
 *  Non-finite where v comes out as Inf or NaN, which a gradient of that kind and one above 1e19 make, m and v are 0,
 *             and p is left alone.
 *  Memory     borrows every pointer; allocates nothing. The arrays must not overlap.
 *  Threads    [any-thread]; ranges that do not overlap may run at once.
 *  Repeats    bitwise equal on every x86-64 processor, however the range is cut: no fused multiply-add, and the only
 *             reduction is a maximum.
 *  Source     bitsandbytes, csrc/kernels.cu: kOptimizerStatic8bit2StateBlockwise, quantize_2D. Dettmers et al. 2022,
 *             arXiv:2110.02861.
 *  Since      0.2 */
void adamw_8bit_update(const AdamWStep& step, const AdamW8BitArrays& arrays, int64_t begin, int64_t end);

/** The same with means in fp32 and no scales, for parameters that are to have no 8-bit states: kOptimizer32bit2State.
 *  `states` are m and v; those of `arrays` are not used, and a range may begin and end anywhere. Inf and NaN stay, as
 *  in AdamW. */
void adamw_32bit_update(const AdamWStep& step, const AdamW8BitArrays& arrays, const std::array<float*, 2>& states,
                        int64_t begin, int64_t end);

}  // namespace mortise::kernels
