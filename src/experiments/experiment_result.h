// What an experiment found, as result.json keeps it (docs/experiments.md): settings with their figures, beside what the
// papers printed, and first of all how many turns are identical with and without speculation. Plain values.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "eval/summary.h"
#include "eval/turn_record.h"
#include "experiments/suite_file.h"

namespace espalier {

// How many of the compared turns have the same tokens.
struct Identity {
  std::int64_t turns = 0;
  std::int64_t identical = 0;
  std::optional<std::string> difference = {};  // the first

  bool holds() const { return identical == turns; }
  void add(const Identity& other);
};
Identity identity_of(const Summary& summary);
std::string identity_text(const Identity& identity);  // "240 of 240 turns identical"
nlohmann::ordered_json to_json(const Identity& identity);
// Throws InputError "where: ..." unless it is such an object.
Identity identity_from(const nlohmann::json& object, std::string_view where);

struct SettingResult {
  std::string name = {};     // its value on the axis
  std::string drafter = {};  // "eagle3", "ngram"; empty: none
  std::vector<std::string> flags = {};
  std::string run = {};  // the folder of its run inside the suite's; empty: it has none
  Identity identity = {};
  std::string figures = "{}";               // JSON: run_figures(), or what else an experiment counts
  std::optional<std::string> failure = {};  // turns that could not be answered
};

struct ExperimentResult {
  std::vector<SettingResult> settings = {};
  std::optional<std::string> skipped = {};  // why it could not be done here
  std::optional<std::string> failure = {};  // what else than a difference is wrong: logits that changed
  bool profile = false;                     // its times are no headline

  Identity identity() const;
};

// The figures of a run's turns: each a distribution {"count", "mean", "interval", "p50", "p90", "p99"} over turns, or,
// as accept_L, over rounds; those that need a baseline are there where there is one.
nlohmann::ordered_json run_figures(std::span<const TurnRecord> turns);

nlohmann::ordered_json to_json(const Experiment& experiment, const ExperimentResult& result);

// A few lines for the screen: a row for each setting.
std::string result_text(const Experiment& experiment, const nlohmann::ordered_json& result);

}  // namespace espalier
