// How a summary is written: as summary.json, and as the table on the screen.
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "eval/summary.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

Json speeds_json(const SpeedDistributions& speeds) {
  return {{"tokens_per_second", to_json(speeds.tokens_per_second)},
          {"tpot", to_json(speeds.tpot)},
          {"ttft", to_json(speeds.ttft)}};
}

double largest_of(const std::vector<double>& margins) {
  double largest = 0;
  for (const double margin : margins) largest = std::max(largest, std::fabs(margin));
  return largest;
}

// Each of them where they are few.
std::string margins_text(const std::vector<double>& margins) {
  constexpr std::size_t kFew = 8;
  if (margins.size() > kFew) return fmt::format("margins up to {:.4f}", largest_of(margins));
  return fmt::format("{} {:.4f}", margins.size() == 1 ? "margin" : "margins", fmt::join(margins, ", "));
}

Json comparison_json(const BaselineComparison& compared) {
  Json object = {{"turns", compared.turns}, {"identical", compared.identical}, {"first_difference", nullptr}};
  if (compared.difference) object["first_difference"] = *compared.difference;
  if (!compared.near_ties.empty())
    object["near_ties"] = {{"turns", compared.near_ties.size()},
                           {"largest_margin", largest_of(compared.near_ties)},
                           {"margins", compared.near_ties}};
  object["seconds"] = to_json(compared.seconds);
  object["tokens_per_second"] = compared.tokens_per_second;
  object["decode_tokens_per_second"] = compared.decode_tokens_per_second;
  object["speed_up"] = compared.speed_up.mean;
  object["decode_speed_up"] = compared.decode_speed_up.mean;
  object["per_turn"] = speeds_json(compared.speeds);
  object["per_turn"]["speed_up"] = to_json(compared.speed_up);
  object["per_turn"]["decode_speed_up"] = to_json(compared.decode_speed_up);
  object["drift"] = compared.drift.count > 0 ? to_json(compared.drift) : Json();
  return object;
}

Json intervals_json(const Summary& summary) {
  Json by_depth = Json::array();
  for (const Estimate& share : summary.accept_pos) by_depth.push_back(to_json(share.interval));
  return {{"accept_L", to_json(summary.accept_length.interval)},
          {"tau", to_json(summary.tau.interval)},
          {"accept_pos", by_depth},
          {"tokens_per_second", to_json(summary.tokens_per_second.interval)},
          {"decode_tokens_per_second", to_json(summary.decode_tokens_per_second.interval)}};
}

std::string verdict(const Summary& summary) {
  if (!summary.compared)
    return fmt::format("{} turns, not compared with plain decoding (--baseline does)", summary.turns);
  const BaselineComparison& compared = *summary.compared;
  std::string line = fmt::format("{} of {} turns identical", compared.identical, compared.turns);
  if (const std::vector<double>& margins = compared.near_ties; !margins.empty())
    line += fmt::format(", {} {} ({})", margins.size(),
                        margins.size() == 1 ? "parts at a near-tie" : "part at near-ties", margins_text(margins));
  return compared.difference ? line + ": " + *compared.difference : line;
}

std::string row(std::string_view label, const std::string& value) {
  return fmt::format("{:<22}{}\n", label, value);
}

// None where nothing was timed.
std::string speed_rows(const Summary& summary) {
  if (summary.turns > 0 && summary.seconds.whole() <= 0) return "";
  if (!summary.compared)
    return row("tokens per second",
               fmt::format("{:.1f}; {:.1f} from the first token on", summary.tokens_per_second.value,
                           summary.decode_tokens_per_second.value));
  const BaselineComparison& compared = *summary.compared;
  return fmt::format("{:<22}{:>10}{:>10}{:>12}\n", "", "without", "with", "mean ratio") +
         fmt::format("{:<22}{:>10.1f}{:>10.1f}{:>11.2f}x\n", "tokens per second", compared.tokens_per_second,
                     summary.tokens_per_second.value, compared.speed_up.mean) +
         fmt::format("{:<22}{:>10.1f}{:>10.1f}{:>11.2f}x\n", "after the first token", compared.decode_tokens_per_second,
                     summary.decode_tokens_per_second.value, compared.decode_speed_up.mean);
}

