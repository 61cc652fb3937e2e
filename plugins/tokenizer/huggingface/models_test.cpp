// The three models, special tokens, and what a host asks.
#include <thread>

#include "testing.hpp"

namespace {
using namespace mortise;
using namespace mortise::testing;

class Models : public HuggingFaceTest {
 protected:
  static Json unigram(const Json& more = Json::object()) {
    Json model = {
        {"type", "Unigram"},
        {"unk_id", 0},
        {"vocab", Json::array({Json::array({"<unk>", 0.0}), Json::array({"a", 0.0}), Json::array({"b", 0.0}),
                               Json::array({"c", 0.0}), Json::array({"d", 0.0}), Json::array({"cd", 1.0}),
                               Json::array({"ab", 2.0}), Json::array({"abc", 5.0}), Json::array({"abcd", 10.0})})}};
    model.update(more);
    return model;
  }
  mortise_status special(const char* role, int64_t* id) {
    return object_->special(plugin_->self(), str(std::string_view(role)), id);
  }
};

TEST_F(Models, BpeJoinsThePairThatWasLearnedFirstAndOfEqualOnesTheLeft) {
  load(file(bpe({"a", "b", "c", "bc", "ab", "abc", "aa"}, {"b c", "a b", "a bc", "a a"})));
  EXPECT_EQ(encode("abc"), (Ids{5}));
  EXPECT_EQ(encode("ab"), (Ids{4}));
  EXPECT_EQ(encode("aab"), (Ids{0, 4}));
  EXPECT_EQ(encode("aaa"), (Ids{6, 0}));
  EXPECT_EQ(encode("axb"), (Ids{4}));  // without unk_token a character that is not known is nothing
  EXPECT_EQ(encode(""), (Ids{}));
  EXPECT_EQ(decode({5, 4}), "abc ab");
}

TEST_F(Models, BpeMakesOneOrManyOfWhatItDoesNotKnow) {
  const Texts tokens = {"<unk>", "a", "b"};
  load(file(bpe(tokens, {}, {{"unk_token", "<unk>"}, {"fuse_unk", true}})));
  EXPECT_EQ(encode("xyaz"), (Ids{0, 1, 0}));
  load(file(bpe(tokens, {}, {{"unk_token", "<unk>"}, {"fuse_unk", false}})));
  EXPECT_EQ(encode("xyaz"), (Ids{0, 0, 1, 0}));
}

TEST_F(Models, BpeFallsBackToBytesWhereAllOfACharacterAreTokens) {
  const Texts tokens = {"<unk>", "a", "<0xC3>", "<0xA9>", "<0xE2>"};
  load(file(bpe(tokens, {}, {{"unk_token", "<unk>"}, {"fuse_unk", true}, {"byte_fallback", true}})));
  EXPECT_EQ(encode("aé"), (Ids{1, 2, 3}));
  EXPECT_EQ(encode("€"), (Ids{0}));
}

TEST_F(Models, BpeMarksWhereAWordGoesOnAndEnds) {
  load(file(bpe({"a", "##b", "##c</w>", "a</w>", "ab"}, {"a ##b"},
                {{"continuing_subword_prefix", "##"}, {"end_of_word_suffix", "</w>"}})));
  EXPECT_EQ(encode("abc"), (Ids{4, 2}));
  EXPECT_EQ(encode("a"), (Ids{3}));
}

TEST_F(Models, BpeTakesAWholeWordFirstIfItIsToldTo) {
  const Texts tokens = {"a", "b", "c", "ab", "abc"};
  load(file(bpe(tokens, {"a b"})));
  EXPECT_EQ(encode("abc"), (Ids{3, 2}));
  load(file(bpe(tokens, {"a b"}, {{"ignore_merges", true}})));
  EXPECT_EQ(encode("abc"), (Ids{4}));
}

TEST_F(Models, BpeOfBytesGivesEveryTextBack) {
  Texts tokens;
  Json letters = Json::array();
  for (int b = 0; b < 256; ++b) {
    const bool itself = (b >= '!' && b <= '~') || (b >= 0xA1 && b != 0xAD);
    static int n;
    if (b == 0) n = 0;
    const int c = itself ? b : 256 + n++;
    std::string letter;
    if (c < 0x80) letter = {static_cast<char>(c)};
    else letter = {static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 63))};
    tokens.push_back(letter);
  }
  tokens.push_back("Ġa");
  Json f = file(bpe(tokens, {"Ġ a"}));
  f["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}};
  f["decoder"] = f["pre_tokenizer"];
  load(f);
  EXPECT_EQ(encode("a a"), (Ids{'a', 256}));
  EXPECT_EQ(encode("é\n"), (Ids{0xC3, 0xA9, '\n'}));
  const std::string text = "Grüße, 世界!\r\n\t\x7f  \u00ad\U0001F600";
  EXPECT_EQ(decode(encode(text)), text);
  EXPECT_EQ(decode({0xE2, 0x82, 'a', 0x80}), "\uFFFDa\uFFFD");
  f["pre_tokenizer"]["add_prefix_space"] = true;
  load(f);
  EXPECT_EQ(encode("a"), (Ids{256}));
}

