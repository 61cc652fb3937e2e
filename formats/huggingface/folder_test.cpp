// A folder of weights comes from anywhere too: what its index says of files is checked before one is opened.
#include "formats/huggingface/folder.hpp"

#include "core/store/files.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace fs = std::filesystem;

namespace mortise::huggingface {
namespace {

class Weights : public testing::Test {
 protected:
  void SetUp() override {
    folder = (fs::path(testing::TempDir()) / ("mortise_weights." + std::to_string(getpid()))).string();
    fs::create_directories(folder);
  }
  void TearDown() override { fs::remove_all(folder); }

  void text(const std::string& name, const std::string& all) {
    std::ofstream(folder + "/" + name, std::ios::binary) << all;
  }
  void index(const std::string& map) { text("model.safetensors.index.json", "{\"weight_map\":" + map + "}"); }
  // A file with tensors of one number, by name.
  void shard(const std::string& name, const std::vector<std::pair<std::string, float>>& tensors) {
    std::vector<TensorView> views;
    for (const auto& [tensor, number] : tensors) views.push_back({tensor, "F32", {1}, &number, sizeof number});
    write_file(folder + "/" + name, [&](const Sink& sink) { write_safetensors(sink, views, {}); });
  }
  float number(const WeightFiles& files, const std::string& tensor) {
    return *static_cast<const float*>(files.tensors().at(tensor).data);
  }

  // What is said about the folder; "" if it is taken.
  std::string refusal(const std::string& code) {
    try {
      const WeightFiles files(folder);
      return "";
    } catch (const FormatError& f) {
      EXPECT_EQ(f.code, code);
      EXPECT_TRUE(f.path.starts_with(folder));
      return f.message;
    }
  }

  std::string folder;
};

TEST_F(Weights, AreOneFileOrShards) {
  shard("a.safetensors", {{"x", 1}});
  shard("b.safetensors", {{"y", 2}, {"z", 3}});
  index(R"({"x":"a.safetensors","y":"b.safetensors","z":"b.safetensors"})");
  const WeightFiles shards(folder);
  EXPECT_EQ(shards.tensors().size(), 3u);
  EXPECT_EQ(number(shards, "x"), 1);
  EXPECT_EQ(number(shards, "z"), 3);

  // Where both are there, the whole one counts, as for transformers.
  shard("model.safetensors", {{"x", 4}});
  const WeightFiles whole(folder);
  EXPECT_EQ(whole.tensors().size(), 1u);
  EXPECT_EQ(number(whole, "x"), 4);
  EXPECT_EQ(number(WeightFiles(folder + "/b.safetensors"), "y"), 2);
}

TEST_F(Weights, AreHeldInAFolderOfShardsToo) {
  EXPECT_EQ(held_in(folder), Holds::kNothing);
  text("pytorch_model.bin.index.json", "{}");
  EXPECT_EQ(held_in(folder), Holds::kPickles);
  index("{}");
  EXPECT_EQ(held_in(folder), Holds::kWeights);
}

TEST_F(Weights, AnIndexNamesFilesBesideItAndNothingElse) {
  fs::create_directories(folder + "/in");
  shard("in/a.safetensors", {{"x", 1}});
  for (const char* name : {"../a.safetensors", "/etc/passwd", "in/a.safetensors", "..", ".", "", "a\\\\b", "a\\u0000",
                           "a\\n", ".hidden"}) {
    index(std::string("{\"x\":\"") + name + "\"}");
    EXPECT_TRUE(refusal("bad_index").starts_with("the file of `x` is no name of a file beside the index: ")) << name;
  }
  for (const char* name : {"1", "null", "[]", "{}", "true"}) {
    index(std::string("{\"x\":") + name + "}");
    EXPECT_TRUE(refusal("bad_index").starts_with("the file of `x` is no name of a file beside the index: ")) << name;
  }
}

TEST_F(Weights, AnIndexIsAnObjectWithAMap) {
  for (const std::string& all :
       {std::string(), std::string("{"), std::string("[]"), std::string("{}"), std::string("{\"weight_map\":[]}"),
        std::string(1 << 20, '['), std::string("{\"weight_map\":{\"x\":\"\xff\"}}")}) {
    text("model.safetensors.index.json", all);
    EXPECT_EQ(refusal("bad_index"), "it has no object `weight_map`");
  }
  text("model.safetensors.index.json", std::string((16 << 20) + 1, ' '));
  EXPECT_EQ(refusal("bad_index"), "it is larger than any index");
}

TEST_F(Weights, EveryShardIsThereAndHoldsWhatIsPromised) {
  shard("a.safetensors", {{"x", 1}});
  index(R"({"x":"a.safetensors","y":"b.safetensors"})");
  EXPECT_EQ(refusal("not_read"), "cannot be opened: No such file or directory");
  shard("b.safetensors", {{"z", 1}});
  EXPECT_EQ(refusal("bad_index"), "`b.safetensors` does not hold `y`");
  shard("b.safetensors", {{"x", 1}, {"y", 1}});
  EXPECT_EQ(refusal("bad_index"), "both a.safetensors and b.safetensors hold `x`");
  shard("b.safetensors", {{"y", 1}});
  EXPECT_EQ(refusal(""), "");
  index(R"({"x":"b.safetensors","y":"a.safetensors"})");
  EXPECT_EQ(refusal("bad_index"), "`b.safetensors` does not hold `x`; `a.safetensors` does");
  text("b.safetensors", "cut short");
  EXPECT_NE(refusal("bad_safetensors"), "");
}

}  // namespace
}  // namespace mortise::huggingface
