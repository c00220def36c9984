// What a step of the teacher costs: seconds by rows and context, as measured once for a model on a machine, and as
// corrected by the steps that a run then takes. docs/budgets.md has the formulas. One thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace espalier {

// Seconds of some clock that never runs backwards.
using SecondsClock = std::function<double()>;
double steady_seconds();

// A table of measured steps. Plain data; usable() before anything else.
struct StepTimes {
  std::vector<std::int32_t> rows = {};      // ascending, the first is 1
  std::vector<std::int64_t> contexts = {};  // ascending, committed positions
  std::vector<double> seconds = {};         // [contexts, rows], all above 0

  // Whether it is a table at all: sizes agree, axes ascend, times are positive and finite.
  bool usable() const;

  bool operator==(const StepTimes&) const = default;
};

class StepCosts {
 public:
  // buckets: the row counts that steps are padded to, ascending; a step takes the next one. None: any number.
  StepCosts(StepTimes measured, std::span<const std::int64_t> buckets);

  const StepTimes& measured() const { return measured_; }

  // The times of steps of 1, 2, ... out.size() rows over `context` positions. Never falling: more rows are not cheaper,
  // whatever noise says. Between measured rows and contexts linear; beyond the most rows in proportion, beyond the
  // longest context along the last slope.
  void fill(std::int64_t context, std::span<double> out) const;

  // A step of `rows` took `seconds`. Times that are not positive say nothing.
  void observe(std::int64_t rows, std::int64_t context, double seconds);

 private:
  double measured_at(std::size_t column, std::int64_t context) const;
  template <typename Time>
  double between(std::size_t right, std::int64_t rows, Time time) const;
  double factor(std::size_t column) const;
  std::size_t nearest_column(std::int64_t rows) const;
  std::int64_t launched_rows(std::int64_t rows) const;

  // Observed over measured, of the steps near one measured number of rows.
  struct Correction {
    double ratio = 1;   // a running mean
    double weight = 0;  // how many steps it stands for, up to a limit
  };

  StepTimes measured_;
  std::vector<std::int64_t> buckets_;
  Correction all_;  // of all steps together: a machine that is slower today
  std::vector<Correction> columns_;
};

}  // namespace espalier
