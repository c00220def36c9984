#include "decode/budget.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "base/math.h"
#include "decode/row_choice.h"

namespace espalier {
namespace {

constexpr double kGoodChance = 0.8;  // of a guess below an accepted one: few drafters are better
// What a round of drafters that have not won yet, or not lately, may cost beyond a plain one: a share of that.
constexpr double kRisk = 0.25;
constexpr double kPassMemory = 8;  // in running means

// A guess of some sequence.
struct Guess {
  double accepted = 0;
  int sequence = 0;
  int id = 0;
};

// Higher chances first; among equals in the order of sequences and ids, so that parents stand before children.
bool better(const Guess& left, const Guess& right) {
  if (left.accepted != right.accepted) return left.accepted > right.accepted;
  return left.sequence != right.sequence ? left.sequence < right.sequence : left.id < right.id;
}

// The best guesses of one sequence, as many as it has room for.
std::vector<Guess> guesses_of(const DraftOfSequence& draft, const AcceptanceEstimate& estimate, int sequence) {
  std::vector<Guess> guesses;
  for (int id = 1; id < draft.candidates->size(); ++id) guesses.push_back({estimate[id], sequence, id});
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
    scored.add(candidate.parent,
               {.token = candidate.token, .score = score_of(estimate[id]), .sources = candidate.sources});
  }
  return scored;
}

// The guesses of all sequences, best first, and how many of them pay.
struct Offer {
  std::vector<AcceptanceEstimate> estimates;
  std::vector<Guess> guesses;
  GuessChoice choice;
};

Offer offer_of(std::span<const DraftOfSequence> drafts, const Calibration& calibration, const StepOffer& step) {
  Offer offer{.estimates = std::vector<AcceptanceEstimate>(drafts.size()), .guesses = {}, .choice = {}};
  for (std::size_t sequence = 0; sequence < drafts.size(); ++sequence) {
    offer.estimates[sequence].extend(*drafts[sequence].candidates, calibration);
    const std::vector<Guess> own = guesses_of(drafts[sequence], offer.estimates[sequence], static_cast<int>(sequence));
    offer.guesses.insert(offer.guesses.end(), own.begin(), own.end());
  }
  if (drafts.size() > 1) std::ranges::sort(offer.guesses, better);
  std::vector<GuessChance> chances;
  for (const Guess& guess : offer.guesses) chances.push_back({guess.accepted, guess.sequence});
  offer.choice = best_guesses(chances, step);
  return offer;
}

void follow(double& mean, double value, double memory) {
  mean += (value - mean) / memory;
}

}  // namespace

RowChoice best_rows(std::span<const double> accepted, std::span<const double> step_seconds, double draft_seconds,
                    int roots, int prompt_rows) {
  const auto step = [&](int rows) { return seconds_of_rows(step_seconds, rows); };
  const double apart = draft_seconds + (step(roots) - step(roots + prompt_rows));
  const auto time = [&](int rows) { return apart + step(rows + prompt_rows); };
  double tokens = roots;
  RowChoice best{roots, tokens / time(roots)};
  const std::int64_t most = std::min(std::ssize(accepted) + roots, std::ssize(step_seconds) - prompt_rows);
  for (int rows = roots + 1; rows <= most; ++rows) {
    tokens += accepted[static_cast<std::size_t>(rows - roots - 1)];
    if (const double rate = tokens / time(rows); rate > best.rate) best = {rows, rate};
  }
  return best;
}

Budget::Budget(StepTimes measured, const BudgetShape& shape)
    : costs_(std::move(measured), shape.buckets),
      networks_(shape.networks),
      passes_(static_cast<std::size_t>(shape.drafters)),
      step_seconds_(static_cast<std::size_t>(shape.rows)) {
  check(shape.rows >= 1, "budget: steps of {} rows", shape.rows);
}

// Where no drafter has been timed yet, those that run networks take what is least to be expected of one.
Prospects Budget::prospects(int answers) const {
  double share = 0;
  for (const Passes& passes : passes_) share += passes.share.mean();
  return prospects(answers, share > 0 || networks_ == 0 ? share : kUsualLevelShare);
}

