// The plan, first stage: from manifests alone, with no plugin code, who provides what, who wraps whom and in what order, and why.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "core/manifest/manifest.hpp"
#include "core/plan/points.hpp"
#include "core/plugin/plugin_info.hpp"

namespace mortise {

// One plugin that is part of the run.
struct Member {
  const PluginInfo* info = nullptr;
  const PluginTable* table = nullptr;  // NULL: a candidate of somebody who chooses, not named in the manifest
};

// One claim on a slot: at the paths of `where` (nullptr: all), in these modes (bit 1 << mode).
struct Claim {
  int member = 0;
  const Selector* where = nullptr;
  unsigned modes = 7;
  int layer = 0;
  std::vector<int> choices;  // members to choose from by `supports`, in order; empty: the member itself
  std::string why;           // "gpt2.toml:13", "default.toml:2", "fallback of default.toml:2: no NVIDIA driver"
};

// One wrapper or listener, in its place in the order.
struct Attached {
  int member = 0;
  const Selector* where = nullptr;
  unsigned modes = 7;
  std::string band;   // wrappers only
  std::string why;    // where in a manifest it stands, and why it comes after the one before it
};

struct PointPlan {
  std::vector<Claim> providers;   // the more particular first: with `where` or `modes`, by layer, then the open one
  std::vector<Attached> wrappers; // outermost first
  std::vector<Attached> listeners;
};

struct Plan {
  PointTable points;
  std::vector<Member> members;
  std::vector<PointPlan> at;      // by index of the point
  std::vector<std::string> replaced;  // "schedule.constant (default.toml:13) by schedule.cosine"
  std::string hash;               // six hexadecimal digits over ids, versions, order and values
};

// What the machine can do, so that `fallback` is decided before any plugin runs: asks whether a plugin can start here; "" if it can, else why not
// ("no NVIDIA driver").
using CanStart = std::string (*)(const PluginInfo&);

// Mistakes go to the report: two providers of one place, nothing provides, conflicts, requirements, cycles, two wrappers of one band without an order.
Plan make_plan(const Manifest& manifest, const std::map<std::string, PluginInfo>& catalogue, CanStart can_start, Report& report);

// An element that selectors speak of.
struct Element {
  std::string path;                 // of a layer, segment or parameter
  std::string role, slot;           // "" where it has none
  std::vector<std::string> tags, dims;
};
// Which of `elements` the selector takes, as indices. Order matters for `every` and `from`.
std::vector<size_t> select(const Selector& selector, const std::vector<Element>& elements);

// The provider of each element in one mode: index into `providers`, or -1. Two claims of one layer on one element, a claim that matches nothing and an
// element without a provider go to the report, naming `what` ("parameter", "layer").
std::vector<int> assign(const PointPlan& plan, const Plan& whole, const std::vector<Element>& elements, int mode, std::string_view what, std::string_view point, Report& report);

}  // namespace mortise
