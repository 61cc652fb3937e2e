// Who is still there, once a rank is lost: each rank answers for itself on a thread and a connection of its own, also
// while it waits for the others.
#pragma once
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace mortise::comm {

// Who is lost where all answer: NCCL has trouble with one, or a device comes no further.
inline constexpr const char* kSomeRank = "a rank";
inline bool is_named(const std::string& ranks) { return !ranks.empty() && ranks != kSomeRank; }

class RollCall {
 public:
  // `store`: a connection that nobody else uses.
  RollCall(c10::intrusive_ptr<c10d::Store> store, int rank);

  // Asks `ranks` over another connection: those that do not answer. They hear who is `lost`, if that is known. Throws:
  // the store does not answer.
  static std::vector<int> absent(c10d::Store& store, const std::vector<int>& ranks, std::chrono::milliseconds patience,
                                 const std::string& lost = "");
  // Asks all others: "rank 2", "ranks 1, 3", or `otherwise` if all are there. What one rank has found first counts for
  // all, who notice later, when that one has ended too: when this returns, all that answer within a fifth of a second
  // have heard of it. Of "" nobody hears. Throws likewise.
  std::string lost(c10d::Store& store, int size, std::chrono::milliseconds patience,
                   const std::string& otherwise = "") const;
  std::string found() const;  // by another rank: as above, kSomeRank as long as none is named; "": by none yet
  // From here on this rank does not answer: it ends, and others may hear of that before it has.
  void leave(c10d::Store& store);
  // The thread has ended when this returns, or the limit is over.
  void end(c10d::Store& store, std::chrono::milliseconds limit);

 private:
  struct Found {
    std::mutex mutex;
    std::string ranks;
  };
  const int rank_;
  const std::shared_ptr<Found> found_ = std::make_shared<Found>();
  std::future<void> over_;
  std::atomic<bool> has_left_ = false;
};

}  // namespace mortise::comm
