// Who is still there, once a rank is lost: each rank answers for itself on a thread and a connection of its own, also
// while it waits for the others.
#pragma once
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace mortise::comm {

class RollCall {
 public:
  // `store`: a connection that nobody else uses.
  RollCall(c10::intrusive_ptr<c10d::Store> store, int rank);

  // Asks `ranks` over another connection: those that do not answer. What one rank has found counts for the others, who
  // notice later, when that one has ended too; each answers once. Throws: the store does not answer.
  static std::vector<int> absent(c10d::Store& store, const std::vector<int>& ranks, std::chrono::milliseconds patience);
  // Asks all others: "rank 2", "ranks 1, 3", or "" if all are there.
  static std::string lost(c10d::Store& store, int rank, int size, std::chrono::milliseconds patience);
  std::string found() const;  // by another rank; "": by none yet
  // Nobody will ask any more.
  void end(c10d::Store& store, std::chrono::milliseconds limit);

 private:
  struct Found {
    std::mutex mutex;
    std::string ranks;
  };
  const int rank_;
  const std::shared_ptr<Found> found_ = std::make_shared<Found>();
  std::future<void> over_;
};

}  // namespace mortise::comm
