#include "model.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "mortise/cpp/ops.hpp"

namespace sample {
using namespace mortise;
namespace {

void put(const Batch& batch, const char* name, std::span<const int64_t> elements) {
  const Tensor here = empty(MORTISE_I64, {1, static_cast<int64_t>(elements.size())}, true);
  std::copy(elements.begin(), elements.end(), Info(here).as<int64_t>());
  api.tensor->written(api.host, here.get());
  Tensor there;
  check(api.batch->to_device(api.host, here.get(), there.put()));
  check(api.batch->set(api.host, batch.get(), str(name), there.get()));
}

// Of the last of `ids`, the first of which stands at `position`.
std::vector<float> last_logits(std::span<const int64_t> ids, size_t position) {
  std::vector<int64_t> positions(ids.size());
  std::iota(positions.begin(), positions.end(), static_cast<int64_t>(position));
  const Batch batch = Batch::create(nullptr);
  put(batch, "input_ids", ids);
  put(batch, "positions", positions);

  mortise_value results[2] = {};
  check(api.model->forward(api.host, batch.get(), MORTISE_SAMPLE, MORTISE_WANT_LOGITS, results, 2));
  const Tensor loss = take(results[0]), logits_1TV = take(results[1]);
  if (!logits_1TV || Info(logits_1TV).rank != 3)
    throw Error(MORTISE_E_UNSUPPORTED, "sample.text needs logits [1, T, vocab], and this model gives none");

  const Tensor last_11V =
      ops::contiguous(ops::to(ops::narrow(logits_1TV, 1, Info(logits_1TV).size(1) - 1, 1), MORTISE_F32));
  std::vector<float> logits(static_cast<size_t>(Info(last_11V).numel));
  check(api.tensor->read(api.host, last_11V.get(), logits.data(), logits.size() * sizeof(float)));
  int64_t known = 0;
  check(api.tokenizer->size(api.host, &known));
  logits.resize(std::min(logits.size(), static_cast<size_t>(known)));  // a padded vocabulary has rows without a token
  return logits;
}

// Up to the rounding of sums in another order, which 16 bits make coarse: far less than a wrong attention changes.
bool agree(std::span<const float> a, std::span<const float> b, bool is_narrow) {
  float least = INFINITY, most = -INFINITY, apart = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isfinite(b[i])) least = std::min(least, b[i]), most = std::max(most, b[i]);
    if (a[i] != b[i] && !std::isnan(b[i])) apart = std::max(apart, std::isnan(a[i]) ? INFINITY : std::abs(a[i] - b[i]));
  }
  return apart == 0 || apart <= (is_narrow ? 0.1F : 1e-4F) * (most - least);
}

}  // namespace

std::vector<float> Model::next_logits(std::span<const int64_t> ids, size_t window) {
  const std::span<const int64_t> seen = ids.last(std::min(ids.size(), window));
  if (cached_ && seen.size() == ids.size()) {
    if (cache_.tokens() == 0) return first(ids);
    if (cache_.tokens() + 1 == static_cast<int64_t>(ids.size())) return behind_kept(ids);
  }
  cache_.clear();  // every token of a window that moves on has another position each time
  return last_logits(seen, 0);
}

// The whole text, whose keys and values are kept.
std::vector<float> Model::first(std::span<const int64_t> ids) {
  cache_.begin(static_cast<int64_t>(ids.size()));
  std::vector<float> logits = last_logits(ids, 0);
  if (!cache_.end()) give_up(cache_.why());
  return logits;
}

std::vector<float> Model::behind_kept(std::span<const int64_t> ids) {
  try {
    cache_.begin(1);
    std::vector<float> alone = last_logits(ids.last(1), ids.size() - 1);
    if (cache_.end()) return is_compared_ ? alone : compared(std::move(alone), ids);
    give_up(cache_.why());
  } catch (const HostError&) {  // what else is wrong, the whole text has too
    give_up(cache_.why().empty() ? "the model fails with a token alone" : cache_.why());
  }
  return last_logits(ids, 0);
}

// Once a text the whole is computed as well: a model that mixes positions elsewhere than in `attention` gives itself
// away.
std::vector<float> Model::compared(std::vector<float> alone, std::span<const int64_t> ids) {
  is_compared_ = true;
  std::vector<float> whole = last_logits(ids, 0);
  if (!agree(alone, whole, cache_.is_narrow())) give_up("a token alone has other logits than in the whole text");
  return whole;
}

void Model::give_up(const std::string& why) {
  cached_ = false;
  cache_.clear();
  log_line(MORTISE_LOG_WARNING,
           "each token computes the whole text again: " + why + "; with [sample.text] cache = false nobody says so");
}

}  // namespace sample
