#include "core/host/host.hpp"

#include "core/host/batch.hpp"
#include "core/host/error.hpp"
#include "core/host/handle.hpp"
#include "core/host/tables.hpp"

namespace mortise {
namespace {

const void* get_interface(mortise_host* h, mortise_str id) noexcept {
  return h ? host_of(h).table(text_or_complaint(id)) : nullptr;
}

mortise_status fail(mortise_host*, mortise_status code, mortise_str text) noexcept {
  return set_error(code, text_or_complaint(text));
}

}  // namespace

Host::Host(const PointTable& points, uint64_t seed, c10::Device device)
    : points_(points), device_(device), seed_(seed) {
  register_table("mortise.call/0", &kCallApi);
  register_table("mortise.tensor/0", &kTensorApi);
  register_table("mortise.ops/0", &kOpsApi);
  register_table("mortise.autograd/0", &kAutogradApi);
  register_table("mortise.params/0", &kParamsApi);
  register_table("mortise.grads/0", &kGradsApi);
  register_table("mortise.batch/0", &kBatchApi);
  register_table("mortise.config/0", &kConfigApi);
  register_table("mortise.log/0", &kLogApi);
  register_table("mortise.parallel/0", &kParallelApi);
  register_table("mortise.random/0", &kRandomApi);
  register_table("mortise.lists/0", &kListsApi);
  register_table("mortise.build/0", &kBuildApi);
}

PluginHost& Host::add_plugin(std::string id, const PluginSchema* schema, const PluginTable* table) {
  PluginHost& p = plugins_.emplace_back();
  static_cast<mortise_host&>(p) = {sizeof(mortise_host), MORTISE_ABI_MAJOR, MORTISE_ABI_MINOR, get_interface, fail};
  p.owner = this;
  p.id = std::move(id);
  p.schema = schema;
  p.table = table;
  return p;
}

void must_write(mortise_host* h, std::string_view field) {
  if (!plugin_of(h).writes.contains(std::string(field)))
    throw PluginError(MORTISE_E_PLUGIN, plugin_of(h).id + " writes `" + std::string(field) +
                                            "`, which its plugin.toml does not say: listens = [{ …, writes = [\"" +
                                            std::string(field) + "\"] }]");
}

const void* Host::table(std::string_view id) const {
  const auto found = tables_.find(id);
  return found == tables_.end() ? nullptr : found->second;
}

void Host::set_layer_chain(const mortise_layer& l, uint32_t mode, const mortise_next* chain) {
  if (layer_chains_.size() <= l.index) layer_chains_.resize(l.index + 1);
  layer_chains_[l.index][mode] = chain;
}

}  // namespace mortise
