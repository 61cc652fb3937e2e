#include "core/manifest/check.hpp"

#include <algorithm>
#include <cmath>

#include "core/base/dtype.hpp"
#include "core/base/text.hpp"

namespace mortise {
namespace {

const std::string kSelectorKeys[] = {"match", "except", "every", "from"};

bool is_list(const std::string& type) { return type.starts_with("list<") && type.ends_with(">"); }
std::string last_part(const std::string& key) { return key.substr(key.rfind('.') + 1); }

// Long, with small letters and digits mixed, or with characters that the name of a variable has not: a key, not the
// name of one.
bool looks_like_secret(std::string_view text) {
  const auto any = [&](auto is) { return std::ranges::any_of(text, is); };
  const bool digit = any([](char c) { return c >= '0' && c <= '9'; }),
             small = any([](char c) { return c >= 'a' && c <= 'z'; });
  const bool other = any([](char c) { return c != '_' && std::isalnum(static_cast<unsigned char>(c)) == 0; });
  return text.empty() || other || (text[0] >= '0' && text[0] <= '9') || (text.size() >= 20 && small && digit);
}

// The number, if it is one without a fraction that an int64_t and a double both hold.
std::optional<int64_t> whole_number(const TomlNode& node) {
  if (const auto* whole = std::get_if<int64_t>(&node.data)) return *whole;
  const auto* real = std::get_if<double>(&node.data);
  return real != nullptr && std::fabs(*real) <= 0x1p53 && *real == std::floor(*real)
             ? std::optional(static_cast<int64_t>(*real))
             : std::nullopt;
}

// What a key of text takes: text, or on the command line whatever was typed.
std::optional<std::string> text_in(const TomlNode& node) {
  if (!node.typed.empty()) return node.typed;
  return node.text() != nullptr ? std::optional(*node.text()) : std::nullopt;
}

// "10M" and "10 M" with the unit that such a count is mostly of: "10 M tokens". "" for anything else.
std::string with_unit(const std::string& text, const std::string& of_thousands) {
  const size_t last = text.find_last_not_of("KMB ");
  if (last == std::string::npos || last + 1 == text.size()) return "";
  const std::string whole =
      text.substr(0, last + 1) + " " + text.back() + " " + (text.back() == 'K' ? of_thousands : "tokens");
  return parse_amount(whole) ? whole : "";
}

std::string shown(const TomlNode& node) {
  if (!node.typed.empty()) return node.typed;
  const std::optional<Value> value = plain_value(node, "");
  return value ? value->text() : node.kind();
}

using Data = decltype(Value::data);
class Checker;

struct Type {
  const char *name, *is, *are, *example;  // "optimizer.lr is a number"; "… is a list of numbers"
  Data (Checker::*data)(const TomlNode&) const;
};
const Type* type_of(const std::string& type);  // of a list: its elements'

// Throws Failure for a value that does not fit.
class Checker {
 public:
  Checker(const KeySchema& schema, Position at)
      : schema_(schema), type_(*type_of(schema.type)), is_list_(is_list(schema.type)), at_(std::move(at)) {}

  Value value(const TomlNode& node) const {
    // One text is a list of one: path = "a.bin".
    const bool one = is_list_ && node.list() == nullptr && type_.data == &Checker::text && text_in(node);
    if (!is_list_) return element(node);
    if (one) return {std::vector<Value>{element(node)}, place_of(node)};
    if (node.list() == nullptr) wrong_type(node);
    std::vector<Value> values;
    for (const TomlNode& each : *node.list()) values.push_back(element(each));
    return {std::move(values), place_of(node)};
  }

  Data boolean(const TomlNode& node) const {
    if (!std::holds_alternative<bool>(node.data)) wrong_type(node);
    return std::get<bool>(node.data);
  }

  Data integer(const TomlNode& node) const {
    std::optional<int64_t> value = whole_number(node);
    if (is("bytes") && node.text() != nullptr) value = parse_bytes(*node.text());
    // Larger than TOML has it, it was taken for text.
    if (node.text() != nullptr && node.text()->size() > 18 &&
        node.text()->find_first_not_of("0123456789") == std::string::npos)
      refuse("out_of_range", at_.key + " is a whole number, and " + *node.text() + " is too large for one", node,
             suggestion(node));
    if (!value) wrong_type(node);
    must_be_in_range(node, static_cast<double>(*value));
    return *value;
  }

  Data number(const TomlNode& node) const {
    const auto* real = std::get_if<double>(&node.data);
    const auto* whole = std::get_if<int64_t>(&node.data);
    if (whole == nullptr && (real == nullptr || !std::isfinite(*real))) wrong_type(node);
    const double value = whole != nullptr ? static_cast<double>(*whole) : *real;
    must_be_in_range(node, value);
    return value;
  }

