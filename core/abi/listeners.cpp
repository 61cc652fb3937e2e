#include "core/abi/listeners.hpp"

#include <algorithm>

namespace mortise {

// Of several ranks one writes what all would write.
static bool is_silent(const PluginInfo& info, const World& world) {
  const Value* who = fact_of(info, "ranks", "speaks");
  return who && who->as_text() == "first" && world.rank > 0;
}

static bool reads_columns(const PluginInfo& info) {
  return std::ranges::any_of(info.listens, [](const ListenInfo& l) {
    return l.point == "record" && std::ranges::count(l.reads, kColumns) > 0;
  });
}

Listeners::Listeners(Instances& instances, const World& world) : Listeners(instances.plan().points) {
  std::vector<std::string> readers;
  for (uint32_t point = 0; point < kFirstOperator; ++point)
    for (const auto& l : instances.plan().at[point].listeners) {
      Instance& by = instances.start(l.member);
      if (is_silent(*by.member->info, world)) continue;
      add(point, instances.attachment(l.member, points_[point].name, "listen").listen, by);
      if (point != kRecord) continue;
      by.host->told_before = readers;
      if (reads_columns(*by.member->info)) readers.push_back(by.id());
    }
}

void Listeners::notify(Point point, mortise_event event) const {
  event.struct_size = sizeof event;
  event.point = point;
  for (const auto& l : at_[point]) {
    clear_error();
    const std::string& name = points_[point].name;
    if (const mortise_status s =
            call_plugin({l.by->id(), name, {}}, l.fn, l.by->self, static_cast<const mortise_event*>(&event)))
      throw_from(*l.by, s, name);
  }
}

void Listeners::filter(Services& services, Filter filter, Point point) const {
  FilterScope scope(services, filter);
  notify(point, {});
}

}  // namespace mortise
