// Who listens to which event, in the order of the plan.
#pragma once
#include <vector>

#include "core/abi/instances.hpp"
#include "core/base/world.hpp"

namespace mortise {

class Listeners {
 public:
  explicit Listeners(const PointTable& points) : points_(points), at_(kFirstOperator) {}
  // Starts every plugin that listens.
  Listeners(Instances& instances, const World& world);
  // After those that are there; `by` outlives this.
  void add(uint32_t point, mortise_event_fn fn, Instance& by) { at_[point].push_back({fn, &by}); }
  // Tells every listener of an event, in order; throws what the first failing one returned.
  void notify(Point point, mortise_event event) const;
  // The same with a filter open, and the services that it changes.
  void filter(Services& services, Filter filter, Point point) const;

 private:
  struct Listener {
    mortise_event_fn fn;
    Instance* by;
  };
  const PointTable& points_;
  std::vector<std::vector<Listener>> at_;  // by point
};

}  // namespace mortise
