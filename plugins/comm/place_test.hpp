// What the tests of comm.gloo and comm.nccl share.
#pragma once
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <functional>
#include <iostream>

namespace mortise::testing {

// Where the ranks meet: a port of this host that nobody else has, with a socket that listens there.
struct Place {
  Place() : fd(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof at;
    auto* const any = reinterpret_cast<sockaddr*>(&at);
    if (::bind(fd, any, length) || ::listen(fd, 64) || ::getsockname(fd, any, &length)) std::abort();
    port = ntohs(at.sin_port);
  }
  ~Place() { ::close(fd); }
  int fd, port;
};

// The child ends with 0 if no expectation of `body` failed.
inline pid_t fork_into(const std::function<void()>& body) {
  std::cout.flush();
  const pid_t child = ::fork();
  if (child != 0) return child;
  ::alarm(60);
  try {
    body();
  } catch (const std::exception& e) {
    ADD_FAILURE() << e.what();
  }
  std::cout.flush();
  ::_exit(::testing::Test::HasFailure());
}

}  // namespace mortise::testing
