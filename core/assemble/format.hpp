// Tensors and the bytes of files, by the provider of `checkpoint.format`.
#pragma once
#include <string_view>
#include <vector>

#include "core/abi/provided.hpp"
#include "core/store/snapshot.hpp"
#include "mortise/checkpoint.h"

namespace mortise {

using Format = Provided<mortise_format>;
// Throws what the sink throws, or PluginError.
void write_entries(const Format& format, const std::vector<StoredEntry>& entries, const Sink& sink);
// The entries' memory is that of `bytes`. Throws PluginError.
std::vector<StoredEntry> read_entries(const Format& format, std::string_view bytes);

}  // namespace mortise
