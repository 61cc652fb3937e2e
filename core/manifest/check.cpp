#include "core/manifest/check.hpp"

#include <algorithm>
#include <cmath>

#include "core/base/text.hpp"
#include "core/manifest/units.hpp"

namespace mortise {
namespace {

// In two parts each, because these are also names of plugins, which nothing in core/ may spell.
const std::vector<std::string> kDtypes = {"fp" "32", "fp" "64", "fp" "16", "bf" "16"};

struct TypeWords {
  const char *type, *is, *are, *example;  // "optimizer.lr is a number"; "… is a list of numbers"
};
constexpr TypeWords kTypes[] = {
    {"bool", "true or false", "true or false", "true"},
    {"int", "a whole number", "whole numbers", "1"},
    {"float", "a number", "numbers", "1.0"},
    {"string", "text", "texts", "\"…\""},
    {"choice", "text", "texts", "\"…\""},
    {"path", "a path", "paths", "\"path/to/it\""},
    {"id", "the id of a plugin", "ids of plugins", "\"family.name\""},
    {"duration", "a duration", "durations", "\"500 steps\""},
    {"amount", "a size of batch", "sizes of batch", "\"512 samples\""},
    {"bytes", "a size of memory", "sizes of memory", "\"16 GiB\""},
    {"dtype", "a dtype", "dtypes", "\"…\""},
    {"where", "a selector", "selectors", "\"blocks.*\""},
    {"metric", "the name of a metric", "names of metrics", "\"eval.loss\""},
    {"env", "the name of an environment variable", "names of environment variables", "\"NAME\""},
};

const TypeWords* words_of(std::string_view type) {
  const auto found = std::ranges::find(kTypes, type, &TypeWords::type);
  return found == std::end(kTypes) ? nullptr : found;
}

// T of list<T>; "" for what is no list.
std::string element_type(const std::string& type) { return type.starts_with("list<") && type.ends_with(">") ? type.substr(5, type.size() - 6) : ""; }

bool is_texts(const std::string& type) {
  return type == "string" || type == "choice" || type == "path" || type == "id" || type == "dtype" || type == "metric" || type == "env";
}

bool is_id(std::string_view text) {
  const size_t dot = text.find('.');
  return dot != std::string_view::npos && is_name(text.substr(0, dot)) && is_name(text.substr(dot + 1));
}

bool is_variable(std::string_view text) {
  return !text.empty() && !(text[0] >= '0' && text[0] <= '9') && std::ranges::all_of(text, [](char c) { return c == '_' || std::isalnum(static_cast<unsigned char>(c)); });
}

// Long, with small letters and digits mixed, or with characters that no variable has: a key, not the name of one.
bool looks_like_secret(std::string_view text) {
  const bool small = std::ranges::any_of(text, [](char c) { return c >= 'a' && c <= 'z'; });
  const bool digit = std::ranges::any_of(text, [](char c) { return c >= '0' && c <= '9'; });
  return !is_variable(text) || (text.size() >= 20 && small && digit);
}

class Checker {
 public:
  Checker(const KeySchema& schema, const Place& place, Report& report) : schema_(schema), place_(place), report_(report) {}

  std::optional<Value> check(const std::string& type, const TomlNode& node) {
    if (const std::string inner = element_type(type); !inner.empty()) return list(inner, node);
    if (type == "bool") return std::holds_alternative<bool>(node.data) ? made(node, std::get<bool>(node.data)) : wrong_type(node);
    if (type == "int") return integer(node);
    if (type == "float") return number(node);
    if (type == "duration" || type == "amount") return amount(type, node);
    if (type == "bytes") return bytes(node);
    if (type == "where") return selector(node);
    return text(type, node);
  }

 private:
  template <class T>
  std::optional<Value> made(const TomlNode& node, T data) {
    Value value;
    value.data = std::move(data);
    value.origin = position_of(place_.file, node, place_.key);
    return value;
  }

