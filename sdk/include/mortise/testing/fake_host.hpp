// A host for tests: loads a plugin's library and answers it from plain memory, with no LibTorch and no run.
//
//   using namespace mortise::testing;
//   TEST(Cosine, EndsAtItsFinalShare) {
//     FakeHost host;
//     host.set("final", 0.1);  // the plugin's configuration: every key that it reads, defaults too
//     Plugin plugin(host, MORTISE_PLUGIN_FILE);  // dlopen, create; throws PluginError if the plugin refuses
//     double factor = 0;
//     plugin.object<mortise_schedule>("schedule").factor(plugin.self(), 1.0, &factor);
//     EXPECT_DOUBLE_EQ(factor, 0.1);
//   }
//
// What it answers            and what a test sees or gives
//   mortise.tensor/0         contiguous CPU memory, 0xFF at first (NaN, -1); `tensor`, `values`, `live_tensors`
//   mortise.config/0         `set`, `unset`; a refusal is kept in `blamed`
//   mortise.log/0            lines in `log`
//   mortise.loop/0           `clock`, `ledger()`; `window`, `votes`, `factors`, `terms`, `requests`. As strict as the
//                            host: voting outside step.verdict fails, and so does a vote that plugin.toml does not say
//   mortise.params/0         parameters made up by `add_param`, `name_dims` and `pack`, with masters of zeros; `slices`
//                            has each with what the plugin keeps and the gradient that `set_gradient` gave;
//                            `published`; `use` gives the master
//   mortise.grads/0          `norm`; `target` and `sum` into what `gradient` gives back
//   mortise.batch/0          `samples` reads what a data plugin puts; `live_batches`
//   mortise.ops/0            operators that the test defines by `op`, and aten::copy_ between numbers; `_foreach_*` for
//                            optimizers of the simple form in mortise/testing/fake_lists.hpp
//   mortise.parallel/0       runs here, in pieces, the last one first: whoever counts on an order is found out
//   mortise.random/0         key from `seed`, site = draw, or a hash of the stream's name
//   mortise.device/0         `stream`, `memory`; `trimmed` counts, and gives `freed`; `fast_products`. Where it
//                            `has_queues` each has a number, 0 the loop's: `marks` that are alive by their queues,
//                            `waited` (who waited for whom), `recorded` (each tensor, and who uses it)
//   mortise.comm/0           rank `rank` of `ranks`; `collectives` that were started, and which were waited for;
//                            `others` makes of numbers what the other ranks would; `axes`, and `places` along them
//   mortise.replicas/0       `placed`, `has_gradient`, `masters`; of shards `rooms`, `held`, `taken`, `added`; `groups`
//   mortise.tokenizer/0      none until `set_tokenizer`
//   mortise.model/0          none until `model` is set
// `offer` puts a table of the test's own in place of any of these, `withhold` takes one away. Members that are not
// there are NULL.
//
// The C++ wrapper works in the test too (mortise::Tensor, Info, empty …): its tables are those of the newest FakeHost.
// One instance of a plugin at a time, as in a run. What a plugin forgets to release, or releases twice, ends the test
// when the host goes.
#pragma once
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <set>

#include "mortise/cpp/comm.hpp"
#include "mortise/dtype.h"

namespace mortise::testing {

// The plugin failed to load, or refused; the text is what it said.
struct PluginError : std::runtime_error {
  PluginError(mortise_status s, const std::string& what) : std::runtime_error(what), status(s) {}
  mortise_status status;
};

inline bool is_utf8(std::string_view text) {
  while (const size_t length = utf8_length(text)) text.remove_prefix(length);
  return text.empty();
}
inline size_t dtype_size(uint32_t dtype) { return mortise_dtype_of(dtype)->bytes; }
template <class T>
constexpr uint32_t dtype_of() {
  if constexpr (std::is_same_v<T, float>) return MORTISE_F32;
  if constexpr (std::is_same_v<T, double>) return MORTISE_F64;
  if constexpr (std::is_same_v<T, int64_t>) return MORTISE_I64;
  if constexpr (std::is_same_v<T, int32_t>) return MORTISE_I32;
  if constexpr (std::is_same_v<T, uint16_t>) return MORTISE_BF16;  // its bits
  if constexpr (std::is_same_v<T, uint8_t>) return MORTISE_U8;
  if constexpr (std::is_same_v<T, bool>) return MORTISE_BOOL;
  return MORTISE_NO_DTYPE;
}

// A tokenizer that a test gives to the plugin.
struct FakeTokenizer {
  int64_t size = 256;
  std::function<std::vector<int64_t>(std::string_view)> encode = [](std::string_view text) {
    std::vector<int64_t> ids;
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  };
  std::function<std::string(std::span<const int64_t>)> decode = [](std::span<const int64_t> ids) {
    std::string text;
    for (const int64_t id : ids) text.push_back(static_cast<char>(id));
    return text;
  };
  std::map<std::string, int64_t, std::less<>> special = {};  // of "bos", "eos", …; of any other role it has none
};

// A record for `Plugin::notify`: FakeRecord("step").add("step", 12).add("loss", 3.4).add("throughput_unit", "tok")
class FakeRecord {
 public:
  explicit FakeRecord(std::string kind) : kind_(std::move(kind)) {}
  FakeRecord& add(const std::string& name, const mortise_value& v) {
    columns_.push_back({name, v.tag == MORTISE_TEXT ? std::string(view(v.v.s)) : std::string(), v});
    return *this;
  }
  template <class T>
  FakeRecord& add(const std::string& name, const T& v) {
    return add(name, mortise::value(v));
  }
  bool has(std::string_view name) const { return std::ranges::find(columns_, name, &Column::name) != columns_.end(); }
  // Valid until the record is changed, copied to or asked again.
  const mortise_record* get() {
    flat_.clear();
    for (Column& c : columns_) {
      if (c.value.tag == MORTISE_TEXT) c.value.v.s = str(c.text);
      flat_.push_back({str(c.name), {}, c.value});
    }
    record_ = {sizeof(mortise_record), static_cast<uint32_t>(flat_.size()), str(kind_), flat_.data()};
    return &record_;
  }

 private:
  struct Column {
    std::string name, text;
    mortise_value value;
  };
  std::string kind_;
  std::vector<Column> columns_;
  std::vector<mortise_column> flat_;
  mortise_record record_{};
};

class FakeHost : public mortise_host {
 public:
  FakeHost() : mortise_host{} {
    struct_size = sizeof(mortise_host);
    abi_major = MORTISE_ABI_MAJOR;
    abi_minor = MORTISE_ABI_MINOR;
    get_interface = [](mortise_host* h, mortise_str id) noexcept { return of(h).find_interface(view(id)); };
    mortise_host::fail = [](mortise_host* h, mortise_status s, mortise_str text) noexcept {
      if (of(h).failure.empty()) of(h).failure = view(text);
      return of(h).note_failure(s, std::string(view(text)));
    };
    clock = {sizeof(mortise_clock), 1, 1, 8, 0, 0, 0, 0, 0, 0, 0};
    op("aten::copy_", [this](std::span<const mortise_value> args) {
      copy(args[0].v.t, args[1].v.t);
      return Tensor::share(args[0].v.t);
    });
    open_api(this);
  }
  FakeHost(const FakeHost&) = delete;
  FakeHost& operator=(const FakeHost&) = delete;
  ~FakeHost() {
    if (std::uncaught_exceptions() == 0) complain();
    ledger_tensors_.clear();
    for (FakeBatch* b : batches_) delete b;
    for (FakeTensor* t : tensors_) delete t;
    if (api.host == this) api = {};
  }

  // ---- configuration ----

  template <class T>
  FakeHost& set(const std::string& key, const T& v) {
    config_[key] = std::make_unique<Setting>();
    config_[key]->set(v);
    return *this;
  }
  FakeHost& unset(const std::string& key) { return set(key, none()); }  // the schema has it, nobody gave it
  // By key, the pattern that each path was found by.
  std::map<std::string, std::vector<std::string>, std::less<>> patterns;
  struct Blame {
    std::string key, why, fix, code = "refused_value", beside = {};
  };
  std::optional<Blame> blamed;

  // ---- interfaces ----

  void withhold(const std::string& id) { tables_[id] = nullptr; }
  std::map<std::string, const mortise_blob*> blobs;  // what the plugin keeps (mortise.state), by name
  void offer(const std::string& id, const void* table) { tables_[id] = table; }
  void set_tokenizer(FakeTokenizer t) { tokenizer_ = std::move(t); }
  std::function<mortise_status(mortise_batch*, uint32_t mode, uint32_t want, mortise_value* results, uint32_t n)> model;
  // One tensor in the place of a LibTorch operator:
  //   host.op("aten::narrow", [&](std::span<const mortise_value> args) { return Tensor(…); });
  void op(const std::string& schema, std::function<Tensor(std::span<const mortise_value>)> body) {
    op_list(schema, [body = std::move(body)](std::span<const mortise_value> args) {
      std::vector<Tensor> one;
      one.push_back(body(args));
      return one;
    });
  }
  // The same for an operator with any number of results: a list has one an element.
  void op_list(const std::string& schema, std::function<std::vector<Tensor>(std::span<const mortise_value>)> body) {
    ops_[schema] = std::move(body);
  }

  // ---- what happened ----

  const std::string& error() const { return error_; }  // the last failure's text
  mortise_status status() const { return status_; }
  struct Line {
    uint32_t level;
    std::string text;
  };
  std::vector<Line> log;
  size_t live_tensors() const {
    size_t n = 0;
    for (const FakeTensor* t : tensors_) n += !t->of_core;
    return n;
  }
  size_t live_batches() const { return batches_.size(); }

  // ---- the loop ----

  mortise_clock clock;
  uint64_t recordings = 0;         // of steps
  std::vector<uint64_t> replayed;  // their numbers
  void* stream = nullptr;
  std::array<int64_t, 3> memory = {};  // used, peak, total
  int trimmed = 0, fast_products = 0, fast_products_set = 0;
  int64_t freed = 0;
  bool has_queues = false;
  std::multiset<uintptr_t> marks;
  std::vector<std::pair<uintptr_t, uintptr_t>> waited;
  std::vector<std::pair<mortise_tensor*, uintptr_t>> recorded;
  static uintptr_t& queue_of_thread() {
    static thread_local uintptr_t queue = 0;
    return queue;
  }
  const mortise_ledger& ledger() {
    if (ledger_tensors_.empty()) make_ledger();
    return ledger_;
  }
  std::vector<double> lr = {1e-3}, weight_decay = {0.0};  // one a group; before the ledger is asked for
  double norm = 1.0;                                      // what mortise.grads/0 answers
  int32_t window = 0;                                     // as set in step.window
  std::vector<double> votes, factors;
  struct Term {
    std::string name, unit;
    double sum, weight;
  };
  std::vector<Term> terms;
  struct Reported {
    std::string name, unit;
    double number;
  };
  std::vector<Reported> reported;           // numbers of steps
  std::map<std::string, double> metrics;    // numbers of the evaluation
  std::set<std::string> reported_in_event;  // their names, in the event under way
  struct Request {
    uint32_t what;
    std::string reason;
  };
  std::vector<Request> requests;
  FakeRecord columns = FakeRecord("");  // added to the record that was told last
  uint64_t seed = 0;
  int32_t threads = 4;  // mortise.parallel/0 says so many, and is told of others

