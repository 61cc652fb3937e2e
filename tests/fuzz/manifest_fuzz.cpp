// Any bytes as a MANIFEST.json: as they are, and as the body of one whose own hash is right.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tests/fuzz/properties.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  mortise::fuzz::try_manifest(text);
  mortise::fuzz::try_manifest_body(text);
  return 0;
}