  std::optional<Value> list(const std::string& inner, const TomlNode& node) {
    const TomlList* elements = node.list();
    std::vector<Value> values;
    // One text is a list of one: path = "a.bin".
    if (elements == nullptr && is_texts(inner) && texts_of(node)) {
      std::optional<Value> only = check(inner, node);
      if (!only) return std::nullopt;
      values.push_back(std::move(*only));
      return made(node, std::move(values));
    }
    if (elements == nullptr) return wrong_type(node);
    for (const TomlNode& element : *elements) {
      std::optional<Value> value = check(inner, element);
      if (!value) return std::nullopt;
      values.push_back(std::move(*value));
    }
    return made(node, std::move(values));
  }

  std::optional<Value> integer(const TomlNode& node) {
    int64_t value = 0;
    if (const auto* whole = std::get_if<int64_t>(&node.data)) value = *whole;
    else if (const auto* real = std::get_if<double>(&node.data); real != nullptr && std::fabs(*real) <= 0x1p53 && *real == std::floor(*real)) value = static_cast<int64_t>(*real);
    else return wrong_type(node);
    return in_range(node, static_cast<double>(value), std::to_string(value)) ? made(node, value) : std::nullopt;
  }

  std::optional<Value> number(const TomlNode& node) {
    double value = 0;
    if (const auto* whole = std::get_if<int64_t>(&node.data)) value = static_cast<double>(*whole);
    else if (const auto* real = std::get_if<double>(&node.data); real != nullptr && std::isfinite(*real)) value = *real;
    else return wrong_type(node);
    return in_range(node, value, shown(node)) ? made(node, value) : std::nullopt;
  }

  std::optional<Value> amount(const std::string& type, const TomlNode& node) {
    const bool batch = type == "amount";
    std::optional<Amount> value;
    if (const auto* whole = std::get_if<int64_t>(&node.data)) value = Amount{static_cast<double>(*whole), batch ? Unit::kSamples : Unit::kSteps};
    else if (const auto* real = std::get_if<double>(&node.data); real != nullptr && *real == std::floor(*real) && std::fabs(*real) <= 0x1p53)
      value = Amount{*real, batch ? Unit::kSamples : Unit::kSteps};
    else if (node.text() != nullptr) value = parse_amount(*node.text());
    if (!value) return wrong_type(node);
    const std::vector<std::string> units = batch ? std::vector<std::string>{"samples", "tokens"} : schema_.choices;
    const std::string unit = unit_name(value->unit);
    if (!units.empty() && std::ranges::find(units, unit) == units.end())
      return refuse("not_a_choice", place_.key + " is in " + either(units) + ", this is in " + unit, node, {default_or_nothing()});
    if (value->number < 0) return refuse("out_of_range", place_.key + " is 0 or more, this is " + shown(node), node, {suggestion(node)});
    return in_range(node, value->number, shown(node)) ? made(node, *value) : std::nullopt;
  }

  std::optional<Value> bytes(const TomlNode& node) {
    std::optional<int64_t> value;
    if (const auto* whole = std::get_if<int64_t>(&node.data)) value = *whole;
    else if (node.text() != nullptr) value = parse_bytes(*node.text());
    if (!value) return wrong_type(node);
    if (*value < 0) return refuse("out_of_range", place_.key + " is 0 or more, this is " + shown(node), node, {suggestion(node)});
    return in_range(node, static_cast<double>(*value), shown(node)) ? made(node, *value) : std::nullopt;
  }

  std::optional<Value> text(const std::string& type, const TomlNode& node) {
    const std::optional<std::string> written = texts_of(node);
    if (type == "env" && (!written || looks_like_secret(*written))) return secret(node);
    if (!written) return wrong_type(node);
    if (written->find('\0') != std::string::npos) return wrong_type(node);
    if (type == "choice") return one_of(schema_.choices, *written, node);
    if (type == "dtype") return one_of(kDtypes, *written, node);
    if ((type == "path" && written->empty()) || (type == "id" && !is_id(*written)) || (type == "metric" && (written->empty() || written->find(' ') != std::string::npos)))
      return wrong_type(node);
    return made(node, *written);
  }