  // ---- ranks ----

  int32_t rank = 0, ranks = 1;
  std::function<void(std::vector<int64_t>&, uint32_t op)> others = [](auto&, uint32_t) {};
  struct Collective {
    uint32_t kind = 0, op = 0;
    mortise_tensor *in = nullptr, *out = nullptr;
    bool is_waited_for = false;
    int32_t root = 0;
    const mortise_rank_group* group = nullptr;
    std::vector<int64_t> in_rows, out_rows;  // of an exchange, if they were given
  };
  std::deque<Collective> collectives;
  // What the other ranks do to `out` of one until it was waited for; a test says it, as of host_all_reduce `others`.
  std::function<void(const Collective&)> meet = [](const Collective&) {};
  bool has_lost = false;  // another rank, which every call says from then on; `meet` may set it
  struct Axis {
    int32_t rank = 0, size = 1;
  };
  std::map<std::string, Axis, std::less<>> axes;
  std::map<const mortise_param*, std::string> places;  // along an axis: the number of a rank, or a dimension
  std::map<const mortise_param*, int32_t> cuts;        // along a dimension: which part is here
  std::map<const mortise_param*, const mortise_rank_group*> groups;  // `group_along`; else all sum its gradient
  const mortise_rank_group* group_along(const std::string& axis) const {
    return reinterpret_cast<const mortise_rank_group*>(&axes.at(axis));
  }
  struct Placed {
    mortise_tensor* flat = nullptr;
    int64_t offset = 0;
  };
  std::map<const mortise_param*, Placed> placed;         // gradients
  std::map<const mortise_param*, int32_t> has_gradient;  // 0 where a test says nothing
  bool records_steps = false;
  struct Master {
    const mortise_param* param = nullptr;
    int64_t offset = 0, length = 0;
  };
  std::deque<Master> masters;                                   // pieces that were asked for
  std::map<const mortise_param*, int64_t> rooms;                // of sharded parameters, which a test says
  std::set<const mortise_param*> held;                          // whose values have memory
  std::vector<const mortise_param*> taken;                      // whose gradients were taken, in order
  std::vector<std::pair<const mortise_param*, int64_t>> added;  // gradients of own elements, and how many there were

  // ---- parameters ----

  mortise_param* add_param(const std::string& name, const std::string& role, std::vector<int64_t> sizes,
                           std::vector<std::string> tags = {}) {
    FakeParam& p = *params_.emplace_back(std::make_unique<FakeParam>());
    p.name = name, p.role = role, p.sizes = std::move(sizes), p.tags = std::move(tags);
    for (const std::string& t : p.tags) p.tag_strs.push_back(str(t));
    p.dims.assign(p.sizes.size(), MORTISE_STR(""));
    p.info = {sizeof(mortise_param_info),
              static_cast<uint32_t>(p.sizes.size()),
              str(p.name),
              str(p.role),
              p.tag_strs.data(),
              p.dims.data(),
              p.sizes.data(),
              static_cast<uint32_t>(p.tags.size()),
              MORTISE_F32,
              MORTISE_F32,
              MORTISE_F32,
              p.role != "buffer",
              0,
              count(p.sizes),
              0,
              0,
              nullptr};
    p.info.replicas = ranks;
    p.info.replica = rank;
    return as_handle<mortise_param>(&p);
  }
  // Calls its dimensions by these names.
  void name_dims(mortise_param* param, std::vector<std::string> names) {
    FakeParam& p = *need_param(param);
    p.dim_names = std::move(names);
    p.dims.clear();
    for (const std::string& name : p.dim_names) p.dims.push_back(str(name));
    p.info.dims = p.dims.data();
  }
  // Packs parts of these sizes into it, along a dimension.
  void pack(mortise_param* param, uint32_t dim, std::vector<int64_t> parts) {
    FakeParam& p = *need_param(param);
    p.parts = std::move(parts);
    p.info.part_dim = dim, p.info.n_parts = static_cast<uint32_t>(p.parts.size()), p.info.parts = p.parts.data();
  }
  void put_into(mortise_param* param, int32_t segment) { need_param(param)->info.segment = segment; }
  // What `slices` shows of a parameter; allocated in its master_dtype when it is first asked for.
  mortise_tensor* master(mortise_param* p) { return allocated(*need_param(p)).master.get(); }
  mortise_tensor* kept(mortise_param* p, size_t i) { return allocated(*need_param(p)).states.at(i).get(); }
  void set_gradient(mortise_param* p, Tensor grad) { need_param(p)->grad = std::move(grad); }
  mortise_tensor* gradient(mortise_param* p) { return need_param(p)->grad.get(); }
  std::vector<std::string> published;  // names of parameters

  // ---- tensors ----

  template <class T>
  Tensor tensor(const std::vector<int64_t>& sizes, const std::vector<T>& elements, uint32_t dtype = dtype_of<T>()) {
    FakeTensor* t = make_tensor(dtype, sizes);
    if (elements.size() * sizeof(T) != t->n_bytes) throw std::invalid_argument("the elements do not fill the tensor");
    for (size_t i = 0; i < elements.size(); ++i) {  // vector<bool> has no data()
      const T e = elements[i];
      std::memcpy(t->bytes.get() + i * sizeof(T), &e, sizeof(T));
    }
    return Tensor::own(as_handle<mortise_tensor>(t));
  }
  template <class T>
  std::vector<T> values(mortise_tensor* handle) {
    const FakeTensor* t = find(handle);
    if (!t || t->dtype != dtype_of<T>()) throw std::invalid_argument("not a tensor of this type");
    std::vector<T> r(static_cast<size_t>(t->numel));
    if (!r.empty()) std::memcpy(r.data(), t->bytes.get(), t->n_bytes);
    return r;
  }
  template <class T>
  std::vector<T> values(const Tensor& t) {
    return values<T>(t.get());
  }
  // The one element of a tensor of any type.
  double number(mortise_tensor* handle) {
    const FakeTensor* t = find(handle);
    if (!t || t->numel != 1) throw std::invalid_argument("not a tensor of one element");
    return element(handle, 0);
  }
  // One element of a tensor of any type.
  double element(mortise_tensor* handle, int64_t i) {
    const FakeTensor* t = element_of(handle, i);
    const std::byte* at = t->bytes.get() + static_cast<size_t>(i) * dtype_size(t->dtype);
    const auto read = [at]<class T>(T x) { return std::memcpy(&x, at, sizeof x), x; };
    switch (t->dtype) {
      case MORTISE_I64: return static_cast<double>(read(int64_t()));
      case MORTISE_I32: return read(int32_t());
      case MORTISE_U8:
      case MORTISE_BOOL: return read(uint8_t());
      default: return mortise_element_get(t->dtype, at);
    }
  }
  // Casts as LibTorch does: what becomes a half is a float first.
  void set_element(mortise_tensor* handle, int64_t i, double x) {
    FakeTensor* t = element_of(handle, i);
    std::byte* at = t->bytes.get() + static_cast<size_t>(i) * dtype_size(t->dtype);
    const auto write = [at]<class T>(T v) { std::memcpy(at, &v, sizeof v); };
    switch (t->dtype) {
      case MORTISE_I64: return write(static_cast<int64_t>(x));
      case MORTISE_I32: return write(static_cast<int32_t>(x));
      case MORTISE_U8:
      case MORTISE_BOOL: return write(static_cast<uint8_t>(x));
      case MORTISE_F64: return write(x);
      default: mortise_element_set(t->dtype, at, static_cast<double>(static_cast<float>(x)));
    }
  }
  // aten::copy_: casts, and autograd hears of it.
  void copy(mortise_tensor* to, mortise_tensor* from) {
    const int64_t n = need_tensor(to)->numel;
    if (need_tensor(from)->numel != n) throw std::invalid_argument("copy_ between tensors of two sizes");
    for (int64_t i = 0; i < n; ++i) set_element(to, i, element(from, i));
    ++find(to)->written;
  }
  // How often `written` was said of a tensor.
  int times_written(mortise_tensor* handle) { return find(handle) ? find(handle)->written : 0; }

  // ---- for Plugin ----

  std::string_view point;     // the point that is being told or called; filters and votes are only allowed at theirs
  std::string_view manifest;  // plugin.toml of the newest plugin: what it writes must stand in it
  bool is_listening = false;  // a listener is being told of it
  const mortise_record* record = nullptr;  // with this record
  std::string failure;                     // the first that the plugin told `fail`

  struct Rows {
    const mortise_data* data = nullptr;
    std::vector<std::map<uint32_t, std::vector<std::byte>>> rows;  // of each sample: field to bytes
    const mortise_field& field(uint32_t i) const {
      const auto* first = reinterpret_cast<const char*>(data->fields);
      return *reinterpret_cast<const mortise_field*>(first + size_t{i} * data->fields->struct_size);
    }
  };

 private:
  struct FakeTensor {
    std::atomic<int> references{1};
    uint32_t dtype = 0;
    bool of_core = false;
    int written = 0;
    int64_t numel = 0;
    size_t n_bytes = 0;
    std::vector<int64_t> sizes, strides;
    std::unique_ptr<std::byte[]> bytes;  // just as long as the tensor, so that a sanitizer sees one element too many
  };
  struct FakeBatch {
    int references = 1;
    std::vector<std::pair<std::string, Tensor>> fields;
    std::map<std::string, int64_t, std::less<>> counts;
  };
  struct FakeParam {
    std::string name, role;
    std::vector<int64_t> sizes, parts;
    std::vector<std::string> tags, dim_names;
    std::vector<mortise_str> tag_strs, dims;
    mortise_param_info info{};
    Tensor master, grad;
    std::vector<std::string> kept_names, kept;  // relations
    std::vector<Tensor> states;
    std::vector<mortise_tensor*> handles;
    bool is_begun = false;
  };
  struct Setting {
    mortise_value value = none();
    std::string text;
    std::vector<std::string> texts;
    std::vector<mortise_str> strs;
    std::vector<int64_t> ints;
    std::vector<double> floats;

    void set(const mortise_value& v) { value = v; }
    void set(bool v) { value = mortise::value(v); }
    void set(int v) { value = mortise::value(v); }
    void set(int64_t v) { value = mortise::value(v); }
    void set(double v) { value = mortise::value(v); }
    void set(const char* v) { set(std::string(v)); }
    void set(const std::string& v) { text = v, value = mortise::value(std::string_view(text)); }
    void set(const std::vector<std::string>& v) {
      texts = v;
      for (const std::string& t : texts) strs.push_back(str(t));
      value = {MORTISE_TEXTS, static_cast<uint32_t>(strs.size()), {.ss = strs.data()}};
    }
    void set(const std::vector<int64_t>& v) { ints = v, value = mortise::ints(ints); }
    void set(const std::vector<double>& v) {
      floats = v;
      value = {MORTISE_FLOATS, static_cast<uint32_t>(floats.size()), {.fs = floats.data()}};
    }
  };

