// parallel.zero: as parallel.ddp, but each rank updates its part of every parameter, and has that part alone of the
// optimizer's states (stage 1), of gradients and masters too (2), and of values, but while they are used (3).
#include <algorithm>
#include <map>
#include <vector>

#include "../buckets.hpp"
#include "../sent_masters.hpp"
#include "shards.hpp"

namespace {
using namespace mortise;

struct Part {
  int64_t offset = 0, length = 0;
};

class Zero : public Buckets {
 public:
  Zero()
      : Buckets(config::integer("bucket_mib"), config::text("unused")), stage_(config::integer("stage")),
        whole_below_(config::integer("whole_below")), shards_(config::integer("bucket_mib") << 20, stage_ == 3) {}

  // Asked of one parameter after another, of each of its replicas.
  void own(const mortise_param_info* info, int64_t cut, int32_t rank, int64_t* offset, int64_t* length) {
    auto [parts, is_new] = parts_.try_emplace(std::string(view(info->name)));
    if (is_new) parts->second = parts_of(*info, (kAlignment + cut - 1) / cut * cut);
    const Part& part = parts->second.at(static_cast<size_t>(rank));
    *offset = part.offset;
    *length = part.length;
  }

  void shard(const mortise_param_info* info, uint32_t* what, int64_t* room) {
    if (stage_ == 1 || info->numel < whole_below_ || (stage_ == 2 && !info->trainable)) return;
    if (info->replicas == 1 || info->numel == 0) return;  // nobody else has it, or this rank has nothing of it
    const std::vector<Part>& parts = parts_.at(std::string(view(info->name)));
    const auto all = std::ranges::find(parts, info->numel, &Part::length);
    const int32_t owner = all == parts.end() ? -1 : static_cast<int32_t>(all - parts.begin());
    *room = shards_.add(*info, parts[0].length, owner);
    *what = stage_ == 2 ? MORTISE_SHARDED : MORTISE_COMES_AND_GOES;
  }

  void transient(int64_t* bytes) { *bytes = shards_.transient(); }

  void layout(uint32_t) {
    shards_.layout();
    lay_out([this](const Param& p) { return !shards_.has(p.handle); });
  }

  // What is whole beside what is sharded goes in the end: it is little, and so comes in one order on every rank.
  void ready(mortise_param* param, int32_t micro, int32_t last) {
    if (shards_.has(param)) shards_.ready(param);
    else if (stage_ == 1) Buckets::ready(param, micro, last);
  }

  void finish(uint32_t reserved) {
    shards_.finish();
    Buckets::finish(reserved);
  }

  void need(mortise_param* param, int32_t segment, int32_t backward) { shards_.need(param, segment, backward != 0); }
  void written(mortise_param* param) { shards_.written(param); }

  void gather(uint32_t) {
    shards_.updated();
    const mortise_slice* slices = nullptr;
    uint32_t n = 0;
    check(api.params->slices(api.host, &slices, &n));
    for (uint32_t i = 0; i < n; ++i) {
      if (shards_.has(slices[i].param)) continue;
      const mortise_param_info& info = *slices[i].info;
      const std::vector<Part>& parts = parts_.at(std::string(view(info.name)));
      if (parts[0].length > 0 && parts.back().length == parts[0].length) {
        sent_.add_even(slices[i].param, parts[0].length, info.replica, info.replicas);
        continue;
      }
      for (size_t rank = 0; rank < parts.size(); ++rank)
        if (const Part& part = parts[rank]; part.length > 0)
          sent_.add(slices[i].param, part.offset, part.length, static_cast<int32_t>(rank));
    }
    sent_.send();
  }

 private:
  // As many elements each, the last ones fewer; of what is not worth it, or cannot be cut, all to the rank that has the
  // fewest so far, of those that have the same elements.
  std::vector<Part> parts_of(const mortise_param_info& info, int64_t together) {
    const int64_t numel = info.numel, ranks = info.replicas;
    std::vector<int64_t>& has = has_[std::string(view(info.axis))];
    has.resize(static_cast<size_t>(ranks));
    std::vector<Part> parts(has.size());
    if (numel < together * ranks) {
      const auto least = static_cast<size_t>(std::ranges::min_element(has) - has.begin());
      parts[least] = {0, numel};
    } else {
      const int64_t each = ((numel + ranks - 1) / ranks + together - 1) / together * together;
      for (int64_t rank = 0; rank < ranks; ++rank) {
        const int64_t begin = std::min(rank * each, numel);
        parts[static_cast<size_t>(rank)] = {begin, std::min(each, numel - begin)};
      }
    }
    for (size_t rank = 0; rank < parts.size(); ++rank) has[rank] += parts[rank].length;
    return parts;
  }

  int64_t stage_, whole_below_;
  zero::Shards shards_;
  std::map<std::string, std::vector<Part>> parts_;
  std::map<std::string, std::vector<int64_t>> has_;  // elements, by axis and rank
  SentMasters sent_;
};

const mortise_replicas kObject = {.struct_size = sizeof(mortise_replicas),
                                  .reserved = 0,
                                  .ready = thunk<&Zero::ready>,
                                  .finish = thunk<&Zero::finish>,
                                  .layout = thunk<&Zero::layout>,
                                  .own = thunk<&Zero::own>,
                                  .gather = thunk<&Zero::gather>,
                                  .shard = thunk<&Zero::shard>,
                                  .transient = thunk<&Zero::transient>,
                                  .need = thunk<&Zero::need>,
                                  .written = thunk<&Zero::written>};
}  // namespace

MORTISE_PLUGIN(Zero, mortise::provide("replicas", &kObject))
