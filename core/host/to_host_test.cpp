// The pieces and their order, with the host's processor in the place of a device; from a GPU: tests/gpu.
#include "core/host/to_host.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <gtest/gtest.h>

#include <vector>

namespace mortise {
namespace {

at::Tensor counted(at::IntArrayRef sizes, at::ScalarType type) {
  return at::arange(c10::multiply_integers(sizes), at::kLong).remainder(251).to(type).view(sizes);
}

TEST(ToHost, CopiesEveryElementDenseWhateverTheSizes) {
  constexpr int64_t kPiece = int64_t{16} << 20;
  const std::vector<at::Tensor> all = {
      counted({}, at::kLong),
      counted({0, 3}, at::kFloat),
      counted({3, 5}, at::kBFloat16).t(),
      counted({kPiece}, at::kByte),
      counted({kPiece + 1}, at::kByte),
      counted({6 * kPiece - 3}, at::kByte),  // each piece more than once
      counted({7, 11}, at::kDouble),
  };
  std::vector<std::vector<std::byte>> there;
  ToHost to_host;
  for (const at::Tensor& t : all) to_host.copy(t, there.emplace_back(t.nbytes()).data());
  to_host.finish();
  for (size_t i = 0; i < all.size(); ++i)
    EXPECT_TRUE(at::from_blob(there[i].data(), all[i].sizes(), all[i].options()).equal(all[i])) << i;
}

}  // namespace
}  // namespace mortise