  std::optional<Value> one_of(const std::vector<std::string>& choices, const std::string& written, const TomlNode& node) {
    if (std::ranges::find(choices, written) != choices.end()) return made(node, written);
    const std::string near = nearest(written, choices);
    return refuse("not_a_choice", place_.key + " is " + either(choices) + ", this is `" + written + "`", node,
                  {near.empty() ? default_or_nothing() : place_.written(json_string(near))});
  }

  std::optional<Value> secret(const TomlNode& node) {
    std::string example = schema_.standard.is_set() ? schema_.standard.text() : "\"NAME_OF_THE_VARIABLE\"";
    return refuse("secret_in_manifest", place_.key + " is the name of an environment variable; this looks like a key", node,
                  {place_.written(example) + ", exported where the run starts; revoke this key if the file was shared"});
  }

  std::optional<Value> selector(const TomlNode& node) {
    Selector out;
    out.origin = position_of(place_.file, node, place_.key);
    const TomlTable* table = node.table();
    if (table == nullptr) {
      if (!globs(node, out.match)) return std::nullopt;
      return made(node, std::move(out));
    }
    for (const TomlEntry& entry : table->entries) {
      const auto* whole = std::get_if<int64_t>(&entry.value.data);
      if (entry.key == "match" || entry.key == "except") {
        if (!globs(entry.value, entry.key == "match" ? out.match : out.except)) return std::nullopt;
      } else if (entry.key == "every" || entry.key == "from") {
        const int least = entry.key == "every" ? 1 : 0;
        if (whole == nullptr || *whole < least || *whole > 1'000'000)
          return refuse("out_of_range", place_.key + "." + entry.key + " is a whole number from " + std::to_string(least) + " to 1000000, this is " + shown(entry.value),
                        entry.value, {place_.last() + " = { every = 2, from = 1 }"});
        (entry.key == "every" ? out.every : out.from) = static_cast<int>(*whole);
      } else {
        return refuse("unknown_key", place_.key + " has no key `" + entry.key + "`", entry.value, {"a selector has match, except, every and from"});
      }
    }
    if (out.match.empty()) out.match = {"*"};
    return made(node, std::move(out));
  }

  bool globs(const TomlNode& node, std::vector<std::string>& into) {
    if (const TomlList* list = node.list(); list != nullptr && !list->empty()) {
      for (const TomlNode& element : *list)
        if (element.text() == nullptr || element.text()->empty()) return wrong_type(element).has_value();
        else into.push_back(*element.text());
      return true;
    }
    const std::optional<std::string> text = texts_of(node);
    if (!text || text->empty()) return wrong_type(node).has_value();
    into = {*text};
    return true;
  }

  bool in_range(const TomlNode& node, double value, const std::string& written) {
    const auto& [low, high, above] = std::tie(schema_.min, schema_.max, schema_.above);
    if ((!low || value >= *low) && (!high || value <= *high) && (!above || value > *above)) return true;
    const auto plain = [](double bound) { return bound == std::floor(bound) && std::fabs(bound) < 1e15 ? std::to_string(static_cast<int64_t>(bound)) : number_text(bound); };
    std::string range = low && high ? plain(*low) + " to " + plain(*high) : low ? plain(*low) + " or more" : above ? "more than " + plain(*above) : "";
    if (high && !low) range += (range.empty() ? "" : " and ") + std::string("at most ") + plain(*high);
    std::string fix = suggestion(node);
    if (low && high && *low == 0 && *high == 1 && value > 1 && value <= 100) fix = number_text(value / 100) + " for " + written + " per cent";
    else if (!schema_.standard.is_set() && (low || high)) fix = place_.written(plain(low && value < *low ? *low : high ? *high : *low));
    refuse("out_of_range", place_.key + " is " + range + ", this is " + written, node, {fix});
    return false;
  }

