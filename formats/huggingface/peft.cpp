#include "formats/huggingface/peft.hpp"

#include <algorithm>
#include <iterator>
#include <set>

namespace mortise::huggingface {
namespace {

// What a class of transformers is for, as PEFT calls it, by how its name ends, and the modules that PEFT then wants to
// be saved whole, whether they learned or not. Other classes have no such name.
struct Task {
  const char *ending, *name;
  std::vector<std::string> heads = {};
};
const Task kTasks[] = {{"ForCausalLM", "CAUSAL_LM"},
                       {"LMHeadModel", "CAUSAL_LM"},
                       {"ForSequenceClassification", "SEQ_CLS", {"classifier", "score"}},
                       {"ForTokenClassification", "TOKEN_CLS", {"classifier", "score"}},
                       {"ForQuestionAnswering", "QUESTION_ANS", {"qa_outputs"}},
                       {"ForConditionalGeneration", "SEQ_2_SEQ_LM"}};

[[noreturn]] void refuse(const std::string& why) { throw FormatError("no_adapter", "", why); }

// "h.0.attn.c_attn" of "h.0.attn.c_attn.weight"
std::string module_of(const std::string& parameter) {
  const size_t dot = parameter.rfind('.');
  if (dot == parameter.npos) refuse("`" + parameter + "` learned, which is no parameter of a part of the model");
  return parameter.substr(0, dot);
}

bool is_within(const std::string& name, const std::string& module) { return name.starts_with(module + "."); }

// The modules that are saved whole, none of them within another.
std::set<std::string> whole_modules(const std::vector<std::string>& learned) {
  std::set<std::string> all, outermost;
  for (const std::string& parameter : learned) all.insert(module_of(parameter));
  std::ranges::copy_if(all, std::inserter(outermost, outermost.end()), [&](const std::string& m) {
    return std::ranges::none_of(all, [&](const std::string& other) { return is_within(m, other); });
  });
  return outermost;
}

void must_have_one_kind(const Added& added) {
  if (added.products.empty()) refuse("the run added nothing to its model");
  if (added.settings.empty()) refuse("no plugin of the run says in plugin.toml, [peft], how PEFT calls what it added");
  if (added.settings.size() > 1) refuse("several plugins added something to the model; such a folder is of one");
}

bool is_adapted(const Added& added, const std::string& module) {
  return std::ranges::any_of(added.products, [&](const Product& p) { return is_within(p.into, module); });
}

// The name, and the heads among the modules that are saved whole. None where a head has an adapter itself.
Json task_of(const std::string& architecture, const Added& added, const std::vector<std::string>& parameters,
             std::set<std::string>& whole) {
  for (const Task& task : kTasks) {
    if (!architecture.ends_with(task.ending)) continue;
    for (const std::string& head : task.heads) {
      if (is_adapted(added, head)) return nullptr;
      if (std::ranges::any_of(parameters, [&](const std::string& p) { return is_within(p, head); })) whole.insert(head);
    }
    return task.name;
  }
  return nullptr;
}

}  // namespace

AdapterFolder adapter_folder(const Config& trained, const std::vector<std::string>& parameters,
                             const std::string& base) {
  const Added added = trained.added();
  must_have_one_kind(added);
  const std::string architecture = trained.merged().architecture();
  if (architecture.empty()) refuse("its model is of no architecture of transformers");

  if (!added.tied.empty())
    refuse("`" + added.tied[0] +
           "` learned, and stands in two places of the model: PEFT would bring it to one of them");
  if (!added.prefix) refuse("plugin.toml of its model does not say, [peft], what PEFT calls the parts of it");
  AdapterFolder folder;
  Json targets = Json::array(), saved = Json::array();
  std::set<std::string> whole = whole_modules(added.learned);
  const Json task = task_of(architecture, added, parameters, whole);
  const auto add = [&](const std::string& name) { folder.names[name] = "base_model.model." + *added.prefix + name; };
  for (const Product& p : added.products) {
    const std::string module = module_of(p.into);
    if (!is_within(p.left, module) || !is_within(p.right, module))
      refuse("`" + p.left + "` does not stand beside `" + p.into + "`");
    if (std::ranges::any_of(whole, [&](const std::string& m) { return m == module || is_within(module, m); }))
      refuse("of `" + module + "` both the adapter and what it is added to learned");
    targets.push_back(*added.prefix + module);
    add(p.left), add(p.right);
  }
  for (const std::string& module : whole) saved.push_back(*added.prefix + module);
  for (const std::string& parameter : parameters)
    if (std::ranges::any_of(whole, [&](const std::string& m) { return is_within(parameter, m); })) add(parameter);

  Json config = {{"base_model_name_or_path", base},
                 {"bias", "none"},
                 {"fan_in_fan_out", std::ranges::any_of(added.products, &Product::transposed)},
                 {"inference_mode", true},
                 {"modules_to_save", saved.empty() ? Json() : saved},
                 {"target_modules", targets},
                 {"task_type", task}};
  for (const auto& [key, value] : added.settings[0]) config[key] = parse_json(value);
  folder.config = config.dump(2) + "\n";
  return folder;
}

}  // namespace mortise::huggingface
