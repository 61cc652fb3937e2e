#include "core/store/hash.hpp"

#include <fcntl.h>
#include <openssl/sha.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

namespace mortise {

constexpr size_t kBuffer = size_t{1} << 17;

// The small interface, which needs no providers and starts at once; CMakeLists.txt asks for it by the version that it
// is of.
struct Sha256::State {
  SHA256_CTX context;
};

Sha256::Sha256() : state_(std::make_unique<State>()) { SHA256_Init(&state_->context); }
Sha256::~Sha256() = default;

void Sha256::add(const void* data, size_t bytes) { SHA256_Update(&state_->context, data, bytes); }

std::string Sha256::hex() {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256_Final(digest, &state_->context);
  std::string text;
  for (const unsigned char byte : digest)
    for (const int digit : {byte >> 4, byte & 15}) text += "0123456789abcdef"[digit];
  return text;
}

std::string sha256_of(const void* data, size_t bytes) {
  Sha256 hash;
  hash.add(data, bytes);
  return hash.hex();
}

std::string sha256_of_file(const std::string& path, ProgressLine* progress) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return "";
  Sha256 hash;
  std::vector<char> buffer(kBuffer);
  ssize_t n = 0;
  while ((n = ::read(fd, buffer.data(), buffer.size())) != 0) {
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) break;
    hash.add(buffer.data(), static_cast<size_t>(n));
    if (progress) progress->add(static_cast<uint64_t>(n));
  }
  ::close(fd);
  return n < 0 ? "" : hash.hex();
}

std::string sha256_of_file(RunFile& file, ProgressLine* progress) {
  Sha256 hash;
  std::vector<char> buffer(kBuffer);
  while (const size_t n = file.read(buffer.data(), buffer.size())) {
    hash.add(buffer.data(), n);
    if (progress) progress->add(n);
  }
  return hash.hex();
}

}  // namespace mortise
