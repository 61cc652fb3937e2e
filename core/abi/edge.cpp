#include "core/abi/edge.hpp"

#include "core/abi/cause.hpp"
#include "core/abi/error.hpp"
#include "core/abi/tables.hpp"

namespace mortise {
namespace {

const void* get_interface(mortise_host* h, mortise_str id) noexcept {
  return h ? edge_of(h).table(text_or_complaint(id)) : nullptr;
}

mortise_status fail(mortise_host* h, mortise_status code, mortise_str text) noexcept {
  std::string said = with_cause(text_or_complaint(text));
  if (h) {
    const std::lock_guard lock(plugin_of(h).mutex);
    if (plugin_of(h).failure.empty()) plugin_of(h).failure = said;
  }
  return set_error(code, std::move(said));
}

}  // namespace

Edge::Edge(const PointTable& points, uint64_t seed) : points_(points), seed_(seed) {
  register_table("mortise.config/0", &kConfigApi);
  register_table("mortise.log/0", &kLogApi);
  register_table("mortise.build/0", &kBuildApi);
  register_table("mortise.loop/0", &kLoopApi);
  register_table("mortise.model/0", &kModelApi);
  register_table("mortise.state/0", &kStateApi);
  register_unavailable(*this);
  services.clock.struct_size = sizeof services.clock;
  services.clock.micros = services.clock.ranks = 1;
}

PluginHost& Edge::add_plugin(std::string id, const PluginSchema* schema, const PluginTable* table) {
  PluginHost& p = plugins_.emplace_back();
  static_cast<mortise_host&>(p) = {sizeof(mortise_host), MORTISE_ABI_MAJOR, MORTISE_ABI_MINOR, get_interface, fail};
  p.owner = this;
  p.id = std::move(id);
  p.schema = schema;
  p.table = table;
  return p;
}

const void* Edge::table(std::string_view id) const {
  if (id == "mortise.tokenizer/0") return services.tokenizer ? &kTokenizerApi : nullptr;
  if (id == "mortise.comm/0") return &kCommApi;
  const auto found = tables_.find(id);
  return found == tables_.end() ? nullptr : found->second;
}

void must_write(mortise_host* h, std::string_view field) {
  if (plugin_of(h).writes.contains(std::string(field))) return;
  throw PluginError(MORTISE_E_PLUGIN, plugin_of(h).id + " writes `" + std::string(field) +
                                          "`, which its plugin.toml does not say: listens = [{ …, writes = [\"" +
                                          std::string(field) + "\"] }]");
}

}  // namespace mortise
