// A host for C++ tests of what runs over it, without the loop: real tables, real autograd, CPU.
//
//   using namespace mortise::testing;
//   TEST(Linear, HasTheGradientsOfATen) {
//     TestHost host;
//     host.load(MORTISE_PLUGIN_FILE);  // a plugin's library with its .toml beside it: operators, wrappers, a model
//     mortise_layer* linear = nullptr;
//     host.declare([&](Builder& b) {  // the model; parameters are allocated when this returns
//       b.segment("h.0");
//       linear = b.layer("linear", "h.0.fc", {{"in", 8}, {"out", 4}});
//     });
//     const at::Tensor x = random({2, 8}, 1);
//     host.step(2, [&](Call& c) { return c.layer(linear, {x})[0].sum(); });  // two micro-batches: forward, backward
//     auto p = host.leaves();  // the same values as plain leaves, for ATen's own autograd
//     (at::linear(x, p["h.0.fc.weight"], p["h.0.fc.bias"]).sum() * 2).backward();
//     EXPECT_TRUE(bitwise(host.grad("h.0.fc.weight"), p["h.0.fc.weight"].grad()));
//   }
//
// Who takes part
//   load(library, {{"p", Value{0.1}}}, "*")  a real plugin, created with its defaults and these values; `where` below
//   provide("linear", Operator{…}, "h.*")    an operator made of functions of the test; the last that fits a path
//   wrap("block", "test.id", fn, "h.1")      a wrapper made of a function; outermost first, in the order of the calls.
//                                            Also "forward" and operators
//   window("test.id")                        a mortise_host * for code of the test's that calls the tables itself
// The model
//   declare(fn)                              from a function: b.segment(path, flags, body), b.layer, b.param; set
//                                            `param->info.trainable` there
//   declare()                                the loaded plugin that provides `model`; facts before:
//                                            host.facts()["vocabulary"] = 61
// Running
//   step(micros, loss)                       `loss` runs inside `forward` for each micro-batch; backward follows.
//                                            Frozen or unused is fine
//   begin_step, begin_micro, forward, backward
//                                            the same by hand; `pass` says mode, flags, compute dtype, want, batch
//   c.layer(l, {args}, n)  c.segment(i, {args}, n)  c.model({args}, n)
//                                            n results, undefined where the provider gave none
// What came of it
//   value(name), grad(name)                  grad is undefined if the parameter got none in this step
//   log                                      what happened, in order: "forward linear h.0.fc",
//                                            "backward linear h.0.fc", "ready h.0.fc.weight" (in the last micro-batch;
//                                            before, "summed h.0.fc.weight")
// Whatever fails throws PluginError (core/abi/error.hpp) with the text that a person would see.
#pragma once
#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/abi/error.hpp"
#include "core/host/batch.hpp"
#include "core/host/host.hpp"
#include "core/plan/points.hpp"
#include "core/plugin/plugin_info.hpp"
#include "mortise/mortise.h"

namespace mortise::testing {

class TestHost;

// An argument or an attribute. Borrows tensor and text: good inside one full expression.
struct Arg : mortise_value {
  Arg(const at::Tensor& t);
  Arg(int i) : mortise_value{MORTISE_INT, 0, {.i = i}} {}
  Arg(int64_t i) : mortise_value{MORTISE_INT, 0, {.i = i}} {}
  Arg(double f) : mortise_value{MORTISE_FLOAT, 0, {.f = f}} {}
  Arg(bool b) : mortise_value{MORTISE_LOGICAL, 0, {.i = b}} {}
  Arg(const char* s) : mortise_value{MORTISE_TEXT, 0, {.s = {s, std::char_traits<char>::length(s)}}} {}
  Arg(const std::string& s) : mortise_value{MORTISE_TEXT, 0, {.s = {s.data(), s.size()}}} {}
  Arg(mortise_param* p) : mortise_value{MORTISE_PARAM, 0, {.p = p}} {}
  Arg(const mortise_value& other) : mortise_value(other) {}
};
struct Attr {
  const char* key;
  Arg value;
};
using Args = std::vector<Arg>;
using Tensors = std::vector<at::Tensor>;

// The call under way, as functions of a test see it.
class Call {
 public:
  Call(TestHost& h, mortise_call& r) : host(h), record(r) {}
  TestHost& host;
  mortise_call& record;
  std::string path() const { return {record.path.ptr, record.path.len}; }
  at::Tensor arg(uint32_t i) const;
  void give(uint32_t i, at::Tensor t);
  at::Tensor use(mortise_param* p);
  at::Tensor use(const std::string& name);
  Tensors layer(mortise_layer* l, const Args& args, uint32_t n_results = 1);
  Tensors segment(size_t index, const Args& args, uint32_t n_results = 1);  // with the wrappers of `block` if it is one
  Tensors model(const Args& args,
                uint32_t n_results = 1);  // every segment in order; args to the first, results to the next
};

// Forward and backward of an operator that a test makes of functions.
class Forward : public Call {
 public:
  Forward(TestHost& h, mortise_call& r, mortise_saved* s, uint32_t* n) : Call(h, r), saved_(s), n_(n) {}
  void save_input(uint32_t i) { saved_[(*n_)++] = {MORTISE_SAVE_INPUT, i, nullptr}; }
  void save_output(uint32_t i) { saved_[(*n_)++] = {MORTISE_SAVE_OUTPUT, i, nullptr}; }
  void save(at::Tensor own);
  void save_cast(uint32_t i, at::Tensor cast);

