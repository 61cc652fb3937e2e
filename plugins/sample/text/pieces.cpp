#include "pieces.hpp"

#include <algorithm>
#include <utility>

#include "mortise/cpp/text.hpp"

namespace sample {
using namespace mortise;

std::vector<int64_t> encode(std::string_view text) {
  size_t needed = 0;
  check(api.tokenizer->encode(api.host, str(text), nullptr, 0, &needed));
  std::vector<int64_t> ids(needed);
  if (needed) check(api.tokenizer->encode(api.host, str(text), ids.data(), ids.size(), &needed));
  return ids;
}

std::string decode(std::span<const int64_t> ids) {
  size_t needed = 0;
  check(api.tokenizer->decode(api.host, ids.data(), ids.size(), nullptr, 0, &needed));
  std::string text(needed, '\0');
  if (needed) check(api.tokenizer->decode(api.host, ids.data(), ids.size(), text.data(), text.size(), &needed));
  return text;
}

bool Pieces::emit(std::string_view bytes) {
  pending_ += bytes;
  std::string whole;
  for (bool missing = false; !pending_.empty();) {
    const size_t length = utf8_length(pending_, &missing);
    if (missing) break;
    whole += length ? pending_.substr(0, length) : "\uFFFD";
    pending_.erase(0, std::max<size_t>(length, 1));
  }
  return whole.empty() || request_.emit(request_.user, str(whole)) == MORTISE_OK;
}

std::string Tail::take(std::span<const int64_t> ids) {
  const std::string before = decode(ids.subspan(begin_, shown_ - begin_)), all = decode(ids.subspan(begin_));
  if (all.ends_with("\uFFFD") && ids.size() - shown_ < kMostOfACharacter) return "";
  begin_ = std::exchange(shown_, ids.size());
  return all.substr(std::min(before.size(), all.size()));
}

std::string Stop::pass(std::string_view bytes) {
  held_ += bytes;
  size_t shown = held_.size();
  for (const std::string& text : texts_)
    if (const size_t found = held_.find(text); found < shown) shown = found, reached_ = true;
  for (const std::string& text : texts_)
    for (size_t n = std::min(text.size(), held_.size()); !reached_ && n > 0; --n)
      if (held_.ends_with(std::string_view(text).substr(0, n))) shown = std::min(shown, held_.size() - n);
  std::string passed = held_.substr(0, shown);
  held_.erase(0, shown);
  return passed;
}

}  // namespace sample
