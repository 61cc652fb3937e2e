// An object of tokenizer.json: its members by name and type. What is missing, of another type or not known is a Fault
// that names its place in the file: `normalizer.normalizers[1].pattern`.
#pragma once
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fault.hpp"

namespace mortise::huggingface {

using Json = nlohmann::json;

class Fields {
 public:
  Fields(const Json& json, std::string place) : json_(json), place_(std::move(place)) {
    if (!json.is_object()) throw Fault(place_ + " is no object");
  }
  const std::string& place() const { return place_; }
  // Anything else in the object is refused: it may change what the ids are.
  void only(std::initializer_list<std::string_view> names) const {
    for (const auto& [name, value] : json_.items())
      if (std::find(names.begin(), names.end(), name) == names.end()) throw Fault(at(name) + " is not supported");
  }
  bool has(std::string_view name) const { return json_.contains(name) && !json_.at(name).is_null(); }
  std::string type() const { return text("type"); }

  std::string text(std::string_view name) const { return get<std::string>(name, &Json::is_string, "a text"); }
  std::string text(std::string_view name, const char* otherwise) const { return has(name) ? text(name) : otherwise; }
  bool flag(std::string_view name) const { return get<bool>(name, &Json::is_boolean, "true or false"); }
  bool flag(std::string_view name, bool otherwise) const { return has(name) ? flag(name) : otherwise; }
  uint32_t number(std::string_view name) const {
    const auto n = get<uint64_t>(name, &Json::is_number_unsigned, "a whole number");
    if (n > 0xFFFFFFFFu) throw Fault(at(name) + " is too large");
    return static_cast<uint32_t>(n);
  }
  double real(std::string_view name) const { return get<double>(name, &Json::is_number, "a number"); }
  const Json& list(std::string_view name) const { return *need(name, &Json::is_array, "a list"); }
  const Json& object(std::string_view name) const { return *need(name, &Json::is_object, "an object"); }
  Fields inside(std::string_view name) const { return {object(name), at(name)}; }
  // The objects of a list.
  std::vector<Fields> each(std::string_view name) const {
    std::vector<Fields> all;
    for (const Json& one : list(name)) all.emplace_back(one, at(name) + "[" + std::to_string(all.size()) + "]");
    return all;
  }
  [[noreturn]] void refuse(std::string_view name, const std::string& why) const { throw Fault(at(name) + why); }
  std::string at(std::string_view name) const {
    return place_.empty() ? std::string(name) : place_ + "." + std::string(name);
  }

 private:
  const Json* need(std::string_view name, bool (Json::*is)() const noexcept, const char* type) const {
    const auto found = json_.find(name);
    if (found == json_.end()) throw Fault(at(name) + " is missing");
    if (!((*found).*is)()) throw Fault(at(name) + " is not " + type);
    return &*found;
  }
  template <class T>
  T get(std::string_view name, bool (Json::*is)() const noexcept, const char* type) const {
    return need(name, is, type)->template get<T>();
  }

  const Json& json_;
  std::string place_;
};

}  // namespace mortise::huggingface
