// The trees of a round: from somebody who knows them, or from the drafters, cut to what pays. One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "decode/decoder_choices.h"
#include "decode/decoder_options.h"
#include "decode/round_budget.h"
#include "decode/stopwatch.h"

namespace espalier {

struct Answer;

class RoundTrees {
 public:
  // known: empty where drafters guess. Choices and clock must outlive this.
  RoundTrees(const DecoderChoices& choices, std::int32_t vocabulary, TreeSource known, const SecondsClock& clock)
      : choices_(&choices), vocabulary_(vocabulary), known_(std::move(known)), clock_(&clock) {}

  // Gives each answer, whose branch is open, its tree, and notes what that took.
  void grow(std::span<Answer* const> answers, std::span<const std::unique_ptr<Drafter>> drafters,
            RoundBudget& budget) const;
  // The two parts of it: what these of the drafters say, and what of that pays. begin: when it began.
  void propose(std::span<Answer* const> answers, std::span<const std::unique_ptr<Drafter>> drafters, SourceSet asked,
               RoundBudget& budget) const;
  void cut(std::span<Answer* const> answers, const Stopwatch& begin, RoundBudget& budget) const;
  // Of an answer's next tree.
  RoundLimits limits(const Answer& answer) const;

 private:
  void take_known(Answer& answer) const;
  void ask(std::span<Answer* const> answers, std::span<const std::unique_ptr<Drafter>> drafters, SourceSet asked,
           RoundBudget& budget) const;

  const DecoderChoices* choices_;
  std::int32_t vocabulary_;
  TreeSource known_;
  const SecondsClock* clock_;
};

}  // namespace espalier
