#include "decode/budget.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "base/math.h"

namespace espalier {
namespace {

// The balance stays within so many plain steps: what was lost long ago does not forbid to try again, what was won long
// ago does not pay for losses now.
constexpr double kMostLost = 2, kMostWon = 4;
// Probes that find nothing may cost this share of the time.
constexpr double kProbeShare = 0.01;
constexpr std::int64_t kLongestPause = 256;
// What a round of drafters that have not won yet, or not lately, may cost beyond a plain one: a share of that.
constexpr double kRisk = 0.25;
// A running mean over the last 8 passes or so.
constexpr double kPassMemory = 8;

// A guess of some sequence.
struct Guess {
  double accepted = 0;
  int lane = 0;
  int id = 0;
};

// Higher chances first; among equals in the order of sequences and ids, so that parents stand before children.
bool better(const Guess& left, const Guess& right) {
  if (left.accepted != right.accepted) return left.accepted > right.accepted;
  return left.lane != right.lane ? left.lane < right.lane : left.id < right.id;
}

// The best guesses of one sequence, as many as it has room for.
std::vector<Guess> guesses_of(const DraftOfLane& draft, const AcceptanceEstimate& estimate, int lane) {
  std::vector<Guess> guesses;
  for (int id = 1; id < draft.candidates->size(); ++id) guesses.push_back({estimate[id], lane, id});
  std::ranges::sort(guesses, better);
  const auto room = static_cast<std::size_t>(std::max(0, draft.room - 1));
  if (guesses.size() > room) guesses.resize(room);
  return guesses;
}

// The same candidates, with the logarithm of their chances for a score.
Candidates rescored(const Candidates& candidates, const AcceptanceEstimate& estimate) {
  Candidates scored(candidates[0].token);
  for (int id = 1; id < candidates.size(); ++id) {
    const Candidate& candidate = candidates[id];
    const double p = estimate[id];
    const double score = p > 0 ? log_f64(p) : -std::numeric_limits<double>::infinity();
    scored.add(candidate.parent, {.token = candidate.token, .score = score, .sources = candidate.sources});
  }
  return scored;
}

void follow(double& mean, double value, double memory) {
  mean += (value - mean) / memory;
}

}  // namespace

RowChoice best_rows(std::span<const double> accepted, std::span<const double> step_seconds, double draft_seconds,
                    int roots) {
  const auto time = [&](int rows) {
    return draft_seconds + step_seconds[std::min(static_cast<std::size_t>(rows), step_seconds.size()) - 1];
  };
  double tokens = roots;
  RowChoice best{roots, tokens / time(roots)};
  const auto most = static_cast<int>(std::min(accepted.size() + static_cast<std::size_t>(roots), step_seconds.size()));
  for (int rows = roots + 1; rows <= most; ++rows) {
    tokens += accepted[static_cast<std::size_t>(rows - roots - 1)];
    if (const double rate = tokens / time(rows); rate > best.rate) best = {rows, rate};
  }
  return best;
}

bool Patience::drafts() {
  if (waited_ >= pause_) return true;
  ++waited_;
  return false;
}

void Patience::settle(double tokens, double seconds, double plain_seconds) {
  const double won = tokens * plain_seconds - seconds;
  balance_ = std::clamp(balance_ + won, -kMostLost * plain_seconds, kMostWon * plain_seconds);
  waited_ = 0;
  if (balance_ >= 0) {
    pause_ = longest_ = 0;
    return;
  }
  // What a round like this costs in vain, spread over a pause of n rounds, is an n-th of it in each. A cheap round ends
  // its own pause early, not those of the dear ones that follow.
  const double enough = (seconds - plain_seconds) / (kProbeShare * plain_seconds);
  longest_ = std::min(2 * longest_ + 1, kLongestPause);
  pause_ = static_cast<std::int64_t>(std::min(enough, static_cast<double>(longest_)));
}

Budget::Budget(StepTimes measured, const BudgetShape& shape)
    : costs_(std::move(measured), shape.buckets),
      passes_(static_cast<std::size_t>(shape.drafters)),
      step_seconds_(static_cast<std::size_t>(shape.rows)) {
  check(shape.rows >= 1, "budget: steps of {} rows", shape.rows);
}

bool Budget::begin_round(int roots, std::int64_t context) {
  roots_ = roots;
  context_ = context;
  costs_.fill(context, step_seconds_);
  drafts_ = patience_.drafts();
  affordable_rows_ = affordable_rows();
  return drafts_;
}

// Room for one guess at least: without any, nothing could be won.
std::size_t Budget::affordable_rows() const {
  const auto roots = static_cast<std::size_t>(roots_);
  if (patience_.wins() || roots >= step_seconds_.size()) return step_seconds_.size();
  const double most = std::max((1 + kRisk) * step_seconds_[roots - 1], step_seconds_[roots]);
  return static_cast<std::size_t>(std::ranges::upper_bound(step_seconds_, most) - step_seconds_.begin());
}

std::vector<TokenTree> Budget::cut(std::span<const DraftOfLane> drafts, double draft_seconds) {
  std::vector<AcceptanceEstimate> estimates(drafts.size());
  std::vector<Guess> guesses;
  for (std::size_t lane = 0; lane < drafts.size(); ++lane) {
    estimates[lane].extend(*drafts[lane].candidates, calibration_);
    const std::vector<Guess> own = guesses_of(drafts[lane], estimates[lane], static_cast<int>(lane));
    guesses.insert(guesses.end(), own.begin(), own.end());
  }
  if (drafts.size() > 1) std::ranges::sort(guesses, better);
  std::vector<double> accepted(guesses.size());
  std::ranges::transform(guesses, accepted.begin(), &Guess::accepted);
  const int roots = static_cast<int>(drafts.size());
  const int rows = best_rows(accepted, affordable_seconds(), draft_seconds, roots).rows;

  std::vector<int> kept(drafts.size(), 1);
  for (const Guess& guess : std::span(guesses).first(static_cast<std::size_t>(rows - roots)))
    ++kept[static_cast<std::size_t>(guess.lane)];
  std::vector<TokenTree> trees;
  for (std::size_t lane = 0; lane < drafts.size(); ++lane) {
    if (kept[lane] == 1)
      trees.emplace_back((*drafts[lane].candidates)[0].token);
    else
      trees.push_back(rescored(*drafts[lane].candidates, estimates[lane]).best(kept[lane]));
  }
  return trees;
}

void Budget::learn(const Candidates& candidates, std::span<const Visit> visits) {
  calibration_.learn(candidates, visits);
}

void Budget::observe_step(std::int64_t rows, double seconds) {
  costs_.observe(rows, context_, seconds);
}

// By the table on both sides of the balance: a step that another process delayed counts neither for nor against drafts.
void Budget::end_round(std::int64_t rows, std::int64_t tokens, double draft_seconds) {
  if (!drafts_) return;
  const auto time = [&](std::int64_t n) {
    return step_seconds_[std::min(static_cast<std::size_t>(n), step_seconds_.size()) - 1];
  };
  patience_.settle(static_cast<double>(tokens) / roots_, draft_seconds + time(rows), time(roots_));
}

void LevelBudget::begin(std::size_t drafter) {
  drafter_ = drafter;
  estimate_ = {};
  accepted_.clear();
}

bool LevelBudget::buys(const Candidates& candidates, std::span<const int> frontier) {
  merge_new(candidates);
  pass_begin_ = clock_();
  if (frontier[0] == 0) return true;  // that drafts are worth a try was decided before
  const Budget::Passes& passes = budget_.passes_[drafter_];
  hoped_.clear();
  // A level looks like the one above it, or like the drafter's levels on the average.
  for (int node : frontier)
    hoped_.push_back(estimate_[node] * std::max(estimate_.conditional(node), passes.best_child));
  std::ranges::sort(hoped_, std::greater<>());
  const auto own = static_cast<std::ptrdiff_t>(hoped_.size());
  hoped_.insert(hoped_.end(), accepted_.begin(), accepted_.end());
  std::ranges::inplace_merge(hoped_, hoped_.begin() + own, std::greater<>());
  const double spent = (pass_begin_ - begin_) * budget_.roots_;
  const auto rate = [&](const std::vector<double>& accepted, double seconds) {
    return best_rows(accepted, budget_.affordable_seconds(), seconds, budget_.roots_).rate;
  };
  return rate(hoped_, spent + passes.seconds * budget_.roots_) > rate(accepted_, spent);
}

void LevelBudget::bought(const Candidates& candidates, std::span<const int> frontier) {
  Budget::Passes& passes = budget_.passes_[drafter_];
  const double seconds = clock_() - pass_begin_;
  if (passes.seconds == 0) passes.seconds = seconds;
  follow(passes.seconds, std::min(seconds, 4 * passes.seconds), kPassMemory);
  merge_new(candidates);
  for (int node : frontier) {
    double best = 0;
    for (int child = candidates[node].newest_child; child != 0; child = candidates[child].older_sibling)
      best = std::max(best, estimate_.conditional(child));
    follow(passes.best_child, best, kPassMemory);
  }
}

void LevelBudget::merge_new(const Candidates& candidates) {
  const int first = std::max(1, estimate_.size());
  estimate_.extend(candidates, budget_.calibration_);
  const auto known = static_cast<std::ptrdiff_t>(accepted_.size());
  for (int id = first; id < candidates.size(); ++id) accepted_.push_back(estimate_[id]);
  std::ranges::sort(accepted_.begin() + known, accepted_.end(), std::greater<>());
  std::ranges::inplace_merge(accepted_, accepted_.begin() + known, std::greater<>());
}

}  // namespace espalier
