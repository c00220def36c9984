#include "base/whole_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace espalier {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path) {
  device_error("{}: cannot write: {}", path.string(), std::strerror(errno));
}

// Closed, and removed unless it was renamed.
struct TemporaryFile {
  std::filesystem::path path;
  int descriptor = -1;

  explicit TemporaryFile(const std::filesystem::path& target)
      : path(fmt::format("{}.{}.tmp", target.string(), getpid())),
        descriptor(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {}
  ~TemporaryFile() {
    if (descriptor < 0) return;
    ::close(descriptor);
    ::unlink(path.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
};

}  // namespace

void write_all(int file, std::string_view bytes, const std::filesystem::path& path) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(file, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(path);
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
}

void write_whole_file(const std::filesystem::path& path, std::string_view text) {
  const TemporaryFile temporary(path);
  if (temporary.descriptor < 0) fail(path);
  write_all(temporary.descriptor, text, path);
  // Some file systems tell only now that the disk is full.
  if (::fsync(temporary.descriptor) != 0 || ::rename(temporary.path.c_str(), path.c_str()) != 0) fail(path);
}

}  // namespace espalier
