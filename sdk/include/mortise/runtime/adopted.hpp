// A tensor of the program's that is a parameter of the run.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/variable.h>

#include <string>
#include <string_view>
#include <vector>

#include "mortise/cpp/model.hpp"

namespace mortise {

// A handle is a c10::TensorImpl *, of the LibTorch that libmortise.so and the program are both built with.
inline at::Tensor torch_of(Ref borrowed) {
  auto* const impl = reinterpret_cast<c10::TensorImpl*>(borrowed.handle);
  return at::Tensor(c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>::unsafe_reclaim_from_nonowning(impl));
}
inline mortise_tensor* handle_of(const at::Tensor& t) {
  return reinterpret_cast<mortise_tensor*>(t.unsafeGetTensorImpl());
}

class Adopted {
 public:
  Adopted(std::string name, at::Tensor tensor, std::string_view role)
      : name_(std::move(name)), role_(role), tensor_(std::move(tensor)) {}
  bool is(const at::Tensor& other) const { return tensor_.is_same(other); }
  bool is_frozen = false;  // in the step under way

  // Its values are where the run begins, unless weights or a checkpoint say otherwise.
  void declare(mortise_builder* build) {
    first_ = tensor_.detach().to(at::kCPU, at::kFloat).contiguous();
    const std::vector<std::string> names = {"d0", "d1", "d2", "d3", "d4", "d5", "d6", "d7"};
    std::vector<mortise_str> dims;
    for (int64_t i = 0; i < tensor_.dim(); ++i) dims.push_back(str(names.at(static_cast<size_t>(i))));
    mortise_param_spec spec{};
    spec.struct_size = sizeof spec;
    spec.rank = static_cast<uint32_t>(tensor_.dim());
    spec.name = str(name_);
    spec.role = str(role_);
    spec.dims = dims.data();
    spec.sizes = tensor_.sizes().data();
    spec.init = MORTISE_STR("values");
    spec.values = first_.const_data_ptr<float>();
    check(api.build->param(api.host, build, &spec, &param_));
  }

  // In a forward pass it is the parameter: the same bytes, and its gradient arrives at the run.
  void bind() {
    first_ = at::Tensor();
    const c10::AutoGradMode grad(c10::GradMode::is_enabled() && !is_frozen);
    const Tensor used = use(param_);
    const at::Tensor there = torch_of(used);
    if (!tensor_.is_alias_of(there) || tensor_.scalar_type() != there.scalar_type()) tensor_.set_data(there.detach());
    if (role_ == "buffer") return;
    unbind();
    tensor_.set_requires_grad(!is_frozen && info_of(param_).trainable != 0);
    if (there.grad_fn()) torch::autograd::impl::set_gradient_edge(tensor_, torch::autograd::impl::gradient_edge(there));
  }
  // Elsewhere it is a leaf, as every parameter of a module. Backward looks at it till its end.
  void unbind() {
    if (tensor_.grad_fn()) torch::autograd::impl::set_gradient_edge(tensor_, torch::autograd::Edge());
  }

 private:
  std::string name_, role_;
  at::Tensor tensor_, first_;  // `first_`: fp32, until the run has read it
  mortise_param* param_ = nullptr;
};

}  // namespace mortise
