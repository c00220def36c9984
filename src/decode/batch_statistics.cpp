#include "decode/batch_statistics.h"

#include <numeric>

#include "decode/answer.h"
#include "decode/teacher_steps.h"

namespace espalier {

void DraftCounts::count(const TokenTree& tree, std::span<const Visit> visits, SourceSet sources) {
  std::int64_t guesses = 0;
  for (const TreeNode& node : tree.nodes().subspan(1)) guesses += (node.sources & sources) != 0 ? 1 : 0;
  if (guesses == 0) return;
  ++drafts;
  tokens += guesses;
  for (const Visit& visit : visits.subspan(1)) {
    const TreeNode& node = tree[visit.node];
    if ((node.sources & sources) == 0) continue;
    ++accepted_tokens;
    const auto depth = static_cast<std::size_t>(node.depth);
    if (accepted_by_depth.size() < depth) accepted_by_depth.resize(depth);
    ++accepted_by_depth[depth - 1];
  }
}

void BatchStatistics::count_step(std::span<Answer* const> trees, std::span<const PromptPart> prompts,
                                 std::int64_t padding) {
  ++steps;
  rows.padding += padding;
  for (const Answer* answer : trees) {
    ++rows.roots;
    rows.drafts += answer->tree->size() - 1;
  }
  for (const PromptPart& part : prompts) rows.prompts += part.rows();
}

void BatchStatistics::count_resident(std::span<Answer* const> trees, std::int64_t rows) {
  for (const Answer* answer : trees) rows -= answer->tree->size();
  count_step(trees, {}, rows);
  ++resident_steps;
}

void BatchStatistics::count_round(const TokenTree& tree, std::span<const Visit> visits) {
  answer_tokens += std::ssize(visits);
  drafts.count(tree, visits, ~SourceSet{0});
  for (std::size_t i = 0; i < drafters.size(); ++i) drafters[i].counts.count(tree, visits, SourceSet{1} << i);
}

void BatchStatistics::count_prompt(const Answer& answer) {
  prompt_tokens += std::ssize(answer.prompt);
  cached_prompt_tokens += std::min(answer.result.reused_tokens, std::ssize(answer.prompt));
}

double RunningAnswer::accept_length() const {
  return rounds == 0 ? 0 : static_cast<double>(accepted_tokens) / static_cast<double>(rounds);
}

RunningAnswer running_answer(const Answer& answer) {
  const GenerateResult& result = answer.result;
  return {.id = answer.id,
          .decodes = answer.phase == AnswerPhase::decoding,
          .prompt_tokens = std::ssize(answer.prompt),
          .cached_tokens = std::min(result.reused_tokens, std::ssize(answer.prompt)),
          .computed = answer.length,
          .answer_tokens = std::ssize(result.tokens),
          .rounds = result.rounds(),
          .verified_rows = result.verified_rows,
          .accepted_tokens = result.accepted_tokens()};
}

}  // namespace espalier
