#include "cache.hpp"

#include "mortise/cpp/ops.hpp"

namespace sample {
using namespace mortise;
namespace {

// An attribute of attention, `otherwise` where the layer was declared without it.
int64_t attribute(const mortise_call* call, std::string_view key, int64_t otherwise) {
  mortise_value v = none();
  const mortise_status s = api.call->attribute(api.host, call->layer, str(key), &v);
  if (s == MORTISE_E_NOT_FOUND) return otherwise;
  check(s);
  return v.v.i;
}

bool has_tensor(const mortise_call* call, uint32_t index) {
  return index < call->n_args && call->args[index].tag == MORTISE_TENSOR;
}

bool is_of_16_bits(uint32_t dtype) { return dtype == MORTISE_BF16 || dtype == MORTISE_F16; }

// Gives a call its own arguments back.
class ArgumentsOfCall {
 public:
  explicit ArgumentsOfCall(mortise_call* call) : call_(call), args_(call->args), n_(call->n_args) {}
  ArgumentsOfCall(const ArgumentsOfCall&) = delete;
  ArgumentsOfCall& operator=(const ArgumentsOfCall&) = delete;
  ~ArgumentsOfCall() { call_->args = args_, call_->n_args = n_; }

 private:
  mortise_call* call_;
  const mortise_value* args_;
  uint32_t n_;
};

}  // namespace

void Cache::begin(int64_t tokens) {
  called_ = 0;
  added_ = tokens;
  is_under_way_ = true;
  why_.clear();
}

bool Cache::end() {
  is_under_way_ = false;
  if (why_.empty() && kept_.empty()) why_ = "the model calls no `attention`";
  if (why_.empty() && called_ != kept_.size()) why_ = "the model calls `attention` another number of times each time";
  if (why_.empty()) tokens_ += added_;
  return why_.empty();
}

void Cache::clear() {
  kept_.clear();
  tokens_ = 0;
  is_under_way_ = false;
}

void Cache::attention(mortise_call* call, mortise_next* next) {
  if (!is_under_way_) return check(api.call->next(api.host, next, call));
  if (why_.empty()) why_ = why_not(call);
  if (!why_.empty() && tokens_ > 0) throw Error(MORTISE_E_UNSUPPORTED, why_);
  if (!why_.empty()) return check(api.call->next(api.host, next, call));  // the whole text: right without a cache

  const Arguments own = arguments_of(call);
  is_narrow_ = is_of_16_bits(call->compute_dtype) || is_of_16_bits(Info(own.k).dtype);
  keep(call->layer, own);
  if (tokens_ == 0) return check(api.call->next(api.host, next, call));
  const Kept& all = kept_[called_ - 1];
  const mortise_value args[] = {value(own.q), value(all.k), value(all.v)};
  const ArgumentsOfCall restored(call);
  call->args = args;
  call->n_args = std::size(args);
  const mortise_status status = api.call->next(api.host, next, call);
  if (status != MORTISE_OK) why_ = std::string(view(call->path)) + " cannot have fewer queries than keys";
  check(status);
}

// Why this attention cannot go on from what is kept; empty: it can.
std::string Cache::why_not(const mortise_call* call) const {
  const std::string path(view(call->path));
  if (!MORTISE_HAS(api.call, attribute)) return "this host does not say what an attention was declared with";
  if (!attribute(call, "causal", 0)) return path + " is not causal: what it gives a token changes with those behind it";
  if (has_tensor(call, 3) || has_tensor(call, 4)) return path + " gets a mask or a bias";
  const auto fits = [&](uint32_t i) {
    const Info x(call->args[i]);
    return x.rank == 3 && x.size(0) == 1 && x.size(1) == added_;
  };
  const bool is_packed = !has_tensor(call, 1);
  if (!has_tensor(call, 0) || !fits(0) || (!is_packed && (!has_tensor(call, 2) || !fits(1) || !fits(2))))
    return path + " is called for other positions than those of the text";
  if (tokens_ > 0 && (called_ >= kept_.size() || kept_[called_].layer != call->layer))
    return "the model does not call the same attentions each time";
  return "";
}

Cache::Arguments Cache::arguments_of(const mortise_call* call) const {
  const auto given = [&](uint32_t i) { return Tensor::share(Ref(call->args[i])); };
  if (has_tensor(call, 1)) return {given(0), given(1), given(2)};
  const int64_t heads = attribute(call, "heads", 0), width = attribute(call, "head_dim", 0), own = heads * width,
                shared = attribute(call, "kv_heads", heads) * width;
  const Tensor packed = given(0);
  return {ops::narrow(packed, 2, 0, own), ops::narrow(packed, 2, own, shared),
          ops::narrow(packed, 2, own + shared, shared)};
}

// Copies, so that nobody writes into what is kept.
void Cache::keep(const mortise_layer* layer, const Arguments& added) {
  if (tokens_ == 0) {
    kept_.push_back({layer, ops::clone(added.k), ops::clone(added.v)});
  } else {
    Kept& all = kept_[called_];
    all.k = ops::cat({all.k.get(), added.k.get()}, 1);
    all.v = ops::cat({all.v.get(), added.v.get()}, 1);
  }
  ++called_;
}

}  // namespace sample