 private:
  mortise_saved* saved_;
  uint32_t* n_;
};
class Backward : public Call {
 public:
  Backward(TestHost& h, mortise_call& r, mortise_backward& b) : Call(h, r), record_b(b) {}
  mortise_backward& record_b;
  at::Tensor saved(uint32_t i) const;
  at::Tensor grad(uint32_t result = 0) const;  // undefined: none came
  bool wants(uint32_t arg) const { return (record_b.wanted >> arg & 1) != 0; }
  void give_grad(uint32_t arg, at::Tensor g);
  void sum(const std::string& param, const at::Tensor& contribution);
  // Undefined: sum instead. Without `add` only what is to be overwritten.
  at::Tensor target(const std::string& param, uint32_t dtype = MORTISE_F32, int32_t* add = nullptr);
};

class Builder;
struct Operator {
  std::function<void(Builder&, const std::string& path)> declare;  // may be empty
  std::function<void(Forward&)> forward;
  std::function<void(Backward&)> backward;  // empty: a composite
  std::string plugin = "test.operators";
  std::vector<std::string> dtypes = {};  // of its results, as [operator.NAME] says them
};
using Wrapper = std::function<void(Call&, mortise_next*)>;
using Body = std::function<void(Call&)>;

struct ParamOptions {
  std::string init = "normal";
  double scale = 0.5;
  mortise_param* tie = nullptr;
};

class Builder {
 public:
  Builder(TestHost& h, mortise_builder& b) : host_(h), builder_(b) {}
  // `body` gives the segment's results; without one the segment cannot be run by c.segment, but layers may belong to
  // it.
  void segment(const std::string& path, uint32_t flags = 0, Body body = {});
  mortise_layer* layer(const std::string& slot, const std::string& path, const std::vector<Attr>& attrs = {});
  mortise_param* param(const std::string& name, std::vector<int64_t> sizes, ParamOptions options = {},
                       const std::string& role = "matrix");
  mortise_param* find(const std::string& name);  // throws

 private:
  TestHost& host_;
  mortise_builder& builder_;
};

// What the frame of `forward` says.
struct Pass {
  uint32_t mode = MORTISE_TRAIN, flags = MORTISE_GRAD, compute_dtype = MORTISE_NO_DTYPE, want = 0;
  mortise_batch* batch = nullptr;
};

struct Plugin {
  std::unique_ptr<PluginInfo> info;
  std::unique_ptr<PluginTable> table;
  PluginHost* window = nullptr;
  const mortise_plugin* descriptor = nullptr;
  void* self = nullptr;
  std::vector<const mortise_attachment*> attachments;
  const mortise_attachment& at(std::string_view point) const;  // throws
};

class TestHost {
 public:
  explicit TestHost(uint64_t seed = 1);
  ~TestHost();
  TestHost(const TestHost&) = delete;
  TestHost& operator=(const TestHost&) = delete;

  Plugin& load(const std::string& library, std::map<std::string, Value> values = {}, const std::string& where = "*");
  PluginHost& window(const std::string& id);
  void provide(const std::string& slot, Operator op, const std::string& where = "*");
  void wrap(const std::string& point, const std::string& plugin, Wrapper fn, const std::string& where = "*");

  std::map<std::string, int64_t>& facts() { return host.declaration().facts; }
  void declare(const std::function<void(Builder&)>& fn);
  void declare();

  Pass pass;
  void step(int micros, const std::function<at::Tensor(Call&)>& loss);
  void begin_step();
  void begin_micro(int micro, bool last);
  at::Tensor forward(const std::function<at::Tensor(Call&)>& body);  // grad mode by pass.flags
  void backward(const at::Tensor& root, uint32_t flags = 0, at::Tensor seed = {});

  mortise_param* param(const std::string& name);  // throws
  at::Tensor value(const std::string& name);      // the master
  at::Tensor grad(const std::string& name);       // a copy
  std::map<std::string, at::Tensor>
  leaves();  // a leaf for each parameter, under each of its names; frozen ones do not require a gradient
  size_t count(std::string_view beginning) const;  // lines of the log that begin so

  std::vector<std::string> log;
  Host& get() { return host; }

 private:
  friend class Call;
  friend class Builder;
  struct Provider;
  struct Wrap;
  struct SegmentBody {
    Body body;
    const mortise_next* chain = nullptr;
  };
  Provider& provider_of(const mortise_layer& layer);
  void declare_layer(mortise_builder& b, mortise_layer& layer, const mortise_layer_spec& spec);
  void build_chains();
  mortise_next* wrapped(const std::string& point, const std::string& path, mortise_next* inner);
  uint32_t point(const std::string& name, const std::vector<std::string>& dtypes = {});

  struct Loop;

  PointTable points_;
  std::unique_ptr<Loop> loop_;
  Host host;
  std::map<std::string, PluginHost*> windows_;
  std::deque<Plugin> plugins_;
  std::deque<Provider> providers_;
  std::deque<Wrap> wraps_;
  std::deque<SegmentBody> segments_;
  const mortise_attachment* model_ = nullptr;
  Plugin* model_plugin_ = nullptr;
  const mortise_next* forward_ = nullptr;
  const std::function<at::Tensor(Call&)>* body_ = nullptr;
  at::Tensor result_;
  int micro_ = 0;
  bool last_ = true;
};

// Normal numbers that depend on `seed` alone.
at::Tensor random(at::IntArrayRef sizes, uint64_t seed, at::ScalarType dtype = at::kFloat);
at::Tensor random_ints(at::IntArrayRef sizes, int64_t below, uint64_t seed);
// The same dtype, sizes and bits; both undefined is the same too.
::testing::AssertionResult bitwise(const at::Tensor& a, const at::Tensor& b);
// A list for a plugin's configuration.
Value texts(const std::vector<std::string>& list);
// The status and the text of what `body` throws.
struct Thrown {
  mortise_status status = MORTISE_OK;
  std::string text;
};
Thrown thrown(const std::function<void()>& body);

}  // namespace mortise::testing
