#include "tests/faults/recorder.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <utility>

namespace fs = std::filesystem;

namespace mortise::faults {

struct Recorder::State {
  std::string folder;  // ends with no slash
  Fault fault;
  Nodes live;
  Trace trace;
  std::map<int, int> open;  // descriptor -> node
  int calls = 0;
  bool asking = false;  // what `fault` itself does is not recorded
};

namespace {

Recorder::State* recording = nullptr;

bool is_active() { return recording && !recording->asking; }

// As the calls name a file: from the root of the file system.
std::string absolute(int at, const char* path) {
  if (*path == '/') return path;
  const std::string link = at == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/" + std::to_string(at);
  char buffer[4096];
  const ssize_t n = ::readlink(link.c_str(), buffer, sizeof buffer);
  return std::string(buffer, n > 0 ? static_cast<size_t>(n) : 0) + "/" + path;
}

struct Place {
  int folder = -1;
  std::string name, path;
  int node = -1;                                          // what is there
  explicit operator bool() const { return folder >= 0; }  // within what is recorded
};

Place place_of(int at, const char* given) {
  Place place;
  if (!is_active()) return place;
  std::string path = fs::path(absolute(at, given)).lexically_normal().string();  // "." is the folder itself
  if (path.ends_with("/")) path.pop_back();
  const std::string inside = recording->folder + "/";
  if (path == recording->folder) return {.folder = 0, .name = "", .path = "", .node = 0};
  if (!path.starts_with(inside)) return place;
  int folder = 0;
  const fs::path rest = path.substr(inside.size());
  for (auto part = rest.begin(); part != rest.end(); ++part) {
    if (part->empty()) continue;
    const auto& entries = recording->live[static_cast<size_t>(folder)].entries;
    const auto found = entries.find(part->string());
    if (std::next(part) == rest.end()) {
      place = {folder, part->string(), rest.string(), found == entries.end() ? -1 : found->second};
      return place;
    }
    if (found == entries.end()) return place;
    folder = found->second;
  }
  return place;
}

bool fails(Call call, const std::string& path) {
  if (!is_active()) return false;
  ++recording->calls;
  if (!recording->fault) return false;
  recording->asking = true;
  const int error = recording->fault(call, path);
  recording->asking = false;
  errno = error;
  return error != 0;
}

void record(Event e) {
  replay(e, recording->live);
  recording->trace.events.push_back(std::move(e));
}

int new_node(Node::Kind kind, const std::string& content = "") {
  recording->live.push_back({kind, content, {}});
  recording->trace.nodes.push_back({kind, content, {}});
  return static_cast<int>(recording->live.size()) - 1;
}

std::string path_of_node(const Nodes& nodes, int wanted, int at = 0, const std::string& path = "") {
  if (at == wanted) return path;
  for (const auto& [name, node] : nodes[static_cast<size_t>(at)].entries)
    if (const std::string found = path_of_node(nodes, wanted, node, path + "/" + name); !found.empty()) return found;
  return "";
}

int opened_node(int fd) {
  if (!is_active()) return -1;
  const auto found = recording->open.find(fd);
  return found == recording->open.end() ? -1 : found->second;
}

void scan(const std::string& folder, Nodes& nodes, int into) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    Node node;
    if (entry.is_symlink()) {
      node = {Node::kLink, fs::read_symlink(entry.path()).string(), {}};
    } else if (entry.is_directory()) {
      node.kind = Node::kFolder;
    } else {
      std::ifstream in(entry.path(), std::ios::binary);
      node.content.assign(std::istreambuf_iterator<char>(in), {});
    }
    const bool deeper = node.kind == Node::kFolder;
    nodes.push_back(std::move(node));
    const int number = static_cast<int>(nodes.size()) - 1;
    nodes[static_cast<size_t>(into)].entries[entry.path().filename().string()] = number;
    if (deeper) scan(entry.path().string(), nodes, number);
  }
}

void flatten(const Nodes& nodes, int at, const std::string& path, Tree& tree) {
  for (const auto& [name, number] : nodes[static_cast<size_t>(at)].entries) {
    const Node& node = nodes[static_cast<size_t>(number)];
    const std::string here = path.empty() ? name : path + "/" + name;
    tree[here] = {node.kind, node.content};
    if (node.kind == Node::kFolder) flatten(nodes, number, here, tree);
  }
}

}  // namespace

void replay(const Event& e, Nodes& nodes) {
  replay_names(e, [&](int folder) -> auto& { return nodes[static_cast<size_t>(folder)].entries; });
  if (e.kind != Event::kWrite && e.kind != Event::kTruncate) return;
  std::string& content = nodes[static_cast<size_t>(e.node)].content;
  if (e.kind == Event::kTruncate) {
    content.resize(e.offset);
  } else {
    content.resize(std::max(content.size(), e.offset + e.data.size()));
    content.replace(e.offset, e.data.size(), e.data);
  }
}

Tree tree_of(const Nodes& nodes) {
  Tree tree;
  flatten(nodes, 0, "", tree);
  return tree;
}

Tree tree_on_disk(const std::string& folder) {
  Nodes nodes = {{Node::kFolder, "", {}}};
  scan(folder, nodes, 0);
  return tree_of(nodes);
}

Recorder::Recorder(const std::string& folder, Fault fault) : state_(std::make_unique<State>()) {
  state_->folder = fs::canonical(folder).string();
  state_->fault = std::move(fault);
  state_->live = {{Node::kFolder, "", {}}};
  scan(state_->folder, state_->live, 0);
  state_->trace.nodes = state_->live;
  recording = state_.get();
}

Recorder::~Recorder() { recording = nullptr; }

