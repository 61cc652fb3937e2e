#include "core/abi/instances.hpp"

#include <algorithm>
#include <tuple>

#include "core/abi/error.hpp"
#include "core/base/text.hpp"
#include "core/plugin/load.hpp"

namespace mortise {
namespace {

// How a status leaves the program: its error's code, and the exit.
std::pair<const char*, int> outcome_of(mortise_status status) {
  switch (status) {
    case MORTISE_E_CONFIG: return {"plugin_failed", kExitUsage};
    case MORTISE_E_DATA: return {"bad_data", kExitData};
    case MORTISE_E_IO: return {"io_failed", kExitIo};
    case MORTISE_E_MEMORY: return {"out_of_memory", kExitUnavailable};
    case MORTISE_E_INTERNAL: return {"internal", kExitBug};
    default: return {"plugin_failed", kExitPlugin};
  }
}

void list_attachments(Instance& i) {
  const mortise_attachment* first = nullptr;
  uint32_t n = 0, stride = 0;
  if (const mortise_status s = i.descriptor->attachments(i.self, &first, &n, &stride)) throw_from(i, s, "attachments");
  for (uint32_t k = 0; k < n; ++k) {
    const auto* a =
        reinterpret_cast<const mortise_attachment*>(reinterpret_cast<const char*>(first) + size_t{k} * stride);
    i.attachments.push_back(a);
  }
}

// What attaches must stand in plugin.toml: the plan was made from it.
void compare_with_manifest(const Instance& i) {
  const PluginInfo& info = *i.member->info;
  for (const auto* a : i.attachments) {
    const std::string point(view(a->point));
    bool known = false;
    if (a->wrap)
      for (const auto& w : info.wraps) known = known || w.point == point;
    else if (a->listen)
      for (const auto& l : info.listens) known = known || l.point == point;
    else
      for (const auto& p : info.schema.provides) known = known || p == point;
    if (!known)
      throw PluginError(MORTISE_E_PLUGIN,
                        info.schema.id + " attaches to `" + point + "` in a way that its plugin.toml does not say");
  }
}

bool attaches(const mortise_attachment& a, std::string_view how) {
  if (how == "wrap") return a.wrap != nullptr;
  if (how == "listen") return a.listen != nullptr;
  return how == "call" ? a.provide != nullptr : a.object != nullptr;
}

}  // namespace

void throw_from(const Instance& by, mortise_status status, std::string_view what) {
  throw_status(status, by.id(), what);
}

Instances::~Instances() {
  for (auto i = order_.rbegin(); i != order_.rend(); ++i)
    if ((*i)->self) (*i)->descriptor->destroy((*i)->self);
}

Instance& Instances::start(int member) {
  auto& slot = started_[static_cast<size_t>(member)];
  if (slot) return *slot;
  const Member& m = plan_.members[static_cast<size_t>(member)];
  auto instance = std::make_unique<Instance>();
  instance->member = &m;
  instance->host = &edge_.add_plugin(m.info->schema.id, &m.info->schema, m.table);
  for (const ListenInfo& l : m.info->listens) instance->host->writes.insert(l.writes.begin(), l.writes.end());
  instance->descriptor = load_plugin(*m.info, probe_);
  slot = std::move(instance);  // known from here on, so that what `create` refuses is found
  order_.push_back(slot.get());
  if (const mortise_status s = slot->descriptor->create(slot->host, &slot->self)) throw_from(*slot, s, "create");
  list_attachments(*slot);
  compare_with_manifest(*slot);
  return *slot;
}

const mortise_attachment& Instances::attachment(int member, std::string_view point, const char* how) {
  const Instance& i = start(member);
  for (const auto* a : i.attachments)
    if (view(a->point) == point && attaches(*a, how)) return *a;
  throw PluginError(MORTISE_E_PLUGIN, "plugin.toml of " + i.id() + " says that it attaches to `" + std::string(point) +
                                          "` (" + std::string(how) + "); the library does not");
}

const Instance& Instances::of(const PluginHost& host) const {
  return **std::ranges::find(order_, &host, &Instance::host);
}

Diagnostic Instances::diagnose(const PluginError& error) const {
  for (const auto& i : started_)
    if (i && i->host->blamed && error.status() == MORTISE_E_CONFIG) return i->host->blame;
  const auto [code, exit] = outcome_of(error.status());
  std::vector<std::string> lines = split(error.text(), '\n');
  const std::string message = lines.empty() ? "" : lines[0];
  if (!lines.empty()) lines.erase(lines.begin());
  return trouble(exit, code, message, join(lines, "; "));
}

}  // namespace mortise