  static FakeHost& of(mortise_host* h) { return *static_cast<FakeHost*>(h); }
  template <class Handle, class T>
  static Handle* as_handle(T* t) {
    return reinterpret_cast<Handle*>(t);
  }
  template <class T, class Handle>
  static T* as(Handle* h) {
    return reinterpret_cast<T*>(const_cast<std::remove_const_t<Handle>*>(h));
  }
  static int64_t count(std::span<const int64_t> sizes) {
    return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
  }

  mortise_status note_failure(mortise_status s, std::string text) {
    const std::scoped_lock lock(mutex_);
    error_ = std::move(text);
    return status_ = s;
  }
  mortise_status refuse(Blame b) {
    blamed = std::move(b);
    return note_failure(MORTISE_E_CONFIG, blamed->key + ": " + blamed->why + "\n  fix: " + blamed->fix);
  }
  // Runs `body`, which returns a status or throws.
  template <class Body>
  static mortise_status answer(mortise_host* h, Body&& body) noexcept {
    try {
      return body(of(h));
    } catch (const HostError& e) {
      return e.status;
    } catch (const std::exception& e) {
      return of(h).note_failure(MORTISE_E_INTERNAL, e.what());
    }
  }
  mortise_status keep(const mortise_blob* blob) {
    if (!blob || blob->struct_size < sizeof *blob || !blob->save || !blob->load)
      return note_failure(MORTISE_E_ARGUMENT, "keeps a state without its size, its `save` or its `load`");
    const std::string name(view(blob->name));
    if (name.empty() || !is_utf8(name) || !blobs.emplace(name, blob).second)
      return note_failure(MORTISE_E_ARGUMENT, "keeps `" + name + "` twice, without a name, or under one not in UTF-8");
    return MORTISE_OK;
  }
  // What the host refuses of any function: NULL where something is to be.
  void must_be_there(const void* argument) {
    if (argument) return;
    note_failure(MORTISE_E_ARGUMENT, "called with NULL");
    throw HostError{MORTISE_E_ARGUMENT};
  }
  template <class T>
  mortise_status fill(T* out, const T& value) {
    must_be_there(out);
    const uint32_t size = out->struct_size;
    if (size < sizeof size) return note_failure(MORTISE_E_ARGUMENT, "a struct is to be filled and says no struct_size");
    std::memcpy(out, &value, std::min<size_t>(size, sizeof value));
    out->struct_size = size;
    return MORTISE_OK;
  }
  // What a vote or a factor is.
  double number_of(mortise_tensor* handle) {
    if (const FakeTensor* t = find(handle); t && t->numel == 1) return number(handle);
    note_failure(MORTISE_E_SHAPE, "not a tensor of one number");
    throw HostError{MORTISE_E_SHAPE};
  }
  mortise_status only_at(std::string_view where) {
    return point == where ? MORTISE_OK : note_failure(MORTISE_E_ARGUMENT, "only allowed in " + std::string(where));
  }
  // What a plugin changes stands in its plugin.toml; the host refuses it elsewhere.
  mortise_status must_write(const std::string& field) {
    if (manifest.empty() || manifest.find('"' + field + '"') != std::string_view::npos) return MORTISE_OK;
    return note_failure(MORTISE_E_PLUGIN, "plugin.toml does not say that it writes `" + field + "`");
  }
  mortise_status add_column(std::string_view name, const mortise_value& v) {
    const bool is_told = record && (point == "run.begin" || point == "run.end");
    if (!is_told) check(only_at("record"));
    if (v.tag != MORTISE_FLOAT && v.tag != MORTISE_INT && v.tag != MORTISE_TEXT)
      return note_failure(MORTISE_E_ARGUMENT, "the column `" + std::string(name) + "` is neither a number nor a text");
    bool is_there = name.empty() || columns.has(name);
    for (uint32_t i = 0; record && i < record->n_columns; ++i)
      is_there = is_there || view(record->columns[i].name) == name;
    if (is_there)
      return note_failure(MORTISE_E_ARGUMENT, "the record has a column `" + std::string(name) + "` already");
    return columns.add(std::string(name), v), MORTISE_OK;
  }

  FakeTensor* make_tensor(uint32_t dtype, std::span<const int64_t> sizes) {
    auto t = std::make_unique<FakeTensor>();
    t->dtype = dtype;
    t->sizes.assign(sizes.begin(), sizes.end());
    t->strides.assign(sizes.size(), 1);
    for (size_t i = sizes.size(); i-- > 1;) t->strides[i - 1] = t->strides[i] * sizes[i];
    t->numel = count(sizes);
    t->n_bytes = static_cast<size_t>(t->numel) * dtype_size(dtype);
    t->bytes = std::make_unique_for_overwrite<std::byte[]>(t->n_bytes);
    if (t->n_bytes) std::memset(t->bytes.get(), 0xFF, t->n_bytes);
    const std::scoped_lock lock(mutex_);
    return *tensors_.insert(t.release()).first;
  }
  FakeTensor* element_of(const mortise_tensor* handle, int64_t i) {
    FakeTensor* t = find(handle);
    if (!t || i < 0 || i >= t->numel) throw std::invalid_argument("no such element of a tensor");
    return t;
  }
  FakeTensor* find(const mortise_tensor* handle) {
    const std::scoped_lock lock(mutex_);
    FakeTensor* t = as<FakeTensor>(handle);
    return tensors_.contains(t) ? t : nullptr;
  }
  FakeTensor* need_tensor(const mortise_tensor* handle) {
    if (FakeTensor* t = find(handle)) return t;
    note_failure(MORTISE_E_ARGUMENT, handle ? "not a tensor of this host, or released before" : "a tensor is NULL");
    throw HostError{MORTISE_E_ARGUMENT};
  }
  void count_references(mortise_tensor* handle, int by) {
    if (!handle && by < 0) return;
    FakeTensor* t = find(handle);
    const std::scoped_lock lock(mutex_);
    if (!t)
      return mistakes_.push_back(by < 0 ? "a tensor was released too often"
                                        : "a tensor was retained that is not alive");
    if ((t->references += by) > 0) return;
    tensors_.erase(t);
    delete t;
  }
  void make_ledger() {
    const auto keep = [&](Tensor t) {
      find(t.get())->of_core = true;
      return ledger_tensors_.emplace_back(std::move(t)).get();
    };
    ledger_ = {sizeof(mortise_ledger), static_cast<uint32_t>(lr.size())};
    ledger_.scale = keep(tensor<double>({}, {1.0}));
    ledger_.multiplier = keep(tensor<double>({}, {1.0}));
    ledger_.verdict = keep(tensor<double>({}, {1.0}));
    ledger_.applied = keep(tensor<int64_t>({}, {clock.applied}));
    ledger_.attempted = keep(tensor<int64_t>({}, {clock.attempted}));
    ledger_.lr = keep(tensor<double>({static_cast<int64_t>(lr.size())}, lr));
    ledger_.weight_decay = keep(tensor<double>({static_cast<int64_t>(weight_decay.size())}, weight_decay));
  }
  void multiply_into(mortise_tensor* handle, double factor) { set_element(handle, 0, number(handle) * factor); }
  void complain() {
    ledger_tensors_.clear();
    params_.clear();
    std::string all;
    for (const std::string& m : mistakes_) all += "\n  " + m;
    if (!tensors_.empty()) all += "\n  " + std::to_string(tensors_.size()) + " tensors were not released";
    if (!batches_.empty()) all += "\n  " + std::to_string(batches_.size()) + " batches were not released";
    if (!marks.empty()) all += "\n  " + std::to_string(marks.size()) + " marks were not dropped";
    if (all.empty()) return;
    std::fprintf(stderr, "FakeHost:%s\n", all.c_str());
    std::abort();
  }

  const void* find_interface(std::string_view id) {
    if (const auto own = tables_.find(id); own != tables_.end()) return own->second;
    if (id == "mortise.tokenizer/0" && !tokenizer_) return nullptr;
    if (id == "mortise.model/0" && !model) return nullptr;
    static const std::map<std::string_view, const void*> all = {
        {"mortise.tensor/0", &tensor_table()},     {"mortise.config/0", &config_table()},
        {"mortise.log/0", &log_table()},           {"mortise.loop/0", &loop_table()},
        {"mortise.params/0", &params_table()},     {"mortise.grads/0", &grads_table()},
        {"mortise.batch/0", &batch_table()},       {"mortise.ops/0", &ops_table()},
        {"mortise.parallel/0", &parallel_table()}, {"mortise.random/0", &random_table()},
        {"mortise.model/0", &model_table()},       {"mortise.tokenizer/0", &tokenizer_table()},
        {"mortise.state/0", &state_table()},       {"mortise.device/0", &device_table()},
        {"mortise.comm/0", &comm_table()},         {"mortise.replicas/0", &replicas_table()}};
    const auto found = all.find(id);
    return found == all.end() ? nullptr : found->second;
  }

  // ---- the tables ----

  static const mortise_state_api& state_table() {
    static const mortise_state_api table = {.struct_size = sizeof(mortise_state_api),
                                            .keep = [](mortise_host* h, const mortise_blob* blob) noexcept {
                                              return answer(h, [&](FakeHost& f) { return f.keep(blob); });
                                            }};
    return table;
  }

  static const mortise_tensor_api& tensor_table() {
    static const mortise_tensor_api table = {
        .struct_size = sizeof(mortise_tensor_api),
        .info =
            [](mortise_host* h, const mortise_tensor* handle, mortise_tensor_info* out) noexcept {
              return answer(h, [&](FakeHost& f) {
                FakeTensor* t = f.need_tensor(handle);
                return f.fill(out,
                              {sizeof *out, static_cast<uint32_t>(t->sizes.size()), t->sizes.data(), t->strides.data(),
                               t->numel, t->bytes.get(), t->dtype, MORTISE_CPU, 0, MORTISE_CONTIGUOUS});
              });
            },
        .retain = [](mortise_host* h, mortise_tensor* t) noexcept { of(h).count_references(t, 1); },
        .release = [](mortise_host* h, mortise_tensor* t) noexcept { of(h).count_references(t, -1); },
        .empty =
            [](mortise_host* h, uint32_t dtype, const int64_t* sizes, uint32_t rank, int,
               mortise_tensor** out) noexcept {
              return answer(h, [&](FakeHost& f) {
                if (dtype_size(dtype) == 0) return f.note_failure(MORTISE_E_ARGUMENT, "no such dtype");
                for (uint32_t i = 0; i < rank; ++i)
                  if (sizes[i] < 0) return f.note_failure(MORTISE_E_ARGUMENT, "a negative size");
                *out = as_handle<mortise_tensor>(f.make_tensor(dtype, {sizes, rank}));
                return mortise_status{MORTISE_OK};
              });
            },
        .written =
            [](mortise_host* h, mortise_tensor* handle) noexcept {
              if (FakeTensor* t = of(h).find(handle)) ++t->written;
            },
        .read =
            [](mortise_host* h, const mortise_tensor* handle, void* to, size_t bytes) noexcept {
              return answer(h, [&](FakeHost& f) {
                const FakeTensor* t = f.need_tensor(handle);
                f.must_be_there(to);
                if (bytes != t->n_bytes) return f.note_failure(MORTISE_E_ARGUMENT, "`bytes` is not the tensor's size");
                if (bytes) std::memcpy(to, t->bytes.get(), bytes);
                return mortise_status{MORTISE_OK};
              });
            },
    };
    return table;
  }

