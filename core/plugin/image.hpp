// A plugin's library as it was read once: what is checked, probed, loaded and hashed are the same bytes, whatever
// happens to the file meanwhile.
#pragma once
#include <string>
#include <string_view>

#include "core/plugin/plugin_info.hpp"

namespace mortise {

class LibraryImage {
 public:
  // Reads info.library into a sealed memory file. Throws Failure: it is missing, unreadable, no regular file.
  explicit LibraryImage(const PluginInfo& info);
  LibraryImage(LibraryImage&& other) noexcept;
  LibraryImage& operator=(LibraryImage&&) = delete;
  ~LibraryImage();

  std::string_view bytes() const { return {data_, size_}; }
  int file() const { return memory_ >= 0 ? memory_ : file_; }
  // What dlopen() is given: "/proc/self/fd/12". The descriptor must stay open as long as the library is loaded: the
  // loader knows libraries by this name.
  std::string path() const { return path_in(file()); }
  static std::string path_in(int descriptor) { return "/proc/self/fd/" + std::to_string(descriptor); }
  // Why it cannot be loaded from memory here; "" if it can.
  const std::string& not_from_memory() const { return not_from_memory_; }

 private:
  void copy(const PluginInfo& info);
  void seal();

  int file_ = -1, memory_ = -1;
  char* data_ = nullptr;
  size_t size_ = 0;
  std::string not_from_memory_;
};

}  // namespace mortise
