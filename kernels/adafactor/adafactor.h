// Adafactor over raw pointers, on the host's processor: one parameter's step, cut into tiles for all threads.
#pragma once
#include <cstdint>
#include <vector>

#include "mortise/abi.h"

namespace mortise::kernels {

// What stands in a manifest. With `scale_parameter` the rate is lr times the weights' root-mean-square, `least_scale`
// at least; with `relative_step` lr times min(0.01, 1 / sqrt(t)), with `warmup_init` 1e-6 t in the place of 0.01.
struct AdafactorSettings {
  double beta1, eps, least_scale, clip_threshold, decay_rate;
  bool scale_parameter, relative_step, warmup_init;
};

// One step's numbers (adafactor_step of element.h). `lr` is relative already; `beta2` is that of this step,
// 1 - t^decay_rate; `multiplier` turns the gradient in memory into the true one.
struct AdafactorStep {
  double lr, weight_decay, beta2, multiplier;
};

// The arrays of one parameter; dtypes are numbers of mortise/dtypes.def. Factored: `row` and `column`; else `v`.
struct AdafactorArrays {
  uint32_t master = 0, grad = 0;
  void* p = nullptr;
  const void* g = nullptr;
  float *row = nullptr, *column = nullptr, *v = nullptr;
  float* m = nullptr;        // the first moment, if there is one
  uint16_t* copy = nullptr;  // gets p in bf16; of p in fp32 only
};

/** One step of one parameter, `elements` long and seen as matrices of rows × columns, in stages. With g the gradient, U
 *  the update, and RMS(U) taken over the whole parameter:
 *
 *    row = beta2 * row + (1 - beta2) * mean of (g² + eps) over columns       column likewise, over rows
 *    U = g / sqrt(row / mean(row)) / sqrt(column)         of a vector, which has `v`: U = g / sqrt(v)
 *    U = rate * U / max(1, RMS(U) / clip_threshold)       m = beta1 * m + (1 - beta1) * U,  U = m  if there is `m`
 *    p = p - weight_decay * rate * p - U
 *
 *  The stages are those below, in their order: all of one stage before any of the next. Items of one stage may run at
 *  once, in any order.
 *
 *  Dtypes   p F32, BF16 or F16; g any of these and F64; states F32. Elements in fp32, sums in fp64; of the columns of
 *           a tile they are kept in fp32.
 *  Memory   borrows every pointer of `arrays`; allocates for sums, of each matrix, 8 bytes a row for each 1,024
 *           columns, and 4 bytes a column with 4 more for each 128 rows: 104 KB of 768 × 3,072.
 *  Repeats  bitwise equal on every x86-64 processor and for any number of threads: sums are cut by the shape alone and
 *           added in one order.
 *  Source   Shazeer & Stern 2018, arXiv:1804.04235; order of operations of transformers' Adafactor.
 *  Since    0.1 */
class Adafactor {
 public:
  Adafactor(const AdafactorSettings& settings, const AdafactorStep& step, const AdafactorArrays& arrays,
            int64_t elements, int64_t rows, int64_t columns);

  int64_t tiles() const { return matrices_ * row_blocks_ * column_blocks_; }
  int64_t bands() const { return arrays_.v ? 0 : matrices_ * (row_blocks_ + column_blocks_); }

  void sum_squares(int64_t tile);  // 1. of gradients, and of weights if the rate needs them
  void average(int64_t band);      // 2. row and column
  void prepare();                  // 3. the rate, and the mean of each matrix' rows
  void measure(int64_t tile);      // 4. of U
  void clip();                     // 5. by RMS(U)
  void update(int64_t tile);       // 6. m, p, copy

 private:
  friend struct AdafactorTile;

  void average_rows(int64_t matrix, int64_t block);
  void average_columns(int64_t matrix, int64_t block);

  AdafactorSettings settings_;
  AdafactorStep step_;
  AdafactorArrays arrays_;
  int64_t matrices_, rows_, columns_, row_blocks_, column_blocks_;
  double rate_ = 0, clipped_rate_ = 0;
  std::vector<double> row_sums_;             // [matrices, rows, column blocks]
  std::vector<float> column_sums_;           // [matrices, row blocks, columns]
  std::vector<double> band_sums_;            // [matrices, row blocks], of the row state
  std::vector<double> row_means_;            // [matrices]
  std::vector<float> column_factors_;        // [matrices, columns]
  std::vector<double> squares_, p_squares_;  // [tiles]
};

}  // namespace mortise::kernels
