#include "decode/row_choice.h"

#include <algorithm>
#include <vector>

#include "base/error.h"

namespace espalier {
namespace {

// What a step with some of the guesses brings and takes.
class OfferedStep {
 public:
  explicit OfferedStep(const StepOffer& offer)
      : offer_(offer), before_(offer.roots + offer.prompt_rows), tokens_(static_cast<std::size_t>(offer.roots), 1.0) {
    // Without prompt rows exactly the drafting.
    apart_ = offer.draft_seconds + (time(offer.roots) - time(before_));
    floor_ = std::min(0.5 / time(before_), 1 / (offer.draft_seconds + time(before_)));
    all_tokens_ = offer.roots;
  }

  void add(const GuessChance& guess) {
    check(guess.sequence >= 0 && guess.sequence < offer_.roots, "row choice: a guess of sequence {} of {}",
          guess.sequence, offer_.roots);
    tokens_[static_cast<std::size_t>(guess.sequence)] += guess.accepted;
    all_tokens_ += guess.accepted;
    ++guesses_;
  }

  double rate() const { return all_tokens_ / (apart_ + time(before_ + guesses_)); }
  bool keeps_floor() const {
    return std::ranges::min(tokens_) / (offer_.draft_seconds + time(before_ + guesses_)) >= floor_;
  }

 private:
  double time(int rows) const { return seconds_of_rows(offer_.step_seconds, rows); }

  const StepOffer& offer_;
  int before_;  // rows that are there anyway
  int guesses_ = 0;
  double apart_ = 0;            // seconds beside those of the whole step
  double floor_ = 0;            // tokens per second that everybody keeps
  double all_tokens_ = 0;       // expected
  std::vector<double> tokens_;  // likewise, of each sequence
};

}  // namespace

double seconds_of_rows(std::span<const double> step_seconds, std::int64_t rows) {
  return step_seconds[static_cast<std::size_t>(std::min(rows, std::ssize(step_seconds)) - 1)];
}

GuessChoice best_guesses(std::span<const GuessChance> guesses, const StepOffer& offer) {
  check(!offer.step_seconds.empty() && offer.roots >= 0 && offer.prompt_rows >= 0,
        "row choice: {} step times, {} roots, {} prompt rows", offer.step_seconds.size(), offer.roots,
        offer.prompt_rows);
  if (offer.roots == 0) return {};
  OfferedStep step(offer);
  GuessChoice best{0, step.rate()};
  const std::int64_t most = std::min<std::int64_t>(offer.affordable, std::ssize(offer.step_seconds));
  const std::int64_t room = std::min(std::ssize(guesses), most - offer.roots - offer.prompt_rows);
  for (int taken = 1; taken <= room; ++taken) {
    step.add(guesses[static_cast<std::size_t>(taken - 1)]);
    if (const double rate = step.rate(); rate > best.rate && step.keeps_floor()) best = {taken, rate};
  }
  return best;
}

}  // namespace espalier
