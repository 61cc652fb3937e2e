// A run for the tests of this room: the real host, passes, ledger and step over plugins made of functions.
//
//   Sample n of "train" is the number n + 1, of "validation" 100 + n. The model is one float64 parameter w, 2 at first;
//   its loss is the mean of w * x, so the gradient of w is the mean of x over the tokens of the step. The optimizer is
//   plain descent, rate 0.5, and counts in its state `steps` how often it was applied.
#pragma once
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mul.h>
#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/abi/error.hpp"
#include "core/host/handle.hpp"
#include "core/loop/loop_services.hpp"
#include "core/loop/step.hpp"

namespace mortise::testing {

using Numbers = std::vector<int64_t>;

// Whoever provides an object or listens: what the core calls it.
struct FakePlugin {
  explicit FakePlugin(const std::string& id) {
    info.schema.id = id;
    instance.member = &member;
    instance.self = this;
  }
  FakePlugin(const FakePlugin&) = delete;
  FakePlugin& operator=(const FakePlugin&) = delete;
  PluginInfo info;
  Member member{&info, nullptr};
  Instance instance;
};

inline void put_numbers(mortise_rows& rows, size_t row, size_t field, const Numbers& numbers) {
  const auto bytes = std::as_bytes(std::span(numbers));
  rows.rows[row][field].assign(bytes.begin(), bytes.end());
  rows.is_put[row * rows.fields.size() + field] = 1;
}

struct FakeData : FakePlugin {
  int64_t train = 8, validation = 0;
  int64_t forgets = -1;  // the number of a sample that it does not put
  std::function<Numbers(std::string_view split, int64_t number)> sample = [](std::string_view split, int64_t n) {
    return Numbers{split == "train" ? n + 1 : 100 + n};
  };
  std::function<void()> during_get;
  std::atomic<int64_t> epoch = -1;  // of what was asked for last

  FakeData() : FakePlugin("data.fake") {
    object.struct_size = sizeof object;
    object.n_fields = 1;
    object.fields = &field;
    object.describe = [](void* self, mortise_str split, mortise_split* out) noexcept {
      const auto& d = *static_cast<FakeData*>(self);
      out->samples = view(split) == "train" ? d.train : d.validation;
      return mortise_status{MORTISE_OK};
    };
    object.get = [](void* self, mortise_str split, const int64_t* numbers, const int64_t* epochs, uint32_t n,
                    mortise_rows* rows) noexcept {
      return guarded([&] {
        auto& d = *static_cast<FakeData*>(self);
        if (d.during_get) d.during_get();
        for (uint32_t i = 0; i < n; ++i) {
          if (d.forgets == numbers[i]) continue;
          put_numbers(*rows, i, 0, d.sample(view(split), numbers[i]));
          d.epoch = epochs[i];
        }
      });
    };
  }
  Provided<mortise_data> provided() { return {&object, &instance}; }

  static constexpr int64_t kSequence[] = {-1};

 private:
  mortise_field field{sizeof(mortise_field), MORTISE_I64, MORTISE_STR("x"), MORTISE_STR("tokens"), -1, kSequence, 1, 0};
  mortise_data object{};
};

struct FakeSchedule : FakePlugin {
  std::function<double(double)> factor = [](double) { return 1.0; };
  bool speaks = true;  // or returns without having written a factor
  FakeSchedule() : FakePlugin("schedule.fake") {
    object.struct_size = sizeof object;
    object.factor = [](void* self, double progress, double* out) noexcept {
      if (static_cast<FakeSchedule*>(self)->speaks) *out = static_cast<FakeSchedule*>(self)->factor(progress);
      return mortise_status{MORTISE_OK};
    };
  }
  Provided<mortise_schedule> provided() { return {&object, &instance}; }

