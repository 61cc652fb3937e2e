// comm.gloo: collectives between processes, on the CPU, over c10d's ProcessGroupGloo.
//
// LibTorch sees the host's tensors as flat memory (from_blob); the handle is kept until `wait`, and told that it was
// written. Every call is checked before anything is sent, so that what is wrong on all ranks leaves none waiting.
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "mortise/cpp/plugin.hpp"
#include "mortise/dtype.h"
#include "plugins/comm/collective.hpp"
#include "plugins/comm/side.hpp"

struct mortise_rank_group {
  int rank = 0, size = 1;
  std::string name = "all";
  c10::intrusive_ptr<c10d::ProcessGroupGloo> ranks;  // none of one rank, which has nobody to send to
};

struct mortise_work {
  c10::intrusive_ptr<c10d::Work> work;  // none where there was nothing to send
  mortise::Tensor in, out;
  const char* name;
  mortise::comm::Clock::time_point began;
};

namespace {
using namespace mortise;
using comm::Clock;

constexpr int kThreads = 2;  // of each group

at::Tensor flat(mortise_tensor* t) {
  const Info info(t);
  return at::from_blob(info.data, {info.numel}, at::TensorOptions().dtype(comm::type_of(info.dtype)));
}

c10::intrusive_ptr<c10d::Work> begin_exchange(c10d::ProcessGroupGloo& group, const mortise_collective& c) {
  comm::Rows to(c.in, c.in_rows, group.getSize()), from(c.out, c.out_rows, group.getSize());
  at::Tensor in = flat(c.in).view({to.rows, to.elements}), out = flat(c.out).view({from.rows, from.elements});
  return group.alltoall_base(out, in, from.of_each, to.of_each);
}

c10::intrusive_ptr<c10d::Work> begin(c10d::ProcessGroupGloo& group, const mortise_collective& c) {
  if (c.kind == MORTISE_ALL_TO_ALL) return begin_exchange(group, c);
  at::Tensor out = flat(c.out);
  std::vector<at::Tensor> one = {out};
  switch (c.kind) {
    case MORTISE_ALL_REDUCE: {
      c10d::AllreduceOptions options;
      options.reduceOp = comm::op_of(c.op, comm::name_of(c));
      return group.allreduce(one, options);
    }
    case MORTISE_REDUCE_SCATTER: {
      c10d::ReduceScatterOptions options;
      options.reduceOp = comm::op_of(c.op, comm::name_of(c));
      at::Tensor in = flat(c.in);
      return group._reduce_scatter_base(out, in, options);
    }
    case MORTISE_ALL_GATHER: {
      at::Tensor in = flat(c.in);
      return group._allgather_base(out, in);
    }
    case MORTISE_REDUCE: {
      c10d::ReduceOptions options;
      options.reduceOp = comm::op_of(c.op, comm::name_of(c));
      options.rootRank = c.root;
      return group.reduce(one, options);
    }
    default: {
      c10d::BroadcastOptions options;
      options.rootRank = c.root;
      return group.broadcast(one, options);
    }
  }
}

class Gloo : public comm::Side {
 public:
  Gloo() : Side("comm.gloo", comm::duration_of("timeout"), kThreads, config::flag("check")) {}
  // What is under way ends, before the tensors go. What does not end keeps them.
  ~Gloo() override {
    all_ = {};
    if (!end_groups([groups = std::move(groups_)]() mutable { groups.clear(); }))
      static_cast<void>(new auto(std::move(works_)));
  }

  void open(const mortise_world* given) {
    Side::open(given);
    all_.size = world().size;
    all_.rank = world().rank;
    if (!is_alone()) all_.ranks = met().own;
  }

  void group(const int32_t* ranks, uint32_t n, mortise_rank_group** out) {
    if (!out) throw Error(MORTISE_E_ARGUMENT, "group: there is no place for it");
    const Members some = members_of(ranks, n);
    const auto made = std::make_shared<mortise_rank_group>();
    made->size = some.size;
    made->rank = some.rank;
    made->name = some.name;
    if (some.size > 1)
      connect_group([=, store = met().store, address = met().address, limit = timeout()] {
        made->ranks = comm::open_group(store, address, some.name, some.rank, some.size, kThreads, limit);
      });
    *out = groups_.emplace_back(made).get();
  }

