#include "core/plan/proof.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "core/base/text.hpp"
#include "core/plan/words.hpp"

namespace mortise {
using namespace words;
namespace {

std::string fact(const PluginInfo& info, const char* name) {
  const Value* value = fact_of(info, "ranks", name);
  return value ? value->as_text() : "";
}

// Whoever averages sums too. "": it does neither.
std::string sums_of(const PluginInfo& info) {
  const std::string sums = fact(info, "sums");
  return sums.empty() ? fact(info, "averages") : sums;
}

std::string ranks(int n) { return std::to_string(n) + (n == 1 ? " rank" : " ranks"); }

// The axes as the mesh numbers them, and behind them one without a name, whose ranks see other samples and have the
// same of every parameter.
std::vector<Axis> axes_of(const Mesh& mesh) {
  std::vector<Axis> axes = mesh.axes();
  int stride = 1;
  for (const Axis& axis : axes) stride *= axis.size;
  axes.push_back({.name = "", .by = "", .size = mesh.size() / stride, .shares_data = false, .stride = stride});
  return axes;
}

std::string along(const Axis& axis) {
  return axis.name.empty() ? "over the " + ranks(axis.size) + " that see other samples" : "along " + quoted(axis.name);
}

std::string state(const std::string& word) {
  return word == "same" ? "the same on each rank" : word == "cut" ? "rows of each rank's own" : "a partial sum";
}

class Proof {
 public:
  Proof(const Plan& plan, const Mesh& mesh, const std::vector<RankedLayer>& layers,
        const std::vector<RankedParameter>& params)
      : plan_(plan), mesh_(mesh), layers_(layers), params_(params), axes_(axes_of(mesh)) {}

  std::vector<std::string> lines() const {
    for (const Member& member : plan_.members) check_layers(*member.info);
    std::vector<std::string> lines;
    std::map<std::string, int> tensors;
    for (const RankedParameter& p : params_) ++tensors[gradient_text(p)];
    for (const auto& [text, n] : tensors)
      lines.push_back("gradients of " + with_commas(n) + (n == 1 ? " tensor: " : " tensors: ") + text);
    lines.push_back("norm: each element counts once" + norms_text());
    for (const Member& member : plan_.members) check_terms(*member.info);
    lines.push_back("terms: each is divided once, by what " + ranks(mesh_.data_size()) +
                    (mesh_.data_size() == 1 ? " has counted" : " have counted") +
                    (mesh_.copies() > 1 ? ", the others see the same samples" : ""));
    return lines;
  }

 private:
  using Path = std::vector<std::string>;

  [[noreturn]] void fail(const std::string& message, Path path, const PluginInfo& by) const {
    Diagnostic d = refusal("not_proven", message, {},
                           {"leave out " + table_of(by) + ", or [ranks] of its plugin.toml says what it does not do"});
    for (const Member& member : plan_.members)
      if (member.info == &by && member.table) d.positions = {member.table->origin};
    d.lines = std::move(path);
    throw Failure(d);
  }

  // Model code knows no axis: it takes the same on ranks that see the same samples, and else rows of each rank's own.
  void check_layers(const PluginInfo& info) const {
    for (const Axis& axis : mesh_.axes())
      for (const char* way : {"gives", "gives_back"}) {
        const std::string takes = axis.shares_data ? "same" : "cut", gives = fact(info, way);
        if (axis.size == 1 || fact(info, "axis") != axis.name || gives == takes) continue;
        const auto layer = std::ranges::find(layers_, &info, &RankedLayer::by);
        const std::string path = layer == layers_.end() ? "" : " at " + layer->path;
        fail(id_of(info) + path + " gives " + (std::string(way) == "gives" ? "" : "back ") + state(gives) + " along " +
                 quoted(axis.name) + ", and " + state(takes) + " is expected",
             {"ranks along " + quoted(axis.name) + " see " + (axis.shares_data ? "the same" : "other") + " samples",
              id_of(info) + ": [ranks] " + way + " = \"" + gives + "\""},
             info);
      }
  }

