// An optimizer that says MORTISE_WRITES_VALUE and subtracts the gradient from fp32 masters. `value` says what it does
// about the value: "finish" leaves it to finish_slice, the others are mistakes.
#include "mortise/cpp/optimizer.hpp"
#include "mortise/cpp/plugin.hpp"
#include "mortise/half.h"

namespace {
using namespace mortise;

class Forgetful {
 public:
  void states(const mortise_param_info* info, mortise_state_spec* specs, uint32_t* n) {
    specs[0] = {MORTISE_STR("first"), MORTISE_STR("copy"), info->master_dtype, 0, 0};
    *n = 1;
  }
  void step(const mortise_slice* slices, uint32_t n, const mortise_ledger*) {
    const std::string_view what = config::text("value");
    for (uint32_t i = 0; i < n; ++i) {
      const mortise_slice& s = slice_at(slices, i);
      float* p = Info(s.master).as<float>();
      for (int64_t k = 0; k < s.length; ++k) p[k] -= Info(s.grad).as<float>()[k];
      if (what == "finish") finish_slice(s);
      if (what == "wrong" || what == "silent")
        for (int64_t k = 0; k < s.length; ++k)
          Info(s.value).as<uint16_t>()[k] = mortise_bf16_from_float(what == "wrong" ? p[k] + 1 : p[k]);
      if (what == "wrong") finish_slice(s, true);
    }
  }
};
constexpr mortise_optimizer kForgetful = {sizeof(mortise_optimizer), MORTISE_WRITES_VALUE, thunk<&Forgetful::states>,
                                          thunk<&Forgetful::step>};
}  // namespace

MORTISE_PLUGIN(Forgetful, mortise::provide("optimizer", &kForgetful))
