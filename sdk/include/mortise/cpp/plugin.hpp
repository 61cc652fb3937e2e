// Making a plugin of a class: its member functions become the C function pointers of attachments and objects.
//
//   class Clip {
//    public:
//     Clip() : norm_(mortise::config::number("norm")) {}
//     void transform(const mortise_event*) { … }
//   };
//   MORTISE_PLUGIN(Clip, mortise::listen<&Clip::transform>("grad.transform"))
//
// An exception may leave any of them: the host gets a status and the text. From a destructor that is noexcept(false) it
// is logged; every other destructor must not throw, as always in C++. Nor may the function of a thread of one's own.
#pragma once
#include "mortise/cpp/core.hpp"
#include "mortise/plugin.h"

namespace mortise {

// thunk<&Class::function>: a C function pointer with `self` in front, noexcept, exceptions as statuses. The two forms
// differ in the type: nvcc takes two that differ in the value alone for one.
template <auto Member, class Type = decltype(Member)>
struct Thunk;
template <auto Member, class Class, class... Args>
struct Thunk<Member, void (Class::*)(Args...)> {
  static mortise_status call(void* self, Args... args) noexcept {
    return guard([&] { (static_cast<Class*>(self)->*Member)(args...); });
  }
};
template <auto Member, class Class, class... Args>
struct Thunk<Member, void (Class::*)(Args...) const> {
  static mortise_status call(void* self, Args... args) noexcept {
    return guard([&] { (static_cast<const Class*>(self)->*Member)(args...); });
  }
};
template <auto Member>
inline constexpr auto thunk = &Thunk<Member>::call;

inline mortise_attachment provide(const char* point, const void* object) {
  return {sizeof(mortise_attachment), 0, mortise_text(point), object, nullptr, nullptr, nullptr};
}
template <auto Member>
mortise_attachment provide_call(const char* point) {
  return {sizeof(mortise_attachment), 0, mortise_text(point), nullptr, thunk<Member>, nullptr, nullptr};
}
template <auto Member>
mortise_attachment wrap(const char* point) {
  return {sizeof(mortise_attachment), 0, mortise_text(point), nullptr, nullptr, thunk<Member>, nullptr};
}
template <auto Member>
mortise_attachment listen(const char* point) {
  return {sizeof(mortise_attachment), 0, mortise_text(point), nullptr, nullptr, nullptr, thunk<Member>};
}

namespace detail {
template <class Class>
mortise_status create(mortise_host* host, void** self) noexcept {
  open_api(host);
  return guard([&] { *self = new Class(); });
}
template <class Class>
void destroy(void* self) noexcept {
  guard([&] { delete static_cast<Class*>(self); },
        [](mortise_status status, mortise_str text) {
          log_line(MORTISE_LOG_ERROR, "an exception left the plugin's destructor: " + std::string(view(text)));
          return status;
        });
}
}  // namespace detail

}  // namespace mortise

// Attachments may be none: MORTISE_PLUGIN(Class)
#define MORTISE_PLUGIN(Class, ...)                                                                    \
  MORTISE_EMBED_MANIFEST                                                                              \
  static mortise_status mortise_list_attachments(void*, const mortise_attachment** list, uint32_t* n, \
                                                 uint32_t* stride) noexcept {                         \
    return mortise::guard([&] {                                                                       \
      static const std::initializer_list<mortise_attachment> all = {__VA_ARGS__};                     \
      *list = all.begin();                                                                            \
      *n = static_cast<uint32_t>(all.size());                                                         \
      *stride = sizeof(mortise_attachment);                                                           \
    });                                                                                               \
  }                                                                                                   \
  extern "C" const mortise_plugin* mortise_plugin_v0(void) noexcept {                                 \
    static const mortise_plugin plugin = {sizeof(mortise_plugin),                                     \
                                          MORTISE_ABI_MAJOR,                                          \
                                          MORTISE_ABI_MINOR,                                          \
                                          {mortise_manifest_begin, MORTISE_MANIFEST_BYTES},           \
                                          mortise::detail::create<Class>,                             \
                                          mortise_list_attachments,                                   \
                                          mortise::detail::destroy<Class>};                           \
    return &plugin;                                                                                   \
  }
