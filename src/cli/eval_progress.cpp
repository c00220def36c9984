#include "cli/eval_progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

#include "cli/output.h"

namespace espalier {
namespace {

constexpr auto kBetweenTicks = std::chrono::seconds(1);
constexpr auto kBetweenLines = std::chrono::seconds(30);  // where nothing can be drawn again

}  // namespace

std::string eval_begin_line(std::int64_t done, std::int64_t turns, double elapsed) {
  return fmt::format("{} of {} turns, the next one for {}", done, turns, duration_text(elapsed));
}

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
  if (terminal_ && turns > finished) show(start_);
}

void EvalProgress::end() {
  turns_ = 0;
  if (std::exchange(drawn_, false)) std::fputs("\r\x1b[K", stderr);
}

void EvalProgress::begin_part(const std::string& what, double seconds_left) {
  tell(fmt::format("{}: about {} left of the suite\n", what, duration_text(seconds_left)));
}

void EvalProgress::answered(const TurnRecord& turn) {
  ++here_;
  tokens_ += static_cast<std::int64_t>(turn.tokens.size());
  seconds_ += turn.seconds.whole();
  const Clock::time_point now = Clock::now();
  if (terminal_ || now - shown_ >= kBetweenLines) show(now);
}

void EvalProgress::tick() {
  const Clock::time_point now = Clock::now();
  if (turns_ > 0 && now - shown_ >= (terminal_ ? kBetweenTicks : kBetweenLines)) show(now);
}

void EvalProgress::show(Clock::time_point now) {
  shown_ = now;
  drawn_ = terminal_;
  const double elapsed = std::chrono::duration<double>(now - start_).count();
  const std::string line = here_ == 0 ? eval_begin_line(finished_, turns_, elapsed)
                                      : eval_progress_line(finished_ + here_, turns_, here_, elapsed,
                                                           seconds_ > 0 ? static_cast<double>(tokens_) / seconds_ : 0);
  tell(fmt::format("{}{}{}", terminal_ ? "\r" : "", line, terminal_ ? "\x1b[K" : "\n"));
  std::fflush(stderr);
}

}  // namespace espalier
