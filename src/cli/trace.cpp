#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/environment.h"
#include "cli/output.h"
#include "cli/terminal.h"
#include "engine/answer_json.h"
#include "engine/recorded_run.h"
#include "report/trace_text.h"
#include "trace/trace_diff.h"
#include "trace/trace_file.h"
#include "trace/trace_stats.h"

namespace espalier {
namespace {

struct ShowFlags {
  std::string file = {};
  std::string model = {};
  std::optional<std::int64_t> turn = {};
  std::optional<std::int64_t> round = {};
  std::string colour = "auto";
};

struct StatsFlags {
  std::vector<std::string> files = {};
  bool json = false;
};

struct DiffFlags {
  std::string left = {};
  std::string right = {};
  bool json = false;
};

// To be called at the end of a trace.
void tell_truncated(const TraceReader& reader) {
  if (const auto note = reader.truncation()) tell(fmt::format("espalier: {}\n", *note));
}

nlohmann::ordered_json configuration_of(const TraceHeader& header) {
  return nlohmann::ordered_json::parse(header.origin.configuration);
}

TraceWords words_of(const TraceHeader& header, const ShowFlags& flags) {
  return TraceWords(
      recorded_text(configuration_of(header), flags.model, flags.file, user_cache_folder(process_environment)));
}

TracedTurn find_turn(TraceReader& reader, const ShowFlags& flags) {
  const std::int64_t wanted = flags.turn.value_or(1);
  std::optional<TracedTurn> turn;
  while (reader.turns() < wanted && (turn = reader.next())) {
  }
  if (!turn) {
    tell_truncated(reader);
    input_error("--turn: expected 1 to {}, the turns of {}, got {}", reader.turns(), flags.file, wanted);
  }
  return std::move(*turn);
}

int show_list(TraceReader& reader) {
  print(turn_titles());
  while (const auto turn = reader.next()) print(turn_line(reader.turns(), *turn));
  flush_output();
  tell_truncated(reader);
  return 0;
}

int run_show(const ShowFlags& flags) {
  TraceReader reader(flags.file);
  if (!flags.turn && !flags.round) return show_list(reader);
  const TraceWords words = words_of(reader.header(), flags);
  const TracedTurn turn = find_turn(reader, flags);
  if (!flags.round) {
    print(turn_text(reader.turns(), turn, words, screen_width()));
  } else {
    if (*flags.round >= static_cast<std::int64_t>(turn.rounds.size()))
      input_error("--round: expected less than {}, the rounds of turn {}, got {}", turn.rounds.size(), reader.turns(),
                  *flags.round);
    print(round_text(turn, turn.rounds[static_cast<std::size_t>(*flags.round)], words,
                     recorded_drafters(configuration_of(reader.header())),
                     {.width = screen_width(), .colour = stdout_wants_colour(flags.colour)}));
  }
  flush_output();
  return 0;
}

int run_stats(const StatsFlags& flags) {
  TraceStats stats;
  for (const std::string& file : flags.files) {
    TraceReader reader(file);
    while (const auto turn = reader.next()) stats.add(*turn);
    tell_truncated(reader);
  }
  print(flags.json ? json_text(to_json(stats)) : stats_text(stats));
  flush_output();
  return 0;
}

int run_diff(const DiffFlags& flags) {
  TraceReader left(flags.left), right(flags.right);
  const TraceComparison comparison = compare_traces(left, right);
  print(flags.json ? json_text(to_json(comparison)) : comparison_text(comparison));
  flush_output();
  tell_truncated(left);
  tell_truncated(right);
  return comparison.difference.kind == DifferenceKind::tokens ? 1 : 0;
}

std::shared_ptr<ShowFlags> add_show(CLI::App& app) {
  auto flags = std::make_shared<ShowFlags>();
  app.add_option("FILE", flags->file, "the trace")->required();
  app.add_option("--turn", flags->turn, "the rounds of this turn, from 1, in the order of the file")
      ->check(CLI::PositiveNumber)
      ->type_name("K");
  app.add_option("--round", flags->round, "the tree of this round, from 0; without --turn of the first turn")
      ->check(CLI::NonNegativeNumber)
      ->type_name("N");
  app.add_option("-m,--model", flags->model, "the model whose words the tokens are; without it the trace names it")
      ->type_name("PATH");
  app.add_option("--color", flags->colour, "auto (on a terminal, unless NO_COLOR is set), always or never")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->type_name("WHEN");
  return flags;
}

}  // namespace

Command add_trace(CLI::App& app) {
  CLI::App* trace = app.add_subcommand("trace", "look at the rounds that a run recorded (docs/traces.md)");
  trace->require_subcommand(1);
  CLI::App* show = trace->add_subcommand("show", "turns, the rounds of a turn, or the tree of a round");
  const auto show_flags = add_show(*show);
  CLI::App* stats = trace->add_subcommand("stats", "the figures of one or several traces, from their records");
  auto stats_flags = std::make_shared<StatsFlags>();
  stats->add_option("FILE", stats_flags->files, "the traces")->required();
  stats->add_flag("--json", stats_flags->json, "print one JSON object");
  CLI::App* diff =
      trace->add_subcommand("diff", "what differs between two traces: tokens (exit status 1), trees, times");
  auto diff_flags = std::make_shared<DiffFlags>();
  diff->add_option("A", diff_flags->left, "a trace")->required();
  diff->add_option("B", diff_flags->right, "the other one")->required();
  diff->add_flag("--json", diff_flags->json, "print one JSON object");
  return [=] {
    if (show->parsed()) return run_show(*show_flags);
    return stats->parsed() ? run_stats(*stats_flags) : run_diff(*diff_flags);
  };
}

}  // namespace espalier
