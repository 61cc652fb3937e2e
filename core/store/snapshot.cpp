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

std::shared_ptr<void> memory_for(Snapshot& earlier, const std::string& file, size_t index, uint64_t bytes) {
  std::vector<StoredEntry>& old = earlier.tensors[file];
  const bool fits = index < old.size() && old[index].bytes == bytes && old[index].copy.use_count() == 1;
  return fits ? std::move(old[index].copy) : memory_of(bytes);
}

void copy_borrowed(Snapshot& s, Snapshot earlier) {
  for (auto& [file, entries] : s.tensors) {
    for (size_t i = 0; i < entries.size(); ++i) {
      StoredEntry& e = entries[i];
      if (e.owner || e.copy) continue;
      std::shared_ptr<void> copy = memory_for(earlier, file, i, e.bytes);
      if (e.bytes > 0) std::memcpy(copy.get(), e.data, e.bytes);
      e.data = copy.get();
      e.copy = std::move(copy);
    }
  }
}

}  // namespace mortise
