// comm.nccl: collectives between processes with a GPU each, over NCCL.
//
// A collective runs on a stream of its own: it begins after what the current stream has so far, and whoever waits makes
// the current stream wait, never the host. So gradients are summed while backward goes on, and a recording has both.
// What the host itself is told, numbers and texts, goes over the same side as comm.gloo's.
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <atomic>
#include <cstdlib>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>

#include "library.hpp"
#include "mortise/cpp/ops.hpp"
#include "mortise/cpp/plugin.hpp"
#include "mortise/dtype.h"
#include "plugins/comm/collective.hpp"
#include "plugins/comm/side.hpp"
#include "watch.hpp"

struct mortise_work {
  std::optional<c10::Event> done;  // none where there was nothing to send
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

// The communicator. Shared with the thread that ends it, which may outlive the plugin: NCCL returns from there when no
// recording has a collective of it any more.
struct Connection {
  explicit Connection(c10::Device its) : device(its) {}
  const comm::Library nccl;
  const c10::Device device;
  comm::Communicator* communicator = nullptr;
  std::timed_mutex calls;  // of NCCL
  std::atomic<bool> is_over = false;
  std::once_flag ends;
  std::thread ending;
  std::promise<void> ended;

  void connect(const comm::UniqueId& id, int size, int rank) {
    const c10::DeviceGuard guard(device);
    if (const auto result = nccl.init_rank(&communicator, size, id, rank); result != comm::kSuccess)
      throw std::runtime_error(nccl.text(result, nullptr));
  }
  // Kernels that wait for another rank end, with whatever they have. A call that hangs in the driver behind such a
  // kernel is not waited for.
  void abort() {
    is_over = true;
    const c10::DeviceGuard guard(device);
    const bool is_free = calls.try_lock_for(Milliseconds(200));
    nccl.abort(communicator);
    if (is_free) calls.unlock();
    ended.set_value();
  }
};

// Of the run's stream, in which everything else waits for its turn.
class Queue : public comm::Progress {
 public:
  Queue(Connection& connection, c10::Stream stream) : connection_(connection), stream_(stream) {}
  void begin() override { c10::impl::VirtualGuardImpl(c10::kCUDA).setDevice(connection_.device); }
  void mark() override { mark_.record(stream_); }
  bool is_reached() override { return mark_.query(); }
  std::string trouble() override {
    const std::unique_lock lock(connection_.calls, std::try_to_lock);
    if (!lock || connection_.is_over) return "";
    comm::Result error = comm::kSuccess;
    const auto result = connection_.nccl.async_error(connection_.communicator, &error);
    if (result != comm::kSuccess) error = result;
    const bool is_well = error == comm::kSuccess || error == comm::kInProgress;
    return is_well ? "" : connection_.nccl.text(error, connection_.communicator);
  }

 private:
  Connection& connection_;
  c10::Stream stream_;
  c10::Event mark_{c10::kCUDA};
};

class Nccl : public comm::Side {
 public:
  Nccl() : Side("comm.nccl", comm::duration_of("timeout"), 1) {}
  ~Nccl() override {
    watch_.reset();
    end_groups();
    if (connection_ && connection_->ending.joinable()) await_ending();
  }

  void open(const mortise_world* given) {
    Side::open(given);
    if (is_alone()) return;
    // Multicast over NVLink hangs on hosts whose fabric is not set up for it. Connections are made now, not in the
    // first call that wants one, which could not be given up. And ranks need not all record the same step: a buffer
    // that is registered while it is recorded would have to be by all.
    for (const char* variable : {"NCCL_NVLS_ENABLE", "NCCL_RUNTIME_CONNECT", "NCCL_GRAPH_REGISTER"})
      set_unless_set(variable);
    const c10::impl::VirtualGuardImpl cuda(c10::kCUDA);
    const c10::Device device = cuda.getDevice();
    refuse_one_gpu_twice(comm::name_of_gpu(device.index()));
    connection_ = std::make_shared<Connection>(device);
    connect();
    queue_ = cuda.getStreamFromGlobalPool(device, /*isHighPriority=*/true);
    progress_.emplace(*connection_, cuda.getStream(device));
    watch_.emplace(own(), *progress_, timeout(), [this](const std::string& why) { lose(other_rank() + " " + why); });
  }

