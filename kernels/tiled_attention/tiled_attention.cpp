#include "kernels/tiled_attention/tiled_attention_cuda.h"
#include "mortise/dtype.h"

namespace mortise::kernels {

const char* tiled_attention_refuses(uint32_t dtype, int64_t width) {
  if (dtype != MORTISE_BF16 && dtype != MORTISE_F16) return "it computes in bf16 and fp16";
  if (width != 64 && width != 128) return "it wants heads of the width 64 or 128";
  return nullptr;
}

}  // namespace mortise::kernels
