#include "core/plugin/calls.hpp"

#include <signal.h>
#include <sys/mman.h>

namespace mortise {
namespace {

// A stack of its own for the handler; freed with the thread, which is known no more then.
class KnownThread {
 public:
  KnownThread() {
    memory_ = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    stack_t now{}, own{};
    const bool has_one = sigaltstack(nullptr, &now) == 0 && !(now.ss_flags & SS_DISABLE);
    own.ss_sp = memory_;
    own.ss_size = kBytes;
    in_use_ = memory_ != MAP_FAILED && !has_one && sigaltstack(&own, nullptr) == 0;
    const std::lock_guard lock(all_threads().mutex);
    all_threads().list.push_back(&calls_of_thread);
  }
  ~KnownThread() {
    {
      const std::lock_guard lock(all_threads().mutex);
      std::erase(all_threads().list, &calls_of_thread);
    }
    stack_t none{};
    none.ss_flags = SS_DISABLE;
    if (in_use_) sigaltstack(&none, nullptr);
    if (memory_ != MAP_FAILED) munmap(memory_, kBytes);
  }
  KnownThread(const KnownThread&) = delete;
  KnownThread& operator=(const KnownThread&) = delete;

 private:
  static constexpr size_t kBytes = size_t{1} << 16;
  void* memory_;
  bool in_use_ = false;
};

}  // namespace

AllThreads& all_threads() {
  static auto* const all = new AllThreads;  // threads may outlive the statics
  return *all;
}

// Its count begins where no other thread's is: a watchdog may know one that ended, at the same address.
void know_this_thread() {
  static std::atomic<uint64_t> threads{0};
  calls_of_thread.known = true;
  calls_of_thread.changes = ++threads << 40;
  thread_local KnownThread known;
}

}  // namespace mortise
