// What an operator or a model declares: mortise.build/0 that writes everything down.
//
//   FakeHost host;
//   FakeBuild build(host);                          // before the plugin
//   Plugin plugin(host, MORTISE_PLUGIN_FILE);
//   build.layer(plugin, "linear", "h.0.fc", {attr("in", 8), attr("out", 4)});  // declares it; returns its `*data`
//   EXPECT_EQ(build.params.at("h.0.fc.weight").sizes, (std::vector<int64_t>{4, 8}));
//
// Layers that a provider asks for are noted, not declared: they belong to other providers. `embedding` alone makes a
// parameter PATH.weight, which models tie their heads to.
#pragma once
#include <cstdio>
#include <deque>
#include <stdexcept>

#include "mortise/cpp/model.hpp"
#include "mortise/operator.h"
#include "mortise/testing/fake_host.hpp"

namespace mortise::testing {

class FakeBuild {
 public:
  struct Layer {
    std::string slot, path, segment;
    std::map<std::string, std::string> attrs;  // as text: 8, 0.02, true, gelu; a parameter by its name
    double share = 0;
  };
  struct Param {
    std::string role, init;
    std::vector<std::string> dims;
    std::vector<int64_t> sizes;
    double scale = 0;
    mortise_param* handle = nullptr;
    bool tied = false;
    uint32_t part_dim = 0;
    std::vector<int64_t> parts = {};
    std::vector<std::string> tags = {};
  };
  struct Merge {
    std::string into, left, right;
    double scale;
    bool transposed;
  };

  explicit FakeBuild(FakeHost& host) : host_(host) {
    if (!host.manifest.empty()) throw std::logic_error("a FakeBuild is made before the plugin, which asks for it");
    static const mortise_build_api table = {.struct_size = sizeof(mortise_build_api),
                                            .segment = segment,
                                            .layer = ask,
                                            .param = param,
                                            .fact = fact,
                                            .merge = merge};
    host.offer("mortise.build/0", &table);
    api.build = &table;
  }
  FakeBuild(const FakeBuild&) = delete;
  FakeBuild& operator=(const FakeBuild&) = delete;

  std::map<std::string, int64_t> facts;
  std::vector<std::pair<std::string, uint32_t>> segments;  // path, flags
  std::deque<Layer> layers;                                // in the order in which they were asked for
  std::map<std::string, Param> params;
  std::vector<Merge> merges;

  // Throws PluginError with the text of a refusal.
  void* layer(const Plugin& plugin, const std::string& slot, const std::string& path,
              std::initializer_list<mortise_attr> attrs) {
    const mortise_layer_spec spec = {
        sizeof spec, static_cast<uint32_t>(attrs.size()), str(slot), str(path), attrs.begin(), 0};
    for (const mortise_attr& a : attrs)
      if (!knows(plugin.manifest(), slot, view(a.key)))
        throw PluginError(MORTISE_E_UNSUPPORTED,
                          "plugin.toml lists no attribute " + std::string(view(a.key)) + " of " + slot);
    void* data = nullptr;
    done(plugin.object<mortise_operator>(slot).declare(plugin.self(), builder(), &spec, &data));
    return data;
  }
  // Does its [slot] list the attribute? As far as a reader of plain text sees.
  static bool knows(std::string_view manifest, const std::string& slot, std::string_view key) {
    const size_t at = manifest.find("\n[" + slot + "]");
    if (at == manifest.npos) return false;
    const std::string_view table = manifest.substr(at + 1, manifest.find("\n[", at + 1) - at - 1);
    return table.find('"' + std::string(key) + '"') != table.npos;
  }
  void model(const Plugin& plugin) { done(plugin.object<mortise_model>("model").declare(plugin.self(), builder())); }
  const Layer& at(const std::string& path) const {
    for (const Layer& l : layers)
      if (l.path == path) return l;
    throw std::out_of_range("no layer " + path);
  }
  // Why the provider cannot run there; empty if it can.
  static std::string refusal(const Plugin& plugin, const std::string& slot, mortise_place place,
                             std::initializer_list<mortise_attr> attrs) {
    place.struct_size = sizeof place;
    place.attrs = attrs.begin();
    place.n_attrs = static_cast<uint32_t>(attrs.size());
    int yes = 0;
    mortise_str why{}, fix{};
    const auto& object = plugin.object<mortise_operator>(slot);
    if (object.supports(plugin.self(), &place, &yes, &why, &fix) != MORTISE_OK) return "supports failed";
    return yes ? std::string() : std::string(view(why)) + "\n  fix: " + std::string(view(fix));
  }

