// States of parameters in a file: a thread reads pieces ahead and writes them back, while the update is at another one.
// One large read or write of a piece keeps a disk as busy as a queue of small ones does (docs/adr/0048).
#include <algorithm>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>

#include "mortise/cpp/plugin.hpp"
#include "scratch.hpp"

namespace {
using namespace mortise;

class Nvme {
 public:
  Nvme() : folder_(folder()) {}
  ~Nvme() {
    if (!thread_.joinable()) return;
    {
      const std::lock_guard lock(mutex_);
      jobs_.clear();
      ends_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void declared(const mortise_event* event) {
    check(api.params->set(api.host, event->param, MORTISE_STR("states_in_store"), value(true)));
  }

  void open(int64_t bytes, void** all) {
    file_.emplace(folder_, bytes);
    if (!file_->is_direct())
      log_line(MORTISE_LOG_WARNING, folder_ + ": the file system has no direct I/O; states go through the page cache");
    thread_ = std::thread([this] { work(); });
    *all = file_->mapped();
  }

  void fetch(const mortise_extent* extents, uint32_t n) {
    if (fetched_ - put_ == 2) throw Error(MORTISE_E_ARGUMENT, "a third piece is fetched before the first was put");
    Buffer& b = buffers_[fetched_++ % 2];
    b.extents = joined({extents, n});
    make_room(b);
    begin(b, /*writes=*/false);
  }

  void take(void** piece) {
    if (taken_ == fetched_ || taken_ != put_) throw Error(MORTISE_E_ARGUMENT, "no piece was fetched that can be taken");
    Buffer& b = buffers_[taken_++ % 2];
    wait_for(b);
    refuse_after_failure();
    *piece = b.memory.get();
  }

  void put(uint32_t) {
    if (put_ == taken_) throw Error(MORTISE_E_ARGUMENT, "no piece was taken that could be put");
    begin(buffers_[put_++ % 2], /*writes=*/true);
  }

  void finish(uint32_t) {
    for (const Buffer& b : buffers_) wait_for(b);
    refuse_after_failure();
  }

  void describe(mortise_str* about) {
    const Room room = room_in(folder_);
    about_ = "states in " + folder_;
    if (!room.exists) about_ += ", which is not there";
    if (room.free >= 0) about_ += ", " + size_text(room.free) + " free";
    if (room.in_memory) about_ += ": in memory, not on a disk";
    *about = str(about_);
  }

  void memory(int64_t piece, int64_t* bytes) { *bytes = 2 * piece; }

 private:
  using Extents = std::vector<mortise_extent>;
  struct Buffer {
    Extents extents;  // of the piece that was fetched last
    std::unique_ptr<std::byte, decltype(&std::free)> memory{nullptr, std::free};
    int64_t bytes = 0;
    int jobs = 0;  // that are not done
  };
  // One after another: what is read into a buffer comes after what was in it is written.
  struct Job {
    Buffer* buffer;
    Extents extents;
    bool writes;
  };

  static std::string folder() {
    if (const std::string_view stated = config::text("path"); !stated.empty()) return std::string(stated);
    const char* temporary = std::getenv("TMPDIR");
    return temporary && *temporary ? temporary : "/var/tmp";
  }

  // Extents that follow one another as one.
  static Extents joined(std::span<const mortise_extent> all) {
    Extents out;
    for (const mortise_extent& e : all)
      if (!out.empty() && out.back().offset + out.back().bytes == e.offset) out.back().bytes += e.bytes;
      else out.push_back(e);
    return out;
  }

  void make_room(Buffer& b) {
    int64_t needed = 0;
    for (const mortise_extent& e : b.extents) needed += e.bytes;
    if (needed <= b.bytes) return;
    wait_for(b);
    b.memory.reset();
    b.memory.reset(static_cast<std::byte*>(std::aligned_alloc(MORTISE_STORE_BLOCK, static_cast<size_t>(needed))));
    if (!b.memory) throw std::bad_alloc();
    b.bytes = needed;
  }

  void begin(Buffer& b, bool writes) {
    {
      const std::lock_guard lock(mutex_);
      ++b.jobs;
      jobs_.push_back({&b, b.extents, writes});
    }
    changed_.notify_all();
  }

  // Until what was begun with it is done.
  void wait_for(const Buffer& b) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return b.jobs == 0; });
  }

  void refuse_after_failure() {
    const std::lock_guard lock(mutex_);
    if (!failure_.empty())
      throw Error(MORTISE_E_IO, "states cannot be " + failure_,
                  "look after that disk, or take another: [offload.nvme] path; then go on from the last checkpoint");
  }

  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return ends_ || !jobs_.empty(); });
      if (ends_) return;
      const Job job = std::move(jobs_.front());
      jobs_.pop_front();
      if (failure_.empty()) {
        lock.unlock();
        const std::string failure = transfer(job);
        lock.lock();
        failure_ = failure;
      }
      --job.buffer->jobs;
      changed_.notify_all();
    }
  }

  // What failed; "": nothing.
  std::string transfer(const Job& job) const {
    std::byte* at = job.buffer->memory.get();
    try {
      for (const mortise_extent& e : job.extents) {
        job.writes ? file_->write(e, at) : file_->read(e, at);
        at += e.bytes;
      }
      return "";
    } catch (const std::system_error& error) {
      return std::string(job.writes ? "written to" : "read from") + " the file in " + folder_ + ": " +
             error.code().message();
    }
  }

  std::string folder_, about_;
  std::optional<Scratch> file_;
  std::array<Buffer, 2> buffers_;
  size_t fetched_ = 0, taken_ = 0, put_ = 0;  // pieces, of all updates together
  std::mutex mutex_;                          // of what follows
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  std::string failure_;
  bool ends_ = false;
  std::thread thread_;
};

constexpr mortise_state_store kStore = {sizeof(mortise_state_store), 0,
                                        thunk<&Nvme::open>,          thunk<&Nvme::fetch>,
                                        thunk<&Nvme::take>,          thunk<&Nvme::put>,
                                        thunk<&Nvme::finish>,        thunk<&Nvme::describe>,
                                        thunk<&Nvme::memory>};
}  // namespace

MORTISE_PLUGIN(Nvme, mortise::listen<&Nvme::declared>("params.declared"), mortise::provide("states.store", &kStore))
