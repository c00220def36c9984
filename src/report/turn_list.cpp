#include "report/turn_list.h"

#include "eval/turn_figures.h"
#include "text/token_text.h"

namespace espalier {
namespace {

constexpr int kBeginning = 40;  // columns of a prompt that are shown

// The beginning of a text on one line.
std::string beginning(std::string_view text) {
  std::string line;
  for (const char c : text) {
    const bool space = c == ' ' || (c >= '\t' && c <= '\r');
    if (!space) line += c;
    if (space && !line.empty() && line.back() != ' ') line += ' ';
  }
  while (line.ends_with(' ')) line.pop_back();
  return cut_to_width(line, kBeginning);
}

Cell count_cell(std::size_t count) {
  return number_cell(static_cast<double>(count), 0);
}

Cell cell_of(const std::optional<double>& number) {
  return number ? number_cell(*number) : Cell{};
}

std::vector<Cell> row_of(std::size_t number, const ReportRun& run, const TurnRecord& turn) {
  const std::optional<SpeedFigures> baseline = turn.baseline ? std::optional(speed_of(*turn.baseline)) : std::nullopt;
  return {count_cell(number),
          text_cell(run.label),
          text_cell(text_of(turn.prompt_id)),
          number_cell(static_cast<double>(turn.turn), 0),
          text_cell(beginning(turn.user)),
          count_cell(turn.prompt.size()),
          count_cell(turn.tokens.size()),
          text_cell(turn.finish_reason),
          count_cell(turn.accept_lengths.size()),
          cell_of(accept_length_of(turn)),
          cell_of(baseline ? baseline->tokens_per_second : std::nullopt),
          cell_of(speed_of(turn).tokens_per_second),
          cell_of(speed_up(turn)),
          text_cell(!turn.baseline            ? ""
                    : turn.first_difference() ? "false"
                                              : "true")};
}

}  // namespace

Table turn_table(std::span<const ReportSource> sources) {
  Table table{.id = "turns",
              .columns = {"#", "run", "prompt", "turn", "begins with", "prompt tokens", "tokens", "finish", "rounds",
                          "accept_L", "baseline Tok/s", "Tok/s", "speed-up", "identical"}};
  for (const ReportSource& source : sources)
    for (const ReportRun& run : source.runs)
      for (const TurnRecord& turn : run.turns) table.add(row_of(table.rows.size() + 1, run, turn));
  return table;
}

}  // namespace espalier
