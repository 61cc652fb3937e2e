#include "meeting.hpp"

#include <netdb.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <c10/util/Logging.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <atomic>
#include <cstdio>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

namespace mortise::comm {
namespace {

constexpr const char* kNameIt =
    "name rank 0's host by an address that every host has for it, such as its IP address (MASTER_ADDR)";

bool is_loopback(const std::string& host) { return host.starts_with("127.") || host == "::1"; }

// The address of this host from which it reaches rank 0's, and by which the others reach it. A UDP socket that is
// connected sends nothing: the kernel picks the interface.
std::string own_address(const World& world) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_DGRAM;
  if (const int e = ::getaddrinfo(world.address.c_str(), std::to_string(world.port).c_str(), &hints, &found))
    throw Error(MORTISE_E_IO, "open: nothing is known of the host `" + world.address + "`: " + ::gai_strerror(e),
                kNameIt);
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> all(found, ::freeaddrinfo);
  for (const addrinfo* a = all.get(); a; a = a->ai_next) {
    const int fd = ::socket(a->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;
    sockaddr_storage own{};
    socklen_t length = sizeof own;
    auto* const at = reinterpret_cast<sockaddr*>(&own);
    char name[NI_MAXHOST];
    const bool is_known = ::connect(fd, a->ai_addr, a->ai_addrlen) == 0 && ::getsockname(fd, at, &length) == 0 &&
                          ::getnameinfo(at, length, name, sizeof name, nullptr, 0, NI_NUMERICHOST) == 0;
    ::close(fd);
    if (is_known) return name;
  }
  throw Error(MORTISE_E_IO, "open: no interface of this host leads to `" + world.address + "`", kNameIt);
}

c10::intrusive_ptr<c10d::Store> open_store(const World& world, bool is_server, Milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = world.port;
  options.isServer = is_server;
  options.waitWorkers = false;  // `await_all` does, and knows who is missing
  options.timeout = timeout;
  if (is_server && world.listen_fd >= 0) options.masterListenFd = world.listen_fd;
  return c10::make_intrusive<c10d::TCPStore>(world.address, options);
}

// Until every rank has come as far as this.
void await_all(c10d::Store& store, const char* stage, const std::string& id, const World& world, Milliseconds timeout) {
  std::vector<std::string> keys;
  for (int r = 0; r < world.size; ++r) keys.push_back(std::string(stage) + "/" + std::to_string(r));
  store.set(keys[static_cast<size_t>(world.rank)], id);
  try {
    store.wait(keys, timeout);
  } catch (const std::exception&) {
    std::string missing;
    for (int r = 0; r < world.size; ++r)
      if (!store.check({keys[static_cast<size_t>(r)]})) missing += (missing.empty() ? "" : ", ") + std::to_string(r);
    if (missing.empty()) throw;
    throw Error(MORTISE_E_LOST,
                "open: of " + std::to_string(world.size) + " ranks these did not come within " + seconds(timeout) +
                    ": " + missing,
                "what these say is the reason; if they say nothing, start all ranks together, where each reaches " +
                    world.address + " port " + std::to_string(world.port));
  }
}

// Of the ranks that have come `here`.
void must_be_the_same(c10d::Store& store, const std::string& id, const World& world) {
  for (int r = 0; r < world.size; ++r)
    if (const std::string other = store.get_to_str("here/" + std::to_string(r)); other != id)
      throw Error(MORTISE_E_CONFIG,
                  "open: rank " + std::to_string(r) + " came with " + other + ", rank " + std::to_string(world.rank) +
                      " with " + id,
                  "the same [comm.…] in the manifest, the same devices and the same WORLD_SIZE for every rank");
}

}  // namespace

World::World(const mortise_world& w)
    : rank(w.rank), size(w.size), local_size(w.local_size), port(static_cast<uint16_t>(w.port)), listen_fd(w.listen_fd),
      address(view(w.address)) {
  const auto refuse = [](const std::string& what) { throw Error(MORTISE_E_ARGUMENT, "open: " + what); };
  if (size < 1 || rank < 0 || rank >= size)
    refuse("there is no rank " + std::to_string(rank) + " of " + std::to_string(size));
  if (size == 1) return;
  if (w.port < 1 || w.port > 65535) refuse("there is no port " + std::to_string(w.port));
  if (address.empty()) refuse("the address of rank 0 is empty");
}

c10::intrusive_ptr<c10d::ProcessGroupGloo> open_group(const c10::intrusive_ptr<c10d::Store>& store,
                                                      const std::string& address, const std::string& name, int rank,
                                                      int size, int threads, Milliseconds timeout) {
  const auto options = c10d::ProcessGroupGloo::Options::create(timeout);
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(address));
  options->threads = threads;
  return c10::make_intrusive<c10d::ProcessGroupGloo>(c10::make_intrusive<c10d::PrefixStore>(name, store), rank, size,
                                                     options);
}

