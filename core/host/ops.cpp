// mortise.ops/0: LibTorch's operators, boxed. What makes a call cheap: operators are interned, arguments are an array
// of 24-byte values, the IValue stacks are kept a thread and a depth (an operator may call a plugin that calls an
// operator), and results are moved out.
#include <ATen/core/List.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <torch/headeronly/version.h>

#include <memory>
#include <mutex>
#include <unordered_map>

#include "core/abi/error.hpp"
#include "core/host/handle.hpp"
#include "core/host/tables.hpp"

namespace {
// How an argument of a schema wants its IValue, and which tags it takes, as bits.
enum class Form : uint8_t { kAsGiven, kTensor, kFloat, kBool, kBools, kOptionalTensors };
struct Want {
  Form form = Form::kAsGiven;
  uint32_t tags = ~0u;
};
}  // namespace

struct mortise_op {
  c10::OperatorHandle handle;
  std::string name;
  std::vector<Want> wants;
};

namespace mortise {
namespace {

using Stack = torch::jit::Stack;

class StackLease {
 public:
  StackLease() {
    if (depth_ == pool_.size()) {
      pool_.push_back(std::make_unique<Stack>());
      pool_.back()->reserve(16);
    }
    stack_ = pool_[depth_++].get();
  }
  ~StackLease() {
    stack_->clear();
    --depth_;
  }
  StackLease(const StackLease&) = delete;
  StackLease& operator=(const StackLease&) = delete;
  Stack& operator*() const { return *stack_; }

