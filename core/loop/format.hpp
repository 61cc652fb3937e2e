// Tensors and the bytes of files: what the provider of `checkpoint.format` is asked.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/loop/plugins.hpp"
#include "core/store/files.hpp"
#include "mortise/checkpoint.h"

namespace mortise {

struct StoredTensor {
  std::string name;
  at::Tensor tensor;                   // on the host, contiguous
  std::vector<int64_t> offset, whole;  // its place in the logical tensor; empty: it is the whole
};

using Format = Provided<mortise_format>;
// Throws what the sink throws, or PluginError.
void write_tensors(const Format& format, const std::vector<StoredTensor>& tensors, const Sink& sink);
// The tensors' memory is that of `bytes`. Throws PluginError.
std::vector<StoredTensor> read_tensors(const Format& format, std::string_view bytes);

}  // namespace mortise
