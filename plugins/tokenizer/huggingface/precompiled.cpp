// The charsmap of SentencePiece, as T5 and XLM-R have it: a trie of what is replaced (a double array, as darts-clone
// writes it) and the texts that replace it.
#include <cstring>

#include "mortise/cpp/strings.hpp"
#include "normalizers.hpp"
#include "unicode.hpp"

namespace mortise::huggingface {
namespace {

std::string from_base64(const Fields& f, std::string_view text) {
  std::string bytes;
  uint32_t bits = 0, held = 0;
  while (text.ends_with('=')) text.remove_suffix(1);
  for (const char c : text) {
    const int value = c >= 'A' && c <= 'Z'   ? c - 'A'
                      : c >= 'a' && c <= 'z' ? c - 'a' + 26
                      : c >= '0' && c <= '9' ? c - '0' + 52
                      : c == '+'             ? 62
                      : c == '/'             ? 63
                                             : -1;
    if (value < 0) f.refuse("precompiled_charsmap", " is no base64");
    bits = bits << 6 | static_cast<uint32_t>(value);
    held += 6;
    if (held >= 8) bytes.push_back(static_cast<char>(bits >> (held -= 8) & 0xFF));
  }
  return bytes;
}

class Precompiled : public Normalizer {
 public:
  explicit Precompiled(const Fields& f) {
    f.only({"type", "precompiled_charsmap"});
    const std::string bytes = from_base64(f, f.text("precompiled_charsmap"));
    uint32_t size = 0;
    if (bytes.size() >= sizeof size) std::memcpy(&size, bytes.data(), sizeof size);
    if (size == 0 || size % 4 != 0 || size > bytes.size() - sizeof size)
      f.refuse("precompiled_charsmap", " is cut short");
    units_.resize(size / 4);
    std::memcpy(units_.data(), bytes.data() + sizeof size, size);
    texts_ = bytes.substr(sizeof size + size);
    for (size_t at = 0; at < texts_.size();) {
      const size_t length = utf8_length(std::string_view(texts_).substr(at));
      if (length == 0) f.refuse("precompiled_charsmap", " has texts that are not UTF-8");
      at += length;
    }
    // A text is at most as long as all are together; of one character nothing is made that is longer than this.
    for (size_t at = 0; at < texts_.size(); ++at) {
      const size_t end = std::min(texts_.find('\0', at), texts_.size());
      if (end - at > kMostText) f.refuse("precompiled_charsmap", " has a text that is too long");
      at = end;
    }
  }

  void apply(Normalized& n) const override {
    std::string out;
    out.reserve(n.text.size() + n.text.size() / 8);
    const size_t most = most_bytes(n.text.size());
    for (std::string_view rest = n.text; !rest.empty();) {
      if (out.size() > most) throw Fault("the normalizer makes the text too long");
      const std::string_view whole = rest.substr(0, grapheme(rest));
      rest.remove_prefix(whole.size());
      // The library's rule: a short grapheme is looked up whole, and what is found of its beginning replaces all of it.
      if (whole.size() < 6 && replace(whole, out)) continue;
      for (size_t at = 0; at < whole.size();) {
        const size_t begin = at;
        unicode::next(whole, at);
        if (const std::string_view one = whole.substr(begin, at - begin); !replace(one, out)) out += one;
      }
    }
    n.text = std::move(out);
  }

 private:
  static constexpr size_t kMostText = 1024;

  // Adds what the shortest beginning of `text` that has a rule becomes.
  bool replace(std::string_view text, std::string& out) const {
    if (units_.empty()) return false;
    size_t node = offset(units_[0]);
    for (const char c : text) {
      const auto byte = static_cast<unsigned char>(c);
      if (byte == 0) return false;
      node ^= byte;
      if (node >= units_.size() || label(units_[node]) != byte) return false;
      const uint32_t unit = units_[node];
      node ^= offset(unit);
      if (!(unit >> 8 & 1)) continue;
      const size_t at = node < units_.size() ? units_[node] & 0x7FFFFFFF : texts_.size();
      if (at >= texts_.size()) return false;
      const size_t end = std::min(texts_.find('\0', at), texts_.size());
      // A hostile number points into a character.
      if ((texts_[at] & 0xC0) == 0x80) return false;
      out.append(texts_, at, end - at);
      return true;
    }
    return false;
  }
  static uint32_t label(uint32_t unit) { return unit & 0x800000FF; }
  static uint32_t offset(uint32_t unit) { return (unit >> 10) << ((unit & 0x200) >> 6); }

  // Bytes of the first grapheme. Of its rules those that decide where one of fewer than six bytes begins and ends.
  static size_t grapheme(std::string_view text) {
    using namespace unicode;
    if (text.starts_with("\r\n")) return 2;
    size_t at = 0;
    char32_t c = next(text, at);
    uint16_t own = flags(c);
    if (own & kAlone) return at;
    while ((own & kPrepend) && at < text.size()) {
      size_t behind = at;
      const uint16_t then = flags(next(text, behind));
      if (then & kAlone) return at;
      own = then, at = behind;
    }
    bool pictograph = (own & kPictograph) != 0;
    while (at < text.size()) {
      size_t behind = at;
      const char32_t mark = next(text, behind);
      if (!(flags(mark) & kJoins)) return at;
      at = behind;
      size_t other = at;
      if (mark == 0x200D && pictograph && at < text.size() && (flags(next(text, other)) & kPictograph)) at = other;
      else if (mark == 0x200D) pictograph = false;
    }
    return at;
  }

  std::vector<uint32_t> units_;
  std::string texts_;
};

}  // namespace

NormalizerPtr make_precompiled(const Fields& f) { return std::make_unique<Precompiled>(f); }

}  // namespace mortise::huggingface
