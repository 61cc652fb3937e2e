// How the ranks find one another, and what they have from then on: a store of texts and two process groups.
#pragma once
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "mortise/cpp/core.hpp"
#include "roll_call.hpp"

namespace mortise::comm {

using Milliseconds = std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// mortise_world, kept.
struct World {
  explicit World(const mortise_world&);  // refuses what no launcher should have said
  int rank, size, local_size;
  uint16_t port;
  int listen_fd;
  std::string address;
};

struct Meeting {
  c10::intrusive_ptr<c10d::Store> store;
  // Each keeps its own order of collectives. Their threads end before the store's: last made, first gone. `own` is for
  // what the plugin itself sends.
  c10::intrusive_ptr<c10d::ProcessGroupGloo> own, numbers;
  std::shared_ptr<RollCall> roll_call;
  c10::intrusive_ptr<c10d::Store> asks;  // by which others are called, also while `store` is waited for
  bool is_server = false;                // the store's memory is in this process
  std::string address;                   // of this host, by which the others reach this rank
};
// `id`: of the plugin that meets; `threads`: of `own`. Throws Error: MORTISE_E_LOST with the ranks that did not come,
// MORTISE_E_IO if rank 0 cannot listen, MORTISE_E_CONFIG if another rank came with another plugin.
Meeting meet(const World&, Milliseconds timeout, const std::string& id, int threads);

// What the ranks of a group send one another: this one is number `rank` of `size`. `name`: of the group, the same on
// all of them; `address`: this host's. Throws what c10d does: one did not come.
c10::intrusive_ptr<c10d::ProcessGroupGloo> open_group(const c10::intrusive_ptr<c10d::Store>& store,
                                                      const std::string& address, const std::string& name, int rank,
                                                      int size, int threads, Milliseconds timeout);

// Runs `body` on a thread of its own, and gives up `patience` after `limit`, so that c10d's own timeouts come first:
// its store waits without end for a server that is stopped. The thread then stays behind, so `body` owns what it uses.
void within(Milliseconds limit, std::function<void()> body, const std::function<void()>& after_a_while = {},
            Milliseconds patience = Milliseconds(1000));

// Ends process groups after a loss, on a thread that stays behind if one of gloo's waits for ever for what was on its
// way from the lost rank: false. So `end` owns what it uses.
bool ends_soon(std::function<void()> end);

// Runs `body`. A thread that this host does not give is its own trouble, MORTISE_E_MEMORY, and no rank's loss.
void with_threads(const std::function<void()>& body);

// Of a thread that comm begins, and of gloo's that begin in it: signals are for the run, and a connection that a lost
// rank has closed ends nothing.
void take_no_signals();

// c10d tells standard error of whatever takes too long, with its stack; all of it is in what it throws, and said there.
// As long as there is one, on any thread.
class Quiet {
 public:
  Quiet();
  Quiet(const Quiet&) = delete;
  Quiet& operator=(const Quiet&) = delete;
  ~Quiet();
};

// "1.5 s"
std::string seconds(Clock::duration);
// One line for people of what c10d and gloo throw: no place in their sources, no stack.
std::string plain(const std::exception&);

}  // namespace mortise::comm
