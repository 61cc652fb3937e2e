// comm.gloo: collectives between processes, on the CPU, over c10d's ProcessGroupGloo.
//
// LibTorch sees the host's tensors as flat memory (from_blob); the handle is kept until `wait`, and told that it was
// written. Every call is checked before anything is sent: what one rank refuses, all refuse, and none waits.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "collective.hpp"
#include "meeting.hpp"
#include "mortise/cpp/plugin.hpp"
#include "mortise/dtype.h"

struct mortise_work {
  c10::intrusive_ptr<c10d::Work> work;  // none where there was nothing to send
  mortise::Tensor in, out;
  const char* name;
  mortise::comm::Clock::time_point began;
};

namespace {
using namespace mortise;
using comm::Clock;
using comm::Milliseconds;

class Gloo {
 public:
  Gloo() {
    const mortise_value v = config::get("timeout");
    if (v.tag != MORTISE_AMOUNT || v.count != MORTISE_SECONDS)
      config::refuse("timeout", "it is no time", "timeout = \"10 min\"");
    timeout_ = std::max(Milliseconds(1), std::chrono::ceil<Milliseconds>(std::chrono::duration<double>(v.v.f)));
  }
  ~Gloo() {
    met_.numbers.reset();
    met_.tensors.reset();  // what is under way ends, before the tensors go
    if (met_.store) say_goodbye();
  }

  void open(const mortise_world* world) {
    if (!world) throw Error(MORTISE_E_ARGUMENT, "open: the world is NULL");
    if (world_) throw Error(MORTISE_E_ARGUMENT, "open: it was called before");
    const comm::World checked(*world);
    if (checked.size > 1) met_ = comm::meet(checked, timeout_);
    if (checked.size == 1 && checked.listen_fd >= 0) ::close(checked.listen_fd);  // nobody will come
    world_ = checked;
  }

  void start(const mortise_collective* c, mortise_work** out) {
    if (!c || !out) throw Error(MORTISE_E_ARGUMENT, "start: an argument is NULL");
    const char* const name = comm::name_of(*c);
    need_open(name);
    comm::check_fit(*c, world_->size);
    auto made = std::make_unique<mortise_work>();
    if (comm::reads_in(*c)) made->in = Tensor::share(c->in);
    made->out = Tensor::share(c->out);
    made->name = name;
    made->began = Clock::now();
    const std::lock_guard lock(mutex_);
    need_all();
    if (world_->size == 1) {
      if (made->in) copy(made->in, made->out);
    } else if (Info(made->out).numel > 0) {
      or_lost(name, made->began, [&] { made->work = comm::begin(*met_.tensors, *c); });
    }
    *out = made.get();
    works_.emplace(made.get(), std::move(made));
  }

  void wait(mortise_work* work) {
    std::unique_ptr<mortise_work> taken;
    {
      const std::lock_guard lock(mutex_);
      const auto found = works_.find(work);
      if (found == works_.end()) throw Error(MORTISE_E_ARGUMENT, "wait: there is no such work, or it was waited for");
      need_all();  // else the others go with this object: their memory may be written until then
      taken = std::move(found->second);
      works_.erase(found);
    }
    if (taken->work) or_lost(taken->name, taken->began, [&] { taken->work->wait(); });
    api.tensor->written(api.host, taken->out.get());
  }

  void host_all_reduce(int64_t* numbers, uint32_t n, uint32_t op) {
    constexpr const char* kName = "host_all_reduce";
    c10d::AllreduceOptions options;
    options.reduceOp = comm::op_of(op, kName);
    need_open(kName);
    if (n > 0 && !numbers) throw Error(MORTISE_E_ARGUMENT, std::string(kName) + ": the numbers are NULL");
    need_all();
    if (n == 0 || world_->size == 1) return;
    or_lost(kName, Clock::now(), [&] {
      std::vector<at::Tensor> one = {at::from_blob(numbers, {n}, at::TensorOptions().dtype(at::kLong))};
      met_.numbers->allreduce(one, options)->wait();
    });
  }

  void share(mortise_str key, mortise_str text) {
    const std::string name(view(key));
    need_open("share");
    need_all();
    if (shared_.contains(name)) throw Error(MORTISE_E_ARGUMENT, "share: `" + name + "` was shared before");
    std::string all(view(text));
    if (world_->size > 1) over_store("share", [=, store = met_.store] { store->set("text/" + name, all); });
    shared_.emplace(name, world_->size > 1 ? std::string() : std::move(all));
  }