// Where the last round was: who comes is not far from there.
Prospects Budget::prospects(int answers, double level_share) const {
  std::vector<double> seconds(step_seconds_.size());
  costs_.fill(round_.context, seconds);
  const auto taken = [&](double rows) { return level_share * seconds_of_rows(seconds, std::llround(std::ceil(rows))); };
  const DraftPrices prices{.step_seconds = seconds,
                           .roots = answers,
                           .first_level = taken(answers * (1 + worth_.mean())),
                           .further_level = taken(answers)};
  const std::vector<double> good(static_cast<std::size_t>(answers), kGoodChance);
  return {.gain = drafting_gain(worth_.expected(answers), prices), .hope = drafting_gain(good, prices)};
}

void Budget::begin_round(const RoundShape& round) {
  round_ = round;
  costs_.fill(round.context, step_seconds_);
  affordable_rows_ = affordable_rows();
}

// Room for one guess at least: without any, nothing could be won.
std::size_t Budget::affordable_rows() const {
  const auto sure = static_cast<std::size_t>(round_.roots + round_.prompt_rows);
  if (round_.wins || sure >= step_seconds_.size()) return step_seconds_.size();
  const double most = std::max((1 + kRisk) * step_seconds_[sure - 1], step_seconds_[sure]);
  return static_cast<std::size_t>(std::ranges::upper_bound(step_seconds_, most) - step_seconds_.begin());
}

StepOffer Budget::step_offer(std::int64_t roots, double draft_seconds) const {
  return {.step_seconds = step_seconds_,
          .draft_seconds = draft_seconds,
          .roots = static_cast<int>(roots),
          .prompt_rows = round_.prompt_rows,
          .affordable = static_cast<int>(affordable_rows_)};
}

double Budget::rate(std::span<const DraftOfSequence> drafts) const {
  return offer_of(drafts, calibration_, step_offer(std::ssize(drafts), 0)).choice.rate;
}

std::vector<TokenTree> Budget::cut(std::span<const DraftOfSequence> drafts, double draft_seconds) {
  const auto [estimates, guesses, choice] =
      offer_of(drafts, calibration_, step_offer(std::ssize(drafts), draft_seconds));
  std::vector<int> kept(drafts.size(), 1);
  for (const Guess& guess : std::span(guesses).first(static_cast<std::size_t>(choice.guesses)))
    ++kept[static_cast<std::size_t>(guess.sequence)];
  std::vector<TokenTree> trees;
  for (std::size_t sequence = 0; sequence < drafts.size(); ++sequence) {
    if (kept[sequence] == 1)
      trees.emplace_back((*drafts[sequence].candidates)[0].token);
    else
      trees.push_back(rescored(*drafts[sequence].candidates, estimates[sequence]).best(kept[sequence]));
  }
  return trees;
}

void Budget::learn(const Candidates& candidates, std::span<const Visit> visits) {
  calibration_.learn(candidates, visits);
}

void Budget::appraise(const Candidates& candidates, SourceSet asked, int times) {
  if (networks_ != 0 && (asked & networks_) == 0) return;
  double best = 0;
  for (int child = candidates[0].newest_child; child != 0; child = candidates[child].older_sibling)
    best =
        std::max(best, calibration_.probability(candidates[child].sources, conditional_probability(candidates, child)));
  worth_.learn(best, times);
}

void Budget::observe_step(std::int64_t rows, std::int64_t context, double seconds) {
  costs_.observe(rows, context, seconds);
}

// By the table on both sides of the balance: a step that another process delayed counts neither for nor against drafts.
double Budget::plain_seconds() const {
  return seconds_of_rows(step_seconds_, round_.roots);
}

UsualSeconds Budget::usual_drafting(std::int64_t drafting) const {
  UsualSeconds usual = drafting_[company_size(drafting)];
  if (!usual.known()) usual.note(kUsualLevelShare * plain_seconds(), kPassMemory);
  return usual;
}

