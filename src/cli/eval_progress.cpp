#include "cli/eval_progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>

namespace espalier {
namespace {

constexpr auto kBetweenLines = std::chrono::seconds(30);  // where nothing can be drawn again

}  // namespace

std::string duration_text(double seconds) {
  const auto all = static_cast<std::int64_t>(std::llround(seconds));
  if (all < 60) return fmt::format("{} s", all);
  if (all < 3600) return fmt::format("{} min {} s", all / 60, all % 60);
  return fmt::format("{} h {} min", all / 3600, all % 3600 / 60);
}

std::string eval_progress_line(std::int64_t done, std::int64_t turns, std::int64_t here, double elapsed,
                               double tokens_per_second) {
  const double each = here == 0 ? 0 : elapsed / static_cast<double>(here);
  return fmt::format("{} of {} turns, {:.1f} s each, {:.1f} tokens/s, {} left", done, turns, each, tokens_per_second,
                     duration_text(each * static_cast<double>(turns - done)));
}

EvalProgress::EvalProgress(std::int64_t turns, std::int64_t finished)
    : turns_(turns), finished_(finished), terminal_(isatty(STDERR_FILENO) != 0) {}

EvalProgress::~EvalProgress() {
  if (drawn_) std::fputs("\r\x1b[K", stderr);
}

void EvalProgress::add(const TurnRecord& turn) {
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
