#include "core/host/test_host.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <fnmatch.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <utility>

#include "core/host/handle.hpp"
#include "core/host/tables.hpp"
#include "core/plugin/load.hpp"

namespace mortise::testing {
namespace {

bool fits(const std::string& where, const std::string& path) { return fnmatch(where.c_str(), path.c_str(), 0) == 0; }

void check(mortise_status s) {
  if (s != MORTISE_OK) throw as_thrown(s);
}

// Room for results; what is left in it is released.
struct Results {
  explicit Results(uint32_t n) : values(n, mortise_value{MORTISE_NONE, 0, {.i = 0}}) {}
  ~Results() {
    for (auto& v : values)
      if (v.tag == MORTISE_TENSOR) take(v.v.t);
  }
  Tensors tensors() {
    Tensors r;
    for (auto& v : values) r.push_back(tensor_of(v));
    return r;
  }
  std::vector<mortise_value> values;
};

std::vector<mortise_value> flat(const Args& args) { return {args.begin(), args.end()}; }

}  // namespace

Arg::Arg(const at::Tensor& t) : mortise_value{t.defined() ? MORTISE_TENSOR : MORTISE_NONE, 0, {.t = borrow(t)}} {}

// ---- who takes part ----

// A provider of an operator, from a plugin or from a test. Calls go through it so that the log sees them.
struct TestHost::Provider {
  TestHost& host;
  std::string slot, where;
  PluginHost* window;
  const mortise_operator* object = nullptr;  // of a plugin
  void* self = nullptr;
  Operator functions;  // of a test
  mortise_operator seen{};

