// mortise.lists/0: elementwise operations over many tensors at once.
#include "core/host/lists.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_addcdiv.h>
#include <ATen/ops/_foreach_addcmul.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_sign.h>
#include <ATen/ops/_foreach_sqrt.h>

#include "core/host/error.hpp"
#include "core/host/handle.hpp"
#include "core/host/tables.hpp"

namespace mortise {
namespace {

using List = mortise_list;

template <class Body>
mortise_status quietly(Body&& body) noexcept {
  return guarded([&] {
    at::NoGradGuard no_grad;
    body();
  });
}

// An empty list is legal everywhere; ATen's foreach refuses it.
template <class Body>
mortise_status in_place(List* a, Body&& body) noexcept {
  return quietly([&] {
    if (!a->tensors.empty()) body();
  });
}
template <class Body>
mortise_status made(const List* a, List** out, Body&& body) noexcept {
  return quietly([&] {
    auto l = std::make_unique<List>();
    if (!a->tensors.empty()) l->tensors = body();
    *out = l.release();
  });
}

mortise_status scaled(mortise_host*, const List* a, double f, List** out) noexcept {
  return made(a, out, [&] {
    std::vector<at::Tensor> wide = a->tensors;
    for (auto& t : wide)
      if (t.scalar_type() == at::kBFloat16 || t.scalar_type() == at::kHalf) t = t.to(at::kFloat);
    return at::_foreach_mul(wide, f);
  });
}
mortise_status lerp(mortise_host*, const List* a, const List* b, double w, List** out) noexcept {
  return made(a, out, [&] { return at::_foreach_lerp(a->tensors, b->tensors, w); });
}
mortise_status lerp_(mortise_host*, List* a, const List* b, double w) noexcept {
  return in_place(a, [&] { at::_foreach_lerp_(a->tensors, b->tensors, w); });
}
mortise_status mul_(mortise_host*, List* a, double f) noexcept {
  return in_place(a, [&] { at::_foreach_mul_(a->tensors, f); });
}
mortise_status add_(mortise_host*, List* a, const List* b, double f) noexcept {
  return in_place(a, [&] { at::_foreach_add_(a->tensors, b->tensors, f); });
}
mortise_status addcmul_(mortise_host*, List* a, const List* b, const List* c, double f) noexcept {
  return in_place(a, [&] { at::_foreach_addcmul_(a->tensors, b->tensors, c->tensors, f); });
}
mortise_status addcdiv_(mortise_host*, List* a, const List* b, const List* c, double f) noexcept {
  return in_place(a, [&] { at::_foreach_addcdiv_(a->tensors, b->tensors, c->tensors, f); });
}
mortise_status sqrt_of(mortise_host*, const List* a, List** out) noexcept {
  return made(a, out, [&] { return at::_foreach_sqrt(a->tensors); });
}
mortise_status add_scalar_(mortise_host*, List* a, double v) noexcept {
  return in_place(a, [&] { at::_foreach_add_(a->tensors, v); });
}
mortise_status sign_(mortise_host*, List* a) noexcept {
  return in_place(a, [&] { at::_foreach_sign_(a->tensors); });
}
void release_list(mortise_host*, List* a) noexcept { delete a; }
mortise_status items(mortise_host*, const List* a, mortise_tensor* const** tensors, uint32_t* n) noexcept {
  return guarded([&] {
    auto* own = const_cast<List*>(a);
    own->handles.clear();
    for (const auto& t : own->tensors) own->handles.push_back(borrow(t));
    *tensors = own->handles.data();
    *n = static_cast<uint32_t>(own->handles.size());
  });
}

}  // namespace

const mortise_lists_api kListsApi = {sizeof(mortise_lists_api), scaled, lerp, lerp_, mul_, add_, addcmul_, addcdiv_, sqrt_of, add_scalar_, sign_, release_list, items};

}  // namespace mortise
