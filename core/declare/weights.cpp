#include "core/declare/weights.hpp"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cstring>

#include "core/base/dtype.hpp"
#include "core/base/text.hpp"

namespace mortise {
namespace {

constexpr size_t kMostNamed = 4;

std::string sizes_text(const std::vector<int64_t>& sizes) { return fmt::format("[{}]", fmt::join(sizes, ", ")); }

[[noreturn]] void refuse(const char* code, const std::string& at, const std::string& message,
                         const std::string& fix = "") {
  throw Failure(trouble(kExitData, code, message, at, fix));
}

// "a, b and 3 more"
std::string some_of(std::vector<std::string> names) {
  const size_t more = names.size() > kMostNamed ? names.size() - kMostNamed : 0;
  names.resize(names.size() - more);
  return escape_control(join(names, ", ")) + (more ? " and " + with_commas(static_cast<int64_t>(more)) + " more" : "");
}

bool matches_any(const std::vector<std::string>& globs, const std::string& name) {
  return std::ranges::any_of(globs, [&](const std::string& glob) { return glob_match(glob, name); });
}

// What all begin with, as a glob.
std::string common_glob(const std::vector<std::string>& names) {
  std::string common = names[0];
  for (const std::string& name : names)
    common.resize(static_cast<size_t>(std::ranges::mismatch(common, name).in1 - common.begin()));
  return names.size() == 1 ? common : common + "*";
}

}  // namespace

Weights::Weights(const std::string& path, const Declaration& d, const PluginInfo& model,
                 const std::vector<std::string>& may_lack)
    : path_(path), model_(model.schema.id), files_(path), of_(d.params.size()) {
  std::map<std::string, const TensorView*> left;
  for (const auto& [name, t] : files_.tensors())
    if (const auto [other, fresh] = left.emplace(model.huggingface.declared_name(name), &t); !fresh)
      refuse("two_tensors", path,
             "`" + escape_control(name) + "` and `" + escape_control(other->second->name) + "` are both `" +
                 other->first + "` of " + model_);

  std::vector<std::string> missing, names;
  for (const auto& p : d.params) {
    std::vector<std::string> own = {p.name};
    own.insert(own.end(), p.other_names.begin(), p.other_names.end());
    for (const std::string& name : own)
      if (const auto found = left.extract(name)) take(p, name, *found.mapped(), may_lack);
    names.push_back(p.name);
    const bool may = p.has_tag("new") || model.huggingface.may_lack(p.name) || matches_any(may_lack, p.name);
    if (!of_[p.index]) (may ? anew_ : missing).push_back(p.name);
  }
  if (!missing.empty())
    refuse("missing_tensors", path + ": no " + some_of(missing),
           "the weights lack " + with_commas(static_cast<int64_t>(missing.size())) + " of " +
               with_commas(static_cast<int64_t>(names.size())) + " tensors that " + model_ + " needs",
           "is the file of another model? or let them start anew: [model] new = [\"" + common_glob(missing) + "\"]");
  for (const std::string& glob : may_lack)
    if (std::ranges::none_of(names, [&](const std::string& name) { return glob_match(glob, name); }))
      refuse("matches_nothing", "", "`" + glob + "` of model.new matches no parameter of " + model_,
             "all names: mortise plan --weights");

  std::vector<std::string> unused;
  for (const auto& [name, t] : left)
    if (!model.huggingface.ignores_tensor(name)) unused.push_back(t->name);
  summary_ =
      escape_control(path) + ": " + with_commas(static_cast<int64_t>(names.size() - anew_.size())) + " tensors taken";
  if (!anew_.empty()) summary_ += "; new " + some_of(anew_) + " (from run.seed)";
  if (!unused.empty()) summary_ += "; unused " + some_of(unused);
  for (const TensorView* t : of_) bytes_ += t ? t->bytes : 0;
}

void Weights::take(const mortise_param& p, const std::string& by, const TensorView& t,
                   const std::vector<std::string>& may_lack) {
  const TensorView*& of = of_[p.index];
  const std::string name = "`" + escape_control(t.name) + "`";
  if (t.sizes != p.sizes) {
    if (matches_any(may_lack, p.name)) return;
    refuse("wrong_tensor", path_,
           fmt::format("{} is {} in the weights, {} in {}", name, sizes_text(t.sizes), sizes_text(p.sizes), model_),
           "is the file of another model? or let it start anew: [model] new = [\"" +
               p.name.substr(0, p.name.rfind('.')) + ".*\"]");
  }
  if (!weight_type(t.dtype))
    refuse("wrong_tensor", path_, name + " is of " + t.dtype + "; weights are " + either(weight_types()));
  if (of && (of->dtype != t.dtype || std::memcmp(of->data, t.data, t.bytes) != 0))
    refuse(
        "wrong_tensor", path_,
        name + " differs from `" + escape_control(of->name) + "`; in " + model_ + " `" + by + "` is `" + p.name + "`");
  of = &t;
}

}  // namespace mortise
