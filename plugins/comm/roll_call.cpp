#include "roll_call.hpp"

#include <algorithm>
#include <iterator>
#include <thread>
#include <utility>

#include "meeting.hpp"

namespace mortise::comm {
namespace {

constexpr const char* kLost = "lost";

std::string asked(int rank) { return "asked/" + std::to_string(rank); }
std::string over(int rank) { return "over/" + std::to_string(rank); }
std::string there(int rank) { return "there/" + std::to_string(rank); }

// However long the run takes: one wait takes no more than some weeks. Throws: the store is gone.
void await(c10d::Store& store, const std::string& key) {
  while (!store.check({key})) {
    try {
      store.wait({key}, std::chrono::hours(1));
    } catch (const std::exception&) {  // not yet; or gone, which `check` says
    }
  }
}

// "rank 2", "ranks 1, 3", or "".
std::string named(const std::vector<int>& ranks) {
  std::string text;
  for (const int r : ranks) text += (text.empty() ? "" : ", ") + std::to_string(r);
  return text.empty() ? text : (ranks.size() == 1 ? "rank " : "ranks ") + text;
}

}  // namespace

// The thread may stay behind in a store that does not answer, so it owns what it uses.
RollCall::RollCall(c10::intrusive_ptr<c10d::Store> store, int rank) : rank_(rank) {
  std::packaged_task<void()> answer([store = std::move(store), found = found_, rank] {
    const Quiet quiet;
    try {
      await(*store, asked(rank));
      if (store->check({over(rank)})) return;
      store->set(there(rank), "1");
      await(*store, kLost);
      const std::string ranks = store->get_to_str(kLost);
      const std::lock_guard lock(found->mutex);
      found->ranks = ranks;
    } catch (const std::exception&) {  // the store is gone
    }
  });
  over_ = answer.get_future();
  std::thread([answer = std::move(answer)]() mutable {
    take_no_signals();
    answer();
  }).detach();
}

std::vector<int> RollCall::absent(c10d::Store& store, const std::vector<int>& ranks, Milliseconds patience) {
  std::vector<std::string> answers;
  for (const int r : ranks) {
    store.set(asked(r), "1");
    answers.push_back(there(r));
  }
  std::vector<int> absent;
  try {
    store.wait(answers, patience);
  } catch (const std::exception&) {
    std::ranges::copy_if(ranks, std::back_inserter(absent), [&](int r) { return !store.check({there(r)}); });
  }
  store.set(kLost, named(absent));
  return absent;
}

std::string RollCall::lost(c10d::Store& store, int rank, int size, Milliseconds patience) {
  std::vector<int> others;
  for (int r = 0; r < size; ++r)
    if (r != rank) others.push_back(r);
  return named(absent(store, others, patience));
}

std::string RollCall::found() const {
  const std::lock_guard lock(found_->mutex);
  return found_->ranks;
}

void RollCall::end(c10d::Store& store, Milliseconds limit) {
  store.set(over(rank_), "1");
  store.set(asked(rank_), "1");
  over_.wait_for(limit);
}

}  // namespace mortise::comm
