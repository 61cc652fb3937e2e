// The plan, first stage: from manifests alone, with no plugin code, who provides what, who wraps whom and in what
// order, and why.
#pragma once
#include <functional>
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
  const PluginTable* table =
      nullptr;  // NULL: a candidate of somebody who chooses, or a fallback, not named in the manifest
};

// Some of the elements (nullptr: all), in some modes (bit 1 << mode).
struct Place {
  const Selector* where = nullptr;
  unsigned modes = 7;
};

// A plugin at a point.
struct Placed : Place {
  int member = 0;
  std::string why;         // "gpt2.toml:13", "default.toml:2", "device.x cannot run here: no driver; fallback of
                           // default.toml:2"
  Position origin;         // of the table that asks for it, also for a fallback
  bool stands_in = false;  // a fallback of one that cannot run here
};

// One claim on a slot.
struct Claim : Placed {
  int layer = 0;
  bool open = true;          // neither `where` nor `modes` in its table: it takes the rest
  std::vector<int> choices;  // members to choose from by `supports`, in order; empty: the member itself
};

// Why one stands after another (a member). `because` is a clause that begins with the name of one of the two.
struct Reason {
  int after = 0;
  std::string because;
};

// One wrapper or listener, in its place in the order.
struct Attached : Placed {
  std::vector<Place> except;    // taken by others of its exclusive group
  std::string band;             // wrappers only
  bool of_all = false;          // wraps every point, by "*"
  std::vector<Reason> reasons;  // the edges of the order that end here
};

struct PointPlan {
  std::vector<Claim> providers;    // the more particular first: with `where` or `modes`, by layer, then the open one
  std::vector<Attached> wrappers;  // outermost first
  std::vector<Attached> listeners;
};

// Points into the manifest and the catalogue that it was made from: they must outlive it and stay where they are.
struct Plan {
  PointTable points;
  std::vector<Member> members;
  std::vector<PointPlan> at;            // by index of the point
  std::vector<std::string> replaced;    // "ID (default.toml:13) by ID"
  std::string device;                   // the kind of the run's device, "cpu" or "cuda"; "": none is on
  std::vector<std::string> updates_on;  // the kinds of devices that compute updates of parameters
  const Value* repeats = nullptr;       // [run] deterministic, where it is true
  std::vector<std::string> kept_out;    // for that: "ID (why its bits differ)" of whom others stand in or are chosen
  std::string hash;                     // six hexadecimal digits over ids, versions, order and values
};

// What the machine can do, so that `fallback` is decided before any plugin runs: asks whether a plugin can start here;
// "" if it can, else why not
// ("no NVIDIA driver").
using CanStart = std::function<std::string(const PluginInfo&)>;

// Mistakes go to the report, all of them: two providers of one place, nothing provides, unknown points, requirements,
// conflicts, cycles, two wrappers of one band without an order. The plan is only meaningful without errors, but whole
// enough to be printed.
Plan make_plan(const Manifest& manifest, const std::map<std::string, PluginInfo>& catalogue, const CanStart& can_start,
               Report& report);

// An element that selectors speak of.
struct Element {
  std::string path;        // of a layer, segment or parameter
  std::string role, slot;  // "" where it has none
  std::vector<std::string> tags, dims;
};
// What selectors call it besides its path: "role:norm", "tag:head".
std::vector<std::string> atoms_of(const Element& element);
// A selector at work on elements that come one after another: `every` and `from` count those that it matches.
class Selection {
 public:
  explicit Selection(const Selector& selector) : selector_(&selector), number_(-selector.from) {}
  bool takes(const Element& next);

 private:
  const Selector* selector_;
  int number_;
};
// Is there a path that both globs match?
bool globs_meet(const std::string& a, const std::string& b);
// Can the selector take a layer of this slot below a path, whatever layers there are? Counting is not looked at.
bool may_take_below(const Selector& selector, const std::string& path, const std::string& slot);
// Which of `elements` the selector takes, as indices. Order matters for `every` and `from`.
std::vector<size_t> select(const Selector& selector, const std::vector<Element>& elements);
// What lies there in one mode, as indices; for a wrapper or listener, where it acts.
std::vector<size_t> select(const Place& place, const std::vector<Element>& elements, int mode);
std::vector<size_t> select(const Attached& attached, const std::vector<Element>& elements, int mode);

// The provider of each element in one mode: index into `providers`, or -1. Two claims of one layer on one element, a
// claim that matches nothing and an element without a provider go to the report, naming `what` ("parameter", "layer").
std::vector<int> assign(const PointPlan& plan, const Plan& whole, const std::vector<Element>& elements, int mode,
                        const std::string& what, const std::string& slot, Report& report);

// Every `where` of the plan must take something of all that the model declared at the points where its plugin attaches;
// and each listener of params.declared, and all that one provides, must take something. `what` as above.
void check_where(const Plan& plan, const std::vector<Element>& elements, const std::string& what, Report& report);

}  // namespace mortise
