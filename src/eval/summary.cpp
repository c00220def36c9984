#include "eval/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "format/untrusted_text.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

double ratio(double a, double b) {
  return b > 0 ? a / b : 0;
}

double share(std::int64_t a, std::int64_t b) {
  return ratio(static_cast<double>(a), static_cast<double>(b));
}

void add(const TurnSeconds& one, TurnSeconds& sum) {
  sum.prefill += one.prefill;
  sum.decode += one.decode;
}

void add(const RoundTimes& one, RoundTimes& sum) {
  sum.draft += one.draft;
  sum.prepare += one.prepare;
  sum.verify += one.verify;
  sum.accept += one.accept;
  sum.commit += one.commit;
}

void add(std::span<const std::int64_t> one, std::vector<std::int64_t>& sum) {
  sum.resize(std::max(sum.size(), one.size()));
  for (std::size_t i = 0; i < one.size(); ++i) sum[i] += one[i];
}

std::string token_at(const std::vector<std::int32_t>& tokens, std::int64_t at, const std::string& finish) {
  if (at < static_cast<std::int64_t>(tokens.size())) return std::to_string(tokens[static_cast<std::size_t>(at)]);
  return fmt::format("the end ({})", finish);
}

std::string difference_text(const TurnRecord& turn, std::int64_t at) {
  return fmt::format("prompt {}, turn {} differs at position {}: {} without, {} with speculation",
                     in_quotes(text_of(turn.prompt_id)), turn.turn, at,
                     token_at(turn.baseline->tokens, at, turn.baseline->finish_reason),
                     token_at(turn.tokens, at, turn.finish_reason));
}

// A mean over the turns that have a ratio.
struct MeanRatio {
  double sum = 0;
  std::int64_t count = 0;

  void push(double a, double b) {
    if (!(a > 0 && b > 0)) return;
    sum += a / b;
    ++count;
  }
  double mean() const { return ratio(sum, static_cast<double>(count)); }
};

std::optional<BaselineComparison> compare(std::span<const TurnRecord> turns) {
  BaselineComparison result;
  std::int64_t tokens = 0;
  MeanRatio whole, decode;
  for (const TurnRecord& turn : turns) {
    if (!turn.baseline) continue;
    ++result.turns;
    const auto difference = turn.first_difference();
    if (!difference) ++result.identical;
    if (difference && !result.difference) result.difference = difference_text(turn, *difference);
    tokens += static_cast<std::int64_t>(turn.baseline->tokens.size());
    add(turn.baseline->seconds, result.seconds);
    whole.push(turn.baseline->seconds.whole(), turn.seconds.whole());
    if (turn.tokens.size() > 1) decode.push(turn.baseline->seconds.decode, turn.seconds.decode);
  }
  if (result.turns == 0) return std::nullopt;
  result.tokens_per_second = ratio(static_cast<double>(tokens), result.seconds.whole());
  result.decode_tokens_per_second = ratio(static_cast<double>(tokens - result.turns), result.seconds.decode);
  result.speed_up = whole.mean();
  result.decode_speed_up = decode.mean();
  return result;
}

Json comparison_json(const BaselineComparison& compared) {
  Json object = {{"turns", compared.turns}, {"identical", compared.identical}, {"first_difference", nullptr}};
  if (compared.difference) object["first_difference"] = *compared.difference;
  object["seconds"] = {{"prefill", compared.seconds.prefill}, {"decode", compared.seconds.decode}};
  object["tokens_per_second"] = compared.tokens_per_second;
  object["decode_tokens_per_second"] = compared.decode_tokens_per_second;
  object["speed_up"] = compared.speed_up;
  object["decode_speed_up"] = compared.decode_speed_up;
  return object;
}

std::string verdict(const Summary& summary) {
  if (!summary.compared)
    return fmt::format("{} turns, not compared with plain decoding (--baseline does)", summary.turns);
  const BaselineComparison& compared = *summary.compared;
  const std::string line = fmt::format("{} of {} turns identical", compared.identical, compared.turns);
  return compared.difference ? line + ": " + *compared.difference : line;
}

