// What is known of a run once its model is declared: for `plan`, and for the first lines of a training.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/base/diagnostic.hpp"

namespace mortise {

struct Declared;

struct Summary {
  std::string run, model, weights, data, device, batch;  // texts of the lines
  std::string stored_by;                                 // a plugin's id
  int64_t parameters = 0, steps = 0, steps_per_epoch = 0, tokens_per_step = 0, samples_per_step = 0;
  int64_t samples_per_epoch = 0;
  int64_t tokens_per_sample = 0;  // at most; 0: it has none, as an image
  double flop_per_token = 0;      // of training; core/declare/work.hpp
  double flop_per_s_at_most = 0;  // of all ranks, as the makers of their devices say; 0: not known
  int micros = 1, ranks = 1;
  int64_t weights_bytes = 0, gradients_bytes = 0, states_bytes = 0, casts_bytes = 0;
  int64_t transient_bytes = 0;      // of what ranks have in parts: values and gradients that are whole for a while
  int64_t workspaces_bytes = 0;     // what libraries and kernels keep for themselves on the device
  int64_t sent_bytes = 0;           // to other ranks, by each of them in a step
  bool sends_values = false;        // beside gradients
  int64_t host_bytes = 0;           // in host memory, whatever the device: masters and what is kept beside them
  int64_t stored_bytes = 0;         // of states, in the store of `stored_by`
  int64_t copy_bytes = 0;           // in host memory, for saves in the background
  std::string parts;                // which tensors lie in parts on the ranks, where they may
  std::vector<std::string> axes;    // along which ranks have other parts: a line each
  std::vector<std::string> proof;   // what holds of gradients, norms and terms of several ranks
  std::vector<std::string> groups;  // "146 tensors, lr 1e-03, weight decay 0.01: FAMILY.NAME"
  std::map<std::string, std::string> details;  // by plugin id, beside it in `plan`
  std::vector<std::string> parameter_lines;    // `plan --weights`: name, sizes, role, dtype
  std::vector<Diagnostic> warnings;            // of what the manifest asks for, and the run cannot do
  std::vector<std::string> advice;             // lines of `plan`
  std::string widest;                          // dtype of a parameter's value
  std::string dtypes;                          // what the first step is compared with
};

// `dir`: the run directory, "" without one.
Summary summary_of(const Declared& d, const std::string& dir);

}  // namespace mortise
