#include "serve/protocol/answer_piece.h"

#include <algorithm>
#include <iterator>

namespace espalier {
namespace {

template <typename Value>
void move_behind(std::vector<Value>& all, std::vector<Value>& more) {
  all.insert(all.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

}  // namespace

RoundRows rows_of(const Round& round) {
  RoundRows rows;
  rows.accepted.resize(static_cast<std::size_t>(round.tree.size()));
  for (const TreeNode& node : round.tree.nodes()) {
    rows.parents.push_back(node.parent);
    rows.tokens.push_back(node.token);
    rows.scores.push_back(node.score);
  }
  for (const Visit& visit : round.visits) rows.accepted[static_cast<std::size_t>(visit.node)] = true;
  rows.drawn = round.visits.back().token;
  return rows;
}

void AnswerPiece::append(AnswerPiece piece) {
  text += piece.text;
  move_behind(tokens, piece.tokens);
  move_behind(rounds, piece.rounds);
}

ChoiceEnd end_of(const TextResult& result, const TextOptions& options) {
  ChoiceEnd end{.reason = result.generated.finish_reason, .stop_string = result.stop_string};
  const std::vector<TokenId>& named = options.generate.stop_tokens;
  if (result.stop_token && std::ranges::find(named, *result.stop_token) != named.end())
    end.stop_token = result.stop_token;
  return end;
}

std::string_view finish_reason(const ChoiceEnd& end) {
  switch (end.reason) {
    case FinishReason::stop_token:
    case FinishReason::stopped: return "stop";
    case FinishReason::token_limit:
    case FinishReason::context_limit: return "length";
    case FinishReason::cancelled: return "abort";
  }
  return "abort";
}

}  // namespace espalier
