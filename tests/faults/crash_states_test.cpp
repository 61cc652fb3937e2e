// Saves whose every call is recorded, and a machine that stops after any of them: whatever the disk may hold then, the
// checkpoint that was saved is found, or while a save was under way that one or the new one, and never a part or a
// mixture.
//
// MORTISE_CRASH_SEED (1) and MORTISE_CRASH_TIMES (1): other samples, and more of them, where there are too many states
// to see all.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <set>
#include <unordered_map>
#include <utility>

#include "core/base/diagnostic.hpp"
#include "core/store/checkpoint.hpp"
#include "core/store/files.hpp"
#include "core/store/folder.hpp"
#include "tests/faults/crash_model.hpp"
#include "tests/faults/recorder.hpp"

namespace fs = std::filesystem;

namespace mortise::faults {
namespace {

uint64_t setting(const char* name) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : 1;
}

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// In memory where there is a folder for it: no disk is asked to sync anything.
fs::path scratch(const char* name) {
  const fs::path base = ::access("/dev/shm", W_OK) == 0 ? fs::path("/dev/shm") : fs::path(testing::TempDir());
  return base / ("mortise_" + std::string(name) + "." + std::to_string(::getpid()));
}

// A folder that becomes one tree after another, with as few calls as that takes.
class Stage {
 public:
  Stage() : path(scratch("stage")) {
    fs::remove_all(path);
    fs::create_directory(path);
  }
  ~Stage() { fs::remove_all(path); }
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  void show(Tree tree) {
    for (auto at = shown_.rbegin(); at != shown_.rend(); ++at) {
      const auto found = tree.find(at->first);
      if (found == tree.end() || found->second.kind != at->second.kind ||
          (at->second.kind == Node::kLink && found->second != at->second))
        fs::remove(path / at->first);
      else continue;
      removed_.insert(at->first);
    }
    for (const auto& [name, item] : tree) {
      const auto found = shown_.find(name);
      if (found != shown_.end() && !removed_.contains(name) && found->second == item) continue;
      if (item.kind == Node::kFolder) fs::create_directory(path / name);
      else if (item.kind == Node::kLink) fs::create_symlink(item.content, path / name);
      else write(path / name, item.content);
    }
    removed_.clear();
    shown_ = std::move(tree);
  }
  // The bytes of a file of the tree, which a loader has just read from the disk.
  const std::string& content(const std::string& file) const {
    return shown_.at(fs::path(file).lexically_relative(path)).content;
  }
  const fs::path path;

 private:
  static void write(const fs::path& file, const std::string& content) {
    const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0 || ::write(fd, content.data(), content.size()) != static_cast<ssize_t>(content.size()))
      throw std::runtime_error("no room for a test");
    ::close(fd);
  }
  Tree shown_;
  std::set<std::string> removed_;
};

enum class Loader { kReal, kSizesOnly };

// The loader without its hashes: a file of the right size is taken.
CheckpointManifest verify_sizes(const Found& found) {
  const CheckpointManifest m = parse_checkpoint_manifest(read_file(fs::path(found.path) / "MANIFEST.json"), found.path);
  for (const auto& [path, file] : m.files) {
    std::error_code error;
    if (fs::file_size(fs::path(found.path) / path, error) != file.bytes || error)
      throw Failure(mistake("checkpoint_damaged", path));
  }
  return m;
}

CheckpointManifest load(const Found& found, Loader loader) {
  return loader == Loader::kReal ? verify_checkpoint(found).manifest : verify_sizes(found);
}

// What a run of the states found.
struct Seen {
  size_t ways = 0, trees = 0, wrong = 0;
  std::string first_wrong;
};

constexpr size_t kPiece = 1000;  // of a file, written at once

class CrashStates : public testing::Test {
 protected:
  void SetUp() override {
    run = scratch("crash");
    fs::remove_all(run);
    fs::create_directory(run);
    root = (run / "checkpoints").string();
  }
  void TearDown() override {
    fs::remove_all(run);
    fs::remove_all(known_);
  }

