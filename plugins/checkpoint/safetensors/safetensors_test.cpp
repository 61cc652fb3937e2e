#include <gtest/gtest.h>

#include "mortise/testing/fake_host.hpp"

namespace {
using namespace mortise::testing;

// A host's reader and writer that only count.
int written = 0, read_bytes = 0;
const mortise_safetensors_api kApi = {
    sizeof(mortise_safetensors_api),
    [](mortise_host* h, const mortise_entry*, uint32_t n, const mortise_sink*) noexcept -> mortise_status {
      written += static_cast<int>(n);
      return n == 7 ? h->fail(h, MORTISE_E_IO, MORTISE_STR("seven")) : MORTISE_OK;
    },
    [](mortise_host*, const void*, uint64_t bytes, const mortise_give*) noexcept -> mortise_status {
      read_bytes += static_cast<int>(bytes);
      return MORTISE_OK;
    }};

TEST(SafetensorsFormat, LendsFromTheCore) {
  FakeHost host;
  host.offer("mortise.safetensors/0", &kApi);
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  const auto& format = plugin.object<mortise_format>("checkpoint.format");
  EXPECT_EQ(std::string_view(format.extension.ptr, format.extension.len), ".safetensors");
  EXPECT_EQ(format.write(plugin.self(), nullptr, 3, nullptr), MORTISE_OK);
  EXPECT_EQ(format.read(plugin.self(), "abcd", 4, nullptr), MORTISE_OK);
  EXPECT_EQ(written, 3);
  EXPECT_EQ(read_bytes, 4);
  EXPECT_EQ(format.write(plugin.self(), nullptr, 7, nullptr), MORTISE_E_IO);
}
}  // namespace