// `scale`: seconds are shown in milliseconds.
std::string distribution_row(std::string_view label, const Distribution& figure, double scale = 1) {
  if (figure.count == 0) return "";
  return fmt::format("{:<22}{:>10.2f}{:>20}{:>10.2f}{:>10.2f}{:>10.2f}\n", label, scale * figure.mean,
                     fmt::format("[{:.2f}, {:.2f}]", scale * figure.interval.low, scale * figure.interval.high),
                     scale * figure.p50, scale * figure.p90, scale * figure.p99);
}

std::string distribution_rows(const Summary& summary) {
  if (summary.turns == 0) return "";
  std::string text =
      fmt::format("{:<22}{:>10}{:>20}{:>10}{:>10}{:>10}\n", "by turn", "mean", "95 %", "p50", "p90", "p99");
  if (summary.compared) text += distribution_row("speed-up", summary.compared->speed_up);
  text += distribution_row("tokens per second", summary.speeds.tokens_per_second);
  text += distribution_row("TPOT, ms", summary.speeds.tpot, 1e3);
  text += distribution_row("TTFT, ms", summary.speeds.ttft, 1e3);
  text += distribution_row("accept_L, by round", summary.accept_length);
  if (summary.compared) text += distribution_row("baseline drift", summary.compared->drift);
  return text;
}

}  // namespace

Json to_json(const Summary& summary) {
  std::vector<double> accept_pos;
  for (const Estimate& share : summary.accept_pos) accept_pos.push_back(share.value);
  Json object = {{"turns", summary.turns},
                 {"failed", summary.failed},
                 {"first_failure", nullptr},
                 {"tokens", summary.tokens},
                 {"rounds", summary.rounds},
                 {"accept_L", summary.accept_length.mean},
                 {"tau", summary.tau.value},
                 {"accept_pos", accept_pos},
                 {"reached", summary.reached},
                 {"seconds", to_json(summary.seconds)},
                 {"stages",
                  {{"draft", summary.stages.draft},
                   {"prepare", summary.stages.prepare},
                   {"verify", summary.stages.verify},
                   {"accept", summary.stages.accept},
                   {"commit", summary.stages.commit}}},
                 {"tokens_per_second", summary.tokens_per_second.value},
                 {"decode_tokens_per_second", summary.decode_tokens_per_second.value},
                 {"tokens_per_second_in_all", nullptr},
                 {"intervals", intervals_json(summary)},
                 {"per_turn", speeds_json(summary.speeds)},
                 {"per_round", {{"accept_L", to_json(summary.accept_length)}}},
                 {"baseline", nullptr}};
  if (summary.failure) object["first_failure"] = *summary.failure;
  if (summary.tokens_per_second_in_all) object["tokens_per_second_in_all"] = *summary.tokens_per_second_in_all;
  if (summary.compared) object["baseline"] = comparison_json(*summary.compared);
  return object;
}

std::string summary_text(const Summary& summary) {
  std::string text = verdict(summary) + "\n";
  if (summary.failed > 0)
    text += row("failed turns", fmt::format("{}; the first: {}", summary.failed, *summary.failure));
  text += row("tokens", fmt::format("{} in {} verify steps", summary.tokens, summary.rounds));
  text += row("tau", fmt::format("{:.3f} (accept_L {:.3f})", summary.tau.value, summary.accept_length.mean));
  if (!summary.accept_pos.empty()) {
    std::string shares;
    for (const Estimate& pos : summary.accept_pos)
      shares += fmt::format("{}{:.2f}", shares.empty() ? "" : " ", pos.value);
    text += row("accept_pos by depth", shares);
  }
  text += speed_rows(summary);
  if (summary.tokens_per_second_in_all)
    text += row("in all", fmt::format("{:.1f} tokens per second", *summary.tokens_per_second_in_all));
  return text + distribution_rows(summary);
}

}  // namespace espalier