  void watch(bool composite) {
    seen.struct_size = sizeof seen;
    seen.forward = [](void* p, mortise_call* call, mortise_saved* saved, uint32_t* n) noexcept {
      return static_cast<Provider*>(p)->forward(*call, saved, n);
    };
    if (!composite)
      seen.backward = [](void* p, mortise_call* call, mortise_backward* b) noexcept {
        return static_cast<Provider*>(p)->backward(*call, *b);
      };
  }
  mortise_status forward(mortise_call& call, mortise_saved* saved, uint32_t* n) noexcept {
    host.log.push_back("forward " + slot + " " + std::string(view(call.path)));
    if (object) return object->forward(self, &call, saved, n);
    return guarded([&] {
      Forward f(host, call, saved, n);
      functions.forward(f);
    });
  }
  mortise_status backward(mortise_call& call, mortise_backward& b) noexcept {
    host.log.push_back("backward " + slot + " " + std::string(view(call.path)));
    if (object) return object->backward(self, &call, &b);
    return guarded([&] {
      Backward back(host, call, b);
      functions.backward(back);
    });
  }
};

struct TestHost::Wrap {
  TestHost& host;
  std::string point, where;
  PluginHost* window;
  mortise_wrap_fn fn = nullptr;  // of a plugin
  void* self = nullptr;
  Wrapper function;  // of a test
  static mortise_status run(void* p, mortise_call* call, mortise_next* next) noexcept {
    auto& w = *static_cast<Wrap*>(p);
    if (w.fn) return w.fn(w.self, call, next);
    return guarded([&] {
      Call c(w.host, *call);
      w.function(c, next);
    });
  }
};

// The loop of a test: it notes what is ready, and has no step.
struct TestHost::Loop final : LoopServices {
  TestHost& host;
  explicit Loop(TestHost& h) : host(h) {}
  [[noreturn]] static void none() { throw PluginError(MORTISE_E_ARGUMENT, "a test has no step"); }
  const mortise_ledger& ledger() override { none(); }
  void vote(mortise_tensor*) override { none(); }
  void multiply(mortise_tensor*) override { none(); }
  void set_scale(mortise_tensor*) override { none(); }
  void report(std::string_view, mortise_tensor*, std::string_view) override { none(); }
  void metric(std::string_view, double) override { none(); }
  uint64_t recorded() override { return 0; }
  void replayed(uint64_t) override {}
  void term(std::string_view, mortise_tensor*, std::string_view, double) override {}
  // Its gradient is the weight.
  void attach_term(std::string_view, mortise_tensor* carrier, mortise_tensor* sum, std::string_view, double weight,
                   mortise_tensor** out) override {
    const at::Tensor on = share(carrier), t = share(sum);
    const bool has_graph = weight != 0 && (current_frame()->call->flags & MORTISE_GRAD);
    *out = give(has_graph ? with_root(on, t, [like = t.detach(), weight] { return at::full_like(like, weight); }) : on);
  }
  void norm(mortise_tensor**) override { none(); }
  void ready(mortise_param& p, int, bool last) override { host.log.push_back((last ? "ready " : "summed ") + p.name); }
  // What others would bring is missing.
  void need(mortise_param& p, int, bool) override {
    host.log.push_back("need " + p.name);
    host.host.parameters().hold(p);
  }
  void slices(const PluginHost&, const mortise_slice**, uint32_t*) override { none(); }
  void publish(const mortise_param&) override { none(); }
  void forward(mortise_batch*, uint32_t, uint32_t, mortise_value*, uint32_t) override { none(); }
};

TestHost::TestHost(uint64_t seed) : loop_(std::make_unique<Loop>(*this)), host(points_, seed) {
  host.loop = loop_.get();
}

TestHost::~TestHost() {
  for (auto p = plugins_.rbegin(); p != plugins_.rend(); ++p)
    if (p->self) p->descriptor->destroy(p->self);
}

PluginHost& TestHost::window(const std::string& id) {
  auto& w = windows_[id];
  if (!w) w = &host.add_plugin(id, nullptr, nullptr);
  return *w;
}

uint32_t TestHost::point(const std::string& name, const std::vector<std::string>& dtypes) {
  const int known = points_.find(name);
  return known >= 0 ? static_cast<uint32_t>(known) : points_.add_operator(name, "", "", "", dtypes);
}

const mortise_attachment& Plugin::at(std::string_view point) const {
  for (const auto* a : attachments)
    if (view(a->point) == point) return *a;
  throw PluginError(MORTISE_E_NOT_FOUND, info->schema.id + " does not attach to " + std::string(point));
}

Plugin& TestHost::load(const std::string& library, std::map<std::string, Value> values, const std::string& where) {
  Plugin& p = plugins_.emplace_back();
  Report report;
  const auto file = std::filesystem::path(library);
  const auto info =
      read_plugin_info(std::filesystem::path(file).replace_extension(".toml").string(), file.stem().string(), report);
  if (!info)
    throw PluginError(MORTISE_E_CONFIG,
                      report.all().empty() ? "no plugin.toml beside " + library : report.all()[0].message);
  p.info = std::make_unique<PluginInfo>(*info);
  p.info->library = library;
  p.table = std::make_unique<PluginTable>();
  p.table->schema = &p.info->schema;
  p.table->values = std::move(values);
  p.window = &host.add_plugin(p.info->schema.id, &p.info->schema, p.table.get());
  for (const ListenInfo& listen : p.info->listens) p.window->writes.insert(listen.writes.begin(), listen.writes.end());
  p.descriptor = load_plugin(*p.info, "").descriptor;
  for (const auto& row : p.info->operators) point(row.name, row.dtypes);
  const auto ask = [&](mortise_status s, const char* what) {
    if (s != MORTISE_OK) throw_status(s, p.window->id, what);
  };
  ask(p.descriptor->create(p.window, &p.self), "create");
  const mortise_attachment* first = nullptr;
  uint32_t n = 0, stride = 0;
  ask(p.descriptor->attachments(p.self, &first, &n, &stride), "attachments");
  for (uint32_t i = 0; i < n; ++i) {
    const auto* a =
        reinterpret_cast<const mortise_attachment*>(reinterpret_cast<const char*>(first) + size_t{i} * stride);
    p.attachments.push_back(a);
    const std::string name(view(a->point));
    if (name == "model") {
      model_ = a;
      model_plugin_ = &p;
    } else if (a->wrap) {
      wraps_.push_back({*this, name, where, p.window, a->wrap, p.self, {}});
    } else if (a->object &&
               (points_.find(name) < 0 || points_[static_cast<uint32_t>(points_.find(name))].kind == Kind::Operator)) {
      point(name);
      auto& provider = providers_.emplace_back(
          Provider{*this, name, where, p.window, static_cast<const mortise_operator*>(a->object), p.self, {}});
      provider.watch(!provider.object->backward);
    }
  }
  return p;
}

void TestHost::provide(const std::string& slot, Operator op, const std::string& where) {
  point(slot, op.dtypes);
  PluginHost& by = window(op.plugin);
  auto& provider = providers_.emplace_back(Provider{*this, slot, where, &by, nullptr, nullptr, std::move(op)});
  provider.watch(!provider.functions.backward);
}

void TestHost::wrap(const std::string& name, const std::string& plugin, Wrapper fn, const std::string& where) {
  wraps_.push_back({*this, name, where, &window(plugin), nullptr, nullptr, std::move(fn)});
}

// ---- the model ----

TestHost::Provider& TestHost::provider_of(const mortise_layer& layer) {
  int outer = 0;  // those that wrap this layer come before it
  for (const mortise_layer* l = layer.around; l; l = l->around) ++outer;
  for (auto p = providers_.rbegin(); p != providers_.rend(); ++p)
    if (p->slot == layer.slot && fits(p->where, layer.path) && outer-- == 0) return *p;
  throw PluginError(MORTISE_E_NOT_FOUND, "nothing provides `" + layer.slot + "` at " + layer.path);
}

void TestHost::declare_layer(mortise_builder& b, mortise_layer& layer, const mortise_layer_spec& spec) {
  Provider& p = provider_of(layer);
  const Declarer outside = std::exchange(b.declarer, {&layer, p.window->id});
  if (p.object && p.object->declare) {
    void* data = nullptr;
    const mortise_status s = p.object->declare(p.self, &b, &spec, &data);
    if (s != MORTISE_OK) throw_status(s, p.window->id, "declare of " + layer.slot + " at " + layer.path);
    layer.data.fill(data);
  } else if (p.functions.declare) {
    Builder builder(*this, b);
    p.functions.declare(builder, layer.path);
  }
}

void TestHost::declare(const std::function<void(Builder&)>& fn) {
  mortise_builder b{host.declaration(), {}};
  b.provide = [&](mortise_layer& layer, const mortise_layer_spec& spec) { declare_layer(b, layer, spec); };
  Builder builder(*this, b);
  fn(builder);
  host.declaring_parameters = true;
  for (auto& p : plugins_)
    for (const auto* a : p.attachments)
      if (a->listen && view(a->point) == "params.declared")
        for (auto& param : host.declaration().params) {
          mortise_event e{};
          e.struct_size = sizeof e;
          e.point = kParamsDeclared;
          e.param = &param;
          if (const mortise_status s = a->listen(p.self, &e))
            throw_status(s, p.window->id, "params.declared of " + param.name);
        }
  host.declaring_parameters = false;
  host.parameters().allocate(host.declaration(), at::kCPU, host.seed());
  build_chains();
}

void TestHost::declare() {
  if (!model_) throw PluginError(MORTISE_E_NOT_FOUND, "no plugin that was loaded provides `model`");
  const auto* model = static_cast<const mortise_model*>(model_->object);
  declare([&](Builder&) {
    mortise_builder b{host.declaration(), {}};
    b.provide = [&](mortise_layer& layer, const mortise_layer_spec& spec) { declare_layer(b, layer, spec); };
    if (const mortise_status s = model->declare(model_plugin_->self, &b))
      throw_status(s, model_plugin_->window->id, "declare of model");
  });
}

mortise_next* TestHost::wrapped(const std::string& name, const std::string& path, mortise_next* inner) {
  for (auto w = wraps_.rbegin(); w != wraps_.rend(); ++w) {
    if (w->point != name || !fits(w->where, path)) continue;
    mortise_next* link = host.add_link();
    link->plugin = w->window;
    link->self = &*w;
    link->wrap = Wrap::run;
    link->next = inner;
    link->point = name;
    inner = link;
  }
  return inner;
}

void TestHost::build_chains() {
  Declaration& d = host.declaration();
  for (auto& layer : d.layers) {
    Provider& p = provider_of(layer);
    mortise_next* link = host.add_link();
    link->plugin = p.window;
    link->self = &p;
    link->op = &p.seen;
    link->point = layer.slot;
    const mortise_next* chain = wrapped(layer.slot, layer.path, link);
    for (uint32_t mode = 0; mode < MORTISE_MODES; ++mode) host.set_layer_chain(layer, mode, chain);
  }
  segments_.resize(d.segments.size());
  for (size_t i = 0; i < segments_.size(); ++i) {
    mortise_next* link = host.add_link();
    link->plugin = model_ ? model_plugin_->window : &window("test.model");
    link->point = "segment";
    link->core = [this, i](mortise_call& call) {
      if (model_)
        return check(static_cast<const mortise_model*>(model_->object)
                         ->segment(model_plugin_->self, &call, static_cast<uint32_t>(i)));
      Call c(*this, call);
      segments_[i].body(c);
    };
    segments_[i].chain = d.segments[i].flags & MORTISE_BLOCK ? wrapped("block", d.segments[i].path, link) : link;
  }
  mortise_next* link = host.add_link();
  link->point = "forward";
  link->core = [this](mortise_call& call) {
    Call c(*this, call);
    result_ = (*body_)(c);
  };
  forward_ = wrapped("forward", "", link);
}

// ---- running ----

void TestHost::begin_step() {
  ++host.services.clock.attempted;
  host.parameters().begin_step();
}

void TestHost::begin_micro(int micro, bool last) {
  micro_ = micro;
  last_ = last;
  host.parameters().begin_micro(micro, last);
}

at::Tensor TestHost::forward(const std::function<at::Tensor(Call&)>& body) {
  mortise_call call = make_call(nullptr, kForward, {});
  call.mode = pass.mode;
  call.flags = pass.flags | (last_ ? MORTISE_LAST_MICRO : 0);
  call.micro = micro_;
  call.compute_dtype = pass.compute_dtype;
  call.want = pass.want;
  call.batch = pass.batch;
  body_ = &body;
  at::AutoGradMode grad((pass.flags & MORTISE_GRAD) != 0);
  SegmentFrame segment;
  Frame frame;
  frame.segment = &segment;
  invoke(forward_, call, frame);
  return std::exchange(result_, {});
}

void TestHost::backward(const at::Tensor& root, uint32_t flags, at::Tensor seed) {
  run_backward(host, {root}, {seed.defined() ? seed : at::ones_like(root)}, flags);
}

void TestHost::step(int micros, const std::function<at::Tensor(Call&)>& loss) {
  begin_step();
  for (int m = 0; m < micros; ++m) {
    begin_micro(m, m == micros - 1);
    const at::Tensor l = forward(loss);
    host.parameters().check_versions();
    backward(l);
  }
}

at::Tensor Call::arg(uint32_t i) const { return i < record.n_args ? tensor_of(record.args[i]) : at::Tensor(); }

void Call::give(uint32_t i, at::Tensor t) {
  if (i < record.n_results) record.results[i] = value_of(std::move(t));
}

at::Tensor Call::use(mortise_param* p) {
  mortise_tensor* t = nullptr;
  check(kParamsApi.use(&host.window("test.model"), p, &t));
  return take(t);
}
at::Tensor Call::use(const std::string& name) { return use(host.param(name)); }

Tensors Call::layer(mortise_layer* l, const Args& args, uint32_t n_results) {
  Results r(n_results);
  const auto values = flat(args);
  check(kCallApi.layer(&host.window("test.model"), l, values.data(), static_cast<uint32_t>(values.size()),
                       r.values.data(), n_results));
  return r.tensors();
}

Tensors Call::segment(size_t index, const Args& args, uint32_t n_results) {
  Results r(n_results);
  const auto values = flat(args);
  mortise_call call = make_call(current_frame(), kBlock, str(host.host.declaration().segments.at(index).path));
  call.args = values.data();
  call.n_args = static_cast<uint32_t>(values.size());
  call.results = r.values.data();
  call.n_results = n_results;
  SegmentFrame segment;
  segment.segment = static_cast<int>(index);
  Frame frame = *current_frame();
  frame.segment = &segment;
  invoke(host.segments_.at(index).chain, call, frame);
  return r.tensors();
}

Tensors Call::model(const Args& args, uint32_t n_results) {
  constexpr uint32_t kMost = 8;
  Tensors t = segment(0, args, kMost);
  for (size_t i = 1; i < host.segments_.size(); ++i) {
    while (!t.empty() && !t.back().defined()) t.pop_back();
    t = segment(i, Args(t.begin(), t.end()), kMost);
  }
  t.resize(n_results);
  return t;
}

void Forward::save(at::Tensor own) { saved_[(*n_)++] = {MORTISE_SAVE_OWN, 0, mortise::give(std::move(own))}; }
void Forward::save_cast(uint32_t i, at::Tensor cast) {
  saved_[(*n_)++] = {MORTISE_SAVE_CAST, i, mortise::give(std::move(cast))};
}

at::Tensor Backward::saved(uint32_t i) const { return share(record_b.saved[i]); }
at::Tensor Backward::grad(uint32_t result) const { return share(record_b.grad_out[result]); }
void Backward::give_grad(uint32_t a, at::Tensor g) { record_b.grad_in[a] = mortise::give(std::move(g)); }
void Backward::sum(const std::string& name, const at::Tensor& contribution) {
  check(kGradsApi.sum(&host.window("test.operators"), host.param(name), borrow(contribution)));
}
at::Tensor Backward::target(const std::string& name, uint32_t dtype, int32_t* add) {
  mortise_tensor* t = nullptr;
  check(kGradsApi.target(&host.window("test.operators"), host.param(name), dtype, &t, add));
  return take(t);
}

void Builder::segment(const std::string& path, uint32_t flags, Body body) {
  add_segment(builder_, path, flags);
  host_.segments_.push_back({std::move(body), nullptr});
}

mortise_layer* Builder::layer(const std::string& slot, const std::string& path, const std::vector<Attr>& attrs) {
  std::vector<mortise_attr> list;
  for (const auto& a : attrs) list.push_back({str(a.key), a.value});
  const mortise_layer_spec spec = {sizeof spec, static_cast<uint32_t>(list.size()), str(slot), str(path), list.data()};
  return add_layer(builder_, host_.points_, spec);
}

mortise_param* Builder::param(const std::string& name, std::vector<int64_t> sizes, ParamOptions options,
                              const std::string& role) {
  mortise_param_spec spec{};
  spec.struct_size = sizeof spec;
  spec.rank = static_cast<uint32_t>(sizes.size());
  spec.name = str(name);
  spec.role = str(role);
  spec.sizes = sizes.data();
  spec.init = str(options.init);
  spec.init_scale = options.scale;
  spec.tie = options.tie;
  return add_param(builder_, spec);
}

mortise_param* Builder::find(const std::string& name) { return host_.param(name); }

// ---- what came of it ----

mortise_param* TestHost::param(const std::string& name) {
  mortise_param* p = host.declaration().find(name);
  if (!p) throw PluginError(MORTISE_E_NOT_FOUND, "there is no parameter `" + name + "`");
  return p;
}

at::Tensor TestHost::value(const std::string& name) { return host.parameters().state(*param(name)).master; }

at::Tensor TestHost::grad(const std::string& name) {
  const auto& s = host.parameters().state(*param(name));
  return s.has_gradient ? s.grad.clone() : at::Tensor();
}

std::map<std::string, at::Tensor> TestHost::leaves() {
  std::map<std::string, at::Tensor> all;
  for (auto& p : host.declaration().params) {
    const at::Tensor leaf = host.parameters().state(p).master.clone().set_requires_grad(p.info.trainable != 0);
    all[p.name] = leaf;
    for (const auto& other : p.other_names) all[other] = leaf;
  }
  return all;
}

size_t TestHost::count(std::string_view beginning) const {
  return static_cast<size_t>(
      std::count_if(log.begin(), log.end(), [&](const std::string& line) { return line.starts_with(beginning); }));
}

at::Tensor random(at::IntArrayRef sizes, uint64_t seed, at::ScalarType dtype) {
  return at::randn(sizes, at::make_generator<at::CPUGeneratorImpl>(seed), at::TensorOptions().dtype(at::kDouble))
      .to(dtype);
}
at::Tensor random_ints(at::IntArrayRef sizes, int64_t below, uint64_t seed) {
  return at::randint(below, sizes, at::make_generator<at::CPUGeneratorImpl>(seed),
                     at::TensorOptions().dtype(at::kLong));
}

::testing::AssertionResult bitwise(const at::Tensor& a, const at::Tensor& b) {
  if (a.defined() != b.defined())
    return ::testing::AssertionFailure() << "only the " << (a.defined() ? "first" : "second") << " is defined";
  if (!a.defined()) return ::testing::AssertionSuccess();
  if (a.scalar_type() != b.scalar_type())
    return ::testing::AssertionFailure() << a.scalar_type() << " and " << b.scalar_type();
  if (a.sizes() != b.sizes()) return ::testing::AssertionFailure() << "sizes " << a.sizes() << " and " << b.sizes();
  const at::Tensor x = a.detach().contiguous(), y = b.detach().contiguous();
  if (x.nbytes() == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0)
    return ::testing::AssertionSuccess();
  const at::Tensor d = x.to(at::kDouble).sub(y.to(at::kDouble)).abs();
  return ::testing::AssertionFailure() << d.count_nonzero().item().toLong() << " of " << d.numel()
                                       << " elements differ, by " << d.max().item().toDouble() << " at most";
}

Value texts(const std::vector<std::string>& list) {
  std::vector<Value> values;
  for (const auto& s : list) values.push_back({s, {}});
  return {values, {}};
}

Thrown thrown(const std::function<void()>& body) {
  try {
    body();
  } catch (const PluginError& e) {
    return {e.status(), e.text()};
  } catch (const std::exception& e) {
    return {MORTISE_E_INTERNAL, e.what()};
  }
  return {};
}

}  // namespace mortise::testing
