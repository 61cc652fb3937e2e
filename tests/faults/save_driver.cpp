// Saves checkpoints on a disk that may fail, as training does: a save that fails is passed over, one that returned
// counts, the last two are kept.
//
//   save_driver FOLDER FIRST LAST   saves the steps FIRST to LAST; says "saved N" for each that returned and
//                                   "failed N: why" for the others; at the end, what is found must be the last that was
//                                   saved, or a later one, and hold what was saved
//   save_driver FOLDER --check N    only the last, for a step N that was saved earlier; 0: nothing was
//
// Exit status: 0, or 1 if a saved checkpoint is lost or another than was saved, or 2 if the folder cannot even be
// listed.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "core/base/diagnostic.hpp"
#include "core/store/checkpoint.hpp"

namespace {

using namespace mortise;

std::map<std::string, std::string> files_of(int64_t step) {
  const auto bytes = [&](size_t n, char first) {
    std::string all;
    for (size_t i = 0; i < n; ++i) all += static_cast<char>(first + (i * 7 + static_cast<size_t>(step)) % 20);
    return all;
  };
  return {{"model/model.safetensors", bytes(5000, 'A')},
          {"optimizer/rank-0.safetensors", bytes(3000, 'a')},
          {"state.json", bytes(60, '0')}};
}

// At once: what comes after this may be the end of the process.
void say(const std::string& line) {
  const std::string text = line + "\n";
  if (::write(STDOUT_FILENO, text.data(), text.size()) < 0) std::abort();
}

int check(const std::string& root, int64_t saved) {
  std::vector<Found> all;
  try {
    all = checkpoints_in(root);
  } catch (const Failure& f) {
    say("unknown: " + f.diagnostic.message);
    return 2;
  }
  for (const Found& found : all) {
    try {
      verify_checkpoint(found);
    } catch (const Failure& f) {
      say("passed over: " + f.diagnostic.at + ": " + f.diagnostic.message);
      continue;
    }
    for (const auto& [path, bytes] : files_of(found.step)) {
      std::ifstream in(found.path + "/" + path, std::ios::binary);
      if (std::string(std::istreambuf_iterator<char>(in), {}) == bytes) continue;
      say("mixed: " + found.path + "/" + path);
      return 1;
    }
    if (found.step >= saved) return 0;
    break;
  }
  if (saved == 0) return 0;
  say("lost: step " + std::to_string(saved));
  return 1;
}

bool save(const std::string& root, int64_t step) {
  try {
    CheckpointWriter writer(root, step);
    for (const auto& [path, bytes] : files_of(step)) writer.file(path, bytes);
    writer.commit({});
  } catch (const Failure& f) {
    say("failed " + std::to_string(step) + ": " + f.diagnostic.message);
    return false;
  }
  say("saved " + std::to_string(step));
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 64;
  const std::string root = argv[1], word = argv[2];
  if (word == "--check") return check(root, std::atoll(argv[3]));
  int64_t saved = 0, before = 0;
  remove_leftovers(root);
  for (int64_t step = std::atoll(argv[2]); step <= std::atoll(argv[3]); ++step) {
    if (!save(root, step)) continue;
    point_at(root, "latest", step);
    if (before > 0) {
      try {
        remove_checkpoint({root + "/step-" + std::to_string(before), before});
      } catch (const Failure& f) {
        say("kept " + std::to_string(before) + ": " + f.diagnostic.message);
      }
    }
    before = saved;
    saved = step;
  }
  return check(root, saved);
}
