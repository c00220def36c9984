// How many rows a round is worth. Guesses cost rows, rows cost time: each round the trees are cut to the number of rows
// M that maximises, for one sequence,
//
//   (1 + sum of p_i) / (draft seconds + step seconds(M))          p_i: the chance that guess i is accepted
//
// over the guesses in the order of p; row_choice.h says it for many. A drafter is asked for another level only if that
// quotient is expected to rise by it; and drafters that lose against plain decoding are asked ever more rarely. None of
// this changes a token. docs/budgets.md derives it. Nothing here reads a clock or a device: times are arguments. One
// thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "decode/calibration.h"
#include "decode/draft_tree.h"
#include "decode/row_choice.h"
#include "decode/step_times.h"

namespace espalier {

struct RowChoice {
  int rows = 1;     // roots included, prompt rows not
  double rate = 0;  // tokens per second
};

// accepted: the chances of guesses, never rising; step_seconds[n - 1]: of a step of n rows. A step of several sequences
// has several roots, each of which brings a token. Prompt rows are in the step anyway and no part of its rate, as in
// row_choice.h. The fewest rows among equals; step_seconds is not exceeded, unless by roots and prompt rows alone.
RowChoice best_rows(std::span<const double> accepted, std::span<const double> step_seconds, double draft_seconds,
                    int roots = 1, int prompt_rows = 0);

// Whether to draft at all. The balance says what drafting has lately won or lost against plain decoding; below zero it
// is a probe now and then, after a pause that doubles with every failure in a row, but is no longer than it takes to
// pay for the probe.
class Patience {
 public:
  // Asked once a round.
  bool drafts();
  // A drafted round brought `tokens` in `seconds`, where a plain one takes `plain_seconds` for one.
  void settle(double tokens, double seconds, double plain_seconds);

  std::int64_t pause() const { return pause_; }  // plain rounds between the last probe and the next
  bool wins() const { return balance_ > 0; }     // more has been won than lost
  // Between the last probe and the next drafters need not be ready: the pause is so long that it is dearer to keep them
  // so than to let the next probe begin with what they remember of the text by then.
  bool rests() const { return pause_ >= kRestingPause; }

  static constexpr std::int64_t kRestingPause = 32;

  // Of an answer that nothing is expected of: it begins with a pause, at rest.
  static Patience resting() {
    Patience patience;
    patience.pause_ = patience.longest_ = kRestingPause;
    return patience;
  }

 private:
  double balance_ = 0;  // seconds won
  std::int64_t pause_ = 0;
  std::int64_t longest_ = 0;  // pause after the failures in a row, whatever they cost
  std::int64_t waited_ = 0;
};

// The candidates of one sequence, to be cut.
struct DraftOfSequence {
  const Candidates* candidates = nullptr;
  int room = 1;  // the most rows of its tree
};

struct BudgetShape {
  int rows = 64;       // the most rows of a step
  int tree_rows = 64;  // of the trees in it; listeners are told the times of so many
  std::vector<std::int64_t> buckets = {};
  int drafters = 1;
  bool networks = false;  // some of the drafters run one
};

// What a round begins with.
struct RoundShape {
  int roots = 1;
  int prompt_rows = 0;       // in the same step
  std::int64_t context = 0;  // committed positions of each sequence, on the average
  bool wins = false;         // the drafts of some sequence have lately won more than they lost
};

class Budget {
 public:
  Budget(StepTimes measured, const BudgetShape& shape);

  const StepCosts& costs() const { return costs_; }
  const Calibration& calibration() const { return calibration_; }

  // Whether guesses can be expected to pay in steps of so many roots: not where those of a good drafter would not even
  // if they cost nothing, or, of one that runs a network, hardly anything.
  bool may_pay(int roots) const;

  void begin_round(const RoundShape& round);
  // Of the round: the times of steps of 1, 2, ... rows.
  std::span<const double> step_seconds() const { return step_seconds_; }

  // The trees of the round, one for each sequence: of all guesses together the best that pay. Scores become log p.
  std::vector<TokenTree> cut(std::span<const DraftOfSequence> drafts, double draft_seconds);

  // The tokens per second of a step with these guesses, which took no time, cut to what pays.
  double rate(std::span<const DraftOfSequence> drafts) const;

  // What the walk over a drafted tree said of all candidates.
  void learn(const Candidates& candidates, std::span<const Visit> visits);
  // A step of the round took `seconds`; before its rows lie `context` positions on the average.
  void observe_step(std::int64_t rows, std::int64_t context, double seconds);
  // By the table, the time that one sequence answers for in a drafted round, whose trees have `all_rows` rows and its
  // own `rows` of them. Drafting took `draft_seconds` for `drafted` sequences. Its share of drafts and guesses counts
  // for every sequence, because every one of them waits for it.
  double drafted_seconds(int rows, int all_rows, int drafted, double draft_seconds) const;
  // Likewise, of a round of roots.
  double plain_seconds() const;

 private:
  friend class LevelBudget;
  // What a drafter's passes have been like.
  struct Passes {
    double seconds = 0;     // a running mean; 0: none yet
    double best_child = 1;  // likewise: the chance of the best guess below an expanded node, given the node
  };

  StepOffer step_offer(std::int64_t roots, double draft_seconds) const;
  // Of the step times those of steps that the round may take.
  std::span<const double> affordable_seconds() const { return std::span(step_seconds_).first(affordable_rows_); }
  std::size_t affordable_rows() const;

  StepCosts costs_;
  bool networks_;
  Calibration calibration_;
  std::vector<Passes> passes_;

  // Of the round.
  RoundShape round_;
  std::vector<double> step_seconds_;
  std::size_t affordable_rows_ = 1;
};

// Buys levels for the sequences of one round together, one drafter after the other.
class LevelBudget final : public LevelBuyer {
 public:
  // Both must outlive this.
  LevelBudget(Budget& budget, const SecondsClock& clock) : budget_(budget), clock_(clock), begin_(clock()) {}

  void begin(std::size_t drafter) override;
  bool buys(std::span<const Frontier> frontiers) override;
  void bought(std::span<const Frontier> frontiers) override;

 private:
  AcceptanceEstimate& estimate(const Frontier& frontier);
  void merge_new(std::span<const Frontier> frontiers);

  Budget& budget_;
  const SecondsClock& clock_;
  double begin_;
  double pass_begin_ = 0;
  std::size_t drafter_ = 0;
  std::vector<AcceptanceEstimate> estimates_;  // by job
  std::vector<double> accepted_;               // of the drafter's candidates, best first
  std::vector<double> hoped_;                  // likewise, with what another level may bring
};

}  // namespace espalier
