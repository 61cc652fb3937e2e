// For the tests of this room: a small world of plugins and a manifest, written by hand so that no parser is needed.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "core/plan/plan.hpp"

namespace mortise::test {

constexpr int kDefault = 0, kFile = 1;  // layers

struct World {
  std::map<std::string, PluginInfo> catalogue;
  Manifest manifest;
  Report report;
  CanStart can_start = [](const PluginInfo&) { return std::string(); };

  // One plugin for each slot that every run needs, all in the file.
  static World runnable() {
    World world;
    int line = 1;
    for (const auto& [id, slot] : std::vector<std::pair<std::string, std::string>>{{"comm.local", "comm"},
                                                                                   {"data.text", "data"},
                                                                                   {"device.cpu", "device"},
                                                                                   {"model.gpt", "model"},
                                                                                   {"optimizer.adamw", "optimizer"},
                                                                                   {"parallel.none", "replicas"}}) {
      world.plugin(id).schema.provides = {slot};
      world.table(id, line++);
    }
    return world;
  }

  PluginInfo& plugin(const std::string& id) {
    PluginInfo& info = catalogue[id];
    const size_t dot = id.find('.');
    info.schema.id = id;
    info.schema.family = id.substr(0, dot);
    info.schema.name = id.substr(dot + 1);
    info.schema.summary = "the summary of " + id;
    info.version = "0.1.0";
    info.status = "stable";
    info.toml_path = "plugins/" + id + ".toml";
    return info;
  }
  PluginInfo& provider(const std::string& id, std::vector<std::string> slots) {
    PluginInfo& info = plugin(id);
    info.schema.provides = std::move(slots);
    return info;
  }
  PluginInfo& wrapper(const std::string& id, const std::string& point, const std::string& band) {
    PluginInfo& info = plugin(id);
    info.wraps = {{point, band, false}};
    return info;
  }
  PluginInfo& listener(const std::string& id, const std::string& point, std::vector<std::string> reads = {},
                       std::vector<std::string> writes = {}) {
    PluginInfo& info = plugin(id);
    info.listens = {{point, std::move(reads), std::move(writes), false}};
    return info;
  }
  // A plugin that brings operators without filling them.
  PluginInfo& operators(const std::vector<std::string>& names) {
    PluginInfo& info = plugin("operators.rows");
    for (const std::string& name : names) info.operators.push_back({name, "x", "y", "an operator"});
    table("operators.rows", 90);
    return info;
  }

  PluginTable& table(const std::string& id, int line, int layer = kFile) {
    PluginTable table;
    table.schema = &catalogue.at(id).schema;
    table.origin = {layer == kDefault ? "default.toml" : layer == kFile ? "run.toml" : "command line", line, 1, id};
    table.layer = layer;
    manifest.plugins.push_back(table);
    std::ranges::sort(manifest.plugins, {}, [](const PluginTable& t) { return t.schema->id; });
    return *std::ranges::find(manifest.plugins, id, [](const PluginTable& t) { return t.schema->id; });
  }
  void drop(const std::string& id) {
    std::erase_if(manifest.plugins, [&](const PluginTable& t) { return t.schema->id == id; });
  }

  Plan plan() {
    report = Report();
    return make_plan(manifest, catalogue, can_start, report);
  }
  // What is printed for a manifest with mistakes, and nothing where there is none.
  std::string errors() {
    plan();
    return text();
  }
  std::string text() const {
    std::ostringstream out;
    report.print(out, false, "");
    return out.str();
  }
};

inline Selector where(std::vector<std::string> match, std::vector<std::string> except = {}, int every = 1,
                      int from = 0) {
  return {std::move(match), std::move(except), every, from, {"run.toml", 7, 9, ""}};
}

inline const PointPlan& at(const Plan& plan, std::string_view point) {
  return plan.at[static_cast<size_t>(plan.points.find(point))];
}

template <class List>
std::vector<std::string> ids(const Plan& plan, const List& list) {
  std::vector<std::string> found;
  for (const auto& item : list) found.push_back(plan.members[static_cast<size_t>(item.member)].info->schema.id);
  return found;
}
inline std::vector<std::string> providers(const Plan& plan, std::string_view point) {
  return ids(plan, at(plan, point).providers);
}
inline std::vector<std::string> wrappers(const Plan& plan, std::string_view point) {
  return ids(plan, at(plan, point).wrappers);
}
inline std::vector<std::string> listeners(const Plan& plan, std::string_view point) {
  return ids(plan, at(plan, point).listeners);
}

using Ids = std::vector<std::string>;

}  // namespace mortise::test
