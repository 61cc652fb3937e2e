// Small tokenizer.json files, and the plugin that reads them.
#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "mortise/testing/fake_host.hpp"

namespace mortise::testing {

using Json = nlohmann::json;
using Ids = std::vector<int64_t>;
using Texts = std::vector<std::string>;

class HuggingFaceTest : public ::testing::Test {
 protected:
  HuggingFaceTest() { std::filesystem::create_directories(folder_); }
  ~HuggingFaceTest() override {
    plugin_.reset();
    std::filesystem::remove_all(folder_);
  }

  void write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }
  void load_text(const std::string& text) {
    plugin_.reset();
    write("tokenizer.json", text);
    host_.set("path", folder_.string());
    plugin_ = std::make_unique<Plugin>(host_, MORTISE_PLUGIN_FILE);
    object_ = &plugin_->object<mortise_tokenizer>("tokenizer");
  }
  void load(const Json& file) { load_text(file.dump()); }

  mortise_status try_encode(std::string_view text) {
    size_t needed = 0;
    return object_->encode(plugin_->self(), str(text), nullptr, 0, &needed);
  }
  Ids encode(std::string_view text) {
    size_t needed = 0;
    EXPECT_EQ(object_->encode(plugin_->self(), str(text), nullptr, 0, &needed), MORTISE_OK) << host_.error();
    Ids ids(needed);
    EXPECT_EQ(object_->encode(plugin_->self(), str(text), ids.data(), ids.size(), &needed), MORTISE_OK);
    return ids;
  }
  std::string decode(const Ids& ids) {
    size_t needed = 0;
    EXPECT_EQ(object_->decode(plugin_->self(), ids.data(), ids.size(), nullptr, 0, &needed), MORTISE_OK);
    std::string text(needed, '?');
    EXPECT_EQ(object_->decode(plugin_->self(), ids.data(), ids.size(), text.data(), text.size(), &needed), MORTISE_OK);
    return text;
  }
  // Why the file is refused; "" if it is not.
  std::string refusal(const std::string& text) {
    host_.blamed.reset();
    try {
      load_text(text);
    } catch (const PluginError&) {
      return host_.blamed ? host_.blamed->why : host_.error();
    }
    return "";
  }
  std::string refusal(const Json& file) { return refusal(file.dump()); }

  static Json file(const Json& model) {
    return {{"version", "1.0"},
            {"truncation", nullptr},
            {"padding", nullptr},
            {"added_tokens", Json::array()},
            {"normalizer", nullptr},
            {"pre_tokenizer", nullptr},
            {"post_processor", nullptr},
            {"decoder", nullptr},
            {"model", model}};
  }
  // Ids in this order.
  static Json vocabulary(const Texts& tokens) {
    Json all = Json::object();
    for (const std::string& t : tokens) all.emplace(t, all.size());
    return all;
  }
  // Merges as "a b"; every other one as the two texts that newer files have.
  static Json bpe(const Texts& tokens, const Texts& merges, const Json& more = Json::object()) {
    Json all = Json::array();
    for (const std::string& m : merges) {
      if (all.size() % 2) all.push_back(m);
      else all.push_back(Json::array({m.substr(0, m.find(' ')), m.substr(m.find(' ') + 1)}));
    }
    Json model = {{"type", "BPE"}, {"vocab", vocabulary(tokens)}, {"merges", all}};
    model.update(more);
    return model;
  }
  static Json word_piece(const Texts& tokens, int most = 100) {
    return {{"type", "WordPiece"},
            {"unk_token", "[UNK]"},
            {"continuing_subword_prefix", "##"},
            {"max_input_chars_per_word", most},
            {"vocab", vocabulary(tokens)}};
  }
  static Json added(int id, const std::string& content, const Json& more = Json::object()) {
    Json t = {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
              {"rstrip", false}, {"normalized", false}, {"special", false}};
    t.update(more);
    return t;
  }

  // A vocabulary of just these pieces: whatever is cut in another way is not known.
  void expect_pieces(const Json& normalizer, const Json& pre_tokenizer, const std::string& text, const Texts& pieces) {
    Texts tokens = {"[UNK]"};
    for (const std::string& p : pieces)
      if (std::find(tokens.begin(), tokens.end(), p) == tokens.end()) tokens.push_back(p);
    Json f = file(word_piece(tokens));
    f["normalizer"] = normalizer;
    f["pre_tokenizer"] = pre_tokenizer;
    load(f);
    Ids expected;
    for (const std::string& p : pieces) expected.push_back(std::find(tokens.begin(), tokens.end(), p) - tokens.begin());
    EXPECT_EQ(encode(text), expected) << text << " by " << normalizer << pre_tokenizer;
  }
  void expect_normal(const Json& normalizer, const std::string& text, const std::string& normal) {
    expect_pieces(normalizer, nullptr, text, normal.empty() ? Texts{} : Texts{normal});
  }
  static Json split(const std::string& regex, const std::string& behavior = "Isolated", bool inverted = false) {
    return {{"type", "Split"}, {"pattern", {{"Regex", regex}}}, {"behavior", behavior}, {"invert", inverted}};
  }

  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("mortise_huggingface_test_" + std::to_string(getpid()));
  FakeHost host_;
  std::unique_ptr<Plugin> plugin_;
  const mortise_tokenizer* object_ = nullptr;
};

}  // namespace mortise::testing
