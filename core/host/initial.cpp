#include "core/host/initial.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/abi/error.hpp"
#include "core/base/text.hpp"
#include "mortise/philox.h"

namespace mortise {
namespace {

constexpr uint32_t kInitStream = 0x696e6974;  // "init"

double unit(uint32_t bits) { return (bits + 0.5) * 0x1p-32; }

}  // namespace

void initial_values(const uint32_t key[2], uint64_t name, uint64_t block, bool normal, double out[4]) {
  uint32_t w[4];
  mortise_philox_words(key, static_cast<uint32_t>(block), static_cast<uint32_t>(name),
                       static_cast<uint32_t>(name >> 32), kInitStream ^ static_cast<uint32_t>(block >> 32), w);
  for (int i = 0; i < 4; i += 2) {
    if (normal) {
      const double radius = std::sqrt(-2.0 * std::log(unit(w[i]))), angle = 2.0 * std::numbers::pi * unit(w[i + 1]);
      out[i] = radius * std::cos(angle);
      out[i + 1] = radius * std::sin(angle);
    } else {
      out[i] = 2 * unit(w[i]) - 1;
      out[i + 1] = 2 * unit(w[i + 1]) - 1;
    }
  }
}

void initialise(at::Tensor& t, const mortise_param& p, uint64_t seed) {
  if (p.init == "constant") {
    t.fill_(p.init_scale);
    return;
  }
  if (p.init == "values") {
    t.copy_(at::from_blob(const_cast<float*>(p.values), t.sizes(), at::kFloat));
    return;
  }
  if (p.init != "normal" && p.init != "uniform")
    throw PluginError(MORTISE_E_ARGUMENT, "parameter " + p.name + " has the init `" + p.init +
                                              "`; inits are normal, uniform, constant, values");
  const uint32_t key[2] = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  const uint64_t name = hash_text(p.name);
  const auto draw = [&](auto* to, int64_t n) {
    at::parallel_for(0, (n + 3) / 4, 4096, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) {
        double v[4];
        initial_values(key, name, static_cast<uint64_t>(b), p.init == "normal", v);
        for (int64_t i = 4 * b; i < std::min(4 * b + 4, n); ++i)
          to[i] = static_cast<std::remove_reference_t<decltype(*to)>>(p.init_scale * v[i - 4 * b]);
      }
    });
  };
  const bool is_double = t.scalar_type() == at::kDouble, in_place = t.is_cpu() && t.scalar_type() == at::kFloat;
  at::Tensor values = in_place ? t : at::empty(t.sizes(), is_double ? at::kDouble : at::kFloat);
  if (is_double) draw(values.mutable_data_ptr<double>(), values.numel());
  else draw(values.mutable_data_ptr<float>(), values.numel());
  if (!in_place) t.copy_(values);
}

}  // namespace mortise
