// Lines of standard input, with a wait that Ctrl-C can end.
#pragma once

#include <optional>
#include <string>

#include "cli/interrupt.h"

namespace espalier {

class LineReader {
 public:
  // The guard must outlive the reader.
  explicit LineReader(InterruptGuard& interrupt) : interrupt_(&interrupt) {}

  // The next line without its end; nothing at the end of the input or when interrupted (ask the guard which).
  std::optional<std::string> next();

 private:
  InterruptGuard* interrupt_;
  std::string buffer_;
};

}  // namespace espalier
