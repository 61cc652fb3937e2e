// Asks of its host what `use` says (uses.def), at its point, once, and keeps the answer where a test finds it.
#include <limits>

#include "mortise/cpp/plugin.hpp"

namespace {
using namespace mortise;

const mortise_ledger& ledger() {
  const mortise_ledger* l = nullptr;
  check(api.loop->ledger(api.host, &l));
  return *l;
}
mortise_tensor* one() { return ledger().verdict; }
Tensor two() { return empty(MORTISE_F64, {2}); }
mortise_value dtype(int64_t d) { return {MORTISE_DTYPE, 0, {.i = d}}; }

mortise_status term(mortise_tensor* sum) {
  return api.loop->term(api.host, MORTISE_STR("loss"), sum, MORTISE_STR("tokens"), 1);
}
mortise_status attach(mortise_tensor* carrier) {
  Tensor out;
  return api.loop->attach_term(api.host, MORTISE_STR("aux"), carrier, one(), MORTISE_STR("one"), 1, out.put());
}
mortise_status scale(double factor) {
  const Tensor t = empty(MORTISE_F64, {});
  Info(t.get()).as<double>()[0] = factor;
  return api.loop->set_scale(api.host, t.get());
}
mortise_status report(mortise_tensor* number) { return api.loop->report(api.host, MORTISE_STR("extra"), number, {}); }
mortise_status clock(size_t size) {
  mortise_clock c{};
  c.struct_size = static_cast<uint32_t>(size);
  c.length = -7;
  const mortise_status s = api.loop->clock(api.host, &c);
  return size < sizeof c && c.length != -7 ? MORTISE_E_INTERNAL : s;
}
mortise_status norm() {
  mortise_tensor* out = nullptr;
  const mortise_status s = api.grads->norm(api.host, &out);
  if (s == MORTISE_OK) Tensor::own(out);
  return s;
}
mortise_status column(const char* name, mortise_value v) { return api.loop->column(api.host, mortise_text(name), v); }
mortise_status find(const char* name) {
  mortise_param* p = nullptr;
  return api.params->find(api.host, mortise_text(name), &p);
}
mortise_status info(mortise_param* p) {
  const mortise_param_info* out = nullptr;
  return api.params->info(api.host, p, &out);
}
mortise_status no_parts(const char* name) {
  mortise_param* p = nullptr;
  check(api.params->find(api.host, mortise_text(name), &p));
  const mortise_param_info& info = info_of(p);
  return MORTISE_HAS_ROOM(&info, parts) && parts_of(info).empty() ? MORTISE_OK : MORTISE_E_INTERNAL;
}
mortise_status set(const char* name, const char* field, mortise_value v) {
  mortise_param* p = nullptr;
  check(api.params->find(api.host, mortise_text(name), &p));
  return api.params->set(api.host, p, mortise_text(field), v);
}
mortise_status keep(const char* name, const char* relation, uint32_t dtype) {
  mortise_param* p = nullptr;
  check(api.params->find(api.host, MORTISE_STR("w"), &p));
  const mortise_state_spec spec = {mortise_text(name), mortise_text(relation), dtype, 0, 0};
  return api.params->keep(api.host, p, &spec);
}
mortise_status slices() {
  const mortise_slice* all = nullptr;
  uint32_t n = 0;
  const mortise_status s = api.params->slices(api.host, &all, &n);
  return s == MORTISE_OK && n == 0 ? mortise_status{MORTISE_E_INTERNAL} : s;
}
mortise_status publish(const char* name) {
  mortise_param* p = nullptr;
  check(api.params->find(api.host, mortise_text(name), &p));
  return api.params->publish(api.host, p);
}
mortise_param* param(const char* name) {
  mortise_param* p = nullptr;
  check(api.params->find(api.host, mortise_text(name), &p));
  return p;
}
mortise_status hold(const char* name) {
  Tensor flat;
  return api.replicas->hold(api.host, param(name), flat.put());
}
mortise_status drop(const char* name) { return api.replicas->drop(api.host, param(name)); }
mortise_status take_gradient(const char* name) {
  Tensor flat;
  return api.replicas->take_gradient(api.host, param(name), flat.put());
}
mortise_status add_gradient(const char* name) { return api.replicas->add_gradient(api.host, param(name), one()); }
mortise_status target(const char* name) {
  mortise_param* p = nullptr;
  check(api.params->find(api.host, mortise_text(name), &p));
  Tensor out;
  int32_t add = 0;
  return api.grads->target(api.host, p, MORTISE_F32, out.put(), &add);
}
mortise_status use_of(const char* name) {
  mortise_param* p = nullptr;
  check(api.params->find(api.host, mortise_text(name), &p));
  Tensor out;
  return api.params->use(api.host, p, out.put());
}
mortise_status stream(const char* name) {
  mortise_philox place{};
  return api.random->stream(api.host, mortise_text(name), &place);
}
mortise_status pattern(const char* name) {
  mortise_str pattern{};
  return api.config->pattern(api.host, mortise_text(name), 0, &pattern);
}
mortise_status key(const char* name) {
  mortise_value v;
  return api.config->get(api.host, mortise_text(name), &v);
}
mortise_status empty_of(uint32_t dtype, int64_t size) {
  mortise_tensor* out = nullptr;
  return api.tensor->empty(api.host, dtype, &size, 1, 1, &out);
}
mortise_status read(mortise_tensor* t, size_t bytes) {
  double to = 0;
  return api.tensor->read(api.host, t, &to, bytes);
}
mortise_status describe(mortise_tensor* t, size_t size) {
  mortise_tensor_info out{};
  out.struct_size = static_cast<uint32_t>(size);
  return api.tensor->info(api.host, t, &out);
}
mortise_status field_of(mortise_batch* b) {
  mortise_tensor* t = nullptr;
  return api.batch->get(api.host, b, MORTISE_STR("x"), &t);
}
mortise_status count(const mortise_batch* b, const char* unit, int64_t* n) {
  return api.batch->count(api.host, b, mortise_text(unit), n);
}
mortise_status set_count(int64_t n) {
  const Batch batch = Batch::create(nullptr);
  if (const mortise_status s = api.batch->set_count(api.host, batch.get(), MORTISE_STR("words"), n)) return s;
  int64_t counted = 0;
  const mortise_status s = count(batch.get(), "words", &counted);
  return s == MORTISE_OK && counted != n ? mortise_status{MORTISE_E_INTERNAL} : s;
}
mortise_status fail(void*) noexcept { return api.host->fail(api.host, MORTISE_E_DATA, MORTISE_STR("on a queue")); }
mortise_status wait_for_a_mark() {
  mortise_mark* mark = nullptr;
  if (const mortise_status s = api.device->mark(api.host, &mark)) return s;
  const mortise_status s = api.device->wait_for(api.host, mark);
  api.device->drop_mark(api.host, mark);
  return s;
}
mortise_status forward(uint32_t mode) {
  const Batch batch = Batch::create(nullptr);
  return api.model->forward(api.host, batch.get(), mode, 0, nullptr, 0);
}

struct Use {
  std::string_view name, point;
  mortise_status (*ask)();
};
constexpr Use kUses[] = {
#define USE(name, point, answer, unsaid, ...) {name, point, [] { return mortise_status{__VA_ARGS__}; }},
#include "uses.def"
#undef USE
};

class Uses {
 public:
  void step_begin(const mortise_event*) { at("step.begin"); }
  void step_window(const mortise_event*) { at("step.window"); }
  void step_verdict(const mortise_event*) { at("step.verdict"); }
  void grad_transform(const mortise_event*) { at("grad.transform"); }
  void step_commit(const mortise_event*) { at("step.commit"); }
  void step_end(const mortise_event*) { at("step.end"); }
  void run_begin(const mortise_event*) { at("run.begin"); }
  void params_declared(const mortise_event*) { at("params.declared"); }
  void record(const mortise_event* e) {
    if (e->record && view(e->record->kind) == "step") at("record");
  }

 private:
  void at(std::string_view point) {
    for (const Use& u : kUses)
      if (answer_ < 0 && u.name == config::text("use") && u.point == point) answer_ = u.ask();
  }
  int64_t answer_ = -1;  // the first member, which a test reads through `self`
};
}  // namespace

MORTISE_PLUGIN(Uses, listen<&Uses::step_begin>("step.begin"), listen<&Uses::step_window>("step.window"),
               listen<&Uses::step_verdict>("step.verdict"), listen<&Uses::grad_transform>("grad.transform"),
               listen<&Uses::step_end>("step.end"), listen<&Uses::params_declared>("params.declared"),
               listen<&Uses::run_begin>("run.begin"), listen<&Uses::step_commit>("step.commit"),
               listen<&Uses::record>("record"))
