// The plugins of a run as instances: loaded, created and asked for their attachments when they are first needed.
#pragma once
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/host/error.hpp"
#include "core/host/host.hpp"
#include "core/plan/plan.hpp"
#include "core/plugin/load.hpp"

namespace mortise {

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

class Plugins {
 public:
  Plugins(Host& host, const Plan& plan, std::string probe)
      : host_(host), plan_(plan), probe_(std::move(probe)), started_(plan.members.size()) {}
  ~Plugins();
  Plugins(const Plugins&) = delete;
  Plugins& operator=(const Plugins&) = delete;

  Instance& start(int member);  // throws Failure or PluginError
  // What `member` attached to a point: an "object", a "call", a "wrap" or a "listen".
  const mortise_attachment& attachment(int member, std::string_view point, const char* how);
  // The open provider of an object slot; empty if the slot has none.
  template <class T>
  Provided<T> object(Point point) {
    const auto& claims = plan_.at[point].providers;
    return claims.empty() ? Provided<T>{} : object<T>(point, claims.back().member);
  }
  template <class T>
  Provided<T> object(Point point, int member) {
    const auto* object = static_cast<const T*>(attachment(member, plan_.points[point].name, "object").object);
    check_object(start(member), plan_.points[point].name, object->struct_size, sizeof(T));
    return {object, &start(member)};
  }
  const Instance& of(const PluginHost& host) const;  // whose window this is
  std::string_view library(int member) const;        // the bytes that were loaded; empty if it was not started
  // A failure of a plugin as a person reads it: with the position of the value that it refused, if it refused one.
  Diagnostic diagnose(const PluginError& error) const;

 private:
  static void check_object(const Instance& by, std::string_view point, uint32_t struct_size, size_t whole);

  Host& host_;
  const Plan& plan_;
  std::string probe_;
  std::vector<std::unique_ptr<Instance>> started_;
  std::vector<Instance*> order_;
};

}  // namespace mortise
