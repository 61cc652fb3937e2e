// What the C boundary costs over direct C++: operators through mortise.ops, wrappers, listeners, a pair. One thread,
// the CPU.
//
//   cmake --build build --target bench_abi && build/bin/bench_abi
//
// Each figure is the smallest of 200 rounds, nanoseconds a call; direct and table rounds alternate, so that a busy
// machine hurts both. 8 × 8 float32.
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/chunk.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "core/abi/error.hpp"
#include "core/host/handle.hpp"
#include "core/host/host.hpp"
#include "core/host/tables.hpp"

namespace {

using namespace mortise;
using Clock = std::chrono::steady_clock;

constexpr int kRounds = 200;

template <class Body>
double once(int n, Body&& body) {
  const auto begin = Clock::now();
  for (int i = 0; i < n; ++i) body();
  return std::chrono::duration<double, std::nano>(Clock::now() - begin).count() / n;
}

void check(mortise_status s) {
  if (s == MORTISE_OK) return;
  std::fprintf(stderr, "%s\n", take_error(s).c_str());
  std::exit(1);
}

void head() { std::printf("%-44s %9s %9s %9s %7s %9s\n", "", "direct", "table", "over", "ratio", "target"); }
void row(const char* what, double direct, double table, double target) {
  std::printf("%-44s %6.0f ns %6.0f ns %6.0f ns", what, direct, table, table - direct);
  direct < 1 ? std::printf("%8s", "") : std::printf(" %7.2f", table / direct);
  if (target > 0) std::printf("  %4.0f ns%s", target, table - direct <= target ? "" : "  missed");
  std::printf("\n");
}

template <class Direct, class Table>
void compare(const char* what, double target, int n, Direct&& direct, Table&& table) {
  double d = 1e18, t = 1e18;
  for (int r = 0; r < kRounds; ++r) {
    d = std::min(d, once(n, direct));
    t = std::min(t, once(n, table));
  }
  row(what, d, t, target);
}

mortise_value tensor(const at::Tensor& t) { return {MORTISE_TENSOR, 0, {.t = borrow(t)}}; }
mortise_value number(int64_t i) { return {MORTISE_INT, 0, {.i = i}}; }

void operators(mortise_host* h) {
  const at::Tensor a = at::randn({8, 8}), b = at::randn({8, 8});
  const auto find = [&](const char* name) {
    mortise_op* op = nullptr;
    check(kOpsApi.find(h, str(name), &op));
    return op;
  };
  const mortise_op *add = find("aten::add.Tensor"), *mm = find("aten::mm"), *view = find("aten::view"),
                   *chunk = find("aten::chunk");
  const auto call1 = [&](const mortise_op* op, std::initializer_list<mortise_value> args) {
    mortise_tensor* out = nullptr;
    check(kOpsApi.call1(h, op, args.begin(), static_cast<uint32_t>(args.size()), &out));
    kTensorApi.release(h, out);
  };
  at::NoGradGuard no_grad;
  compare("add", 300, 1000, [&] { at::add(a, b); }, [&] { call1(add, {tensor(a), tensor(b), number(1)}); });
  compare("mm", 300, 1000, [&] { at::mm(a, b); }, [&] { call1(mm, {tensor(a), tensor(b)}); });
  const int64_t sizes[] = {4, 16};
  compare(
      "view", 400, 1000, [&] { a.view({4, 16}); }, [&] { call1(view, {tensor(a), {MORTISE_INTS, 2, {.is = sizes}}}); });
  compare(
      "chunk in 3", 600, 500, [&] { at::chunk(a, 3, 1); },
      [&] {
        const mortise_value args[] = {tensor(a), number(3), number(1)};
        mortise_value out[3];
        uint32_t n = 0;
        check(kOpsApi.call(h, chunk, args, 3, out, 3, &n));
        for (const auto& o : out) kTensorApi.release(h, o.v.t);
      });
  mortise_tensor_info info{};
  info.struct_size = sizeof info;
  compare(
      "info, against sizes()", 0, 5000, [&] { __asm__ volatile("" ::"r"(a.sizes().data())); },
      [&] { check(kTensorApi.info(h, borrow(a), &info)); });
}

void wrappers(Host& host) {
  PluginHost& plugin = host.add_plugin("bench.wrapper", nullptr, nullptr);
  mortise_next* provider = host.add_link();
  provider->plugin = &plugin;
  provider->call = [](void*, mortise_call*) noexcept { return mortise_status{MORTISE_OK}; };
  provider->point = "bench";
  mortise_next* wrapped = provider;
  for (int i = 0; i < 10; ++i) {
    mortise_next* link = host.add_link();
    link->plugin = &plugin;
    link->self = &plugin;
    link->wrap = [](void* self, mortise_call* call, mortise_next* next) noexcept {
      return kCallApi.next(static_cast<mortise_host*>(static_cast<PluginHost*>(self)), next, call);
    };
    link->next = wrapped;
    link->point = "bench";
    wrapped = link;
  }
  mortise_call call = make_call(nullptr, 0, {});
  compare(
      "10 wrappers that do nothing, against none", 0, 5000, [&] { invoke(provider, call); },
      [&] { invoke(wrapped, call); });

  struct Listener {
    mortise_event_fn fn;
    void* self;
  };
  std::vector<Listener> listeners(
      40, {[](void*, const mortise_event*) noexcept { return mortise_status{MORTISE_OK}; }, nullptr});
  compare(
      "40 listeners that do nothing, against none", 0, 5000, [] {},
      [&] {
        mortise_event event{};
        event.struct_size = sizeof event;
        for (const auto& l : listeners) check(l.fn(l.self, &event));
      });
}

// The same linear layer, forward and backward: ATen's under its own autograd, and as a pair.
struct Linear {
  mortise_param *weight = nullptr, *bias = nullptr;
  mortise_host* h = nullptr;
  at::Tensor use(mortise_param* p) const {
    mortise_tensor* t = nullptr;
    check(kParamsApi.use(h, p, &t));
    return take(t);
  }
  static mortise_status forward(void* self, mortise_call* call, mortise_saved* saved, uint32_t* n) noexcept {
    const auto& l = *static_cast<Linear*>(self);
    call->results[0] = value_of(at::addmm(l.use(l.bias), share(call->args[0].v.t), l.use(l.weight).t()));
    saved[(*n)++] = {MORTISE_SAVE_INPUT, 0, nullptr};
    return MORTISE_OK;
  }
  static mortise_status backward(void* self, mortise_call*, mortise_backward* b) noexcept {
    const auto& l = *static_cast<Linear*>(self);
    const at::Tensor g = share(b->grad_out[0]), x = share(b->saved[0]);
    if (b->wanted & 1) b->grad_in[0] = give(at::mm(g, l.use(l.weight)));
    mortise_tensor* to = nullptr;
    int add = 0;
    check(kGradsApi.target(l.h, l.weight, MORTISE_F32, &to, &add));
    if (at::Tensor out = take(to); out.defined()) add ? out.addmm_(g.t(), x) : at::mm_out(out, g.t(), x);
    const at::Tensor sum = g.sum(0);
    check(kGradsApi.sum(l.h, l.bias, borrow(sum)));
    return MORTISE_OK;
  }
};

void pairs(Host& host, PointTable& points) {
  PluginHost& plugin = host.add_plugin("bench.linear", nullptr, nullptr);
  Linear linear;
  linear.h = &plugin;
  points.add_operator("bench_linear", "", "", "");
  mortise_layer* layer = nullptr;
  mortise_builder builder{host.declaration(), [&](mortise_layer&, const mortise_layer_spec&) {
                            const int64_t sizes[] = {8, 8};
                            mortise_param_spec spec{};
                            spec.struct_size = sizeof spec;
                            spec.rank = 2;
                            spec.sizes = sizes;
                            spec.role = MORTISE_STR("matrix");
                            spec.init = MORTISE_STR("normal");
                            spec.init_scale = 1;
                            spec.name = MORTISE_STR("weight");
                            linear.weight = add_param(builder, spec);
                            spec.rank = 1;
                            spec.name = MORTISE_STR("bias");
                            linear.bias = add_param(builder, spec);
                          }};
  add_segment(builder, "s", 0);
  layer = add_layer(builder, points,
                    {sizeof(mortise_layer_spec), 0, MORTISE_STR("bench_linear"), MORTISE_STR("fc"), nullptr});
  host.parameters().allocate(host.declaration(), at::kCPU, 1);
  static const mortise_operator op = {sizeof op, 0, nullptr, nullptr, Linear::forward, Linear::backward};
  mortise_next* link = host.add_link();
  link->plugin = &plugin;
  link->self = &linear;
  link->op = &op;
  link->point = "bench_linear";
  host.set_layer_chain(*layer, MORTISE_TRAIN, link);

  const at::Tensor x = at::randn({8, 8}).set_requires_grad(true), seed = at::randn({8, 8});
  at::Tensor w = host.parameters().value(*linear.weight).clone().set_requires_grad(true),
             b = host.parameters().value(*linear.bias).clone().set_requires_grad(true);
  mortise_call outer = make_call(nullptr, 0, {});
  outer.flags = MORTISE_GRAD | MORTISE_LAST_MICRO;
  const auto forward = [&] {
    SegmentFrame segment{0, {}};
    Frame frame;
    frame.call = &outer;
    frame.segment = &segment;
    FrameScope scope(frame);
    const mortise_value arg = tensor(x);
    mortise_value out{};
    check(kCallApi.layer(&plugin, layer, &arg, 1, &out, 1));
    return take(out.v.t);
  };
  compare("linear, forward with a graph", 0, 500, [&] { at::linear(x, w, b); }, [&] { forward(); });
  compare(
      "linear, forward and backward", 0, 100,
      [&] {
        w.mutable_grad() = at::Tensor();
        b.mutable_grad() = at::Tensor();
        x.mutable_grad() = at::Tensor();
        at::linear(x, w, b).backward(seed);
      },
      [&] {
        x.mutable_grad() = at::Tensor();
        host.parameters().begin_step();
        host.parameters().begin_micro(0, true);
        run_backward(host, {forward()}, {seed});
      });
  compare(
      "use of a parameter, against detach()", 0, 1000, [&] { w.detach(); },
      [&] { host.parameters().use(*linear.weight, MORTISE_GRAD); });
}

}  // namespace

int main() {
  at::set_num_threads(1);
  PointTable points;
  Host host(points, 1);
  PluginHost& plugin = host.add_plugin("bench.ops", nullptr, nullptr);
  head();
  operators(&plugin);
  wrappers(host);
  pairs(host, points);
}
