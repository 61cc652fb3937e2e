#include "core/store/snapshot.hpp"

#include <cstdlib>
#include <cstring>
#include <new>

namespace mortise {
namespace {

std::shared_ptr<void> memory_of(uint64_t bytes) {
  void* memory = std::malloc(bytes > 0 ? bytes : 1);
  if (!memory) throw std::bad_alloc();
  return {memory, std::free};
}

}  // namespace

int64_t Snapshot::bytes() const {
  uint64_t all = 0;
  for (const auto& [file, entries] : tensors)
    for (const StoredEntry& e : entries) all += e.bytes;
  for (const auto& [file, text] : texts) all += text.size();
  return static_cast<int64_t>(all);
}

void copy_borrowed(Snapshot& s, Snapshot earlier) {
  for (auto& [file, entries] : s.tensors) {
    std::vector<StoredEntry>& old = earlier.tensors[file];
    for (size_t i = 0; i < entries.size(); ++i) {
      StoredEntry& e = entries[i];
      if (e.owner || e.copy) continue;
      // Memory that somebody else holds too is not overwritten.
      const bool fits = i < old.size() && old[i].bytes == e.bytes && old[i].copy.use_count() == 1;
      std::shared_ptr<void> copy = fits ? std::move(old[i].copy) : memory_of(e.bytes);
      if (e.bytes > 0) std::memcpy(copy.get(), e.data, e.bytes);
      e.data = copy.get();
      e.copy = std::move(copy);
    }
  }
}

}  // namespace mortise
