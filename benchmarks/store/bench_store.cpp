// What an update of states on a disk takes beside the disk's own time: offload.nvme brings and stores pieces of 64 MiB,
// each two ranges, as AdamW's of 8 M parameters are; the floor reads and writes as much, one call after another.
//
//   cmake --build build --target bench_store && build/bin/bench_store FOLDER [MIB] [ROUNDS]
//
// Rounds of floor and store alternate, so that a busy machine hurts both; the ratio is the median of the rounds'. The
// first round, in which the file system gets to know the files, is left out.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "mortise/testing/fake_host.hpp"

namespace {

constexpr int64_t kMi = int64_t{1} << 20, kPiece = 64 * kMi;

void must(bool well, const char* what) {
  if (well) return;
  std::perror(what);
  std::exit(1);
}

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

class Floor {
 public:
  Floor(const std::string& folder, int64_t bytes) : bytes_(bytes) {
    fd_ = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_DIRECT, 0600);
    if (fd_ < 0) fd_ = ::open(folder.c_str(), O_TMPFILE | O_RDWR, 0600);  // no more does the store go direct there
    must(fd_ >= 0 && ::fallocate(fd_, 0, 0, bytes) == 0, folder.c_str());
    std::memset(memory_.get(), 1, kPiece);
  }
  void round() const {
    for (int64_t at = 0; at < bytes_; at += kPiece) {
      must(::pread(fd_, memory_.get(), kPiece, at) == kPiece, "read");
      must(::pwrite(fd_, memory_.get(), kPiece, at) == kPiece, "write");
    }
  }

 private:
  int64_t bytes_;
  int fd_;
  std::unique_ptr<void, decltype(&std::free)> memory_{std::aligned_alloc(4096, kPiece), std::free};
};

class Store {
 public:
  Store(const std::string& folder, int64_t bytes) : bytes_(bytes) {
    host_.set("path", folder);
    plugin_.emplace(host_, NVME);
    void* all = nullptr;
    check(object().open(plugin_->self(), bytes, &all));
  }
  // Returns how long the update alone took: one pass over the piece.
  double round() {
    double updating = 0;
    fetch(0);
    for (int64_t i = 0; i < bytes_ / kPiece; ++i) {
      if ((i + 1) * kPiece < bytes_) fetch(i + 1);
      void* piece = nullptr;
      check(object().take(plugin_->self(), &piece));
      const double begin = now();
      auto* numbers = static_cast<float*>(piece);
      for (int64_t k = 0; k < kPiece / 4; ++k) numbers[k] = numbers[k] * 0.9F + 1;
      updating += now() - begin;
      check(object().put(plugin_->self(), 0));
    }
    check(object().finish(plugin_->self(), 0));
    return updating;
  }

 private:
  const mortise_state_store& object() { return plugin_->object<mortise_state_store>("states.store"); }
  void fetch(int64_t i) {
    const mortise_extent both[] = {{i * kPiece / 2, kPiece / 2}, {bytes_ / 2 + i * kPiece / 2, kPiece / 2}};
    check(object().fetch(plugin_->self(), both, 2));
  }
  void check(mortise_status status) {
    if (status == MORTISE_OK) return;
    std::printf("%s\n", host_.error().c_str());
    std::exit(1);
  }

  int64_t bytes_;
  mortise::testing::FakeHost host_;
  std::optional<mortise::testing::Plugin> plugin_;
};

double median(std::vector<double> all) {
  std::ranges::sort(all);
  return all[all.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return std::printf("usage: bench_store FOLDER [MIB] [ROUNDS]\n"), 64;
  const int64_t bytes = (argc > 2 ? std::max<int64_t>(std::atoll(argv[2]) * kMi / kPiece, 1) : 16) * kPiece;
  const int rounds = argc > 3 ? std::atoi(argv[3]) : 15;
  const Floor floor(argv[1], bytes);
  Store store(argv[1], bytes);
  std::vector<double> alone, with, updates, ratios;
  for (int i = 0; i <= rounds; ++i) {
    const double begin = now();
    floor.round();
    const double middle = now();
    const double update = store.round();
    const double end = now();
    if (i == 0) continue;
    alone.push_back(middle - begin), with.push_back(end - middle), updates.push_back(update);
    ratios.push_back(with.back() / alone.back());
  }
  const auto rate = [&](double seconds) { return 2 * static_cast<double>(bytes) / seconds / 1e6; };
  std::printf(
      "%.0f MiB read and written: the disk alone %.3f s (%.0f MB/s), with an update of %.3f s beside %.3f s;\n"
      "median of the ratios of %d rounds %.2f\n",
      static_cast<double>(bytes / kMi), median(alone), rate(median(alone)), median(updates), median(with), rounds,
      median(ratios));
  return 0;
}
