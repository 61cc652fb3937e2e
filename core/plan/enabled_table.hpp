// Between the tables of a manifest and the members of a plan: what each table that is on still holds once the layers
// are settled.
#pragma once
#include <set>

#include "core/plan/plan.hpp"

namespace mortise {

using Catalogue = std::map<std::string, PluginInfo>;

// What a plan is made from.
struct Sources {
  const Manifest& manifest;
  const Catalogue& catalogue;
  const CanStart& can_start;
  // "": it can start on this machine.
  std::string reason_against(const PluginInfo& info) const { return can_start ? can_start(info) : ""; }
};

struct Slot {
  std::string point;
  unsigned modes = 7;
  std::vector<const PluginInfo*> choices;  // of one who chooses, in its own order
};

// Where its wrappers and listeners stand, and what it has besides.
struct EnabledTable : Placed {
  const PluginInfo* info = nullptr;  // who does the work: the table's plugin or, if that cannot run here, its stand-in
  const PluginTable* table = nullptr;  // what was written
  std::vector<Slot> slots;
  std::vector<Place> except;
  std::set<std::string> lost, lost_to;  // slots and groups; ids
  bool is_replaced = false;
  std::string leave_out;  // "leave out --without ID", if a fallback that is switched off would do; ""

  bool is_stand_in() const { return table->schema->id != info->schema.id; }
  bool is_open() const { return !table->where && table->modes.empty(); }
};

// Tables that a later layer replaced are left out and written to `replaced`. In the order of ids.
std::vector<EnabledTable> settle_layers(const Manifest&, const Catalogue&, std::vector<std::string>& replaced, Report&);

// Puts the first able of a table's `fallback` in the place of a plugin that cannot run on this machine or, with
// run.deterministic, does not repeat its bits on the run's device; of a device also where somebody of the run does not
// work on it. Who has none is refused. Says plan.device.
void put_stand_ins(Plan&, std::vector<EnabledTable>&, const Sources&, Report&);

// Whom the choosers may take: what is installed, can start, repeats where it must, and was not switched off.
void gather_choices(Plan&, std::vector<EnabledTable>&, const Sources&, Report&);

// The order of wrappers and of listeners at every point. `order`: the ids at a point by its name, the manifest's last
// word.
void put_in_order(Plan&, const std::map<std::string, Value>& order, Report&);

// The index of a point that a plugin names, or -1 and an error: no such point, or one of a kind that cannot be attached
// to in this way.
enum class Way { Provides, Wraps, Listens };
int find_point(const Plan&, const Catalogue&, const EnabledTable&, Way, const std::string& name,
               const Position& written, Report&);
std::string nearest_point(const Plan&, const std::string& name);  // as a fix
// Not the user's: `written` is where the plugin's author wrote it.
Diagnostic plugins_mistake(std::string code, std::string message, const EnabledTable&, const Position& written,
                           std::string fix);
// What plugin.toml says of an attachment must fit its point. False: there is no such band.
void check_listener(const EnabledTable&, const PointRow&, const ListenInfo&, Report&);
bool check_wrapper(const EnabledTable&, const PointRow&, const WrapInfo&, Report&);
bool check_watcher(const EnabledTable&, const WrapInfo&, Report&);  // of "*"
void check_requirements(const Plan&, const std::vector<EnabledTable>&, const Sources&, Report&);
// The `modes` of a table leave its plugin something to do, at a point that is called in a mode.
void check_modes(const Plan&, const std::vector<EnabledTable>&, Report&);
// A share of the training data that is asked for and not held out, since the data has files of its own for it.
void check_validation(const Manifest&, const std::vector<EnabledTable>&, Report&);
// "cpu" or "cuda": a device of another name may say of which kind it is, [device] kind = "cpu".
std::string device_kind(const PluginInfo&);
// The devices that a plugin asks for, if that of this plan is none of them; none: it can run. What an optimizer says of
// itself is of where updates are computed.
std::vector<std::string> other_devices(const PluginInfo& info, const Plan& plan);
// Who has updates computed on the host's processor; NULL: nobody, they are where the run is.
const EnabledTable* host_updater(const std::vector<EnabledTable>&);
// What facts of plugin.toml say of the run's device: who does not work on it is refused, or not chosen.
void check_devices(Plan&, const std::vector<EnabledTable>&, const Sources&, Report&);
// [model] modes of plugin.toml: the modes that a model serves, if not all; who samples needs `sample` among them.
void check_sampled(const Plan&, Report&);
// How tensors may be cut, where a plugin waits, which points a provider covers.
void check_facts(const Plan&, const std::vector<EnabledTable>&, Report&);
// Whoever records work of the device, in band `capture`, can record all that is inside.
void check_captured(const Plan&, const std::vector<EnabledTable>&, Report&);
// [names] operators = "KEY" of plugin.toml: what that key holds are operators of this run.
void check_names(const Plan&, const std::vector<EnabledTable>&, const Catalogue&, Report&);
void check_conflicts(const std::vector<EnabledTable>&, Report&);

// Six hexadecimal digits over ids, versions, order and every value that is not `free`, the core's own among them, but
// not over where in a manifest they stand.
std::string hash_of(const Plan&, const Manifest&);

}  // namespace mortise
