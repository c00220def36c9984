// The rows of a batch's rounds: every tree as large as the options say, or chosen round by round (budget.h). Stands
// between the answers of a round and the Budget, which knows numbers only. Where rows are not chosen, drafters are
// always asked, nothing is cut and nothing is learned of them; what steps cost may be known all the same, for whoever
// plans them. One thread at a time.
//
// A round calls, in this order: begin_round(); levels() where drafters are asked; cut(); then for each step
// observe_step(), and for each of its answers learn(); end_round().
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "decode/budget.h"
#include "decode/company_drafting.h"
#include "decode/decoder_options.h"
#include "decode/request.h"
#include "decode/resident_budget.h"
#include "decode/round.h"

namespace espalier {

struct Answer;

class RoundBudget {
 public:
  // Nothing is chosen, and nothing known.
  RoundBudget() = default;
  // By the step times of an earlier run, or, where there are none that are usable, by those that `measure` finds.
  // Nothing is chosen unless the budget cuts. The clock must outlive this.
  RoundBudget(const ChosenBudget& chosen, const BudgetShape& shape, const SecondsClock& clock,
              const std::function<StepTimes()>& measure);

  bool chooses() const { return budget_ && cuts_; }
  const Budget* budget() const { return chooses() ? &*budget_ : nullptr; }  // null: nothing is chosen

  // What steps were measured to cost; null: nothing is known of them.
  const StepTimes* step_times() const { return budget_ ? &budget_->costs().measured() : nullptr; }

  // Says of an answer that joins such a company whether its drafters hear its prompt, and whether they rest.
  void welcome(Answer& answer, const DraftCompany& company);
  // Says of each answer whether its drafters are worth asking, and whether they hear and rest. prompt_rows: that the
  // step will have besides.
  void begin_round(std::span<Answer* const> answers, const DraftCompany& company, std::int64_t prompt_rows);
  // For the drafters of a round, whose first pass has so many rows. Requires chooses().
  LevelBudget levels(std::int64_t first_rows) { return {*budget_, *clock_, first_rows}; }
  // Of all candidates of all answers, what pays becomes their trees. draft_seconds: what it took to find them.
  void cut(std::span<Answer* const> answers, double draft_seconds);
  // Of steps of 1, 2, ... rows, `rows` at most, behind `context` positions; empty where nothing is known of them.
  std::vector<double> step_seconds(std::int64_t context,
                                   std::int64_t rows = std::numeric_limits<std::int64_t>::max()) const;

  // Where rounds stay on the device their rows and levels are chosen beforehand, and levels() and cut() are not called:
  // of a round of so many trees, of up to `most` each,
  ResidentChoice choose_resident(std::int64_t trees, const ResidentChoice& most);
  // which took `seconds` altogether, or so long that it says nothing of others; and then for each answer that learn()
  // will be called for. If its candidates are known, its tree's scores become log p.
  void observe_resident(std::int64_t trees, const ResidentChoice& chosen, std::optional<double> seconds);
  void judge_resident(Answer& answer, std::int64_t trees, const ResidentChoice& chosen);
  // Beside a step of so many answers, all of which drafted on the device, or none of them, the host was busy so long.
  void observe_host(std::int64_t answers, bool drafted, double seconds);
  // Of the round that was chosen, whether its candidates are learned from: of many trees now and then is enough, and
  // where levels are had to be learned of.
  bool judges(std::int64_t trees) const;
  // Whether the answers' candidates, which cost nothing, promise more than such a round. Requires chooses().
  bool prefers(std::span<Answer* const> answers, std::int64_t trees) const;

  // A step of the round took `seconds`; before its rows lie `context` positions on the average.
  void observe_step(std::int64_t rows, std::int64_t context, double seconds);
  // The teacher walked over the answer's tree.
  void learn(const Answer& answer, std::span<const Visit> visits);
  // What an answer's listeners are told. step_rows: of the step that its tree was part of.
  std::optional<BudgetRound> told(const Answer& answer, std::int64_t step_rows) const;
  // All answers that have not failed have counted the round.
  void end_round(std::span<Answer* const> answers);

 private:
  // What was computed for such a company lately.
  struct KnownProspects {
    std::int64_t answers = 0;
    int rounds = 0;  // ago
    Prospects prospects = {};
  };

  // Who hears what is committed, and whether all of those may rest who are not asked.
  struct Audience {
    Hearing hearing = Hearing::everybody;
    bool rests = false;
    bool scout_is_enough = false;  // as was decided for this round alone
  };

  Audience decide(const DraftCompany& company);
  const Prospects& prospects(const DraftCompany& company, DraftWay way);
  Prospects find_prospects(const DraftCompany& company, DraftWay way) const;
  void ask(std::span<Answer* const> answers, const Audience& audience);
  Answer* find_scout(std::span<Answer* const> answers);
  bool has_heard_enough(const Answer& answer) const;
  bool rests(const Answer& answer, const Audience& audience) const;
  bool wins(const Answer& answer) const;
  DraftOutcome outcome(std::span<Answer* const> answers, const std::function<bool(const Answer&)>& counts) const;

  std::optional<Budget> budget_ = {};
  bool cuts_ = false;
  bool networks_ = false;  // some drafter runs one
  CompanyDrafting company_;
  std::array<KnownProspects, 3> prospects_ = {};  // by way
  std::optional<RequestId> scout_ = {};
  int rounds_of_few_ = 0;   // in a row in which a scout would be enough
  bool all_draft_ = false;  // in this round
  std::size_t told_rows_ = 0;
  std::optional<ResidentBudget> resident_ = {};
  std::int64_t resident_rounds_ = 0;
  std::int64_t resident_rows_ = 0;  // of the step of the last of them
  const SecondsClock* clock_ = nullptr;
};

}  // namespace espalier
