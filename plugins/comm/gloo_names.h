// The names of gloo that c10d's ProcessGroupGloo.hpp mentions. LibTorch has gloo inside libtorch_cpu and ships none of
// its headers; CMakeLists.txt makes the five files that ProcessGroupGloo.hpp includes, each of which is this one.
//
// Why this is sound. c10d holds everything of gloo by pointer (shared_ptr, unique_ptr), so the size of c10d's classes
// does not depend on what stands here; the one class that c10d derives from a class of gloo, GlooStore, is made inside
// LibTorch alone; and our code calls functions of c10d, which are compiled in LibTorch, and none of gloo. What would
// break this is code of ours that needs more than a name: it would need a symbol of gloo, since nothing below has a
// body, and the test TakesNothingOfGloo finds one. All other tests run what c10d makes of these pointers.
#pragma once
#include <chrono>
#include <string>
#include <vector>

namespace gloo {

class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};

namespace rendezvous {
// The functions that GlooStore says it overrides.
class Store {
 public:
  virtual ~Store();
  virtual void set(const std::string& key, const std::vector<char>& data) = 0;
  virtual std::vector<char> get(const std::string& key) = 0;
  virtual void wait(const std::vector<std::string>& keys) = 0;
  virtual void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) = 0;
};
}  // namespace rendezvous

namespace transport {
class Device;
class UnboundBuffer;
}  // namespace transport

}  // namespace gloo
