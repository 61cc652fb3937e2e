// The plugins of a run as instances: loaded, created and asked for their attachments when they are first needed.
#pragma once
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/abi/edge.hpp"
#include "core/abi/provided.hpp"
#include "core/plan/plan.hpp"
#include "core/plugin/load.hpp"

namespace mortise {

class Instances {
 public:
  Instances(Edge& edge, const Plan& plan, std::string probe)
      : edge_(edge), plan_(plan), probe_(std::move(probe)), started_(plan.members.size()) {}
  ~Instances();
  Instances(const Instances&) = delete;
  Instances& operator=(const Instances&) = delete;

  void probe_ahead();           // for who will start them all
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
  const Plan& plan() const { return plan_; }
  // A failure of a plugin as a person reads it: with the position of the value that it refused, if it refused one.
  Diagnostic diagnose(const PluginError& error) const;

 private:
  static void check_object(const Instance& by, std::string_view point, uint32_t struct_size, size_t whole);

  Edge& edge_;
  const Plan& plan_;
  std::string probe_;
  ProbedLibraries probed_;
  std::vector<std::unique_ptr<Instance>> started_;
  std::vector<Instance*> order_;
};

}  // namespace mortise
