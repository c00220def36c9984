#include "trace/replay.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/screen.h"
#include "engine/drafting.h"
#include "engine/recorded_run.h"
#include "report/replay_text.h"
#include "trace/trace_file.h"

namespace espalier {
namespace {

struct ReplayFlags {
  std::string file = {};
  std::optional<std::int64_t> turn = {};
  EngineFlags engine = {};
};

// What is wrong with a record is told with its place.
template <typename Function>
auto placed(const std::string& place, const Function& function) {
  try {
    return function();
  } catch (const InputError& error) {
    input_error("{}: {}", place, error.what());
  }
}

// Flags beat the record, which beats the environment.
OpenEngine open_recorded(const ReplayFlags& flags, const nlohmann::ordered_json& configuration, Screen& screen) {
  EngineOptions options = flags.engine.options;
  options.places = process_places();
  options.ascend = ascend_library(process_environment);
  options.model = recorded_model(configuration, options.model, flags.file, options.places.cache).string();
  ask_by_flags(flags.engine.modes, options.modes);
  fill_engine_options(configuration, options);
  ask_by_environment(process_environment, options.modes);
  return open_engine(options, &screen);
}

int replay_one(const ReplayFlags& flags, Screen& screen) {
  if (flags.turn) throw InputError("--turn: only for a trace, a dump has one round");
  const ReadDump record = read_failure_dump(flags.file);
  const FailureDump& dump = record.dump;
  const auto configuration = nlohmann::ordered_json::parse(record.origin.configuration);
  const OpenEngine engine = open_recorded(flags, configuration, screen);
  print(dump_line(dump));
  std::optional<Drafting> drafting;
  if (dump.stage == "draft") {
    drafting.emplace(plan_drafting(recorded_drafting(configuration), engine.places), engine, dump.draw.seed);
  }
  const DumpReplay replay = placed(flags.file, [&] {
    return replay_dump(*engine.model, engine.decoder, dump, drafting ? drafting->speculation() : Speculation());
  });
  print(replay_text(dump, replay));
  flush_output();
  return replay.reproduced ? 1 : 0;
}

// Says what differs, if anything does.
bool replay_turn_of(const OpenEngine& engine, const TracedTurn& turn, std::int64_t index,
                    const InterruptGuard& interrupt) {
  const auto difference = replay_turn(*engine.model, engine.decoder, turn, [&] { return interrupt.interrupted(); });
  if (interrupt.interrupted()) throw Interrupted();
  print(replayed_turn_line(index, turn, difference));
  flush_output();
  return !difference;
}

int replay_trace(const ReplayFlags& flags, Screen& screen) {
  TraceReader reader(flags.file);
  const auto configuration = nlohmann::ordered_json::parse(reader.header().origin.configuration);
  const OpenEngine engine = open_recorded(flags, configuration, screen);
  const InterruptGuard interrupt;
  bool identical = true;
  while (const auto turn = reader.next()) {
    if (flags.turn && reader.turns() != *flags.turn) continue;
    const std::string place = fmt::format("{}: turn {}", flags.file, reader.turns());
    identical = placed(place, [&] { return replay_turn_of(engine, *turn, reader.turns(), interrupt); }) && identical;
    if (flags.turn) return identical ? 0 : 1;
  }
  if (const auto note = reader.truncation()) screen.remark(*note);
  if (flags.turn)
    input_error("--turn: expected 1 to {}, the turns of {}, got {}", reader.turns(), flags.file, *flags.turn);
  return identical ? 0 : 1;
}

}  // namespace

Command add_replay(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("replay", "run again what a failure dump or a trace recorded (docs/traces.md)");
  auto flags = std::make_shared<ReplayFlags>();
  command->add_option("FILE", flags->file, "a failure dump or a trace")->required();
  command->add_option("--turn", flags->turn, "of a trace: this turn alone, from 1, in the order of the file")
      ->check(CLI::PositiveNumber)
      ->type_name("K");
  add_engine_flags(*command, flags->engine);
  return [flags] {
    Screen screen(flags->engine.verbose);
    return is_failure_dump(flags->file) ? replay_one(*flags, screen) : replay_trace(*flags, screen);
  };
}

}  // namespace espalier
