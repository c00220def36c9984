#include "eval/summary.h"

#include <algorithm>
#include <functional>
#include <iterator>

#include "base/untrusted_text.h"
#include "engine/near_tie.h"
#include "eval/turn_figures.h"

namespace espalier {
namespace {

double ratio_or_zero(double a, double b) {
  return b > 0 ? a / b : 0;
}

void add(const TurnSeconds& one, TurnSeconds& sum) {
  sum.prefill += one.prefill;
  sum.decode += one.decode;
}

std::string token_at(const std::vector<std::int32_t>& tokens, std::int64_t at, const std::string& finish) {
  if (at < static_cast<std::int64_t>(tokens.size())) return std::to_string(tokens[static_cast<std::size_t>(at)]);
  return fmt::format("the end ({})", finish);
}

// A number of every turn.
using TurnFigure = std::function<double(const TurnRecord&)>;

std::vector<double> figures_of(std::span<const TurnRecord> turns, const TurnFigure& figure) {
  std::vector<double> found;
  for (const TurnRecord& turn : turns) found.push_back(figure(turn));
  return found;
}

// A number that not every turn has.
template <typename Figure>
Distribution distribution(std::span<const TurnRecord> turns, const Figure& figure) {
  std::vector<double> found;
  for (const TurnRecord& turn : turns)
    if (const std::optional<double> value = figure(turn)) found.push_back(*value);
  return distribution_of(found);
}

// The sum of one over the sum of the other.
Estimate ratio_of_sums(std::span<const TurnRecord> turns, const TurnFigure& above, const TurnFigure& below) {
  if (turns.empty()) return {};
  const std::vector<double> numerators = figures_of(turns, above), denominators = figures_of(turns, below);
  return {ratio_or_zero(mean(numerators), mean(denominators)), ratio_interval(numerators, denominators)};
}

// Nothing is on a device that only stands in for another.
bool was_timed(const TurnSeconds& seconds) {
  return seconds.whole() > 0;
}

// `speed(turn)`: nothing, or the speed figures that are meant.
template <typename Speed>
SpeedDistributions speeds(std::span<const TurnRecord> turns, const Speed& speed) {
  const auto pick = [&](const auto& member) {
    return distribution(turns, [&](const TurnRecord& turn) -> std::optional<double> {
      const std::optional<SpeedFigures> figures = speed(turn);
      return figures ? std::optional<double>((*figures).*member) : std::nullopt;
    });
  };
  return {.tokens_per_second = pick(&SpeedFigures::tokens_per_second),
          .tpot = pick(&SpeedFigures::tpot),
          .ttft = pick(&SpeedFigures::ttft)};
}

std::optional<double> drift_of(const TurnRecord& turn) {
  if (!turn.baseline || !turn.baseline->retimed || turn.baseline->seconds.whole() <= 0) return std::nullopt;
  return turn.baseline->retimed->whole() / turn.baseline->seconds.whole();
}

std::optional<BaselineComparison> compare(std::span<const TurnRecord> turns) {
  BaselineComparison result;
  std::int64_t tokens = 0;
  for (const TurnRecord& turn : turns) {
    if (!turn.baseline) continue;
    ++result.turns;
    const auto difference = difference_text(turn);
    if (!difference) ++result.identical;
    if (is_near_tie(turn.baseline->margin)) {
      result.near_ties.push_back(*turn.baseline->margin);
    } else if (!result.difference) {
      result.difference = difference;
    }
    tokens += static_cast<std::int64_t>(turn.baseline->tokens.size());
    add(turn.baseline->seconds, result.seconds);
  }
  if (result.turns == 0) return std::nullopt;
  result.tokens_per_second = ratio_or_zero(static_cast<double>(tokens), result.seconds.whole());
  result.decode_tokens_per_second = ratio_or_zero(static_cast<double>(tokens - result.turns), result.seconds.decode);
  result.speeds = speeds(turns, [](const TurnRecord& turn) {
    return turn.baseline && was_timed(turn.baseline->seconds) ? std::optional(speed_of(*turn.baseline)) : std::nullopt;
  });
  result.speed_up = distribution(turns, speed_up);
  result.decode_speed_up = distribution(turns, decode_speed_up);
  result.drift = distribution(turns, drift_of);
  return result;
}

double rounds_of(const TurnRecord& turn) {
  return static_cast<double>(turn.accept_lengths.size());
}

double tokens_after_first(const TurnRecord& turn) {
  return rounds_of(turn) + static_cast<double>(accepted_of(turn));
}

Distribution accept_lengths(std::span<const TurnRecord> turns) {
  std::vector<double> rounds;
  for (const TurnRecord& turn : turns)
    rounds.insert(rounds.end(), turn.accept_lengths.begin(), turn.accept_lengths.end());
  Distribution all = distribution_of(rounds, {.resamples = 1});
  if (all.count > 0)
    all.interval = ratio_of_sums(
                       turns, [](const TurnRecord& turn) { return static_cast<double>(accepted_of(turn)); }, rounds_of)
                       .interval;
  return all;
}

// Guesses of this depth that were judged, and those that were accepted.
double reached_at(const TurnRecord& turn, std::size_t depth) {
  return depth <= turn.reached.size() ? static_cast<double>(turn.reached[depth - 1]) : 0;
}

double accepted_at(const TurnRecord& turn, std::size_t depth) {
  return static_cast<double>(std::ranges::count_if(
      turn.accept_lengths, [&](std::int64_t length) { return length >= static_cast<std::int64_t>(depth); }));
}

void add_accept_pos(std::span<const TurnRecord> turns, Summary& summary) {
  for (const TurnRecord& turn : turns) {
    summary.reached.resize(std::max(summary.reached.size(), turn.reached.size()));
    for (std::size_t i = 0; i < turn.reached.size(); ++i) summary.reached[i] += turn.reached[i];
  }
  for (std::size_t depth = 1; depth <= summary.reached.size(); ++depth)
    summary.accept_pos.push_back(ratio_of_sums(
        turns, [&](const TurnRecord& turn) { return accepted_at(turn, depth); },
        [&](const TurnRecord& turn) { return reached_at(turn, depth); }));
}

bool was_answered(const TurnRecord& turn) {
  return !turn.error;
}

// Of turns some of which failed.
Summary summarize_some(std::span<const TurnRecord> turns) {
  std::vector<TurnRecord> answered;
  std::ranges::copy_if(turns, std::back_inserter(answered), was_answered);
  Summary summary = summarize(answered);
  summary.failed = static_cast<std::int64_t>(turns.size() - answered.size());
  const TurnRecord& first = *std::ranges::find_if_not(turns, was_answered);
  summary.failure =
      fmt::format("prompt {}, turn {}: {}", in_quotes(text_of(first.prompt_id)), first.turn, *first.error);
  return summary;
}

}  // namespace

std::optional<std::string> difference_text(const TurnRecord& turn) {
  const auto at = turn.first_difference();
  if (!at) return std::nullopt;
  const std::string margin = turn.baseline->margin ? fmt::format(", margin {:.4f}", *turn.baseline->margin) : "";
  return fmt::format("prompt {}, turn {} differs at position {}: {} without, {} with speculation{}",
                     in_quotes(text_of(turn.prompt_id)), turn.turn, *at,
                     token_at(turn.baseline->tokens, *at, turn.baseline->finish_reason),
                     token_at(turn.tokens, *at, turn.finish_reason), margin);
}

Summary summarize(std::span<const TurnRecord> turns) {
  if (!std::ranges::all_of(turns, was_answered)) return summarize_some(turns);
  Summary summary;
  for (const TurnRecord& turn : turns) {
    ++summary.turns;
    summary.tokens += static_cast<std::int64_t>(turn.tokens.size());
    summary.rounds += static_cast<std::int64_t>(turn.accept_lengths.size());
    summary.drafted += accepted_of(turn);
    add(turn.seconds, summary.seconds);
    summary.stages += turn.stages;
  }
  summary.accept_length = accept_lengths(turns);
  summary.tau = ratio_of_sums(turns, tokens_after_first, rounds_of);
  add_accept_pos(turns, summary);
  summary.tokens_per_second = ratio_of_sums(
      turns, [](const TurnRecord& turn) { return static_cast<double>(turn.tokens.size()); },
      [](const TurnRecord& turn) { return turn.seconds.whole(); });
  summary.decode_tokens_per_second =
      ratio_of_sums(turns, tokens_after_first, [](const TurnRecord& turn) { return turn.seconds.decode; });
  summary.speeds = speeds(turns, [](const TurnRecord& turn) {
    return was_timed(turn.seconds) ? std::optional(speed_of(turn)) : std::nullopt;
  });
  summary.compared = compare(turns);
  return summary;
}

}  // namespace espalier
