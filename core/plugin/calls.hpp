// Who is running: each thread keeps the chain of calls into plugins that it is in, so that a crash, an exit and a hang
// can be charged to somebody. Cheap enough for every call: four stores, nothing is allocated. Needs no LibTorch.
#pragma once
#include <atomic>
#include <cfenv>
#include <cstdint>
#include <mutex>
#include <string_view>
#include <vector>

namespace mortise {

// One call. It lies on the stack of its caller, and so do the texts that it points to.
struct PluginCall {
  std::string_view plugin;  // empty: the core, called by a plugin's `next`
  std::string_view what;    // a point or a function: "block", "create"
  std::string_view where;   // of a layer or a segment: "h.3.attn"; may be empty
  const PluginCall* outer = nullptr;
};

struct CallsOfThread {
  std::atomic<const PluginCall*> innermost{nullptr};
  std::atomic<uint64_t> changes{0};  // a call began or ended
  bool known = false;                // among all_threads()
};
inline thread_local constinit CallsOfThread calls_of_thread;

// Every thread that is or was in a call, while the lock is held; one that ends leaves.
struct AllThreads {
  std::mutex mutex;
  std::vector<CallsOfThread*> list;
};
AllThreads& all_threads();
// Enters this thread there and gives it a stack for signals of its own: an overflow leaves none to say so on.
void know_this_thread();

// This thread's call for a scope.
class PluginScope {
 public:
  PluginScope(std::string_view plugin, std::string_view what, std::string_view where = {})
      : call_{plugin, what, where, calls_of_thread.innermost.load(std::memory_order_relaxed)} {
    if (!calls_of_thread.known) [[unlikely]]
      know_this_thread();
    set(&call_);
  }
  // The same call goes on here, on another thread. NULL: none.
  explicit PluginScope(const PluginCall* elsewhere)
      : PluginScope(elsewhere ? elsewhere->plugin : std::string_view(),
                    elsewhere ? elsewhere->what : std::string_view(),
                    elsewhere ? elsewhere->where : std::string_view()) {}
  ~PluginScope() { set(call_.outer); }
  PluginScope(const PluginScope&) = delete;
  PluginScope& operator=(const PluginScope&) = delete;

 private:
  static void set(const PluginCall* call) {
    CallsOfThread& here = calls_of_thread;
    here.innermost.store(call, std::memory_order_release);
    here.changes.store(here.changes.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }
  PluginCall call_;
};

// How this thread computes: its rounding, what becomes of subnormal numbers, which exceptions trap.
#if defined(__x86_64__)
inline uint32_t arithmetic_here() { return __builtin_ia32_stmxcsr() & ~0x3Fu; }  // without what it noted so far
inline void set_arithmetic(uint32_t control) { __builtin_ia32_ldmxcsr(control); }
#else
inline uint32_t arithmetic_here() { return static_cast<uint32_t>(std::fegetround()); }
inline void set_arithmetic(uint32_t rounding) { std::fesetround(static_cast<int>(rounding)); }
#endif

inline const PluginCall* current_call() { return calls_of_thread.innermost.load(std::memory_order_relaxed); }

}  // namespace mortise
