#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/untrusted_text.h"
#include "cli/commands.h"
#include "cli/environment.h"
#include "cli/output.h"
#include "cli/terminal.h"
#include "engine/answer_json.h"
#include "engine/recorded_run.h"
#include "report/tree_picture.h"
#include "text/token_text.h"
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

// Ids as text where a model's tokenizer is at hand, else as numbers.
class PieceWords {
 public:
  PieceWords(const TraceHeader& header, const ShowFlags& flags) {
    try {
      text_ = load_model_text(
          recorded_model(configuration_of(header), flags.model, flags.file, user_cache_folder(process_environment)));
    } catch (const InputError&) {
      if (!flags.model.empty()) throw;  // ids will do where nobody asked for words
    }
  }

  // The bytes of a token.
  std::string operator()(std::int32_t token) const {
    if (!text_ || token >= text_->tokenizer->vocabulary_size()) return std::to_string(token);
    return text_->tokenizer->bytes(token, false);
  }
  // All of them on one line.
  std::string line(std::span<const std::int32_t> tokens) const {
    std::string text;
    for (std::int32_t token : tokens) text += (text_ || text.empty() ? "" : " ") + (*this)(token);
    return quoted_token(text);
  }

 private:
  std::optional<ModelText> text_;
};

std::string turn_line(std::int64_t index, const TracedTurn& turn) {
  TraceStats stats;
  stats.add(turn);
  return fmt::format("{:>4}  {:<20} {:>4} {:>7} {:>7} {:>7} {:>9.2f} {:>6.1f}  {:<9} {:>8.3f} s  {}\n", index,
                     cut_to_width(quoted_token(text_of(turn.prompt_id)), 20), turn.turn, turn.prompt.size(),
                     turn.tokens.size(), turn.rounds.size(), stats.accept_length(), stats.mean_rows(),
                     turn.finish_reason, turn.prefill_seconds + turn.decode_seconds,
                     turn.set.empty() ? "-" : cut_to_width(quoted_token(turn.set), 20));
}

std::string turn_titles() {
  return fmt::format("{:>4}  {:<20} {:>4} {:>7} {:>7} {:>7} {:>9} {:>6}  {:<9} {:>8}    {}\n", "", "prompt", "turn",
                     "prompt", "tokens", "rounds", "accept_L", "rows", "finish", "", "set");
}

std::string round_line(const TracedRound& round, const PieceWords& words, int width) {
  std::vector<std::int32_t> choices;
  for (const Visit& visit : round.visits) choices.push_back(visit.token);
  const std::string figures =
      fmt::format("{:>6} {:>7} {:>5} {:>6} {:>9} {:>10.3f}  ", round.number, round.prefix, round.tree.size(),
                  round.tree.depth(), round.accepted(), round.times.sum() * 1000);
  return figures + cut_to_width(words.line(choices), std::max(10, width - display_width(figures))) + "\n";
}

std::string turn_text(std::int64_t index, const TracedTurn& turn, const PieceWords& words) {
  const int width = screen_width();
  std::string text = turn_titles() + turn_line(index, turn) + "\n";
  text += "prompt  " + cut_front_to_width(words.line(turn.prompt), width - 8) + "\n";
  text += "answer  " + cut_to_width(words.line(turn.tokens), width - 8) + "\n\n";
  text += fmt::format("{:>6} {:>7} {:>5} {:>6} {:>9} {:>10}  {}\n", "round", "prefix", "rows", "levels", "accepted",
                      "ms", "tokens");
  for (const TracedRound& round : turn.rounds) text += round_line(round, words, width);
  return text;
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

std::string round_text(const TracedTurn& turn, const TracedRound& round, const PieceWords& words,
                       const ShowFlags& flags, const std::vector<std::string>& drafters) {
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
  return render_tree_text(picture, {.width = screen_width(), .colour = stdout_wants_colour(flags.colour)}) +
         round_facts(round);
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
  const PieceWords words(reader.header(), flags);
  const TracedTurn turn = find_turn(reader, flags);
  if (!flags.round) {
    print(turn_text(reader.turns(), turn, words));
  } else {
    if (*flags.round >= static_cast<std::int64_t>(turn.rounds.size()))
      input_error("--round: expected less than {}, the rounds of turn {}, got {}", turn.rounds.size(), reader.turns(),
                  *flags.round);
    print(round_text(turn, turn.rounds[static_cast<std::size_t>(*flags.round)], words, flags,
                     recorded_drafters(configuration_of(reader.header()))));
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
