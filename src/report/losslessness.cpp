#include "report/losslessness.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/untrusted_text.h"
#include "eval/summary.h"
#include "trace/failure_dump.h"

namespace espalier {
namespace {

// The dump that belongs to a turn; where none can be read as such, the folder they lie in.
std::string dump_of_turn(const ReportRun& run, const TurnRecord& turn) {
  for (const std::filesystem::path& path : run.dumps) {
    try {
      const FailureDump dump = read_failure_dump(path).dump;
      if (dump.prompt_id == turn.prompt_id && dump.turn == turn.turn) return path.string();
    } catch (const InputError&) {
      continue;  // of another version, or no dump: its folder is named below
    }
  }
  return run.dumps.empty() ? "none was written" : run.dumps.front().parent_path().string();
}

void add_run(const ReportRun& run, Losslessness& sum) {
  for (const TurnRecord& turn : run.turns) {
    if (turn.error) {
      ++sum.failed;
      sum.failures.push_back(fmt::format("{}: prompt {}, turn {}: {}", run.label, in_quotes(text_of(turn.prompt_id)),
                                         turn.turn, *turn.error));
      continue;
    }
    if (!turn.baseline) {
      ++sum.alone;
      continue;
    }
    ++sum.compared;
    const auto difference = difference_text(turn);
    if (!difference) ++sum.identical;
    if (difference)
      sum.failures.push_back(fmt::format("{}: {}; dump: {}", run.label, *difference, dump_of_turn(run, turn)));
  }
}

// Settings whose run is not there have said how many were identical.
void add_settings(const ReportSource& source, Losslessness& sum) {
  for (const ReportExperiment& experiment : source.experiments)
    for (const SettingResult& setting : experiment.settings) {
      if (run_of(source, setting) != nullptr) continue;
      sum.compared += setting.identity.turns;
      sum.identical += setting.identity.identical;
      if (setting.identity.difference)
        sum.failures.push_back(fmt::format("{}: {}: {}", experiment.id, setting.name, *setting.identity.difference));
    }
}

}  // namespace

Losslessness losslessness_of(std::span<const ReportSource> sources) {
  Losslessness sum;
  for (const ReportSource& source : sources) {
    for (const ReportRun& run : source.runs) add_run(run, sum);
    add_settings(source, sum);
    for (const ReportExperiment& experiment : source.experiments)
      if (experiment.failure) sum.failures.push_back(fmt::format("{}: {}", experiment.id, *experiment.failure));
  }
  return sum;
}

std::string losslessness_text(const Losslessness& losslessness) {
  if (losslessness.compared == 0)
    return fmt::format("No turn was compared: {} turns have no answer without speculation beside them.",
                       losslessness.alone);
  std::string text = fmt::format("{} of {} turns are identical with and without speculation.", losslessness.identical,
                                 losslessness.compared);
  if (losslessness.alone > 0) text += fmt::format(" {} more were not compared.", losslessness.alone);
  if (losslessness.failed > 0) text += fmt::format(" {} could not be answered.", losslessness.failed);
  return text;
}

nlohmann::ordered_json to_json(const Losslessness& losslessness) {
  return {{"turns", losslessness.compared},
          {"identical", losslessness.identical},
          {"not_compared", losslessness.alone},
          {"failed", losslessness.failed},
          {"failures", losslessness.failures}};
}

}  // namespace espalier
