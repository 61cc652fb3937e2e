// The cross-entropy of rows of logits and its gradient, over raw pointers, on the host's processor.
#pragma once
#include <cstdint>

#include "mortise/abi.h"

namespace mortise::kernels {

// A label that asks for nothing: its row has no loss and no gradient.
constexpr int64_t kNoLabel = -100;

// Rows of `columns` logits that lie one behind the other, and a label each. The first `valid` columns are classes; the
// others are padding, which counts as minus infinity. With smoothing s the target is 1 - s at the label and s / valid
// at every class.
struct CrossEntropyRows {
  uint32_t dtype;
  const void* logits;
  const int64_t* labels;
  int64_t rows, columns, valid;
  double smoothing;
};

/** Of each row in [begin, end): its loss, and two numbers for the gradient, a reference R and L with
 * log(sum of e^x) = R + L.
 *
 *  Shapes   loss [rows], statistics [rows, 2].
 *  Dtypes   logits F32, F64, BF16 or F16; loss and statistics in what is computed in, F64 for F64 and else F32.
 *  Memory   reads every logit once; once more, twice in all, where the loss is 88 (F64: 709) and more.
 *  Threads  [any-thread]
 *  Repeats  the sum has a fixed order: bitwise equal on every machine, for every split of the rows.
 *  Errors   a label that is no class: the loss and the statistics of its row are NaN, and so will its gradient be.
 *  Source   smoothing: Szegedy et al. 2015, arXiv:1512.00567.
 *  Since    0.2 */
void cross_entropy(const CrossEntropyRows& rows, void* loss, void* statistics, int64_t begin, int64_t end);

/** The gradient of the sum of all losses times *scale, in the logits' dtype: (softmax - target) * scale, zeros where
 * there is no label and in padding. `scale` has the dtype of the statistics; `gradient` may be the logits. */
void cross_entropy_gradient(const CrossEntropyRows& rows, const void* statistics, const void* scale, void* gradient,
                            int64_t begin, int64_t end);

}  // namespace mortise::kernels
