#include "cli/line_reader.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace espalier {

std::optional<std::string> LineReader::next() {
  while (true) {
    if (const std::size_t end = buffer_.find('\n'); end != std::string::npos) {
      std::string line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      return line;
    }
    if (!interrupt_->wait_for_input(STDIN_FILENO)) return std::nullopt;
    char part[4096];
    const ssize_t count = read(STDIN_FILENO, part, sizeof part);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) input_error("standard input: cannot read: {}", std::strerror(errno));
    if (count == 0 && buffer_.empty()) return std::nullopt;
    if (count == 0) return std::exchange(buffer_, {});  // a last line without its end
    buffer_.append(part, static_cast<std::size_t>(count));
  }
}

}  // namespace espalier
