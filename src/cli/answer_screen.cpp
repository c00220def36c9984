#include "cli/answer_screen.h"

#include "cli/output.h"

namespace espalier {

AnswerScreen::AnswerScreen(const InterruptGuard& interrupt, bool stream)
    : interrupt_(&interrupt), stream_(stream), bar_(std::in_place, "reading the prompt") {}

TextEvents AnswerScreen::events() {
  TextEvents events;
  events.cancelled = [this] { return interrupt_->interrupted(); };
  events.on_prefill = [this](std::int64_t done, std::int64_t total) {
    if (bar_) bar_->show(static_cast<double>(done) / static_cast<double>(total));
    if (done == total) bar_.reset();
  };
  if (stream_)
    events.on_text = [](std::string_view text) {
      print(text);
      flush_output();
    };
  return events;
}

}  // namespace espalier