  // Each save has a name and, by it, bytes of its own; "5 again" is of step 5.
  static const std::map<std::string, std::string>& files_of(const std::string& name) {
    static std::map<std::string, std::map<std::string, std::string>> known;
    auto& files = known[name];
    if (!files.empty()) return files;
    std::mt19937 random(static_cast<unsigned>(std::hash<std::string>()(name)));
    const auto bytes = [&](size_t n) {
      std::string all;
      while (all.size() < n) all += static_cast<char>('!' + random() % 90);
      return all;
    };
    return files = {{"model/config.json", bytes(90)},
                    {"model/model.safetensors", bytes(2300)},
                    {"optimizer/rank-0.safetensors", bytes(1900)},
                    {"optimizer/rank-1.safetensors", bytes(1300)},
                    {"state.json", "{\"name\": \"" + name + "\"}"}};
  }
  void save(const std::string& name) {
    CheckpointWriter writer(root, std::stoll(name));
    for (const auto& [path, bytes] : files_of(name))
      writer.file(path, [&bytes = bytes](const Sink& sink) {
        for (size_t at = 0; at < bytes.size(); at += kPiece)
          sink(bytes.data() + at, std::min(kPiece, bytes.size() - at));
      });
    names_[writer.commit({{"optimizer.x", {"0.1.0", std::string(64, '0')}}}).sha256] = name;
  }
  // As training does it: the save, the link, and what is no longer kept.
  void save_and_keep(Recorder& recorder, const std::string& name, int64_t removed = -1) {
    recorder.begin(name);
    save(name);
    recorder.done(name);
    point_at(root, "latest", std::stoll(name));
    if (removed >= 0) remove_checkpoint({root + "/step-" + std::to_string(removed), removed});
  }
  // A save that may fail; what it would have been is known all the same.
  void try_to_save(Recorder& recorder, const std::string& name, int64_t removed = -1) {
    try {
      save_and_keep(recorder, name, removed);
    } catch (const Failure&) {
    }
  }
  // The same through the class that owns the folder, with what it no longer keeps.
  static void save_in(CheckpointFolder& folder, Recorder& recorder, const std::string& name,
                      const Retention& retention) {
    recorder.begin(name);
    Snapshot s;
    s.texts = files_of(name);
    const CheckpointManifest m =
        folder.save(s, {}, std::stoll(name), {{"optimizer.x", {"0.1.0", std::string(64, '0')}}});
    names_[m.sha256] = name;
    recorder.done(name);
    folder.retire(retention, -1);
  }
  // Goes back to the checkpoint `name`; meanwhile any of `newer` may still be found, and afterwards none of them.
  static void resume_in(CheckpointFolder& folder, Recorder& recorder, const std::string& from, const std::string& name,
                        const std::vector<std::string>& newer) {
    for (const std::string& each : newer) recorder.begin(each);
    recorder.begin(name);
    folder.go_on_from(folder.choose(from, [](const Diagnostic&) {}).value_or(Verified{}));
    recorder.done(name);
  }
  void damage(int64_t step) const {
    fs::resize_file(root + "/step-" + std::to_string(step) + "/model/model.safetensors", 1000);
  }
  // Fills names_ for saves that fail before they return; a copy of each lies in known_.
  void know(const std::string& name) {
    const std::string real = std::exchange(root, known_.string());
    save(name);
    root = real;
  }

  // The name of the save that a loader finds on the stage: "" if it finds none, "mixed …" if what it takes was never
  // saved.
  std::string found(Loader loader) const {
    for (const Found& found : checkpoints_in((stage_.path / "checkpoints").string())) {
      CheckpointManifest m;
      try {
        m = load(found, loader);
      } catch (const Failure&) {
        continue;
      }
      const auto name = names_.find(m.sha256);
      if (name == names_.end() || found.step != std::stoll(name->second)) return "mixed: an unknown manifest";
      for (const auto& [path, bytes] : files_of(name->second))
        if (stage_.content(found.path + "/" + path) != bytes) return "mixed: " + path + " of " + name->second;
      return name->second;
    }
    return "";
  }