  Data amount(const TomlNode& node) const {
    const bool batch = is("amount");
    std::optional<Amount> value;
    if (const std::optional<int64_t> whole = whole_number(node))
      value = {static_cast<double>(*whole), batch ? Unit::kSamples : Unit::kSteps};
    else if (node.text() != nullptr) value = parse_amount(*node.text());
    if (const std::string* text = node.text(); !value && text != nullptr && text->ends_with('%'))
      if (const double share = std::strtod(text->c_str(), nullptr); share > 100)
        refuse("out_of_range", at_.key + " is a share of the run, at most 100%, this is " + shown(node), node,
               assigned(json_string(amount_text({std::min(share / 100, 100.0), Unit::kPercent}))));
    if (!value) wrong_type(node);
    if (at_.key == "run.length" && value->unit == Unit::kSeconds)
      refuse("wrong_unit", "run.length is in " + either(schema_.choices) + "; a time is run.time_limit", node,
             assignment({at_.file, at_.line, at_.column, "run.time_limit"}, json_string(*node.text())));
    const std::vector<std::string> units = batch ? std::vector<std::string>{"samples", "tokens"} : schema_.choices;
    const std::string unit = unit_name(value->unit);
    if (whole_number(node) && units == std::vector<std::string>{"seconds"}) {
      must_be_in_range(node, value->number);  // else the unit is not all that is wrong
      refuse("wrong_unit", at_.key + " is a time, and " + shown(node) + " has no unit", node,
             assigned(json_string(amount_text({value->number, Unit::kSeconds}))));
    }
    if (!units.empty() && std::ranges::find(units, unit) == units.end())
      refuse("not_a_choice", at_.key + " is in " + either(units) + ", this is in " + unit, node, default_value());
    must_be_in_range(node, value->number);
    return *value;
  }

  Data text(const TomlNode& node) const {
    const std::optional<std::string> written = text_in(node);
    if (is("env") && (!written || looks_like_secret(*written)))
      refuse("secret_in_manifest", at_.key + " is the name of an environment variable; this looks like a key", node,
             assigned(schema_.default_value.is_set() ? schema_.default_value.text() : "\"NAME_OF_THE_VARIABLE\"") +
                 ", exported where the run starts; revoke this key if the file was shared");
    if (!written || written->find('\0') != std::string::npos) wrong_type(node);
    if (is("choice")) must_be_one_of(schema_.choices, *written, node);
    if (is("dtype")) must_be_one_of(dtype_names(), *written, node);
    const bool empty = written->empty() && (is("path") || is("metric"));
    if (empty || (is("id") && !is_id(*written)) || (is("metric") && written->find(' ') != std::string::npos))
      wrong_type(node);
    return *written;
  }

  Data selector(const TomlNode& node) const {
    Selector out;
    out.origin = place_of(node);
    if (node.table() == nullptr) {
      out.match = globs(node);
      return out;
    }
    out.match = {"*"};
    for (const TomlEntry& entry : node.table()->entries) {
      if (entry.key == "match") out.match = globs(entry.value);
      if (entry.key == "except") out.except = globs(entry.value);
      if (entry.key == "every") out.every = count(entry, 1);
      if (entry.key == "from") out.from = count(entry, 0);
      if (std::ranges::count(kSelectorKeys, entry.key) == 0)
        refuse("unknown_key", at_.key + " has no key `" + entry.key + "`", entry.value,
               "a selector has match, except, every and from");
    }
    return out;
  }

 private:
  Value element(const TomlNode& node) const { return {(this->*type_.data)(node), place_of(node)}; }

  int count(const TomlEntry& entry, int least) const {
    const std::optional<int64_t> value = whole_number(entry.value);
    if (value && *value >= least && *value <= 1'000'000) return static_cast<int>(*value);
    refuse("out_of_range",
           at_.key + "." + entry.key + " is a whole number from " + std::to_string(least) + " to 1000000, this is " +
               shown(entry.value),
           entry.value, last_part(at_.key) + " = { every = 2, from = 1 }");
  }

  std::vector<std::string> globs(const TomlNode& node) const {
    std::vector<std::string> all;
    for (const TomlNode& element : node.list() != nullptr ? *node.list() : TomlList{node}) {
      const std::optional<std::string> glob = text_in(element);
      if (!glob || glob->empty()) wrong_type(element);
      all.push_back(*glob);
    }
    if (all.empty()) wrong_type(node);
    return all;
  }

