// What the loop lends to plugins: the clock, the ledger, votes and multipliers, terms of the loss, requests; the
// tokenizer; the model.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include "core/loop/ledger.hpp"
#include "core/loop/plugins.hpp"
#include "mortise/checkpoint.h"
#include "mortise/data.h"
#include "mortise/loop.h"

namespace mortise {

// A term of the loss of one micro-batch; its sum is part of the graph.
struct Term {
  std::string name, unit;
  double weight = 0;
  at::Tensor sum;
};
using Terms = std::vector<Term>;  // a frame's `micro` points at one

// A piece of state that a plugin keeps.
struct KeptBlob {
  const PluginHost* host = nullptr;
  const mortise_blob* blob = nullptr;
};

// Which filter is under way: what may be changed hangs on it.
enum class Filter { kNone, kWindow, kVerdict, kTransform };

struct Services {
  Provided<mortise_tokenizer> tokenizer;
  mortise_clock clock{};
  Ledger* ledger = nullptr;
  Filter filter = Filter::kNone;
  int32_t window = 1;
  std::vector<KeptBlob> blobs;
  uint32_t requested = 0;
  std::string reason, requested_by;
  // Into the record that is being told; empty while none is.
  std::function<void(std::string_view name, const mortise_value&)> add_column;
  // The model on a batch, without a graph; results are owned by the caller.
  std::function<void(mortise_batch*, uint32_t mode, uint32_t want, mortise_value* results, uint32_t n)> forward;
};

// Lends mortise.loop, .model, .state and, if there is a tokenizer, .tokenizer.
void register_services(Host& host, Services& services);

}  // namespace mortise
