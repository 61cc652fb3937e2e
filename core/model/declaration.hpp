// What a model is made of before anything is allocated: segments, layers and parameters, with the fields that filters
// may still change. The opaque handles of the SDK, mortise_param and mortise_layer, are these declarations; whatever
// belongs to the run (values, buffers, chains) is kept elsewhere by their index.
#pragma once
#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/plan/plan.hpp"
#include "mortise/operator.h"
#include "mortise/params.h"

namespace mortise {

// Elements of a parameter, in memory order.
struct Piece {
  int64_t offset = 0, length = 0;
};

// Of a parameter that every rank has but a part of: master and gradient are that part.
struct Shards {
  std::vector<Piece> pieces;    // of each rank; empty: every rank has all of it
  Piece own;                    // of this rank
  int64_t room = 0;             // elements that a whole value, and a whole gradient, have memory for
  bool comes_and_goes = false;  // the value: it is there for as long as it is used
};

// Of a parameter of which ranks along an axis have other elements: one of them all, or each as many along a dimension.
struct Placement {
  int axis = -1;            // of the mesh; -1: every rank has all of it
  int owner = -1;           // who has all of it; -1: it is cut
  int rank = 0, ranks = 1;  // this one along the axis, of how many
  size_t dim = 0;
  std::vector<int64_t> whole;  // sizes
};

// Whose `declare` is running: the model's, or that of a provider of one layer.
struct Declarer {
  const mortise_layer* layer = nullptr;
  std::string id;  // of the plugin
};

}  // namespace mortise

// A parameter. `info` points into the strings and vectors beside it, so a declaration never moves (it lives in a
// deque).
struct mortise_param {
  uint32_t index = 0;
  mortise::Declarer declarer;
  std::string name, role, init;
  std::vector<std::string> tags, dims, other_names;  // other_names: names that are tied to this parameter
  std::vector<int64_t> sizes, parts;                 // sizes: of what this rank has
  double init_scale = 0;
  const float* values = nullptr;  // of the init "values", the declarer's
  int segment = 0;
  // Rules of the manifest; negative: the family's.
  double lr = -1, lr_scale = 1, weight_decay = -1;
  int optimizer = 0;  // which provider of `optimizer` has it
  mortise_param_info info{};
  std::vector<mortise_str> tag_views, dim_views;
  mortise::Shards shards;
  bool is_sharded() const { return !shards.pieces.empty(); }
  mortise::Placement placement;
  bool is_placed() const { return placement.axis >= 0; }
  bool is_in_parts() const { return is_sharded() || is_placed(); }  // among all ranks
  const std::vector<int64_t>& whole_sizes() const { return is_placed() ? placement.whole : sizes; }
  int64_t whole_numel() const;
  // Of the ranks that have these elements this is the one that counts them, in what is summed over all.
  bool counts = true;
  // Its master lies in the host's memory, and its value is other memory, even of the same type on the same device.
  bool is_updated_on_host() const { return info.trainable && (info.update_on_host || info.states_in_store); }
  bool is_stored() const { return info.trainable && info.states_in_store; }  // what its optimizer keeps
  bool has_tag(std::string_view tag) const;
  void add_tag(const std::string& tag);
};

// A layer: an operator at a path, with the data that its providers bound to it, a mode at a time.
struct mortise_layer {
  uint32_t index = 0;
  int point = 0;
  int segment = 0;
  mortise::Declarer declarer;
  const mortise_layer* around = nullptr;  // of the same slot and path, whose provider asked for the next one's layer
  std::string slot, path;
  std::deque<std::string> texts;  // what attrs point into
  std::vector<mortise_attr> attrs;
  std::array<void*, MORTISE_MODES> data{};
  double share = 1;  // of all positions, those that it sees on average
};

namespace mortise {

struct Segment {
  std::string path;
  uint32_t flags = 0;
};

// What goes into a parameter on export: into + scale × left · right, or its transpose.
struct Merge {
  const mortise_param *into, *left, *right;
  double scale;
  bool transposed;
};

struct Declaration {
  std::vector<Segment> segments;
  std::deque<mortise_layer> layers;
  std::deque<mortise_param> params;
  std::vector<Merge> merges;
  std::map<std::string, int64_t> facts;  // "vocabulary", "classes", "sequence_length", … (build.h)
  std::vector<std::string> classes;      // what labels of whole samples mean
  // Where they stand; of thousands of experts each is looked for by its name.
  std::multimap<std::string, uint32_t, std::less<>> layers_at;  // by path
  std::map<std::string, uint32_t, std::less<>> params_by_name;  // of the first `n_named`, other names too
  size_t n_named = 0;

  mortise_param* find(std::string_view name);
  std::vector<Element> param_elements() const;
  std::vector<Element> layer_elements() const;  // one a path
  int64_t count() const;                        // elements of all parameters
};

}  // namespace mortise

// The builder handed to `declare`. `provide` calls the providers of a layer that was just asked for; it throws to
// refuse.
struct mortise_builder {
  mortise::Declaration& declaration;
  std::function<void(mortise_layer&, const mortise_layer_spec&)> provide;
  mortise::Declarer declarer = {};
};

namespace mortise {

// The functions behind mortise.build/0; they throw std::invalid_argument with a text for the author of the plugin.
void add_segment(mortise_builder& b, std::string_view path, uint32_t flags);
mortise_layer* add_layer(mortise_builder& b, const PointTable& points, const mortise_layer_spec& spec);
mortise_param* add_param(mortise_builder& b, const mortise_param_spec& spec);
void add_merge(mortise_builder& b, const mortise_merge_spec& spec);
// Where this rank stands along an axis. `name` lives as long as the declaration.
struct OnAxis {
  int axis;
  std::string_view name;
  int rank, ranks;
};
// From here on this rank has of a parameter what lies there: all of it on `owner` alone, or an even part along the
// dimension of that name.
void place(mortise_param& p, const OnAxis& here, int64_t owner);
void place(mortise_param& p, const OnAxis& here, std::string_view dim);

// After the filters and rules: one group for each (optimizer, lr, weight decay) of trainable ones. Writes info.group of
// every parameter; -1 of a frozen one.
struct Group {
  int optimizer = 0;
  double lr = 0, weight_decay = 0;
};
std::vector<Group> make_groups(Declaration& d, const std::vector<double>& family_lr,
                               const std::vector<double>& family_weight_decay);

// Bytes by what they hold; exact, from the declaration alone.
struct Memory {
  int64_t weights = 0, gradients = 0, states = 0, casts = 0;
  int64_t host = 0;  // of masters, in the host's memory
};
Memory weights_and_gradients(const Declaration& d);

}  // namespace mortise
