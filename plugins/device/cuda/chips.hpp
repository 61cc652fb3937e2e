// What NVIDIA's data sheets say of chips: dense matrix products, boost clock.
#pragma once
#include <string_view>

namespace mortise {

struct Chip {
  std::string_view name;          // part of what the driver calls it
  double half, tf32, fp32, fp64;  // TFLOP/s; half: bf16 and fp16, sums in fp32
};

// The first whose name fits: longer ones before what they begin with.
inline constexpr Chip kChips[] = {
    {"B200", 2250, 1125, 75, 37},       {"GH200", 989.4, 494.7, 66.9, 66.9},  {"H200 NVL", 835.5, 417.7, 60, 60},
    {"H200", 989.4, 494.7, 66.9, 66.9}, {"H100 NVL", 835.5, 417.7, 60, 60},   {"H100 PCIe", 756, 378, 51.2, 51.2},
    {"H100", 989.4, 494.7, 66.9, 66.9}, {"A100", 312, 156, 19.5, 19.5},       {"L40S", 362, 183, 91.6, 1.4},
    {"L4", 121, 60, 30.3, 0.5},         {"RTX 4090", 165.2, 82.6, 82.6, 1.3}, {"RTX 3090", 71, 35.6, 35.6, 0.6},
};

// As a word of what the driver says: an A1000 is no A100.
constexpr bool is_called(std::string_view chip, std::string_view name) {
  const size_t at = chip.find(name), end = at + name.size();
  return at != chip.npos && (at == 0 || chip[at - 1] == ' ') &&
         (end == chip.size() || std::string_view(" ,-").find(chip[end]) != std::string_view::npos);
}

// In FLOP/s; 0: not known. A laptop's chip has the name of another one.
constexpr double products_of(std::string_view chip, std::string_view factors) {
  if (chip.find("Laptop") != chip.npos) return 0;
  for (const Chip& c : kChips) {
    if (!is_called(chip, c.name)) continue;
    if (factors == "bf16" || factors == "fp16") return c.half * 1e12;
    if (factors == "tf32") return c.tf32 * 1e12;
    if (factors == "fp32") return c.fp32 * 1e12;
    if (factors == "fp64") return c.fp64 * 1e12;
    return 0;
  }
  return 0;
}

}  // namespace mortise