  std::optional<Value> wrong_type(const TomlNode& node) {
    const std::string inner = element_type(schema_.type);
    const TypeWords* words = words_of(inner.empty() ? schema_.type : inner);
    std::string is = words == nullptr ? schema_.type : inner.empty() ? words->is : std::string("a list of ") + words->are;
    // Of the same kind and yet not right: then what is written says more than its kind.
    const bool list_expected = !inner.empty();
    const bool number = node.data.index() == 1 || node.data.index() == 2;
    const bool telling = number || (node.text() != nullptr && !list_expected && schema_.type != "bool" && schema_.type != "int" && schema_.type != "float");
    return refuse("wrong_type", place_.key + " is " + is + ", this is " + (telling ? shown(node) : node.kind()), node, {suggestion(node)});
  }

  std::optional<Value> refuse(const char* code, const std::string& message, const TomlNode& node, std::vector<std::string> fixes) {
    Diagnostic d;
    d.code = code;
    d.message = message;
    d.positions = {position_of(place_.file, node, place_.key)};
    std::erase(fixes, "");
    d.fixes = std::move(fixes);
    report_.add(std::move(d));
    return std::nullopt;
  }

  // What a text key takes: text, or on the command line whatever was typed.
  static std::optional<std::string> texts_of(const TomlNode& node) {
    if (!node.typed.empty()) return node.typed;
    return node.text() != nullptr ? std::optional(*node.text()) : std::nullopt;
  }

  std::string shown(const TomlNode& node) const {
    if (!node.typed.empty()) return node.typed;
    const std::optional<Value> value = plain_value(node, {});
    return value ? value->text() : node.kind();
  }

  std::string default_or_nothing() const { return schema_.standard.is_set() ? place_.written(schema_.standard.text()) : ""; }

  // What was meant, if its quotes are all that is wrong; else the default; else an example.
  std::string suggestion(const TomlNode& node) const {
    Report quiet;
    const std::string* text = node.text();
    const std::optional<TomlTable> bare = text != nullptr && text->size() < 100 ? parse_toml("v = " + *text, "", quiet) : std::nullopt;
    if (bare && bare->entries.size() == 1)
      if (const std::optional<Value> value = Checker(schema_, place_, quiet).checked_quietly(bare->entries[0].value)) return place_.written(*text);
    if ((schema_.type == "string" || schema_.type == "path") && node.data.index() < 3) return place_.written(json_string(shown(node)));
    if (schema_.standard.is_set()) return place_.written(schema_.standard.text());
    const std::string inner = element_type(schema_.type);
    const TypeWords* words = words_of(inner.empty() ? schema_.type : inner);
    return words == nullptr ? "" : place_.written(inner.empty() ? words->example : std::string("[") + words->example + "]");
  }

  // Without a suggestion of its own, so that suggestions do not ask for suggestions.
  std::optional<Value> checked_quietly(const TomlNode& node) {
    if (node.text() != nullptr) return std::nullopt;
    return check(schema_.type, node);
  }

  const KeySchema& schema_;
  const Place& place_;
  Report& report_;
};

}  // namespace

std::string Place::written(const std::string& value) const {
  if (!on_command_line()) return last() + " = " + value;
  // Text needs no quotes of TOML's there, and what the shell would take apart needs the shell's.
  const bool quoted = value.size() >= 2 && value[0] == '"' && value.find_first_of("\\$'") == std::string::npos;
  const std::string assigned = key + "=" + (quoted ? value.substr(1, value.size() - 2) : value);
  return "--set " + (assigned.find_first_of(" *?\"") == std::string::npos ? assigned : "'" + assigned + "'");
}

bool is_name(std::string_view text) {
  return !text.empty() && text[0] >= 'a' && text[0] <= 'z' &&
         std::ranges::all_of(text, [](char c) { return c == '_' || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); });
}

bool is_known_type(const std::string& type) {
  const std::string inner = element_type(type);
  return words_of(inner.empty() ? type : inner) != nullptr;
}

bool is_path_type(const std::string& type) { return type == "path" || type == "list<path>"; }

std::optional<Value> check_value(const KeySchema& schema, const TomlNode& node, const Place& place, Report& report) {
  return Checker(schema, place, report).check(schema.type, node);
}

}  // namespace mortise
