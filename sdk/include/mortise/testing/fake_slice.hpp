// A parameter as an optimizer sees it, for tests: master, gradient, states, and the value if it is other memory.
//
//   FakeSlice slice(host, plugin, host.add_param("w", "matrix", {2}), std::vector<double>{1, 2},
//                   std::vector<double>{0.5, -0.5});
//   EXPECT_EQ(update(host, plugin, {&slice}), MORTISE_OK);
//
// After a step each value is its master, cast: an optimizer that says MORTISE_WRITES_VALUE must have seen to it, or
// `update` fails and `host.error()` says where; for the others it is cast here, as the core does.
#pragma once
#include "mortise/testing/fake_host.hpp"

namespace mortise::testing {

class FakeSlice {
 public:
  template <class Master, class Grad>
  FakeSlice(FakeHost& host, const Plugin& plugin, mortise_param* param, const std::vector<Master>& master,
            const std::vector<Grad>& grad, uint32_t value_dtype = MORTISE_NO_DTYPE) {
    const auto n = static_cast<int64_t>(master.size());
    info_ = info_of(param);
    info_.master_dtype = dtype_of<Master>();
    info_.grad_dtype = dtype_of<Grad>();
    master_ = host.tensor({n}, master);
    grad_ = host.tensor({n}, grad);
    if (value_dtype) {
      value_ = empty(value_dtype, {n});
      for (int64_t i = 0; i < n; ++i) host.set_element(value_.get(), i, host.element(master_.get(), i));
    }
    mortise_state_spec specs[MORTISE_MAX_STATES] = {};
    uint32_t n_states = 0;
    check(plugin.object<mortise_optimizer>("optimizer").states(plugin.self(), &info_, specs, &n_states));
    for (uint32_t i = 0; i < n_states; ++i) {
      names_.emplace_back(view(specs[i].name));
      states_.push_back(empty(specs[i].dtype, state_sizes(view(specs[i].relation), n)));
      for (int64_t e = 0; e < Info(states_.back().get()).numel; ++e)
        host.set_element(states_.back().get(), e,
                         view(specs[i].relation) == "copy" ? host.element(master_.get(), e) : specs[i].fill);
      handles_.push_back(states_.back().get());
    }
    slice = {sizeof(mortise_slice), n_states,       0, 0, param, &info_, 0, n, master_.get(), grad_.get(),
             value_.get(),          handles_.data()};
  }
  FakeSlice(const FakeSlice&) = delete;
  FakeSlice& operator=(const FakeSlice&) = delete;

  mortise_slice slice{};
  const std::vector<std::string>& state_names() const { return names_; }

 private:
  std::vector<int64_t> state_sizes(std::string_view relation, int64_t n) const {
    std::vector<int64_t> sizes(info_.sizes, info_.sizes + info_.rank);
    if (relation == "same" || relation == "copy") return {n};
    if (relation == "scalar") return {};
    if (relation == "rows" && !sizes.empty()) return sizes.pop_back(), sizes;
    if (relation == "columns" && sizes.size() > 1) return sizes.erase(sizes.end() - 2), sizes;
    if (relation.starts_with("blocks:"))
      if (const int64_t block = std::atoll(std::string(relation.substr(7)).c_str()); block > 0)
        return {(n + block - 1) / block};
    throw std::invalid_argument("relations are same, copy, rows, columns, scalar, blocks:N; this is " +
                                std::string(relation));
  }

  mortise_param_info info_{};
  Tensor master_, grad_, value_;
  std::vector<std::string> names_;
  std::vector<Tensor> states_;
  std::vector<mortise_tensor*> handles_;
};

// What is wrong with the value of a slice after a step that was to write it; empty: nothing. `times_written` is that
// of before.
inline std::string wrong_value(FakeHost& host, const mortise_slice& s, const std::vector<double>& before,
                               int times_written) {
  const std::string name = "the value of " + std::string(view(s.info->name));
  const Tensor cast = empty(Info(s.value).dtype, {s.length});
  host.copy(cast.get(), s.master);
  bool changed = false;
  for (int64_t i = 0; i < s.length; ++i) {
    const double is = host.element(s.value, i), wanted = host.element(cast.get(), i);
    if (is != wanted && !(is != is && wanted != wanted))
      return name + " is " + std::to_string(is) + " at " + std::to_string(i) + ", its master cast is " +
             std::to_string(wanted) + ": an optimizer with MORTISE_WRITES_VALUE writes or casts every value";
    changed = changed || is != before[static_cast<size_t>(i)];
  }
  return changed && host.times_written(s.value) == times_written ? name + " was changed without `written`" : "";
}

inline mortise_status update(FakeHost& host, const Plugin& plugin, std::initializer_list<const FakeSlice*> slices) {
  const auto& optimizer = plugin.object<mortise_optimizer>("optimizer");
  std::vector<mortise_slice> flat;
  std::vector<std::vector<double>> before;
  std::vector<int> times_written;
  for (const FakeSlice* s : slices) {
    flat.push_back(s->slice);
    before.emplace_back();
    for (int64_t i = 0; s->slice.value && i < s->slice.length; ++i)
      before.back().push_back(host.element(s->slice.value, i));
    times_written.push_back(host.times_written(s->slice.value));
  }
  const auto n = static_cast<uint32_t>(flat.size());
  if (const mortise_status s = optimizer.step(plugin.self(), flat.data(), n, &host.ledger())) return s;
  for (size_t i = 0; i < flat.size(); ++i) {
    if (!flat[i].value) continue;
    if (!(optimizer.flags & MORTISE_WRITES_VALUE)) {
      host.copy(flat[i].value, flat[i].master);
      continue;
    }
    const std::string wrong = wrong_value(host, flat[i], before[i], times_written[i]);
    if (!wrong.empty()) return host.fail(&host, MORTISE_E_PLUGIN, str(wrong));
  }
  return MORTISE_OK;
}

// Writes into a ledger's tensor: put(host.ledger().verdict, 0.0).
template <class T>
void put(mortise_tensor* t, T x) {
  Info(t).as<T>()[0] = x;
}

}  // namespace mortise::testing