  static const mortise_config_api& config_table() {
    static const mortise_config_api table = {
        .struct_size = sizeof(mortise_config_api),
        .get =
            [](mortise_host* h, mortise_str key, mortise_value* out) noexcept {
              return answer(h, [&](FakeHost& f) {
                f.must_be_there(out);
                const auto found = f.config_.find(view(key));
                if (found == f.config_.end())
                  return f.note_failure(MORTISE_E_NOT_FOUND, "the test sets no key `" + std::string(view(key)) + "`");
                *out = found->second->value;
                return mortise_status{MORTISE_OK};
              });
            },
        .blame =
            [](mortise_host* h, mortise_str key, mortise_str why, mortise_str fix) noexcept {
              return of(h).refuse({std::string(view(key)), std::string(view(why)), std::string(view(fix))});
            },
        .refuse =
            [](mortise_host* h, mortise_str code, mortise_str key, mortise_str why, mortise_str beside,
               mortise_str fix) noexcept {
              return of(h).refuse({std::string(view(key)), std::string(view(why)), std::string(view(fix)),
                                   std::string(view(code)), std::string(view(beside))});
            },
        .pattern =
            [](mortise_host* h, mortise_str key, uint32_t index, mortise_str* out) noexcept {
              return answer(h, [&](FakeHost& f) {
                f.must_be_there(out);
                const auto own = f.patterns.find(view(key));
                const auto found = f.config_.find(view(key));
                const std::vector<mortise_str>* paths = found == f.config_.end() ? nullptr : &found->second->strs;
                if (!paths || index >= paths->size())
                  return f.note_failure(MORTISE_E_NOT_FOUND, "the test sets no such path");
                *out = own == f.patterns.end() ? (*paths)[index] : str(own->second.at(index));
                return mortise_status{MORTISE_OK};
              });
            },
    };
    return table;
  }

  static const mortise_log_api& log_table() {
    static const mortise_log_api table = {
        .struct_size = sizeof(mortise_log_api),
        .write =
            [](mortise_host* h, uint32_t level, mortise_str line) noexcept {
              const std::scoped_lock lock(of(h).mutex_);
              of(h).log.push_back({level, std::string(view(line))});
            },
    };
    return table;
  }

  static const mortise_loop_api& loop_table() {
    static const mortise_loop_api table = {
        .struct_size = sizeof(mortise_loop_api),
        .clock =
            [](mortise_host* h, mortise_clock* out) noexcept {
              return answer(h, [&](FakeHost& f) { return f.fill(out, f.clock); });
            },
        .ledger = [](mortise_host* h, const mortise_ledger** out) noexcept -> mortise_status {
          *out = &of(h).ledger();
          return MORTISE_OK;
        },
        .set_window =
            [](mortise_host* h, int32_t micros) noexcept {
              return answer(h, [&](FakeHost& f) {
                check(f.only_at("step.window"));
                check(f.must_write("micros"));
                if (micros < 1) return f.note_failure(MORTISE_E_ARGUMENT, "a step of no micro-batches");
                return f.window = micros, mortise_status{MORTISE_OK};
              });
            },
        .vote =
            [](mortise_host* h, mortise_tensor* ok) noexcept {
              return answer(h, [&](FakeHost& f) {
                check(f.only_at("step.verdict"));
                check(f.must_write("votes"));
                f.votes.push_back(f.number_of(ok));
                f.multiply_into(f.ledger().verdict, std::abs(f.votes.back()) > 0);
                return MORTISE_OK;
              });
            },
        .multiply =
            [](mortise_host* h, mortise_tensor* factor) noexcept {
              return answer(h, [&](FakeHost& f) {
                check(f.only_at("grad.transform"));
                check(f.must_write("multiplier"));
                f.factors.push_back(f.number_of(factor));
                f.multiply_into(f.ledger().multiplier, f.factors.back());
                return MORTISE_OK;
              });
            },
        .term =
            [](mortise_host* h, mortise_str name, mortise_tensor* sum, mortise_str unit, double weight) noexcept {
              return answer(h, [&](FakeHost& f) {
                if (f.is_listening)
                  return f.note_failure(MORTISE_E_ARGUMENT, "a term of the loss is given inside `forward` only");
                const FakeTensor* t = f.find(sum);
                if (!t || t->numel != 1) return f.note_failure(MORTISE_E_SHAPE, "a term is one number");
                f.terms.push_back({std::string(view(name)), std::string(view(unit)), f.number(sum), weight});
                return mortise_status{MORTISE_OK};
              });
            },
        .request = [](mortise_host* h, uint32_t what, mortise_str reason) noexcept -> mortise_status {
          if (what != MORTISE_STOP && what != MORTISE_ABORT)
            return of(h).note_failure(MORTISE_E_ARGUMENT, "there is no request " + std::to_string(what));
          of(h).requests.push_back({what, std::string(view(reason))});
          return MORTISE_OK;
        },
        .column =
            [](mortise_host* h, mortise_str name, mortise_value v) noexcept {
              return answer(h, [&](FakeHost& f) { return f.add_column(view(name), v); });
            },
        .set_scale =
            [](mortise_host* h, mortise_tensor* scale) noexcept {
              return answer(h, [&](FakeHost& f) {
                if (f.point != "run.begin") check(f.only_at("step.commit"));
                check(f.must_write("scale"));
                const double factor = f.number_of(scale);
                if (!(factor > 0) || std::isinf(factor))
                  return f.note_failure(MORTISE_E_ARGUMENT, "the factor of the loss is above 0 and finite");
                f.set_element(f.ledger().scale, 0, factor);
                return mortise_status{MORTISE_OK};
              });
            },
        .report =
            [](mortise_host* h, mortise_str name, mortise_tensor* number, mortise_str unit) noexcept {
              return answer(h, [&](FakeHost& f) {
                if (f.point == "record" || f.point.empty() || f.point.starts_with("run."))
                  return f.note_failure(MORTISE_E_ARGUMENT, "numbers of a step are reported inside it");
                if (view(name).empty()) return f.note_failure(MORTISE_E_ARGUMENT, "a number of a step has a name");
                if (view(name) == "loss" || view(name) == "step" || view(name) == "lr")
                  return f.note_failure(MORTISE_E_ARGUMENT, "each step has that column already");
                if (!f.reported_in_event.insert(std::string(view(name))).second)
                  return f.note_failure(MORTISE_E_ARGUMENT, "this step has a number of that name already");
                f.reported.push_back({std::string(view(name)), std::string(view(unit)), f.number_of(number)});
                return mortise_status{MORTISE_OK};
              });
            },
        .metric =
            [](mortise_host* h, mortise_str name, double number) noexcept {
              return answer(h, [&](FakeHost& f) {
                if (f.point != "eval")
                  return f.note_failure(MORTISE_E_ARGUMENT, "a metric is given inside `eval` only");
                if (view(name).empty()) return f.note_failure(MORTISE_E_ARGUMENT, "a number of a record has a name");
                if (!f.metrics.emplace(view(name), number).second)
                  return f.note_failure(MORTISE_E_ARGUMENT, "this evaluation has a number of that name already");
                return mortise_status{MORTISE_OK};
              });
            },
        .attach_term =
            [](mortise_host* h, mortise_str name, mortise_tensor* carrier, mortise_tensor* sum, mortise_str unit,
               double weight, mortise_tensor** out) noexcept {
              return answer(h, [&](FakeHost& f) {
                check(loop_table().term(h, name, sum, unit, weight));
                if (!f.find(carrier)) return f.note_failure(MORTISE_E_ARGUMENT, "a term is attached to a tensor");
                *out = Tensor::share(carrier).release();
                return mortise_status{MORTISE_OK};
              });
            },
        .recorded = [](mortise_host* h, uint64_t* token) noexcept -> mortise_status {
          return *token = ++of(h).recordings, MORTISE_OK;
        },
        .replayed = [](mortise_host* h, uint64_t token) noexcept -> mortise_status {
          FakeHost& f = of(h);
          if (token == 0 || token > f.recordings)
            return f.note_failure(MORTISE_E_ARGUMENT, "there is no such recording");
          return f.replayed.push_back(token), MORTISE_OK;
        },
    };
    return table;
  }

  static const mortise_device_api& device_table() {
    static const mortise_device_api table = {
        .struct_size = sizeof(mortise_device_api),
        .stream = [](mortise_host* h, void** native) noexcept -> mortise_status {
          return *native = of(h).stream, MORTISE_OK;
        },
        .memory = [](mortise_host* h, int64_t* used, int64_t* peak, int64_t* total) noexcept -> mortise_status {
          const auto& memory = of(h).memory;
          return *used = memory[0], *peak = memory[1], *total = memory[2], MORTISE_OK;
        },
        .trim = [](mortise_host* h, int64_t* freed) noexcept -> mortise_status {
          FakeHost& f = of(h);
          return ++f.trimmed, *freed = f.freed, MORTISE_OK;
        },
        .fast_products = [](mortise_host* h, int on) noexcept -> mortise_status {
          FakeHost& f = of(h);
          return ++f.fast_products_set, f.fast_products = on, MORTISE_OK;
        },
        .new_stream = [](mortise_host* h, mortise_stream** out) noexcept -> mortise_status {
          if (!out) return of(h).note_failure(MORTISE_E_ARGUMENT, "NULL for a queue");
          const std::scoped_lock lock(of(h).mutex_);
          return *out = of(h).has_queues ? reinterpret_cast<mortise_stream*>(++of(h).queues_) : nullptr, MORTISE_OK;
        },
        .with_stream = [](mortise_host* h, mortise_stream* stream, mortise_status (*body)(void*) noexcept,
                          void* user) noexcept -> mortise_status {
          if (!body) return of(h).note_failure(MORTISE_E_ARGUMENT, "NULL for what is to be called");
          const uintptr_t before = queue_of_thread();
          if (stream) queue_of_thread() = reinterpret_cast<uintptr_t>(stream);
          const mortise_status status = body(user);
          queue_of_thread() = before;
          return status;
        },
        .mark = [](mortise_host* h, mortise_mark** out) noexcept -> mortise_status {
          if (!out) return of(h).note_failure(MORTISE_E_ARGUMENT, "NULL for a mark");
          const std::scoped_lock lock(of(h).mutex_);
          *out = nullptr;
          if (of(h).has_queues)
            *out = as_handle<mortise_mark>(const_cast<uintptr_t*>(&*of(h).marks.insert(queue_of_thread())));
          return MORTISE_OK;
        },
        .wait_for = [](mortise_host* h, const mortise_mark* mark) noexcept -> mortise_status {
          const std::scoped_lock lock(of(h).mutex_);
          if (mark) of(h).waited.emplace_back(queue_of_thread(), *reinterpret_cast<const uintptr_t*>(mark));
          return MORTISE_OK;
        },
        .drop_mark =
            [](mortise_host* h, mortise_mark* mark) noexcept {
              const std::scoped_lock lock(of(h).mutex_);
              auto& marks = of(h).marks;
              for (auto m = marks.begin(); m != marks.end(); ++m)
                if (reinterpret_cast<const mortise_mark*>(&*m) == mark) return void(marks.erase(m));
              if (mark) of(h).mistakes_.push_back("a mark was dropped twice");
            },
        .record_stream =
            [](mortise_host* h, mortise_tensor* t) noexcept {
              return answer(h, [&](FakeHost& f) {
                f.need_tensor(t);
                f.recorded.emplace_back(t, queue_of_thread());
                return mortise_status{MORTISE_OK};
              });
            },
    };
    return table;
  }

