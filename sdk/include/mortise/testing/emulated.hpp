// A device for tests without one: blocks run one after the other, and so do the threads of a block, each up to its next
// barrier, the last one first, so that whoever counts on an order is found out. What a kernel may use is here and no
// more: blocks and grids of one dimension, shared memory of a fixed size. A thread is a context with its own stack.
//
//   #include "mine.cu"  // in a C++ test; it includes mortise/cuda/launch.hpp, which includes this
#pragma once
#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __shared__ static  // one block at a time
#define __grid_constant__
#define __launch_bounds__(...)
#define MORTISE_UNROLL

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
};

namespace mortise::emulated {

struct Block {
  static constexpr size_t kStack = 256 << 10;
  static constexpr unsigned kWarp = 32;
  struct Thread {
    ucontext_t context;
    std::unique_ptr<char[]> stack = std::make_unique_for_overwrite<char[]>(kStack);
    bool over = false;
  };
  // Who comes waits for all others that share it.
  struct Barrier {
    unsigned here = 0;
    uint64_t passed = 0;
  };
  std::vector<Thread> threads;
  std::vector<Barrier> warps;
  Barrier all;
  ucontext_t scheduler;
  unsigned current = 0;
  bool moved = false;  // somebody has come to a barrier, or is over
  void (*body)(void*) = nullptr;
  void* arguments = nullptr;

  unsigned size() const { return static_cast<unsigned>(threads.size()); }
  void wait(Barrier& at, unsigned of) {
    const uint64_t before = at.passed;
    moved = true;
    if (++at.here == of) at.here = 0, ++at.passed;
    while (at.passed == before) swapcontext(&threads[current].context, &scheduler);
  }
  void wait_for_warp() {
    const unsigned warp = current / kWarp, rest = size() - warp * kWarp;
    wait(warps[warp], rest < kWarp ? rest : kWarp);
  }
  void run(unsigned n, void (*f)(void*), void* a) {
    body = f;
    arguments = a;
    if (threads.size() != n) threads = std::vector<Thread>(n);
    warps.assign((n + kWarp - 1) / kWarp, {});
    all = {};
    for (Thread& t : threads) {
      t.over = false;
      getcontext(&t.context);
      t.context.uc_stack.ss_sp = t.stack.get();
      t.context.uc_stack.ss_size = kStack;
      t.context.uc_link = &scheduler;
      makecontext(&t.context, &Block::begin, 0);
    }
    for (bool any = true; any;) {
      any = moved = false;
      for (current = n; current-- > 0;)
        if (!threads[current].over) {
          swapcontext(&scheduler, &threads[current].context);
          any = true;
        }
      if (any && !moved) give_up();
    }
  }
  [[noreturn]] static void give_up() {
    std::fprintf(stderr, "threads of a block wait at a barrier that the others do not come to\n");
    std::abort();
  }
  static void begin();
};
inline Block block;
inline void Block::begin() {
  block.body(block.arguments);
  block.threads[block.current].over = block.moved = true;
}

inline dim3 block_index, block_size, grid_size;
struct ThreadIndex {
  struct X {
    operator unsigned() const { return block.current; }
  } x;
};

// What the lanes of a warp have given, of one lane after the other.
template <class Given>
struct Warp {
  explicit Warp(const Given& mine) {
    all[block.current / Block::kWarp][block.current % Block::kWarp] = mine;
    block.wait_for_warp();
  }
  ~Warp() { block.wait_for_warp(); }
  const Given& operator[](unsigned lane) const { return all[block.current / Block::kWarp][lane]; }
  static inline Given all[32][Block::kWarp];
};

template <class T>
T from_lane(T mine, unsigned lane) {
  return Warp<T>(mine)[lane];
}

template <class... P, class... A>
void launch(void (*kernel)(P...), unsigned blocks, unsigned threads, const A&... arguments) {
  auto call = [&] { kernel(arguments...); };
  grid_size = {blocks, 1, 1};
  block_size = {threads, 1, 1};
  for (unsigned b = 0; b < blocks; ++b) {
    block_index = {b, 1, 1};
    block.run(threads, [](void* f) { (*static_cast<decltype(call)*>(f))(); }, &call);
  }
}

}  // namespace mortise::emulated

inline mortise::emulated::ThreadIndex threadIdx;
#define blockIdx (mortise::emulated::block_index)
#define blockDim (mortise::emulated::block_size)
#define gridDim (mortise::emulated::grid_size)

inline void __syncthreads() {
  auto& block = mortise::emulated::block;
  block.wait(block.all, block.size());
}
inline void __syncwarp(unsigned = ~0u) { mortise::emulated::block.wait_for_warp(); }
template <class T>
T atomicAdd(T* to, std::type_identity_t<T> more) {
  return std::exchange(*to, *to + more);
}
template <class T>
T __shfl_sync(unsigned, T value, int lane) {
  return mortise::emulated::from_lane(value, static_cast<unsigned>(lane) % 32);
}
template <class T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  using mortise::emulated::Block;
  const unsigned lane = mortise::emulated::block.current % Block::kWarp;
  return mortise::emulated::from_lane(value, lane ^ static_cast<unsigned>(mask));
}
// A lane that would read beyond the warp keeps its own.
template <class T>
T __shfl_down_sync(unsigned, T value, unsigned by) {
  using mortise::emulated::Block;
  const unsigned lane = mortise::emulated::block.current % Block::kWarp;
  return mortise::emulated::from_lane(value, lane + by < Block::kWarp ? lane + by : lane);
}
inline unsigned __reduce_max_sync(unsigned all, unsigned value) {
  for (int mask = 16; mask > 0; mask /= 2) {
    const unsigned other = __shfl_xor_sync(all, value, mask);
    value = value > other ? value : other;
  }
  return value;
}

#define MORTISE_LAUNCH(kernel, blocks, threads, stream, ...) \
  ((void)(stream), mortise::emulated::launch(kernel, blocks, threads, __VA_ARGS__))

namespace mortise {
inline const char* launch_error() { return nullptr; }
}  // namespace mortise
