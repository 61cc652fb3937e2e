// Any bytes as a state.json, and as what a plugin keeps.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tests/fuzz/properties.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  mortise::fuzz::try_run_state(text);
  mortise::fuzz::try_blobs(text);
  return 0;
}
