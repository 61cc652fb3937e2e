// The C tables that need no LibTorch, and stand-ins for those that do.
#pragma once
#include "mortise/mortise.h"

namespace mortise {

class Edge;

extern const mortise_config_api kConfigApi;
extern const mortise_log_api kLogApi;
extern const mortise_build_api kBuildApi;
extern const mortise_loop_api kLoopApi;
extern const mortise_model_api kModelApi;
extern const mortise_state_api kStateApi;
extern const mortise_tokenizer_api kTokenizerApi;
extern const mortise_comm_api kCommApi;

// Every table of tensors and calls, whose functions refuse and note who asked; and mortise.params/0 without `use`.
void register_unavailable(Edge& edge);

// The functions of mortise.params/0 that need no tensor, for the tables of both kinds.
mortise_status param_info_of(mortise_host*, const mortise_param*, const mortise_param_info**) noexcept;
mortise_status param_by_name(mortise_host*, mortise_str name, mortise_param**) noexcept;
mortise_status set_param_field(mortise_host*, mortise_param*, mortise_str field, mortise_value) noexcept;
mortise_status keep_beside(mortise_host*, mortise_param*, const mortise_state_spec*) noexcept;

}  // namespace mortise
