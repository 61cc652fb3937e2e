#include "decoders.hpp"

#include <algorithm>

#include "bytes.hpp"
#include "matcher.hpp"
#include "model.hpp"
#include "mortise/cpp/strings.hpp"
#include "normalizers.hpp"
#include "unicode.hpp"

namespace mortise::huggingface {
namespace {

using Tokens = std::vector<std::string>;

struct Fuse : Decoder {
  void apply(Tokens& tokens) const override {
    std::string all;
    for (const std::string& t : tokens) all += t;
    tokens.assign(1, std::move(all));
  }
};

struct ByteLevel : Decoder {
  void apply(Tokens& tokens) const override {
    std::string all;
    for (const std::string& t : tokens) append_bytes(all, t);
    tokens.assign(1, unicode::lossy(all));
  }
  // A token with a character that stands for no byte is taken as it is.
  static void append_bytes(std::string& all, std::string_view token) {
    const size_t before = all.size();
    for (size_t at = 0; at < token.size();) {
      const char32_t c = unicode::next(token, at);
      const int byte = c < kByteOfLetter.size() ? kByteOfLetter[c] : -1;
      if (byte < 0) {
        all.resize(before);
        all += token;
        return;
      }
      all.push_back(static_cast<char>(byte));
    }
  }
};

struct ByteFallback : Decoder {
  void apply(Tokens& tokens) const override {
    Tokens out;
    std::string bytes;
    const auto flush = [&] {
      if (bytes.empty()) return;
      if (is_utf8(bytes)) out.push_back(bytes);
      else out.insert(out.end(), bytes.size(), "\uFFFD");
      bytes.clear();
    };
    for (std::string& t : tokens) {
      const int byte = byte_of_token(t);
      if (byte >= 0) {
        bytes.push_back(static_cast<char>(byte));
        continue;
      }
      flush();
      out.push_back(std::move(t));
    }
    flush();
    tokens = std::move(out);
  }
  static bool is_utf8(std::string_view text) {
    while (const size_t length = utf8_length(text)) text.remove_prefix(length);
    return text.empty();
  }
};

std::string replaced(const std::string& text, std::string_view from, std::string_view to) {
  std::string out;
  size_t done = 0;
  for (size_t at = 0; (at = text.find(from, done)) != text.npos; done = at + from.size())
    out.append(text, done, at - done).append(to);
  return out.append(text, done);
}

struct WordPiece : Decoder {
  explicit WordPiece(const Fields& f) : prefix(f.text("prefix")), cleans(f.flag("cleanup")) {
    f.only({"type", "prefix", "cleanup"});
  }
  void apply(Tokens& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) {
      std::string& t = tokens[i];
      if (i > 0) t = t.starts_with(prefix) ? t.substr(prefix.size()) : " " + t;
      if (cleans) t = clean(t);
    }
  }
  static std::string clean(std::string t) {
    static constexpr std::string_view kRules[][2] = {
        {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
        {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    for (const auto& [from, to] : kRules) t = replaced(t, from, to);
    return t;
  }
  const std::string prefix;
  const bool cleans;
};

struct Metaspace : Decoder {
  explicit Metaspace(const Fields& f) : mark(f.text("replacement")) {
    f.only({"type", "replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"});
    if (unicode::length(mark) != 1) f.refuse("replacement", " is not one character");
    const std::string scheme = f.text("prepend_scheme", "always");
    if (scheme != "always" && scheme != "first" && scheme != "never")
      f.refuse("prepend_scheme", " is `" + scheme + "`, which is not supported");
    if (!f.flag("add_prefix_space", true) && f.has("prepend_scheme") && scheme != "never")
      f.refuse("add_prefix_space", " and prepend_scheme contradict each other");
    drops_first = scheme != "never" && f.flag("add_prefix_space", true);
  }
  void apply(Tokens& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = replaced(tokens[i], mark, i == 0 && drops_first ? "" : " ");
  }
  const std::string mark;
  bool drops_first = true;
};

struct Replace : Decoder {
  explicit Replace(const Fields& f) : pattern(pattern_of(f)), content(f.text("content")) {
    f.only({"type", "pattern", "content"});
  }
  void apply(Tokens& tokens) const override {
    for (std::string& t : tokens) {
      std::string out;
      size_t done = 0;
      pattern.each(t, [&](size_t begin, size_t end) {
        out.append(t, done, begin - done).append(content);
        done = end;
        if (out.size() > most_bytes(t.size())) throw Fault("the decoder makes the text too long");
      });
      t = out.append(t, done);
    }
  }
  const Pattern pattern;
  const std::string content;
};

// So many of a character, at most, off both ends of each token.
struct Strip : Decoder {
  explicit Strip(const Fields& f) : content(f.text("content")), start(f.number("start")), stop(f.number("stop")) {
    f.only({"type", "content", "start", "stop"});
    if (unicode::length(content) != 1) f.refuse("content", " is not one character");
  }
  void apply(Tokens& tokens) const override {
    for (std::string& t : tokens) {
      std::string_view text = t;
      for (size_t i = 0; i < start && text.starts_with(content); ++i) text.remove_prefix(content.size());
      for (size_t i = 0; i < stop && text.ends_with(content); ++i) text.remove_suffix(content.size());
      t = std::string(text);
    }
  }
  const std::string content;
  const uint32_t start, stop;
};

struct Sequence : Decoder {
  explicit Sequence(const Fields& f) {
    f.only({"type", "decoders"});
    if (f.list("decoders").size() > 64) f.refuse("decoders", " has more than 64 members");
    for (const Fields& one : f.each("decoders")) all.push_back(make_decoder(one));
  }
  void apply(Tokens& tokens) const override {
    size_t bytes = 0;
    for (const std::string& t : tokens) bytes += t.size();
    const size_t most = most_bytes(bytes);
    for (const auto& one : all) {
      one->apply(tokens);
      bytes = 0;
      for (const std::string& t : tokens) bytes += t.size();
      if (bytes > most) throw Fault("the decoder makes the text too long");
    }
  }
  std::vector<std::unique_ptr<const Decoder>> all;
};

}  // namespace

std::unique_ptr<const Decoder> make_decoder(const Fields& f) {
  const std::string type = f.type();
  if (type == "Sequence") return std::make_unique<Sequence>(f);
  if (type == "WordPiece") return std::make_unique<WordPiece>(f);
  if (type == "Metaspace") return std::make_unique<Metaspace>(f);
  if (type == "Replace") return std::make_unique<Replace>(f);
  if (type == "Strip") return std::make_unique<Strip>(f);
  if (type == "ByteLevel") {
    f.only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
    return std::make_unique<ByteLevel>();
  }
  if (type != "ByteFallback" && type != "Fuse") f.refuse("type", " is `" + type + "`, a decoder that is not supported");
  f.only({"type"});
  if (type == "Fuse") return std::make_unique<Fuse>();
  return std::make_unique<ByteFallback>();
}

}  // namespace mortise::huggingface