  void must_be_one_of(const std::vector<std::string>& choices, const std::string& written, const TomlNode& node) const {
    if (std::ranges::find(choices, written) != choices.end()) return;
    const std::string near = nearest(written, choices);
    refuse("not_a_choice", at_.key + " is " + either(choices) + ", this is `" + written + "`", node,
           near.empty() ? default_value() : assigned(json_string(near)));
  }

  void must_be_in_range(const TomlNode& node, double value) const {
    const bool may_be_negative = is("int") || is("float") || schema_.exclusive_min;
    const std::optional<double> low = schema_.min || may_be_negative ? schema_.min : 0, high = schema_.max,
                                above = schema_.exclusive_min;
    if ((!low || value >= *low) && (!high || value <= *high) && (!above || value > *above)) return;
    const bool too_high = high && value > *high;
    std::string range = low && high ? whole_text(*low) + " to " + whole_text(*high)
                        : too_high  ? "at most " + whole_text(*high)
                        : low       ? whole_text(*low) + " or more"
                                    : "more than " + whole_text(*above);
    if (is("duration") && schema_.choices.size() == 1) range += " " + schema_.choices[0];
    std::string fix = suggestion(node);
    // Of a few numbers the nearest; else what is usual is better than a limit.
    const bool few = low && high && is("int") && *high - *low < 8;
    const bool guess = !is("duration") && (!schema_.default_value.is_set() || (few && too_high));
    if (low == 0 && high == 1 && value > 1 && value <= 100)
      fix = (is_list_ ? number_text(value / 100) : assigned(number_text(value / 100))) + "   for " + shown(node) +
            " per cent";
    else if (guess && too_high) fix = assigned(whole_text(*high));
    else if (guess && schema_.min) fix = assigned(whole_text(*schema_.min));
    refuse("out_of_range", at_.key + " is " + range + ", this is " + shown(node), node, fix);
  }

  [[noreturn]] void wrong_type(const TomlNode& node) const {
    // A number, or a text where a text could stand: then what is written says more than its kind.
    const bool number = node.data.index() == 1 || node.data.index() == 2, choice = is("choice") && !is_list_;
    const bool text = node.text() != nullptr && !is_list_ && !is("bool") && !is("int") && !is("float");
    const bool own_table = node.is_table() && at_.line > 0 && std::ranges::count(at_.key, '.') == 1;
    const std::string is_own_table =  // [schedule.warmup]
        own_table ? "`" + last_part(at_.key) + "` is a key of [" + at_.key.substr(0, at_.key.find('.')) + "]: " : "";
    refuse("wrong_type",
           at_.key + " is " +
               (is_list_ ? std::string("a list of ") + type_.are
                : choice ? either(schema_.choices)
                         : type_.is) +
               ", this is " + (number || text || choice ? shown(node) : node.kind()),
           node, is_own_table + suggestion(node));
  }

  [[noreturn]] void refuse(const char* code, const std::string& message, const TomlNode& node,
                           const std::string& fix) const {
    throw Failure(mistake(code, message, place_of(node), fix));
  }

  // On the command line, no part of a value has a place of its own.
  Position place_of(const TomlNode& node) const { return at_.line == 0 ? at_ : position(node.at, at_.key); }
  std::string assigned(const std::string& value) const { return assignment(at_, value); }
  std::string default_value() const {
    return schema_.default_value.is_set() ? assigned(schema_.default_value.text()) : "";
  }

  // What was meant, if quotes are all that is wrong; else the default; else an example.
  std::string suggestion(const TomlNode& node) const {
    const std::string* text = node.text();
    const auto* whole_bool = is("bool") && !is_list_ ? std::get_if<int64_t>(&node.data) : nullptr;
    if (whole_bool && (*whole_bool == 0 || *whole_bool == 1)) return assigned(*whole_bool ? "true" : "false");
    Report quiet;
    const std::optional<TomlTable> bare =
        text != nullptr && text->size() < 100 ? parse_toml("v = " + *text, "", quiet) : std::nullopt;
    if (bare && bare->entries.size() == 1 && bare->entries[0].value.text() == nullptr &&
        check_value(schema_, bare->entries[0].value, at_.key, quiet))
      return assigned(*text);
    if ((is("string") || is("path")) && node.data.index() >= 1 && node.data.index() < 3)
      return assigned(is_list_ ? "[" + json_string(shown(node)) + "]" : json_string(shown(node)));
    if (const std::string share = share_of(node); !share.empty()) return assigned(share);
    if (text != nullptr && (is("amount") || std::ranges::count(schema_.choices, "tokens") > 0))
      if (const std::string whole = with_unit(*text, is("amount") ? "samples" : "steps"); !whole.empty())
        return assigned(json_string(whole));
    if (is("choice") && !is_list_ && schema_.choices.size() == 1) return assigned(json_string(schema_.choices[0]));
    if (schema_.default_value.is_set()) return default_value();
    if (is("duration") && !schema_.choices.empty()) return assigned("\"500 " + schema_.choices[0] + "\"");
    return assigned(is_list_ ? "[" + std::string(type_.example) + "]" : type_.example);
  }