  // Stops after every event of a trace in every way that there is, or in `limit` ways that are drawn, until one is
  // wrong. `before` was found at its start. From the end: what goes wrong once all is said to be saved is seen at once.
  void explore(const Trace& trace, const std::string& before, size_t limit, Seen& seen, Loader loader = Loader::kReal,
               const std::set<std::string>& also = {}, bool from_the_end = false) {
    std::vector<std::set<std::string>> allowed_after = {also};
    allowed_after[0].insert(before);
    for (const Event& event : trace.events) {
      std::set<std::string> allowed = event.kind == Event::kDone ? std::set<std::string>() : allowed_after.back();
      if (event.kind == Event::kDone || event.kind == Event::kBegin) allowed.insert(event.name);
      allowed_after.push_back(allowed);
    }
    limit *= setting("MORTISE_CRASH_TIMES");
    for (size_t at = 0; at <= trace.events.size(); ++at) {
      const size_t events = from_the_end ? trace.events.size() - at : at;
      const std::set<std::string>& allowed = allowed_after[events];
      const Crash crash(trace, events);
      const size_t ways = crash.ways(limit);
      for (size_t i = 0; i < std::min(ways, limit); ++i) {
        const Crash::Way way = ways <= limit ? crash.way(i) : crash.any_way(random_);
        ++seen.ways;
        const auto [known, is_new] = verdicts_.try_emplace(crash.digest(way) + static_cast<uint64_t>(loader));
        if (is_new) {
          ++seen.trees;
          stage_.show(crash.tree(way));
          known->second = found(loader);
        }
        if (allowed.contains(known->second)) continue;
        if (seen.wrong++ == 0) seen.first_wrong = describe(crash.tree(way), known->second, allowed, events);
        return;
      }
    }
  }
  static std::string describe(const Tree& tree, const std::string& found, const std::set<std::string>& allowed,
                              size_t events) {
    std::string text = "after " + std::to_string(events) + " events `" + found + "` is found and not one of";
    for (const auto& name : allowed) text += " `" + name + "`";
    for (const auto& [path, item] : tree)
      text += "\n  " + path + (item.kind == Node::kFile ? " " + std::to_string(item.content.size()) : "/");
    return text;
  }

  void expect_right(const char* what, const Seen& seen) {
    std::printf("%s: %zu ways to stop, %zu different disks, %zu wrong\n", what, seen.ways, seen.trees, seen.wrong);
    EXPECT_EQ(seen.wrong, 0u) << seen.first_wrong;
    all_ways += seen.ways;
    all_trees += seen.trees;
  }

  fs::path run;
  std::string root;  // the folder of checkpoints in it
  // A name stands for the same bytes in every test, and a disk that was seen is not looked at again.
  static inline std::map<std::string, std::string> names_;  // by the hash of the manifest
  static inline std::unordered_map<uint64_t, std::string> verdicts_;
  std::mt19937_64 random_{setting("MORTISE_CRASH_SEED")};
  Stage stage_;
  const fs::path known_ = scratch("known");
  static inline size_t all_ways = 0, all_trees = 0;
};

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;  // several times slower
#else
constexpr bool kSanitized = false;
#endif
constexpr size_t kMany = kSanitized ? 600 : 6000, kFew = kSanitized ? 8 : 50;

TEST_F(CrashStates, OfTheFirstSave) {
  Seen seen;
  Recorder recorder(run);
  save_and_keep(recorder, "5");
  explore(recorder.finish(), "", kMany, seen);
  expect_right("the first save", seen);
}

TEST_F(CrashStates, OfASaveBesideAnOlderOne) {
  save("3");
  Seen seen;
  Recorder recorder(run);
  save_and_keep(recorder, "5");
  explore(recorder.finish(), "3", kMany, seen);
  expect_right("beside an older one", seen);
}

TEST_F(CrashStates, OfASaveInPlaceOfADamagedOne) {
  save("3");
  save("5 damaged");
  fs::resize_file(root + "/step-5/model/model.safetensors", 1000);
  Seen seen;
  Recorder recorder(run);
  save_and_keep(recorder, "5");
  explore(recorder.finish(), "3", kMany, seen);
  expect_right("in place of a damaged one", seen);
}

// Of a past that was given up, and nothing else is there: one of the two is found at any time.
TEST_F(CrashStates, OfASaveInPlaceOfAGoodOne) {
  save("5 old");
  Seen seen;
  Recorder recorder(run);
  save_and_keep(recorder, "5");
  explore(recorder.finish(), "5 old", kMany, seen);
  expect_right("in place of a good one", seen);
}

int no_exchange(Call call, const std::string&) { return call == Call::kExchange ? EINVAL : 0; }

// Where a file system cannot exchange two names, the older one is what remains for a moment.
TEST_F(CrashStates, OfASaveInPlaceOfAGoodOneWithoutExchange) {
  save("3");
  save("5 old");
  Seen seen;
  Recorder recorder(run, no_exchange);
  save_and_keep(recorder, "5");
  explore(recorder.finish(), "5 old", kMany, seen, Loader::kReal, {"3"});
  expect_right("in place of a good one, without exchange", seen);
}

