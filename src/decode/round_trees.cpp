#include "decode/round_trees.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "base/error.h"
#include "decode/answer.h"
#include "decode/stopwatch.h"

namespace espalier {

void RoundTrees::grow(std::span<Answer* const> answers, std::span<const std::unique_ptr<Drafter>> drafters,
                      RoundBudget& budget) const {
  const Stopwatch clock(*clock_);
  propose(answers, drafters, ~SourceSet{0}, budget);
  cut(answers, clock, budget);
}

void RoundTrees::propose(std::span<Answer* const> answers, std::span<const std::unique_ptr<Drafter>> drafters,
                         SourceSet asked, RoundBudget& budget) const {
  std::vector<Answer*> drafting;
  for (Answer* answer : answers) {
    if (known_) {
      take_known(*answer);
      continue;
    }
    // The root, until somebody says more.
    const RoundLimits allowed = limits(*answer);
    answer->room = allowed.rows;
    answer->tree.emplace(answer->path.back());
    if (budget.chooses()) answer->candidates.emplace(answer->path.back());
    answer->drafted = answer->asks && allowed.depth > 0 && allowed.rows > 1 && (answer->drafters & asked) != 0;
    if (answer->drafted) drafting.push_back(answer);
  }
  if (!drafting.empty()) ask(drafting, drafters, asked, budget);
}

void RoundTrees::cut(std::span<Answer* const> answers, const Stopwatch& begin, RoundBudget& budget) const {
  budget.cut(answers, begin.seconds());
  const double seconds = begin.seconds();
  for (Answer* answer : answers) answer->times.draft = answer->draft_seconds = seconds;
}

void RoundTrees::take_known(Answer& answer) const {
  answer.tree = known_(answer.path);
  const TokenTree& tree = *answer.tree;
  const int most = max_rows(choices_->tree);
  check(tree[0].token == answer.path.back(), "a tree below token {}, expected one below {}", tree[0].token,
        answer.path.back());
  check(tree.size() <= most, "a tree of {} rows, expected at most {}", tree.size(), most);
  check(answer.length + tree.size() <= choices_->context, "a tree of {} rows behind {} of {} positions", tree.size(),
        answer.length, choices_->context);
  // A request that allows less than this tree has its root alone, and so has one that blocks are short for.
  const DraftCaps& caps = answer.request.draft;
  const bool allowed = caps.drafts && answer.drafts_fit && (caps.nodes == 0 || tree.size() <= caps.nodes) &&
                       (caps.depth == 0 || tree.depth() <= caps.depth);
  if (!allowed) answer.tree.emplace(answer.path.back());
}

// No deeper than the answer may still get, inside the context, and no more than was asked for.
RoundLimits RoundTrees::limits(const Answer& answer) const {
  const std::int64_t room = choices_->context - answer.length;
  const TreeOptions& tree = choices_->tree;
  const DraftCaps& caps = answer.request.draft;
  RoundLimits limits{
      .rows = static_cast<int>(std::min<std::int64_t>(max_rows(tree), room)),
      .depth = static_cast<int>(std::min<std::int64_t>({tree.depth, room - 1, answer.tokens_left() - 1})),
      .vocabulary = vocabulary_};
  if (caps.nodes > 0) limits.rows = std::min(limits.rows, caps.nodes);
  if (caps.depth > 0) limits.depth = std::min(limits.depth, caps.depth);
  if (caps.tree == TreeShape::chain) limits.rows = std::min(limits.rows, limits.depth + 1);
  if (!caps.drafts) limits.rows = 1;
  return limits;
}

void RoundTrees::ask(std::span<Answer* const> answers, std::span<const std::unique_ptr<Drafter>> drafters,
                     SourceSet asked, RoundBudget& budget) const {
  std::vector<GrowthJob> jobs;
  std::int64_t first_rows = 0;
  for (Answer* answer : answers) {
    first_rows += answer->first_rows();
    answer->drafted_at = answer->length;
    answer->asked = answer->drafters & asked;
    for (std::size_t i = 0; i < answer->drafts.size(); ++i)
      if ((answer->asked >> i & 1) != 0)
        answer->drafts[i]->begin_round({.tokens = answer->path, .branch = &*answer->branch});
    jobs.push_back({.root = answer->path.back(),
                    .limits = limits(*answer),
                    .sequences = answer->drafts,
                    .drafters = answer->asked,
                    .shape = answer->request.draft.tree});
  }
  std::optional<LevelBudget> levels;
  if (budget.chooses()) levels.emplace(budget.levels(first_rows));
  std::vector<Candidates> grown = grow_candidates(jobs, choices_->tree, drafters, levels ? &*levels : nullptr);
  for (std::size_t i = 0; i < answers.size(); ++i) {
    if (budget.chooses())
      answers[i]->candidates = std::move(grown[i]);
    else
      answers[i]->tree = grown[i].best(jobs[i].limits.rows);
  }
}

}  // namespace espalier
