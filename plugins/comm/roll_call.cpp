#include "roll_call.hpp"

#include <algorithm>
#include <iterator>
#include <thread>
#include <utility>

#include "meeting.hpp"

namespace mortise::comm {
namespace {

// A letter is kOver, or what an answer is to name and who is lost as far as is known: "7 rank 2", "7 ".
constexpr const char* kOver = "over";

std::string mailbox(int rank) { return "mail/" + std::to_string(rank); }
std::string there(const std::string& call, int rank) { return "there/" + call + "/" + std::to_string(rank); }

// To the thread of a rank, which reads its letters in their order.
void post(c10d::Store& store, int rank, const std::string& letter) {
  const std::string box = mailbox(rank);
  store.set(box + "/" + std::to_string(store.add(box, 1)), letter);
}

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
      for (int64_t n = 1;; ++n) {
        const std::string key = mailbox(rank) + "/" + std::to_string(n);
        await(*store, key);
        const std::string letter = store->get_to_str(key);
        if (letter == kOver) return;
        const size_t space = letter.find(' ');
        {
          const std::lock_guard lock(found->mutex);
          if (!is_named(found->ranks) && space + 1 < letter.size()) found->ranks = letter.substr(space + 1);
        }
        store->set(there(letter.substr(0, space), rank), "1");
      }
    } catch (const std::exception&) {  // the store is gone
    }
  });
  over_ = answer.get_future();
  std::thread([answer = std::move(answer)]() mutable {
    take_no_signals();
    answer();
  }).detach();
}

std::vector<int> RollCall::absent(c10d::Store& store, const std::vector<int>& ranks, Milliseconds patience,
                                  const std::string& lost) {
  const std::string call = std::to_string(store.add("calls", 1));
  std::vector<std::string> answers;
  for (const int r : ranks) {
    post(store, r, call + " " + lost);
    answers.push_back(there(call, r));
  }
  std::vector<int> absent;
  try {
    store.wait(answers, patience);
  } catch (const std::exception&) {
    std::ranges::copy_if(ranks, std::back_inserter(absent), [&](int r) { return !store.check({there(call, r)}); });
  }
  return absent;
}

std::string RollCall::lost(c10d::Store& store, int size, Milliseconds patience, const std::string& otherwise) const {
  std::vector<int> others;
  for (int r = 0; r < size; ++r)
    if (r != rank_) others.push_back(r);
  const std::vector<int> away = absent(store, others, patience);
  std::string names = found();  // who told it may have ended
  if (!is_named(names) && !away.empty()) names = named(away);
  if (names.empty()) names = otherwise;
  if (names.empty()) return names;
  {  // this rank believes it too, should telling the others take too long
    const std::lock_guard lock(found_->mutex);
    if (!is_named(found_->ranks)) found_->ranks = names;
  }
  for (const int r : away) post(store, r, std::string("late ") + kSomeRank);  // who only stopped is out too
  std::erase_if(others, [&](int r) { return std::ranges::count(away, r) > 0; });
  constexpr Milliseconds kSoon{200};
  absent(store, others, kSoon, names);
  return names;
}

std::string RollCall::found() const {
  const std::lock_guard lock(found_->mutex);
  return found_->ranks;
}

void RollCall::leave(c10d::Store& store) {
  if (!has_left_.exchange(true)) post(store, rank_, kOver);
}

void RollCall::end(c10d::Store& store, Milliseconds limit) {
  leave(store);
  over_.wait_for(limit);
}

}  // namespace mortise::comm
