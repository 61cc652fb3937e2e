// comm.nccl: collectives between processes with a GPU each, over NCCL.
//
// The collectives of a group run on a stream of their own: each begins after what the current stream has so far, and
// whoever waits makes the current stream wait, never the host. So gradients are summed while backward goes on, and a
// recording has both.
// What the host itself is told, numbers and texts, goes over the same side as comm.gloo's.
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <vector>

#include "library.hpp"
#include "mortise/cpp/ops.hpp"
#include "mortise/cpp/plugin.hpp"
#include "mortise/dtype.h"
#include "plugins/comm/collective.hpp"
#include "plugins/comm/side.hpp"
#include "watch.hpp"

struct mortise_rank_group {
  int rank = 0, size = 1;
  mortise::comm::Communicator* communicator = nullptr;  // NULL of one rank, which has nobody to send to
  std::optional<c10::Stream> queue;                     // of all its collectives
};

struct mortise_work {
  std::shared_ptr<c10::Event> done;  // none where there was nothing to send
  mortise::Tensor in, out;
};

namespace {
using namespace mortise;
using comm::Clock;
using comm::Milliseconds;

// Unless the user says otherwise.
void set_unless_set(const char* variable) { ::setenv(variable, "0", /*overwrite=*/0); }

// Of what is added up: U8 and BOOL are what is left.
comm::DataType type_of(uint32_t dtype) {
  switch (dtype) {
    case MORTISE_F32: return comm::kFloat;
    case MORTISE_F64: return comm::kDouble;
    case MORTISE_BF16: return comm::kBfloat16;
    case MORTISE_F16: return comm::kHalf;
    case MORTISE_I64: return comm::kInt64;
    case MORTISE_I32: return comm::kInt32;
    default: return comm::kUint8;
  }
}

comm::RedOp op_of(uint32_t op) { return op == MORTISE_MAX ? comm::kMax : op == MORTISE_MIN ? comm::kMin : comm::kSum; }

// The communicators, of all ranks and of groups. Shared with the thread that ends them, which may outlive the plugin:
// NCCL returns from there when no recording has a collective of them any more.
struct Connection {
  explicit Connection(c10::Device its) : device(its) {}
  const comm::Library nccl;
  const c10::Device device;
  std::timed_mutex calls;  // of NCCL; and of this list
  std::vector<comm::Communicator*> communicators;
  std::atomic<bool> is_over = false;
  std::once_flag ends;
  std::thread ending;
  std::promise<void> ended;

  void connect(const comm::UniqueId& id, mortise_rank_group& group) {
    const c10::DeviceGuard guard(device);
    if (const auto result = nccl.init_rank(&group.communicator, group.size, id, group.rank); result != comm::kSuccess)
      throw std::runtime_error(nccl.text(result, nullptr));
    const std::lock_guard lock(calls);
    communicators.push_back(group.communicator);
  }
  // Kernels that wait for another rank end, with whatever they have. A call that hangs in the driver behind such a
  // kernel is not waited for.
  void abort() noexcept {
    is_over = true;
    const bool is_free = calls.try_lock_for(Milliseconds(200));
    try {
      const c10::DeviceGuard guard(device);
      // Together: one alone may wait for the kernels of the others (github.com/NVIDIA/nccl, issue 1013).
      nccl.group_start();
      for (comm::Communicator* each : communicators) nccl.abort(each);
      nccl.group_end();
    } catch (const std::exception&) {  // a device that has failed
    }
    if (is_free) calls.unlock();
    ended.set_value();
  }
};

// How far the run's own stream has come, in which collectives wait for their turn too.
class Queue : public comm::Progress {
 public:
  Queue(Connection& connection, c10::Stream stream) : connection_(connection), stream_(stream) {}
  void begin() override { c10::impl::VirtualGuardImpl(c10::kCUDA).setDevice(connection_.device); }
  void mark() override { mark_.record(stream_); }
  bool is_reached() override { return mark_.query(); }
  std::string trouble() override {
    const std::unique_lock lock(connection_.calls, std::try_to_lock);
    if (!lock || connection_.is_over) return "";
    for (comm::Communicator* each : connection_.communicators) {
      comm::Result error = comm::kSuccess;
      const auto result = connection_.nccl.async_error(each, &error);
      if (result != comm::kSuccess) error = result;
      if (error != comm::kSuccess && error != comm::kInProgress) return connection_.nccl.text(error, each);
    }
    return "";
  }

