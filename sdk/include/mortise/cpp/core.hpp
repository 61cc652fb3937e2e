// C++20 over the C tables: ownership, exceptions that become statuses at the edge, values.
//
// One library holds one instance of one plugin, so the host and its tables are kept once a library (hidden visibility
// makes `api` private to it).
#pragma once
#include <array>
#include <atomic>
#include <cstring>
#include <exception>
#include <initializer_list>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mortise/cpp/strings.hpp"
#include "mortise/mortise.h"

namespace mortise {

// The tables, NULL where this host has none. Set by MORTISE_PLUGIN before the plugin's constructor runs.
struct Api {
  mortise_host* host = nullptr;
  const mortise_call_api* call = nullptr;
  const mortise_tensor_api* tensor = nullptr;
  const mortise_ops_api* ops = nullptr;
  const mortise_autograd_api* autograd = nullptr;
  const mortise_params_api* params = nullptr;
  const mortise_grads_api* grads = nullptr;
  const mortise_build_api* build = nullptr;
  const mortise_loop_api* loop = nullptr;
  const mortise_batch_api* batch = nullptr;
  const mortise_config_api* config = nullptr;
  const mortise_log_api* log = nullptr;
  const mortise_parallel_api* parallel = nullptr;
  const mortise_random_api* random = nullptr;
  const mortise_tokenizer_api* tokenizer = nullptr;
  const mortise_model_api* model = nullptr;
  const mortise_state_api* state = nullptr;
  const mortise_device_api* device = nullptr;
  const mortise_comm_api* comm = nullptr;
  const mortise_replicas_api* replicas = nullptr;
};
inline Api api;

inline void open_api(mortise_host* host) {
  const auto get = [host]<class T>(const T*& table, const char* id) {
    table = static_cast<const T*>(mortise_get(host, id));
  };
  api.host = host;
  get(api.call, "mortise.call/0");
  get(api.tensor, "mortise.tensor/0");
  get(api.ops, "mortise.ops/0");
  get(api.autograd, "mortise.autograd/0");
  get(api.params, "mortise.params/0");
  get(api.grads, "mortise.grads/0");
  get(api.build, "mortise.build/0");
  get(api.loop, "mortise.loop/0");
  get(api.batch, "mortise.batch/0");
  get(api.config, "mortise.config/0");
  get(api.log, "mortise.log/0");
  get(api.parallel, "mortise.parallel/0");
  get(api.random, "mortise.random/0");
  get(api.tokenizer, "mortise.tokenizer/0");
  get(api.model, "mortise.model/0");
  get(api.state, "mortise.state/0");
  get(api.device, "mortise.device/0");
  get(api.comm, "mortise.comm/0");
  get(api.replicas, "mortise.replicas/0");
}

// ---- errors ----

// A failure that the host has already described; only the status travels.
struct HostError {
  mortise_status status;
};
// A failure of the plugin's own, with a status of its choice.
class Error : public std::runtime_error {
 public:
  Error(mortise_status status, const std::string& what) : std::runtime_error(what), status_(status) {}
  // With what the user can write or do instead.
  Error(mortise_status status, const std::string& what, const std::string& fix)
      : std::runtime_error(what + "\n  fix: " + fix), status_(status) {}
  mortise_status status() const { return status_; }

