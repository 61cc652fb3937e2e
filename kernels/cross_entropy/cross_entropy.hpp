// The kernels over tensors, for plugins: allocates, and splits over the host's threads or launches on the logits' GPU.
#pragma once
#include <algorithm>
#include <optional>

#include "kernels/cross_entropy/cross_entropy.h"
#include "kernels/cross_entropy/cross_entropy_cuda.h"
#include "kernels/cuda/ledger.hpp"
#include "mortise/cpp/operator.hpp"

namespace mortise::kernels {

// For `supports`: MORTISE_CUDA, too, where the kernels for it were built.
inline bool cross_entropy_runs_on(uint32_t device) {
  return device == MORTISE_CPU || (MORTISE_HAS_CUDA && device == MORTISE_CUDA);
}

// Of the host's processor alone: the first label that is no class and is not -100.
inline std::optional<int64_t> wrong_label(Ref labels_N, int64_t classes) {
  const Info labels(labels_N);
  const auto* const all = labels.as<const int64_t>();
  const auto* const found = std::find_if(
      all, all + labels.numel, [&](int64_t label) { return label != kNoLabel && (label < 0 || label >= classes); });
  return found == all + labels.numel ? std::nullopt : std::optional(*found);
}

// Logits [N, V] and labels [N], both contiguous, as the kernels take them.
inline CrossEntropyRows cross_entropy_rows(const Info& logits_NV, const Info& labels_N, double smoothing) {
  if (!cross_entropy_runs_on(logits_NV.device))
    throw Error(MORTISE_E_UNSUPPORTED, "the cross-entropy was built for the CPU only");
  if (labels_N.device != logits_NV.device)
    throw Error(MORTISE_E_ARGUMENT, "the cross-entropy's logits and labels lie on two devices");
  const int64_t columns = logits_NV.size(1);
  return {logits_NV.dtype, logits_NV.data, labels_N.as<const int64_t>(), logits_NV.size(0), columns,
          columns,         smoothing};
}
// Rows that are worth a thread's beginning.
inline int64_t cross_entropy_grain(const CrossEntropyRows& rows) {
  return std::max<int64_t>(1, (1 << 15) / std::max<int64_t>(1, rows.columns));
}

struct CrossEntropyLosses {
  Tensor loss_N, statistics_N2;
};
inline CrossEntropyLosses cross_entropy(Ref logits_NV, Ref labels_N, double smoothing) {
  const Info logits(logits_NV), labels(labels_N);
  const CrossEntropyRows rows = cross_entropy_rows(logits, labels, smoothing);
  const uint32_t wide = logits.dtype == MORTISE_F64 ? MORTISE_F64 : MORTISE_F32;
  CrossEntropyLosses result = {empty(wide, {rows.rows}), empty(wide, {rows.rows, 2})};
  void *const loss = Info(result.loss_N).data, *const statistics = Info(result.statistics_N2).data;
  if constexpr (MORTISE_HAS_CUDA)
    if (logits.device == MORTISE_CUDA) {
      check_launch(cross_entropy_cuda(rows, loss, statistics, stream_now()));
      return result;
    }
  parallel_for(rows.rows, cross_entropy_grain(rows),
               [&](int64_t begin, int64_t end) { cross_entropy(rows, loss, statistics, begin, end); });
  return result;
}

// The gradient of the logits into `gradient_NV`, which may be them; `scale` is that of the sum of all losses.
inline void cross_entropy_gradient(Ref logits_NV, Ref labels_N, double smoothing, Ref statistics_N2, Ref scale,
                                   Ref gradient_NV) {
  const Info logits(logits_NV), labels(labels_N);
  const CrossEntropyRows rows = cross_entropy_rows(logits, labels, smoothing);
  const Tensor wide_scale = ops::contiguous(cast(scale, Info(statistics_N2).dtype));
  const void *const statistics = Info(statistics_N2).data, *const factor = Info(wide_scale).data;
  void* const gradient = Info(gradient_NV).data;
  if constexpr (MORTISE_HAS_CUDA)
    if (logits.device == MORTISE_CUDA)
      return check_launch(cross_entropy_gradient_cuda(rows, statistics, factor, gradient, stream_now()));
  parallel_for(rows.rows, cross_entropy_grain(rows), [&](int64_t begin, int64_t end) {
    cross_entropy_gradient(rows, statistics, factor, gradient, begin, end);
  });
}

}  // namespace mortise::kernels