  bool is_placed(const RankedParameter& p) const { return p.axis >= 0 && axes_[static_cast<size_t>(p.axis)].size > 1; }

  // ---- gradients ----

  // Whose axis it is that a parameter lies along: of its own layers, else of whoever has the axis.
  RankedLayer owner_of(const RankedParameter& p, const Axis& axis) const {
    for (const RankedLayer& layer : p.inside)
      if (fact(*layer.by, "axis") == axis.name) return layer;
    for (const Member& member : plan_.members)
      if (fact(*member.info, "axis") == axis.name) return {"", member.info};
    return {};
  }

  // Who sums the gradient of a parameter, the provider of `replicas` first: it is not the one too many. Of a plugin
  // with layers those of its layers are meant.
  std::vector<const PluginInfo*> summers_of(const RankedParameter& p) const {
    const auto is_layer = [&](const std::string& slot) {
      const int point = plan_.points.find(slot);
      return point >= 0 && plan_.points[static_cast<uint32_t>(point)].kind == Kind::Operator;
    };
    std::vector<const PluginInfo*> all;
    for (const Member& member : plan_.members) {
      const PluginInfo& info = *member.info;
      if (sums_of(info).empty()) continue;
      if (std::ranges::none_of(info.schema.provides, is_layer) ||
          std::ranges::find(p.inside, &info, &RankedLayer::by) != p.inside.end())
        all.insert(provides(info, kReplicas) ? all.begin() : all.end(), &info);
    }
    return all;
  }

  bool provides(const PluginInfo& info, Point point) const {
    return std::ranges::count(info.schema.provides, plan_.points[point].name) > 0;
  }

  // Do ranks that add up the gradient of a parameter stand along an axis?
  bool sums_along(const PluginInfo& by, const RankedParameter& p, const Axis& axis) const {
    const std::string over = sums_of(by);
    return over == "all" || (over == "replicas" && share_along(p.axis, axis));
  }
  bool share_along(int parameter_axis, const Axis& axis) const {
    return std::ranges::any_of(mesh_.sharers(parameter_axis), [&](int32_t rank) {
      return Mesh::place_of(rank, axis) != Mesh::place_of(mesh_.rank(), axis);
    });
  }

  std::string says(const PluginInfo& by, const RankedParameter& p) const {
    const std::string over = sums_of(by);
    const auto replicas = static_cast<int>(mesh_.sharers(p.axis).size());
    if (over == "all") return id_of(by) + " sums it over all " + ranks(mesh_.size());
    if (over == "none" || replicas == 1) return id_of(by) + " sums it over no other rank";
    return id_of(by) + " sums it over the " + ranks(replicas) + " that have the same elements and see other samples";
  }

  // Along one axis it is summed once where each rank has a part, and not at all where each has all of it.
  void check_gradient(const RankedParameter& p, const std::vector<const PluginInfo*>& by, int index) const {
    const Axis& axis = axes_[static_cast<size_t>(index)];
    const bool lies_along = index == p.axis;
    const RankedLayer owner = lies_along ? owner_of(p, axis) : RankedLayer();
    const bool is_whole = lies_along ? fact(*owner.by, "gradient") == "whole" : axis.shares_data;
    Path path = {"each rank has that of the samples which it sees"};
    if (lies_along)
      path = {id_of(*owner.by) + (owner.path.empty() ? "" : " at " + owner.path) + " leaves it " +
              (is_whole ? "whole " : "partial ") + along(axis)};
    std::vector<const PluginInfo*> times;
    for (const PluginInfo* one : by) {
      path.push_back(says(*one, p));
      if (sums_along(*one, p, axis)) times.push_back(one);
    }
    const std::string what = "the gradient of " + p.name + " is ";
    if (lies_along && !is_whole)
      fail(what + "partial " + along(axis) + ", where no other rank has its elements: nothing can add it up", path,
           *owner.by);
    if (times.size() == (is_whole ? 0 : 1)) return;
    if (times.empty()) {
      const PluginInfo& replicas = info_of(plan_, plan_.at[kReplicas].providers.back().member);
      if (sums_of(replicas).empty())
        path.push_back(id_of(replicas) + " does not say over which ranks it sums: [ranks] sums");
      fail(what + "summed by nobody " + along(axis), path, replicas);
    }
    if (!is_whole) fail(what + "summed " + std::to_string(times.size()) + " times " + along(axis), path, *times.back());
    int counts = 1;
    for (size_t i = 0; i < times.size(); ++i) counts *= axis.size;
    fail(what + "whole " + along(axis) + ", and summed there: it counts " + std::to_string(counts) + " times", path,
         *times.back());
  }

