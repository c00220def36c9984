#include "cli/line_reader.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "cli/environment.h"
#include "cli/line_editor.h"
#include "cli/output.h"

namespace espalier {
namespace {

constexpr std::size_t kMostOfALine = 4095;  // Linux' terminals, canonical mode

std::string whole_line(std::string line) {
  if (line.size() >= kMostOfALine && isatty(STDIN_FILENO) != 0)
    throw LineCut(
        fmt::format("the terminal hands over {} bytes of a line at most: send it as several lines between "
                    "three quotes, or through a pipe",
                    kMostOfALine));
  if (line.ends_with('\r')) line.pop_back();
  return line;
}

}  // namespace

std::optional<std::string> LineReader::next(std::string_view prompt) {
  if (at_terminal()) {
    print(prompt);
    flush_output();
  }
  while (true) {
    if (const std::size_t end = buffer_.find('\n'); end != std::string::npos) {
      std::string line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      return whole_line(std::move(line));
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

bool at_terminal() {
  return isatty(STDIN_FILENO) != 0 && isatty(STDOUT_FILENO) != 0;
}

std::unique_ptr<LineSource> make_line_source(InterruptGuard& interrupt) {
  const std::string terminal = process_environment("TERM").value_or("");
  if (!at_terminal() || terminal.empty() || terminal == "dumb") return std::make_unique<LineReader>(interrupt);
  return std::make_unique<LineEditor>(interrupt);
}

}  // namespace espalier
