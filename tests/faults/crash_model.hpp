// What a disk may hold after a machine has stopped, by the rules of POSIX and no others: no journal that keeps an
// order, no data before names.
//
//   data     of a file that was not synced since: each block old, zero or new, and any size between the old one and the
//   new one names    added, renamed, exchanged or removed in a folder that was not synced since: each change is there
//   or not, whichever came first;
//            a rename or an exchange is complete or absent
#pragma once
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "tests/faults/recorder.hpp"

namespace mortise::faults {

constexpr size_t kBlock = 256;

// The states after the first `events` events of a trace.
class Crash {
 public:
  Crash(const Trace& trace, size_t events);

  // One of them: which changes of names happened, and which of its contents each unsynced file has.
  struct Way {
    std::vector<bool> happened;
    std::vector<size_t> contents;
  };
  // How many ways there are to choose, SIZE_MAX if more than `limit`; different ways may lead to one tree.
  size_t ways(size_t limit) const;
  Way way(size_t number) const;                // of all
  Way any_way(std::mt19937_64& random) const;  // often with all or nothing of something
  uint64_t digest(const Way& way) const;       // of the tree that it leads to
  Tree tree(const Way& way) const;

 private:
  struct Text {
    std::string text;
    size_t hash = 0;
  };
  struct Unsynced {
    int node = 0;
    std::vector<Text> contents;  // the old one first, the new one last
  };
  using Entries = std::map<std::string, int>;
  using Changed = std::map<int, Entries>;  // folders that are not as folders_ has them
  Changed folders_after(const Way& way) const;
  const Entries& entries_of(int folder, const Changed& changed) const;
  const Text& text_of(int node, const Way& way) const;
  void add(const Changed& changed, const Way& way, int folder, uint64_t& hash) const;
  void add(const Changed& changed, const Way& way, int folder, const std::string& path, Tree& tree) const;

  std::vector<Node::Kind> kinds_;
  std::vector<Text> texts_;  // as they were synced
  std::vector<int> unsynced_of_;
  std::vector<Entries> folders_;
  std::vector<Event> pending_;  // changes of names
  std::vector<Unsynced> files_;
};

}  // namespace mortise::faults