TEST_F(Models, BpeCutsALongTextWhereNothingIsJoinedAndGivesTheIdsOfTheWhole) {
  // Two spaces are joined, so is what stands before one: "x▁".
  const Texts tokens = {"▁", "a", "x", "▁a", "▁▁", "x▁", "aa", "<unk>"};
  const Texts merges = {"▁ ▁", "x ▁", "▁ a", "a a"};
  load(file(bpe(tokens, merges, {{"unk_token", "<unk>"}, {"fuse_unk", true}})));
  EXPECT_EQ(encode("▁a▁▁▁ax▁aéé▁a"), (Ids{3, 4, 3, 5, 1, 7, 3}));
  std::string text;
  Ids expected;
  for (int i = 0; i < 50; ++i) {
    text += "▁a▁▁▁ax▁aéé";
    for (const int64_t id : {3, 4, 3, 5, 1, 7}) expected.push_back(id);
  }
  EXPECT_EQ(encode(text), expected);
}

TEST_F(Models, WordPieceTakesTheLongestFirst) {
  load(file(word_piece({"[UNK]", "un", "##aff", "##able", "##a", "u", "##b", "##ü"}, 8)));
  EXPECT_EQ(encode("unaffable"), (Ids{0}));  // nine characters
  EXPECT_EQ(encode("unaff"), (Ids{1, 2}));
  EXPECT_EQ(encode("unab"), (Ids{1, 4, 6}));
  EXPECT_EQ(encode("unax"), (Ids{0}));
  EXPECT_EQ(encode("unüüüüüü"), (Ids{1, 7, 7, 7, 7, 7, 7}));
}

TEST_F(Models, UnigramTakesTheLargestSum) {
  load(file(unigram()));
  EXPECT_EQ(encode("abcdacdxx"), (Ids{8, 1, 5, 0}));  // the example of the library's own documentation
  EXPECT_EQ(encode("xaxx"), (Ids{0, 1, 0}));
  EXPECT_EQ(encode("<unk>x"), (Ids{0}));
  EXPECT_EQ(encode("abc"), (Ids{7}));
}

TEST_F(Models, UnigramFallsBackToBytesOrRefuses) {
  Json model = unigram({{"byte_fallback", true}});
  model["vocab"].push_back(Json::array({"<0xC3>", 0.0}));
  model["vocab"].push_back(Json::array({"<0xA9>", 0.0}));
  load(file(model));
  EXPECT_EQ(encode("aé"), (Ids{1, 9, 10}));
  EXPECT_EQ(encode("aéx"), (Ids{1, 0}));
  model.erase("unk_id");
  load(file(model));
  EXPECT_EQ(try_encode("ax"), MORTISE_E_DATA);
  EXPECT_EQ(host_.error(),
            (folder_ / "tokenizer.json").string() + ": `x` is not in the vocabulary, and model.unk_id is not set");
}

TEST_F(Models, KnowsBpeAndWordPieceOfOlderFilesThatDoNotSayTheirType) {
  Json f = file(bpe({"a", "b", "ab"}, {"a b"}));
  f["model"].erase("type");
  load(f);
  EXPECT_EQ(encode("ab"), (Ids{2}));
  f = file(word_piece({"[UNK]", "a", "##b"}));
  f["model"].erase("type");
  load(f);
  EXPECT_EQ(encode("ab"), (Ids{1, 2}));
  f["model"].erase("max_input_chars_per_word");
  EXPECT_NE(refusal(f).find("model.type is missing"), std::string::npos);
}

TEST_F(Models, ItsSizeIsOneMoreThanTheLargestId) {
  Json f = file(bpe({"a", "b"}, {}));
  load(f);
  int64_t size = 0;
  EXPECT_EQ(object_->size(plugin_->self(), &size), MORTISE_OK);
  EXPECT_EQ(size, 2);
  f["added_tokens"] = {added(2, "<s>"), added(3, "<t>")};
  load(f);
  EXPECT_EQ(object_->size(plugin_->self(), &size), MORTISE_OK);
  EXPECT_EQ(size, 4);
}

