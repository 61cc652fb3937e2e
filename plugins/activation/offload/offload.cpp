// activation.offload: what the operators of a block save for backward goes to the host while the blocks after it run,
// and comes back while backward is in the block after it.
//
// A block's tensors leave when the next one begins, so those of the last stay. Copies lie on a queue of their own. The
// step's queue waits for them twice: before the memory of what has left is given to others, and before what has come
// back is read; nobody on the host waits. Host memory is pinned, and used again in the next step.
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "mortise/cpp/ops.hpp"
#include "mortise/cpp/plugin.hpp"

namespace {
using namespace mortise;

struct Block;

// A tensor that was saved, by one operator or by several. At any time it is here, away or both.
struct Stored {
  Tensor here, away;  // on the device; flat, on the host
  uint32_t dtype = 0;
  std::vector<int64_t> sizes;
  int64_t numel = 0;
  const void* data = nullptr;  // where it lay at first
  Block* block = nullptr;
  bool comes = false;  // the copy back was begun, and the step's queue does not wait for it yet
};

struct Block {
  std::vector<std::weak_ptr<Stored>> saved;
  Mark sent, back;  // behind the copies
};

struct Token {
  std::shared_ptr<Stored> stored;
};

class Offload {
 public:
  Offload() : least_(config::integer("min_kib") << 10) {}

  void block(mortise_call* call, mortise_next* next) {
    if (!(call->flags & MORTISE_GRAD)) return check(api.call->next(api.host, next, call));  // nothing is saved
    begin_block();
    check(api.autograd->next_saving(api.host, next, call, &kSaver, this));
  }

  void step_end(const mortise_event*) {
    const std::lock_guard lock(mutex_);
    if (is_told_ || bytes_away_ == 0) return;
    is_told_ = true;
    log_line(MORTISE_LOG_DEBUG,
             std::to_string(bytes_away_ >> 10) + " KiB of what blocks save for backward wait in the host's memory");
  }

 private:
  void begin_block() {
    const std::lock_guard lock(mutex_);
    if (!queue_) queue_ = new_stream();
    settle();
    if (n_tokens_ == 0) blocks_.clear();  // the pass before is over
    if (!blocks_.empty()) send(blocks_.back());
    blocks_.emplace_back();
  }

  // What is on its way to the host has arrived, for whatever this thread puts on its queue from now on.
  void settle() {
    if (!leaving_) return;
    leaving_->sent.wait();
    for (const auto& each : leaving_->saved)
      if (const auto stored = each.lock()) stored->here = Tensor();
    leaving_ = nullptr;
  }

  void send(Block& block) {
    const Mark computed = Mark::here();
    on_stream(*queue_, [&] {
      computed.wait();
      for (const auto& each : block.saved)
        if (const auto stored = each.lock()) {
          stored->away = host_memory(stored->dtype, stored->numel);
          ops::op_copy_()(stored->away, ops::view(stored->here, {stored->numel}), true);
        }
      block.sent = Mark::here();
    });
    leaving_ = &block;
  }

  // Begins to bring back what is away.
  void fetch(Block& block) {
    std::vector<std::shared_ptr<Stored>> coming;
    for (const auto& each : block.saved)
      if (auto stored = each.lock(); stored && !stored->here) coming.push_back(std::move(stored));
    if (coming.empty()) return;
    for (const auto& stored : coming) stored->here = empty(stored->dtype, stored->sizes);
    const Mark made = Mark::here();
    on_stream(*queue_, [&] {
      made.wait();
      for (const auto& stored : coming) {
        ops::op_copy_()(ops::view(stored->here, {stored->numel}), stored->away, true);
        stored->comes = true;
      }
      block.back = Mark::here();
    });
  }

  static void await(Stored& stored) {
    if (std::exchange(stored.comes, false)) stored.block->back.wait();
  }

  // ---- what autograd calls ----