  void start(const mortise_collective* c, mortise_work** out) {
    if (!c || !out) throw Error(MORTISE_E_ARGUMENT, "start: an argument is NULL");
    const char* const name = comm::name_of(*c);
    need_open(name);
    const mortise_rank_group& group = c->group ? comm::known_group(*c, groups_) : all_;
    comm::check_fit(*c, group.rank, group.size, MORTISE_CPU);
    auto made = std::make_unique<mortise_work>();
    if (reads_in(*c)) made->in = Tensor::share(c->in);
    made->out = Tensor::share(c->out);
    made->name = name;
    made->began = Clock::now();
    const std::lock_guard lock(mutex_);
    need_all();
    if (!group.ranks) {
      if (made->in) copy(made->in, made->out);
    } else {
      must_be_alike(what_is(*c), c->group ? group.ranks.get() : nullptr, group.name);
      if (!comm::is_of_nothing(*c)) {
        if (checks() && c->kind == MORTISE_ALL_TO_ALL) must_have_room(*c, group);
        or_lost(name, made->began, [&] { made->work = begin(*group.ranks, *c); });
      }
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

 private:
  // Each rank has as much room for another's rows as that one sends it.
  void must_have_room(const mortise_collective& c, const mortise_rank_group& group) {
    const int64_t n = group.size;
    std::vector<int64_t> own = comm::Rows(c.in, c.in_rows, n).of_each;
    std::ranges::copy(comm::Rows(c.out, c.out_rows, n).of_each, std::back_inserter(own));
    at::Tensor here = at::tensor(own, at::kLong), all = at::empty({n * 2 * n}, at::kLong);
    or_lost("check of all_to_all", Clock::now(), [&] { group.ranks->_allgather_base(all, here)->wait(); });
    const at::Tensor table = all.view({n, 2 * n});
    const auto rows = table.accessor<int64_t, 2>();
    for (int64_t from = 0; from < n; ++from)
      for (int64_t to = 0; to < n; ++to)
        if (rows[from][to] != rows[to][n + from])
          throw Error(MORTISE_E_SHAPE, "all_to_all: of these ranks number " + std::to_string(from) + " sends number " +
                                           std::to_string(to) + " " + std::to_string(rows[from][to]) +
                                           " rows, which has room for " + std::to_string(rows[to][n + from]));
  }
  // All in which ranks must not differ; of rows each sends its own number.
  static std::string what_is(const mortise_collective& c) {
    const Info out(c.out);
    std::string text = comm::name_of(c);
    if (reduces(c)) text += std::string(", ") + comm::op_name(c.op);
    const char* const dtype = mortise_dtype_of(out.dtype)->name;  // integers have none
    text += std::string(" of ") + (*dtype ? dtype : c10::toString(comm::type_of(out.dtype)));
    if (has_root(c)) text += ", root " + std::to_string(c.root);
    if (c.kind != MORTISE_ALL_TO_ALL) text += ", " + std::to_string(out.numel) + " elements";
    return text;
  }
  static void copy(const Tensor& from, const Tensor& to) {
    const Info in(from), out(to);
    if (out.numel > 0 && in.data != out.data)
      std::memmove(out.data, in.data, static_cast<size_t>(out.numel) * mortise_dtype_of(out.dtype)->bytes);
  }

  mortise_rank_group all_;
  std::vector<std::shared_ptr<mortise_rank_group>> groups_;
  std::mutex mutex_;  // of start and wait, which autograd's threads call too
  std::unordered_map<mortise_work*, std::unique_ptr<mortise_work>> works_;  // started, not waited for
};

const mortise_comm kObject = {.struct_size = sizeof(mortise_comm),
                              .reserved = 0,
                              .open = thunk<&Gloo::open>,
                              .start = thunk<&Gloo::start>,
                              .wait = thunk<&Gloo::wait>,
                              .host_all_reduce = thunk<&Gloo::host_all_reduce>,
                              .share = thunk<&Gloo::share>,
                              .fetch = thunk<&Gloo::fetch>,
                              .group = thunk<&Gloo::group>,
                              .start_all = nullptr};  // one after another
}  // namespace

MORTISE_PLUGIN(Gloo, mortise::provide("comm", &kObject))
