// Tensors beside parameters, the states of an optimizer and what other plugins keep: names, sizes and dtypes, before
// anything is allocated.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/model/declaration.hpp"

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
  // What this rank does.
  Piece own() const {
    if (pieces.empty()) return {0, param->info.numel};
    return pieces[static_cast<size_t>(param->info.replica)];
  }
};

// The numbers of a state that belong to a piece of its parameter.
Piece piece_of(const StateSpec& state, const Piece& piece);

// One more state, as `plugin` asks for it. Throws PluginError: it is none, or one too many.
void add_state(ParamStates& beside, const mortise_state_spec& spec, const std::string& plugin);

// Of this rank.
int64_t bytes_of(const std::vector<ParamStates>& all);

}  // namespace mortise
