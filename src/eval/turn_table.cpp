#include "eval/turn_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "eval/turn_figures.h"

namespace espalier {
namespace {

constexpr const char* kHeadline =
    "set,prompt_id,turn,prompt_tokens,tokens,finish_reason,rounds,accept_L,tau,seconds,tokens_per_second,tpot,ttft,"
    "baseline_seconds,baseline_tokens_per_second,baseline_tpot,baseline_ttft,speed_up,equal\n";

std::string number_field(const std::optional<double>& number) {
  return number ? fmt::format("{}", *number) : "";
}

std::string speed_fields(const TurnSeconds& seconds, const SpeedFigures& speed) {
  return fmt::format("{},{},{},{}", seconds.whole(), number_field(speed.tokens_per_second), number_field(speed.tpot),
                     speed.ttft);
}

std::string line(const TurnRecord& turn) {
  const std::string fields[] = {csv_field(turn.set),
                                csv_field(text_of(turn.prompt_id)),
                                std::to_string(turn.turn),
                                std::to_string(turn.prompt.size()),
                                std::to_string(turn.tokens.size()),
                                csv_field(turn.finish_reason),
                                std::to_string(turn.accept_lengths.size()),
                                number_field(accept_length_of(turn)),
                                number_field(tau_of(turn)),
                                turn.error ? ",,," : speed_fields(turn.seconds, speed_of(turn)),
                                turn.baseline ? speed_fields(turn.baseline->seconds, speed_of(*turn.baseline)) : ",,,",
                                number_field(speed_up(turn)),
                                !turn.baseline            ? ""
                                : turn.first_difference() ? "false"
                                                          : "true"};
  return fmt::format("{}\n", fmt::join(fields, ","));
}

}  // namespace

std::string turns_csv(std::span<const TurnRecord> turns) {
  std::string text = kHeadline;
  for (const TurnRecord& turn : turns) text += line(turn);
  return text;
}

std::string csv_field(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

}  // namespace espalier
