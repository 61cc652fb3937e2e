#include "core/plan/compute_dtype.hpp"

namespace mortise {

std::string planned_compute_dtype(const Plan& plan, int mode) {
  for (const Attached& wrapper : plan.at[kForward].wrappers) {
    const Member& member = plan.members[static_cast<size_t>(wrapper.member)];
    const Value* said = wrapper.modes >> mode & 1 ? fact_of(*member.info, "frame", "compute_dtype") : nullptr;
    if (!said) continue;
    if (!member.table) return said->as_text();
    const auto key = member.table->values.find(said->as_text());
    return (key == member.table->values.end() ? *said : key->second).as_text();
  }
  return "";
}

}  // namespace mortise
