// Loads ahead, delivers in order. `load` is pure in (split, index), so which thread did it, and whether it was done
// ahead at all, changes nothing: what is not ready when it is wanted, or failed, is simply loaded by the caller. So
// errors are told on the thread that can be heard.
//
// On a GPU a worker also does what `batch` would do in the step's turn, on a queue of its own: the batch goes into
// pinned memory, and from there to the device while that computes. The step's queue waits for the copy, the host does
// not.
#include <algorithm>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>

#include "mortise/cpp/call.hpp"
#include "mortise/cpp/plugin.hpp"

namespace {
using namespace mortise;

class Prefetch {
 public:
  Prefetch()
      : workers_(config::integer("workers")), depth_(config::integer("depth")), pinned_(config::flag("pinned")) {}
  ~Prefetch() { stop(); }

  void load(mortise_call* call, mortise_next* next) {
    if (workers_ > 0) {
      Batch ready = take(line_of(call, next), call->args[1].v.i);
      if (ready) {
        call->results[0] = value(ready.release());
        return;
      }
    }
    check(api.call->next(api.host, next, call));
  }

  void batch(mortise_call* call, mortise_next* next) {
    if (workers_ > 0 && pinned_ && call->n_args > 0 && call->args[0].tag == MORTISE_BATCH) {
      learn_to_copy(call, next);
      if (Batch there = copy_of(call->args[0].v.b)) {
        call->results[0] = value(there.release());
        return;
      }
    }
    check(api.call->next(api.host, next, call));
  }

  // The data go away after this. Also after an error.
  void end(const mortise_event*) { stop(); }

 private:
  enum class State { kWaiting, kRunning, kDone };
  struct Line;
  // A batch on its way to the device.
  struct Copy {
    Batch batch;
    std::vector<Tensor> from;  // its fields on the host
    Mark done;
  };
  struct Item {
    Line* line;
    int64_t index;
    State state = State::kWaiting;
    Batch batch;  // empty after a failure
    Copy copy;    // likewise, and where nothing is copied ahead
  };
  // What lies ahead in one split.
  struct Line {
    std::string split;
    uint32_t mode;
    Kept kept;
    std::deque<std::shared_ptr<Item>> ahead;
  };

  Line& line_of(const mortise_call* call, mortise_next* next) {
    Line& line = lines_[{std::string(view(call->args[0].v.s)), call->mode}];
    if (!line.kept) {
      line.split = view(call->args[0].v.s);
      line.mode = call->mode;
      line.kept = Kept(call, next);
    }
    return line;
  }

  // Batch `index` if a worker has it or is about to, and orders those behind it. Empty: load it yourself.
  Batch take(Line& line, int64_t index) {
    std::unique_lock lock(mutex_);
    start_workers();
    if (!line.ahead.empty() && line.ahead.front()->index != index) {  // a jump: what lies ahead is of no use
      std::erase_if(queue_, [&](const auto& item) { return item->line == &line; });
      line.ahead.clear();
    }
    std::shared_ptr<Item> item;
    if (!line.ahead.empty()) {
      item = line.ahead.front();
      line.ahead.pop_front();
      if (item->state == State::kWaiting) {
        std::erase(queue_, item);
        item.reset();
      }
    }
    for (int64_t i = index + 1 + static_cast<int64_t>(line.ahead.size()); i <= index + depth_; ++i) {
      line.ahead.push_back(std::make_shared<Item>(Item{&line, i, State::kWaiting, {}, {}}));
      queue_.push_back(line.ahead.back());
    }
    wanted_.notify_all();
    if (!item) return {};
    done_.wait(lock, [&] { return item->state == State::kDone; });
    if (item->copy.batch) copies_.insert_or_assign(item->batch.get(), std::move(item->copy));
    return std::move(item->batch);
  }

  // From the first call on: a device that is known then, and the rest of the chain, which is the same for each batch.
  void learn_to_copy(const mortise_call* call, mortise_next* next) {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(has_asked_, true)) stream_ = new_stream();
    if (stream_ && !to_device_[call->mode]) to_device_[call->mode] = Kept(call, next);
  }