  std::string gradient_text(const RankedParameter& p) const {
    const std::vector<const PluginInfo*> by = summers_of(p);
    std::set<std::string> who;
    int over = 1;
    for (int index = 0; index < static_cast<int>(axes_.size()); ++index) {
      const Axis& axis = axes_[static_cast<size_t>(index)];
      if (axis.size == 1) continue;
      check_gradient(p, by, index);
      for (const PluginInfo* one : by)
        if (sums_along(*one, p, axis)) who.insert(id_of(*one)), over *= axis.size;
    }
    std::string text;
    if (is_placed(p))
      text = "whole " + along(axes_[static_cast<size_t>(p.axis)]) + " by " +
             id_of(*owner_of(p, axes_[static_cast<size_t>(p.axis)]).by) + ", ";
    return text + (over == 1 ? "not summed: no other rank has a part of it"
                             : "summed once over " + ranks(over) + " by " + join({who.begin(), who.end()}, ", "));
  }

  // ---- norms ----

  // How often a norm counts an element of a parameter; 0: it leaves out those that other ranks have.
  int times_counted(const RankedParameter& p, const std::string& norms) const {
    if (norms == "none") return is_placed(p) || p.is_sharded ? 0 : 1;
    int times = 1;
    for (int index = 0; norms == "all" && index < static_cast<int>(axes_.size()); ++index) {
      const Axis& axis = axes_[static_cast<size_t>(index)];
      if (index != p.axis && !(p.is_sharded && share_along(p.axis, axis))) times *= axis.size;
    }
    return times;
  }

  // Beside the core's own.
  std::string norms_text() const {
    std::string text;
    for (const Member& member : plan_.members) {
      const PluginInfo& info = *member.info;
      const std::string norms = fact(info, "norms");
      if (norms.empty()) continue;
      for (const RankedParameter& p : params_)
        if (const int times = times_counted(p, norms); times != 1)
          fail(id_of(info) + (times == 0 ? " leaves out of a norm what other ranks have of " + p.name
                                         : " counts " + p.name + " " + std::to_string(times) + " times in a norm"),
               {times == 0 ? "each rank has other elements of it" : ranks(times) + " have the same elements of it",
                id_of(info) + ": [ranks] norms = \"" + norms + "\""},
               info);
      text += ", as " + id_of(info) + " sums it up too";
    }
    return text;
  }

  // The core divides each term by what all ranks have counted, whatever else is done to it.
  void check_terms(const PluginInfo& info) const {
    if (fact(info, "averages").empty()) return;
    fail(id_of(info) + " divides gradients by the number of ranks: each term would be divided twice",
         {"the core divides each term by what " + ranks(mesh_.data_size()) + " have counted",
          id_of(info) + ": [ranks] averages = \"" + fact(info, "averages") + "\""},
         info);
  }

  const Plan& plan_;
  const Mesh& mesh_;
  const std::vector<RankedLayer>& layers_;
  const std::vector<RankedParameter>& params_;
  std::vector<Axis> axes_;
};

}  // namespace

bool counts_squares(const Mesh& mesh, int axis, bool is_sharded) {
  return mesh.is_first_copy(axis) && (is_sharded || mesh.sharers(axis).front() == mesh.rank());
}

std::vector<std::string> proof_of(const Plan& plan, const Mesh& mesh, const std::vector<RankedLayer>& layers,
                                  const std::vector<RankedParameter>& params) {
  return Proof(plan, mesh, layers, params).lines();
}

}  // namespace mortise