  void fetch(mortise_str key, mortise_str* text) {
    const std::string name(view(key));
    need_open("fetch");
    if (!text) throw Error(MORTISE_E_ARGUMENT, "fetch: there is no place for the text");
    need_all();
    if (world_->size == 1) {
      const auto found = shared_.find(name);
      if (found == shared_.end()) throw Error(MORTISE_E_LOST, "fetch: nobody else is there to share `" + name + "`");
      fetched_ = found->second;
    } else {
      const auto got = std::make_shared<std::vector<uint8_t>>();
      over_store("fetch of `" + name + "`", [=, store = met_.store, limit = timeout_] {
        store->wait({"text/" + name}, limit);
        *got = store->get("text/" + name);
      });
      fetched_.assign(got->begin(), got->end());
    }
    *text = str(fetched_);
  }

 private:
  static void copy(const Tensor& from, const Tensor& to) {
    const Info in(from), out(to);
    if (out.numel > 0 && in.data != out.data)
      std::memmove(out.data, in.data, static_cast<size_t>(out.numel) * mortise_dtype_of(out.dtype)->bytes);
  }

  void need_open(const char* name) const {
    if (!world_) throw Error(MORTISE_E_ARGUMENT, std::string(name) + ": the ranks have not met yet (open)");
  }
  void need_all() const {
    const std::lock_guard lock(lost_mutex_);
    if (!lost_.empty()) throw Error(MORTISE_E_LOST, lost_);
  }

  // Whatever c10d throws means that a rank is gone: what could be wrong on this one was checked.
  template <class Body>
  void or_lost(const std::string& name, Clock::time_point began, Body&& body) {
    try {
      body();
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception& e) {
      const std::string who = world_->size == 2 ? "rank " + std::to_string(1 - world_->rank) : "a rank";
      const std::string text = name + ": " + who + " ended, or did not come, " + comm::seconds(Clock::now() - began) +
                               " after it began: " + comm::plain(e);
      const std::lock_guard lock(lost_mutex_);
      if (lost_.empty()) lost_ = text;  // what went wrong first
      throw Error(MORTISE_E_LOST, lost_);
    }
  }

  void over_store(const std::string& name, std::function<void()> body) {
    try {
      or_lost(name, Clock::now(), [&] { comm::within(timeout_, std::move(body)); });
    } catch (...) {
      met_.store.reset();  // a thread that was left behind may have it locked
      throw;
    }
  }

  // The store ends with its server's process, and others may still fetch what was shared last: it waits for them, but
  // not for one that is lost.
  void say_goodbye() noexcept {
    constexpr Milliseconds kMost{30'000};
    try {
      const Milliseconds limit = std::min(timeout_, kMost);
      comm::within(limit, [store = met_.store, world = *world_, waits = met_.is_server && lost_.empty(), limit] {
        std::vector<std::string> keys;
        for (int r = 0; r < world.size; ++r) keys.push_back("goodbye/" + std::to_string(r));
        store->set(keys[static_cast<size_t>(world.rank)], "1");
        if (waits) store->wait(keys, limit);
      });
    } catch (const std::exception&) {  // they ended in another way
    }
  }

  Milliseconds timeout_{};
  std::optional<comm::World> world_;  // once the ranks have met
  std::mutex mutex_;                  // of start and wait, which autograd's threads call too
  std::unordered_map<mortise_work*, std::unique_ptr<mortise_work>> works_;  // started, not waited for
  comm::Meeting met_;                                                       // of several ranks
  std::map<std::string, std::string, std::less<>> shared_;  // by this rank; the texts if there is no other
  std::string fetched_;
  mutable std::mutex lost_mutex_;
  std::string lost_;  // what is said of every call from then on
};

const mortise_comm kObject = {sizeof(mortise_comm), 0,
                              thunk<&Gloo::open>,   thunk<&Gloo::start>,
                              thunk<&Gloo::wait>,   thunk<&Gloo::host_all_reduce>,
                              thunk<&Gloo::share>,  thunk<&Gloo::fetch>};
}  // namespace

MORTISE_PLUGIN(Gloo, mortise::provide("comm", &kObject))
