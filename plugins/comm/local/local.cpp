// A world of one rank: every sum is what it was, and what goes to all goes from one tensor to the other.
#include <map>
#include <string>

#include "mortise/cpp/ops.hpp"
#include "mortise/cpp/plugin.hpp"

struct mortise_work {};  // done when it is begun

namespace {
using namespace mortise;

class Local {
 public:
  void open(const mortise_world* world) {
    if (world->size != 1)
      throw Error(MORTISE_E_UNSUPPORTED, "comm.local joins no ranks, and there are " + std::to_string(world->size));
  }
  void start(const mortise_collective* c, mortise_work** out) {
    know(c->kind <= MORTISE_BROADCAST, "collective", c->kind);
    know(c->op <= MORTISE_MIN, "reduction", c->op);
    if (c->kind == MORTISE_REDUCE_SCATTER || c->kind == MORTISE_ALL_GATHER) ops::copy_(c->out, c->in);
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

 private:
  // What several ranks would refuse, one refuses too.
  static void know(bool known, const char* what, uint32_t number) {
    if (!known)
      throw Error(MORTISE_E_ARGUMENT, "no " + std::string(what) + " has the number " + std::to_string(number));
  }
  mortise_work done_;
  std::map<std::string, std::string, std::less<>> shared_;
};

const mortise_comm kObject = {sizeof(mortise_comm), 0,
                              thunk<&Local::open>,  thunk<&Local::start>,
                              thunk<&Local::wait>,  thunk<&Local::host_all_reduce>,
                              thunk<&Local::share>, thunk<&Local::fetch>};
}  // namespace

MORTISE_PLUGIN(Local, mortise::provide("comm", &kObject))
