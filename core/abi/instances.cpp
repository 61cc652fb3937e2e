#include "core/abi/instances.hpp"

#include <algorithm>
#include <tuple>

#include "core/abi/error.hpp"
#include "core/abi/lost_device.hpp"
#include "core/base/text.hpp"
#include "core/plugin/crash.hpp"

namespace mortise {
namespace {

// How a status leaves the program: its error's code, and the exit.
std::pair<const char*, int> outcome_of(mortise_status status) {
  switch (status) {
    case MORTISE_E_CONFIG: return {"plugin_failed", kExitUsage};
    case MORTISE_E_DATA: return {"bad_data", kExitData};
    case MORTISE_E_IO: return {"io_failed", kExitIo};
    case MORTISE_E_LOST: return {"rank_lost", kExitResumable};
    case MORTISE_E_MEMORY: return {"out_of_memory", kExitUnavailable};
    // Of the host: what a plugin returns never is (status_of_plugin).
    case MORTISE_E_INTERNAL: return {"internal", kExitBug};
    default: return {"plugin_failed", kExitPlugin};
  }
}

constexpr uint32_t kMostAttachments = 256, kMostStride = 4096, kMostName = 128;

[[noreturn]] void refuse_attachments(const Instance& i, const std::string& why) {
  throw PluginError(MORTISE_E_PLUGIN, i.id() + " says of its attachments " + why, i.id());
}

void check_attachment(const Instance& i, const mortise_attachment& a, uint32_t number) {
  const std::string which = "number " + std::to_string(number + 1);
  if (a.struct_size < sizeof(mortise_attachment))
    refuse_attachments(i, "that " + which + " is " + std::to_string(a.struct_size) + " bytes long");
  if (!a.point.ptr || a.point.len == 0 || a.point.len > kMostName)
    refuse_attachments(i, "that " + which + " is at no point: its name is NULL, empty or too long");
  const int ways = (a.object != nullptr) + (a.provide != nullptr) + (a.wrap != nullptr) + (a.listen != nullptr);
  if (ways != 1)
    refuse_attachments(i, "that " + which + ", `" + std::string(view(a.point)) + "`, attaches in " +
                              std::to_string(ways) + " ways; it must be one");
}

void list_attachments(Instance& i) {
  const mortise_attachment* first = nullptr;
  uint32_t n = 0, stride = 0;
  if (const mortise_status s =
          call_plugin({i.id(), "attachments", {}}, i.descriptor->attachments, i.self, &first, &n, &stride))
    throw_from(i, s, "attachments");
  if (n == 0) return;
  if (!first) refuse_attachments(i, "that there are " + std::to_string(n) + ", at NULL");
  if (n > kMostAttachments)
    refuse_attachments(i, "that there are " + std::to_string(n) + "; at most " + std::to_string(kMostAttachments));
  if (stride < sizeof(mortise_attachment) || stride > kMostStride || stride % alignof(mortise_attachment) != 0)
    refuse_attachments(i, "that one is every " + std::to_string(stride) + " bytes");
  const PluginScope scope(i.id(), "attachments");
  for (uint32_t k = 0; k < n; ++k) {
    const auto* a =
        reinterpret_cast<const mortise_attachment*>(reinterpret_cast<const char*>(first) + size_t{k} * stride);
    check_attachment(i, *a, k);
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
                        info.schema.id + " attaches to `" + point + "` in a way that its plugin.toml does not say",
                        info.schema.id);
  }
}

// Whatever failed, it is because of the device.
Diagnostic lost(const Diagnostic& failed) {
  Diagnostic d = device_lost();
  std::vector<std::string> at = {failed.message, failed.at};
  std::erase_if(at, [&](const std::string& text) { return text.empty() || text == d.message; });
  d.at = join(at, "; ");
  d.plugin = failed.plugin;
  return d;
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
  for (auto i = order_.rbegin(); i != order_.rend(); ++i) {
    const Instance& each = **i;
    if (!each.created || !each.self) continue;
    const PluginScope scope(each.id(), "destroy");
    try {
      void (*const destroy)(void*) = each.descriptor->destroy;
      destroy(each.self);
    } catch (...) {
      const mortise_status status = status_of_throw();
      Diagnostic d = trouble(kExitPlugin, "plugin_failed", take_error(status), "in plugin " + each.id() + ", destroy");
      d.plugin = each.id();
      report_late_failure(d);
    }
  }
}

// A table may end before ours, but not before its first members, nor is it longer than any could be.
void Instances::check_object(const Instance& by, std::string_view point, uint32_t struct_size, size_t whole) {
  constexpr size_t kFirstMembers = 24;
  if (struct_size >= std::min(whole, kFirstMembers) && struct_size <= kMostStride) return;
  throw PluginError(MORTISE_E_PLUGIN,
                    by.id() + " says that its object at `" + std::string(point) + "` is " +
                        std::to_string(struct_size) + " bytes long",
                    by.id());
}

std::string_view Instances::library(int member) const {
  const auto& started = started_[static_cast<size_t>(member)];
  return started ? started->library : std::string_view();
}

void Instances::probe_ahead() {
  std::vector<const PluginInfo*> all;
  for (const Member& member : plan_.members)
    if (member.table) all.push_back(member.info);  // of candidates, few are chosen
  probed_ = mortise::probe_ahead(all, probe_);
}

Instance& Instances::start(int member) {
  auto& slot = started_[static_cast<size_t>(member)];
  if (slot) return *slot;
  const Member& m = plan_.members[static_cast<size_t>(member)];
  auto instance = std::make_unique<Instance>();
  instance->member = &m;
  instance->host = &edge_.add_plugin(m.info->schema.id, &m.info->schema, m.table);
  for (const ListenInfo& l : m.info->listens) instance->host->writes.insert(l.writes.begin(), l.writes.end());
  guard_process();
  const LoadedPlugin loaded = load_plugin(*m.info, probe_, probed_);
  guard_process();
  instance->descriptor = loaded.descriptor;
  instance->library = loaded.library;
  slot = std::move(instance);  // known from here on, so that what `create` refuses is found
  order_.push_back(slot.get());
  if (const mortise_status s = call_plugin({slot->id(), "create", {}}, slot->descriptor->create,
                                           static_cast<mortise_host*>(slot->host), &slot->self))
    throw_from(*slot, s, "create");
  slot->created = true;
  // In C a mistake in reading the configuration has no other way out (mortise_config_float).
  if (const std::string& failure = slot->host->failure; !failure.empty())
    throw_from(*slot, set_error(MORTISE_E_PLUGIN, failure), "create");
  list_attachments(*slot);
  compare_with_manifest(*slot);
  return *slot;
}

const mortise_attachment& Instances::attachment(int member, std::string_view point, const char* how) {
  const Instance& i = start(member);
  for (const auto* a : i.attachments)
    if (view(a->point) == point && attaches(*a, how)) return *a;
  for (const auto* a : i.attachments)  // of every point
    if (view(a->point) == "*" && std::string_view(how) == "wrap" && a->wrap) return *a;
  throw PluginError(MORTISE_E_PLUGIN,
                    "plugin.toml of " + i.id() + " says that it attaches to `" + std::string(point) + "` (" +
                        std::string(how) + "); the library does not",
                    i.id());
}

const Instance& Instances::of(const PluginHost& host) const {
  return **std::ranges::find(order_, &host, &Instance::host);
}

Diagnostic Instances::diagnose(const PluginError& error) const {
  for (const auto& i : started_) {
    if (!i || error.status() != MORTISE_E_CONFIG || (!error.plugin().empty() && error.plugin() != i->id())) continue;
    const std::lock_guard lock(i->host->mutex);
    if (i->host->blamed) return i->host->blame;
  }
  const auto [code, exit] = outcome_of(error.status());
  std::vector<std::string> lines = split(error.text(), '\n');
  const std::string message = lines.empty() ? "" : lines[0];
  if (!lines.empty()) lines.erase(lines.begin());
  // What the C++ wrapper writes of an Error with a fix.
  constexpr std::string_view kFix = "  fix: ";
  std::vector<std::string> fixes;
  for (const std::string& line : lines)
    if (line.starts_with(kFix)) fixes.push_back(line.substr(kFix.size()));
  std::erase_if(lines, [&](const std::string& line) { return line.starts_with(kFix); });
  Diagnostic d = trouble(exit, code, message, join(lines, "; "));
  d.fixes = std::move(fixes);
  d.plugin = error.plugin();
  for (const auto& i : started_)  // it named no key: the whole table
    if (error.status() == MORTISE_E_CONFIG && i && i->id() == d.plugin && i->member->table)
      d.positions = {i->member->table->origin};
  if (message.ends_with(kNotRepeatable)) d.code = "not_repeatable", d.exit = kExitUsage;
  if (!lost_device().empty()) return lost(d);
  if (error.status() == MORTISE_E_MEMORY && d.fixes.empty())
    d.fixes = {
        "less at a time: a smaller data.micro_batch_size, of an evaluation eval.micro_batch_size; `mortise plan` "
        "says what takes how much"};
  return d;
}

}  // namespace mortise
