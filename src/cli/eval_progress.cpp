#include "cli/eval_progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

namespace espalier {
namespace {

constexpr auto kBetweenLines = std::chrono::seconds(30);  // where nothing can be drawn again

}  // namespace

std::string eval_progress_line(std::int64_t done, std::int64_t turns, std::int64_t here, double elapsed,
                               double tokens_per_second) {
  const double each = here == 0 ? 0 : elapsed / static_cast<double>(here);
  return fmt::format("{} of {} turns, {:.1f} s each, {:.1f} tokens/s, {} left", done, turns, each, tokens_per_second,
                     duration_text(each * static_cast<double>(turns - done)));
}

EvalProgress::EvalProgress() : terminal_(isatty(STDERR_FILENO) != 0) {}

void EvalProgress::begin(std::int64_t turns, std::int64_t finished) {
  turns_ = turns;
  finished_ = finished;
  start_ = shown_ = Clock::now();
  here_ = tokens_ = 0;
  seconds_ = 0;
}

void EvalProgress::end() {
  if (std::exchange(drawn_, false)) std::fputs("\r\x1b[K", stderr);
}

void EvalProgress::begin_part(const std::string& what, double seconds_left) {
  fmt::print(stderr, "{}: about {} left of the suite\n", what, duration_text(seconds_left));
}

void EvalProgress::answered(const TurnRecord& turn) {
  ++here_;
  tokens_ += static_cast<std::int64_t>(turn.tokens.size());
  seconds_ += turn.seconds.whole();
  const Clock::time_point now = Clock::now();
  if (!terminal_ && now - shown_ < kBetweenLines) return;
  shown_ = now;
  drawn_ = terminal_;
  const std::string line =
      eval_progress_line(finished_ + here_, turns_, here_, std::chrono::duration<double>(now - start_).count(),
                         seconds_ > 0 ? static_cast<double>(tokens_) / seconds_ : 0);
  fmt::print(stderr, "{}{}{}", terminal_ ? "\r" : "", line, terminal_ ? "\x1b[K" : "\n");
  std::fflush(stderr);
}

}  // namespace espalier