// Files, the store's connections and those of two groups. What lacks one of them later knows no rank to blame, or ends
// the process.
static void need_files(const World& world) {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  const auto need = static_cast<rlim_t>(64 + (world.rank == 0 ? 5 : 2) * world.size);
  if (files.rlim_cur < need)
    throw Error(MORTISE_E_MEMORY,
                "open: this process may open " + std::to_string(files.rlim_cur) + " files, and rank " +
                    std::to_string(world.rank) + " of " + std::to_string(world.size) + " needs some " +
                    std::to_string(need),
                "ulimit -n " + std::to_string(std::max<rlim_t>(1024, need)));
}

Meeting meet(const World& world, Milliseconds timeout, const std::string& id, int threads) {
  need_files(world);
  const std::string own = own_address(world);
  if (is_loopback(own) && world.local_size < world.size)
    throw Error(MORTISE_E_CONFIG,
                "open: " + std::to_string(world.local_size) + " of " + std::to_string(world.size) +
                    " ranks are on this host (LOCAL_WORLD_SIZE, WORLD_SIZE), and those of other hosts do not reach " +
                    own + ", which `" + world.address + "` is here",
                kNameIt);
  const auto began = Clock::now();
  const std::string here = id + " of " + std::to_string(world.size) + " ranks";
  const auto made = std::make_shared<Meeting>();
  const auto has_store = std::make_shared<std::atomic<bool>>(false);
  made->is_server = world.rank == 0;
  made->address = own;
  try {
    const auto meet_all = [=] {
      const auto left = [=] {
        return std::max(Milliseconds(1), std::chrono::ceil<Milliseconds>(began + timeout - Clock::now()));
      };
      made->store = open_store(world, made->is_server, timeout);
      *has_store = true;
      const std::string rank = std::to_string(world.rank);
      if (made->store->add("processes/" + rank, 1) > 1)
        throw Error(MORTISE_E_CONFIG, "open: another process is rank " + rank + " too", "a RANK of its own for each");
      await_all(*made->store, "here", here, world, left());
      must_be_the_same(*made->store, here, world);
      made->own = open_group(made->store, own, "own", world.rank, world.size, threads, timeout);
      made->numbers = open_group(made->store, own, "numbers", world.rank, world.size, 1, timeout);
      made->roll_call = std::make_shared<RollCall>(open_store(world, /*is_server=*/false, timeout), world.rank);
      made->asks = open_store(world, /*is_server=*/false, timeout);
      await_all(*made->store, "met", id, world, left());  // who is done leaves nobody that still connects to it
    };
    within(timeout, meet_all, [&] {
      log_line(MORTISE_LOG_INFO, "rank " + std::to_string(world.rank) + " waits for the other ranks at " +
                                     world.address + " port " + std::to_string(world.port) + ", " + seconds(timeout) +
                                     " at most");
    });
  } catch (const Error&) {
    throw;
  } catch (const std::exception& e) {
    const std::string after = " " + seconds(Clock::now() - began) + " after it began: " + plain(e);
    const std::string place = world.address + " port " + std::to_string(world.port);
    if (*has_store)
      throw Error(MORTISE_E_LOST, "open: a rank ended, or did not answer," + after,
                  "what that rank says is the reason");
    if (made->is_server)
      throw Error(
          MORTISE_E_IO, "open: rank 0 cannot listen at " + place + ": " + plain(e),
          "an address of this host (MASTER_ADDR), and a port that nobody has (MASTER_PORT), the same for all ranks");
    throw Error(MORTISE_E_LOST, "open: rank 0 does not answer at " + place + "," + after,
                "what rank 0 says is the reason; if it says nothing, every host must reach this place (MASTER_ADDR, "
                "MASTER_PORT, a firewall)");
  }
  return std::move(*made);
}