 private:
  Connection& connection_;
  c10::Stream stream_;
  c10::Event mark_{c10::kCUDA};
};

// A thread that is still in NCCL or in CUDA when the process takes these apart crashes it: a process that ends before
// `over` leaves that out.
void take_nothing_apart_before(std::future<void> over) {
  const auto leave = [](int status, void* its) {
    if (static_cast<std::future<void>*>(its)->wait_for(Milliseconds(0)) == std::future_status::ready) return;
    std::cout.flush();
    std::fflush(nullptr);
    ::_exit(status);
  };
  ::on_exit(leave, new std::future<void>(std::move(over)));
}

class Nccl : public comm::Side {
 public:
  Nccl() : Side("comm.nccl", comm::duration_of("timeout"), 1) {}
  ~Nccl() override {
    watch_.reset();
    end_groups();
    if (connection_ && connection_->ending.joinable()) await_ending();
  }

  void open(const mortise_world* given) {
    // Multicast over NVLink hangs on hosts whose fabric is not set up for it. Connections are made now, not in the
    // first call that wants one, which could not be given up; but for rows, whose calls make them. And ranks need not
    // all record the same step: a buffer that is registered while it is recorded would have to be by all. Before
    // threads begin, which might read the environment.
    for (const char* variable : {"NCCL_NVLS_ENABLE", "NCCL_RUNTIME_CONNECT", "NCCL_GRAPH_REGISTER"})
      set_unless_set(variable);
    Side::open(given);
    if (is_alone()) return;
    const c10::impl::VirtualGuardImpl cuda(c10::kCUDA);
    const c10::Device device = cuda.getDevice();
    refuse_one_gpu_twice(comm::name_of_gpu(device.index()));
    connection_ = std::make_shared<Connection>(device);
    connect("open", all_, {world().rank, world().size, "all"});
    progress_.emplace(*connection_, cuda.getStream(device));
    comm::with_threads([&] {
      watch_.emplace(own(), *progress_, timeout(), [this](const std::string& why) {
        const bool is_told = is_told_of_loss();  // and what this watch has noticed is how the other lets go
        lose(lost_ranks() + (is_told ? kGone : " " + why));
      });
    });
  }

  void group(const int32_t* ranks, uint32_t n, mortise_rank_group** out) {
    if (!out) throw Error(MORTISE_E_ARGUMENT, "group: there is no place for it");
    const Members some = members_of(ranks, n);
    const auto made = std::make_shared<mortise_rank_group>();
    if (some.size > 1) connect("group", made, some);
    *out = groups_.emplace_back(made).get();
  }

  void start(const mortise_collective* c, mortise_work** out) { start_all(&c, 1, out); }

  void start_all(const mortise_collective* const* all, uint32_t n, mortise_work** out) {
    std::vector<std::unique_ptr<mortise_work>> made;
    for (uint32_t i = 0; i < n; ++i) {
      if (!all[i] || !out) throw Error(MORTISE_E_ARGUMENT, "start: an argument is NULL");
      const mortise_collective& c = *all[i];
      need_open(comm::name_of(c));
      comm::check_fit(c, group_of(c).rank, group_of(c).size, MORTISE_CUDA);
      mortise_work& work = *made.emplace_back(std::make_unique<mortise_work>());
      if (reads_in(c)) work.in = Tensor::share(c.in);
      work.out = Tensor::share(c.out);
    }
    const std::lock_guard lock(mutex_);
    need_all();
    begin(all, made);
    for (uint32_t i = 0; i < n; ++i) {
      out[i] = made[i].get();
      works_.emplace(out[i], std::move(made[i]));
    }
  }

  void wait(mortise_work* work) {
    const std::lock_guard lock(mutex_);
    const auto found = works_.find(work);
    if (found == works_.end()) throw Error(MORTISE_E_ARGUMENT, "wait: there is no such work, or it was waited for");
    need_all();
    if (work->done) work->done->block(current());
    api.tensor->written(api.host, work->out.get());
    works_.erase(found);
  }

 private:
  // Of a communicator that was aborted. One that is well ends with the process: NCCL does not let go of it while a
  // recording has its collectives.
  void await_ending() {
    std::future<void> ended = connection_->ended.get_future();
    const bool is_over = ended.wait_for(Milliseconds(500)) == std::future_status::ready;
    if (is_over) return connection_->ending.join();
    connection_->ending.detach();
    take_nothing_apart_before(std::move(ended));
  }

