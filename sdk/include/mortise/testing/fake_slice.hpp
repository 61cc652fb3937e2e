// A parameter as an optimizer of the device form sees it, for tests: master, gradient, states, and the value if it is
// other memory.
//
//   FakeSlice slice(host, plugin, host.add_param("w", "matrix", {2}), std::vector<double>{1, 2},
//   std::vector<double>{0.5, -0.5}); EXPECT_EQ(update(host, plugin, {&slice}), MORTISE_OK);
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
    if (value_dtype) value_ = empty(value_dtype, {n});
    mortise_state_spec specs[MORTISE_MAX_STATES] = {};
    uint32_t n_states = 0;
    check(plugin.object<mortise_optimizer>("optimizer").states(plugin.self(), &info_, specs, &n_states));
    for (uint32_t i = 0; i < n_states; ++i) {
      if (view(specs[i].relation) != "same")
        throw std::invalid_argument("FakeSlice makes states of the parameter's shape only");
      names_.emplace_back(view(specs[i].name));
      states_.push_back(specs[i].dtype == MORTISE_F64
                            ? host.tensor({n}, std::vector<double>(master.size(), specs[i].fill))
                            : host.tensor({n}, std::vector<float>(master.size(), static_cast<float>(specs[i].fill))));
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
  mortise_param_info info_{};
  Tensor master_, grad_, value_;
  std::vector<std::string> names_;
  std::vector<Tensor> states_;
  std::vector<mortise_tensor*> handles_;
};

inline mortise_status update(FakeHost& host, const Plugin& plugin, std::initializer_list<const FakeSlice*> slices) {
  std::vector<mortise_slice> flat;
  for (const FakeSlice* s : slices) flat.push_back(s->slice);
  return plugin.object<mortise_optimizer>("optimizer")
      .step(plugin.self(), flat.data(), static_cast<uint32_t>(flat.size()), &host.ledger());
}

// Writes into a ledger's tensor: put(host.ledger().verdict, 0.0).
template <class T>
void put(mortise_tensor* t, T x) {
  Info(t).as<T>()[0] = x;
}

}  // namespace mortise::testing
