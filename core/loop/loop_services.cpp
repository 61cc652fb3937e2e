#include "core/loop/loop_services.hpp"

#include <ATen/core/grad_mode.h>

#include "core/abi/error.hpp"
#include "core/host/handle.hpp"

namespace mortise {

void RunServices::train(Ledger& ledger, Provided<mortise_replicas> replicas, std::function<at::Tensor()> norm) {
  ledger_ = &ledger;
  replicas_ = replicas;
  norm_ = std::move(norm);
}

Ledger& RunServices::need_ledger() const {
  if (!ledger_) throw PluginError(MORTISE_E_ARGUMENT, "there is no ledger before the run begins");
  return *ledger_;
}

const mortise_ledger& RunServices::ledger() { return need_ledger().c(); }
void RunServices::vote(mortise_tensor* ok) { need_ledger().vote(share(ok)); }
void RunServices::multiply(mortise_tensor* factor) { need_ledger().multiply(share(factor)); }

void RunServices::term(std::string_view name, mortise_tensor* sum, std::string_view unit, double weight) {
  const Frame* f = current_frame();
  if (!f || !f->terms) throw PluginError(MORTISE_E_ARGUMENT, "a term of the loss is given inside `forward` only");
  if (f->call->flags & MORTISE_REPLAY) return;  // counted in the first pass
  const std::string text(name);
  const at::Tensor t = share(sum);
  if (!t.defined() || t.numel() != 1)
    throw PluginError(MORTISE_E_SHAPE, "the term `" + text + "` is one number, summed over the micro-batch");
  // A pass whose graph is made again later keeps no graph now: the term would train nothing, and nobody would notice.
  if (weight != 0 && (f->call->flags & MORTISE_FIRST_PASS) && !t.requires_grad())
    throw PluginError(MORTISE_E_UNSUPPORTED,
                      "the term `" + text + "` is given inside a block that is computed again in backward, where it " +
                          "would train nothing; exclude this block there, or give the term weight 0");
  const bool wanted = (f->call->flags & MORTISE_GRAD) && at::GradMode::is_enabled();
  if (weight != 0 && wanted && !t.requires_grad())
    throw PluginError(MORTISE_E_ARGUMENT,
                      "the term `" + text + "` depends on no trainable parameter; give it weight 0 to report it");
  f->terms->push_back({text, std::string(unit), weight, t, f->segment != nullptr});
}

void RunServices::norm(mortise_tensor** out) {
  if (!norm_) throw PluginError(MORTISE_E_ARGUMENT, "the norm is known after backward only");
  *out = give(norm_());
}

void RunServices::ready(mortise_param& p, int micro, bool last) {
  if (replicas_) replicas_.call(&mortise_replicas::ready, "ready", &p, int32_t{micro}, int32_t{last});
}

void RunServices::forward(mortise_batch* batch, uint32_t mode, uint32_t want, mortise_value* results, uint32_t n) {
  passes_.forward(batch, mode, want, results, n, nullptr);
}

}  // namespace mortise
