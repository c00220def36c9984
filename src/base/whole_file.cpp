#include "base/whole_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/temporary_file.h"

namespace espalier {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path) {
  device_error("{}: cannot write: {}", path.string(), std::strerror(errno));
}

}  // namespace

void write_all(int file, std::string_view bytes, const std::filesystem::path& path) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(file, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EPIPE && path == "-") throw OutputClosed();
    if (count < 0) fail(path);
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
}

void write_whole_file(const std::filesystem::path& path, std::string_view text, Durability durability) {
  TemporaryFile temporary(path);
  write_all(temporary.descriptor(), text, path);
  // Some file systems tell only now that the disk is full.
  if (durability == Durability::durable && ::fsync(temporary.descriptor()) != 0) fail(path);
  temporary.replace(path);
}

}  // namespace espalier
