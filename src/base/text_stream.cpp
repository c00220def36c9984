#include "base/text_stream.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace espalier {
namespace {

// True at the end.
bool read_some(int file, const std::filesystem::path& path, std::string& text) {
  char part[1 << 16];
  const ssize_t count = ::read(file, part, sizeof part);
  if (count < 0 && errno == EINTR) return false;
  if (count < 0) input_error("{}: cannot read: {}", path.string(), std::strerror(errno));
  text.append(part, static_cast<std::size_t>(count));
  return count == 0;
}

}  // namespace

std::string read_text_stream(const std::filesystem::path& path, std::size_t max_bytes) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY);
  if (file < 0) input_error("{}: cannot open: {}", path.string(), std::strerror(errno));
  std::string text;
  try {
    while (!read_some(file, path, text))
      if (text.size() > max_bytes) input_error("{}: too large: at most {} bytes expected", path.string(), max_bytes);
  } catch (...) {
    ::close(file);
    throw;
  }
  ::close(file);
  return text;
}

}  // namespace espalier
