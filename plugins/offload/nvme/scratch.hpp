// A file without a name, of a size that is reserved when it is made: it ends with the process, however that ends. Read
// and written past the page cache where the file system can do so; mapped, for who wants it as memory.
#pragma once
#include <cstddef>
#include <string>

#include "mortise/optimizer.h"

namespace mortise {

class Scratch {
 public:
  // Throws Error (MORTISE_E_IO): there is no such folder, or no room in it.
  Scratch(const std::string& folder, int64_t bytes);
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  // `memory` begins with a block, as the extent does. Throws std::system_error.
  void read(const mortise_extent& extent, std::byte* memory) const;
  void write(const mortise_extent& extent, std::byte* memory) const;

  void* mapped() const { return mapped_; }
  bool is_direct() const { return is_direct_; }  // past the page cache

 private:
  int fd_ = -1;
  void* mapped_ = nullptr;
  int64_t bytes_;
  bool is_direct_ = false;
};

// Of the file system of a folder.
struct Room {
  bool exists = false;     // the folder
  bool in_memory = false;  // it is none of a disk
  int64_t free = -1;       // bytes; -1: it does not say
};
Room room_in(const std::string& folder);

// "1.5 GiB"
std::string size_text(int64_t bytes);

}  // namespace mortise
