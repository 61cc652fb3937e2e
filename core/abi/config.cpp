// mortise.config/0 and mortise.log/0.
#include <algorithm>

#include "core/abi/cause.hpp"
#include "core/abi/edge.hpp"
#include "core/abi/error.hpp"
#include "core/abi/tables.hpp"
#include "core/base/dtype.hpp"
#include "core/base/log.hpp"

namespace mortise {
namespace {

// The elements, where they stay as long as the plugin's window.
template <class T, class Element>
const T* kept(std::deque<std::vector<T>>& lists, const std::vector<Value>& list, Element element) {
  std::vector<T>& elements = lists.emplace_back();
  for (const Value& v : list) elements.push_back(element(v));
  return elements.data();
}

mortise_value list_value(PluginHost& p, const std::vector<Value>& list) {
  if (list.empty()) return {MORTISE_TEXTS, 0, {.ss = nullptr}};
  const auto n = static_cast<uint32_t>(list.size());
  const auto text = [&](const Value& v) { return str(p.texts.emplace_back(v.as_text())); };
  if (std::holds_alternative<std::string>(list[0].data))
    return {MORTISE_TEXTS, n, {.ss = kept(p.text_lists, list, text)}};
  if (std::holds_alternative<int64_t>(list[0].data))
    return {MORTISE_INTS, n, {.is = kept(p.int_lists, list, std::mem_fn(&Value::as_int))}};
  return {MORTISE_FLOATS, n, {.fs = kept(p.float_lists, list, std::mem_fn(&Value::as_float))}};
}

mortise_value to_c(PluginHost& p, const KeySchema& schema, const Value& v) {
  struct Visitor {
    PluginHost& p;
    const KeySchema& schema;
    mortise_value operator()(std::monostate) const { return {MORTISE_NONE, 0, {.i = 0}}; }
    mortise_value operator()(bool b) const { return {MORTISE_LOGICAL, 0, {.i = b}}; }
    mortise_value operator()(int64_t i) const { return {MORTISE_INT, 0, {.i = i}}; }
    mortise_value operator()(double f) const { return {MORTISE_FLOAT, 0, {.f = f}}; }
    mortise_value operator()(const Amount& a) const {
      return {MORTISE_AMOUNT, static_cast<uint32_t>(a.unit), {.f = a.number}};
    }
    mortise_value operator()(const std::vector<Value>& l) const { return list_value(p, l); }
    mortise_value operator()(const Selector&) const {
      return {MORTISE_NONE, 0, {.i = 0}};
    }  // `where` is the host's key
    mortise_value operator()(const std::string& s) const {
      if (schema.type == "dtype") return {MORTISE_DTYPE, 0, {.i = dtype_named(s)}};
      return {MORTISE_TEXT, 0, {.s = str(p.texts.emplace_back(s))}};
    }
  };
  return std::visit(Visitor{p, schema}, v.data);
}

template <class T>
const T* found_in(const std::map<std::string, T>* map, const std::string& key) {
  if (map == nullptr) return nullptr;
  const auto found = map->find(key);
  return found == map->end() ? nullptr : &found->second;
}

// The value as it stands after all layers; NULL for a plugin without a table of its own.
const Value* value_in_table(const PluginHost& p, const std::string& key) {
  return found_in(p.table ? &p.table->values : nullptr, key);
}

void get(mortise_host* h, mortise_str key, mortise_value* out) {
  PluginHost& p = plugin_of(h);
  if (!out) throw PluginError(MORTISE_E_ARGUMENT, "config.get was called with NULL for the value");
  const std::string name(view(key));
  std::lock_guard lock(p.mutex);
  if (const auto made = p.config.find(name); made != p.config.end()) {
    *out = made->second;
    return;
  }
  const KeySchema* schema = found_in(p.schema ? &p.schema->config.keys : nullptr, name);
  if (schema == nullptr)
    throw PluginError(MORTISE_E_NOT_FOUND, "plugin.toml of " + p.id + " has no [config." + name + "]");
  const Value* value = value_in_table(p, name);
  *out = p.config[name] = to_c(p, *schema, value ? *value : schema->default_value);
}

void pattern(mortise_host* h, mortise_str key, uint32_t index, mortise_str* out) {
  PluginHost& p = plugin_of(h);
  if (!out) throw PluginError(MORTISE_E_ARGUMENT, "config.pattern was called with NULL for the text");
  const Value* value = value_in_table(p, std::string(view(key)));
  const auto* list = value ? std::get_if<std::vector<Value>>(&value->data) : nullptr;
  if (!list || index >= list->size() || !std::holds_alternative<std::string>((*list)[index].data))
    throw PluginError(MORTISE_E_NOT_FOUND, "`" + std::string(view(key)) + "` has no path " + std::to_string(index));
  const Value& path = (*list)[index];
  *out = str(path.glob.empty() ? path.as_text() : path.glob);  // as long as the manifest, which is the run
}

mortise_status refuse(mortise_host* h, mortise_str code, mortise_str key, mortise_str why, mortise_str beside,
                      mortise_str fix) noexcept {
  PluginHost& p = plugin_of(h);
  const std::string name = text_or_complaint(key), slug = text_or_complaint(code),
                    reason = with_cause(text_or_complaint(why));
  const bool is_slug =
      !slug.empty() && slug.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string::npos;
  Diagnostic d = mistake(is_slug ? slug : "refused_value", reason, {}, text_or_complaint(fix));
  const OwnError* own = found_in(p.schema ? &p.schema->errors : nullptr, slug);
  if (own != nullptr && own->of_data) d.exit = kExitData;
  d.beside = text_or_complaint(beside);
  d.plugin = p.id;
  const Value* v = value_in_table(p, name);
  const bool written = v && (v->origin.line || v->origin.file.starts_with("command line"));  // no default
  Position at = written ? v->origin : p.table ? p.table->origin : Position{};
  at.key = p.id + "." + name;
  if (at) d.positions.push_back(at);
  else d.at = at.key;
  const std::lock_guard lock(p.mutex);
  p.blame = std::move(d);
  p.blamed = true;
  return set_error(MORTISE_E_CONFIG, reason);
}

mortise_status blame(mortise_host* h, mortise_str key, mortise_str why, mortise_str fix) noexcept {
  return refuse(h, {}, key, why, {}, fix);
}

void write(mortise_host* h, uint32_t level, mortise_str line) noexcept {
  try {
    log(static_cast<LogLevel>(std::min<uint32_t>(level, 3)), plugin_of(h).id + ": " + text_or_complaint(line));
  } catch (...) {  // a log line that cannot be written stops nothing
  }
}

}  // namespace

const mortise_config_api kConfigApi = {sizeof(mortise_config_api), at_edge<get>, blame, refuse, at_edge<pattern>};
const mortise_log_api kLogApi = {sizeof(mortise_log_api), write};

}  // namespace mortise