 private:
  static thread_local std::vector<std::unique_ptr<Stack>> pool_;
  static thread_local size_t depth_;
  Stack* stack_;
};
thread_local std::vector<std::unique_ptr<Stack>> StackLease::pool_;
thread_local size_t StackLease::depth_ = 0;

template <class... Tag>
constexpr uint32_t bits(Tag... tag) {
  return ((1u << tag) | ...);
}

Want want_of(c10::TypePtr type) {
  using Kind = c10::TypeKind;
  static const std::unordered_map<Kind, Want> one = {
      {Kind::TensorType, {Form::kTensor, bits(MORTISE_TENSOR, MORTISE_NONE)}},
      {Kind::FloatType, {Form::kFloat, bits(MORTISE_FLOAT, MORTISE_INT)}},
      {Kind::BoolType, {Form::kBool, bits(MORTISE_LOGICAL, MORTISE_INT)}},
      {Kind::NumberType, {Form::kAsGiven, bits(MORTISE_INT, MORTISE_FLOAT, MORTISE_LOGICAL)}},
      {Kind::IntType, {Form::kAsGiven, bits(MORTISE_INT)}},
      {Kind::SymIntType, {Form::kAsGiven, bits(MORTISE_INT)}},
      {Kind::ScalarTypeType, {Form::kAsGiven, bits(MORTISE_DTYPE, MORTISE_INT)}},
      {Kind::StringType, {Form::kAsGiven, bits(MORTISE_TEXT)}}};
  static const std::unordered_map<Kind, Want> several = {
      {Kind::TensorType, {Form::kAsGiven, bits(MORTISE_TENSORS)}},
      {Kind::OptionalType, {Form::kOptionalTensors, bits(MORTISE_TENSORS)}},
      {Kind::FloatType, {Form::kAsGiven, bits(MORTISE_FLOATS)}},
      {Kind::BoolType, {Form::kBools, bits(MORTISE_INTS)}},
      {Kind::IntType, {Form::kAsGiven, bits(MORTISE_INTS)}},
      {Kind::SymIntType, {Form::kAsGiven, bits(MORTISE_INTS)}}};
  const auto optional = type->cast<c10::OptionalType>();
  if (optional) type = optional->getElementType();
  const auto list = type->cast<c10::ListType>();
  const auto& known = list ? several : one;
  const auto found = known.find(list ? list->getElementType()->kind() : type->kind());
  Want want = found == known.end() ? Want{} : found->second;
  if (optional && want.form == Form::kTensor) want.form = Form::kAsGiven;  // absent is None, not an undefined tensor
  if (optional) want.tags |= bits(MORTISE_NONE);
  return want;
}

[[noreturn, gnu::noinline]] void refuse(const mortise_op& op, uint32_t index, uint32_t tag) {
  constexpr const char* kNames[] = {"nothing", "a tensor",  "a list of tensors", "an int",           "a float",
                                    "a bool",  "a text",    "a list of ints",    "a list of floats", "a list of texts",
                                    "a dtype", "an amount", "a batch",           "a parameter"};
  const c10::Argument& a = op.handle.schema().arguments()[index];
  const char* given = tag < std::size(kNames) ? kNames[tag] : "an unknown tag";
  throw PluginError(MORTISE_E_ARGUMENT, c10::str(op.name, ": argument ", index, " `", a.name(), "` takes ",
                                                 a.real_type()->str(), "; this is ", given));
}

template <class Element, class ElementAt>
void push_list(Stack& s, uint32_t n, ElementAt at) {
  c10::List<Element> l;
  l.reserve(n);
  for (uint32_t i = 0; i < n; ++i) l.push_back(at(i));
  s.emplace_back(std::move(l));
}

void push(Stack& s, const mortise_value& v, Form form) {
  switch (v.tag) {
    case MORTISE_NONE:
      if (form == Form::kTensor) s.emplace_back(at::Tensor());
      else s.emplace_back();
      return;
    case MORTISE_TENSOR: s.emplace_back(share(v.v.t)); return;
    case MORTISE_TENSORS: {
      const auto tensor = [&](uint32_t i) { return share(v.v.ts[i]); };
      const auto optional = [&](uint32_t i) { return v.v.ts[i] ? std::optional(tensor(i)) : std::nullopt; };
      if (form == Form::kOptionalTensors) push_list<std::optional<at::Tensor>>(s, v.count, optional);
      else push_list<at::Tensor>(s, v.count, tensor);
      return;
    }
    case MORTISE_INT:
      if (form == Form::kFloat) s.emplace_back(static_cast<double>(v.v.i));
      else if (form == Form::kBool) s.emplace_back(v.v.i != 0);
      else s.emplace_back(v.v.i);
      return;
    case MORTISE_FLOAT: s.emplace_back(v.v.f); return;
    case MORTISE_LOGICAL: s.emplace_back(v.v.i != 0); return;
    case MORTISE_DTYPE: s.emplace_back(static_cast<int64_t>(scalar_type(static_cast<uint32_t>(v.v.i)))); return;
    case MORTISE_INTS:  // also the form in which a bool[3] is written
      if (form == Form::kBools) push_list<bool>(s, v.count, [&](uint32_t i) { return v.v.is[i] != 0; });
      else s.emplace_back(c10::List<int64_t>(c10::ArrayRef<int64_t>(v.v.is, v.count)));
      return;
    case MORTISE_FLOATS: s.emplace_back(c10::List<double>(c10::ArrayRef<double>(v.v.fs, v.count))); return;
    case MORTISE_TEXT: s.emplace_back(std::string(view(v.v.s))); return;
    default:
      throw PluginError(MORTISE_E_ARGUMENT,
                        "a value of tag " + std::to_string(v.tag) + " is no argument of an operator");
  }
}

void run(const mortise_op& op, Stack& s, const mortise_value* args, uint32_t n) {
  if (n != op.wants.size())
    throw PluginError(MORTISE_E_ARGUMENT, op.name + ": " + std::to_string(n) + " arguments given, the schema has " +
                                              std::to_string(op.wants.size()));
  for (uint32_t i = 0; i < n; ++i) {
    const Want want = op.wants[i];
    if (args[i].tag > 31 || !(want.tags >> args[i].tag & 1)) [[unlikely]]
      refuse(op, i, args[i].tag);
    push(s, args[i], want.form);
  }
  op.handle.callBoxed(s);
}

void find(mortise_host*, mortise_str schema, mortise_op** out) {
  static std::mutex mutex;
  static std::unordered_map<std::string, std::unique_ptr<mortise_op>> interned;
  const std::string name(view(schema));
  std::lock_guard lock(mutex);
  auto& op = interned[name];
  if (!op) {
    const size_t dot = name.find('.', name.find("::") == std::string::npos ? 0 : name.find("::"));
    const auto handle = c10::Dispatcher::singleton().findSchema(
        {name.substr(0, dot), dot == std::string::npos ? "" : name.substr(dot + 1)});
    if (!handle) {
      interned.erase(name);
      throw PluginError(MORTISE_E_NOT_FOUND,
                        "operator " + name + " does not exist in LibTorch " + std::string(TORCH_VERSION));
    }
    op = std::make_unique<mortise_op>(mortise_op{*handle, name, {}});
    for (const auto& a : handle->schema().arguments()) op->wants.push_back(want_of(a.real_type()));
  }
  *out = op.get();
}

// Collects results into an array; what does not fit is released.
struct Results {
  mortise_value* to;
  uint32_t room, count = 0;
  void put(mortise_value v) {
    if (count < room) to[count] = v;
    else if (v.tag == MORTISE_TENSOR) take(v.v.t);
    ++count;
  }
  void put(c10::IValue&& iv) {
    if (iv.isTensor()) put(value_of(std::move(iv).toTensor()));
    else if (iv.isTensorList())
      for (at::Tensor t : iv.toTensorVector()) put(value_of(std::move(t)));
    else if (iv.isInt()) put({MORTISE_INT, 0, {.i = iv.toInt()}});
    else if (iv.isDouble()) put({MORTISE_FLOAT, 0, {.f = iv.toDouble()}});
    else if (iv.isBool()) put({MORTISE_LOGICAL, 0, {.i = iv.toBool()}});
    else put({MORTISE_NONE, 0, {.i = 0}});
  }
};

void call(mortise_host*, const mortise_op* op, const mortise_value* args, uint32_t n, mortise_value* results,
          uint32_t m, uint32_t* count) {
  StackLease lease;
  run(*op, *lease, args, n);
  Results r{results, m};
  for (auto& iv : *lease) r.put(std::move(iv));
  if (count) *count = r.count;
}

void call1(mortise_host*, const mortise_op* op, const mortise_value* args, uint32_t n, mortise_tensor** out) {
  StackLease lease;
  run(*op, *lease, args, n);
  Stack& s = *lease;
  if (s.size() != 1 || !s[0].isTensor())
    throw PluginError(MORTISE_E_ARGUMENT, op->name + " does not return one tensor");
  *out = give(std::move(s[0]).toTensor());
}

}  // namespace

const mortise_ops_api kOpsApi = {sizeof(mortise_ops_api), at_edge<find>, at_edge<call>, at_edge<call1>};

}  // namespace mortise
