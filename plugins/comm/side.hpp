// What a `comm` between processes has beside its tensors: the ranks' meeting, numbers on the host, shared texts, and
// what is said once a rank is lost. The base of the objects of comm.gloo and comm.nccl.
#pragma once
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "meeting.hpp"

namespace mortise::comm {

// What a key of the plugin's own table says. Refuses what is no time.
Milliseconds duration_of(const char* key);

class Side {
 public:
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;
  void open(const mortise_world*);
  void host_all_reduce(int64_t* numbers, uint32_t n, uint32_t op);
  void share(mortise_str key, mortise_str text);
  void fetch(mortise_str key, mortise_str* text);

 protected:
  // `id`: who this is, the same on every rank. `threads`: of the process group `own`. `checks`: what the ranks begin is
  // compared.
  Side(const char* id, Milliseconds timeout, int threads, bool checks = false);
  virtual ~Side();
  // Ends both process groups, after `others`, and what is under way in them. False: a rank is lost, and a thread of
  // gloo's waits for ever for what was on its way from it; it stays behind, and uses what it was given.
  bool end_groups(std::function<void()> others = {});

  // A group of ranks as its members name it, before anything is connected. Refuses what is none.
  struct Members {
    int rank, size;    // this one's number among them
    std::string name;  // the same on each
  };
  Members members_of(const int32_t* ranks, uint32_t n);
  // What the first of them says, on each.
  std::string said_by_first_of(const Members&, const std::string& own);
  // Runs `connect`, in which a group's ranks meet; a rank that does not come is lost.
  void connect_group(std::function<void()> connect);

  const World& world() const { return *world_; }
  const Meeting& met() const { return met_; }
  bool is_alone() const { return world_->size == 1; }
  bool checks() const { return checks_; }
  Milliseconds timeout() const { return timeout_; }
  c10::intrusive_ptr<c10d::ProcessGroupGloo>& own() { return met_.own; }
  void need_open(const char* name) const;
  // Throws Error, MORTISE_E_LOST, with what was said first.
  void need_all() const;
  bool is_lost() const;
  // From here on every call says so. The first text counts.
  void lose(const std::string& text);
  // A rank was lost: nobody will come to what is under way. On any thread.
  virtual void give_up() {}
  // Where something speaks for a loss, waits until it is clear: another rank may know sooner, and what that one ends
  // ends here without its numbers.
  virtual void await_verdict() {}

  // If it `checks`: the ranks of a group, of all if it is none, begin the same, which `what` says. `name`: the group's.
  void must_be_alike(const std::string& what, c10d::ProcessGroupGloo* group = nullptr, const std::string& name = "all");

  // Whatever `body` throws means that a rank is gone: what could be wrong on this one was checked.
  template <class Body>
  void or_lost(const std::string& name, Clock::time_point began, Body&& body) {
    try {
      body();
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const Error&) {  // of this host
      throw;
    } catch (const std::exception& e) {
      need_all();
      const std::string when = seconds(Clock::now() - began) + " after it began: " + plain(e);
      lose(name + ": " + lost_ranks() + " ended, or did not come, " + when);
      need_all();
    }
  }
  // What every rank says under a key of its own, in order of rank.
  std::vector<std::string> exchange(const std::string& key, const std::string& own);
  // Once something shows that one is lost: "rank 1", "ranks 1, 3", by a roll call; or "a rank". The others then have
  // heard of it. On any thread, a second or two.
  std::string lost_ranks();
  // Whether another rank has told so already: then kGone is all that this one knows.
  bool is_told_of_loss() const { return met_.roll_call && !met_.roll_call->found().empty(); }
  static constexpr const char* kGone = " ended, or does not answer";
  // Who does not answer a roll call, or what another has found; "": all do, or nobody can be asked.
  std::string absent_ranks() { return call_roll("", Milliseconds(1000)); }

 private:
  void hear_of_lost(const char* name);
  std::string call_roll(const std::string& otherwise, Milliseconds patience);
  static constexpr int kAskers = 4;
  bool is_to_ask(Milliseconds limit);
  std::string asked_ranks(const std::string& otherwise, Milliseconds patience);
  std::string of_two_or(const std::string& ranks) const;
  void over_store(const std::string& name, std::function<void()> body);
  std::string unlike(const std::string& what, const std::string& group);
  void leave_roll_call() noexcept;
  void say_goodbye() noexcept;

  const char* id_;
  int threads_;
  const Milliseconds timeout_;
  const bool checks_;
  std::optional<World> world_;                              // once the ranks have met
  Meeting met_;                                             // of several ranks
  std::map<std::string, std::string, std::less<>> shared_;  // by this rank; the texts if there is no other
  std::string fetched_;
  int groups_ = 0;                     // made so far
  std::map<std::string, int> unlike_;  // by group: collectives that its ranks began and that were not the same
  std::mutex roll_call_mutex_;
  std::string verdict_;  // what the roll call came to, once somebody is lost
  mutable std::mutex lost_mutex_;
  std::string lost_;  // what is said of every call from then on
};

}  // namespace mortise::comm
