// mortise.ops/0: LibTorch's operators, boxed. What makes a call cheap: operators are interned, arguments are an array of 24-byte values, the IValue stacks
// are kept a thread and a depth (an operator may call a plugin that calls an operator), and results are moved out.
#include <ATen/core/List.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <torch/headeronly/version.h>

#include <memory>
#include <mutex>
#include <unordered_map>

#include "core/host/error.hpp"
#include "core/host/handle.hpp"
#include "core/host/tables.hpp"

namespace {
// How an argument of a schema wants its IValue.
enum class Want : uint8_t { kAny, kFloat, kBool, kBools, kOptionalTensors };
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

Want want_of(const c10::Argument& a) {
  c10::TypePtr type = a.real_type();
  if (auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
  if (type->kind() == c10::TypeKind::FloatType) return Want::kFloat;
  if (type->kind() == c10::TypeKind::BoolType) return Want::kBool;
  if (auto list = type->cast<c10::ListType>()) {
    if (list->getElementType()->kind() == c10::TypeKind::OptionalType) return Want::kOptionalTensors;
    if (list->getElementType()->kind() == c10::TypeKind::BoolType) return Want::kBools;
  }
  return Want::kAny;
}

void push_tensors(Stack& s, const mortise_value& v, Want want) {
  if (want == Want::kOptionalTensors) {
    c10::List<std::optional<at::Tensor>> l;
    for (uint32_t i = 0; i < v.count; ++i) l.push_back(v.v.ts[i] ? std::optional(share(v.v.ts[i])) : std::nullopt);
    s.emplace_back(std::move(l));
    return;
  }
  c10::List<at::Tensor> l;
  l.reserve(v.count);
  for (uint32_t i = 0; i < v.count; ++i) l.push_back(share(v.v.ts[i]));
  s.emplace_back(std::move(l));
}

// Also the form in which a bool[3] is written.
void push_ints(Stack& s, const mortise_value& v, Want want) {
  if (want != Want::kBools) {
    s.emplace_back(c10::List<int64_t>(c10::ArrayRef<int64_t>(v.v.is, v.count)));
    return;
  }
  c10::List<bool> l;
  for (uint32_t i = 0; i < v.count; ++i) l.push_back(v.v.is[i] != 0);
  s.emplace_back(std::move(l));
}

void push(Stack& s, const mortise_value& v, Want want) {
  switch (v.tag) {
    case MORTISE_NONE: s.emplace_back(); return;
    case MORTISE_TENSOR: s.emplace_back(share(v.v.t)); return;
    case MORTISE_TENSORS: push_tensors(s, v, want); return;
    case MORTISE_INT:
      if (want == Want::kFloat) s.emplace_back(static_cast<double>(v.v.i));
      else if (want == Want::kBool) s.emplace_back(v.v.i != 0);
      else s.emplace_back(v.v.i);
      return;
    case MORTISE_FLOAT: s.emplace_back(v.v.f); return;
    case MORTISE_LOGICAL: s.emplace_back(v.v.i != 0); return;
    case MORTISE_DTYPE: s.emplace_back(static_cast<int64_t>(scalar_type(static_cast<uint32_t>(v.v.i)))); return;
    case MORTISE_INTS: push_ints(s, v, want); return;
    case MORTISE_FLOATS: s.emplace_back(c10::List<double>(c10::ArrayRef<double>(v.v.fs, v.count))); return;
    case MORTISE_TEXT: s.emplace_back(std::string(view(v.v.s))); return;
    default: throw PluginError(MORTISE_E_ARGUMENT, "a value of tag " + std::to_string(v.tag) + " is no argument of an operator");
  }
}

void run(const mortise_op& op, Stack& s, const mortise_value* args, uint32_t n) {
  if (n != op.wants.size()) throw PluginError(MORTISE_E_ARGUMENT, op.name + ": " + std::to_string(n) + " arguments given, the schema has " + std::to_string(op.wants.size()));
  for (uint32_t i = 0; i < n; ++i) push(s, args[i], op.wants[i]);
  op.handle.callBoxed(s);
}

mortise_status find(mortise_host*, mortise_str schema, mortise_op** out) noexcept {
  return guarded([&] {
    static std::mutex mutex;
    static std::unordered_map<std::string, std::unique_ptr<mortise_op>> interned;
    const std::string name(view(schema));
    std::lock_guard lock(mutex);
    auto& op = interned[name];
    if (!op) {
      const size_t dot = name.find('.', name.find("::") == std::string::npos ? 0 : name.find("::"));
      const auto handle = c10::Dispatcher::singleton().findSchema({name.substr(0, dot), dot == std::string::npos ? "" : name.substr(dot + 1)});
      if (!handle) {
        interned.erase(name);
        throw PluginError(MORTISE_E_NOT_FOUND, "operator " + name + " does not exist in LibTorch " + std::string(TORCH_VERSION));
      }
      op = std::make_unique<mortise_op>(mortise_op{*handle, name, {}});
      for (const auto& a : handle->schema().arguments()) op->wants.push_back(want_of(a));
    }
    *out = op.get();
  });
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

mortise_status call(mortise_host*, const mortise_op* op, const mortise_value* args, uint32_t n, mortise_value* results, uint32_t m, uint32_t* count) noexcept {
  return guarded([&] {
    StackLease lease;
    run(*op, *lease, args, n);
    Results r{results, m};
    for (auto& iv : *lease) r.put(std::move(iv));
    if (count) *count = r.count;
  });
}

mortise_status call1(mortise_host*, const mortise_op* op, const mortise_value* args, uint32_t n, mortise_tensor** out) noexcept {
  return guarded([&] {
    StackLease lease;
    run(*op, *lease, args, n);
    Stack& s = *lease;
    if (s.size() != 1 || !s[0].isTensor()) throw PluginError(MORTISE_E_ARGUMENT, op->name + " does not return one tensor");
    *out = give(std::move(s[0]).toTensor());
  });
}

}  // namespace

const mortise_ops_api kOpsApi = {sizeof(mortise_ops_api), find, call, call1};

}  // namespace mortise
