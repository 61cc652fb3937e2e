// Sharded parameters: of master and gradient each rank has its elements. Values are gathered a segment at a time, the
// next segment's ahead; a micro-batch's gradient is reduced to its owners and its memory is given back.
//
// All ranks make the same calls in the same order, whatever each of them computes (an expert that is used on one rank
// alone): what is gathered is a segment's, whoever uses some of it, and gradients go against the order of declaration,
// those of a segment when backward has come to the one before, which they have the time of to arrive. Where values
// stay, nothing is gathered in backward, and gradients go as soon as they are ready and together are worth it.
#pragma once
#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "mortise/cpp/comm.hpp"
#include "mortise/cpp/ops.hpp"
#include "mortise/cpp/plugin.hpp"
#include "mortise/dtype.h"

namespace mortise::zero {

class Shards {
 public:
  // `most`: bytes of gradients that are on their way in a group at once, where values stay; a lot is half of it.
  Shards(int64_t most, bool values_go) : most_(most), values_go_(values_go) {}

  // `owner`: who has all elements; -1: each rank has `each` of them, the last ones fewer. Returns the room it needs.
  int64_t add(const mortise_param_info& info, int64_t each, int32_t owner) {
    const int64_t room = owner < 0 ? each * info.replicas : info.numel;
    units_.push_back({.name = std::string(view(info.name)),
                      .segment = info.segment,
                      .owner = owner,
                      .replica = info.replica,
                      .replicas = info.replicas,
                      .is_trainable = info.trainable != 0,
                      .each = each,
                      .grad_dtype = info.grad_dtype,
                      .grad_bytes = info.trainable ? room * bytes_of(info.grad_dtype) : 0,
                      .value_bytes = room * bytes_of(info.value_dtype)});
    return room;
  }

  // Of two segments the values, and of what one of them uses of a third, such as a tied embedding; of one the gradients
  // that are made, of as much as may be on its way (where values go a segment) those that were, and of whatever waits
  // for its last use the largest.
  int64_t transient() const {
    if (units_.empty()) return 0;
    std::map<int32_t, int64_t> values, gradients;
    int64_t all = 0, largest = 0, largest_value = 0;
    std::set<int32_t> replicas;  // nearly a group each
    for (const Unit& u : units_) {
      values[u.segment] += u.value_bytes;
      gradients[u.segment] += u.grad_bytes;
      all += u.grad_bytes;
      largest = std::max(largest, u.grad_bytes);
      largest_value = std::max(largest_value, u.value_bytes);
      replicas.insert(u.replicas);
    }
    int64_t of_two = 0, of_one = 0;
    for (const auto& [segment, bytes] : values) {
      const auto next = values.find(segment + 1);
      of_two = std::max(of_two, bytes + (next == values.end() ? 0 : next->second));
    }
    for (const auto& [segment, bytes] : gradients) of_one = std::max(of_one, bytes);
    const int64_t most = std::max(most_ * static_cast<int64_t>(replicas.size()), largest);
    const int64_t on_its_way = std::min(all, values_go_ ? of_one : most);
    if (values.size() > 2) of_two += largest_value;
    return (values_go_ ? of_two : 0) + std::min(all, of_one + largest + on_its_way) + on_its_way / *replicas.begin();
  }

  bool has(const mortise_param* param) const { return unit_of_.contains(param); }

  void layout() {
    std::ranges::stable_sort(units_, {}, &Unit::segment);
    for (Unit& u : units_) {
      check(api.params->find(api.host, str(u.name), &u.param));
      u.lane = &lane_of(group_of(u.param));
      unit_of_[u.param] = &u;
      members_[u.segment].push_back(&u);
      if (u.is_trainable) order_.push_back(&u);
    }
    std::ranges::reverse(order_);
  }

  // ---- values ----

  void need(mortise_param* param, int32_t segment, bool backward) {
    if (segment != here_ || backward != is_backward_) enter(segment, backward);
    Unit& u = *unit_of_.at(param);
    u.used_in = segment;
    if (u.segment != segment) add_member(segment, u);
    if (u.value == Value::kOld) {
      gather(u);
      gathered_.start();
    }
    if (u.value == Value::kOnItsWay) arrive(u);
  }

  void written(mortise_param* param) { forget(*unit_of_.at(param)); }

  void updated() {
    for (Unit& u : units_)
      if (u.is_trainable) forget(u);
  }

  // ---- gradients ----

  void ready(mortise_param* param) {
    begin_micro();
    unit_of_.at(param)->is_ready = true;
    const bool is_last = ++n_ready_ == order_.size();
    while (next_ < order_.size() && (is_last || (!values_go_ && order_[next_]->is_ready))) send(*order_[next_++]);
    if (!is_last) return;
    start_all_sums();
    for (Unit* u : order_) u->is_ready = false;
    n_ready_ = 0;
    is_micro_over_ = true;  // backward may go on below, where nothing is sharded or trained
  }

  void finish() {
    for (Lane& lane : lanes_)
      while (!lane.sent.empty()) bring_first(lane);
  }

