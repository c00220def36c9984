// How many rows a round is worth. Guesses cost rows, rows cost time: each round the trees are cut to the number of rows
// M that maximises, for one sequence,
//
//   (1 + sum of p_i) / (draft seconds + step seconds(M))          p_i: the chance that guess i is accepted
//
// over the guesses in the order of p; row_choice.h says it for many. A drafter is asked for another level only if that
// quotient is expected to rise by it; whether any is asked at all is company_drafting.h's. None of this changes a
// token. docs/budgets.md derives it. Nothing here reads a clock or a device: times are arguments. One thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "decode/calibration.h"
#include "decode/company_drafting.h"
#include "decode/draft_tree.h"
#include "decode/guess_worth.h"
#include "decode/row_choice.h"
#include "decode/step_times.h"
#include "decode/usual_seconds.h"

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
  SourceSet networks = 0;  // drafters that run one
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
  std::int64_t round_context() const { return round_.context; }  // of the last round
  const Calibration& calibration() const { return calibration_; }

  const GuessWorth& worth() const { return worth_; }

  // What drafting would bring to so many answers, in rounds that the host drives.
  Prospects prospects(int answers) const;
  // Likewise where a level takes this share of a step of as many rows.
  Prospects prospects(int answers, double level_share) const;

  void begin_round(const RoundShape& round);
  // Of the round: the times of steps of 1, 2, ... rows.
  std::span<const double> step_seconds() const { return step_seconds_; }

  // The trees of the round, one for each sequence: of all guesses together the best that pay. Scores become log p.
  std::vector<TokenTree> cut(std::span<const DraftOfSequence> drafts, double draft_seconds);

  // The tokens per second of a step with these guesses, which took no time, cut to what pays.
  double rate(std::span<const DraftOfSequence> drafts) const;

  // What the walk over a drafted tree said of all candidates.
  void learn(const Candidates& candidates, std::span<const Visit> visits);
  // What guesses are worth, told by those of a round in which these drafters were asked; `times` over where there are
  // few of them. Without the networks, where there are some, it says nothing.
  void appraise(const Candidates& candidates, SourceSet asked, int times);
  // A step of the round took `seconds`; before its rows lie `context` positions on the average.
  void observe_step(std::int64_t rows, std::int64_t context, double seconds);
  // By the table, what drafts added to the time of a round whose step had so many rows, where `drafting` sequences
  // drafted in draft_seconds: of the rows `rows_share`, of the rest what one of the sequences has to bear. What
  // something delayed counts for little: a first pass finds cold weights, or reads a prompt.
  double added_seconds(double rows_share, std::int64_t step_rows, std::int64_t drafting, double draft_seconds) const;
  // Drafting took so long in a round in which so many sequences drafted, and which has been judged.
  void observe_drafting(std::int64_t drafting, double seconds);
  // Likewise, the time of a round of roots.
  double plain_seconds() const;

 private:
  friend class LevelBudget;
  // What a drafter's passes have been like.
  struct Passes {
    UsualSeconds seconds = {};
    UsualSeconds share = {};  // of a step of the teacher of as many rows
    double best_child = 1;    // a running mean: the chance of the best guess below an expanded node, given the node
  };

  UsualSeconds usual_drafting(std::int64_t drafting) const;
  StepOffer step_offer(std::int64_t roots, double draft_seconds) const;
  // Of the step times those of steps that the round may take.
  std::span<const double> affordable_seconds() const { return std::span(step_seconds_).first(affordable_rows_); }
  std::size_t affordable_rows() const;

  StepCosts costs_;
  SourceSet networks_;
  Calibration calibration_;
  GuessWorth worth_;
  std::vector<Passes> passes_;
  std::array<UsualSeconds, kCompanySizes> drafting_ = {};  // of a round, by the class of those that drafted

  // Of the round.
  RoundShape round_;
  std::vector<double> step_seconds_;
  std::size_t affordable_rows_ = 1;
};

// Buys levels for the sequences of one round together, one drafter after the other.
class LevelBudget final : public LevelBuyer {
 public:
  // Both must outlive this. first_rows: that the first pass has, with those for what its sequences have not heard yet.
  LevelBudget(Budget& budget, const SecondsClock& clock, std::int64_t first_rows)
      : budget_(budget), clock_(clock), first_rows_(first_rows), begin_(clock()) {}

  void begin(std::size_t drafter) override;
  bool buys(std::span<const Frontier> frontiers) override;
  void bought(std::span<const Frontier> frontiers) override;

 private:
  AcceptanceEstimate& estimate(const Frontier& frontier);
  void merge_new(std::span<const Frontier> frontiers);
  void time_pass(std::span<const Frontier> frontiers);

  Budget& budget_;
  const SecondsClock& clock_;
  std::int64_t first_rows_;
  double begin_;
  double pass_begin_ = 0;
  std::size_t drafter_ = 0;
  std::vector<AcceptanceEstimate> estimates_;  // by job
  std::vector<double> accepted_;               // of the drafter's candidates, best first
  std::vector<double> hoped_;                  // likewise, with what another level may bring
};

}  // namespace espalier