  void take(mortise_tensor* t, void** token) {
    const Info info(t);
    const int64_t bytes = info.numel * static_cast<int64_t>(mortise_dtype_of(info.dtype)->bytes);
    if (bytes < least_ || !(info.flags & MORTISE_CONTIGUOUS)) return;
    const std::lock_guard lock(mutex_);
    std::shared_ptr<Stored> stored = known(info);
    if (!stored) {
      const auto sizes = info.shape();
      stored = std::make_shared<Stored>(Stored{.here = Tensor::share(t),
                                               .dtype = info.dtype,
                                               .sizes = {sizes.begin(), sizes.end()},
                                               .numel = info.numel,
                                               .data = info.data,
                                               .block = &blocks_.back()});
      blocks_.back().saved.push_back(stored);
    }
    *token = new Token{std::move(stored)};
    ++n_tokens_;
  }

  // The one over the same memory, which nobody else has while it is held here.
  std::shared_ptr<Stored> known(const Info& info) const {
    const size_t n = blocks_.size();
    for (size_t b = n > 2 ? n - 2 : 0; b < n; ++b)
      for (const auto& each : blocks_[b].saved)
        if (auto s = each.lock(); s && s->here && s->data == info.data && s->dtype == info.dtype &&
                                  std::ranges::equal(s->sizes, info.shape()))
          return s;
    return nullptr;
  }

  void give(void* token, mortise_tensor** out) {
    const std::lock_guard lock(mutex_);
    settle();
    Stored& stored = *static_cast<Token*>(token)->stored;
    fetch(*stored.block);
    await(stored);
    if (Block* before = one_before(*stored.block)) fetch(*before);
    *out = Tensor::share(stored.here.get()).release();
  }

  Block* one_before(const Block& block) {
    for (size_t b = 1; b < blocks_.size(); ++b)
      if (&blocks_[b] == &block) return &blocks_[b - 1];
    return nullptr;
  }

  void drop(void* handle) {
    const std::lock_guard lock(mutex_);
    const std::unique_ptr<Token> token(static_cast<Token*>(handle));
    --n_tokens_;
    Stored& stored = *token->stored;
    if (token->stored.use_count() > 1) return;
    if (leaving_ == stored.block && stored.away) settle();
    await(stored);
    if (stored.away) free_[{stored.dtype, stored.numel}].push_back(std::move(stored.away));
  }

  Tensor host_memory(uint32_t dtype, int64_t numel) {
    std::vector<Tensor>& free = free_[{dtype, numel}];
    if (!free.empty()) {
      Tensor t = std::move(free.back());
      free.pop_back();
      return t;
    }
    bytes_away_ += numel * static_cast<int64_t>(mortise_dtype_of(dtype)->bytes);
    static const Op op("aten::empty.memory_format");
    const bool pinned = *queue_ != nullptr;  // so that the device copies by itself
    return op(ints({numel}), dtype_value(dtype), none(), none(), pinned, none());
  }

  static const mortise_saver kSaver;
  int64_t least_;
  std::mutex mutex_;                      // backward runs on another thread, or on several
  std::optional<mortise_stream*> queue_;  // of copies; NULL on the host's processor
  std::deque<Block> blocks_;              // of this pass, in forward's order
  Block* leaving_ = nullptr;              // whose copies were begun last
  size_t n_tokens_ = 0;
  std::map<std::pair<uint32_t, int64_t>, std::vector<Tensor>> free_;  // of the host, by element type and size
  int64_t bytes_away_ = 0;
  bool is_told_ = false;
};

const mortise_saver Offload::kSaver = {sizeof(mortise_saver), 0,
                                       [](void* self, mortise_tensor* t, void** token) noexcept {
                                         return guard([&] { static_cast<Offload*>(self)->take(t, token); });
                                       },
                                       [](void* self, void* token, mortise_tensor** out) noexcept {
                                         return guard([&] { static_cast<Offload*>(self)->give(token, out); });
                                       },
                                       [](void* self, void* token) noexcept {
                                         guard([&] {
                                           static_cast<Offload*>(self)->drop(token);
                                           return MORTISE_OK;
                                         });
                                       }};
}  // namespace

MORTISE_PLUGIN(Offload, mortise::wrap<&Offload::block>("block"), mortise::listen<&Offload::step_end>("step.end"))
