#include "special_tokens.hpp"

#include "formats/huggingface/json.hpp"

namespace mortise::huggingface {
namespace {

struct Role {
  std::string_view name;
  std::vector<std::string_view> usual;
};
const Role kRoles[] = {{"bos", {"<s>", "<bos>", "<|begin_of_text|>", "<|startoftext|>"}},
                       {"eos", {"</s>", "<eos>", "<|end_of_text|>", "<|endoftext|>"}},
                       {"pad", {"<pad>", "[PAD]", "<|pad|>"}},
                       {"cls", {"[CLS]", "<cls>"}},
                       {"sep", {"[SEP]", "<sep>"}},
                       {"unk", {"<unk>", "[UNK]"}},
                       {"mask", {"[MASK]", "<mask>"}}};

// What a file says of a role: "" nothing, `is_told` whether it says anything, also that there is none.
std::string told(const Json& file, const std::string& name, const std::string& key, bool& is_told) {
  const auto found = file.find(key);
  if (found == file.end()) return "";
  is_told = true;
  if (found->is_null()) return "";
  if (found->is_string()) return *found;
  if (found->is_object() && found->contains("content") && found->at("content").is_string()) return found->at("content");
  throw Fault(name + ": " + key + " is neither a text nor a token");
}

}  // namespace

std::map<std::string, int64_t, std::less<>> special_tokens(const Tokenizer& tokenizer,
                                                           const std::map<std::string, std::string>& texts) {
  std::map<std::string, Json> files;
  for (const auto& [name, text] : texts) {
    files[name] = parse_json(text);
    if (!files[name].is_object()) throw Fault(name + " is no JSON object");
  }
  std::map<std::string, int64_t, std::less<>> ids;
  for (const Role& role : kRoles) {
    bool is_told = false;
    std::string token;
    for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"})
      if (const auto file = files.find(name); file != files.end() && !is_told)
        token = told(file->second, name, std::string(role.name) + "_token", is_told);
    uint32_t id = 0;
    if (is_told) {
      if (!token.empty() && tokenizer.find(token, id)) ids.emplace(role.name, id);
      continue;
    }
    if (role.name == "unk" && tokenizer.find(tokenizer.unknown(), id)) {
      ids.emplace(role.name, id);
      continue;
    }
    for (const std::string_view usual : role.usual)
      if (tokenizer.find(usual, id)) {
        ids.emplace(role.name, id);
        break;
      }
  }
  return ids;
}

}  // namespace mortise::huggingface
