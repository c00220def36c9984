// Lines typed at a terminal, edited as people expect: arrows, history, UTF-8 and wide characters. A pasted text is one
// line, however many it has and however long it is (the terminal marks pastes: "bracketed paste"). libedit does the
// editing; keys reach it through its own hook, so that Ctrl-C ends a wait. The terminal is as it was between lines.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "terminal/line_reader.h"

namespace espalier {

class LineEditor final : public LineSource {
 public:
  // Both must outlive the editor.
  LineEditor(const ChatTerminal& terminal, InterruptSource& interrupt);
  ~LineEditor() override;
  std::optional<std::string> next(std::string_view prompt) override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// What a terminal sent between the marks of a paste, as it is meant: lines end in \n, other control characters are gone
// and so is an end of the last line.
std::wstring tidy_paste(std::wstring_view pasted);

}  // namespace espalier
