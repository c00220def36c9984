// How far an evaluation is, on standard error: a line that is drawn again and again on a terminal, one now and then
// elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "eval/turn_record.h"

namespace espalier {

std::string duration_text(double seconds);  // "45 s", "7 min 9 s", "2 h 5 min"

class EvalProgress {
 public:
  // `finished` of the turns were answered by an earlier process.
  EvalProgress(std::int64_t turns, std::int64_t finished);
  ~EvalProgress();
  EvalProgress(const EvalProgress&) = delete;
  EvalProgress& operator=(const EvalProgress&) = delete;

  void add(const TurnRecord& turn);

 private:
  using Clock = std::chrono::steady_clock;

  std::int64_t turns_;
  std::int64_t finished_;
  bool terminal_;
  bool drawn_ = false;
  Clock::time_point start_ = Clock::now();
  Clock::time_point shown_ = start_;
  std::int64_t here_ = 0;  // turns of this process
  std::int64_t tokens_ = 0;
  double seconds_ = 0;  // of their answers with speculation
};

// What the line says: `here` turns took `elapsed` seconds, `done` of `turns` are there in all.
std::string eval_progress_line(std::int64_t done, std::int64_t turns, std::int64_t here, double elapsed,
                               double tokens_per_second);

}  // namespace espalier
