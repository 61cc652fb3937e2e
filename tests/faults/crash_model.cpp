#include "tests/faults/crash_model.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <set>
#include <utility>

namespace mortise::faults {
namespace {

bool changes_names(const Event& e) {
  return e.kind == Event::kAdd || e.kind == Event::kRename || e.kind == Event::kExchange || e.kind == Event::kRemove;
}
bool changes_data(const Event& e) { return e.kind == Event::kWrite || e.kind == Event::kTruncate; }

// All that a file may hold while nobody knows which of its blocks arrived.
std::vector<std::string> contents_between(const std::string& before, const std::string& after) {
  const size_t longest = std::max(before.size(), after.size());
  std::string old = before, fresh = after;
  old.resize(longest);
  fresh.resize(longest);
  std::set<size_t> sizes = {before.size(), after.size()};
  for (size_t s = 0; s < longest; s += kBlock)
    if (s > std::min(before.size(), after.size())) sizes.insert(s);
  std::set<std::string> all;
  for (const size_t size : sizes) {
    const size_t blocks = (size + kBlock - 1) / kBlock;
    for (size_t mask = 0; mask < size_t{1} << blocks; ++mask) {
      std::string content = old;
      for (size_t b = 0; b < blocks; ++b)
        if (mask >> b & 1) content.replace(b * kBlock, kBlock, fresh, b * kBlock, kBlock);
      all.insert(content.substr(0, size));
    }
  }
  all.erase(before);
  all.erase(after);
  std::vector<std::string> ordered = {before};
  ordered.insert(ordered.end(), all.begin(), all.end());
  ordered.push_back(after);
  return ordered;
}

}  // namespace

Crash::Crash(const Trace& trace, size_t events) : unsynced_of_(trace.nodes.size(), -1) {
  std::vector<size_t> synced(trace.nodes.size(), 0);  // of each node: the events before the last sync
  for (size_t i = 0; i < events; ++i)
    if (trace.events[i].kind == Event::kSync) synced[static_cast<size_t>(trace.events[i].node)] = i;
  const auto is_synced = [&](int node, size_t event) { return event < synced[static_cast<size_t>(node)]; };
  Nodes durable = trace.nodes, now = durable;
  std::set<int> unsynced;
  for (size_t i = 0; i < events; ++i) {
    const Event& e = trace.events[i];
    replay(e, now);
    if (changes_names(e)) {
      if (is_synced(e.folder, i) && (e.to_folder < 0 || is_synced(e.to_folder, i))) replay(e, durable);
      else pending_.push_back(e);
    } else if (changes_data(e)) {
      if (is_synced(e.node, i)) replay(e, durable);
      else unsynced.insert(e.node);
    }
  }
  const auto hashed = [](const std::string& text) { return Text{text, std::hash<std::string>()(text)}; };
  for (const Node& node : durable) {
    kinds_.push_back(node.kind);
    texts_.push_back(hashed(node.content));
    folders_.push_back(node.entries);
  }
  for (const int node : unsynced) {
    unsynced_of_[static_cast<size_t>(node)] = static_cast<int>(files_.size());
    files_.push_back({node, {}});
    for (const std::string& content :
         contents_between(durable[static_cast<size_t>(node)].content, now[static_cast<size_t>(node)].content))
      files_.back().contents.push_back(hashed(content));
  }
}

size_t Crash::ways(size_t limit) const {
  size_t all = 1;
  for (size_t i = 0; i < pending_.size() && all <= limit; ++i) all *= 2;
  for (size_t i = 0; i < files_.size() && all <= limit; ++i) all *= files_[i].contents.size();
  return all <= limit ? all : SIZE_MAX;
}

Crash::Way Crash::way(size_t number) const {
  Way way;
  for (size_t i = 0; i < pending_.size(); ++i, number /= 2) way.happened.push_back(number % 2 != 0);
  for (const Unsynced& file : files_) {
    way.contents.push_back(number % file.contents.size());
    number /= file.contents.size();
  }
  return way;
}

Crash::Way Crash::any_way(std::mt19937_64& random) const {
  const double likely[] = {0.6, 0.9, 0.98};
  std::bernoulli_distribution happens(likely[random() % std::size(likely)]);
  Way way;
  for (size_t i = 0; i < pending_.size(); ++i) way.happened.push_back(happens(random));
  for (const Unsynced& file : files_) {
    const size_t n = file.contents.size(), draw = random() % 4;
    way.contents.push_back(draw == 0 ? 0 : draw == 1 ? n - 1 : random() % n);
  }
  return way;
}

Crash::Changed Crash::folders_after(const Way& way) const {
  Changed changed;
  for (size_t i = 0; i < pending_.size(); ++i)
    if (way.happened[i])
      replay_names(pending_[i], [&](int folder) -> auto& {
        return changed.try_emplace(folder, folders_[static_cast<size_t>(folder)]).first->second;
      });
  return changed;
}

const Crash::Entries& Crash::entries_of(int folder, const Changed& changed) const {
  const auto found = changed.find(folder);
  return found == changed.end() ? folders_[static_cast<size_t>(folder)] : found->second;
}

const Crash::Text& Crash::text_of(int node, const Way& way) const {
  const int unsynced = unsynced_of_[static_cast<size_t>(node)];
  if (unsynced < 0) return texts_[static_cast<size_t>(node)];
  return files_[static_cast<size_t>(unsynced)].contents[way.contents[static_cast<size_t>(unsynced)]];
}

void Crash::add(const Changed& changed, const Way& way, int folder, uint64_t& hash) const {
  const auto mix = [&](size_t n) { hash = (hash ^ n) * 0x9e3779b97f4a7c15u + (hash >> 29); };
  const Entries& entries = entries_of(folder, changed);
  mix(entries.size());
  for (const auto& [name, node] : entries) {
    mix(std::hash<std::string>()(name));
    mix(kinds_[static_cast<size_t>(node)]);
    if (kinds_[static_cast<size_t>(node)] == Node::kFolder) add(changed, way, node, hash);
    else mix(text_of(node, way).hash);
  }
}

void Crash::add(const Changed& changed, const Way& way, int folder, const std::string& path, Tree& tree) const {
  for (const auto& [name, node] : entries_of(folder, changed)) {
    const std::string here = path.empty() ? name : path + "/" + name;
    const Node::Kind kind = kinds_[static_cast<size_t>(node)];
    tree[here] = {kind, kind == Node::kFolder ? "" : text_of(node, way).text};
    if (kind == Node::kFolder) add(changed, way, node, here, tree);
  }
}

uint64_t Crash::digest(const Way& way) const {
  uint64_t hash = 0;
  add(folders_after(way), way, 0, hash);
  return hash;
}

Tree Crash::tree(const Way& way) const {
  Tree tree;
  add(folders_after(way), way, 0, "", tree);
  return tree;
}

}  // namespace mortise::faults
