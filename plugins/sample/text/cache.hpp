// Keys and values of the tokens that the model has seen, so that the next one is computed alone.
//
// A pass over new tokens calls each attention with the keys and values kept of those before put in front; a causal one
// gives the new tokens what it gives them in the whole text. Nothing is kept but while a text is made.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "mortise/call.h"
#include "mortise/cpp/core.hpp"

namespace sample {

class Cache {
 public:
  // Wraps every attention.
  void attention(mortise_call* call, mortise_next* next);

  // A pass of the model over so many tokens, behind those that are kept.
  void begin(int64_t tokens);
  // It is done; true: its tokens are kept too. False: `why`, and what is kept is of no use.
  bool end();
  void clear();

  int64_t tokens() const { return tokens_; }  // that are kept
  const std::string& why() const { return why_; }
  // Attention computes in a type of 16 bits.
  bool is_narrow() const { return is_narrow_; }

 private:
  struct Kept {
    const mortise_layer* layer;
    mortise::Tensor k, v;  // [1, tokens, heads · width]
  };
  struct Arguments {
    mortise::Tensor q, k, v;
  };
  std::string why_not(const mortise_call* call) const;
  Arguments arguments_of(const mortise_call* call) const;
  void keep(const mortise_layer* layer, const Arguments& added);

  std::vector<Kept> kept_;  // in the order in which a pass calls them
  size_t called_ = 0;       // in the pass under way
  int64_t tokens_ = 0, added_ = 0;
  bool is_under_way_ = false, is_narrow_ = false;
  std::string why_;
};

}  // namespace sample
