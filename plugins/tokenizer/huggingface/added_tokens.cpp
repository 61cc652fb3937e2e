#include "added_tokens.hpp"

#include <algorithm>

#include "unicode.hpp"

namespace mortise::huggingface {

AddedTokens::AddedTokens(const Fields& file, const Vocabulary& vocabulary, const Normalizer* normalizer) {
  if (!file.has("added_tokens")) return;
  auto next_id = static_cast<uint32_t>(vocabulary.count());
  for (const Fields& f : file.each("added_tokens")) add(f, vocabulary, normalizer, next_id);
  for (uint32_t i = 0; i < all_.size(); ++i) {
    Finder& finder = all_[i].normalized ? normalized_ : raw_;
    const std::string& text = all_[i].found_as;
    const uint32_t node = finder.trie.walk(Trie::kRoot, text);
    if (text.empty() || (node != Trie::kNone && finder.trie.value(node) != Trie::kNone))
      throw Fault("added_tokens: `" + all_[i].content + "` is " +
                  (text.empty() ? "nothing" : "the same as another one") + " when it is normalized");
    finder.trie.add(text, i);
    finder.first.set(static_cast<unsigned char>(text[0]));
    finder.any = true;
  }
}

void AddedTokens::add(const Fields& f, const Vocabulary& vocabulary, const Normalizer* normalizer, uint32_t& next_id) {
  f.only({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
  AddedToken t = {f.number("id"),   f.text("content"),   {}, f.flag("single_word"), f.flag("lstrip"),
                  f.flag("rstrip"), f.flag("normalized")};
  f.flag("special");  // of use to those who leave them out of a text
  if (t.content.empty() || t.content.size() > Vocabulary::kLongest)
    f.refuse("content", " is empty or longer than 4,096 bytes");
  // The library takes the id of the vocabulary, or the next one, whatever the file says.
  const uint32_t* known = vocabulary.find(t.content);
  const auto earlier = by_content_.find(t.content);
  const uint32_t id = earlier != by_content_.end() ? all_[earlier->second].id : known ? *known : next_id;
  if (id != t.id)
    f.refuse("id", " of `" + t.content.substr(0, 64) + "` is " + std::to_string(t.id) +
                       ", and the order of the tokens makes it " + std::to_string(id));
  if (id >= Vocabulary::kMostIds) f.refuse("id", " is above 16,777,215");
  if (!known && earlier == by_content_.end()) ++next_id;
  Normalized n = {t.content};
  if (t.normalized && normalizer) normalizer->apply(n);
  t.found_as = n.text;
  end_ = std::max(end_, id + 1);
  if (earlier != by_content_.end()) {
    all_[earlier->second] = t;
    return;
  }
  by_id_[id] = all_.size();
  by_content_[t.content] = all_.size();
  all_.push_back(std::move(t));
}

const AddedToken* AddedTokens::find(uint32_t id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &all_[found->second];
}
const AddedToken* AddedTokens::find(std::string_view content) const {
  const auto found = by_content_.find(std::string(content));
  return found == by_content_.end() ? nullptr : &all_[found->second];
}

const AddedToken* AddedTokens::Finder::at(std::string_view text, size_t at, size_t& end,
                                          const std::vector<AddedToken>& all) const {
  const AddedToken* longest = nullptr;
  uint32_t node = Trie::kRoot;
  for (size_t i = at; i < text.size();) {
    node = trie.step(node, text[i++]);
    if (node == Trie::kNone) break;
    if (trie.value(node) != Trie::kNone) longest = &all[trie.value(node)], end = i;
  }
  return longest;
}

void AddedTokens::cut(std::string_view text, bool normalized, const Body& body) const {
  const Finder& finder = normalized ? normalized_ : raw_;
  const auto part = [&](size_t begin, size_t end, const AddedToken* t) {
    if (begin < end) body(text.substr(begin, end - begin), begin, t);
  };
  const auto is = [&](size_t from, uint16_t flag) {
    size_t at = from;
    return unicode::is(unicode::next(text, at), flag);
  };
  size_t done = 0;
  for (size_t at = 0; finder.any && at < text.size();) {
    size_t found_end = 0;
    const AddedToken* t = nullptr;
    if (finder.first[static_cast<unsigned char>(text[at])]) t = finder.at(text, at, found_end, all_);
    if (!t) {
      ++at;
      continue;
    }
    size_t begin = at, end = found_end;
    at = found_end;
    if (t->single_word && ((begin > 0 && is(unicode::before(text, begin), unicode::kWord)) ||
                           (end < text.size() && is(end, unicode::kWord))))
      continue;
    if (t->lstrip) {
      while (begin > done && is(unicode::before(text, begin), unicode::kWhite)) begin = unicode::before(text, begin);
      begin = std::max(begin, done);  // the token before may have taken this one's white space
    }
    while (t->rstrip && end < text.size() && is(end, unicode::kWhite)) unicode::next(text, end);
    part(done, begin, nullptr);
    part(begin, end, t);
    done = end;
  }
  part(done, text.size(), nullptr);
}

}  // namespace mortise::huggingface
