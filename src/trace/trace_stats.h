// The figures of a trace, from its records alone. A pure function of the turns.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "trace/traced_turn.h"

namespace espalier {

struct TraceStats {
  std::int64_t turns = 0;
  std::int64_t tokens = 0;
  std::int64_t rounds = 0;
  std::int64_t drafted = 0;                        // tokens that were drafted and accepted
  std::int64_t rows = 0;                           // verified, roots included
  std::int64_t plain_rounds = 0;                   // rounds with the root alone
  std::vector<std::int64_t> reached = {};          // by depth, from 1: guesses judged
  std::vector<std::int64_t> accepted = {};         // of those
  std::map<std::string, std::int64_t> masks = {};  // rounds by the form of the mask
  KvTraffic kv = {};
  RoundTimes stages = {};
  double prefill_seconds = 0;
  double decode_seconds = 0;

  void add(const TracedTurn& turn);

  double accept_length() const;  // flattened over all rounds
  double tau() const;            // one more
  double mean_rows() const;
};

nlohmann::ordered_json to_json(const TraceStats& stats);
std::string stats_text(const TraceStats& stats);

}  // namespace espalier
