// One answered turn with all its rounds, as a trace keeps it (docs/traces.md): enough to draw every tree, to compute
// every figure again, and to run the turn once more with the same trees. Plain values.
//
// A turn that was read holds together: rounds are numbered from 0, each tree's root is the last token before it, paths
// lead from root to child, the teacher's choices are the answer's tokens behind the first, and the last round alone
// ends the answer, for the reason that the turn gives.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "decode/round.h"
#include "trace/prompt_id.h"
#include "trace/record_json.h"

namespace espalier {

// How the rows of a round came about, where they are chosen (decode/budget.h).
struct TracedBudget {
  bool drafted = false;        // the drafters were asked
  std::int64_t step_rows = 0;  // of the whole step: those of other sequences included
  std::vector<double> step_seconds = {
      0};  // of steps of 1, 2, ... rows, as they were estimated in that round; never empty

  // Of a step of so many rows; the longest that is known where they are more.
  double seconds_of(std::int64_t rows) const;
};

struct TracedRound {
  std::int64_t number = 0;  // of the answer, from 0
  std::int64_t prefix = 0;  // committed tokens before the root
  TokenTree tree{0};
  std::vector<Visit> visits = {};  // root first: the accepted path, with the teacher's choice at every node
  std::string finish = {};         // why the answer ended in this round: stop, length, context, cancelled; else empty
  RoundTimes times = {};
  std::optional<TracedBudget> budget = {};  // nothing where the budget is fixed
  KvTraffic kv = {};
  StepForm form = {};
  bool resident = false;  // it stayed on the device: `verify` is the time of drafting and verifying together

  std::int64_t accepted() const { return static_cast<std::int64_t>(visits.size()) - 1; }  // drafted tokens
  // Levels of guesses that the teacher judged: one more than it accepted, unless there was none or the answer ended.
  std::int64_t judged_levels() const;
};

struct TracedTurn {
  std::string set = {};  // of prompts, where it is of one (eval/prompt_set.h)
  PromptId prompt_id = {};
  std::int64_t turn = 1;                  // of the prompt, from 1
  std::vector<std::int32_t> prompt = {};  // history and template included
  std::vector<std::int32_t> tokens = {};  // the answer, its stop token included
  std::string finish_reason = {};
  DrawOptions draw = {};
  std::int64_t reused_tokens = 0;  // of the prompt, already in the cache
  double prefill_seconds = 0;      // until the first token is known
  double decode_seconds = 0;       // the rest
  std::vector<TracedRound> rounds = {};

  std::vector<std::int64_t> accept_lengths() const;
  // The round that gave token `index` of the answer; nothing for the first token, which is the prompt's.
  std::optional<std::size_t> round_of_token(std::size_t index) const;
};

// The records of a turn, a line each: {"kind": "turn", ...}, then a {"kind": "round", ...} for every round.
std::vector<std::string> to_lines(const TracedTurn& turn);
// Throws InputError "where: ..." unless the lines are those of one turn.
TracedTurn traced_turn_from(std::span<const std::string_view> lines, std::string_view where);

}  // namespace espalier