  static const mortise_comm_api& comm_table() {
    static const mortise_comm_api table = {
        .struct_size = sizeof(mortise_comm_api),
        .place = [](mortise_host* h, int32_t* rank, int32_t* size) noexcept -> mortise_status {
          return *rank = of(h).rank, *size = of(h).ranks, MORTISE_OK;
        },
        .start =
            [](mortise_host* h, const mortise_collective* c, mortise_work** out) noexcept {
              return answer(h, [&](FakeHost& f) -> mortise_status {
                if (!c || !out) return f.note_failure(MORTISE_E_ARGUMENT, "NULL for a collective");
                if (!MORTISE_HAS_ROOM(c, out))
                  return f.note_failure(MORTISE_E_ARGUMENT, "a collective is begun without its size");
                if (!c->out) return f.note_failure(MORTISE_E_ARGUMENT, "a collective without `out`");
                if (const mortise_status status = f.check_fit(*c)) return status;
                if (const mortise_status status = f.check_ranks()) return status;
                Collective& begun =
                    f.collectives.emplace_back(Collective{c->kind, c->op, c->in, c->out, false, c->root, c->group});
                const int64_t n = f.size_of(c->group);
                if (c->in_rows) begun.in_rows.assign(c->in_rows, c->in_rows + n);
                if (c->out_rows) begun.out_rows.assign(c->out_rows, c->out_rows + n);
                return *out = as_handle<mortise_work>(&begun), MORTISE_OK;
              });
            },
        .wait = [](mortise_host* h, mortise_work* work) noexcept -> mortise_status {
          if (const mortise_status status = of(h).check_ranks()) return status;
          for (Collective& c : of(h).collectives)
            if (as_handle<mortise_work>(&c) == work && !c.is_waited_for)
              return of(h).meet(c), c.is_waited_for = true, MORTISE_OK;
          return of(h).note_failure(MORTISE_E_ARGUMENT, "there is no such work");
        },
        .host_all_reduce = [](mortise_host* h, int64_t* numbers, uint32_t n, uint32_t op) noexcept -> mortise_status {
          if (op > MORTISE_MIN) return of(h).note_failure(MORTISE_E_ARGUMENT, "no such reduction");
          if (n > 0 && !numbers) return of(h).note_failure(MORTISE_E_ARGUMENT, "NULL for the numbers");
          if (const mortise_status status = of(h).check_ranks(); status || n == 0) return status;
          std::vector<int64_t> all(numbers, numbers + n);
          of(h).others(all, op);
          return std::ranges::copy(all, numbers), MORTISE_OK;
        },
        .axis = [](mortise_host* h, mortise_str name, mortise_rank_group** group, int32_t* rank,
                   int32_t* size) noexcept -> mortise_status {
          const auto along = of(h).axes.find(view(name));
          if (along == of(h).axes.end())
            return of(h).note_failure(MORTISE_E_NOT_FOUND, "no axis `" + std::string(view(name)) + "`");
          *group = as_handle<mortise_rank_group>(&along->second);
          return *rank = along->second.rank, *size = along->second.size, MORTISE_OK;
        },
        .data_place = [](mortise_host* h, int32_t* rank, int32_t* size) noexcept -> mortise_status {
          return *rank = of(h).rank, *size = of(h).ranks, MORTISE_OK;
        },
        .start_all = [](mortise_host* h, const mortise_collective* const* all, uint32_t n,
                        mortise_work** works) noexcept -> mortise_status {
          for (uint32_t i = 0; i < n; ++i)
            if (const mortise_status status = comm_table().start(h, all[i], works + i)) return status;
          return MORTISE_OK;
        },
    };
    return table;
  }

  static const mortise_replicas_api& replicas_table() {
    static const mortise_replicas_api table = {
        .struct_size = sizeof(mortise_replicas_api),
        .place = [](mortise_host* h, mortise_param* p, mortise_tensor* flat,
                    int64_t offset) noexcept -> mortise_status { return of(h).placed[p] = {flat, offset}, MORTISE_OK; },
        .has_gradient = [](mortise_host* h, const mortise_param* p, int32_t* has) noexcept -> mortise_status {
          return *has = of(h).has_gradient[p], MORTISE_OK;
        },
        .set_has_gradient = [](mortise_host* h, mortise_param* p, int32_t has) noexcept -> mortise_status {
          return of(h).has_gradient[p] = has, MORTISE_OK;
        },
        .master = [](mortise_host* h, mortise_param* p, int64_t offset, int64_t length,
                     mortise_tensor** out) noexcept -> mortise_status {
          of(h).masters.push_back({p, offset, length});
          return *out = as_handle<mortise_tensor>(of(h).make_tensor(MORTISE_F32, std::vector{length})), MORTISE_OK;
        },
        .recorded = [](mortise_host* h, int32_t* is) noexcept -> mortise_status {
          return *is = of(h).records_steps, MORTISE_OK;
        },
        .hold =
            [](mortise_host* h, mortise_param* p, mortise_tensor** out) noexcept {
              return answer(h, [&](FakeHost& f) { return *out = f.with_room(p), f.held.insert(p), MORTISE_OK; });
            },
        .drop =
            [](mortise_host* h, mortise_param* p) noexcept {
              return answer(h, [&](FakeHost& f) { return f.room_of(p), f.held.erase(p), MORTISE_OK; });
            },
        .take_gradient =
            [](mortise_host* h, mortise_param* p, mortise_tensor** out) noexcept {
              return answer(h, [&](FakeHost& f) { return *out = f.with_room(p), f.taken.push_back(p), MORTISE_OK; });
            },
        .add_gradient =
            [](mortise_host* h, mortise_param* p, mortise_tensor* own) noexcept {
              return answer(h, [&](FakeHost& f) {
                return f.room_of(p), f.added.emplace_back(p, f.need_tensor(own)->numel), MORTISE_OK;
              });
            },
        .group = [](mortise_host* h, const mortise_param* p,
                    const mortise_rank_group** out) noexcept -> mortise_status {
          const auto group = of(h).groups.find(p);
          return *out = group == of(h).groups.end() ? nullptr : group->second, MORTISE_OK;
        },
    };
    return table;
  }
  int64_t size_of(const mortise_rank_group* group) const {
    return group ? reinterpret_cast<const Axis*>(group)->size : ranks;
  }
  mortise_status check_ranks() { return has_lost ? note_failure(MORTISE_E_LOST, "a rank is lost") : MORTISE_OK; }
  // What a run refuses of a collective.
  mortise_status check_fit(const mortise_collective& c) {
    const auto refuse = [&](const std::string& what, mortise_status status = MORTISE_E_SHAPE) {
      return note_failure(status, "a collective: " + what);
    };
    const auto along = std::ranges::find_if(axes, [&](const auto& axis) { return group_along(axis.first) == c.group; });
    if (c.group && along == axes.end()) return refuse("a group that is none of `axes`", MORTISE_E_ARGUMENT);
    const int64_t n = size_of(c.group), own = c.group ? along->second.rank : rank;
    if (c.kind > MORTISE_REDUCE) return refuse("no such kind", MORTISE_E_ARGUMENT);
    if (has_root(c) && (c.root < 0 || c.root >= n)) return refuse("`root` is no rank", MORTISE_E_ARGUMENT);
    if (reduces(c) && c.op > MORTISE_MIN) return refuse("no such reduction", MORTISE_E_ARGUMENT);
    if (reduces(c) && c.op == MORTISE_SUM && need_tensor(c.out)->dtype == MORTISE_BOOL)
      return refuse("booleans have no sum", MORTISE_E_ARGUMENT);
    if (!reads_in(c)) return MORTISE_OK;
    if (!c.in) return refuse("`in` is NULL", MORTISE_E_ARGUMENT);
    const FakeTensor &in = *need_tensor(c.in), &out = *need_tensor(c.out);
    if (in.dtype != out.dtype) return refuse("`in` and `out` are of two element types");
    if (c.kind != MORTISE_ALL_TO_ALL) {
      const bool scatters = c.kind == MORTISE_REDUCE_SCATTER;
      const bool fits = scatters ? in.numel == n * out.numel : out.numel == n * in.numel;
      return fits ? MORTISE_OK : refuse(scatters ? "`in` is not `out` of each rank" : "`out` is not `in` of each rank");
    }
    if (&in == &out) return refuse("`in` and `out` are one memory", MORTISE_E_ARGUMENT);
    if (!c.in_rows != !c.out_rows) return refuse("`in_rows` without `out_rows`, or these alone", MORTISE_E_ARGUMENT);
    if (c.in_rows && c.in_rows[own] != c.out_rows[own]) return refuse("other rows to itself than it has room for");
    const auto has_rows = [&](const FakeTensor& t, const int64_t* of_each) {
      if (t.sizes.empty()) return false;
      if (!of_each) return t.sizes[0] % n == 0;
      return std::ranges::none_of(of_each, of_each + n, [](int64_t rows) { return rows < 0; }) &&
             std::accumulate(of_each, of_each + n, int64_t{0}) == t.sizes[0];
    };
    const bool fits = has_rows(in, c.in_rows) && has_rows(out, c.out_rows) &&
                      std::equal(in.sizes.begin() + 1, in.sizes.end(), out.sizes.begin() + 1, out.sizes.end()) &&
                      (c.in_rows || in.sizes[0] == out.sizes[0]);
    return fits ? MORTISE_OK : refuse("rows of `in` or of `out` that the ranks do not have");
  }