  void start(const mortise_collective* c, mortise_work** out) {
    if (!c || !out) throw Error(MORTISE_E_ARGUMENT, "start: an argument is NULL");
    const char* const name = comm::name_of(*c);
    need_open(name);
    comm::check_fit(*c, world().size, MORTISE_CUDA);
    auto made = std::make_unique<mortise_work>();
    if (comm::reads_in(*c)) made->in = Tensor::share(c->in);
    made->out = Tensor::share(c->out);
    const std::lock_guard lock(mutex_);
    need_all();
    if (is_alone()) {
      if (made->in) ops::copy_(made->out, made->in.get());
    } else if (Info(made->out).numel > 0) {
      made->done = begin(*c, name);
    }
    *out = made.get();
    works_.emplace(made.get(), std::move(made));
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
  // Of a communicator that was aborted: a thread that is still in NCCL or in CUDA when the process takes these apart
  // crashes it. One that is well ends with the process: NCCL does not let go of it while a recording has its
  // collectives.
  void await_ending() {
    const bool is_over = connection_->ended.get_future().wait_for(Milliseconds(500)) == std::future_status::ready;
    if (is_over) connection_->ending.join();
    else connection_->ending.detach();
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

  void connect() {
    comm::UniqueId id{};
    std::string text;
    if (world().rank == 0) {
      if (const auto result = connection_->nccl.get_unique_id(&id); result != comm::kSuccess)
        throw Error(MORTISE_E_IO, "open: NCCL cannot begin: " + connection_->nccl.text(result, nullptr));
      text.assign(id.bytes.data(), id.bytes.size());
    }
    exchange("nccl", text).front().copy(id.bytes.data(), id.bytes.size());
    const auto began = Clock::now();
    try {
      comm::within(timeout(), [made = connection_, id, size = world().size, rank = world().rank] {
        made->connect(id, size, rank);
      });
    } catch (const std::exception& e) {
      throw Error(MORTISE_E_IO,
                  "open: the GPUs are not connected, " + comm::seconds(Clock::now() - began) +
                      " after NCCL began: " + comm::plain(e),
                  "NCCL_DEBUG=INFO says more; or [comm.gloo] with --use device.cpu");
    }
  }

  c10::Event begin(const mortise_collective& c, const char* name) {
    c10::Event before(c10::kCUDA), done(c10::kCUDA);
    before.record(current());
    before.block(*queue_);
    const std::lock_guard lock(connection_->calls);
    if (connection_->is_over) need_all();
    if (const auto result = call(c); result != comm::kSuccess) {
      const std::string text = std::string(name) + ": " + connection_->nccl.text(result, connection_->communicator);
      if (result == comm::kRemoteError) lose(other_rank() + " cannot be reached: " + text);
      need_all();
      throw Error(MORTISE_E_PLUGIN, "NCCL refuses " + text);
    }
    done.record(*queue_);
    return done;
  }

  comm::Result call(const mortise_collective& c) {
    const comm::Library& nccl = connection_->nccl;
    comm::Communicator* const all = connection_->communicator;
    void* const stream = queue_->native_handle();
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
      default: return nccl.broadcast(out.data, out.data, n * bytes, comm::kUint8, c.root, all, stream);
    }
  }

  c10::Stream current() const { return c10::impl::VirtualGuardImpl(c10::kCUDA).getStream(connection_->device); }

  void give_up() override {
    if (!connection_ || !connection_->communicator) return;
    std::call_once(connection_->ends, [this] { connection_->ending = std::thread([c = connection_] { c->abort(); }); });
  }

  std::shared_ptr<Connection> connection_;  // of several ranks
  std::optional<c10::Stream> queue_;        // of all collectives
  std::mutex mutex_;                        // of start and wait, which autograd's threads call too
  std::unordered_map<mortise_work*, std::unique_ptr<mortise_work>> works_;  // started, not waited for
  std::optional<Queue> progress_;
  std::optional<comm::Watch> watch_;
};

const mortise_comm kObject = {sizeof(mortise_comm), 0,
                              thunk<&Nccl::open>,   thunk<&Nccl::start>,
                              thunk<&Nccl::wait>,   thunk<&Nccl::host_all_reduce>,
                              thunk<&Nccl::share>,  thunk<&Nccl::fetch>};
}  // namespace

MORTISE_PLUGIN(Nccl, mortise::provide("comm", &kObject))