 private:
  mortise_schedule object{};
};

struct FakeOptimizer : FakePlugin {
  std::vector<mortise_slice> seen;  // of the last step
  FakeOptimizer() : FakePlugin("optimizer.fake") {
    object.struct_size = sizeof object;
    object.step = [](void* self, const mortise_slice* slices, uint32_t n, const mortise_ledger* ledger) noexcept {
      return guarded([&] {
        static_cast<FakeOptimizer*>(self)->seen.assign(slices, slices + n);
        const at::Tensor verdict = share(ledger->verdict), multiplier = share(ledger->multiplier);
        for (uint32_t i = 0; i < n; ++i) {
          const at::Tensor rate = share(ledger->lr)[slices[i].group];
          share(slices[i].master).sub_(share(slices[i].grad).mul(multiplier).mul(rate).mul(verdict));
          share(slices[i].states[0]).add_(verdict);
        }
      });
    };
  }
  DeclaredOptimizer of(std::vector<mortise_param*> params) {
    DeclaredOptimizer o;
    o.by = &instance;
    o.object = {&object, &instance};
    o.params = params;
    for (mortise_param* p : params) o.states.push_back({p, {{"steps", p->sizes, MORTISE_F64, 0}}});
    return o;
  }
  mortise_optimizer object{};
};

struct FakeReplicas : FakePlugin {
  std::function<void(mortise_param&)> ready = [](auto&) {}, written = [](auto&) {};
  mortise_replicas object{};
  FakeReplicas() : FakePlugin("parallel.fake") {
    object.struct_size = sizeof object;
    object.ready = [](void* self, mortise_param* p, int32_t, int32_t) noexcept {
      return guarded([&] { static_cast<FakeReplicas*>(self)->ready(*p); });
    };
    object.finish = [](void*, uint32_t) noexcept { return mortise_status{MORTISE_OK}; };
    object.need = [](void*, mortise_param*, int32_t, int32_t) noexcept { return mortise_status{MORTISE_OK}; };
    object.written = [](void* self, mortise_param* p) noexcept {
      return guarded([&] { static_cast<FakeReplicas*>(self)->written(*p); });
    };
  }
};

struct FakeListener : FakePlugin {
  std::function<void(const mortise_event&)> fn;
  explicit FakeListener(std::function<void(const mortise_event&)> f) : FakePlugin("test.listener"), fn(std::move(f)) {}
  static mortise_status run(void* self, const mortise_event* e) noexcept {
    return guarded([&] { static_cast<FakeListener*>(self)->fn(*e); });
  }
};

using Wrapper = std::function<void(mortise_call&, const std::function<void()>& next)>;

struct FakeWrapper {
  PluginHost* window;
  Wrapper fn;
  static mortise_status run(void* self, mortise_call* call, mortise_next* next) noexcept {
    const auto& w = *static_cast<FakeWrapper*>(self);
    return guarded([&] {
      w.fn(*call, [&] {
        if (const mortise_status s = kCallApi.next(w.window, next, call)) throw as_thrown(s);
      });
    });
  }
};

inline at::Tensor scalar(double v) { return at::full({}, v, at::kDouble); }

struct RunOptions {
  int64_t micro_batch_size = 2;
  int depth = 0;   // how many steps may be under way while their reports are not read
  int window = 1;  // micro-batches a step
  bool shuffle = false;
  bool sharded = false;            // the parameter: this rank has all of it
  int64_t elements = 0;            // of the parameter, a vector; 0: it is a scalar
  std::vector<double> lr = {0.5};  // a group each; the parameter is in the first
  Horizon horizon = {0, 1000};
};

class TestRun {
 public:
  // What the model gives in `forward`; the loss alone unless a test says more.
  std::function<void(mortise_call&, const at::Tensor& w, const at::Tensor& x)> terms =
      [this](mortise_call&, const at::Tensor& w, const at::Tensor& x) { term("loss", w.mul(x).sum()); };
  FakeData data;
  FakeSchedule schedule;
  FakeOptimizer optimizer;
  FakeReplicas replicas;
  PointTable points;
  Host host{points, 1};
  Listeners listeners{points};
  Chains chains;

