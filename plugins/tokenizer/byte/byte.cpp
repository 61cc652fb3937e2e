// Bytes as tokens.
#include "mortise/cpp/plugin.hpp"

namespace {
using namespace mortise;

constexpr int64_t kVocabulary = 256;

struct ByteTokenizer {
  void size(int64_t* vocabulary) { *vocabulary = kVocabulary; }

  void encode(mortise_str text, int64_t* ids, size_t room, size_t* needed) {
    *needed = text.len;
    if (text.len > room) return;
    for (size_t i = 0; i < text.len; ++i) ids[i] = static_cast<unsigned char>(text.ptr[i]);
  }

  void decode(const int64_t* ids, size_t n, char* text, size_t room, size_t* needed) {
    *needed = n;
    for (size_t i = 0; i < n; ++i) {
      if (ids[i] < 0 || ids[i] >= kVocabulary)
        throw Error(MORTISE_E_ARGUMENT, "id " + std::to_string(ids[i]) + " is no byte");
      if (n <= room) text[i] = static_cast<char>(ids[i]);
    }
  }
};

const mortise_tokenizer kObject = {sizeof(mortise_tokenizer), 0, thunk<&ByteTokenizer::size>,
                                   thunk<&ByteTokenizer::encode>, thunk<&ByteTokenizer::decode>};
}  // namespace

MORTISE_PLUGIN(ByteTokenizer, mortise::provide("tokenizer", &kObject))
