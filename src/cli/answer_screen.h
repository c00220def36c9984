// Shows an answer while it is made: a bar while a long prompt is read, then the text as it comes. Ctrl-C ends it.
#pragma once

#include <optional>
#include <string_view>

#include "cli/interrupt.h"
#include "cli/progress.h"
#include "session/session.h"

namespace espalier {

class AnswerScreen {
 public:
  // The guard must outlive the screen. Without streaming only the bar is shown.
  AnswerScreen(const InterruptGuard& interrupt, bool stream);

  // Valid while the screen lives.
  TextEvents events();

 private:
  const InterruptGuard* interrupt_;
  bool stream_;
  std::optional<ProgressBar> bar_;
};

}  // namespace espalier
