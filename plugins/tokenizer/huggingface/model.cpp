#include "model.hpp"

#include <algorithm>
#include <charconv>
#include <functional>

namespace mortise::huggingface {

const uint32_t* Work::find(std::string_view piece, size_t& n) const {
  const uint64_t hash = std::hash<std::string_view>()(piece) | 1;
  for (size_t i = hash >> 1 & (kSlots - 1); slots_[i].hash; i = (i + 1) & (kSlots - 1)) {
    const Slot& s = slots_[i];
    if (s.hash != hash || std::string_view(keys_).substr(s.at, s.length) != piece) continue;
    n = s.count;
    return ids_.data() + s.ids;
  }
  return nullptr;
}

void Work::remember(std::string_view piece, const uint32_t* ids, size_t n) {
  if (used_ > kSlots / 2) {  // all at once: what is frequent is soon back
    std::fill(slots_.begin(), slots_.end(), Slot());
    used_ = 0;
    keys_.clear();
    ids_.clear();
  }
  const uint64_t hash = std::hash<std::string_view>()(piece) | 1;
  size_t i = hash >> 1 & (kSlots - 1);
  while (slots_[i].hash) i = (i + 1) & (kSlots - 1);
  slots_[i] = {hash, static_cast<uint32_t>(keys_.size()), static_cast<uint32_t>(piece.size()),
               static_cast<uint32_t>(ids_.size()), static_cast<uint32_t>(n)};
  ++used_;
  keys_ += piece;
  ids_.insert(ids_.end(), ids, ids + n);
}

Vocabulary::Vocabulary(const Fields& model) {
  const Fields vocab = model.inside("vocab");
  const Json& all = model.object("vocab");
  if (all.empty()) model.refuse("vocab", " is empty");
  ids_.reserve(all.size());
  for (const auto& [token, id] : all.items()) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= kMostIds)
      throw Fault("the id of `" + token.substr(0, 64) + "` in " + vocab.place() +
                  " is no whole number below 16,777,216");
    add(token, id.get<uint32_t>());
  }
}

void Vocabulary::add(std::string token, uint32_t id) {
  if (token.size() > kLongest) throw Fault("the token `" + token.substr(0, 64) + "…` is longer than 4,096 bytes");
  if (id >= kMostIds) throw Fault("the vocabulary has more than 16,777,216 ids");
  if (id < tokens_.size() && tokens_[id])
    throw Fault("the tokens `" + tokens_[id]->substr(0, 64) + "` and `" + token.substr(0, 64) + "` have one id");
  const auto at = ids_.emplace(std::move(token), id).first;
  at->second = id;  // of two of one text the last one
  ++count_;
  if (id >= tokens_.size()) tokens_.resize(id + 1);
  tokens_[id] = &at->first;
}

std::string byte_token(unsigned char byte) {
  static constexpr char kDigits[] = "0123456789ABCDEF";
  return std::string("<0x") + kDigits[byte >> 4] + kDigits[byte & 15] + ">";
}

int byte_of_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  unsigned byte = 0;
  const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, byte, 16);
  return error == std::errc() && end == token.data() + 5 ? static_cast<int>(byte) : -1;
}

}  // namespace mortise::huggingface
