// The kernels for CUDA against the one for the host's processor, bit for bit, on a device that the CPU stands in for.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/adafactor/adafactor.h"
#include "kernels/adafactor/adafactor_cuda.h"
#include "kernels/adafactor/element.h"
#include "kernels/normal.h"
#include "mortise/dtype.h"

namespace mortise::kernels {
namespace {

using Bytes = std::vector<uint8_t>;

AdafactorSettings settings_of(double beta1 = 0) {
  return {.beta1 = beta1, .eps = 1e-30, .least_scale = 1e-3, .clip_threshold = 1.0, .decay_rate = -0.8};
}

// Two groups, and the numbers of a step.
struct LedgerNumbers {
  double multiplier = 0.5, verdict = 1, lr[2] = {1e-2, 3e-3}, weight_decay[2] = {0.1, 0.0};
  int64_t applied = 0;
  DeviceLedger device() const { return {&multiplier, &verdict, lr, weight_decay, &applied}; }
  AdafactorStep step(const AdafactorSettings& settings, int group) const {
    return adafactor_step(settings, lr[group], weight_decay[group], multiplier, static_cast<double>(applied + 1));
  }
};

Bytes bytes_of(uint32_t dtype, const std::vector<float>& x) {
  const size_t size = mortise_dtype_of(dtype)->bytes;
  Bytes all(x.size() * size);
  for (size_t i = 0; i < x.size(); ++i) mortise_element_set(dtype, &all[i * size], static_cast<double>(x[i]));
  return all;
}

struct Shape {
  int64_t matrices, rows, columns;
  bool is_vector = false;
};

// A parameter, `offset` elements behind an aligned address.
struct State {
  Shape shape;
  uint32_t master, grad, copy_dtype;
  size_t offset, n;
  Bytes p, g;
  std::vector<float> row, column, m;
  std::vector<uint16_t> copy;
  State(const Shape& s, size_t behind, bool has_moment, uint32_t master_dtype = MORTISE_F32,
        uint32_t grad_dtype = MORTISE_F32, uint32_t to = 0)
      : shape(s), master(master_dtype), grad(grad_dtype), copy_dtype(to), offset(behind),
        n(static_cast<size_t>(s.matrices * s.rows * s.columns)), p(bytes_of(master, normal(n + offset, 7))),
        row(s.is_vector ? n + offset : static_cast<size_t>(s.matrices * s.rows)),
        column(s.is_vector ? 0 : static_cast<size_t>(s.matrices * s.columns)), m(has_moment ? n + offset : 0),
        copy(n + offset, 7) {}

