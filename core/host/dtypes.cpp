// Are the results of operators in the element types that were planned? Asked in the first step of a run only.
#include <c10/core/ScalarType.h>

#include <algorithm>

#include "core/abi/error.hpp"
#include "core/host/handle.hpp"
#include "core/host/host.hpp"
#include "mortise/dtype.h"

namespace mortise {
namespace {

std::string name_of(at::ScalarType type) { return mortise_dtype_of(dtype_of(type))->name; }

// To what the floating-point arguments are promoted; undefined if there is none.
at::ScalarType promoted(const mortise_call& call) {
  at::ScalarType type = at::ScalarType::Undefined;
  for (uint32_t a = 0; a < call.n_args; ++a) {
    const at::Tensor t = tensor_of(call.args[a]);
    if (!t.defined() || !t.is_floating_point()) continue;
    type = type == at::ScalarType::Undefined ? t.scalar_type() : c10::promoteTypes(type, t.scalar_type());
  }
  return type;
}

// The types that a result may have; none: nothing is said of it.
std::vector<at::ScalarType> planned(const std::string& rule, const mortise_call& call,
                                    const std::vector<mortise_param*>* uses) {
  std::vector<at::ScalarType> types;
  if (rule == "statistics") return {at::kFloat, at::kDouble};
  if (rule == "arguments") types = {promoted(call)};
  if (rule == "compute" && call.compute_dtype != MORTISE_NO_DTYPE) return {scalar_type(call.compute_dtype)};
  if ((rule == "compute" || rule == "weight") && uses)
    for (const mortise_param* p : *uses) types.push_back(scalar_type(p->info.value_dtype));
  if (rule == "compute" && uses && uses->empty()) types = {promoted(call)};
  std::erase(types, at::ScalarType::Undefined);
  return types;
}

}  // namespace

void check_result_dtypes(const mortise_next& link, const Host& host, const mortise_call& call,
                         const std::vector<mortise_param*>* uses) {
  if (call.mode != MORTISE_TRAIN || call.point >= host.points().size()) return;
  const std::vector<std::string>& rules = host.points()[call.point].dtypes;
  for (uint32_t r = 0; r < call.n_results && r < rules.size(); ++r) {
    const at::Tensor t = tensor_of(call.results[r]);
    const std::vector<at::ScalarType> types = planned(rules[r], call, uses);
    if (!t.defined() || types.empty() || std::ranges::count(types, t.scalar_type())) continue;
    throw PluginError(MORTISE_E_PLUGIN,
                      link.plugin->id + " gave result " + std::to_string(r) + " of " + describe(link, call) + " in " +
                          name_of(t.scalar_type()) + "; the plan has it in " + name_of(types.front()),
                      link.plugin->id);
  }
}

}  // namespace mortise
