// Runs again what a trace or a dump recorded, with the trees of the record, and says what came out differently. The
// model is the caller's; it must be the one of the record for the verdict to mean anything.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "decode/batch.h"
#include "trace/failure_dump.h"
#include "trace/traced_turn.h"

namespace espalier {

// The first difference between a turn and its replay.
struct TurnDifference {
  std::optional<std::int64_t> round = {};  // nothing: before the first round, or in the answer as a whole
  std::string what = {};                   // one line: field, expected, got
};

// Runs the turn once more: same prompt, same draws, and in each round the tree that the trace has, verbatim. Nothing:
// every round is identical in visits and finish, and so are tokens and reason to finish. Throws InputError where the
// model cannot run it: a token outside its vocabulary, more rows or positions than it takes.
std::optional<TurnDifference> replay_turn(const Transformer& model, const DecoderOptions& options,
                                          const TracedTurn& turn, const std::function<bool()>& cancelled = {});

// What a round came to: its tokens, or the error it ended with.
struct RoundOutcome {
  std::vector<std::int32_t> tokens = {};  // the teacher's choices, from the root on
  std::optional<FinishReason> end = {};   // why the answer ended behind them, where the decoder knows: length, context
  std::optional<std::string> error = {};
};

struct DumpReplay {
  RoundOutcome speculative = {};           // with the tree of the dump
  std::optional<RoundOutcome> plain = {};  // token by token, as far; only for a mismatch
  // The first token in which both differ, or behind which one ends and the other goes on. Nothing where one of them
  // failed: that is another thing than a mismatch.
  std::optional<std::size_t> difference = {};
  bool reproduced = false;
};

// Computes what stands before the round, then the round itself. An error is reproduced when it says the same, a
// mismatch when both routes differ again. drafters: for a round that failed before there was a tree; none: the root
// alone. Throws InputError where the model cannot run it.
DumpReplay replay_dump(const Transformer& model, const DecoderOptions& options, const FailureDump& dump,
                       const Speculation& drafters = {});

}  // namespace espalier
