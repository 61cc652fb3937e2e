// A world of one rank: every sum is what it was, and what goes to all goes from one tensor to the other.
#include <map>
#include <string>

#include "mortise/cpp/comm.hpp"
#include "mortise/cpp/ops.hpp"
#include "mortise/cpp/plugin.hpp"

struct mortise_work {};  // done when it is begun
struct mortise_rank_group {};

namespace {
using namespace mortise;

class Local {
 public:
  void open(const mortise_world* world) {
    if (world->size != 1)
      throw Error(MORTISE_E_UNSUPPORTED, "comm.local joins no ranks, and there are " + std::to_string(world->size));
  }
  void start(const mortise_collective* c, mortise_work** out) {
    know(c->kind <= MORTISE_REDUCE, "collective", c->kind);
    know(!reduces(*c) || c->op <= MORTISE_MIN, "reduction", c->op);
    if (reads_in(*c)) ops::copy_(c->out, ops::view(c->in, Info(c->out).shape()));
    *out = &done_;
  }
  void wait(mortise_work*) {}
  void host_all_reduce(int64_t*, uint32_t, uint32_t op) { know(op <= MORTISE_MIN, "reduction", op); }
  void share(mortise_str key, mortise_str text) { shared_[std::string(view(key))] = view(text); }
  void fetch(mortise_str key, mortise_str* text) {
    const auto found = shared_.find(view(key));
    if (found == shared_.end())
      throw Error(MORTISE_E_NOT_FOUND, "nobody shared `" + std::string(view(key)) + "`, and there is nobody else");
    *text = str(found->second);
  }
  void group(const int32_t* ranks, uint32_t n, mortise_rank_group** out) {
    if (n != 1 || ranks[0] != 0) throw Error(MORTISE_E_ARGUMENT, "there is no rank but 0 to make a group of");
    *out = &alone_;
  }

 private:
  // A kind and a reduction that there are none of; whatever else several ranks would refuse is done.
  static void know(bool known, const char* what, uint32_t number) {
    if (!known)
      throw Error(MORTISE_E_ARGUMENT, "no " + std::string(what) + " has the number " + std::to_string(number));
  }
  mortise_work done_;
  mortise_rank_group alone_;
  std::map<std::string, std::string, std::less<>> shared_;
};

const mortise_comm kObject = {.struct_size = sizeof(mortise_comm),
                              .reserved = 0,
                              .open = thunk<&Local::open>,
                              .start = thunk<&Local::start>,
                              .wait = thunk<&Local::wait>,
                              .host_all_reduce = thunk<&Local::host_all_reduce>,
                              .share = thunk<&Local::share>,
                              .fetch = thunk<&Local::fetch>,
                              .group = thunk<&Local::group>,
                              .start_all = nullptr};  // one after another
}  // namespace

MORTISE_PLUGIN(Local, mortise::provide("comm", &kObject))
