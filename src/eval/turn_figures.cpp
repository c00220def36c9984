#include "eval/turn_figures.h"

#include <numeric>

namespace espalier {
namespace {

std::optional<double> positive_ratio(double a, double b) {
  return a > 0 && b > 0 ? std::optional(a / b) : std::nullopt;
}

}  // namespace

SpeedFigures speed_of(const TurnSeconds& seconds, std::size_t tokens) {
  SpeedFigures figures{.ttft = seconds.prefill};
  figures.tokens_per_second = positive_ratio(static_cast<double>(tokens), seconds.whole());
  if (tokens > 1) figures.tpot = seconds.decode / static_cast<double>(tokens - 1);
  return figures;
}

SpeedFigures speed_of(const TurnRecord& turn) {
  return speed_of(turn.seconds, turn.tokens.size());
}

SpeedFigures speed_of(const BaselineTurn& turn) {
  return speed_of(turn.seconds, turn.tokens.size());
}

std::optional<double> speed_up(const TurnRecord& turn) {
  if (!turn.baseline) return std::nullopt;
  return positive_ratio(turn.baseline->seconds.whole(), turn.seconds.whole());
}

std::optional<double> decode_speed_up(const TurnRecord& turn) {
  if (!turn.baseline || turn.tokens.size() < 2) return std::nullopt;
  return positive_ratio(turn.baseline->seconds.decode, turn.seconds.decode);
}

std::int64_t accepted_of(const TurnRecord& turn) {
  return std::accumulate(turn.accept_lengths.begin(), turn.accept_lengths.end(), std::int64_t{0});
}

std::optional<double> accept_length_of(const TurnRecord& turn) {
  if (turn.accept_lengths.empty()) return std::nullopt;
  return static_cast<double>(accepted_of(turn)) / static_cast<double>(turn.accept_lengths.size());
}

std::optional<double> tau_of(const TurnRecord& turn) {
  const auto accepted = accept_length_of(turn);
  return accepted ? std::optional(*accepted + 1) : std::nullopt;
}

}  // namespace espalier
