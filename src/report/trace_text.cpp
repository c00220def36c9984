#include "report/trace_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "text/token_text.h"
#include "trace/trace_stats.h"

namespace espalier {
namespace {

std::string round_line(const TracedRound& round, const TraceWords& words, int width) {
  std::vector<std::int32_t> choices;
  for (const Visit& visit : round.visits) choices.push_back(visit.token);
  const std::string figures =
      fmt::format("{:>6} {:>7} {:>5} {:>6} {:>9} {:>10.3f}  ", round.number, round.prefix, round.tree.size(),
                  round.tree.depth(), round.accepted(), round.times.sum() * 1000);
  return figures + cut_to_width(words.line(choices), std::max(10, width - display_width(figures))) + "\n";
}

std::string round_facts(const TracedRound& round) {
  const RoundTimes& times = round.times;
  std::string text =
      fmt::format("\n{} attention, {} mask; KV bytes copied: {} for the branch, {} by the commit\n",
                  name(round.form.attention), name(round.form.mask), round.kv.branched, round.kv.committed);
  // The stages of a round that stayed on the device are one recording.
  text += round.resident
              ? fmt::format("ms: on the device {:.3f}, accept {:.3f}, commit {:.3f}\n", times.verify * 1000,
                            times.accept * 1000, times.commit * 1000)
              : fmt::format("ms: draft {:.3f}, prepare {:.3f}, verify {:.3f}, accept {:.3f}, commit {:.3f}\n",
                            times.draft * 1000, times.prepare * 1000, times.verify * 1000, times.accept * 1000,
                            times.commit * 1000);
  if (round.budget)
    text +=
        fmt::format("chosen rows: {} in the step, estimated at {:.3f} ms, one row at {:.3f} ms{}\n",
                    round.budget->step_rows, round.budget->seconds_of(round.budget->step_rows) * 1000,
                    round.budget->seconds_of(1) * 1000, round.budget->drafted ? "" : "; the drafters were not asked");
  return text;
}

}  // namespace

std::string TraceWords::operator()(std::int32_t token) const {
  if (!text_ || token >= text_->tokenizer->vocabulary_size()) return std::to_string(token);
  return text_->tokenizer->bytes(token, false);
}

std::string TraceWords::line(std::span<const std::int32_t> tokens) const {
  std::string text;
  for (std::int32_t token : tokens) text += (text_ || text.empty() ? "" : " ") + (*this)(token);
  return quoted_token(text);
}

std::string turn_titles() {
  return fmt::format("{:>4}  {:<20} {:>4} {:>7} {:>7} {:>7} {:>9} {:>6}  {:<9} {:>8}    {}\n", "", "prompt", "turn",
                     "prompt", "tokens", "rounds", "accept_L", "rows", "finish", "", "set");
}

std::string turn_line(std::int64_t index, const TracedTurn& turn) {
  TraceStats stats;
  stats.add(turn);
  return fmt::format("{:>4}  {:<20} {:>4} {:>7} {:>7} {:>7} {:>9.2f} {:>6.1f}  {:<9} {:>8.3f} s  {}\n", index,
                     cut_to_width(quoted_token(text_of(turn.prompt_id)), 20), turn.turn, turn.prompt.size(),
                     turn.tokens.size(), turn.rounds.size(), stats.accept_length(), stats.mean_rows(),
                     turn.finish_reason, turn.prefill_seconds + turn.decode_seconds,
                     turn.set.empty() ? "-" : cut_to_width(quoted_token(turn.set), 20));
}

std::string turn_text(std::int64_t index, const TracedTurn& turn, const TraceWords& words, int width) {
  std::string text = turn_titles() + turn_line(index, turn) + "\n";
  text += "prompt  " + cut_front_to_width(words.line(turn.prompt), width - 8) + "\n";
  text += "answer  " + cut_to_width(words.line(turn.tokens), width - 8) + "\n\n";
  text += fmt::format("{:>6} {:>7} {:>5} {:>6} {:>9} {:>10}  {}\n", "round", "prefix", "rows", "levels", "accepted",
                      "ms", "tokens");
  for (const TracedRound& round : turn.rounds) text += round_line(round, words, width);
  return text;
}

std::string round_text(const TracedTurn& turn, const TracedRound& round, const TraceWords& words,
                       std::span<const std::string> drafters, const TerminalStyle& style) {
  const Round drawn{.number = round.number,
                    .prefix = round.prefix,
                    .tree = round.tree,
                    .visits = round.visits,
                    .finish = round.finish.empty() ? std::nullopt : std::optional(FinishReason::stop_token),
                    .times = round.times};
  TreePicture picture = picture_of(
      drawn, [&](std::int32_t token) { return words(token); }, drafters);
  const auto before = static_cast<std::size_t>(round.prefix) - turn.prompt.size();
  picture.before = before == 0 ? "the prompt" : words.line(std::span(turn.tokens).first(before));
  return render_tree_text(picture, style) + round_facts(round);
}

}  // namespace espalier