 private:
  enum class Value { kOld, kOnItsWay, kThere };
  struct Lane;
  struct Unit {
    std::string name;
    int32_t segment = 0, owner = -1;
    int32_t replica = 0, replicas = 1;  // which rank this is of those that have it
    Lane* lane = nullptr;               // of its group
    bool is_trainable = false;
    int64_t each = 0;
    uint32_t grad_dtype = 0;
    int64_t grad_bytes = 0, value_bytes = 0;
    mortise_param* param = nullptr;
    Value value = Value::kOld;
    mortise_work* gathering = nullptr;
    int32_t used_in = -1;   // which segment needs it, or did last
    bool is_ready = false;  // the gradient of this micro-batch
  };
  struct Sent {
    Unit* unit;
    Tensor own;
    mortise_work* work = nullptr;
  };
  // Gradients on their way in a group. Its ranks have the same parameters of it, so that they cut its lots at the same
  // places, whatever else each of them trains (experts of its own).
  struct Lane {
    const mortise_rank_group* group;
    std::deque<Sent> sent;
    int64_t on_its_way = 0;  // bytes of them
    int64_t waiting = 0;     // of these, of gradients that wait in `sums` for more
    Together sums;
  };

  static int64_t bytes_of(uint32_t dtype) { return static_cast<int64_t>(mortise_dtype_of(dtype)->bytes); }

  void begin_micro() {
    if (std::exchange(is_micro_over_, false)) next_ = 0;
  }

  // What was not used here is not used again until another segment needs it.
  void enter(int32_t segment, bool backward) {
    here_ = segment;
    is_backward_ = backward;
    if (!backward) begin_micro();
    if (values_go_ && backward) {
      finish();
      while (next_ < order_.size() && order_[next_]->segment > here_) send(*order_[next_++]);
      start_all_sums();
    }
    if (values_go_)
      for (Unit& u : units_)
        if (u.used_in != here_) forget(u);
    gather_segment(here_);
    // Backward does not come to every segment: the first has often nothing that needs its values there.
    const int32_t next = here_ + (backward ? -1 : 1);
    if (!backward || entered_in_backward_.contains(next)) gather_segment(next);
    if (backward) entered_in_backward_.insert(here_);
  }

  // Tied: gathered ahead from the second time on.
  void add_member(int32_t segment, Unit& u) {
    std::vector<Unit*>& members = members_[segment];
    if (std::ranges::find(members, &u) == members.end()) members.push_back(&u);
  }

  void gather_segment(int32_t segment) {
    const auto members = members_.find(segment);
    if (members == members_.end()) return;
    for (Unit* u : members->second) {
      u->used_in = segment;
      if (u->value == Value::kOld) gather(*u);
    }
    gathered_.start();
  }

  // With whatever else is gathered until `gathered_` starts.
  void gather(Unit& u) {
    Tensor flat;
    check(api.replicas->hold(api.host, u.param, flat.put()));
    if (u.owner >= 0) gathered_.add(&u.gathering, MORTISE_BROADCAST, {}, std::move(flat), u.lane->group, u.owner);
    else {
      Tensor own = ops::narrow(flat, 0, u.replica * u.each, u.each);
      gathered_.add(&u.gathering, MORTISE_ALL_GATHER, std::move(own), std::move(flat), u.lane->group);
    }
    u.value = Value::kOnItsWay;
  }

  static void arrive(Unit& u) {
    wait_for_collective(std::exchange(u.gathering, nullptr));
    u.value = Value::kThere;
  }

  static void forget(Unit& u) {
    if (u.value == Value::kOld) return;
    if (u.value == Value::kOnItsWay) arrive(u);
    check(api.replicas->drop(api.host, u.param));
    u.value = Value::kOld;
  }

  void send(Unit& u) {
    Tensor whole;
    check(api.replicas->take_gradient(api.host, u.param, whole.put()));
    Lane& lane = *u.lane;
    Sent& sent = lane.sent.emplace_back(Sent{&u, {}});
    if (u.owner >= 0) {  // what is there on the others is nothing, and they keep nothing of it
      sent.own = Tensor::share(whole.get());
      lane.sums.add(&sent.work, MORTISE_REDUCE, {}, std::move(whole), lane.group, u.owner);
    } else {
      sent.own = empty(u.grad_dtype, {u.each});
      lane.sums.add(&sent.work, MORTISE_REDUCE_SCATTER, std::move(whole), Tensor::share(sent.own.get()), lane.group);
    }
    lane.on_its_way += u.grad_bytes;
    lane.waiting += u.grad_bytes;
    if (lane.waiting > most_ / 2) start_sums(lane);
    while (!values_go_ && lane.on_its_way > most_ && lane.sent.size() > 1) bring_first(lane);
  }

  Lane& lane_of(const mortise_rank_group* group) {
    const auto its = std::ranges::find(lanes_, group, &Lane::group);
    return its != lanes_.end() ? *its : lanes_.emplace_back(Lane{.group = group});
  }

  static void start_sums(Lane& lane) {
    lane.sums.start();
    lane.waiting = 0;
  }
  void start_all_sums() {
    for (Lane& lane : lanes_) start_sums(lane);
  }

  static void bring_first(Lane& lane) {
    const Sent first = std::move(lane.sent.front());
    lane.sent.pop_front();
    lane.on_its_way -= first.unit->grad_bytes;
    wait_for_collective(first.work);
    check(api.replicas->add_gradient(api.host, first.unit->param, first.own.get()));
  }

  int64_t most_;
  bool values_go_;
  std::vector<Unit> units_;  // by segment, once laid out
  std::map<const mortise_param*, Unit*> unit_of_;
  std::map<int32_t, std::vector<Unit*>> members_;  // by segment
  std::vector<Unit*> order_;                       // of gradients
  int32_t here_ = -1;                              // the segment that computes
  bool is_backward_ = false;
  std::set<int32_t> entered_in_backward_;
  size_t n_ready_ = 0, next_ = 0;  // of this micro-batch
  bool is_micro_over_ = false;     // every gradient of it is sent
  std::deque<Lane> lanes_;
  Together gathered_;
};

}  // namespace mortise::zero
