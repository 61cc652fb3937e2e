#include "core/host/saving.hpp"

#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <algorithm>

#include "core/abi/error.hpp"
#include "core/host/call.hpp"
#include "core/host/handle.hpp"
#include "core/host/host.hpp"

namespace mortise {
namespace {

namespace ta = torch::autograd;

// A tensor that somebody keeps, until the graph lets go of it.
class KeptElsewhere final : public ta::SavedVariableHooks {
 public:
  KeptElsewhere(const Keeper& keeper, void* token, const at::Tensor& t)
      : keeper_(keeper), token_(token), like_(t.options()), sizes_(t.sizes().vec()) {}
  ~KeptElsewhere() override {
    const PluginScope scope(keeper_.plugin->id, "drop");
    keeper_.functions->drop(keeper_.self, token_);
  }
  void call_pack_hook(const at::Tensor&) override {}  // it was taken in before
  at::Tensor call_unpack_hook() override {
    mortise_tensor* given = nullptr;
    clear_error();
    const mortise_status status =
        call_plugin({keeper_.plugin->id, "give"}, keeper_.functions->give, keeper_.self, token_, &given);
    at::Tensor t = take(given);
    if (status != MORTISE_OK) throw_status(status, keeper_.plugin->id, "a tensor that was saved for backward");
    if (!t.defined() || t.sizes() != at::IntArrayRef(sizes_) || t.dtype() != like_.dtype() ||
        t.device() != like_.device())
      throw PluginError(MORTISE_E_PLUGIN, "what was saved for backward came back as another tensor",
                        keeper_.plugin->id);
    return t;
  }

 private:
  Keeper keeper_;
  void* token_;
  at::TensorOptions like_;
  std::vector<int64_t> sizes_;
};

// Values of parameters lie where they lie.
bool is_value(const at::Tensor& t, Host& host) {
  return std::ranges::any_of(host.parameters().all(),
                             [&](const ParameterState& s) { return s.value.defined() && t.is_alias_of(s.value); });
}

}  // namespace

ta::SavedVariable saved_for_backward(const at::Tensor& t, bool is_output) {
  ta::SavedVariable saved(t, is_output);
  const Frame* const frame = current_frame();
  const Keeper* const keeper = frame ? frame->keeper : nullptr;
  if (!keeper || !t.defined() || !t.has_storage() || t.numel() == 0 ||
      is_value(t, static_cast<Host&>(*keeper->plugin->owner)))
    return saved;
  void* token = nullptr;
  clear_error();
  const mortise_status status =
      call_plugin({keeper->plugin->id, "take"}, keeper->functions->take, keeper->self, borrow(t), &token);
  if (status != MORTISE_OK) throw_status(status, keeper->plugin->id, "a tensor to be saved for backward");
  if (token) saved.register_hooks(std::make_unique<KeptElsewhere>(*keeper, token, t));
  return saved;
}

}  // namespace mortise
