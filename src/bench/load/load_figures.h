// What loads came to: tokens a second, times to the first token, gaps between tokens. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/load/load_run.h"

namespace espalier {

struct Percentiles {
  std::int64_t count = 0;  // 0: all others are 0 too
  double p50 = 0;
  double p95 = 0;
  double p99 = 0;
  double most = 0;
};
Percentiles percentiles_of(std::vector<double> samples);

// Two ways to look at an answer's gaps: how long nothing came, once for each piece that ended the silence; and the time
// of a token, its piece's gap divided by the piece's tokens, once for each token.
struct GapFigures {
  Percentiles between_events = {};
  Percentiles per_token = {};
};
GapFigures gap_figures(std::span<const AnswerGap> gaps);

// What users noticed of prompts that disturbed them.
struct InterruptFigures {
  std::int64_t prompts = 0;
  std::int64_t failed = 0;
  double prompt_tokens = 0;      // the mean, as the server counted
  Percentiles first_token = {};  // of those prompts
  GapFigures calm = {};          // gaps of the users that touch no such prompt
  GapFigures disturbed = {};     // and those that do: from its request to its first token
};

// One load on one server, all its rounds together.
struct LoadFigures {
  std::vector<double> tokens_per_second = {};  // one for each round in which an answer was complete
  Percentiles first_token = {};
  GapFigures gaps = {};
  Percentiles whole_answer = {};  // from the request to its end
  std::int64_t requests = 0;
  std::int64_t failed = 0;
  std::int64_t short_answers = 0;  // complete, with fewer tokens than were asked for
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;
  double tokens = 0;
  bool tokens_known = true;  // how many each event has
  bool usage_known = true;   // how many each answer has
  std::string problem = {};  // the first
  std::optional<InterruptFigures> interrupts = {};
};
LoadFigures figures_of(std::span<const LoadRun> rounds, std::int64_t tokens_wanted);

}  // namespace espalier