  // Points are wrapped, and events listened to, before build(). The first wrapper is the outermost.
  void wrap(Point point, Wrapper fn) {
    wraps_[point].push_back({&host.add_plugin("test.wrapper", nullptr, nullptr), std::move(fn)});
  }
  void listen(Point point, std::function<void(const mortise_event&)> fn) {
    listeners.add(point, FakeListener::run, heard_.emplace_back(std::move(fn)).instance);
  }
  void build(RunOptions options = {}) {
    SampleOptions s;
    s.micro_batch_size = s.eval_micro_batch_size = options.micro_batch_size;
    s.shuffle = options.shuffle;
    samples = std::make_unique<Samples>(data.provided(), s);
    feed = std::make_unique<Feed>(data.provided(), *samples, FeedOptions{0, 1, true, false});
    declare(options);
    passes = std::make_unique<Passes>(host, chains, *feed, *samples);
    services = std::make_unique<RunServices>(host, *passes);
    host.loop = services.get();
    std::vector<Group> groups;
    for (const double lr : options.lr) groups.push_back({0, lr, 0});
    ledger = std::make_unique<Ledger>(host.device(), groups, schedule.provided(), options.horizon);
    declared_ = optimizer.of({param});
    optimizers.emplace_back(declared_, host);
    if (options.window > 1) listen(kStepWindow, [this, options](auto&) { host.services.window = options.window; });
    step = std::make_unique<Step>(Step::Parts{host,
                                              chains,
                                              listeners,
                                              *passes,
                                              *samples,
                                              *ledger,
                                              optimizers,
                                              {&replicas.object, &replicas.instance},
                                              options.depth});
    services->train(*ledger, {&replicas.object, &replicas.instance}, *step);
    link();
  }
  void term(const char* name, const at::Tensor& sum, const char* unit = "tokens", double weight = 1) {
    services->term(name, borrow(sum), unit, weight);
  }
  at::Tensor attach_term(const char* name, const at::Tensor& carrier, const at::Tensor& sum, const char* unit,
                         double weight) {
    mortise_tensor* out = nullptr;
    services->attach_term(name, borrow(carrier), borrow(sum), unit, weight, &out);
    return take(out);
  }
  // One step, and its report.
  StepReport run() {
    step->run();
    return step->take_report(true).value();
  }
  double value() { return host.parameters().state(*param).master.item<double>(); }
  double updates() { return optimizers[0].states()[0].tensor.item<double>(); }

  std::unique_ptr<Samples> samples;
  std::unique_ptr<Feed> feed;
  std::unique_ptr<Passes> passes;
  std::unique_ptr<RunServices> services;
  std::unique_ptr<Ledger> ledger;
  std::deque<Optimizer> optimizers;
  std::unique_ptr<Step> step;
  mortise_param* param = nullptr;

 private:
  void declare(const RunOptions& options) {
    mortise_builder b{host.declaration(), {}};
    add_segment(b, "h.0", MORTISE_BLOCK);
    mortise_param_spec spec{};
    spec.struct_size = sizeof spec;
    spec.name = MORTISE_STR("w");
    spec.role = MORTISE_STR("matrix");
    spec.init = MORTISE_STR("ones");
    const mortise_str dim = MORTISE_STR("width");
    if (options.elements > 0) spec.rank = 1, spec.dims = &dim, spec.sizes = &options.elements;
    param = add_param(b, spec);
    mortise_param_info& info = param->info;
    info.value_dtype = info.master_dtype = info.grad_dtype = MORTISE_F64;
    if (options.sharded) param->shards = {.pieces = {{0, 1}}, .own = {0, 1}, .room = 1};
    host.parameters().allocate(host.declaration(), host.device(), 1, [](const mortise_param&, at::Tensor& m) {
      m.fill_(2.0);
      return true;
    });
  }
  const mortise_next* wrapped(Point point, CoreFunction core) {
    mortise_next* inner = host.add_link();
    inner->point = points[point].name;
    inner->core = std::move(core);
    for (auto wrapper = wraps_[point].rbegin(); wrapper != wraps_[point].rend(); ++wrapper) {
      mortise_next* link = host.add_link();
      link->plugin = wrapper->window;
      link->self = &*wrapper;
      link->wrap = FakeWrapper::run;
      link->next = inner;
      link->point = points[point].name;
      inner = link;
    }
    return inner;
  }
  void link() {
    chains.provide(kBatch, [](mortise_call& call) {
      retain(call.args[0].v.b);
      call.results[0] = call.args[0];
    });
    for (const Point p : {kLoad, kBatch, kStep, kGradients, kMicro, kForward, kBackward, kEval}) {
      const mortise_next* outer = wrapped(p, chains.provided(p));
      chains.set(p, {outer, outer, outer});
    }
    const mortise_next* block = wrapped(kBlock, [this](mortise_call& call) {
      const at::Tensor x = call.batch->fields[0].second;
      terms(call, host.parameters().use(*param, call.flags), x.mul(x.ne(-1)).to(at::kDouble));
    });
    chains.add_segment({block, block, block});
  }

  DeclaredOptimizer declared_;
  std::deque<FakeListener> heard_;
  std::map<uint32_t, std::deque<FakeWrapper>> wraps_;
};

inline std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const PluginError& e) {
    return e.text();
  }
  return "";
}

}  // namespace mortise::testing
