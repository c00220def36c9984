#include "trace/trace_diff.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/untrusted_text.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

// What was found so far; only something worse replaces it.
class Verdict {
 public:
  template <typename... Args>
  void find(DifferenceKind kind, std::optional<std::int64_t> round, fmt::format_string<Args...> format,
            Args&&... args) {
    if (kind <= found_.kind) return;
    found_ = {.kind = kind, .round = round, .what = fmt::format(format, std::forward<Args>(args)...)};
  }
  const TraceDifference& found() const { return found_; }

 private:
  TraceDifference found_;
};

// Whether rows were chosen, and how many; estimates of seconds are times.
bool same_choice(const std::optional<TracedBudget>& a, const std::optional<TracedBudget>& b) {
  if (!a || !b) return a.has_value() == b.has_value();
  return a->drafted == b->drafted && a->step_rows == b->step_rows;
}

bool same_estimates(const std::optional<TracedBudget>& a, const std::optional<TracedBudget>& b) {
  return !a || !b || a->step_seconds == b->step_seconds;
}

// Traces that were written before turns named their set do not differ from those that do.
bool other_prompt(const TracedTurn& left, const TracedTurn& right) {
  const bool other_set = !left.set.empty() && !right.set.empty() && left.set != right.set;
  return other_set || left.prompt_id != right.prompt_id || left.turn != right.turn;
}

std::string place_of(const TracedTurn& turn) {
  const std::string set = turn.set.empty() ? "" : " of " + in_quotes(turn.set);
  return fmt::format("prompt {}{}, turn {}", in_quotes(text_of(turn.prompt_id)), set, turn.turn);
}

std::string token_at(const std::vector<std::int32_t>& tokens, std::size_t at) {
  return at < tokens.size() ? std::to_string(tokens[at]) : "the end";
}

void compare_answers(const TracedTurn& left, const TracedTurn& right, Verdict& verdict) {
  if (other_prompt(left, right)) verdict.find(DifferenceKind::tokens, {}, "{} and {}", place_of(left), place_of(right));
  if (left.prompt != right.prompt) verdict.find(DifferenceKind::tokens, {}, "other tokens in the prompt");
  if (left.tokens != right.tokens) {
    const auto at =
        static_cast<std::size_t>(std::ranges::mismatch(left.tokens, right.tokens).in1 - left.tokens.begin());
    std::optional<std::int64_t> round;
    if (const auto index = left.round_of_token(at)) round = static_cast<std::int64_t>(*index);
    verdict.find(DifferenceKind::tokens, round, "token {} of the answer: {} and {}", at, token_at(left.tokens, at),
                 token_at(right.tokens, at));
  }
  if (left.finish_reason != right.finish_reason)
    verdict.find(DifferenceKind::tokens, {}, "finished by {} and {}", left.finish_reason, right.finish_reason);
}

void compare_rounds(const TracedRound& left, const TracedRound& right, Verdict& verdict) {
  if (left.tree != right.tree)
    verdict.find(DifferenceKind::trees, left.number, "trees of {} and {} rows", left.tree.size(), right.tree.size());
  if (left.visits != right.visits)
    verdict.find(DifferenceKind::trees, left.number, "{} and {} drafted tokens accepted", left.accepted(),
                 right.accepted());
  if (left.kv != right.kv)
    verdict.find(DifferenceKind::trees, left.number, "{} and {} KV bytes copied", left.kv.branched + left.kv.committed,
                 right.kv.branched + right.kv.committed);
  if (left.form.mask != right.form.mask || left.form.attention != right.form.attention)
    verdict.find(DifferenceKind::trees, left.number, "{} attention with {} mask and {} with {}",
                 name(left.form.attention), name(left.form.mask), name(right.form.attention), name(right.form.mask));
  if (!same_choice(left.budget, right.budget))
    verdict.find(DifferenceKind::trees, left.number, "another choice of rows");
  if (left.times != right.times || !same_estimates(left.budget, right.budget))
    verdict.find(DifferenceKind::times, left.number, "stage times");
}

}  // namespace

std::string_view name(DifferenceKind kind) {
  switch (kind) {
    case DifferenceKind::none: return "none";
    case DifferenceKind::times: return "times";
    case DifferenceKind::trees: return "trees";
    case DifferenceKind::tokens: return "tokens";
  }
  return "unknown";
}

TraceDifference compare_turns(const TracedTurn& left, const TracedTurn& right) {
  Verdict verdict;
  compare_answers(left, right, verdict);
  const std::size_t rounds = std::min(left.rounds.size(), right.rounds.size());
  for (std::size_t i = 0; i < rounds; ++i) compare_rounds(left.rounds[i], right.rounds[i], verdict);
  if (left.rounds.size() != right.rounds.size())
    verdict.find(DifferenceKind::trees, static_cast<std::int64_t>(rounds), "{} and {} rounds", left.rounds.size(),
                 right.rounds.size());
  if (left.prefill_seconds != right.prefill_seconds || left.decode_seconds != right.decode_seconds)
    verdict.find(DifferenceKind::times, {}, "seconds of the turn");
  return verdict.found();
}

TraceComparison compare_traces(TraceReader& left, TraceReader& right) {
  TraceComparison comparison;
  TraceDifference& worst = comparison.difference;
  while (true) {
    const auto a = left.next(), b = right.next();
    if (!a && !b) return comparison;
    TraceDifference found;
    if (!a || !b) {
      found.kind = DifferenceKind::tokens;
      found.what = fmt::format("the {} trace has no more turns", a ? "second" : "first");
    } else {
      found = compare_turns(*a, *b);
      ++comparison.turns;
      comparison.equal_tokens += found.kind < DifferenceKind::tokens ? 1 : 0;
    }
    found.index = std::max(left.turns(), right.turns());
    if (found.kind > worst.kind) worst = found;
    if (!a || !b) return comparison;
  }
}

Json to_json(const TraceComparison& comparison) {
  const TraceDifference& difference = comparison.difference;
  Json object = {{"difference", name(difference.kind)},
                 {"turns", comparison.turns},
                 {"equal_tokens", comparison.equal_tokens},
                 {"first", nullptr}};
  if (difference.kind == DifferenceKind::none) return object;
  object["first"] = {{"turn", difference.index},
                     {"round", difference.round ? Json(*difference.round) : Json()},
                     {"what", difference.what}};
  return object;
}

std::string comparison_text(const TraceComparison& comparison) {
  const TraceDifference& difference = comparison.difference;
  const std::string counts =
      fmt::format("{} of {} turns have the same tokens", comparison.equal_tokens, comparison.turns);
  if (difference.kind == DifferenceKind::none) return counts + "; nothing differs\n";
  std::string place = fmt::format("turn {}", difference.index);
  if (difference.round) place += fmt::format(", round {}", *difference.round);
  return fmt::format("{}; {} differ{}, first in {}: {}\n", counts, name(difference.kind),
                     difference.kind == DifferenceKind::times ? " only" : "", place, difference.what);
}

}  // namespace espalier