 private:
  mortise_status status_;
};

[[gnu::noinline, noreturn]] inline void raise(mortise_status s) { throw HostError{s}; }
inline void check(mortise_status s) {
  if (s != MORTISE_OK) [[unlikely]]
    raise(s);
}

// Runs `body` at the edge: no exception leaves. `report` gets the status and the text of what the host has not
// described already, and returns the status.
template <class Body, class Report>
mortise_status guard(Body&& body, Report&& report) noexcept {
  try {
    body();
    return MORTISE_OK;
  } catch (const HostError& e) {
    return e.status;
  } catch (const Error& e) {
    return report(e.status(), str(e.what()));
  } catch (const std::bad_alloc&) {
    return report(MORTISE_E_MEMORY, MORTISE_STR("out of memory"));
  } catch (const std::exception& e) {
    return report(MORTISE_E_PLUGIN, str(e.what()));
  } catch (...) {
    return report(MORTISE_E_PLUGIN, MORTISE_STR("an exception of an unknown type"));
  }
}
template <class Body>
mortise_status guard(Body&& body) noexcept {
  return guard(body, [](mortise_status status, mortise_str text) { return api.host->fail(api.host, status, text); });
}

// The table, or an Error if this host has none. A constructor asks for what its plugin cannot do without.
template <class T>
const T& need(const T* table, const char* id) {
  if (!table) throw Error(MORTISE_E_NOT_FOUND, std::string("this host has no ") + id);
  return *table;
}

// ---- tensors ----

// An owned handle; may be empty.
class Tensor {
 public:
  Tensor() = default;
  static Tensor own(mortise_tensor* t) {
    Tensor r;
    r.handle_ = t;
    return r;
  }
  static Tensor share(mortise_tensor* t) {
    if (t) api.tensor->retain(api.host, t);
    return own(t);
  }
  Tensor(const Tensor& o) : handle_(o.handle_) {
    if (handle_) api.tensor->retain(api.host, handle_);
  }
  Tensor(Tensor&& o) noexcept : handle_(std::exchange(o.handle_, nullptr)) {}
  Tensor& operator=(Tensor o) noexcept {
    std::swap(handle_, o.handle_);
    return *this;
  }
  ~Tensor() {
    if (handle_) api.tensor->release(api.host, handle_);
  }
  mortise_tensor* get() const { return handle_; }
  mortise_tensor* release() { return std::exchange(handle_, nullptr); }
  mortise_tensor** put() { return &handle_; }
  explicit operator bool() const { return handle_ != nullptr; }

