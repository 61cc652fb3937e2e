// Mixed precision without a loss scale: bf16 has the range of fp32.
#include "mortise/cpp/mixed.hpp"

namespace {
using namespace mortise;

class BF16 : public Mixed<MORTISE_BF16> {};
}  // namespace

MORTISE_PLUGIN(BF16, mortise::listen<&BF16::declared>("params.declared"), mortise::wrap<&BF16::forward>("forward"))
