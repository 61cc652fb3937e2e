// What a piece of code does to one folder, call by call, and in what of it a machine that stops may leave behind.
#pragma once
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace mortise::faults {

enum class Call { kCreate, kTruncate, kWrite, kSync, kClose, kRename, kExchange, kMkdir, kRemove, kSymlink };

// Files, folders and links by number; 0 is the folder itself. Numbers stay when names change.
struct Node {
  enum Kind { kFile, kFolder, kLink } kind = kFile;
  std::string content;                 // of a file; the target of a link
  std::map<std::string, int> entries;  // of a folder
};
using Nodes = std::vector<Node>;

struct Event {
  enum Kind {
    kAdd,       // `name` in `folder` is `node`, which is new
    kRename,    // `name` in `folder` becomes `to` in `to_folder`
    kExchange,  // they change places
    kRemove,    // `name` leaves `folder`
    kWrite,     // `data` at `offset` of `node`
    kTruncate,  // `node` has `offset` bytes
    kSync,      // `node`, a file or a folder
    kBegin,     // a save whose result is called `name` begins
    kDone,      // it returned
  } kind;
  int folder = -1, to_folder = -1, node = -1, other = -1;
  std::string name, to, data;
  size_t offset = 0;
  std::string path;  // of a node that is synced, from the folder
};

struct Trace {
  Nodes nodes;  // as they were on the disk before the first event, and the kinds of those that came later
  std::vector<Event> events;
};

// Records from its construction on; one at a time, one thread. `fault` is asked before each call and says with which
// errno it fails, or 0.
class Recorder {
 public:
  using Fault = std::function<int(Call, const std::string& path)>;
  explicit Recorder(const std::string& folder, Fault fault = {});
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;
  void begin(const std::string& name) { mark(Event::kBegin, name); }
  void done(const std::string& name) { mark(Event::kDone, name); }
  void set_fault(Fault fault);
  int calls() const;  // that were asked for, failed ones too
  // Ends it. Throws std::logic_error if what was recorded does not lead to what lies in the folder now: a call was
  // missed.
  Trace finish();

  struct State;

 private:
  void mark(Event::Kind kind, const std::string& name);
  std::unique_ptr<State> state_;
};

// What is in a folder, by path.
struct Item {
  Node::Kind kind = Node::kFile;
  std::string content;
  bool operator==(const Item&) const = default;
};
using Tree = std::map<std::string, Item>;
Tree tree_on_disk(const std::string& folder);
Tree tree_of(const Nodes& nodes);
// One event, as if nothing ever stopped. The names alone: `entries` gives those of a folder.
void replay(const Event& e, Nodes& nodes);
template <class Entries>
void replay_names(const Event& e, const Entries& entries) {
  if (e.kind == Event::kAdd) {
    entries(e.folder)[e.name] = e.node;
  } else if (e.kind == Event::kRename) {
    entries(e.folder).erase(e.name);
    entries(e.to_folder)[e.to] = e.node;
  } else if (e.kind == Event::kExchange) {
    entries(e.folder)[e.name] = e.other;
    entries(e.to_folder)[e.to] = e.node;
  } else if (e.kind == Event::kRemove) {
    entries(e.folder).erase(e.name);
  }
}

}  // namespace mortise::faults
