#include "core/plan/compute_dtype.hpp"

#include "core/plan/facts.hpp"

namespace mortise {

namespace {
std::string said_of_frame(const Plan& plan, int mode, const char* fact) {
  for (const Attached& wrapper : plan.at[kForward].wrappers) {
    const Member& member = plan.members[static_cast<size_t>(wrapper.member)];
    const Value* said = wrapper.modes >> mode & 1 ? fact_of(*member.info, "frame", fact) : nullptr;
    if (!said) continue;
    const Value* key = value_of_fact(member, "frame", fact);
    return (key ? *key : *said).as_text();
  }
  return "";
}
}  // namespace

std::string planned_compute_dtype(const Plan& plan, int mode) { return said_of_frame(plan, mode, "compute_dtype"); }

std::string planned_products(const Plan& plan, int mode) { return said_of_frame(plan, mode, "products"); }

}  // namespace mortise
