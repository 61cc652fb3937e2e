// The operators that optimizers of the simple form use (mortise/simple_optimizer.h), for tests: computed in double and
// rounded once an operation. The bits of LibTorch are another matter.
//
//   FakeHost host;
//   define_lists(host);                            // before the plugin
//   Plugin plugin(host, MORTISE_PLUGIN_FILE);
//   FakeSlice slice(host, plugin, …);              // mortise/testing/fake_slice.hpp
#pragma once
#include <cmath>

#include "mortise/testing/fake_host.hpp"

namespace mortise::testing {

// Elements at one place of up to three lists, and the number beside them.
using ListFunction = double (*)(double a, double b, double c, double number);

inline void define_lists(FakeHost& host) {
  const auto compute = [&host](std::span<const mortise_value> args, uint32_t item, mortise_tensor* out,
                               ListFunction function) {
    mortise_tensor* tensors[3] = {};
    size_t n = 0;
    double number = 0;
    for (const mortise_value& v : args) {
      if (v.tag == MORTISE_FLOAT) number = v.v.f;
      if (v.tag != MORTISE_TENSORS) continue;
      if (v.count != args[0].count) throw std::invalid_argument("lists of different lengths");
      if (Info(v.v.ts[item]).dtype != Info(out).dtype) throw std::invalid_argument("lists of different dtypes");
      tensors[n++] = v.v.ts[item];
    }
    for (int64_t i = 0; i < Info(out).numel; ++i) {
      double x[3] = {};
      for (size_t k = 0; k < n; ++k) x[k] = host.element(tensors[k], i);
      host.set_element(out, i, function(x[0], x[1], x[2], number));
    }
  };
  const auto in_place = [&](const char* schema, ListFunction function) {
    host.op_list(schema, [compute, function](std::span<const mortise_value> args) {
      for (uint32_t item = 0; item < args[0].count; ++item) compute(args, item, args[0].v.ts[item], function);
      return std::vector<Tensor>();
    });
  };
  const auto made = [&](const char* schema, ListFunction function) {
    host.op_list(schema, [compute, function](std::span<const mortise_value> args) {
      std::vector<Tensor> all;
      for (uint32_t item = 0; item < args[0].count; ++item) {
        const Info like(args[0].v.ts[item]);
        all.push_back(empty(like.dtype, like.shape()));
        compute(args, item, all.back().get(), function);
      }
      return all;
    });
  };
  host.op("aten::to.dtype", [&host](std::span<const mortise_value> args) {
    Tensor t = empty(static_cast<uint32_t>(args[1].v.i), Info(args[0]).shape());
    host.copy(t.get(), args[0].v.t);
    return t;
  });
  made("aten::_foreach_mul.Scalar", [](double a, double, double, double f) { return a * f; });
  made("aten::_foreach_lerp.Scalar", [](double a, double b, double, double w) { return a + w * (b - a); });
  made("aten::_foreach_sqrt", [](double a, double, double, double) { return std::sqrt(a); });
  in_place("aten::_foreach_lerp_.Scalar", [](double a, double b, double, double w) { return a + w * (b - a); });
  in_place("aten::_foreach_mul_.Scalar", [](double a, double, double, double f) { return a * f; });
  in_place("aten::_foreach_add_.List", [](double a, double b, double, double f) { return a + f * b; });
  in_place("aten::_foreach_add_.Scalar", [](double a, double, double, double f) { return a + f; });
  in_place("aten::_foreach_addcmul_.Scalar", [](double a, double b, double c, double f) { return a + f * b * c; });
  in_place("aten::_foreach_addcdiv_.Scalar", [](double a, double b, double c, double f) { return a + f * b / c; });
  in_place("aten::_foreach_sign_", [](double a, double, double, double) { return double((a > 0) - (a < 0)); });
}

}  // namespace mortise::testing