void Budget::observe_drafting(std::int64_t drafting, double seconds) {
  UsualSeconds usual = usual_drafting(drafting);
  usual.note(seconds, kPassMemory);
  drafting_[company_size(drafting)] = usual;
}

double Budget::added_seconds(double rows_share, std::int64_t step_rows, std::int64_t drafting,
                             double draft_seconds) const {
  const double drafts = usual_drafting(drafting).undelayed(draft_seconds) / static_cast<double>(drafting);
  return drafts + rows_share * (seconds_of_rows(step_seconds_, step_rows) - plain_seconds());
}

void LevelBudget::begin(std::size_t drafter) {
  drafter_ = drafter;
  estimates_.clear();
  accepted_.clear();
}

AcceptanceEstimate& LevelBudget::estimate(const Frontier& frontier) {
  if (estimates_.size() <= frontier.job) estimates_.resize(frontier.job + 1);
  return estimates_[frontier.job];
}

bool LevelBudget::buys(std::span<const Frontier> frontiers) {
  merge_new(frontiers);
  pass_begin_ = clock_();
  if (frontiers[0].nodes[0] == 0) return true;  // that drafts are worth a try was decided before
  const Budget::Passes& passes = budget_.passes_[drafter_];
  hoped_.clear();
  // A level looks like the one above it, or like the drafter's levels on the average.
  for (const Frontier& frontier : frontiers) {
    const AcceptanceEstimate& known = estimate(frontier);
    for (int node : frontier.nodes)
      hoped_.push_back(known[node] * std::max(known.conditional(node), passes.best_child));
  }
  std::ranges::sort(hoped_, std::greater<>());
  const auto own = static_cast<std::ptrdiff_t>(hoped_.size());
  hoped_.insert(hoped_.end(), accepted_.begin(), accepted_.end());
  std::ranges::inplace_merge(hoped_, hoped_.begin() + own, std::greater<>());
  const double spent = pass_begin_ - begin_;
  const auto rate = [&](const std::vector<double>& accepted, double seconds) {
    const RoundShape& round = budget_.round_;
    return best_rows(accepted, budget_.affordable_seconds(), seconds, round.roots, round.prompt_rows).rate;
  };
  return rate(hoped_, spent + passes.seconds.mean()) > rate(accepted_, spent);
}

void LevelBudget::bought(std::span<const Frontier> frontiers) {
  time_pass(frontiers);
  Budget::Passes& passes = budget_.passes_[drafter_];
  merge_new(frontiers);
  for (const Frontier& frontier : frontiers) {
    const Candidates& candidates = *frontier.candidates;
    for (int node : frontier.nodes) {
      double best = 0;
      for (int child = candidates[node].newest_child; child != 0; child = candidates[child].older_sibling)
        best = std::max(best, estimate(frontier).conditional(child));
      follow(passes.best_child, best, kPassMemory);
    }
  }
}

void LevelBudget::time_pass(std::span<const Frontier> frontiers) {
  Budget::Passes& passes = budget_.passes_[drafter_];
  std::int64_t rows = 0;
  for (const Frontier& frontier : frontiers) rows += std::ssize(frontier.nodes);
  if (frontiers[0].nodes[0] == 0) rows = std::max(rows, first_rows_);
  const double seconds = clock_() - pass_begin_;
  passes.seconds.note(seconds, kPassMemory);
  passes.share.note(seconds / seconds_of_rows(budget_.step_seconds_, rows), kPassMemory);
}

void LevelBudget::merge_new(std::span<const Frontier> frontiers) {
  const auto known = static_cast<std::ptrdiff_t>(accepted_.size());
  for (const Frontier& frontier : frontiers) {
    AcceptanceEstimate& chances = estimate(frontier);
    const int first = std::max(1, chances.size());
    chances.extend(*frontier.candidates, budget_.calibration_);
    for (int id = first; id < frontier.candidates->size(); ++id) accepted_.push_back(chances[id]);
  }
  std::ranges::sort(accepted_.begin() + known, accepted_.end(), std::greater<>());
  std::ranges::inplace_merge(accepted_, accepted_.begin() + known, std::greater<>());
}

}  // namespace espalier