namespace {
struct Level {
  std::mutex mutex;
  int quiet = 0, before = 0;
};
Level& level() {
  static auto& one = *new Level;  // a thread that stays behind may end after everything else
  return one;
}
}  // namespace

Quiet::Quiet() {
  const std::lock_guard lock(level().mutex);
  if (level().quiet++ == 0) level().before = std::exchange(FLAGS_caffe2_log_level, c10::GLOG_FATAL);
}

Quiet::~Quiet() {
  const std::lock_guard lock(level().mutex);
  if (--level().quiet == 0) FLAGS_caffe2_log_level = level().before;
}

void within(Milliseconds limit, std::function<void()> body, const std::function<void()>& after_a_while,
            Milliseconds patience) {
  const Quiet quiet;
  const auto until = Clock::now() + limit + patience;
  std::packaged_task<void()> task(std::move(body));
  std::future<void> done = task.get_future();
  with_threads([&] {
    std::thread([task = std::move(task)]() mutable {
      take_no_signals();
      task();
    }).detach();
    constexpr Milliseconds kAWhile{10'000};
    if (after_a_while && kAWhile < limit && done.wait_for(kAWhile) != std::future_status::ready) after_a_while();
    if (done.wait_until(until) != std::future_status::ready) throw std::runtime_error("no answer came");
    done.get();
  });
}

bool ends_soon(std::function<void()> end) {
  // What does not end at once never does; and a rank that has no connection with the lost one hears of it when this
  // process ends, as do others from that one.
  constexpr Milliseconds kLimit{300};
  try {
    within(kLimit, std::move(end), {}, Milliseconds(0));
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

void with_threads(const std::function<void()>& body) {
  try {
    body();
  } catch (const std::system_error& e) {
    if (e.code() != std::errc::resource_unavailable_try_again) throw;
    throw Error(MORTISE_E_MEMORY, std::string("no thread can be started: ") + e.what(),
                "a higher limit of processes and threads (ulimit -u, or that of the container)");
  }
}

void take_no_signals() {
  sigset_t all;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
}

std::string seconds(Clock::duration time) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", std::chrono::duration<double>(time).count());
  return text;
}

std::string plain(const std::exception& e) {
  const auto* of_torch = dynamic_cast<const c10::Error*>(&e);  // its `what` has the stack
  std::string text = of_torch ? of_torch->what_without_backtrace() : e.what();
  for (const char* end : {"\n", ". This may", ". This is", ". Original exception", "Exception raised from"})
    text.erase(std::min(text.find(end), text.size()));
  // "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:538] "
  for (size_t from; (from = text.find("[/")) != std::string::npos;) {
    const size_t to = text.find("] ", from);
    if (to == std::string::npos) break;
    text.erase(from, to + 2 - from);
  }
  constexpr size_t kMost = 160;
  if (text.size() > kMost) text = text.substr(0, text.find_last_of(' ', kMost)) + " …";
  return text.empty() ? "no more is known" : text;
}

}  // namespace mortise::comm
