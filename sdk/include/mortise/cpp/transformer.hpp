// What transformers have in common: sizes that are checked once with one text for each mistake, fields of the batch,
// the loss. A model's keys are called as here: heads width context vocabulary classes.
#pragma once
#include <cmath>
#include <cstdio>

#include "mortise/cpp/model.hpp"
#include "mortise/cpp/ops.hpp"

namespace mortise {

// ---- when the model is made, or declared ----

inline void check_heads(int64_t heads, int64_t width) {
  if (width % heads == 0) return;
  const auto n = [](int64_t i) { return std::to_string(i); };
  config::refuse("heads", n(heads) + " heads do not divide a width of " + n(width), "a divisor of " + n(width));
}

// The key, else what the tokenizer or the data says. Refuses one that is smaller than theirs.
inline int64_t vocabulary_of(const Builder& build) {
  const mortise_value own = config::get("vocabulary");
  const auto known = build.fact("vocabulary");
  if (own.tag == MORTISE_NONE && !known)
    config::refuse("vocabulary", "neither a tokenizer nor the data says how large the vocabulary is",
                   "[tokenizer.byte], or vocabulary = 50257");
  if (own.tag == MORTISE_NONE) return *known;
  if (known && *known > own.v.i)
    config::refuse("vocabulary",
                   "the data has ids up to " + std::to_string(*known - 1) + ", the model a vocabulary of " +
                       std::to_string(own.v.i),
                   "with weights: the tokenizer and the data that they were made with; without: vocabulary = " +
                       std::to_string(*known));
  return own.v.i;
}

// The key, else how many the labels of the data are of.
inline int64_t classes_of(const Builder& build) {
  const mortise_value own = config::get("classes");
  const auto known = build.fact("classes");
  if (own.tag == MORTISE_NONE && !known)
    config::refuse("classes", "the data does not say how many classes its labels are of", "classes = 2");
  if (own.tag == MORTISE_NONE) return *known;
  if (known && *known > own.v.i)
    config::refuse("classes",
                   "the data has " + std::to_string(*known) + " classes, the model " + std::to_string(own.v.i),
                   "classes = " + std::to_string(*known));
  return own.v.i;
}

// `parameters` is counted in floating point, which does not wrap: sizes that no memory holds are refused before they
// are multiplied.
inline void check_parameters(double parameters, int64_t layers, int64_t width) {
  constexpr double kMost = 0x1p45;  // in fp32 they fill the 128 TiB that a process can address
  if (parameters <= kMost) return;
  char count[32];
  std::snprintf(count, sizeof count, "%.1e", parameters);
  config::refuse("width",
                 std::to_string(layers) + " layers of width " + std::to_string(width) + " are " + count +
                     " parameters, more than a process can address",
                 "a smaller width, vocabulary or context, or fewer layers");
}

inline void check_context(const Builder& build, int64_t context) {
  const int64_t length = build.fact("sequence_length").value_or(0);
  if (length <= context) return;
  config::refuse("context",
                 "a sequence of " + std::to_string(length) + " is longer than a context of " + std::to_string(context),
                 "[data] sequence_length = " + std::to_string(context) + ", or context = " + std::to_string(length));
}

inline mortise_param* param_named(std::string_view name) {
  mortise_param* param = nullptr;
  check(api.params->find(api.host, str(name), &param));
  return param;
}

// The mask that attention gets: "segments" where several samples are packed into one.
inline std::string_view packed_mask(const Builder& build) { return build.fact("field.segments") ? "segments" : "none"; }

// ---- in a call ----

inline Tensor needed_field(const mortise_batch* batch, std::string_view name) {
  Tensor t = field(batch, name);
  if (t) return t;
  std::string has;
  each_field(batch, [&](mortise_str other, mortise_tensor*) {
    has += (has.empty() ? "`" : ", `") + std::string(view(other)) + "`";
  });
  throw Error(MORTISE_E_DATA, "the model needs the field `" + std::string(name) + "`, which the data does not have" +
                                  (has.empty() ? "" : ": it has " + has));
}

// What is to be guessed. Without it there is nothing to train on; other modes may do without.
inline Tensor labels_of(const mortise_call* call) {
  return call->mode == MORTISE_TRAIN ? needed_field(call->batch, "labels") : field(call->batch, "labels");
}

// Token ids [B, T], no longer than the context.
inline Tensor ids_of(const mortise_batch* batch, int64_t context) {
  Tensor ids_BT = needed_field(batch, "input_ids");
  if (const int64_t length = Info(ids_BT).size(-1); length > context)
    throw Error(MORTISE_E_DATA, "a sequence of " + std::to_string(length) + " is longer than the model's context of " +
                                    std::to_string(context));
  return ids_BT;
}

// The batch's own, or 0 1 2 … for all samples.
inline Tensor positions_of(const mortise_batch* batch, Ref ids_BT) {
  Tensor positions = field(batch, "positions");
  if (positions) return positions;
  positions = empty(MORTISE_I64, {Info(ids_BT).size(-1)});
  ops::arange_out(Info(ids_BT).size(-1), positions);
  return positions;
}

// A block that takes and gives two streams, (branch, residual): what the last part of the block before computed and
// what it is to be added to. So every residual addition is made together with the norm that follows it, across the
// border of blocks too.
struct StreamBlock {
  mortise_layer *norm_1, *attention, *norm_2, *mlp;  // norm_1 of the first block is a norm, all others residual_norm
};

// (a, r) = norm_1(branch, residual);  (m, x) = norm_2(attention(a), r);  gives (mlp(m), x). The first block has no
// branch. `positions` and `mask` go to the attention; they may be empty.
inline void run_block(mortise_call* call, const StreamBlock& b, bool first, Ref positions, Ref mask) {
  Tensor a_BTW, r_BTW = Tensor::share(Ref(call->args[1]));
  if (first) {
    a_BTW = std::move(call_layer<1>(b.norm_1, r_BTW)[0]);
  } else {
    auto [y, sum] = call_layer<2>(b.norm_1, call->args[0], r_BTW);
    a_BTW = std::move(y);
    r_BTW = std::move(sum);
  }
  const auto [branch_BTW] = call_layer<1>(b.attention, a_BTW, positions, mask);
  auto [m_BTW, x_BTW] = call_layer<2>(b.norm_2, branch_BTW, r_BTW);
  auto [y_BTW] = call_layer<1>(b.mlp, m_BTW);
  give(call, 0, std::move(y_BTW));
  give(call, 1, std::move(x_BTW));
}

// The first result of the last segment: the sum of the loss, whose step divides it by how many of `unit` ("tokens",
// "samples") all of its micro-batches have.
inline void give_loss(mortise_call* call, Tensor sum, std::string_view unit) {
  if (sum && !(call->flags & MORTISE_REPLAY))
    check(api.loop->term(api.host, MORTISE_STR("loss"), sum.get(), str(unit), 1.0));
  give(call, 0, std::move(sum));
}

}  // namespace mortise
