// The figures of reports computed once more, in the plainest way and without the code that summarises: for the tests
// that hold every table against the traces. What no trace can know, the answer without speculation, comes from
// turns.json. The bootstrap is written out again here; it has the random numbers of base/random.h in common with the
// one under test, since the same turns must give the same interval.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "eval/statistics.h"
#include "eval/turn_record.h"
#include "trace/traced_turn.h"

namespace espalier {

struct PlainFigure {
  double mean = 0, p50 = 0, p90 = 0, p99 = 0;
  Interval interval = {};  // of the mean
};
using PlainFigures = std::map<std::string, PlainFigure>;  // by the titles that tables have

struct PlainTurn {
  TracedTurn traced = {};
  // Of turns.json, where it was answered without speculation too.
  std::optional<bool> equal = {};
  std::optional<TurnSeconds> baseline = {};
  std::optional<TurnSeconds> retimed = {};
};

// Of a run with one rank, in the order of turns.json.
std::vector<PlainTurn> plain_turns(const std::filesystem::path& run);

// Everything that headline and settings' tables show of runs.
PlainFigures plain_figures(const std::vector<PlainTurn>& turns);

// AC, overhead and speed-up of Medusa's tables: from the first token on, sums over sums.
PlainFigures plain_economy(const std::vector<PlainTurn>& turns);

// By stage: milliseconds of turns (prefill) or rounds, and the share of all time.
struct PlainStage {
  PlainFigure milliseconds = {};
  double share = 0;
};
std::map<std::string, PlainStage> plain_stages(const std::vector<PlainTurn>& turns);

// By depth of a guess, from 1.
struct PlainDepth {
  double judged = 0;
  PlainFigure accepted = {};  // the share, and its interval
};
std::map<std::int64_t, PlainDepth> plain_accept_pos(const std::vector<PlainTurn>& turns);

// Tokens over seconds, prefill included, and seconds without over seconds with speculation, of a single turn.
double plain_speed(const PlainTurn& turn);
double plain_baseline_speed(const PlainTurn& turn);
double plain_speed_up(const PlainTurn& turn);

}  // namespace espalier
