// Any bytes as a safetensors file. After most mutations the length of the header is set right again, so that what
// stands behind it is reached.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tests/fuzz/properties.hpp"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  size = LLVMFuzzerMutate(data, size, max_size);
  if (size < 10 || seed % 8 == 0) return size;
  size_t end = size;
  while (end > 8 && data[end - 1] != '}') --end;
  if (end == 8) return size;
  for (size_t i = 0; i < 8; ++i) data[i] = static_cast<uint8_t>(uint64_t{end - 8} >> (8 * i));
  return size;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  mortise::fuzz::try_safetensors({reinterpret_cast<const char*>(data), size});
  return 0;
}
