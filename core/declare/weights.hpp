// A run's first weights, from files to parameters. How names in files differ from the declared ones is data of the
// model's plugin.toml.
#pragma once
#include <string>
#include <vector>

#include "core/model/declaration.hpp"
#include "core/plan/plan.hpp"
#include "formats/huggingface/folder.hpp"

namespace mortise {

class Weights {
 public:
  // A file or a folder; nothing is copied yet. `may_lack`: globs of parameters that start anew where the weights have
  // none, or one of another shape; where they have none, so do those tagged `new`. Throws Failure (exit 65) or
  // FormatError: tensors missing, of another shape or no numbers, two of one name, a glob that matches nothing.
  Weights(const std::string& path, const Declaration& d, const PluginInfo& model,
          const std::vector<std::string>& may_lack);
  // The bytes that a parameter starts from, as long as this lives; NULL: it starts anew.
  const TensorView* of(const mortise_param& p) const { return of_[p.index]; }
  const std::vector<std::string>& anew() const { return anew_; }  // names of those that do
  uint64_t bytes() const { return bytes_; }                       // of all that are taken
  // "reviews: 199 tensors taken; new classifier.weight; unused cls.bias"
  const std::string& summary() const { return summary_; }

 private:
  void take(const mortise_param& p, const std::string& by, const TensorView& t,
            const std::vector<std::string>& may_lack);
  const std::string path_, model_;
  huggingface::WeightFiles files_;
  std::vector<const TensorView*> of_;  // by index of the parameter; NULL: it starts anew
  std::vector<std::string> anew_;
  std::string summary_;
  uint64_t bytes_ = 0;
};

}  // namespace mortise