  // NCCL waits for ever where two ranks have one GPU, or says it of none by name.
  void refuse_one_gpu_twice(const std::string& gpu) {
    const std::vector<std::string> all = exchange("gpu", gpu);
    for (size_t a = 0; a < all.size(); ++a)
      for (size_t b = a + 1; b < all.size(); ++b)
        if (!all[a].empty() && all[a] == all[b])
          throw Error(
              MORTISE_E_CONFIG,
              "open: ranks " + std::to_string(a) + " and " + std::to_string(b) + " have the same GPU, " + all[a],
              "a GPU for each rank (nvidia-smi -L, CUDA_VISIBLE_DEVICES of each rank), fewer ranks, or --use "
              "device.cpu");
  }

  // The first of a group has the id by which the others find it.
  void connect(const std::string& name, const std::shared_ptr<mortise_rank_group>& group, const Members& some) {
    group->rank = some.rank;
    group->size = some.size;
    comm::UniqueId id{};
    if (some.rank == 0) {
      if (const auto result = connection_->nccl.get_unique_id(&id); result != comm::kSuccess)
        throw Error(MORTISE_E_IO, name + ": NCCL cannot begin: " + connection_->nccl.text(result, nullptr));
    }
    said_by_first_of(some, {id.bytes.data(), id.bytes.size()}).copy(id.bytes.data(), id.bytes.size());
    const auto began = Clock::now();
    auto ends_with_thread = std::make_shared<std::promise<void>>();
    std::future<void> over = ends_with_thread->get_future();  // then it is broken
    try {
      comm::within(timeout(),
                   [made = connection_, id, group, held = std::move(ends_with_thread)] { made->connect(id, *group); });
    } catch (const std::exception& e) {
      take_nothing_apart_before(std::move(over));
      need_all();
      const std::string when = comm::seconds(Clock::now() - began) + " after NCCL began: " + comm::plain(e);
      if (const std::string absent = absent_ranks(); !absent.empty()) lose(name + ": " + absent + kGone + ", " + when);
      need_all();
      throw Error(MORTISE_E_IO, name + ": the GPUs are not connected, " + when,
                  "NCCL_DEBUG=INFO says more; or [comm.gloo] with --use device.cpu");
    }
    const c10::impl::VirtualGuardImpl cuda(c10::kCUDA);
    group->queue = cuda.getStreamFromGlobalPool(connection_->device, /*isHighPriority=*/true);
  }

  const mortise_rank_group& group_of(const mortise_collective& c) const {
    return c.group ? comm::known_group(c, groups_) : *all_;
  }

  // NCCL makes few kernels of calls that are one group. Each queue that has some of them has one event for its works.
  void begin(const mortise_collective* const* all, const std::vector<std::unique_ptr<mortise_work>>& works) {
    std::map<const mortise_rank_group*, std::shared_ptr<c10::Event>> done;
    std::optional<c10::Event> before;
    for (size_t i = 0; i < works.size(); ++i) {
      const mortise_rank_group& group = group_of(*all[i]);
      if (!group.communicator && works[i]->in)
        ops::copy_(works[i]->out, ops::view(works[i]->in, Info(works[i]->out).shape()));
      if (!group.communicator || comm::is_of_nothing(*all[i])) continue;
      std::shared_ptr<c10::Event>& its = done[&group];
      if (!its) {
        its = std::make_shared<c10::Event>(c10::kCUDA);
        if (!before) before.emplace(c10::kCUDA).record(current());
        before->block(*group.queue);
      }
      works[i]->done = its;
    }
    if (done.empty()) return;
    const std::lock_guard lock(connection_->calls);
    if (connection_->is_over) need_all();
    refuse(connection_->nccl.group_start(), *all[0]);
    comm::Result result = comm::kSuccess;
    size_t failed = 0;
    for (size_t i = 0; i < works.size() && result == comm::kSuccess; ++i)
      if (works[failed = i]->done) result = call(group_of(*all[i]), *all[i]);
    const comm::Result ended = connection_->nccl.group_end();
    refuse(result == comm::kSuccess ? ended : result, *all[failed]);
    for (const auto& [group, event] : done) event->record(*group->queue);
  }

  void refuse(comm::Result result, const mortise_collective& c) {
    if (result == comm::kSuccess) return;
    const std::string text =
        std::string(comm::name_of(c)) + ": " + connection_->nccl.text(result, group_of(c).communicator);
    // What is first connected in a call may fail in other ways where another rank has ended.
    const bool is_own = result == comm::kInvalidArgument || result == comm::kInvalidUsage;
    const std::string away = result == comm::kRemoteError ? lost_ranks() : is_own ? "" : absent_ranks();
    if (!away.empty()) lose(away + " cannot be reached: " + text);
    need_all();
    throw Error(MORTISE_E_PLUGIN, "NCCL refuses " + text);
  }

