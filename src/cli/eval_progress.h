// How far an evaluation or a suite is, on standard error: a line that is drawn again and again on a terminal, one now
// and then elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "experiments/suite.h"

namespace espalier {

class EvalProgress final : public SuiteListener {
 public:
  EvalProgress();
  ~EvalProgress() override { end(); }
  EvalProgress(const EvalProgress&) = delete;
  EvalProgress& operator=(const EvalProgress&) = delete;

  void begin(std::int64_t turns, std::int64_t finished) override;
  void answered(const TurnRecord& turn) override;
  void end() override;  // wipes the line
  // To be called again and again while a turn is being answered.
  void tick();
  void begin_part(const std::string& what, double seconds_left) override;

 private:
  using Clock = std::chrono::steady_clock;
  void show(Clock::time_point now);

  bool terminal_;
  bool drawn_ = false;

  // Of the run.
  std::int64_t turns_ = 0;
  std::int64_t finished_ = 0;
  Clock::time_point start_ = {};
  Clock::time_point shown_ = {};
  std::int64_t here_ = 0;  // turns of this process
  std::int64_t tokens_ = 0;
  double seconds_ = 0;  // of their answers with speculation
};

// What the line says before the first turn of this process has been answered.
std::string eval_begin_line(std::int64_t done, std::int64_t turns, double elapsed);
// And from then on: `here` turns took `elapsed` seconds, `done` of `turns` are there in all.
std::string eval_progress_line(std::int64_t done, std::int64_t turns, std::int64_t here, double elapsed,
                               double tokens_per_second);

}  // namespace espalier