  mortise_status put_on(const mortise_param* p, const std::string& axis, const mortise_value& v) {
    if (!axes.contains(axis)) return note_failure(MORTISE_E_NOT_FOUND, "no axis `" + axis + "`");
    if (v.tag != MORTISE_INT && v.tag != MORTISE_TEXT)
      return note_failure(MORTISE_E_ARGUMENT, "a place is the number of a rank, or the name of a dimension");
    const int64_t size = axes.find(axis)->second.size;
    if (v.tag == MORTISE_INT && (v.v.i < 0 || v.v.i >= size))
      return note_failure(MORTISE_E_ARGUMENT, "no rank along `" + axis + "` has the number " + std::to_string(v.v.i));
    if (v.tag == MORTISE_TEXT) {
      const mortise_param_info& info = need_param(p)->info;
      const auto found = std::find_if(info.dims, info.dims + info.rank,
                                      [&](const mortise_str& dim) { return view(dim) == view(v.v.s); });
      const std::string dim(view(v.v.s));
      if (found == info.dims + info.rank)
        return note_failure(MORTISE_E_ARGUMENT, "`" + dim + "` is to be cut, and it has no such dimension");
      if (info.sizes[found - info.dims] % size != 0)
        return note_failure(MORTISE_E_ARGUMENT, "`" + dim + "` is a size that the ranks do not share evenly");
      cuts[p] = axes.find(axis)->second.rank;
    }
    places[p] = v.tag == MORTISE_INT ? std::to_string(v.v.i) : std::string(view(v.v.s));
    return MORTISE_OK;
  }
  int64_t room_of(const mortise_param* p) {
    if (const auto room = rooms.find(p); room != rooms.end()) return room->second;
    note_failure(MORTISE_E_ARGUMENT, "a parameter that is not sharded");
    throw HostError{MORTISE_E_ARGUMENT};
  }
  mortise_tensor* with_room(const mortise_param* p) {
    return as_handle<mortise_tensor>(make_tensor(MORTISE_F32, std::vector{room_of(p)}));
  }

  static const mortise_params_api& params_table() {
    static const mortise_params_api table = {
        .struct_size = sizeof(mortise_params_api),
        .info =
            [](mortise_host* h, const mortise_param* p, const mortise_param_info** out) noexcept {
              return answer(h, [&](FakeHost& f) { return *out = &f.need_param(p)->info, MORTISE_OK; });
            },
        .find =
            [](mortise_host* h, mortise_str name, mortise_param** out) noexcept {
              return answer(h, [&](FakeHost& f) {
                for (const auto& p : f.params_)
                  if (p->name == view(name))
                    return *out = as_handle<mortise_param>(p.get()), mortise_status{MORTISE_OK};
                return f.note_failure(MORTISE_E_NOT_FOUND, "no parameter " + std::string(view(name)));
              });
            },
        .set =
            [](mortise_host* h, mortise_param* p, mortise_str field, mortise_value v) noexcept {
              return answer(h, [&](FakeHost& f) {
                mortise_param_info& info = f.need_param(p)->info;
                const std::string name(view(field));
                uint32_t* dtype = name == "value_dtype" ? &info.value_dtype : nullptr;
                if (name == "master_dtype") dtype = &info.master_dtype;
                if (name == "grad_dtype") dtype = &info.grad_dtype;
                const bool is_place = name.starts_with("place.");
                int32_t* logical = name == "trainable" ? &info.trainable : nullptr;
                if (name == "update_on_host") logical = &info.update_on_host;
                if (name == "states_in_store") logical = &info.states_in_store;
                if (!dtype && !logical && !is_place)
                  return f.note_failure(MORTISE_E_NOT_FOUND, "a parameter has no field `" + name + "`");
                check(f.only_at("params.declared"));
                check(f.must_write(name));
                if (dtype) return f.set_dtype(name, *dtype, v);
                if (is_place) return f.put_on(p, name.substr(6), v);
                if (v.tag != MORTISE_LOGICAL)
                  return f.note_failure(MORTISE_E_ARGUMENT, "`" + name + "` takes true or false");
                if (v.v.i != 0 && name == "trainable" && view(info.role) == "buffer")
                  return f.note_failure(MORTISE_E_ARGUMENT, "a buffer is never trained");
                *logical = v.v.i != 0;
                return mortise_status{MORTISE_OK};
              });
            },
        .use =
            [](mortise_host* h, mortise_param* p, mortise_tensor** out) noexcept {
              return answer(h, [&](FakeHost& f) {
                FakeParam& param = *f.need_param(p);
                check(f.only_in_calls());
                return *out = Tensor::share(f.allocated(param).master.get()).release(), MORTISE_OK;
              });
            },
        .keep =
            [](mortise_host* h, mortise_param* p, const mortise_state_spec* spec) noexcept {
              return answer(h, [&](FakeHost& f) {
                FakeParam& param = *f.need_param(p);
                check(f.only_at("params.declared"));
                return f.keep_beside(param, spec);
              });
            },
        .slices =
            [](mortise_host* h, const mortise_slice** out, uint32_t* n) noexcept {
              return answer(h, [&](FakeHost& f) {
                if (!out || !n) return f.note_failure(MORTISE_E_ARGUMENT, "NULL for the slices");
                f.slices_.clear();
                for (const auto& p : f.params_)
                  if (p->info.trainable) f.slices_.push_back(slice_of(f.begun(*p)));
                *out = f.slices_.data();
                *n = static_cast<uint32_t>(f.slices_.size());
                return mortise_status{MORTISE_OK};
              });
            },
        .publish =
            [](mortise_host* h, mortise_param* p) noexcept {
              return answer(h, [&](FakeHost& f) {
                FakeParam& param = *f.need_param(p);
                if (f.point == "step.commit") check(f.must_write("masters"));
                f.published.push_back(param.name);
                return mortise_status{MORTISE_OK};
              });
            },
    };
    return table;
  }
  mortise_status keep_beside(FakeParam& p, const mortise_state_spec* spec) {
    if (!spec || spec->name.len == 0 || spec->dtype == MORTISE_NO_DTYPE || spec->dtype >= MORTISE_DTYPES ||
        p.states.size() >= MORTISE_MAX_STATES)
      return note_failure(MORTISE_E_PLUGIN, "a kept tensor has a name and an element type, and there are 8 at most");
    const std::string relation(view(spec->relation));
    if (relation != "same" && relation != "copy" && relation != "scalar")
      return note_failure(MORTISE_E_ARGUMENT, "this host keeps tensors that are `same`, `copy` or `scalar`");
    const std::string name(view(spec->name));
    if (std::ranges::find(p.kept_names, name) != p.kept_names.end())
      return note_failure(MORTISE_E_PLUGIN, "`" + name + "` is kept twice");
    p.kept_names.push_back(name);
    p.kept.push_back(relation);
    p.states.push_back(filled(spec->dtype, relation == "scalar" ? std::vector<int64_t>{} : p.sizes, spec->fill));
    return MORTISE_OK;
  }
  Tensor filled(uint32_t dtype, const std::vector<int64_t>& sizes, double fill) {
    FakeTensor* t = make_tensor(dtype, sizes);
    t->of_core = true;
    Tensor own = Tensor::own(as_handle<mortise_tensor>(t));
    for (int64_t i = 0; i < t->numel; ++i) set_element(own.get(), i, fill);
    return own;
  }
  FakeParam& allocated(FakeParam& p) {
    if (!p.master) p.master = filled(p.info.master_dtype, p.sizes, 0);
    return p;
  }
  // What is "copy" has the master as it is when `slices` is first asked for.
  FakeParam& begun(FakeParam& p) {
    for (size_t i = 0; i < p.states.size(); ++i)
      if (p.kept[i] == "copy" && !p.is_begun) copy(p.states[i].get(), allocated(p).master.get());
    p.is_begun = true;
    return allocated(p);
  }
  static mortise_slice slice_of(FakeParam& p) {
    p.handles.clear();
    for (const Tensor& t : p.states) p.handles.push_back(t.get());
    return {sizeof(mortise_slice),
            static_cast<uint32_t>(p.handles.size()),
            p.info.group,
            0,
            as_handle<mortise_param>(&p),
            &p.info,
            0,
            p.info.numel,
            p.master.get(),
            p.grad.get(),
            nullptr,
            p.handles.data()};
  }
  FakeParam* need_param(const mortise_param* handle) {
    for (const auto& p : params_)
      if (as_handle<mortise_param>(p.get()) == handle) return p.get();
    note_failure(MORTISE_E_ARGUMENT, "not a parameter of this host");
    throw HostError{MORTISE_E_ARGUMENT};
  }
  mortise_status set_dtype(const std::string& field, uint32_t& dtype, const mortise_value& v) {
    if (v.tag != MORTISE_DTYPE || !mortise_dtype_is_float(static_cast<uint32_t>(v.v.i)))
      return note_failure(MORTISE_E_ARGUMENT, "`" + field + "` takes one of the float dtypes");
    dtype = static_cast<uint32_t>(v.v.i);
    return MORTISE_OK;
  }

  mortise_status only_in_calls() {
    return is_listening ? note_failure(MORTISE_E_ARGUMENT, "only allowed inside a call") : MORTISE_OK;
  }
  // A gradient that is there is added to; a new one is to be overwritten.
  mortise_status give_target(FakeParam& p, uint32_t dtype, mortise_tensor** out, int32_t* add) {
    must_be_there(out);
    check(only_in_calls());
    *out = nullptr;
    if (!p.info.trainable || dtype != p.info.grad_dtype || (p.grad && !add)) return MORTISE_OK;
    if (add) *add = p.grad ? 1 : 0;
    if (!p.grad) {
      FakeTensor* made = make_tensor(dtype, p.sizes);
      made->of_core = true;
      p.grad = Tensor::own(as_handle<mortise_tensor>(made));
    }
    *out = Tensor::share(p.grad.get()).release();
    return MORTISE_OK;
  }
  mortise_status sum_into(FakeParam& p, mortise_tensor* contribution) {
    const FakeTensor* t = need_tensor(contribution);
    if (!mortise_dtype_is_float(t->dtype)) return note_failure(MORTISE_E_ARGUMENT, "a gradient is of a float dtype");
    if (t->sizes != p.sizes) return note_failure(MORTISE_E_SHAPE, "a gradient has the sizes of its parameter");
    if (!p.info.trainable) return MORTISE_OK;
    const bool is_first = !p.grad;
    if (is_first) p.grad = filled(p.info.grad_dtype, p.sizes, 0);
    for (int64_t i = 0; i < t->numel; ++i)
      set_element(p.grad.get(), i, (is_first ? 0 : element(p.grad.get(), i)) + element(contribution, i));
    return MORTISE_OK;
  }

