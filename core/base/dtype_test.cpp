// A row of dtypes.def is all that an element type needs, but for what a number of it is (mortise_element_get, _set) and
// how config.json calls it: this fails until those two know it as well.
#include "core/base/dtype.hpp"

#include <gtest/gtest.h>

#include "formats/huggingface/config.hpp"

namespace mortise {
namespace {

TEST(Dtypes, EveryRowIsFoundByItsNumberAndItsNames) {
  ASSERT_GT(MORTISE_DTYPES, MORTISE_BOOL);
  for (uint32_t dtype = 0; dtype < MORTISE_DTYPES; ++dtype) {
    const mortise_dtype_row& row = mortise_dtypes[dtype];
    const bool is_float = mortise_dtype_is_float(dtype) != 0;
    EXPECT_EQ(row.dtype, dtype);
    EXPECT_EQ(dtype_bytes(dtype), int64_t{row.bytes});
    EXPECT_EQ(dtype_named(row.name), is_float ? dtype : 0u) << row.name;
    EXPECT_EQ(weight_type(row.safetensors), is_float ? dtype : 0u) << row.safetensors;
    for (uint32_t other = 1; other < dtype; ++other) EXPECT_STRNE(row.safetensors, mortise_dtypes[other].safetensors);
  }
  EXPECT_EQ(dtype_named("bf16"), uint32_t{MORTISE_BF16});
  EXPECT_EQ(dtype_named("float32"), uint32_t{MORTISE_NO_DTYPE});
  EXPECT_EQ(dtype_bytes(MORTISE_DTYPES), 0);
}

// 1.5 and -0.25 are numbers of every floating type there is.
TEST(Dtypes, ANumberOfEveryTypeOfWeightsComesBack) {
  for (const std::string& name : dtype_names())
    for (const double x : {1.5, -0.25, 0.0}) {
      char element[sizeof(double)] = {};
      mortise_element_set(dtype_named(name), element, x);
      EXPECT_EQ(mortise_element_get(dtype_named(name), element), x) << name;
    }
}

TEST(Dtypes, ConfigJsonHasANameForEveryTypeOfWeights) {
  for (const std::string& type : weight_types())
    EXPECT_NE(huggingface::Config("config.json", "{}").text_for(type), "{}\n") << type;
}

}  // namespace
}  // namespace mortise
