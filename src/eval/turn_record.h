// One answered turn, as turns.json keeps it (docs/eval.md): tokens, what the rounds brought, and wall times. A value.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "decode/round.h"
#include "eval/prompt_set.h"

namespace espalier {

struct TurnSeconds {
  double prefill = 0;  // until the first token is known
  double decode = 0;   // the rest

  double whole() const { return prefill + decode; }
};

// The same turn without speculation: just before, or in an earlier run that several share.
struct BaselineTurn {
  TurnSeconds seconds = {};
  std::vector<std::int32_t> tokens = {};
  std::string finish_reason = {};
  std::optional<TurnSeconds> retimed = {};  // of a shared one: once more, just before the turn
  // Where the two part, on a device that is not row independent: by how much plain decoding liked its own token better
  // (engine/near_tie.h).
  std::optional<double> margin = {};
};

struct TurnRecord {
  std::int64_t record = 0;  // the prompt's place in the data, from 0
  std::string set = {};     // the file it is of (prompt_set.h)
  PromptId prompt_id = {};
  std::int64_t turn = 1;                  // of the prompt, from 1
  std::string user = {};                  // what the user says in this turn; empty in records of earlier versions
  std::vector<std::int32_t> prompt = {};  // history and template included
  std::vector<std::int32_t> tokens = {};  // the answer, its stop token included
  std::string text = {};
  std::string finish_reason = {};
  std::vector<std::int64_t> accept_lengths = {};  // of every round: drafted tokens accepted
  // By depth, from 1: rounds in which the teacher judged a guess of that depth. Its parent was accepted, and the answer
  // did not end there.
  std::vector<std::int64_t> reached = {};
  TurnSeconds seconds = {};
  RoundTimes stages = {};  // of all rounds together
  std::optional<BaselineTurn> baseline = {};
  std::optional<std::string> error = {};  // why it could not be answered; then it has neither tokens nor a baseline

  // The first token that differs from the baseline's, one past the shorter where it is a part of the other; nothing
  // when both are equal, reason to finish included, or without a baseline.
  std::optional<std::int64_t> first_difference() const;
};

nlohmann::ordered_json to_json(const TurnSeconds& seconds);
nlohmann::ordered_json to_json(const TurnRecord& record);
// Throws InputError "where: ..." unless it is such an object.
TurnRecord turn_record_from(const nlohmann::json& object, std::string_view where);

}  // namespace espalier
