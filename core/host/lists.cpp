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

#include "core/abi/error.hpp"
#include "core/host/handle.hpp"
#include "core/host/tables.hpp"

namespace mortise {
namespace {

using List = mortise_list;

// An empty list is legal everywhere; ATen's foreach refuses it.
template <class Body>
void in_place(List* a, Body&& body) {
  at::NoGradGuard no_grad;
  if (!a->tensors.empty()) body();
}
template <class Body>
void made(const List* a, List** out, Body&& body) {
  at::NoGradGuard no_grad;
  auto l = std::make_unique<List>();
  if (!a->tensors.empty()) l->tensors = body();
  *out = l.release();
}

void scaled(mortise_host*, const List* a, double f, List** out) {
  made(a, out, [&] {
    std::vector<at::Tensor> wide = a->tensors;
    for (auto& t : wide)
      if (t.scalar_type() == at::kBFloat16 || t.scalar_type() == at::kHalf) t = t.to(at::kFloat);
    return at::_foreach_mul(wide, f);
  });
}
void lerp(mortise_host*, const List* a, const List* b, double w, List** out) {
  made(a, out, [&] { return at::_foreach_lerp(a->tensors, b->tensors, w); });
}
void lerp_(mortise_host*, List* a, const List* b, double w) {
  in_place(a, [&] { at::_foreach_lerp_(a->tensors, b->tensors, w); });
}
void mul_(mortise_host*, List* a, double f) {
  in_place(a, [&] { at::_foreach_mul_(a->tensors, f); });
}
void add_(mortise_host*, List* a, const List* b, double f) {
  in_place(a, [&] { at::_foreach_add_(a->tensors, b->tensors, f); });
}
void addcmul_(mortise_host*, List* a, const List* b, const List* c, double f) {
  in_place(a, [&] { at::_foreach_addcmul_(a->tensors, b->tensors, c->tensors, f); });
}
void addcdiv_(mortise_host*, List* a, const List* b, const List* c, double f) {
  in_place(a, [&] { at::_foreach_addcdiv_(a->tensors, b->tensors, c->tensors, f); });
}
void sqrt_of(mortise_host*, const List* a, List** out) {
  made(a, out, [&] { return at::_foreach_sqrt(a->tensors); });
}
void add_scalar_(mortise_host*, List* a, double v) {
  in_place(a, [&] { at::_foreach_add_(a->tensors, v); });
}
void sign_(mortise_host*, List* a) {
  in_place(a, [&] { at::_foreach_sign_(a->tensors); });
}
void release_list(mortise_host*, List* a) noexcept { delete a; }
void items(mortise_host*, const List* a, mortise_tensor* const** tensors, uint32_t* n) {
  auto* own = const_cast<List*>(a);
  own->handles.clear();
  for (const auto& t : own->tensors) own->handles.push_back(borrow(t));
  *tensors = own->handles.data();
  *n = static_cast<uint32_t>(own->handles.size());
}

}  // namespace

const mortise_lists_api kListsApi = {sizeof(mortise_lists_api),
                                     at_edge<scaled>,
                                     at_edge<lerp>,
                                     at_edge<lerp_>,
                                     at_edge<mul_>,
                                     at_edge<add_>,
                                     at_edge<addcmul_>,
                                     at_edge<addcdiv_>,
                                     at_edge<sqrt_of>,
                                     at_edge<add_scalar_>,
                                     at_edge<sign_>,
                                     release_list,
                                     at_edge<items>};

}  // namespace mortise