TEST_F(Models, SaysHowMuchRoomItNeedsAndWritesNothingIntoLess) {
  load(file(bpe({"a", "b"}, {})));
  int64_t ids[1] = {-7};
  size_t needed = 0;
  EXPECT_EQ(object_->encode(plugin_->self(), MORTISE_STR("ab"), ids, 1, &needed), MORTISE_OK);
  EXPECT_EQ(needed, 2u);
  EXPECT_EQ(ids[0], -7);
  const int64_t both[] = {0, 1};
  char text[1] = {'?'};
  EXPECT_EQ(object_->decode(plugin_->self(), both, 2, text, 1, &needed), MORTISE_OK);
  EXPECT_EQ(needed, 3u);
  EXPECT_EQ(text[0], '?');
}

TEST_F(Models, RefusesWhatIsNotUtf8AndIdsBelowZeroAndLeavesOutUnknownIds) {
  load(file(bpe({"a", "b"}, {})));
  EXPECT_EQ(try_encode("ab\xC3"), MORTISE_E_DATA);
  EXPECT_EQ(host_.error(), (folder_ / "tokenizer.json").string() + ": the text is not UTF-8 at byte 2");
  EXPECT_EQ(decode({0, 77, 1}), "a b");
  const int64_t below[] = {-100};
  size_t needed = 0;
  EXPECT_EQ(object_->decode(plugin_->self(), below, 1, nullptr, 0, &needed), MORTISE_E_DATA);
}

TEST_F(Models, KnowsSpecialTokensByTheFilesBesideElseByTheirUsualNames) {
  Json f = file(bpe({"a", "<s>", "</s>", "<pad>", "<unk>", "<mine>"}, {}, {{"unk_token", "<unk>"}}));
  load(f);
  int64_t id = -1;
  for (const auto& [role, own] : std::map<const char*, int64_t>{{"bos", 1}, {"eos", 2}, {"pad", 3}, {"unk", 4}}) {
    EXPECT_EQ(special(role, &id), MORTISE_OK) << role;
    EXPECT_EQ(id, own) << role;
  }
  EXPECT_EQ(special("mask", &id), MORTISE_E_NOT_FOUND);
  EXPECT_EQ(special("nothing", &id), MORTISE_E_NOT_FOUND);

  write("special_tokens_map.json", R"({"eos_token": {"content": "<mine>"}, "cls_token": "a", "pad_token": "a"})");
  write("tokenizer_config.json", R"({"bos_token": null, "pad_token": "<mine>", "add_bos_token": true})");
  load(f);
  EXPECT_EQ(special("eos", &id), MORTISE_OK);
  EXPECT_EQ(id, 5);
  EXPECT_EQ(special("cls", &id), MORTISE_OK);
  EXPECT_EQ(id, 0);
  EXPECT_EQ(special("pad", &id), MORTISE_OK);
  EXPECT_EQ(id, 5);
  EXPECT_EQ(special("bos", &id), MORTISE_E_NOT_FOUND);  // the file says that there is none
}

TEST_F(Models, EncodesOnSeveralThreadsAtOnce) {
  Json f = file(word_piece({"[UNK]", "a", "##b", "##c"}));
  f["pre_tokenizer"] = {{"type", "WhitespaceSplit"}};
  load(f);
  std::string text;
  for (int i = 0; i < 2000; ++i) text += std::string("a") + (i % 3 ? "b" : "c") + std::string(i % 7, 'b') + " ";
  const Ids expected = encode(text);
  std::vector<Ids> results(4);
  std::vector<std::thread> threads;
  for (Ids& r : results)
    threads.emplace_back([&] {
      size_t needed = 0;
      r.resize(expected.size());
      for (int i = 0; i < 5; ++i) object_->encode(plugin_->self(), str(text), r.data(), r.size(), &needed);
    });
  for (std::thread& t : threads) t.join();
  for (const Ids& r : results) EXPECT_EQ(r, expected);
}

TEST_F(Models, RemembersMorePiecesThanItHasRoomFor) {
  Json f = file(word_piece({"[UNK]", "a", "##a", "##b", "b"}));
  f["pre_tokenizer"] = {{"type", "WhitespaceSplit"}};
  load(f);
  std::string text;
  Ids expected;
  for (int i = 0; i < 100000; ++i) {
    for (int bit = 0; bit < 17; ++bit) {
      text += i >> bit & 1 ? 'a' : 'b';
      expected.push_back(bit == 0 ? (i & 1 ? 1 : 4) : (i >> bit & 1 ? 2 : 3));
    }
    text += ' ';
  }
  EXPECT_EQ(encode(text), expected);
  EXPECT_EQ(encode(text), expected);
}

}  // namespace