  static const mortise_grads_api& grads_table() {
    static const mortise_grads_api table = {
        .struct_size = sizeof(mortise_grads_api),
        .target =
            [](mortise_host* h, mortise_param* p, uint32_t dtype, mortise_tensor** out, int32_t* add) noexcept {
              return answer(h, [&](FakeHost& f) { return f.give_target(*f.need_param(p), dtype, out, add); });
            },
        .sum =
            [](mortise_host* h, mortise_param* p, mortise_tensor* contribution) noexcept {
              return answer(h, [&](FakeHost& f) { return f.sum_into(*f.need_param(p), contribution); });
            },
        .norm =
            [](mortise_host* h, mortise_tensor** out) noexcept {
              return answer(h, [&](FakeHost& f) {
                if (f.point == "run.begin" || f.point == "step.begin" || f.point == "step.window")
                  return f.note_failure(MORTISE_E_ARGUMENT, "the norm is known in step.verdict and after");
                return *out = f.tensor<double>({}, {f.norm}).release(), mortise_status{MORTISE_OK};
              });
            },
    };
    return table;
  }

  static const mortise_batch_api& batch_table() {
    static const mortise_batch_api table = {
        .struct_size = sizeof(mortise_batch_api),
        .put =
            [](mortise_host* h, mortise_rows* handle, uint32_t row, uint32_t field, const void* elements,
               size_t bytes) noexcept {
              return answer(h, [&](FakeHost& f) {
                Rows& r = *as<Rows>(handle);
                if (row >= r.rows.size())
                  return f.note_failure(MORTISE_E_ARGUMENT, "put: no row " + std::to_string(row));
                if (field >= r.data->n_fields)
                  return f.note_failure(MORTISE_E_ARGUMENT, "put: no field " + std::to_string(field));
                const mortise_field& of_sample = r.field(field);
                const bool is_sequence = of_sample.n_sizes > 0 && of_sample.sizes[0] == -1;
                size_t whole = mortise_dtype_of(of_sample.dtype)->bytes;
                for (uint32_t i = is_sequence; i < of_sample.n_sizes; ++i)
                  whole *= static_cast<size_t>(of_sample.sizes[i]);
                if (whole == 0 || (is_sequence ? bytes % whole != 0 : bytes != 0 && bytes != whole))
                  return f.note_failure(MORTISE_E_ARGUMENT, "put: " + std::to_string(bytes) + " bytes as `" +
                                                                std::string(view(of_sample.name)) + "`");
                const auto* from = static_cast<const std::byte*>(elements);
                r.rows[row][field].assign(from, from + bytes);
                return mortise_status{MORTISE_OK};
              });
            },
        .get =
            [](mortise_host* h, const mortise_batch* b, mortise_str field, mortise_tensor** borrowed) noexcept {
              return answer(h, [&](FakeHost& f) {
                f.must_be_there(b);
                for (const auto& [name, t] : as<FakeBatch>(b)->fields)
                  if (name == view(field)) return *borrowed = t.get(), mortise_status{MORTISE_OK};
                return f.note_failure(MORTISE_E_NOT_FOUND, "the batch has no field " + std::string(view(field)));
              });
            },
        .name =
            [](mortise_host* h, const mortise_batch* b, uint32_t index, mortise_str* out) noexcept {
              return answer(h, [&](FakeHost& f) {
                f.must_be_there(b);
                const auto& fields = as<FakeBatch>(b)->fields;
                if (index >= fields.size()) return f.note_failure(MORTISE_E_NOT_FOUND, "the batch has no more fields");
                return *out = str(fields[index].first), mortise_status{MORTISE_OK};
              });
            },
        .create = [](mortise_host* h, const mortise_batch* like, mortise_batch** out) noexcept -> mortise_status {
          const std::scoped_lock lock(of(h).mutex_);
          auto* made = *of(h).batches_.insert(new FakeBatch).first;
          if (like) made->counts = as<FakeBatch>(like)->counts;
          *out = as_handle<mortise_batch>(made);
          return MORTISE_OK;
        },
        .set =
            [](mortise_host* h, mortise_batch* b, mortise_str field, mortise_tensor* t) noexcept {
              return answer(h, [&](FakeHost& f) {
                f.need_tensor(t);
                auto& fields = as<FakeBatch>(b)->fields;
                std::erase_if(fields, [&](const auto& x) { return x.first == view(field); });
                fields.emplace_back(view(field), Tensor::share(t));
                return MORTISE_OK;
              });
            },
        .retain =
            [](mortise_host* h, mortise_batch* b) noexcept {
              const std::scoped_lock lock(of(h).mutex_);
              ++as<FakeBatch>(b)->references;
            },
        .release =
            [](mortise_host* h, mortise_batch* b) noexcept {
              FakeBatch* batch = as<FakeBatch>(b);
              if (!batch) return;
              {
                const std::scoped_lock lock(of(h).mutex_);
                if (!of(h).batches_.contains(batch)) return of(h).mistakes_.push_back("a batch was released too often");
                if (--batch->references > 0) return;
                of(h).batches_.erase(batch);
              }
              delete batch;
            },
        .to_device =
            [](mortise_host* h, mortise_tensor* t, mortise_tensor** out) noexcept {
              return answer(h, [&](FakeHost& f) {
                f.need_tensor(t);
                f.count_references(t, 1);
                return *out = t, MORTISE_OK;
              });
            },
        .count =
            [](mortise_host* h, const mortise_batch* b, mortise_str unit, int64_t* n) noexcept {
              return answer(h, [&](FakeHost& f) {
                f.must_be_there(b);
                if (!n) return f.note_failure(MORTISE_E_ARGUMENT, "count: no place for the result");
                const auto& counts = as<FakeBatch>(b)->counts;
                const auto at = counts.find(view(unit));
                return *n = at == counts.end() ? 0 : at->second, mortise_status{MORTISE_OK};
              });
            },
        .set_count =
            [](mortise_host* h, mortise_batch* b, mortise_str unit, int64_t n) noexcept {
              return answer(h, [&](FakeHost& f) {
                f.must_be_there(b);
                if (n < 0) return f.note_failure(MORTISE_E_ARGUMENT, "set_count: fewer than none");
                return as<FakeBatch>(b)->counts.insert_or_assign(std::string(view(unit)), n),
                       mortise_status{MORTISE_OK};
              });
            },
    };
    return table;
  }

  // Operators are kept by plugins beyond a host's life (ops.hpp looks each up once), so their names live as long as the
  // process.
  static const mortise_ops_api& ops_table() {
    static const mortise_ops_api table = {
        .struct_size = sizeof(mortise_ops_api),
        .find =
            [](mortise_host* h, mortise_str schema, mortise_op** out) noexcept {
              return answer(h, [&](FakeHost& f) {
                static std::set<std::string> names;
                if (!f.ops_.contains(std::string(view(schema))))
                  return f.note_failure(MORTISE_E_NOT_FOUND,
                                        "the test defines no operator " + std::string(view(schema)));
                *out = as_handle<mortise_op>(const_cast<std::string*>(&*names.emplace(view(schema)).first));
                return mortise_status{MORTISE_OK};
              });
            },
        .call =
            [](mortise_host* h, const mortise_op* o, const mortise_value* args, uint32_t n, mortise_value* results,
               uint32_t m, uint32_t* n_results) noexcept {
              return answer(h, [&](FakeHost& f) {
                std::vector<Tensor> all = f.ops_.at(*as<std::string>(o))({args, n});
                for (uint32_t i = 0; i < m && i < all.size(); ++i) results[i] = value(all[i]), all[i].release();
                *n_results = static_cast<uint32_t>(all.size());
                return MORTISE_OK;
              });
            },
        .call1 =
            [](mortise_host* h, const mortise_op* o, const mortise_value* args, uint32_t n,
               mortise_tensor** out) noexcept {
              return answer(h, [&](FakeHost& f) {
                std::vector<Tensor> all = f.ops_.at(*as<std::string>(o))({args, n});
                if (all.size() != 1) return f.note_failure(MORTISE_E_ARGUMENT, "it does not return one tensor");
                *out = all[0].release();
                return mortise_status{MORTISE_OK};
              });
            },
    };
    return table;
  }

  static const mortise_parallel_api& parallel_table() {
    static const mortise_parallel_api table = {
        .struct_size = sizeof(mortise_parallel_api),
        .run = [](mortise_host* h, int64_t n, int64_t grain, void (*body)(void*, int64_t, int64_t) noexcept,
                  void* user) noexcept -> mortise_status {
          if (!body) return of(h).note_failure(MORTISE_E_ARGUMENT, "called with NULL for what is to run");
          const int64_t piece = std::max<int64_t>({grain, 1, (n + 2) / 3});
          for (int64_t i = (n + piece - 1) / piece; i-- > 0;) body(user, i * piece, std::min(n, (i + 1) * piece));
          return MORTISE_OK;
        },
        .threads = [](mortise_host* h, int32_t* out) noexcept -> mortise_status {
          return *out = of(h).threads, MORTISE_OK;
        },
        .set_threads = [](mortise_host* h, int32_t n) noexcept -> mortise_status {
          if (n < 1) return of(h).note_failure(MORTISE_E_ARGUMENT, "no threads compute nothing");
          return of(h).threads = n, MORTISE_OK;
        },
    };
    return table;
  }

  static const mortise_random_api& random_table() {
    static const mortise_random_api table = {
        .struct_size = sizeof(mortise_random_api),
        .site = [](mortise_host* h, const mortise_call* call, uint32_t draw,
                   mortise_philox* out) noexcept -> mortise_status {
          const FakeHost& f = of(h);
          *out = {{static_cast<uint32_t>(f.seed), static_cast<uint32_t>(f.seed >> 32)},
                  draw,
                  static_cast<uint32_t>(f.clock.attempted),
                  static_cast<uint32_t>(call ? call->micro : 0)};
          return MORTISE_OK;
        },
        .stream = [](mortise_host* h, mortise_str name, mortise_philox* out) noexcept -> mortise_status {
          FakeHost& f = of(h);
          if (!out) return f.note_failure(MORTISE_E_ARGUMENT, "NULL for the place");
          *out = {{static_cast<uint32_t>(f.seed), static_cast<uint32_t>(f.seed >> 32)},
                  static_cast<uint32_t>(std::hash<std::string_view>()(view(name))),
                  static_cast<uint32_t>(f.clock.attempted),
                  0};
          for (const auto& [p, part] : f.cuts)  // each part has bits of its own
            if (view(name) == view(info_of(p).name)) out->micro = static_cast<uint32_t>(part);
          return MORTISE_OK;
        },
    };
    return table;
  }

  static const mortise_model_api& model_table() {
    static const mortise_model_api table = {
        .struct_size = sizeof(mortise_model_api),
        .forward =
            [](mortise_host* h, mortise_batch* b, uint32_t mode, uint32_t want, mortise_value* results,
               uint32_t n) noexcept {
              return answer(h, [&](FakeHost& f) {
                f.must_be_there(b);
                if (mode >= MORTISE_MODES) return f.note_failure(MORTISE_E_ARGUMENT, "there is no such mode");
                return f.model(b, mode, want, results, n);
              });
            },
    };
    return table;
  }