TEST_F(CrashStates, OfTheRemovalOfAnOldOne) {
  for (const char* name : {"1", "2", "3"}) save(name);
  Seen seen;
  Recorder recorder(run);
  save_and_keep(recorder, "5", 1);
  save_and_keep(recorder, "7", 2);
  explore(recorder.finish(), "3", kMany, seen);
  expect_right("with the removal of old ones", seen);
}

// Nothing ever waits for a removal to reach the disk: what is left of old ones comes in every mixture.
TEST_F(CrashStates, OfALongTraining) {
  for (const char* name : {"1", "2", "3"}) save(name);
  Seen seen;
  Recorder recorder(run);
  for (const auto& [name, removed] : std::vector<std::pair<const char*, int>>{{"5", 1}, {"7", 2}, {"9", 3}, {"11", 5}})
    save_and_keep(recorder, name, removed);
  explore(recorder.finish(), "3", kMany / 10, seen);
  expect_right("a long training", seen);
}

TEST_F(CrashStates, OfASaveOverLeftovers) {
  save("3");
  for (const char* left : {".tmp-step-5/model", ".tmp-step-4", ".tmp-old-step-1/optimizer"})
    fs::create_directories(fs::path(root) / left);
  for (const char* left : {".tmp-step-5/model/model.safetensors", ".tmp-step-5/MANIFEST.json",
                           ".tmp-old-step-1/optimizer/rank-0.safetensors"})
    std::ofstream(fs::path(root) / left) << "left";
  Seen seen;
  Recorder recorder(run);
  save_and_keep(recorder, "5");
  remove_leftovers(root);
  save_and_keep(recorder, "6");
  explore(recorder.finish(), "3", kMany, seen);
  expect_right("over leftovers", seen);
}

// The process is killed at each of its calls, another one takes over, and the machine stops at any time: power that
// fails twice.
TEST_F(CrashStates, OfASaveAfterOneThatWasKilled) {
  for (const bool in_place : {false, true}) {
    for (const char* name : {"5 a", "5 b", "5 old", "3"}) know(name);
    Seen seen;
    for (int killed = 1;; ++killed) {
      fs::remove_all(run);
      fs::create_directory(run);
      if (in_place) save("3"), save("5 old");
      Recorder recorder(run);
      recorder.set_fault([&](Call, const std::string&) { return recorder.calls() >= killed ? EIO : 0; });
      try_to_save(recorder, "5 a");
      const bool was_killed = recorder.calls() >= killed;
      recorder.set_fault({});
      remove_leftovers(root);
      save_and_keep(recorder, "5 b");
      explore(recorder.finish(), in_place ? "5 old" : "", kFew, seen);
      if (!was_killed) break;
    }
    expect_right(in_place ? "killed at any call, in place of a good one" : "killed at any call of the first save",
                 seen);
  }
}

// A disk that fails once, at each call, under a training that goes on and saves again.
TEST_F(CrashStates, OfASaveAfterOneThatFailed) {
  for (const char* name : {"5", "6", "5 old", "3", "1"}) know(name);
  for (const bool in_place : {false, true}) {
    Seen seen;
    for (int failed = 1;; ++failed) {
      fs::remove_all(run);
      fs::create_directory(run);
      save("1"), save("3");
      if (in_place) save("5 old");
      Recorder recorder(run);
      recorder.set_fault([&](Call, const std::string&) { return recorder.calls() == failed ? EIO : 0; });
      try_to_save(recorder, "5", 1);
      const bool has_failed = recorder.calls() >= failed;
      recorder.set_fault({});
      save_and_keep(recorder, "6");
      explore(recorder.finish(), in_place ? "5 old" : "3", kFew, seen);
      if (!has_failed) break;
    }
    expect_right(in_place ? "failed at any call, in place of a good one" : "failed at any call", seen);
  }
}

