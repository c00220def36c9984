// The rows of a decoder's rounds: every tree as large as the options say, or chosen round by round (budget.h). Stands
// between the answers of a round and the Budget, which knows numbers only. Where rows are not chosen, drafters are
// always asked, nothing is cut, nothing is learned and no clock is read. One thread at a time.
//
// A round calls, in this order: begin_round(); levels() for each answer whose drafters are asked; cut(); then for each
// step observe_step(), and for each of its answers learn(); end_round().
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "decode/budget.h"
#include "decode/decoder_options.h"
#include "decode/round.h"

namespace espalier {

struct Answer;

class RoundBudget {
 public:
  // Nothing is chosen.
  RoundBudget() = default;
  // By the step times of an earlier run, or, where there are none that are usable, by those that `measure` finds. The
  // clock must outlive this.
  RoundBudget(const ChosenBudget& chosen, const BudgetShape& shape, const SecondsClock& clock,
              const std::function<StepTimes()>& measure);

  bool chooses() const { return budget_.has_value(); }
  const Budget* budget() const { return budget_ ? &*budget_ : nullptr; }

  // True: the drafters are asked.
  bool begin_round(std::span<Answer* const> answers);
  // For the drafters of one answer. Requires chooses().
  LevelBudget levels() { return {*budget_, *clock_}; }
  // Of all candidates of all answers, what pays becomes their trees; each answer's share of the time is drafting.
  void cut(std::span<Answer* const> answers);

  // A step of the round took `seconds`.
  void observe_step(std::int64_t rows, double seconds);
  // The teacher walked over the answer's tree.
  void learn(const Answer& answer, std::span<const Visit> visits);
  // What an answer's listeners are told. step_rows: of the step that its tree was part of.
  std::optional<BudgetRound> told(const Answer& answer, std::int64_t step_rows) const;
  // All answers have counted the round.
  void end_round(std::span<Answer* const> answers);

 private:
  std::optional<Budget> budget_ = {};
  const SecondsClock* clock_ = nullptr;
};

}  // namespace espalier
