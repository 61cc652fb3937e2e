// What of a run is saved, as bytes: nothing here knows who computes with them.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/store/files.hpp"

namespace mortise {

// One tensor, or a slice of one, on the host: dense, row-major.
struct StoredEntry {
  std::string name;
  uint32_t dtype = 0;                  // MORTISE_F32 …
  std::vector<int64_t> sizes;          // of what is here
  std::vector<int64_t> offset, whole;  // its place in the logical tensor; empty: it is the whole
  const void* data = nullptr;
  uint64_t bytes = 0;
  // Keeps `data`, which nobody else writes to: an object of any type. Without an owner or a copy the memory is
  // borrowed, and training changes it.
  std::shared_ptr<void> owner;
  std::shared_ptr<void> copy;  // of what was borrowed: plain memory of `bytes`, which a later copy may have
};

struct Snapshot {
  std::map<std::string, std::vector<StoredEntry>> tensors;  // by file, without the format's extension
  std::map<std::string, std::string> texts;                 // by file
  int64_t bytes() const;
};

// Plain memory of `bytes` for an entry of a file: that of `earlier`, the last snapshot of the same run, where it has
// room that nobody else holds. Throws std::bad_alloc.
std::shared_ptr<void> memory_for(Snapshot& earlier, const std::string& file, size_t index, uint64_t bytes);

// Copies what is borrowed, so that training may go on while the snapshot is written. The copies go into the memory of
// `earlier`, the last snapshot of the same run, where it has room. Throws std::bad_alloc; the snapshot is then as good
// as before.
void copy_borrowed(Snapshot& s, Snapshot earlier);

// How the entries of one file become its bytes.
struct TensorFormat {
  std::string extension;  // ".safetensors"
  std::function<void(const std::vector<StoredEntry>&, const Sink&)> write;
};

}  // namespace mortise
