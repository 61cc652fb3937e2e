#include "normalizers.hpp"

#include <vector>

#include "matcher.hpp"
#include "unicode.hpp"

namespace mortise::huggingface {
namespace {

constexpr size_t kMostContent = 1024;  // bytes that a text is replaced by

std::string content_of(const Fields& f, std::string_view name) {
  std::string text = f.text(name);
  if (text.size() > kMostContent) f.refuse(name, " is longer than 1,024 bytes");
  return text;
}

// Leaves out what `leaves_out` is true of.
template <class LeavesOut>
void filter(Normalized& n, LeavesOut&& leaves_out) {
  std::string out;
  out.reserve(n.text.size());
  for (size_t at = 0; at < n.text.size();) {
    const size_t begin = at;
    const char32_t c = unicode::next(n.text, at);
    if (!leaves_out(c)) out.append(n.text, begin, at - begin);
    else if (begin == 0) n.at_start = false;
  }
  n.text = std::move(out);
}

// put(out, c) for every character.
template <class Put>
void rewrite(Normalized& n, Put&& put) {
  std::string out;
  out.reserve(n.text.size() + n.text.size() / 8);
  for (size_t at = 0; at < n.text.size();) put(out, unicode::next(n.text, at));
  n.text = std::move(out);
}

bool is_ascii(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

struct Form : Normalizer {
  explicit Form(unicode::Form f) : form(f) {}
  void apply(Normalized& n) const override {
    if (!is_ascii(n.text)) n.text = unicode::normalized(n.text, form);
  }
  const unicode::Form form;
};

struct Lowercase : Normalizer {
  void apply(Normalized& n) const override { rewrite(n, unicode::append_lower); }
};

struct StripAccents : Normalizer {
  void apply(Normalized& n) const override {
    filter(n, [](char32_t c) { return unicode::is(c, unicode::kMark); });
  }
};

struct Strip : Normalizer {
  explicit Strip(const Fields& f) : left(f.flag("strip_left")), right(f.flag("strip_right")) {
    f.only({"type", "strip_left", "strip_right"});
  }
  void apply(Normalized& n) const override {
    std::string_view text = n.text;
    const auto white = [](char32_t c) { return unicode::is(c, unicode::kWhite); };
    for (size_t behind; left && !text.empty() && (behind = 0, white(unicode::next(text, behind)));)
      text.remove_prefix(behind), n.at_start = false;
    while (right && !text.empty() && white(unicode::last(text)))
      text = text.substr(0, unicode::before(text, text.size()));
    n.text = std::string(text);
  }
  bool keeps_start() const override { return !left; }
  const bool left, right;
};

struct Prepend : Normalizer {
  explicit Prepend(const Fields& f) : text(content_of(f, "prepend")) { f.only({"type", "prepend"}); }
  void apply(Normalized& n) const override {
    if (!n.text.empty()) n.text.insert(0, text);
  }
  bool keeps_start() const override { return false; }
  const std::string text;
};

struct Replace : Normalizer {
  explicit Replace(const Fields& f) : pattern(pattern_of(f)), content(content_of(f, "content")) {
    f.only({"type", "pattern", "content"});
    const Fields p = f.inside("pattern");  // one character, or what T5 has
    is_simple =
        !content.empty() && (p.has("String") ? unicode::length(p.text("String")) == 1 : p.text("Regex") == " {2,}");
  }
  void apply(Normalized& n) const override {
    std::string out;
    out.reserve(n.text.size() + n.text.size() / 8);
    const size_t most = most_bytes(n.text.size());
    size_t done = 0;
    pattern.each(n.text, [&](size_t begin, size_t end) {
      out.append(n.text, done, begin - done).append(content);
      // What replaces several characters stands where the last of them was.
      if (begin == 0 && (content.empty() || unicode::before(n.text, end) != 0)) n.at_start = false;
      done = end;
      if (out.size() > most) throw Fault("the normalizer makes the text too long");
    });
    out.append(n.text, done);
    n.text = std::move(out);
  }
  bool keeps_start() const override { return is_simple; }
  const Pattern pattern;
  const std::string content;
  bool is_simple = false;
};

bool is_chinese(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
         (c >= 0x2A700 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) || (c >= 0xF900 && c <= 0xFAFF) ||
         (c >= 0x2F800 && c <= 0x2FA1F);
}

struct Bert : Normalizer {
  explicit Bert(const Fields& f)
      : cleans(f.flag("clean_text")), chinese(f.flag("handle_chinese_chars")), lowers(f.flag("lowercase")),
        strips(f.flag("strip_accents", lowers)) {
    f.only({"type", "clean_text", "handle_chinese_chars", "strip_accents", "lowercase"});
  }
  void apply(Normalized& n) const override {
    if (cleans) {
      filter(n, [](char32_t c) { return unicode::is(c, unicode::kCleaned); });
      rewrite(n,
              [](std::string& out, char32_t c) { unicode::append(out, unicode::is(c, unicode::kWhite) ? U' ' : c); });
    }
    if (chinese && !is_ascii(n.text))
      rewrite(n, [](std::string& out, char32_t c) {
        if (is_chinese(c)) out += ' ';
        unicode::append(out, c);
        if (is_chinese(c)) out += ' ';
      });
    if (strips && !is_ascii(n.text)) {
      n.text = unicode::normalized(n.text, unicode::Form::kNfd);
      filter(n, [](char32_t c) { return unicode::is(c, unicode::kNonspacing); });
    }
    if (lowers) rewrite(n, unicode::append_lower);
  }
  const bool cleans, chinese, lowers, strips;
};

struct Sequence : Normalizer {
  explicit Sequence(const Fields& f) {
    f.only({"type", "normalizers"});
    if (f.list("normalizers").size() > kMost) f.refuse("normalizers", " has more than 64 members");
    for (const Fields& one : f.each("normalizers")) all.push_back(make_normalizer(one));
  }
  void apply(Normalized& n) const override {
    const size_t most = most_bytes(n.text.size());
    for (const NormalizerPtr& one : all) {
      one->apply(n);
      if (n.text.size() > most) throw Fault("the normalizer makes the text too long");
    }
  }
  bool keeps_start() const override {
    return std::ranges::all_of(all, [](const NormalizerPtr& one) { return one->keeps_start(); });
  }
  static constexpr size_t kMost = 64;
  std::vector<NormalizerPtr> all;
};

template <class T, class... Args>
NormalizerPtr plain(const Fields& f, Args... args) {
  f.only({"type"});
  return std::make_unique<T>(args...);
}

}  // namespace

NormalizerPtr make_normalizer(const Fields& f) {
  const std::string type = f.type();
  if (type == "NFC") return plain<Form>(f, unicode::Form::kNfc);
  if (type == "NFD") return plain<Form>(f, unicode::Form::kNfd);
  if (type == "NFKC") return plain<Form>(f, unicode::Form::kNfkc);
  if (type == "NFKD") return plain<Form>(f, unicode::Form::kNfkd);
  if (type == "Lowercase") return plain<Lowercase>(f);
  if (type == "StripAccents") return plain<StripAccents>(f);
  if (type == "Strip") return std::make_unique<Strip>(f);
  if (type == "Prepend") return std::make_unique<Prepend>(f);
  if (type == "Replace") return std::make_unique<Replace>(f);
  if (type == "BertNormalizer") return std::make_unique<Bert>(f);
  if (type == "Precompiled") return make_precompiled(f);
  if (type == "Sequence") return std::make_unique<Sequence>(f);
  f.refuse("type", " is `" + type + "`, a normalizer that is not supported");
}

}  // namespace mortise::huggingface
