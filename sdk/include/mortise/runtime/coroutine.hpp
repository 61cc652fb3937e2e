// A function on a stack of its own, on the caller's thread: it pauses, and goes on from there.
#pragma once
#include <c10/core/GradMode.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <new>
#include <utility>

namespace mortise {

class Coroutine {
 public:
  explicit Coroutine(std::function<void()> body) : body_(std::move(body)) {
    memory_ = ::mmap(nullptr, kGuard + kStack, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory_ == MAP_FAILED) throw std::bad_alloc();
    char* const stack = static_cast<char*>(memory_) + kGuard;  // which grows down, to memory that nobody may touch
    ::mprotect(stack, kStack, PROT_READ | PROT_WRITE);
    ::getcontext(&inner_);
    inner_.uc_stack.ss_sp = stack;
    inner_.uc_stack.ss_size = kStack;
    inner_.uc_link = &outer_;
    const auto self = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(this));  // arguments are ints
    ::makecontext(&inner_, reinterpret_cast<void (*)()>(&Coroutine::enter), 2, static_cast<unsigned>(self),
                  static_cast<unsigned>(self >> 32));
  }
  Coroutine(const Coroutine&) = delete;
  Coroutine& operator=(const Coroutine&) = delete;
  ~Coroutine() { ::munmap(memory_, kGuard + kStack); }

  // Goes on until the function pauses or ends. Each side has a grad mode of its own, as two threads have.
  void resume() {
    swap_grad_mode();
    ::swapcontext(&outer_, &inner_);
    swap_grad_mode();
  }
  // From inside the function.
  void pause() { ::swapcontext(&inner_, &outer_); }
  bool is_done() const { return is_done_; }

 private:
  static constexpr size_t kStack = size_t{16} << 20, kGuard = size_t{64} << 10;

  static void enter(unsigned low, unsigned high) {
    auto* const self = reinterpret_cast<Coroutine*>(static_cast<uintptr_t>(uint64_t{high} << 32 | low));
    self->body_();
    self->is_done_ = true;
  }
  void swap_grad_mode() {
    const bool here = c10::GradMode::is_enabled();
    c10::GradMode::set_enabled(grad_mode_);
    grad_mode_ = here;
  }

  std::function<void()> body_;
  void* memory_ = nullptr;
  ucontext_t inner_{}, outer_{};
  bool is_done_ = false, grad_mode_ = true;  // of the side that waits
};

}  // namespace mortise