 private:
  mortise_tensor* handle_ = nullptr;
};

// A borrowed handle: what functions take.
struct Ref {
  mortise_tensor* handle;
  Ref(mortise_tensor* t) : handle(t) {}
  Ref(const Tensor& t) : handle(t.get()) {}
  Ref(const mortise_value& v) : handle(v.tag == MORTISE_TENSOR ? v.v.t : nullptr) {}
  operator mortise_tensor*() const { return handle; }
};

struct Info : mortise_tensor_info {
  explicit Info(Ref t) : mortise_tensor_info{} {
    struct_size = sizeof(mortise_tensor_info);
    check(api.tensor->info(api.host, t, this));
  }
  int64_t size(int i) const { return sizes[i < 0 ? static_cast<int>(rank) + i : i]; }
  std::span<const int64_t> shape() const { return {sizes, rank}; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

inline Tensor empty(uint32_t dtype, std::span<const int64_t> sizes, bool on_cpu = false) {
  Tensor t;
  check(api.tensor->empty(api.host, dtype, sizes.data(), static_cast<uint32_t>(sizes.size()), on_cpu, t.put()));
  return t;
}
inline Tensor empty(uint32_t dtype, std::initializer_list<int64_t> sizes, bool on_cpu = false) {
  return empty(dtype, std::span<const int64_t>(sizes.begin(), sizes.size()), on_cpu);
}

// ---- values ----

inline mortise_value none() { return {MORTISE_NONE, 0, {.i = 0}}; }
// A pointer to anything but what stands below would become a bool.
template <class T>
mortise_value value(T*) = delete;
inline mortise_value value(mortise_tensor* t) { return t ? mortise_value{MORTISE_TENSOR, 0, {.t = t}} : none(); }
inline mortise_value value(Ref t) { return value(t.handle); }
inline mortise_value value(const Tensor& t) { return value(t.get()); }
inline mortise_value value(int64_t i) { return {MORTISE_INT, 0, {.i = i}}; }
inline mortise_value value(int i) { return {MORTISE_INT, 0, {.i = i}}; }
inline mortise_value value(double f) { return {MORTISE_FLOAT, 0, {.f = f}}; }
inline mortise_value value(bool b) { return {MORTISE_LOGICAL, 0, {.i = b}}; }
inline mortise_value value(std::string_view s) { return {MORTISE_TEXT, 0, {.s = str(s)}}; }
inline mortise_value value(const char* s) { return value(std::string_view(s)); }
inline mortise_value value(mortise_param* p) { return {MORTISE_PARAM, 0, {.p = p}}; }
inline mortise_value value(mortise_batch* b) { return {MORTISE_BATCH, 0, {.b = b}}; }
inline mortise_value value(const mortise_value& v) { return v; }
inline mortise_value dtype_value(uint32_t dtype) { return {MORTISE_DTYPE, 0, {.i = dtype}}; }
// Borrows: only inside the full expression.
inline mortise_value ints(std::span<const int64_t> l) {
  return {MORTISE_INTS, static_cast<uint32_t>(l.size()), {.is = l.data()}};
}
inline mortise_value ints(std::initializer_list<int64_t> l) {
  return {MORTISE_INTS, static_cast<uint32_t>(l.size()), {.is = l.begin()}};
}
inline mortise_value tensors(std::span<mortise_tensor* const> l) {
  return {MORTISE_TENSORS, static_cast<uint32_t>(l.size()), {.ts = l.data()}};
}

// Takes the tensor out of a result, leaving NONE.
inline Tensor take(mortise_value& v) {
  Tensor t = Tensor::own(v.tag == MORTISE_TENSOR ? v.v.t : nullptr);
  v = none();
  return t;
}
// Puts a result; ownership goes to the caller.
inline void give(mortise_call* call, uint32_t index, Tensor t) {
  if (index >= call->n_results) return;
  call->results[index] = value(t);
  t.release();
}

// ---- attributes, parameters, batches, configuration ----

inline const mortise_value* find_attr(const mortise_attr* attrs, uint32_t n, std::string_view key) {
  for (uint32_t i = 0; i < n; ++i)
    if (view(attrs[i].key) == key) return &attrs[i].value;
  return nullptr;
}
// The attributes of a layer by type, with defaults. One of another type than it is read as is a mistake of the layer's
// caller.
class Attrs {
 public:
  explicit Attrs(const mortise_layer_spec* s) : attrs_(s->attrs), n_(s->n_attrs) {}
  explicit Attrs(const mortise_place* p) : attrs_(p->attrs), n_(p->n_attrs) {}
  int64_t integer(std::string_view key) const { return need(key, {MORTISE_INT}, "an integer").v.i; }
  int64_t integer(std::string_view key, int64_t otherwise) const { return has(key) ? integer(key) : otherwise; }
  double number(std::string_view key, double otherwise) const {
    if (!has(key)) return otherwise;
    const mortise_value& v = need(key, {MORTISE_FLOAT, MORTISE_INT}, "a number");
    return v.tag == MORTISE_FLOAT ? v.v.f : static_cast<double>(v.v.i);
  }
  bool flag(std::string_view key, bool otherwise) const {
    return has(key) ? need(key, {MORTISE_LOGICAL, MORTISE_INT}, "a flag").v.i != 0 : otherwise;
  }
  std::string_view text(std::string_view key, std::string_view otherwise) const {
    return has(key) ? view(need(key, {MORTISE_TEXT}, "a text").v.s) : otherwise;
  }
  mortise_param* param(std::string_view key) const {
    return has(key) ? need(key, {MORTISE_PARAM}, "a parameter").v.p : nullptr;
  }
  bool has(std::string_view key) const { return find_attr(attrs_, n_, key) != nullptr; }
  std::span<const mortise_attr> all() const { return {attrs_, n_}; }

 private:
  const mortise_value& need(std::string_view key, std::initializer_list<uint32_t> tags, const char* type) const {
    const mortise_value* v = find_attr(attrs_, n_, key);
    if (!v) throw Error(MORTISE_E_ARGUMENT, "the layer lacks the attribute " + std::string(key));
    for (const uint32_t tag : tags)
      if (v->tag == tag) return *v;
    throw Error(MORTISE_E_ARGUMENT, "the layer's attribute " + std::string(key) + " is not " + type);
  }
  const mortise_attr* attrs_;
  uint32_t n_;
};

inline Tensor use(mortise_param* p) {
  Tensor t;
  check(api.params->use(api.host, p, t.put()));
  return t;
}
inline const mortise_param_info& info_of(const mortise_param* p) {
  const mortise_param_info* i = nullptr;
  check(api.params->info(api.host, p, &i));
  return *i;
}
// Of a packed parameter the sizes of its parts along info.part_dim; of others none, and none of an older host.
inline std::span<const int64_t> parts_of(const mortise_param_info& info) {
  if (!MORTISE_HAS_ROOM(&info, parts)) return {};
  return {info.parts, info.n_parts};
}
inline Tensor field(const mortise_batch* batch, std::string_view name) {
  mortise_tensor* t = nullptr;
  return api.batch->get(api.host, batch, str(name), &t) == MORTISE_OK ? Tensor::share(t) : Tensor();
}

// An owned batch; may be empty.
class Batch {
 public:
  Batch() = default;
  static Batch own(mortise_batch* b) {
    Batch r;
    r.handle_ = b;
    return r;
  }
  static Batch share(mortise_batch* b) {
    if (b) api.batch->retain(api.host, b);
    return own(b);
  }
  // Without fields; the counts are those of `like`.
  static Batch create(const mortise_batch* like) {
    Batch r;
    check(api.batch->create(api.host, like, &r.handle_));
    return r;
  }
  Batch(Batch&& o) noexcept : handle_(std::exchange(o.handle_, nullptr)) {}
  Batch& operator=(Batch o) noexcept {
    std::swap(handle_, o.handle_);
    return *this;
  }
  ~Batch() {
    if (handle_) api.batch->release(api.host, handle_);
  }
  mortise_batch* get() const { return handle_; }
  mortise_batch* release() { return std::exchange(handle_, nullptr); }
  explicit operator bool() const { return handle_ != nullptr; }

 private:
  mortise_batch* handle_ = nullptr;
};
// body(name, tensor) for each field; both are borrowed.
template <class Body>
void each_field(const mortise_batch* batch, Body&& body) {
  mortise_str name;
  for (uint32_t i = 0; api.batch->name(api.host, batch, i, &name) == MORTISE_OK; ++i) {
    mortise_tensor* t = nullptr;
    check(api.batch->get(api.host, batch, name, &t));
    body(name, t);
  }
}

namespace config {
inline mortise_value get(std::string_view key) {
  mortise_value v = none();
  check(need(api.config, "mortise.config/0").get(api.host, str(key), &v));
  return v;
}
// A key that its own plugin.toml describes with another type than the plugin reads is a mistake of the plugin. Of a key
// that nobody set and that has no default, the value is 0, or an empty text.
inline mortise_value get_as(std::string_view key, uint32_t tag, const char* type) {
  const mortise_value v = get(key);
  if (v.tag != tag && v.tag != MORTISE_NONE)
    throw Error(MORTISE_E_PLUGIN, "`" + std::string(key) + "` is read as " + type + ", and plugin.toml says otherwise");
  return v;
}
inline double number(std::string_view key) { return get_as(key, MORTISE_FLOAT, "a float").v.f; }
inline int64_t integer(std::string_view key) { return get_as(key, MORTISE_INT, "an int").v.i; }
inline bool flag(std::string_view key) { return get_as(key, MORTISE_LOGICAL, "a bool").v.i != 0; }
inline std::string_view text(std::string_view key) {
  const mortise_value v = get_as(key, MORTISE_TEXT, "a string");
  return v.tag == MORTISE_TEXT ? view(v.v.s) : std::string_view();
}
inline std::span<const double> numbers(std::string_view key) {
  const mortise_value v = get_as(key, MORTISE_FLOATS, "a list<float>");
  return v.tag == MORTISE_FLOATS ? std::span<const double>(v.v.fs, v.count) : std::span<const double>();
}
inline std::vector<std::string_view> texts(std::string_view key) {
  const mortise_value v = get(key);
  std::vector<std::string_view> r;
  if (v.tag == MORTISE_TEXT) r.push_back(view(v.v.s));
  if (v.tag == MORTISE_TEXTS)
    for (uint32_t i = 0; i < v.count; ++i) r.push_back(view(v.v.ss[i]));
  return r;
}
// Refuses a key's value: the run's error names its position, this reason and this fix.
[[noreturn]] inline void refuse(std::string_view key, std::string_view why, std::string_view fix) {
  raise(need(api.config, "mortise.config/0").blame(api.host, str(key), str(why), str(fix)));
}
// The same under a code of its own, with what stands beside the position. An older host says it without these two.
struct Refusal {
  std::string_view code, key, why, beside, fix;
};
[[noreturn]] inline void refuse(const Refusal& r) {
  if (!MORTISE_HAS(api.config, refuse)) refuse(r.key, r.why, r.fix);
  raise(api.config->refuse(api.host, str(r.code), str(r.key), str(r.why), str(r.beside), str(r.fix)));
}
}  // namespace config

// Where the run is, and the step that is under way; of mortise.loop/0.
inline mortise_clock clock_now() {
  mortise_clock clock = {};
  clock.struct_size = sizeof clock;
  check(api.loop->clock(api.host, &clock));
  return clock;
}
// Which rank this is, of how many; a host without ranks is one.
struct Place {
  int32_t rank = 0, size = 1;
};
inline Place place_now() {
  Place place;
  if (api.comm) check(api.comm->place(api.host, &place.rank, &place.size));
  return place;
}
// The same among those that samples are dealt out to.
inline Place data_place_now() {
  Place place;
  if (api.comm) check(api.comm->data_place(api.host, &place.rank, &place.size));
  return place;
}
inline const mortise_ledger& ledger_now() {
  const mortise_ledger* ledger = nullptr;
  check(api.loop->ledger(api.host, &ledger));
  return *ledger;
}
// Where the number of the step under way lies on the device: the `step` of random bits, for a kernel. One that took it
// as an argument would draw the same bits again whenever a recording of it is played.
inline const int64_t* step_on_device() {
  const mortise_ledger& ledger = ledger_now();
  if (!MORTISE_HAS_ROOM(&ledger, attempted) || !ledger.attempted)
    throw Error(MORTISE_E_NOT_FOUND, "this host keeps no number of the step on the device");
  return Info(ledger.attempted).as<const int64_t>();
}

// The queue of this thread's operators, as the device has it: a cudaStream_t of CUDA. Of mortise.device/0.
inline void* stream_now() {
  void* stream = nullptr;
  check(need(api.device, "mortise.device/0").stream(api.host, &stream));
  return stream;
}

// A queue of one's own on the device, of mortise.device/0. NULL where there is none: on the host's processor, and of a
// host that knows no queues yet.
inline mortise_stream* new_stream() {
  mortise_stream* stream = nullptr;
  if (api.device && MORTISE_HAS_ROOM(api.device, record_stream)) check(api.device->new_stream(api.host, &stream));
  return stream;
}
// What `body` gives operators is put on `stream`.
template <class Body>
void on_stream(mortise_stream* stream, Body&& body) {
  const auto call = [](void* user) noexcept { return guard(*static_cast<std::remove_reference_t<Body>*>(user)); };
  check(need(api.device, "mortise.device/0").with_stream(api.host, stream, call, std::addressof(body)));
}
// A place in a queue of the device; may be empty.
class Mark {
 public:
  Mark() = default;
  static Mark here() {
    Mark made;
    check(need(api.device, "mortise.device/0").mark(api.host, &made.handle_));
    return made;
  }
  Mark(Mark&& o) noexcept : handle_(std::exchange(o.handle_, nullptr)) {}
  Mark& operator=(Mark o) noexcept {
    std::swap(handle_, o.handle_);
    return *this;
  }
  ~Mark() {
    if (handle_) api.device->drop_mark(api.host, handle_);
  }
  // What this thread puts on its queue from now on runs after all that lies before this place.
  void wait() const {
    if (handle_) check(api.device->wait_for(api.host, handle_));
  }

 private:
  mortise_mark* handle_ = nullptr;
};
// For a tensor that was made on another queue than this thread's.
inline void record_stream(mortise_tensor* t) { check(need(api.device, "mortise.device/0").record_stream(api.host, t)); }

// A host without a log loses the line.
inline void log_line(uint32_t level, std::string_view line) {
  if (api.log) api.log->write(api.host, level, str(line));
}

// Splits [0, n) over the host's threads: body(begin, end). The first exception of a piece is thrown here when all are
// done; pieces that begin after it are left out.
template <class Body>
void parallel_for(int64_t n, int64_t grain, Body&& body) {
  struct Shared {
    std::remove_reference_t<Body>& body;
    std::atomic<bool> failed = false;
    std::exception_ptr first = nullptr;
  } shared{body};
  const auto piece = [](void* user, int64_t begin, int64_t end) noexcept {
    Shared& s = *static_cast<Shared*>(user);
    if (s.failed.load(std::memory_order_relaxed)) return;
    try {
      s.body(begin, end);
    } catch (...) {
      if (!s.failed.exchange(true)) s.first = std::current_exception();
    }
  };
  check(api.parallel->run(api.host, n, grain, piece, &shared));
  if (shared.first) std::rethrow_exception(shared.first);
}

}  // namespace mortise
