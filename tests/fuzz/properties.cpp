#include "tests/fuzz/properties.hpp"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <string>

#include "core/base/diagnostic.hpp"
#include "core/store/checkpoint.hpp"
#include "core/store/hash.hpp"
#include "core/store/run_state.hpp"
#include "formats/safetensors/safetensors.hpp"

namespace mortise::fuzz {
namespace {

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

void check_refusal(const std::string& message, const std::string& at) {
  require(!message.empty() && at == "fuzz", "a refusal says where and what");
  for (const unsigned char c : message) require(c >= 0x20 && c != 0x7f, "a refusal has no control characters");
}

// The ways that differ in nothing but the order of entries without bytes.
using Entries = std::map<std::string, std::pair<std::string, std::vector<int64_t>>>;
Entries entries_of(const TensorFile& file) {
  Entries all;
  for (const TensorView& t : file.entries) all[t.name] = {t.dtype, t.sizes};
  return all;
}

}  // namespace

bool try_safetensors(std::string_view file) {
  TensorFile taken;
  try {
    taken = parse_safetensors(file, "fuzz");
  } catch (const FormatError& e) {
    check_refusal(e.message, e.path);
    return false;
  }
  uint64_t length = 0;
  for (size_t i = 0; i < 8; ++i) length |= uint64_t{static_cast<unsigned char>(file[i])} << (8 * i);
  const char *at = file.data() + 8 + length, *end = file.data() + file.size();
  require(at <= end, "the header lies in the file");
  std::set<std::string> names;
  for (const TensorView& t : taken.entries) {
    require(t.data == at, "entries follow upon one another");
    require(t.bytes <= static_cast<size_t>(end - at), "an entry lies in the file");
    at += t.bytes;
    for (const int64_t n : t.sizes) require(n >= 0, "no dimension is negative");
    require(!t.name.empty() && t.name != "__metadata__" && t.name.find('\0') == std::string::npos, "names are names");
    require(names.insert(t.name).second, "names are unique");
  }
  require(at == end, "every byte belongs to an entry");

  std::string again;
  write_safetensors([&](const void* data, size_t n) { again.append(static_cast<const char*>(data), n); }, taken.entries,
                    taken.metadata);
  const TensorFile second = parse_safetensors(again, "fuzz");
  require(entries_of(second) == entries_of(taken) && second.metadata == taken.metadata,
          "what is written again is the same");
  const std::string_view data = file.substr(8 + length);
  require(std::string_view(again).substr(again.size() - data.size()) == data, "its bytes are the same");
  return true;
}

bool try_manifest(std::string_view text) {
  CheckpointManifest taken;
  try {
    taken = parse_checkpoint_manifest(text, "fuzz");
  } catch (const Failure& f) {
    require(f.diagnostic.exit == kExitData, "a refusal is an exit of its own");
    check_refusal(f.diagnostic.message, f.diagnostic.at);
    return false;
  }
  require(taken.step >= 0, "no step is negative");
  for (const auto& [path, file] : taken.files) {
    require(!path.empty() && path.front() != '/' && path.find('\0') == std::string::npos, "a file lies in the folder");
    require(("/" + path + "/").find("/../") == std::string::npos, "no file leaves the folder");
  }
  const CheckpointManifest second = parse_checkpoint_manifest(manifest_text(taken), "fuzz");
  bool same = second.step == taken.step && second.files.size() == taken.files.size() &&
              second.plugins.size() == taken.plugins.size();
  for (const auto& [path, file] : taken.files)
    same = same && second.files.contains(path) && second.files.at(path).bytes == file.bytes &&
           second.files.at(path).sha256 == file.sha256;
  for (const auto& [id, plugin] : taken.plugins)
    same = same && second.plugins.contains(id) && second.plugins.at(id).version == plugin.version &&
           second.plugins.at(id).sha256 == plugin.sha256;
  require(same, "what is written again is the same");
  require(manifest_text(second) == manifest_text(taken), "there is one way to write it");
  return true;
}

bool try_run_state(std::string_view text) {
  // The step that it says, so that other lies are reached.
  int64_t step = 0;
  if (const size_t at = text.find("\"applied\":"); at != std::string_view::npos)
    step = std::strtoll(std::string(text.substr(at + 10, 24)).c_str(), nullptr, 10);
  RunState taken;
  try {
    taken = parse_state(text, "fuzz", step);
  } catch (const Failure& f) {
    require(f.diagnostic.exit == kExitData && !f.diagnostic.effect.empty(), "a refusal is an exit of its own");
    check_refusal(f.diagnostic.message, f.diagnostic.at);
    return false;
  }
  require(taken.applied == step && taken.attempted >= step && taken.cursor >= taken.attempted, "counts agree");
  for (const int64_t n : {taken.applied, taken.attempted, taken.samples, taken.tokens, taken.cursor})
    require(n >= 0 && n <= int64_t{1} << 53, "counts are counts");
  require(std::isfinite(taken.scale) && taken.scale > 0, "the scale scales");
  const std::string again = state_text(taken);
  require(state_text(parse_state(again, "fuzz", step)) == again, "what is written again is the same");
  return true;
}

bool try_blobs(std::string_view text) {
  PluginBlobs taken;
  try {
    taken = parse_blobs(text, "fuzz");
  } catch (const Failure& f) {
    require(f.diagnostic.exit == kExitData && !f.diagnostic.effect.empty(), "a refusal is an exit of its own");
    check_refusal(f.diagnostic.message, f.diagnostic.at);
    return false;
  }
  const std::string again = blobs_text("p.q", taken);
  const PluginBlobs second = parse_blobs(again, "fuzz");
  bool same = second.size() == taken.size();
  for (const auto& [name, blob] : taken)
    same =
        same && second.contains(name) && second.at(name).version == blob.version && second.at(name).text == blob.text;
  require(same, "what is written again is the same");
  return true;
}

bool try_manifest_body(std::string_view body) {
  return try_manifest(std::string(body) + ",\n \"sha256\": \"" + sha256_of(body.data(), body.size()) + "\"\n}\n");
}

}  // namespace mortise::fuzz
