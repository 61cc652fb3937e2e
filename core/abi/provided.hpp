// Objects that plugins provide, with whom to call: every call of one goes through here, so that whoever fails is named.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "core/abi/error.hpp"
#include "core/plan/plan.hpp"
#include "mortise/abi.h"
#include "mortise/cpp/strings.hpp"

namespace mortise {

struct PluginHost;

struct Instance {
  const Member* member = nullptr;
  PluginHost* host = nullptr;
  const mortise_plugin* descriptor = nullptr;
  std::string_view library;  // the bytes that were loaded
  void* self = nullptr;
  bool created = false;
  std::vector<const mortise_attachment*> attachments;
  const std::string& id() const { return member->info->schema.id; }
};

// An object that a plugin provides, with whom to call.
template <class T>
struct Provided {
  const T* object = nullptr;
  Instance* by = nullptr;
  explicit operator bool() const { return object != nullptr; }
  // A table may be older than ours and end before it, or leave it out.
  template <class Fn>
  bool has(Fn T::* fn) const {
    const char *begin = reinterpret_cast<const char*>(object), *at = reinterpret_cast<const char*>(&(object->*fn));
    return object && at + sizeof(Fn) <= begin + object->struct_size && object->*fn;
  }
  // Calls a member of the object; throws PluginError with the plugin's name.
  template <class Fn, class... Args>
  void call(Fn T::* fn, std::string_view what, Args... args) const;
};

[[noreturn]] void throw_from(const Instance& by, mortise_status status, std::string_view what);

template <class T>
template <class Fn, class... Args>
void Provided<T>::call(Fn T::* fn, std::string_view what, Args... args) const {
  clear_error();
  if (!by || !has(fn))
    throw PluginError(MORTISE_E_PLUGIN,
                      (by ? by->id() : std::string("nobody")) + " has no function `" + std::string(what) + "`");
  if (const mortise_status s = call_plugin({by->id(), what, {}}, object->*fn, by->self, args...))
    throw_from(*by, s, what);
}

}  // namespace mortise