  // Empty: it is copied in its turn.
  static Copy copy(const Kept& to_device, mortise_stream* stream, mortise_batch* host) {
    Copy copy;
    on_stream(stream, [&] {
      const mortise_value from = value(host);
      mortise_value result = none();
      if (to_device.run(0, {&from, 1}, {&result, 1}) != MORTISE_OK || result.tag != MORTISE_BATCH) return;
      copy.batch = Batch::own(result.v.b);
      each_field(host, [&](mortise_str, mortise_tensor* t) { copy.from.push_back(Tensor::share(t)); });
      copy.done = Mark::here();
    });
    return copy;
  }

  // `host` on the device, if it was copied ahead and nobody has changed it since.
  Batch copy_of(mortise_batch* host) {
    auto found = copies_.extract(host);
    if (!found) return {};
    const Copy& copy = found.mapped();
    size_t same = 0, fields = 0;
    each_field(host, [&](mortise_str, mortise_tensor* t) {
      same += fields < copy.from.size() && copy.from[fields].get() == t;
      ++fields;
    });
    if (same != fields || fields != copy.from.size()) return {};
    copy.done.wait();
    Batch there = Batch::create(host);  // with its counts of now
    each_field(copy.batch.get(), [&](mortise_str name, mortise_tensor* t) {
      record_stream(t);
      check(api.batch->set(api.host, there.get(), name, t));
    });
    return there;
  }

  // With fewer than were asked for, if the machine gives no more: the batches are the same for any number.
  void start_workers() {
    try {
      while (static_cast<int64_t>(threads_.size()) < workers_) threads_.emplace_back([this] { work(); });
    } catch (const std::system_error& e) {
      const std::string what = "thread " + std::to_string(threads_.size() + 1) + " of " + std::to_string(workers_) +
                               " cannot be started: " + e.code().message();
      if (threads_.empty()) throw Error(MORTISE_E_MEMORY, what + "\n  fix: [loader.prefetch] workers = 0");
      workers_ = static_cast<int64_t>(threads_.size());
      log_line(MORTISE_LOG_WARNING, what + "; loading with " + std::to_string(workers_));
    }
  }

  void work() noexcept {
    std::unique_lock lock(mutex_);
    while (true) {
      wanted_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
      if (stopping_) return;
      const std::shared_ptr<Item> item = queue_.front();
      queue_.pop_front();
      item->state = State::kRunning;
      const auto to_device = to_device_.find(item->line->mode);
      const Kept* const copies = to_device != to_device_.end() ? &to_device->second : nullptr;
      lock.unlock();
      const mortise_value args[] = {value(std::string_view(item->line->split)), value(item->index)};
      mortise_value result = none();
      const bool good = item->line->kept.run(0, args, {&result, 1}) == MORTISE_OK && result.tag == MORTISE_BATCH;
      Batch batch = good ? Batch::own(result.v.b) : Batch();
      Copy copied;
      if (good && copies)
        guard([&] { copied = copy(*copies, stream_, batch.get()); }, [](mortise_status s, mortise_str) { return s; });
      lock.lock();
      item->batch = std::move(batch);
      item->copy = std::move(copied);
      item->state = State::kDone;
      done_.notify_all();
    }
  }

  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      queue_.clear();
    }
    wanted_.notify_all();
    for (std::thread& t : threads_) t.join();
    threads_.clear();
    lines_.clear();
    copies_.clear();
    to_device_.clear();
    stopping_ = false;
  }

  int64_t workers_;
  const int64_t depth_;
  const bool pinned_;
  std::map<std::pair<std::string, uint32_t>, Line>
      lines_;                                    // by split and mode; only the caller of `load` looks into the map
  std::map<const mortise_batch*, Copy> copies_;  // of batches that `load` gave; the caller's, too
  mortise_stream* stream_ = nullptr;             // written before any worker reads it: to_device_ is empty until then
  bool has_asked_ = false;
  std::mutex mutex_;  // of all below, and of every `ahead` and item
  std::condition_variable wanted_, done_;
  std::deque<std::shared_ptr<Item>> queue_;
  std::map<uint32_t, Kept> to_device_;  // the calls of `batch`, by mode
  std::vector<std::thread> threads_;
  bool stopping_ = false;
};
}  // namespace

MORTISE_PLUGIN(Prefetch, mortise::wrap<&Prefetch::load>("load"), mortise::wrap<&Prefetch::batch>("batch"),
               mortise::listen<&Prefetch::end>("run.end"))