std::string row(std::string_view label, const std::string& value) {
  return fmt::format("{:<22}{}\n", label, value);
}

std::string speed_rows(const Summary& summary) {
  if (!summary.compared)
    return row("tokens per second", fmt::format("{:.1f}; {:.1f} from the first token on", summary.tokens_per_second,
                                                summary.decode_tokens_per_second));
  const BaselineComparison& compared = *summary.compared;
  return fmt::format("{:<22}{:>10}{:>10}{:>12}\n", "", "without", "with", "mean ratio") +
         fmt::format("{:<22}{:>10.1f}{:>10.1f}{:>11.2f}x\n", "tokens per second", compared.tokens_per_second,
                     summary.tokens_per_second, compared.speed_up) +
         fmt::format("{:<22}{:>10.1f}{:>10.1f}{:>11.2f}x\n", "after the first token", compared.decode_tokens_per_second,
                     summary.decode_tokens_per_second, compared.decode_speed_up);
}

}  // namespace

Summary summarize(std::span<const TurnRecord> turns) {
  Summary summary;
  std::vector<std::int64_t> accepted;  // by depth
  for (const TurnRecord& turn : turns) {
    ++summary.turns;
    summary.tokens += static_cast<std::int64_t>(turn.tokens.size());
    summary.rounds += static_cast<std::int64_t>(turn.accept_lengths.size());
    for (std::int64_t length : turn.accept_lengths) {
      summary.drafted += length;
      add(std::vector<std::int64_t>(static_cast<std::size_t>(length), 1), accepted);
    }
    add(turn.reached, summary.reached);
    add(turn.seconds, summary.seconds);
    add(turn.stages, summary.stages);
  }
  accepted.resize(summary.reached.size());
  for (std::size_t i = 0; i < accepted.size(); ++i)
    summary.accept_pos.push_back(share(accepted[i], summary.reached[i]));
  summary.accept_length = share(summary.drafted, summary.rounds);
  summary.tau = summary.rounds == 0 ? 0 : summary.accept_length + 1;
  summary.tokens_per_second = ratio(static_cast<double>(summary.tokens), summary.seconds.whole());
  summary.decode_tokens_per_second =
      ratio(static_cast<double>(summary.rounds + summary.drafted), summary.seconds.decode);
  summary.compared = compare(turns);
  return summary;
}

Json to_json(const Summary& summary) {
  Json object = {{"turns", summary.turns},
                 {"tokens", summary.tokens},
                 {"rounds", summary.rounds},
                 {"accept_L", summary.accept_length},
                 {"tau", summary.tau},
                 {"accept_pos", summary.accept_pos},
                 {"reached", summary.reached},
                 {"seconds", {{"prefill", summary.seconds.prefill}, {"decode", summary.seconds.decode}}},
                 {"stages",
                  {{"draft", summary.stages.draft},
                   {"prepare", summary.stages.prepare},
                   {"verify", summary.stages.verify},
                   {"accept", summary.stages.accept},
                   {"commit", summary.stages.commit}}},
                 {"tokens_per_second", summary.tokens_per_second},
                 {"decode_tokens_per_second", summary.decode_tokens_per_second},
                 {"baseline", nullptr}};
  if (summary.compared) object["baseline"] = comparison_json(*summary.compared);
  return object;
}

std::string summary_text(const Summary& summary) {
  std::string text = verdict(summary) + "\n";
  text += row("tokens", fmt::format("{} in {} verify steps", summary.tokens, summary.rounds));
  text += row("tau", fmt::format("{:.3f} (accept_L {:.3f})", summary.tau, summary.accept_length));
  if (!summary.accept_pos.empty()) {
    std::string shares;
    for (double pos : summary.accept_pos) shares += fmt::format("{}{:.2f}", shares.empty() ? "" : " ", pos);
    text += row("accept_pos by depth", shares);
  }
  return text + speed_rows(summary);
}

}  // namespace espalier
