#include "terminal/line_reader.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "terminal/line_editor.h"

namespace espalier {
namespace {

constexpr std::size_t kMostOfALine = 4095;  // Linux' terminals, canonical mode

std::string whole_line(std::string line, int input) {
  if (line.size() >= kMostOfALine && isatty(input) != 0)
    throw LineCut(
        fmt::format("the terminal hands over {} bytes of a line at most: send it as several lines between "
                    "three quotes, or through a pipe",
                    kMostOfALine));
  if (line.ends_with('\r')) line.pop_back();
  return line;
}

}  // namespace

std::optional<std::string> LineReader::next(std::string_view prompt) {
  if (terminal_->people) terminal_->print(prompt);
  const int input = fileno(terminal_->in);
  while (true) {
    if (const std::size_t end = buffer_.find('\n'); end != std::string::npos) {
      std::string line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      return whole_line(std::move(line), input);
    }
    if (!interrupt_->wait_for_input(input)) return std::nullopt;
    char part[4096];
    const ssize_t count = read(input, part, sizeof part);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) input_error("standard input: cannot read: {}", std::strerror(errno));
    if (count == 0 && buffer_.empty()) return std::nullopt;
    if (count == 0) return std::exchange(buffer_, {});  // a last line without its end
    buffer_.append(part, static_cast<std::size_t>(count));
  }
}

std::unique_ptr<LineSource> make_line_source(const ChatTerminal& terminal, InterruptSource& interrupt) {
  if (terminal.people && terminal.editable) return std::make_unique<LineEditor>(terminal, interrupt);
  return std::make_unique<LineReader>(terminal, interrupt);
}

}  // namespace espalier
