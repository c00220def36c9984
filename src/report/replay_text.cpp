#include "report/replay_text.h"

#include <fmt/ranges.h>

#include "text/token_text.h"

namespace espalier {
namespace {

// "tokens 3 12 7"; a round that failed at once has none.
std::string outcome_text(const RoundOutcome& outcome) {
  std::string text = outcome.tokens.empty() ? "no tokens" : fmt::format("tokens {}", fmt::join(outcome.tokens, " "));
  if (outcome.error) text += fmt::format(", then: {}", *outcome.error);
  return text;
}

// The token of the answer at a place of the round, or its end.
std::string token_of_outcome(const RoundOutcome& outcome, std::size_t index) {
  if (index < outcome.tokens.size()) return std::to_string(outcome.tokens[index]);
  return outcome.end ? fmt::format("the end ({})", name(*outcome.end)) : "none";
}

std::string replay_verdict(const FailureDump& dump, const DumpReplay& replay) {
  if (replay.difference)
    return fmt::format("reproduced: token {} of the answer is {} with speculation, {} without",
                       dump.answered.size() + *replay.difference,
                       token_of_outcome(replay.speculative, *replay.difference),
                       token_of_outcome(*replay.plain, *replay.difference));
  if (replay.reproduced) return "reproduced: the same error";
  if (replay.speculative.error || (replay.plain && replay.plain->error)) return "not reproduced: another error";
  return replay.plain ? "not reproduced: both routes give the same tokens" : "not reproduced: no error";
}

}  // namespace

std::string dump_line(const FailureDump& dump) {
  return fmt::format("prompt {}, turn {}, round {}, {}: {}\n", quoted_token(text_of(dump.prompt_id)), dump.turn,
                     dump.round, dump.stage, dump.error);
}

std::string replay_text(const FailureDump& dump, const DumpReplay& replay) {
  std::string text = fmt::format("{}: {}\n", dump.tree ? "with the tree" : "again", outcome_text(replay.speculative));
  if (replay.plain) text += fmt::format("without: {}\n", outcome_text(*replay.plain));
  return text + replay_verdict(dump, replay) + "\n";
}

std::string replayed_turn_line(std::int64_t index, const TracedTurn& turn,
                               const std::optional<TurnDifference>& difference) {
  const std::string place =
      fmt::format("turn {} (prompt {}, turn {})", index, quoted_token(text_of(turn.prompt_id)), turn.turn);
  if (!difference) return fmt::format("{}: {} rounds identical\n", place, turn.rounds.size());
  const std::string round = difference->round ? fmt::format("round {}: ", *difference->round) : "";
  return fmt::format("{}: DIFFERS: {}{}\n", place, round, difference->what);
}

}  // namespace espalier
