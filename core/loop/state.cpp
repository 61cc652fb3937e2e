#include "core/loop/state.hpp"

#include <cmath>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "core/host/handle.hpp"
#include "core/loop/build.hpp"
#include "formats/file.hpp"

namespace mortise {
namespace {

using Json = nlohmann::json;

[[noreturn]] void refuse(const std::string& at, const std::string& message) {
  Diagnostic d = trouble(kExitData, "other_state", message, at);
  d.effect = "nothing was restored";
  throw Failure(d);
}

Json number_or_null(double v) { return std::isfinite(v) ? Json(v) : Json(); }
double number_in(const Json& j, const char* key) { return j[key].is_null() ? NAN : j[key].get<double>(); }

std::string rank_file(const Run::Parts& p) {
  int32_t rank = 0, ranks = 1;
  p.comm.call(&mortise_comm::world, "world", &rank, &ranks);
  return "optimizer/rank-" + std::to_string(rank);
}

Json json_of(const Value& v) { return Json::parse(v.text()); }  // of numbers, texts and lists, TOML is JSON

// What plugin.toml says of Hugging Face's config.json: [config_json], and the keys that have a name there; one without
// a value has that of the fact of its name. "" if it says nothing.
std::string config_json(const Member& model, const Declaration& d) {
  const auto fixed = model.info->facts.find("config_json");
  if (fixed == model.info->facts.end() || !model.table) return "";
  Json all;
  if (const Value* architectures = fact_of(*model.info, "huggingface", "architectures"))
    all["architectures"] = json_of(*architectures);
  for (const auto& [name, value] : fixed->second) all[name] = json_of(value);
  for (const auto& [key, schema] : model.info->schema.config.keys)
    for (const std::string& name : schema.config_json) {
      const Value& value = model.table->values.at(key);
      if (value.is_set()) all[name] = json_of(value);
      else if (const auto fact = d.facts.find(key); fact != d.facts.end()) all[name] = fact->second;
    }
  return all.dump(2) + "\n";
}

std::string state_text(const Run::Parts& p) {
  const mortise_clock& c = p.services.clock;
  const Json j = {{"attempted", c.attempted},
                  {"applied", c.applied},
                  {"samples", c.samples},
                  {"tokens", c.tokens},
                  {"cursor", p.step->cursor()},
                  {"seed", p.host.seed()},
                  {"scale", p.ledger->scale.item<double>()},
                  {"loss_first", number_or_null(p.progress.first_loss)},
                  {"best", number_or_null(p.progress.best)},
                  {"best_step", p.progress.best_step}};
  return j.dump(1) + "\n";
}

void restore_state(Run::Parts& p, const std::string& path) {
  std::ifstream in(path);
  const Json j = Json::parse(in, nullptr, /*allow_exceptions=*/false);
  mortise_clock& c = p.services.clock;
  try {
    if (j.at("seed").get<uint64_t>() != p.host.seed()) refuse(path, "it is of another seed");
    c.attempted = j.at("attempted");
    c.applied = j.at("applied");
    c.samples = j.at("samples");
    c.tokens = j.at("tokens");
    p.step->set_cursor(j.at("cursor"));
    p.ledger->restore(c.applied, j.at("scale"));
    p.progress = {number_in(j, "loss_first"), number_in(j, "best"), j.at("best_step")};
  } catch (const Json::exception& e) {
    refuse(path, std::string("it is not the state of a run: ") + e.what());
  }
}

// Every tensor that `wanted` names must be in the file, and nothing else.
void restore_tensors(const Format& format, const std::string& path, const std::vector<StoredTensor>& wanted) {
  const MappedFile file(path);
  std::map<std::string, StoredTensor> found;
  for (StoredTensor& t : read_tensors(format, file.bytes())) found.emplace(t.name, t);
  for (const StoredTensor& w : wanted) {
    const auto stored = found.find(w.name);
    if (stored == found.end()) refuse(path, "it has no `" + w.name + "`, which this run needs");
    const at::Tensor& t = stored->second.tensor;
    if (t.sizes() != w.tensor.sizes() || t.scalar_type() != w.tensor.scalar_type())
      refuse(path, "`" + w.name + "` has another shape or dtype than in this run");
    w.tensor.copy_(t);
    found.erase(stored);
  }
  if (!found.empty()) refuse(path, "it has `" + found.begin()->first + "`, which this run does not know");
}

std::string blob_file(const std::string& id) { return "plugins/" + id + ".json"; }

std::map<std::string, std::string> blobs(const Run::Parts& p) {
  std::map<std::string, Json> by_plugin;
  for (const KeptBlob& kept : p.services.blobs) {
    std::string text;
    const mortise_sink sink = {
        sizeof sink, 0, &text, [](void* user, const void* data, uint64_t bytes) noexcept -> mortise_status {
          return guarded([&] {
            static_cast<std::string*>(user)->append(text_of({static_cast<const char*>(data), size_t{bytes}}));
          });
        }};
    const Instance& by = p.plugins.of(*kept.host);
    clear_error();
    if (const mortise_status s = call_plugin({by.id(), "save", {}}, kept.blob->save, by.self, &sink))
      throw_from(by, s, "save");
    by_plugin[by.id()][std::string(view(kept.blob->name))] = {{"version", kept.blob->version}, {"text", text}};
  }
  std::map<std::string, std::string> files;
  for (const auto& [id, j] : by_plugin)
    files[blob_file(id)] = j.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
  return files;
}

void restore_blobs(const Run::Parts& p, const std::string& folder) {
  for (const KeptBlob& kept : p.services.blobs) {
    const Instance& by = p.plugins.of(*kept.host);
    std::ifstream in(folder + "/" + blob_file(by.id()));
    const Json all = Json::parse(in, nullptr, /*allow_exceptions=*/false);
    const Json j = all.is_object() ? all.value(std::string(view(kept.blob->name)), Json()) : Json();
    if (!j.is_object()) continue;  // it was not there when this was saved
    const std::string text = j.value("text", "");
    clear_error();
    if (const mortise_status s =
            call_plugin({by.id(), "load", {}}, kept.blob->load, by.self, j.value("version", 0u), str(text)))
      throw_from(by, s, "load");
  }
}

}  // namespace

int64_t Snapshot::bytes() const {
  int64_t all = 0;
  for (const auto& [file, list] : tensors)
    for (const auto& t : list) all += static_cast<int64_t>(t.tensor.nbytes());
  for (const auto& [file, text] : texts) all += static_cast<int64_t>(text.size());
  return all;
}

Snapshot capture(Run::Parts& p) {
  Snapshot s;
  for (const auto& state : p.host.parameters().all())
    s.tensors["model/model"].push_back({state.declared->name, state.master.cpu().contiguous(), {}, {}});
  auto& states = s.tensors[rank_file(p)];
  for (auto& o : p.optimizers)
    for (const StoredTensor& t : o.states()) {
      states.push_back({t.name, t.tensor.cpu().contiguous(), {}, t.tensor.sizes().vec()});
      states.back().offset.assign(states.back().whole.size(), 0);
    }
  s.texts = blobs(p);
  s.texts["state.json"] = state_text(p);
  if (const std::string config = config_json(*p.model.by->member, p.host.declaration()); !config.empty())
    s.texts["model/config.json"] = config;
  return s;
}

void copy_to_host(Snapshot& s, const Snapshot& earlier) {
  for (auto& [file, list] : s.tensors) {
    const auto found = earlier.tensors.find(file);
    for (size_t i = 0; i < list.size(); ++i) {
      at::Tensor& t = list[i].tensor;
      t = found == earlier.tensors.end() ? t.clone() : found->second[i].tensor.copy_(t);
    }
  }
}

CheckpointManifest store(const Snapshot& s, const Format& format, const std::string& root, int64_t step,
                         const std::map<std::string, SavedPlugin>& plugins) {
  CheckpointWriter writer(root, step);
  const std::string extension(view(format.object->extension));
  for (const auto& [file, list] : s.tensors)
    writer.file(file + extension, [&](const Sink& sink) { write_tensors(format, list, sink); });
  for (const auto& [file, text] : s.texts) writer.file(file, text);
  return writer.commit(plugins);
}

void restore(Run::Parts& p, const std::string& folder) {
  const std::string extension(view(p.format.object->extension));
  std::vector<StoredTensor> masters, states;
  for (const auto& state : p.host.parameters().all()) masters.push_back({state.declared->name, state.master, {}, {}});
  for (auto& o : p.optimizers)
    for (const StoredTensor& t : o.states()) states.push_back(t);
  restore_tensors(p.format, folder + "/model/model" + extension, masters);
  restore_tensors(p.format, folder + "/" + rank_file(p) + extension, states);
  for (auto& state : p.host.parameters().all())
    if (!state.value.is_same(state.master)) state.value.copy_(state.master);
  restore_state(p, folder + "/state.json");
  restore_blobs(p, folder);
}

}  // namespace mortise
