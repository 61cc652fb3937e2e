#include "side.hpp"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/tensor.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <thread>

#include "collective.hpp"

namespace mortise::comm {

Milliseconds duration_of(const char* key) {
  const mortise_value v = config::get(key);
  if (v.tag != MORTISE_AMOUNT || v.count != MORTISE_SECONDS)
    config::refuse(key, "it is no time", std::string(key) + " = \"10 min\"");
  return std::max(Milliseconds(1), std::chrono::ceil<Milliseconds>(std::chrono::duration<double>(v.v.f)));
}

Side::Side(const char* id, Milliseconds timeout, int threads, bool checks)
    : id_(id), threads_(threads), timeout_(timeout), checks_(checks) {}

Side::~Side() {
  end_groups();
  if (met_.store) say_goodbye();
}

// Before its connections close, of which the others hear: who then asks finds that this one is the lost one.
void Side::leave_roll_call() noexcept {
  constexpr Milliseconds kLimit{200};
  if (!met_.roll_call || is_lost()) return;
  try {
    within(kLimit, [store = met_.asks, roll_call = met_.roll_call] { roll_call->leave(*store); }, {}, Milliseconds(0));
  } catch (const std::exception&) {  // the store does not answer
  }
}

bool Side::end_groups(std::function<void()> others) {
  leave_roll_call();
  auto end = [others = std::move(others), numbers = std::move(met_.numbers), own = std::move(met_.own)]() mutable {
    if (others) others();
    numbers.reset();
    own.reset();
  };
  if (!is_lost()) return end(), true;
  return ends_soon(std::move(end));
}

void Side::open(const mortise_world* world) {
  if (!world) throw Error(MORTISE_E_ARGUMENT, "open: the world is NULL");
  if (world_) throw Error(MORTISE_E_ARGUMENT, "open: it was called before");
  const World checked(*world);
  if (checked.size > 1) met_ = meet(checked, timeout_, checks_ ? std::string(id_) + " that checks" : id_, threads_);
  if (checked.size == 1 && checked.listen_fd >= 0) ::close(checked.listen_fd);  // nobody will come
  world_ = checked;
}

void Side::host_all_reduce(int64_t* numbers, uint32_t n, uint32_t op) {
  constexpr const char* kName = "host_all_reduce";
  c10d::AllreduceOptions options;
  options.reduceOp = op_of(op, kName);
  need_open(kName);
  if (n > 0 && !numbers) throw Error(MORTISE_E_ARGUMENT, std::string(kName) + ": the numbers are NULL");
  if (n == 0) hear_of_lost(kName);
  need_all();
  if (n == 0 || is_alone()) return;
  must_be_alike(std::string("host_all_reduce, ") + op_name(op) + " of " + std::to_string(n) + " numbers");
  or_lost(kName, Clock::now(), [&] {
    std::vector<at::Tensor> one = {at::from_blob(numbers, {n}, at::TensorOptions().dtype(at::kLong))};
    met_.numbers->allreduce(one, options)->wait();
  });
}

// A rank hears of its neighbours alone, and others first: they have told it before they end what it is in.
void Side::hear_of_lost(const char* name) {
  await_verdict();
  const std::string found = met_.roll_call ? of_two_or(met_.roll_call->found()) : "";
  if (!found.empty()) lose(std::string(name) + ": " + found + kGone);
}

void Side::must_be_alike(const std::string& what, c10d::ProcessGroupGloo* group, const std::string& name) {
  if (!checks_ || is_alone()) return;
  const auto hash = static_cast<int64_t>(std::hash<std::string>()(what) >> 1);
  const at::Tensor ends = at::tensor({hash, -hash}, at::kLong);
  or_lost("check of " + what, Clock::now(), [&] {
    std::vector<at::Tensor> one = {ends};
    c10d::AllreduceOptions options;
    options.reduceOp = c10d::ReduceOp::MAX;
    (group ? *group : *met_.numbers).allreduce(one, options)->wait();
  });
  if (ends[0].item<int64_t>() != -ends[1].item<int64_t>())
    throw Error(MORTISE_E_ARGUMENT, "the ranks do not begin the same; this one: " + what + unlike(what, name));
}

// What another began instead, which all that compared it come to say; "": nobody comes.
std::string Side::unlike(const std::string& what, const std::string& group) {
  constexpr Milliseconds kSoon{1000};
  const auto said = std::make_shared<std::string>();
  const std::string place = "unlike/" + group + "/" + std::to_string(unlike_[group]++) + "/";
  const auto ask = [=, store = met_.asks, rank = world_->rank, size = world_->size] {
    const auto key = [&](int r) { return place + std::to_string(r); };
    store->set(key(rank), what);
    for (const Clock::time_point until = Clock::now() + kSoon; said->empty() && Clock::now() < until;) {
      for (int r = 0; r < size && said->empty(); ++r)
        if (r != rank && store->check({key(r)}) && store->get_to_str(key(r)) != what)
          *said = "; rank " + std::to_string(r) + ": " + store->get_to_str(key(r));
      if (said->empty()) std::this_thread::sleep_for(Milliseconds(20));
    }
  };
  try {
    within(kSoon, ask);
  } catch (const std::exception&) {
    return "";  // the thread that asks may still write
  }
  return *said;
}

void Side::share(mortise_str key, mortise_str text) {
  const std::string name(view(key));
  need_open("share");
  need_all();
  if (shared_.contains(name)) throw Error(MORTISE_E_ARGUMENT, "share: `" + name + "` was shared before");
  std::string all(view(text));
  if (!is_alone()) over_store("share", [=, store = met_.store] { store->set("text/" + name, all); });
  shared_.emplace(name, is_alone() ? std::move(all) : std::string());
}

void Side::fetch(mortise_str key, mortise_str* text) {
  const std::string name(view(key));
  need_open("fetch");
  if (!text) throw Error(MORTISE_E_ARGUMENT, "fetch: there is no place for the text");
  need_all();
  if (is_alone()) {
    const auto found = shared_.find(name);
    if (found == shared_.end()) throw Error(MORTISE_E_LOST, "fetch: nobody else is there to share `" + name + "`");
    fetched_ = found->second;
  } else {
    const auto got = std::make_shared<std::vector<uint8_t>>();
    over_store("fetch of `" + name + "`", [=, store = met_.store, limit = timeout_] {
      store->wait({"text/" + name}, limit);
      *got = store->get("text/" + name);
    });
    fetched_.assign(got->begin(), got->end());
  }
  *text = str(fetched_);
}

Side::Members Side::members_of(const int32_t* ranks, uint32_t n) {
  need_open("group");
  need_all();
  if (n == 0 || !ranks) throw Error(MORTISE_E_ARGUMENT, "group: no ranks are named");
  const std::vector<int> all(ranks, ranks + n);
  const std::string name = "group/" + std::to_string(groups_++) + "/" + std::to_string(all[0]);
  for (size_t i = 0; i < all.size(); ++i)
    if (all[i] < 0 || all[i] >= world_->size || std::find(all.begin(), all.begin() + i, all[i]) != all.begin() + i)
      throw Error(MORTISE_E_ARGUMENT, "group: rank " + std::to_string(all[i]) + " is named twice, or is none of " +
                                          std::to_string(world_->size));
  const auto own = std::ranges::find(all, world_->rank);
  if (own == all.end())
    throw Error(MORTISE_E_ARGUMENT, "group: rank " + std::to_string(world_->rank) + " is not among those it names");
  return {static_cast<int>(own - all.begin()), static_cast<int>(n), name};
}

std::string Side::said_by_first_of(const Members& some, const std::string& own) {
  const auto said = std::make_shared<std::string>(own);
  over_store("group", [=, store = met_.store, is_first = some.rank == 0, key = some.name + "/first", limit = timeout_] {
    if (is_first) return store->set(key, *said);
    store->wait({key}, limit);
    *said = store->get_to_str(key);
  });
  return *said;
}

void Side::connect_group(std::function<void()> connect) {
  or_lost("group", Clock::now(), [&] { within(timeout_, std::move(connect)); });
}

std::vector<std::string> Side::exchange(const std::string& key, const std::string& own) {
  const auto all = std::make_shared<std::vector<std::string>>();
  over_store("open", [=, store = met_.store, rank = world_->rank, size = world_->size, limit = timeout_] {
    const auto name = [&](int r) { return key + "/" + std::to_string(r); };
    store->set(name(rank), own);
    for (int r = 0; r < size; ++r) {
      store->wait({name(r)}, limit);
      all->push_back(store->get_to_str(name(r)));
    }
  });
  return std::move(*all);
}

void Side::need_open(const char* name) const {
  if (!world_) throw Error(MORTISE_E_ARGUMENT, std::string(name) + ": the ranks have not met yet (open)");
}

void Side::need_all() const {
  const std::lock_guard lock(lost_mutex_);
  if (!lost_.empty()) throw Error(MORTISE_E_LOST, lost_);
}

bool Side::is_lost() const {
  const std::lock_guard lock(lost_mutex_);
  return !lost_.empty();
}

void Side::lose(const std::string& text) {
  {
    const std::lock_guard lock(lost_mutex_);
    if (!lost_.empty()) return;
    lost_ = text;  // what went wrong first
  }
  give_up();
}

std::string Side::call_roll(const std::string& otherwise, Milliseconds patience) {
  const std::lock_guard lock(roll_call_mutex_);
  if (verdict_.empty()) verdict_ = of_two_or(asked_ranks(otherwise, patience));
  return verdict_;
}

// All notice at about the same time, and the store answers one after the other: the first few ask, and tell the others,
// which wait for it. False: it has waited.
bool Side::is_to_ask(Milliseconds limit) {
  const auto number = std::make_shared<int64_t>(0);
  within(limit, [=, store = met_.asks] { *number = store->add("askers", 1); }, {}, Milliseconds(0));
  if (*number <= kAskers) return true;
  for (const auto until = Clock::now() + limit; met_.roll_call->found().empty() && Clock::now() < until;)
    std::this_thread::sleep_for(Milliseconds(10));
  return false;
}

std::string Side::asked_ranks(const std::string& otherwise, Milliseconds patience) {
  constexpr Milliseconds kToTell{300};
  if (!met_.roll_call) return otherwise;
  if (const std::string found = met_.roll_call->found(); is_named(found)) return found;
  const auto lost = std::make_shared<std::string>();
  try {
    if (!otherwise.empty() && world_->size > kAskers + 1 && !is_to_ask(patience + kToTell))
      if (const std::string told = met_.roll_call->found(); !told.empty()) return told;
    const auto ask = [=, store = met_.asks, roll_call = met_.roll_call, size = world_->size] {
      *lost = roll_call->lost(*store, size, patience, otherwise);
    };
    within(patience, ask, {}, kToTell);
  } catch (const Error&) {
    return otherwise;
  } catch (const std::exception&) {  // rank 0 may have ended, for what it has told this one
    if (const std::string found = met_.roll_call->found(); !found.empty()) return found;
    return world_->rank > 0 ? "rank 0" : otherwise;  // the store, which is in it, does not answer
  }
  return *lost;
}

std::string Side::lost_ranks() { return call_roll(kSomeRank, Milliseconds(world_->size == 2 ? 200 : 1000)); }

std::string Side::of_two_or(const std::string& ranks) const {
  const bool is_clear = world_->size == 2 && !ranks.empty();
  return is_clear ? "rank " + std::to_string(1 - world_->rank) : ranks;
}

void Side::over_store(const std::string& name, std::function<void()> body) {
  try {
    or_lost(name, Clock::now(), [&] { within(timeout_, std::move(body)); });
  } catch (const std::exception& e) {
    const auto* own = dynamic_cast<const Error*>(&e);
    if (own && own->status() == MORTISE_E_MEMORY) throw;  // no thread was begun
    lose(name + ": " + e.what());                         // if it is not known yet
    met_.store.reset();                                   // a thread that was left behind may have it locked
    throw;
  }
}

namespace {

std::string goodbye(int rank) { return "goodbye/" + std::to_string(rank); }

// All have said it, but those that ended without it.
void wait_for_goodbyes(c10d::Store& store, int size, Milliseconds limit) {
  constexpr Milliseconds kSoon{1000};
  std::vector<std::string> keys;
  for (int r = 0; r < size; ++r) keys.push_back(goodbye(r));
  try {
    return store.wait(keys, std::min(kSoon, limit));
  } catch (const std::exception&) {  // ask those that are late
  }
  std::vector<int> late;
  for (int r = 0; r < size; ++r)
    if (!store.check({goodbye(r)})) late.push_back(r);
  const std::vector<int> absent = RollCall::absent(store, late, kSoon);
  std::erase_if(keys, [&](const std::string& key) { return std::ranges::find(absent, key, goodbye) != absent.end(); });
  store.wait(keys, limit);
}

}  // namespace

// The store ends with its server's process, and others may still fetch what was shared last: it waits for them, but
// not for one that is lost. Whoever knows of a loss only says it, to a server that may be the one that is stopped.
void Side::say_goodbye() noexcept {
  constexpr Milliseconds kMost{30'000}, kOfLost{200};
  try {
    const bool lost = is_lost();
    const Milliseconds limit = std::min(timeout_, lost ? kOfLost : kMost);
    const auto say = [store = met_.store, world = *world_, roll_call = std::move(met_.roll_call),
                      waits = met_.is_server && !lost, limit] {
      if (roll_call) roll_call->end(*store, limit);
      store->set(goodbye(world.rank), "1");
      if (waits) wait_for_goodbyes(*store, world.size, limit);
    };
    within(limit, say, {}, Milliseconds(lost ? 100 : 1000));
  } catch (const std::exception&) {  // they ended in another way
  }
}

}  // namespace mortise::comm
