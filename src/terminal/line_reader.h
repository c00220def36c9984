// Lines that somebody types or pipes in.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "terminal/chat_terminal.h"

namespace espalier {

// A terminal without an editor hands over only so much of a line; the rest is lost.
struct LineCut : InputError {
  using InputError::InputError;
};

class LineSource {
 public:
  virtual ~LineSource() = default;
  // The next line without its end; nothing at the end of the input or when interrupted (ask the guard which). A text
  // that was pasted is one line, however many it has. The prompt is for people.
  virtual std::optional<std::string> next(std::string_view prompt) = 0;
};

// The input as it comes, with a wait that Ctrl-C can end. Lines may end in \r\n. Throws LineCut, and goes on with
// the next line; InputError where the input cannot be read.
class LineReader final : public LineSource {
 public:
  // Both must outlive the reader.
  LineReader(const ChatTerminal& terminal, InterruptSource& interrupt) : terminal_(&terminal), interrupt_(&interrupt) {}
  std::optional<std::string> next(std::string_view prompt) override;

 private:
  const ChatTerminal* terminal_;
  InterruptSource* interrupt_;
  std::string buffer_;
};

// An editor where a terminal can have one, else lines as they come. Both must outlive it.
std::unique_ptr<LineSource> make_line_source(const ChatTerminal& terminal, InterruptSource& interrupt);

}  // namespace espalier