void Recorder::set_fault(Fault fault) { state_->fault = std::move(fault); }
int Recorder::calls() const { return state_->calls; }

void Recorder::mark(Event::Kind kind, const std::string& name) {
  Event e{.kind = kind};
  e.name = name;
  state_->trace.events.push_back(std::move(e));
}

Trace Recorder::finish() {
  recording = nullptr;
  if (tree_of(state_->live) != tree_on_disk(state_->folder))
    throw std::logic_error("a call was made that was not recorded");
  return std::move(state_->trace);
}

extern "C" {

int recorded_openat(int at, const char* path, int flags, mode_t mode) {
  const Place place = place_of(at, path);
  const bool writes = (flags & O_ACCMODE) != O_RDONLY;
  if (place && writes && fails(place.node < 0 ? Call::kCreate : Call::kTruncate, place.path)) return -1;
  const int fd = static_cast<int>(::syscall(SYS_openat, at, path, flags, mode));
  if (fd >= 0 && is_active()) recording->open.erase(fd);  // closed by a call within the C library
  if (fd < 0 || !place) return fd;
  int node = place.node;
  if (node < 0) {
    node = new_node(Node::kFile);
    record({.kind = Event::kAdd, .folder = place.folder, .node = node, .name = place.name});
  } else if (flags & O_TRUNC) {
    record({.kind = Event::kTruncate, .node = node});
  }
  recording->open[fd] = node;
  return fd;
}

int recorded_close(int fd) {
  const int node = opened_node(fd);
  const bool fault =
      node >= 0 && recording->live[static_cast<size_t>(node)].kind == Node::kFile && fails(Call::kClose, "");
  const int error = errno;
  if (node >= 0) recording->open.erase(fd);
  const int result = static_cast<int>(::syscall(SYS_close, fd));
  if (!fault) return result;
  errno = error;
  return -1;
}

ssize_t recorded_writev(int fd, const struct iovec* parts, int n, off_t offset) {
  const int node = opened_node(fd);
  if (node >= 0 && fails(Call::kWrite, "")) return -1;
  const ssize_t written = offset < 0 ? ::syscall(SYS_writev, fd, parts, n)
                                     : ::syscall(SYS_pwritev, fd, parts, n, static_cast<long>(offset), 0L);
  if (written <= 0 || node < 0) return written;
  Event e{.kind = Event::kWrite, .node = node};
  for (int i = 0; i < n; ++i) e.data.append(static_cast<const char*>(parts[i].iov_base), parts[i].iov_len);
  e.data.resize(static_cast<size_t>(written));
  e.offset = static_cast<size_t>(offset < 0 ? ::lseek(fd, 0, SEEK_CUR) - written : offset);
  record(std::move(e));
  return written;
}

int recorded_fsync(int fd) {
  const int node = opened_node(fd);
  const std::string path = node > 0 ? path_of_node(recording->live, node).substr(1) : "";
  if (node >= 0 && fails(Call::kSync, path)) return -1;
  const int result = static_cast<int>(::syscall(SYS_fsync, fd));
  if (result != 0 || node < 0) return result;
  Event e{.kind = Event::kSync, .node = node};
  e.path = path;
  record(std::move(e));
  return 0;
}

int recorded_ftruncate(int fd, off_t size) {
  const int node = opened_node(fd);
  if (node >= 0 && fails(Call::kTruncate, "")) return -1;
  const int result = static_cast<int>(::syscall(SYS_ftruncate, fd, size));
  if (result != 0 || node < 0) return result;
  Event e{.kind = Event::kTruncate, .node = node};
  e.offset = static_cast<size_t>(size);
  record(std::move(e));
  return 0;
}

int recorded_rename(int at, const char* from, int at2, const char* to, unsigned flags) {
  const Place a = place_of(at, from), b = place_of(at2, to);
  const bool exchange = flags & RENAME_EXCHANGE;
  if (a && fails(exchange ? Call::kExchange : Call::kRename, a.path)) return -1;
  const int result = static_cast<int>(::syscall(SYS_renameat2, at, from, at2, to, flags));
  if (result != 0 || !a) return result;
  Event e{
      .kind = exchange ? Event::kExchange : Event::kRename, .folder = a.folder, .to_folder = b.folder, .node = a.node};
  e.name = a.name;
  e.to = b.name;
  e.other = b.node;
  record(std::move(e));
  return 0;
}

int recorded_mkdir(int at, const char* path, mode_t mode) {
  const Place place = place_of(at, path);
  if (place && fails(Call::kMkdir, place.path)) return -1;
  const int result = static_cast<int>(::syscall(SYS_mkdirat, at, path, mode));
  if (result != 0 || !place) return result;
  record({.kind = Event::kAdd, .folder = place.folder, .node = new_node(Node::kFolder), .name = place.name});
  return 0;
}

int recorded_unlink(int at, const char* path, int flags) {
  const Place place = place_of(at, path);
  if (place && fails(Call::kRemove, place.path)) return -1;
  const int result = static_cast<int>(::syscall(SYS_unlinkat, at, path, flags));
  if (result != 0 || !place) return result;
  record({.kind = Event::kRemove, .folder = place.folder, .node = place.node, .name = place.name});
  return 0;
}

int recorded_symlink(const char* target, int at, const char* path) {
  const Place place = place_of(at, path);
  if (place && fails(Call::kSymlink, place.path)) return -1;
  const int result = static_cast<int>(::syscall(SYS_symlinkat, target, at, path));
  if (result != 0 || !place) return result;
  record({.kind = Event::kAdd, .folder = place.folder, .node = new_node(Node::kLink, target), .name = place.name});
  return 0;
}

}  // extern "C"

}  // namespace mortise::faults