  // Of very different size, within fp16, in rows and columns that differ.
  void take_gradient(unsigned seed) {
    std::vector<float> x = normal(n + offset, seed);
    for (size_t i = 0; i < x.size(); ++i)
      x[i] *= std::pow(10.0f, static_cast<float>(i % 7) - static_cast<float>(3 + i / 97 % 3));
    g = bytes_of(grad, x);
  }
  void* at(Bytes& array, uint32_t dtype) { return array.data() + offset * mortise_dtype_of(dtype)->bytes; }
  AdafactorSlice slice(int group, double* space) {
    return {at(p, master),
            at(g, grad),
            shape.is_vector ? &row[offset] : row.data(),
            shape.is_vector ? nullptr : column.data(),
            m.empty() ? nullptr : &m[offset],
            copy_dtype ? &copy[offset] : nullptr,
            space,
            shape.matrices,
            shape.rows,
            shape.columns,
            group,
            static_cast<uint8_t>(master),
            static_cast<uint8_t>(grad),
            static_cast<uint8_t>(copy_dtype)};
  }
  void update_on_host(const AdafactorSettings& settings, const AdafactorStep& step) {
    AdafactorArrays a{.master = master, .grad = grad, .p = at(p, master), .g = at(g, grad)};
    if (shape.is_vector) a.v = &row[offset];
    else a.row = row.data(), a.column = column.data();
    if (!m.empty()) a.m = &m[offset];
    if (copy_dtype == MORTISE_BF16) a.copy = &copy[offset];
    Adafactor update(settings, step, a, static_cast<int64_t>(n), shape.rows, shape.columns);
    for (int64_t i = 0; i < update.tiles(); ++i) update.sum_squares(i);
    for (int64_t i = 0; i < update.bands(); ++i) update.average(i);
    update.prepare();
    for (int64_t i = 0; i < update.tiles(); ++i) update.measure(i);
    update.clip();
    for (int64_t i = 0; i < update.tiles(); ++i) update.update(i);
    for (size_t i = offset; i < offset + n && copy_dtype == MORTISE_F16; ++i)
      copy[i] = mortise_f16_from_float(reinterpret_cast<const float*>(p.data())[i]);
  }
};

class AdafactorCuda : public testing::Test {
 protected:
  void add(const State& state) {
    here_.push_back(state);
    there_.push_back(state);
    const Shape& s = state.shape;  // what lies in it must not matter
    spaces_.emplace_back(adafactor_space(s.matrices, s.rows, s.columns, s.is_vector),
                         std::numeric_limits<double>::quiet_NaN());
  }
  // Around a tile and its lanes, aligned and not.
  void add_shapes(bool has_moment, size_t offset) {
    for (const Shape& s : {Shape{1, 1, 1},
                           {1, 3, 5},
                           {3, 64, 8},
                           {1, 1, 2500},
                           {2, 67, 1027},
                           {3, 130, 9},
                           {1, 321, 44},
                           {1, 1, 1, true},
                           {1, 1, 1024, true},
                           {1, 1, 2501, true}})
      add(State(s, offset, has_moment));
  }
  void step_on_device(const AdafactorSettings& settings) {
    std::vector<AdafactorSlice> slices;
    for (size_t i = 0; i < there_.size(); ++i)
      slices.push_back(there_[i].slice(static_cast<int>(i % 2), spaces_[i].data()));
    ASSERT_EQ(adafactor_cuda(slices.data(), static_cast<int64_t>(slices.size()), settings, ledger_.device(), nullptr),
              nullptr);
  }
  void expect_same_bits(const AdafactorSettings& settings, int64_t steps) {
    for (; ledger_.applied < steps; ++ledger_.applied) {
      for (size_t i = 0; i < here_.size(); ++i) {
        const auto seed = static_cast<unsigned>(ledger_.applied) * 1000 + static_cast<unsigned>(i);
        here_[i].take_gradient(seed);
        there_[i].take_gradient(seed);
        here_[i].update_on_host(settings, ledger_.step(settings, static_cast<int>(i % 2)));
      }
      step_on_device(settings);
      for (size_t i = 0; i < here_.size(); ++i) {
        const State &a = here_[i], &b = there_[i];
        ASSERT_TRUE(a.p == b.p && a.row == b.row && a.column == b.column && a.m == b.m && a.copy == b.copy)
            << "step " << ledger_.applied + 1 << ", " << a.shape.matrices << " x " << a.shape.rows << " x "
            << a.shape.columns << ", " << a.offset << " behind the beginning, of dtype " << a.master
            << ", with gradients of " << a.grad;
      }
    }
  }
  LedgerNumbers ledger_;
  std::vector<State> here_, there_;
  std::vector<std::vector<double>> spaces_;
};

TEST_F(AdafactorCuda, HasTheBitsOfTheHostsProcessor) {
  for (const size_t offset : {0, 1}) add_shapes(false, offset);
  expect_same_bits(settings_of(), 2);
}

TEST_F(AdafactorCuda, HasThemWithAMomentAndAScaledRateToo) {
  add_shapes(true, 4);
  AdafactorSettings settings = settings_of(0.9);
  settings.scale_parameter = settings.relative_step = true;
  expect_same_bits(settings, 2);
  settings.warmup_init = true;
  settings.clip_threshold = 0.1;
  expect_same_bits(settings, 3);
}

TEST_F(AdafactorCuda, TakesWeightsGradientsAndCopiesOfAnyDtype) {
  for (const Shape& shape : {Shape{2, 5, 140}, {1, 1, 300, true}})
    for (const size_t offset : {0, 3}) {
      for (const uint32_t master : {MORTISE_F32, MORTISE_BF16, MORTISE_F16})
        for (uint32_t grad = MORTISE_F32; grad <= MORTISE_F16; ++grad) add(State(shape, offset, true, master, grad));
      for (const uint32_t copy : {MORTISE_BF16, MORTISE_F16})
        add(State(shape, offset, false, MORTISE_F32, MORTISE_BF16, copy));
    }
  AdafactorSettings settings = settings_of(0.9);
  settings.scale_parameter = true;
  expect_same_bits(settings, 2);
}

TEST_F(AdafactorCuda, TakesMoreTensorsThanOneTableHolds) {
  for (int64_t i = 0; i < 400; ++i) add(State({1, i % 3, 1 + i % 5}, 0, false));  // empty ones, too
  expect_same_bits(settings_of(), 1);
}

TEST_F(AdafactorCuda, ChangesNothingIfTheStepIsSkipped) {
  ledger_.verdict = 0;
  for (const Shape& shape : {Shape{1, 70, 30}, {1, 1, 300, true}}) {
    add(State(shape, 0, true, MORTISE_F32, MORTISE_F32, MORTISE_BF16));
    there_.back().take_gradient(1);
  }
  step_on_device(settings_of(0.9));
  for (size_t i = 0; i < here_.size(); ++i) {
    EXPECT_EQ(here_[i].p, there_[i].p);
    EXPECT_EQ(here_[i].row, there_[i].row);
    EXPECT_EQ(here_[i].column, there_[i].column);
    EXPECT_EQ(here_[i].m, there_[i].m);
    EXPECT_EQ(here_[i].copy, there_[i].copy);
  }
}

TEST(AdafactorSpace, IsAsLargeAsItsHeaderSays) {
  EXPECT_LT(8 * adafactor_space(1, 768, 3072, false), 8 * 768 * 3 + (4 + 8 * 12) * 3072 + 1024);
  EXPECT_LT(8 * adafactor_space(1, 1, 3072, true), 128);
}

}  // namespace
}  // namespace mortise::kernels