  static const mortise_tokenizer_api& tokenizer_table() {
    static const mortise_tokenizer_api table = {
        .struct_size = sizeof(mortise_tokenizer_api),
        .size = [](mortise_host* h, int64_t* out) noexcept -> mortise_status {
          return *out = of(h).tokenizer_->size, MORTISE_OK;
        },
        .encode =
            [](mortise_host* h, mortise_str text, int64_t* ids, size_t room, size_t* needed) noexcept {
              return answer(h, [&](FakeHost& f) {
                const std::vector<int64_t> all = f.tokenizer_->encode(view(text));
                *needed = all.size();
                if (all.size() <= room) std::copy(all.begin(), all.end(), ids);
                return MORTISE_OK;
              });
            },
        .decode =
            [](mortise_host* h, const int64_t* ids, size_t n, char* text, size_t room, size_t* needed) noexcept {
              return answer(h, [&](FakeHost& f) {
                const std::string all = f.tokenizer_->decode({ids, n});
                *needed = all.size();
                if (all.size() <= room) std::copy(all.begin(), all.end(), text);
                return MORTISE_OK;
              });
            },
        .special =
            [](mortise_host* h, mortise_str role, int64_t* id) noexcept {
              return answer(h, [&](FakeHost& f) -> mortise_status {
                const auto found = f.tokenizer_->special.find(view(role));
                if (found == f.tokenizer_->special.end())
                  return f.note_failure(MORTISE_E_NOT_FOUND, "no such special token");
                return *id = found->second, MORTISE_OK;
              });
            },
    };
    return table;
  }

  mutable std::mutex mutex_;
  std::string error_;
  mortise_status status_ = MORTISE_OK;
  std::vector<std::string> mistakes_;
  uintptr_t queues_ = 0;
  std::set<FakeTensor*> tensors_;
  std::set<FakeBatch*> batches_;
  std::map<std::string, std::unique_ptr<Setting>, std::less<>> config_;
  std::map<std::string, const void*, std::less<>> tables_;
  std::map<std::string, std::function<std::vector<Tensor>(std::span<const mortise_value>)>> ops_;
  std::vector<std::unique_ptr<FakeParam>> params_;
  std::vector<mortise_slice> slices_;
  std::optional<FakeTokenizer> tokenizer_;
  mortise_ledger ledger_{};
  std::vector<Tensor> ledger_tensors_;
};

// The fields of one sample whose elements are T. Fields of other types are not in the map, and not taken for empty.
template <class T>
struct FakeSample : std::map<std::string, std::vector<T>> {
  using Fields = std::map<std::string, std::vector<T>>;
  std::map<std::string, std::string> of_other_types;
  std::vector<T>& operator[](const std::string& name) {
    refuse_other(name);
    return Fields::operator[](name);
  }
  const std::vector<T>& at(const std::string& name) const {
    refuse_other(name);
    return Fields::at(name);
  }

 private:
  void refuse_other(const std::string& name) const {
    const auto other = of_other_types.find(name);
    if (other != of_other_types.end())
      throw std::invalid_argument("the field `" + name + "` is " + other->second +
                                  ": ask for it with samples<T> of its type, such as samples<float> for F32");
  }
};

// An instance of a plugin, as a run makes it. Its library stays loaded.
class Plugin {
 public:
  Plugin(FakeHost& host, const std::string& file) : Plugin(host) {  // from here on the destructor runs
    void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library) throw PluginError(MORTISE_E_PLUGIN, dlerror());
    const auto entry = reinterpret_cast<const mortise_plugin* (*)() noexcept>(dlsym(library, "mortise_plugin_v0"));
    if (!entry) throw PluginError(MORTISE_E_PLUGIN, file + " exports no mortise_plugin_v0");
    plugin_ = entry();
    if (plugin_->abi_major != MORTISE_ABI_MAJOR) throw PluginError(MORTISE_E_PLUGIN, "another ABI");
    host.point = "";
    host.manifest = manifest();
    host.failure = "";
    host.blobs.clear();
    if (const mortise_status s = plugin_->create(&host, &self_)) throw PluginError(s, host.error());
    // As in a run: it said that it failed, whatever it returned.
    if (!host.failure.empty()) throw PluginError(MORTISE_E_PLUGIN, host.failure);
    list_attachments();
  }
  Plugin(const Plugin&) = delete;
  Plugin& operator=(const Plugin&) = delete;
  ~Plugin() {
    if (self_) plugin_->destroy(self_);
    host_.manifest = {};
  }

  void* self() const { return self_; }
  std::string_view manifest() const { return view(plugin_->manifest); }
  std::span<const mortise_attachment> attachments() const { return attachments_; }

  // The object that it provides at a point.
  template <class T>
  const T& object(std::string_view point) const {
    return *static_cast<const T*>(at(point, [](const mortise_attachment& a) { return a.object; }).object);
  }
  // Tells its listener of a point.
  mortise_status notify(std::string_view point, mortise_event event = {}) {
    const mortise_attachment& a = at(point, [](const mortise_attachment& x) { return x.listen; });
    event.struct_size = sizeof event;
    host_.point = point;
    host_.record = event.record;
    host_.is_listening = true;
    host_.reported_in_event.clear();
    const mortise_status s = a.listen(self_, &event);
    host_.is_listening = false;
    host_.record = nullptr;
    host_.point = "";
    return s;
  }
  mortise_status notify(std::string_view point, FakeRecord& record) {
    mortise_event event{};
    event.record = record.get();
    host_.columns = FakeRecord("");
    return notify(point, event);
  }
  mortise_status notify(std::string_view point, FakeRecord&& record) { return notify(point, record); }
  // What a checkpoint would hold of a blob, which is UTF-8, and the way back.
  std::string saved(const std::string& blob) const {
    std::string text;
    const mortise_sink sink = {sizeof sink, 0, &text,
                               [](void* user, const void* data, uint64_t bytes) noexcept -> mortise_status {
                                 static_cast<std::string*>(user)->append(static_cast<const char*>(data), bytes);
                                 return MORTISE_OK;
                               }};
    if (const mortise_status s = host_.blobs.at(blob)->save(self_, &sink)) throw PluginError(s, host_.error());
    if (!is_utf8(text)) throw PluginError(MORTISE_E_PLUGIN, "the state `" + blob + "` that it keeps is not UTF-8");
    return text;
  }
  mortise_status load(const std::string& blob, uint32_t version, const std::string& text) {
    return host_.blobs.at(blob)->load(self_, version, {text.data(), text.size()});
  }
  // Calls its provider of a call.
  mortise_status call(std::string_view point, mortise_call& call) {
    host_.point = point;
    const mortise_status s = at(point, [](const mortise_attachment& x) { return x.provide; }).provide(self_, &call);
    host_.point = "";
    return s;
  }

  // What a data plugin says of a split. Throws PluginError if it refuses.
  mortise_split describe(std::string_view split) const {
    mortise_split out{};
    out.struct_size = sizeof out;
    out.samples = -1;
    if (const mortise_status s = object<mortise_data>("data").describe(self_, str(split), &out))
      throw PluginError(s, host_.error());
    return out;
  }
  // The groups of a split of a data plugin, with how many samples each has. Throws PluginError if it refuses.
  std::vector<std::pair<std::string, int64_t>> groups(std::string_view split) const {
    const mortise_data& data = object<mortise_data>("data");
    const mortise_group* groups = nullptr;
    uint32_t n = 0;
    if (MORTISE_HAS(&data, groups))
      if (const mortise_status s = data.groups(self_, str(split), &groups, &n)) throw PluginError(s, host_.error());
    std::vector<std::pair<std::string, int64_t>> all;
    for (uint32_t i = 0; i < n; ++i) all.emplace_back(view(groups[i].name), groups[i].samples);
    return all;
  }
  // The names of a data plugin's classes. Throws PluginError if it refuses.
  std::vector<std::string> classes() const {
    const mortise_data& data = object<mortise_data>("data");
    const mortise_str* names = nullptr;
    uint32_t n = 0;
    if (MORTISE_HAS(&data, classes))
      if (const mortise_status s = data.classes(self_, &names, &n)) throw PluginError(s, host_.error());
    std::vector<std::string> all;
    for (uint32_t i = 0; i < n; ++i) all.emplace_back(view(names[i]));
    return all;
  }
  // What a data plugin puts for these numbers, in this epoch: one map of field to elements a sample. T is the element
  // type of the fields that it has; who asks for one of another type is told. Throws PluginError if it refuses.
  template <class T = int64_t>
  std::vector<FakeSample<T>> samples(std::string_view split, const std::vector<int64_t>& numbers,
                                     int64_t epoch = 0) const {
    const mortise_data& data = object<mortise_data>("data");
    FakeHost::Rows rows{&data, std::vector<std::map<uint32_t, std::vector<std::byte>>>(numbers.size())};
    const std::vector<int64_t> epochs(numbers.size(), epoch);
    if (const mortise_status s =
            data.get(self_, str(split), numbers.data(), epochs.data(), static_cast<uint32_t>(numbers.size()),
                     reinterpret_cast<mortise_rows*>(&rows)))
      throw PluginError(s, host_.error());
    std::vector<FakeSample<T>> all(numbers.size());
    for (size_t i = 0; i < all.size(); ++i)
      for (const auto& [index, bytes] : rows.rows[i]) {
        const mortise_field& field = rows.field(index);
        const std::string name(view(field.name));
        if (field.dtype != dtype_of<T>()) {
          all[i].of_other_types[name] = mortise_dtype_of(field.dtype)->safetensors;
          continue;
        }
        std::vector<T>& elements = all[i][name];
        elements.resize(bytes.size() / sizeof(T));
        std::copy(bytes.begin(), bytes.end(), reinterpret_cast<std::byte*>(elements.data()));
      }
    return all;
  }

 private:
  explicit Plugin(FakeHost& host) : host_(host) {}
  void list_attachments() {
    const mortise_attachment* first = nullptr;
    uint32_t n = 0, stride = 0;
    if (const mortise_status s = plugin_->attachments(self_, &first, &n, &stride)) throw PluginError(s, host_.error());
    for (uint32_t i = 0; i < n; ++i) {
      const auto* a =
          reinterpret_cast<const mortise_attachment*>(reinterpret_cast<const char*>(first) + size_t{i} * stride);
      if (manifest().find('"' + std::string(view(a->point)) + '"') == std::string_view::npos)
        throw PluginError(MORTISE_E_PLUGIN,
                          "attaches to " + std::string(view(a->point)) + ", which plugin.toml does not name");
      attachments_.push_back(*a);
    }
  }
  template <class Member>
  const mortise_attachment& at(std::string_view point, Member member) const {
    for (const mortise_attachment& a : attachments_)
      if (view(a.point) == point && member(a)) return a;
    throw PluginError(MORTISE_E_NOT_FOUND, "it does not attach to " + std::string(point) + " in this way");
  }

  FakeHost& host_;
  const mortise_plugin* plugin_ = nullptr;
  void* self_ = nullptr;
  std::vector<mortise_attachment> attachments_;
};

}  // namespace mortise::testing
