// Tensors beside parameters, the states of an optimizer and what other plugins keep: names, sizes and dtypes, before
// anything is allocated.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/model/declaration.hpp"
#include "mortise/optimizer.h"

namespace mortise {

struct StateSpec {
  std::string name;
  std::vector<int64_t> sizes;
  uint32_t dtype = 0;
  double fill = 0;
  bool copies_master = false;
  int64_t per = 0;                  // elements of the parameter for each number, in memory order; 0: it cannot be cut
  std::vector<int64_t> whole = {};  // sizes, of one beside a parameter of which this rank has what lies there
};

// What one plugin has beside one parameter.
struct ParamStates {
  mortise_param* param = nullptr;
  std::vector<StateSpec> states;
  std::vector<Piece> pieces = {};  // what each of its replicas updates and has states of; empty: each has all
  int64_t at_most = 0;             // elements that are updated at once, on the host; 0: all
  // What this rank does.
  Piece own() const {
    if (pieces.empty()) return {0, param->info.numel};
    return pieces[static_cast<size_t>(param->info.replica)];
  }
};

// On the host an update goes by pieces of as many bytes of gradients, at most, but for a tensor that must not be cut.
constexpr int64_t kUpdateBytes = int64_t{32} << 20;
class UpdatePieces {
 public:
  // Does a new piece begin with these bytes of gradients?
  bool begins(int64_t bytes) {
    const bool is_new = bytes_ + bytes > kUpdateBytes;
    bytes_ = is_new ? bytes : bytes_ + bytes;
    return is_new;
  }

 private:
  int64_t bytes_ = kUpdateBytes + 1;
};

// The numbers of a state that belong to a piece of its parameter.
Piece piece_of(const StateSpec& state, const Piece& piece);

// One more state, as `plugin` asks for it. Throws PluginError: it is none, or one too many.
void add_state(ParamStates& beside, const mortise_state_spec& spec, const std::string& plugin);

// Of this rank.
int64_t bytes_of(const std::vector<ParamStates>& all);

// How many elements an update on the host has of a parameter that may be cut every `cut` elements.
int64_t update_at_most(const ParamStates& beside, int64_t cut);
// What this rank updates of a parameter, in parts of no more than `at_most`.
std::vector<Piece> parts_of(const ParamStates& beside);

// In a store each state of a part begins with a block.
struct Stored {
  int64_t bytes = 0, largest_piece = 0;
};
Stored stored_of(const std::vector<ParamStates>& all);
inline int64_t in_blocks(int64_t bytes) {
  return (bytes + MORTISE_STORE_BLOCK - 1) / MORTISE_STORE_BLOCK * MORTISE_STORE_BLOCK;
}

}  // namespace mortise
