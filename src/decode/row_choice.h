// How many guesses a step of many sequences is worth. Such a step has L roots, P prompt rows and M guesses. The prompt
// rows are there anyway, so guesses pay only for what they add to the step: M is chosen for the largest
//
//   (L + sum of p) / (d + t(L) + t(L + P + M) - t(L + P))        d: seconds of drafting   t(n): of a step of n rows
//
// over the guesses of all sequences in the order of p, the chance that a guess is accepted. As L grows t steepens, and
// trees shrink to roots by themselves. Nobody pays more than half his speed for the guesses of others: every sequence
// keeps
//
//   (1 + its own sum of p) / (d + t(L + P + M)) >= min(0.5 / t(L + P), 1 / (d + t(L + P)))
//
// where the second term is what it has without any guesses once drafting is paid for: M = 0 is always allowed. With one
// sequence the floor never binds, because what is best for the step is best for it; without prompt rows either the
// choice is that of best_rows (budget.h). Pure functions.
#pragma once

#include <cstdint>
#include <span>

namespace espalier {

struct GuessChance {
  double accepted = 0;
  int sequence = 0;  // in [0, roots)
};

struct StepOffer {
  std::span<const double> step_seconds = {};  // [n - 1]: of a step of n rows, never falling
  double draft_seconds = 0;
  int roots = 1;
  int prompt_rows = 0;
  int affordable = 1;  // the most rows of the step, roots and prompt rows included; these may exceed it
};

struct GuessChoice {
  int guesses = 0;
  double rate = 0;  // tokens per second that is not spent on prompts
};

// guesses: by falling chance, as many of each sequence as its caps allow. The first M are taken, the fewest among
// equals. On a device with row buckets t is a staircase, and guesses that would be padding are taken because they cost
// nothing.
GuessChoice best_guesses(std::span<const GuessChance> guesses, const StepOffer& offer);

// Of a step of `rows` >= 1; one that is longer than the table costs what the longest in it does.
double seconds_of_rows(std::span<const double> step_seconds, std::int64_t rows);

}  // namespace espalier
