// How long a run will take, before it is begun: what `eval run --suite --dry-run` prints. The constants are those of
// the default model on two cores with AVX-512 (docs/cpu.md), so for anything else the sum is only a measure of how much
// there is to do. An upper bound in one respect: every answer is taken to be as long as it may get. Pure functions.
#pragma once

#include <cstdint>
#include <string>

namespace espalier {

struct RunCost {
  std::int64_t turns = 0;
  std::int64_t tokens = 0;           // of an answer, at most
  std::int64_t prompt_tokens = 200;  // of a turn, history included
  std::int64_t plain_turns = 0;      // of the turns, answered without speculation too
  std::string drafter = {};          // "eagle3", "medusa", "ngram"; empty: plain decoding
  int rows = 1;                      // of a tree
  int depth = 0;                     // draft passes
};

double estimate_seconds(const RunCost& cost);

// Of a step with so many rows, and the tokens it brings: what the estimate is made of.
double step_seconds(int rows);
double tokens_per_step(const std::string& drafter, int rows, int depth);

std::string duration_text(double seconds);  // "45 s", "7 min 9 s", "2 h 5 min"

}  // namespace espalier