 private:
  mortise_builder* builder() { return reinterpret_cast<mortise_builder*>(this); }
  static FakeBuild& of(mortise_builder* b) { return *reinterpret_cast<FakeBuild*>(b); }
  void done(mortise_status s) const {
    if (s != MORTISE_OK) throw PluginError(s, host_.error());
  }

  static std::string text_of(const mortise_value& v) {
    char number[32];
    switch (v.tag) {
      case MORTISE_INT: return std::to_string(v.v.i);
      case MORTISE_FLOAT: std::snprintf(number, sizeof number, "%g", v.v.f); return number;
      case MORTISE_LOGICAL: return v.v.i ? "true" : "false";
      case MORTISE_TEXT: return std::string(view(v.v.s));
      case MORTISE_PARAM: return std::string(view(info_of(v.v.p).name));
      default: return "?";
    }
  }
  static mortise_status segment(mortise_host*, mortise_builder* b, mortise_str path, uint32_t flags) noexcept {
    of(b).segments.emplace_back(view(path), flags);
    return MORTISE_OK;
  }
  static mortise_status ask(mortise_host*, mortise_builder* b, const mortise_layer_spec* spec,
                            mortise_layer** out) noexcept {
    FakeBuild& f = of(b);
    Layer& l = f.layers.emplace_back();
    l.slot = view(spec->slot), l.path = view(spec->path), l.share = spec->share;
    if (!f.segments.empty()) l.segment = f.segments.back().first;
    for (uint32_t i = 0; i < spec->n_attrs; ++i)
      l.attrs[std::string(view(spec->attrs[i].key))] = text_of(spec->attrs[i].value);
    *out = reinterpret_cast<mortise_layer*>(&l);
    if (l.slot == "embedding") f.host_.add_param(l.path + ".weight", "embedding", {});
    return MORTISE_OK;
  }
  static mortise_status param(mortise_host* h, mortise_builder* b, const mortise_param_spec* spec,
                              mortise_param** out) noexcept {
    FakeBuild& f = of(b);
    if (spec->n_parts > 0 &&
        (spec->part_dim >= spec->rank ||
         std::accumulate(spec->parts, spec->parts + spec->n_parts, int64_t{0}) != spec->sizes[spec->part_dim]))
      return h->fail(h, MORTISE_E_ARGUMENT, MORTISE_STR("the parts do not add up to the size of their dimension"));
    Param& p = f.params[std::string(view(spec->name))];
    p.role = view(spec->role), p.init = view(spec->init), p.scale = spec->init_scale, p.tied = spec->tie != nullptr;
    p.sizes.assign(spec->sizes, spec->sizes + spec->rank);
    for (uint32_t i = 0; i < spec->rank; ++i) p.dims.emplace_back(view(spec->dims[i]));
    p.tags.clear();
    for (uint32_t i = 0; i < spec->n_tags; ++i) p.tags.emplace_back(view(spec->tags[i]));
    p.part_dim = spec->part_dim, p.parts.assign(spec->parts, spec->parts + spec->n_parts);
    p.handle = spec->tie ? spec->tie : f.host_.add_param(std::string(view(spec->name)), p.role, p.sizes);
    if (!spec->tie) f.host_.pack(p.handle, p.part_dim, p.parts), f.host_.name_dims(p.handle, p.dims);
    *out = p.handle;
    return MORTISE_OK;
  }
  static mortise_status fact(mortise_host* h, mortise_builder* b, mortise_str name, int64_t* out) noexcept {
    const auto found = of(b).facts.find(std::string(view(name)));
    if (found == of(b).facts.end()) return h->fail(h, MORTISE_E_NOT_FOUND, MORTISE_STR("nobody decided it"));
    *out = found->second;
    return MORTISE_OK;
  }
  static mortise_status merge(mortise_host*, mortise_builder* b, const mortise_merge_spec* spec) noexcept {
    const auto name = [](const mortise_param* p) { return std::string(view(info_of(p).name)); };
    of(b).merges.push_back(
        {std::string(view(spec->into)), name(spec->left), name(spec->right), spec->scale, spec->transposed != 0});
    return MORTISE_OK;
  }

  FakeHost& host_;
};

}  // namespace mortise::testing