  // A share of a run is in per cent, any other a number: 0.03 is "3%", "10%" is 0.1; "" if neither was written.
  std::string share_of(const TomlNode& node) const {
    const auto* real = std::get_if<double>(&node.data);
    const bool in_percent = is("duration") && std::ranges::count(schema_.choices, "percent") > 0;
    if (in_percent && real != nullptr && *real > 0 && *real < 1)
      return json_string(amount_text({std::round(*real * 1e6) / 1e4, Unit::kPercent}));
    const std::optional<Amount> written =
        is("float") && node.text() != nullptr ? parse_amount(*node.text()) : std::nullopt;
    if (!written || written->unit != Unit::kPercent) return "";
    const double share = written->number / 100;
    return schema_.min == 0 && schema_.max == 1 && share <= 1 ? number_text(share) : "";
  }

  bool is(std::string_view type) const { return type_.name == type; }

  const KeySchema& schema_;
  const Type& type_;  // of a list, its elements'
  const bool is_list_;
  const Position at_;
};

constexpr Type kTypes[] = {
    {"bool", "true or false", "true or false", "true", &Checker::boolean},
    {"int", "a whole number", "whole numbers", "1", &Checker::integer},
    {"float", "a number", "numbers", "1.0", &Checker::number},
    {"string", "text", "texts", "\"…\"", &Checker::text},
    {"choice", "text", "texts", "\"…\"", &Checker::text},
    {"path", "a path", "paths", "\"path/to/it\"", &Checker::text},
    {"id", "the id of a plugin", "ids of plugins", "\"family.name\"", &Checker::text},
    {"duration", "a duration", "durations", "\"500 steps\"", &Checker::amount},
    {"amount", "a size of batch", "sizes of batch", "\"512 samples\"", &Checker::amount},
    {"bytes", "a size of memory", "sizes of memory", "\"16 GiB\"", &Checker::integer},
    {"dtype", "a dtype", "dtypes", "\"…\"", &Checker::text},
    {"where", "a selector", "selectors", "\"blocks.*\"", &Checker::selector},
    {"metric", "the name of a metric", "names of metrics", "\"eval.loss\"", &Checker::text},
    {"env", "the name of an environment variable", "names of environment variables", "\"NAME\"", &Checker::text},
};

const Type* type_of(const std::string& type) {
  const auto found = std::ranges::find(kTypes, is_list(type) ? type.substr(5, type.size() - 6) : type, &Type::name);
  return found == std::end(kTypes) ? nullptr : found;
}

}  // namespace

std::string assignment(const Position& at, const std::string& value) {
  if (!at.file.starts_with("command line")) return last_part(at.key) + " = " + value;
  // Text needs no quotes of TOML's there, and what the shell would take apart needs the shell's.
  const bool quoted = value.size() >= 2 && value[0] == '"' && value.find_first_of("\\$'") == std::string::npos;
  const std::string assigned = at.key + "=" + (quoted ? value.substr(1, value.size() - 2) : value);
  return "--set " + (assigned.find_first_of(" *?\"") == std::string::npos ? assigned : "'" + assigned + "'");
}

bool is_name(std::string_view text) {
  return !text.empty() && text[0] >= 'a' && text[0] <= 'z' &&
         text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string_view::npos;
}

bool is_id(std::string_view text) {
  const size_t dot = text.find('.');
  return dot != std::string_view::npos && is_name(text.substr(0, dot)) && is_name(text.substr(dot + 1));
}

std::string nearest_type(const std::string& type) {
  std::vector<std::string> names;
  for (const Type& each : kTypes) names.push_back(each.name);
  const std::string near = nearest(is_list(type) ? type.substr(5, type.size() - 6) : type, names);
  if (near.empty()) return "types: " + join(names, ", ") + ", and list<T> of each";
  return "type = " + json_string(is_list(type) ? "list<" + near + ">" : near);
}
bool is_known_type(const std::string& type) { return type_of(type) != nullptr; }
bool is_path_type(const std::string& type) { return type == "path" || type == "list<path>"; }

std::optional<Value> check_value(const KeySchema& schema, const TomlNode& node, const std::string& key,
                                 Report& report) try {
  return Checker(schema, position(node.at, key)).value(node);
} catch (const Failure& failure) {
  report.add(failure.diagnostic);
  return std::nullopt;
}

}  // namespace mortise
