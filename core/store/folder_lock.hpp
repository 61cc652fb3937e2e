// The advisory lock of a folder (flock), which the system takes back when its process ends, however it ends. A file
// system without locks refuses nobody.
#pragma once
#include <string>

namespace mortise {

class FolderLock {
 public:
  enum class Kind { kShared, kAlone };

  FolderLock(const std::string& folder, Kind kind);  // waits for nobody
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  bool is_held() const { return held_; }
  bool is_refused() const { return refused_; }  // somebody else holds it
  // The folder still has the name by which it was locked; true where nobody can tell.
  bool is_here() const;
  std::string path_now() const;  // "": it was removed

 private:
  std::string path_;
  int fd_ = -1;
  bool held_ = false, refused_ = false;
};

}  // namespace mortise