TEST_F(CrashStates, OfARemovalThatWasKilled) {
  for (const char* name : {"1", "2", "3", "4"}) know(name);
  Seen seen;
  for (int killed = 1;; ++killed) {
    fs::remove_all(run);
    fs::create_directory(run);
    for (const char* name : {"1", "2", "3"}) save(name);
    Recorder recorder(run);
    recorder.set_fault([&](Call, const std::string&) { return recorder.calls() >= killed ? EIO : 0; });
    try {
      remove_checkpoint({root + "/step-1", 1});
    } catch (const Failure&) {
    }
    const bool was_killed = recorder.calls() >= killed;
    recorder.set_fault({});
    remove_leftovers(root);
    save_and_keep(recorder, "4", 2);
    explore(recorder.finish(), "3", kFew, seen);
    if (!was_killed) break;
  }
  expect_right("with a removal that was killed", seen);
}

// keep = 1 and a damaged newer one: whatever was announced is found, also where a new checkpoint bears the number of
// the damaged one.
TEST_F(CrashStates, OfATrainingAfterADamagedOne) {
  save("3"), save("6"), save("11");
  damage(11);
  Seen seen;
  Recorder recorder(run);
  CheckpointFolder folder(root);
  resume_in(folder, recorder, "", "6", {});
  for (const char* name : {"8", "11 again", "13"}) {
    save_in(folder, recorder, name, {.keep = 1});
    folder.confirm(std::stoll(name));
    folder.retire({.keep = 1}, -1);
  }
  explore(recorder.finish(), "6", kMany / 8, seen);
  expect_right("after a damaged one that was set aside", seen);
}

// What a run turned away from never comes back: neither in place of what is saved next, nor as the newest.
TEST_F(CrashStates, OfATrainingThatWentBack) {
  save("3"), save("6"), save("9");
  fs::create_directories(fs::path(root) / "abandoned/step-9/model");  // of the time before
  std::ofstream(fs::path(root) / "abandoned/step-9/model/model.safetensors") << "old";
  Seen seen;
  Recorder recorder(run);
  CheckpointFolder folder(root);
  resume_in(folder, recorder, "3", "3", {"9", "6"});
  for (const char* name : {"6 again", "9 again"}) save_in(folder, recorder, name, {.keep = 2});
  explore(recorder.finish(), "9", kMany / 8, seen);
  expect_right("after a training that went back", seen);
}

TEST_F(CrashStates, OfAResumeThatWasKilled) {
  for (const char* name : {"3", "6", "9", "6 again"}) know(name);
  Seen seen;
  for (int killed = 1;; ++killed) {
    fs::remove_all(run);
    fs::create_directory(run);
    for (const char* name : {"3", "6", "9"}) save(name);
    fs::create_directories(fs::path(root) / "abandoned/step-9");
    Recorder recorder(run);
    recorder.set_fault([&](Call, const std::string&) { return recorder.calls() >= killed ? EIO : 0; });
    try {
      CheckpointFolder folder(root);
      resume_in(folder, recorder, "3", "3", {"9", "6"});
    } catch (const Failure&) {
    }
    const bool was_killed = recorder.calls() >= killed;
    recorder.set_fault({});
    CheckpointFolder folder(root);
    resume_in(folder, recorder, "3", "3", {"9", "6"});
    save_in(folder, recorder, "6 again", {.keep = 1});
    explore(recorder.finish(), "9", kFew, seen);
    if (!was_killed) break;
  }
  expect_right("with a resume that was killed", seen);
}

TEST_F(CrashStates, OfADiskThatIsFull) {
  save("3");
  Recorder recorder(run, [](Call call, const std::string&) { return call == Call::kWrite ? ENOSPC : 0; });
  CheckpointFolder folder(root);
  try {
    save_in(folder, recorder, "5", {});
    FAIL() << "written to a full disk";
  } catch (const Failure& f) {
    EXPECT_EQ(f.diagnostic.exit, kExitIo);
    EXPECT_EQ(f.diagnostic.code, "no_space");
    EXPECT_EQ(f.diagnostic.message, "step-5/model/config.json cannot be written: No space left on device");
    EXPECT_EQ(f.diagnostic.effect, "what was there before, if anything, is untouched");
  }
  EXPECT_EQ(names_.at(verify_checkpoint(checkpoints_in(root).front()).manifest.sha256), "3");
}