  comm::Result call(const mortise_rank_group& group, const mortise_collective& c) {
    const comm::Library& nccl = connection_->nccl;
    comm::Communicator* const all = group.communicator;
    void* const stream = group.queue->native_handle();
    const Info out(c.out);
    const auto n = static_cast<size_t>(out.numel);
    const size_t bytes = mortise_dtype_of(out.dtype)->bytes;
    const comm::DataType type = type_of(out.dtype);
    switch (c.kind) {
      case MORTISE_ALL_REDUCE: return nccl.all_reduce(out.data, out.data, n, type, op_of(c.op), all, stream);
      case MORTISE_REDUCE_SCATTER:
        return nccl.reduce_scatter(Info(c.in).data, out.data, n, type, op_of(c.op), all, stream);
      case MORTISE_ALL_GATHER:
        return nccl.all_gather(Info(c.in).data, out.data, static_cast<size_t>(Info(c.in).numel) * bytes, comm::kUint8,
                               all, stream);
      case MORTISE_ALL_TO_ALL: return exchange_rows(group, c, bytes);
      case MORTISE_REDUCE: return nccl.reduce(out.data, out.data, n, type, op_of(c.op), c.root, all, stream);
      default: return nccl.broadcast(out.data, out.data, n * bytes, comm::kUint8, c.root, all, stream);
    }
  }

  // Each rank sends to each, itself too, in one call. `bytes`: of an element.
  comm::Result exchange_rows(const mortise_rank_group& group, const mortise_collective& c, size_t bytes) {
    const comm::Library& nccl = connection_->nccl;
    const comm::Rows to(c.in, c.in_rows, group.size), from(c.out, c.out_rows, group.size);
    void* const stream = group.queue->native_handle();
    const char* in = Info(c.in).as<const char>();
    char* out = Info(c.out).as<char>();
    comm::Result result = nccl.group_start();
    for (int rank = 0; rank < group.size && result == comm::kSuccess; ++rank) {
      const size_t sent = static_cast<size_t>(to.of_each[static_cast<size_t>(rank)] * to.elements) * bytes,
                   got = static_cast<size_t>(from.of_each[static_cast<size_t>(rank)] * from.elements) * bytes;
      if (sent > 0) result = nccl.send(in, sent, comm::kUint8, rank, group.communicator, stream);
      if (got > 0 && result == comm::kSuccess)
        result = nccl.receive(out, got, comm::kUint8, rank, group.communicator, stream);
      in += sent;
      out += got;
    }
    const comm::Result ended = nccl.group_end();
    return result == comm::kSuccess ? ended : result;
  }

  c10::Stream current() const { return c10::impl::VirtualGuardImpl(c10::kCUDA).getStream(connection_->device); }

  void await_verdict() override {
    if (watch_) watch_->await_verdict();
  }
  void give_up() override {
    if (!connection_ || !all_->communicator) return;
    std::call_once(connection_->ends, [this] {
      try {
        connection_->ending = std::thread([c = connection_] { c->abort(); });
      } catch (const std::system_error&) {  // there is no thread for it
        connection_->abort();
      }
    });
  }

  std::shared_ptr<Connection> connection_;  // of several ranks
  std::shared_ptr<mortise_rank_group> all_ = std::make_shared<mortise_rank_group>();
  std::vector<std::shared_ptr<mortise_rank_group>> groups_;
  std::mutex mutex_;  // of start and wait, which autograd's threads call too
  std::unordered_map<mortise_work*, std::unique_ptr<mortise_work>> works_;  // started, not waited for
  std::optional<Queue> progress_;
  std::optional<comm::Watch> watch_;
};

const mortise_comm kObject = {.struct_size = sizeof(mortise_comm),
                              .reserved = 0,
                              .open = thunk<&Nccl::open>,
                              .start = thunk<&Nccl::start>,
                              .wait = thunk<&Nccl::wait>,
                              .host_all_reduce = thunk<&Nccl::host_all_reduce>,
                              .share = thunk<&Nccl::share>,
                              .fetch = thunk<&Nccl::fetch>,
                              .group = thunk<&Nccl::group>,
                              .start_all = thunk<&Nccl::start_all>};
}  // namespace

MORTISE_PLUGIN(Nccl, mortise::provide("comm", &kObject))
