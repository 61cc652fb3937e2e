// What a data plugin says of the fields of a sample, checked.
#pragma once
#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "core/abi/provided.hpp"
#include "mortise/data.h"

namespace mortise {

struct Field {
  std::string name, unit;
  uint32_t dtype = MORTISE_NO_DTYPE;
  bool is_sequence = false;
  std::vector<int64_t> sizes;          // of one sample; of a sequence, of one position
  size_t bytes = 0;                    // of these
  size_t element = 0;                  // bytes of one element
  std::array<std::byte, 8> fill = {};  // one element, as it lies in memory
};

// A number as one element in memory; false if the type cannot hold it.
bool put_element(uint32_t dtype, double x, std::byte* to);
// Throws PluginError with the plugin's name.
std::vector<Field> fields_of(const Provided<mortise_data>& data);
// The names of the classes that labels of whole samples are of; none: it says nothing of any. Throws PluginError
// likewise.
std::vector<std::string> classes_of(const Provided<mortise_data>& data);
// The groups of a split, whose names live as long as the plugin; of data that says none, one of any size. Throws
// PluginError likewise.
std::vector<mortise_group> groups_of(const Provided<mortise_data>& data, std::string_view split);

}  // namespace mortise