// The other way to write a file: beside its place, then over what is there.
// A run directory: whatever is synced below it is of no use if its own name is not there.
TEST_F(CrashStates, OfFoldersThatAreMade) {
  fs::create_directory(run / "runs");
  for (const std::string folder : {"runs/one", "new/runs/two/"}) {
    Recorder recorder(run);
    std::error_code error;
    EXPECT_TRUE(make_folders((run / folder).string(), error));
    EXPECT_FALSE(error);
    EXPECT_FALSE(make_folders((run / folder).string(), error)) << "it is there";
    EXPECT_FALSE(error);
    const Trace trace = recorder.finish();
    const Crash crash(trace, trace.events.size());
    ASSERT_EQ(crash.ways(kMany), 1u) << "nothing is left to chance";
    const std::string name = fs::path(folder + "/").lexically_normal().parent_path().string();
    EXPECT_TRUE(crash.tree(crash.way(0)).contains(name)) << name;
  }
  std::error_code error;
  write_file((run / "file").string(), "x");
  EXPECT_FALSE(make_folders((run / "file/within").string(), error));
  EXPECT_EQ(error, std::errc::not_a_directory);
}

TEST_F(CrashStates, OfOneFileThatIsReplaced) {
  const std::string path = (run / "state.json").string(), old(1300, 'o'), fresh(2100, 'n');
  write_file(path, old);
  Seen seen;
  Recorder recorder(run);
  write_file(path, fresh);
  const Trace trace = recorder.finish();
  for (size_t events = 0; events <= trace.events.size(); ++events) {
    const Crash crash(trace, events);
    const size_t ways = crash.ways(10'000);
    ASSERT_NE(ways, SIZE_MAX);
    for (size_t i = 0; i < ways; ++i, ++seen.ways) {
      const Tree tree = crash.tree(crash.way(i));
      const auto found = tree.find("state.json");
      const bool right = found != tree.end() && (found->second.content == fresh ||
                                                 (found->second.content == old && events < trace.events.size()));
      seen.wrong += right ? 0 : 1;
    }
  }
  expect_right("one file", seen);
}

// The order of the calls is what keeps a checkpoint safe: with any of them left out, the states above show it.
class ProtocolWithout : public CrashStates {
 protected:
  // A save of step 5 beside one of step 3, changed, must be seen to go wrong.
  Seen explore_changed(const std::function<void(Trace&)>& change, Loader loader = Loader::kReal,
                       bool with_older = true) {
    if (with_older) save("3");
    Recorder recorder(run);
    recorder.begin("5");
    save("5");
    recorder.done("5");
    Trace trace = recorder.finish();
    const size_t events = trace.events.size();
    change(trace);
    Seen seen;
    explore(trace, with_older ? "3" : "", kMany, seen, loader, {}, /*from_the_end=*/loader == Loader::kReal);
    std::printf("%zu events of %zu, %zu ways to stop, %zu wrong; the first %s\n", trace.events.size(), events,
                seen.ways, seen.wrong, seen.first_wrong.substr(0, seen.first_wrong.find('\n')).c_str());
    return seen;
  }
  static std::function<void(Trace&)> without_sync(const std::string& path) {
    return [path](Trace& trace) {
      const auto removed = std::erase_if(trace.events, [&](const Event& e) {
        return e.kind == Event::kSync && e.path == path && e.path.size() == path.size();
      });
      EXPECT_EQ(removed, 1u) << path;
    };
  }
  static constexpr const char* kTemporary = "checkpoints/.tmp-step-5";
  static std::string temporary(const std::string& path) { return kTemporary + ("/" + path); }
};

TEST_F(ProtocolWithout, Changes) {
  const Seen seen = explore_changed([](Trace&) {});
  EXPECT_EQ(seen.wrong, 0u) << seen.first_wrong;
}
TEST_F(ProtocolWithout, TheSyncOfTheModel) {
  EXPECT_GT(explore_changed(without_sync(temporary("model/model.safetensors"))).wrong, 0u);
}
TEST_F(ProtocolWithout, TheSyncOfTheOptimizer) {
  EXPECT_GT(explore_changed(without_sync(temporary("optimizer/rank-1.safetensors"))).wrong, 0u);
}
TEST_F(ProtocolWithout, TheSyncOfTheState) {
  EXPECT_GT(explore_changed(without_sync(temporary("state.json"))).wrong, 0u);
}
TEST_F(ProtocolWithout, TheSyncOfTheManifest) {
  EXPECT_GT(explore_changed(without_sync(temporary("MANIFEST.json"))).wrong, 0u);
}
TEST_F(ProtocolWithout, TheSyncOfAFolderWithin) {
  EXPECT_GT(explore_changed(without_sync(temporary("optimizer"))).wrong, 0u);
}
TEST_F(ProtocolWithout, TheSyncOfTheFolder) { EXPECT_GT(explore_changed(without_sync(kTemporary)).wrong, 0u); }
TEST_F(ProtocolWithout, TheSyncOfTheParent) { EXPECT_GT(explore_changed(without_sync("checkpoints")).wrong, 0u); }
TEST_F(ProtocolWithout, TheSyncOfTheParentsParent) {
  EXPECT_GT(explore_changed(without_sync(""), Loader::kReal, /*with_older=*/false).wrong, 0u);
}

TEST_F(ProtocolWithout, TheRename) {
  const Seen seen = explore_changed([](Trace& trace) {
    EXPECT_EQ(std::erase_if(trace.events, [](const Event& e) { return e.kind == Event::kRename; }), 1u);
  });
  EXPECT_GT(seen.wrong, 0u);
}

// The same files with the same syncs, but where they are to lie in the end.
TEST_F(ProtocolWithout, ATemporaryFolder) {
  save("5 old");
  know("5");
  const std::string place = root + "/step-5", manifest = read_file(known_ / "step-5/MANIFEST.json");
  Recorder recorder(run);
  recorder.begin("5");
  for (const auto& [path, bytes] : files_of("5")) {
    fs::remove(place + "/" + path);  // no file is opened where another one lies
    OpenFile file(place + "/" + path, path);
    file.write(bytes.data(), bytes.size());
    file.finish();
  }
  fs::remove(place + "/MANIFEST.json");
  OpenFile file(place + "/MANIFEST.json", "MANIFEST.json");
  file.write(manifest.data(), manifest.size());
  file.finish();
  for (const std::string& folder : {place + "/model", place + "/optimizer", place, root}) sync_folder(folder);
  recorder.done("5");
  Seen seen;
  explore(recorder.finish(), "5 old", kMany, seen);
  EXPECT_GT(seen.wrong, 0u);
}

TEST_F(ProtocolWithout, PatienceBeforeItSaysSaved) {
  const Seen seen = explore_changed([](Trace& trace) {
    const auto sync = std::ranges::find_if(
        trace.events, [](const Event& e) { return e.kind == Event::kSync && e.path == "checkpoints"; });
    const auto done = std::ranges::find(trace.events, Event::kDone, &Event::kind);
    ASSERT_LT(sync, done);
    std::rotate(sync, done, std::next(done));
  });
  EXPECT_GT(seen.wrong, 0u);
}

// A new checkpoint takes the name of one that was set aside, whose own way out is not on the disk yet.
TEST_F(ProtocolWithout, TheSyncOfWhatIsSetAside) {
  save("3"), save("6");
  Recorder recorder(run);
  CheckpointFolder folder(root);
  resume_in(folder, recorder, "3", "3", {"6"});
  save_in(folder, recorder, "6 again", {});
  Trace trace = recorder.finish();
  without_sync("checkpoints/abandoned")(trace);
  Seen seen;
  explore(trace, "6", kMany, seen);
  EXPECT_GT(seen.wrong, 0u);
}

TEST_F(ProtocolWithout, HashesInTheLoader) {
  const Seen seen = explore_changed(without_sync(temporary("model/model.safetensors")), Loader::kSizesOnly);
  EXPECT_GT(seen.wrong, 0u);
  EXPECT_NE(seen.first_wrong.find("`mixed: model/model.safetensors of 5`"), std::string::npos);
}

TEST_F(ProtocolWithout, TheExchangeOfOldAndNew) {
  save("5 old");
  Recorder recorder(run, no_exchange);
  save_and_keep(recorder, "5");
  Seen seen;
  explore(recorder.finish(), "5 old", kMany, seen);
  EXPECT_GT(seen.wrong, 0u);
}

// After the others, as they stand in this file.
TEST_F(ProtocolWithout, NothingLeftOut) {
  std::printf("in all: %zu ways to stop, %zu different disks\n", all_ways, all_trees);
  const bool all =
      testing::UnitTest::GetInstance()->test_to_run_count() == testing::UnitTest::GetInstance()->total_test_count();
  EXPECT_GE(all_trees, all && !kSanitized ? 100'000u : 0u);
}

}  // namespace
}  // namespace mortise::faults
