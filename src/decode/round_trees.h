// The trees of a round, before they are cut: from somebody who knows them, or from the answer's drafters. One thread at
// a time.
#pragma once

#include <cstdint>
#include <utility>

#include "decode/decoder_choices.h"
#include "decode/decoder_options.h"
#include "decode/round_budget.h"

namespace espalier {

struct Answer;

class RoundTrees {
 public:
  // known: empty where drafters guess. Choices and clock must outlive this.
  RoundTrees(const DecoderChoices& choices, std::int32_t vocabulary, TreeSource known, const SecondsClock& clock)
      : choices_(&choices), vocabulary_(vocabulary), known_(std::move(known)), clock_(&clock) {}

  // Gives the answer its tree, or, where the budget chooses, candidates for one; and notes what that took. `ask`:
  // whether drafters are asked at all.
  void grow(Answer& answer, RoundBudget& budget, bool ask) const;

 private:
  void take_known(Answer& answer) const;
  void guess(Answer& answer, RoundBudget& budget, bool ask) const;
  void ask_drafters(Answer& answer, RoundBudget& budget, const RoundLimits& limits) const;

  const DecoderChoices* choices_;
  std::int32_t vocabulary_;
  TreeSource known_;
  const SecondsClock* clock_;
};

}  // namespace espalier
