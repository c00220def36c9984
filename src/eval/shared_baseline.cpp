#include "eval/shared_baseline.h"

#include "base/error.h"
#include "base/untrusted_text.h"

namespace espalier {

SharedBaseline::SharedBaseline(std::span<const TurnRecord> turns) {
  for (const TurnRecord& turn : turns) {
    Answer answer{turn.prompt, turn.baseline.value_or(BaselineTurn{turn.seconds, turn.tokens, turn.finish_reason})};
    answer.turn.retimed.reset();
    answers_.insert_or_assign({turn.set, turn.prompt_id, turn.turn}, std::move(answer));
  }
}

BaselineTurn SharedBaseline::find(const TurnRecord& turn) const {
  const auto found = answers_.find({turn.set, turn.prompt_id, turn.turn});
  const auto refuse = [&](std::string_view problem) {
    input_error("the shared baseline: prompt {}, turn {}: {}", in_quotes(text_of(turn.prompt_id)), turn.turn, problem);
  };
  if (found == answers_.end()) refuse("not there, expected every turn of this run");
  if (turn.turn == 1 && found->second.prompt != turn.prompt)
    refuse("its prompt has other tokens, expected a run on the same model and template");
  return found->second.turn;
}

}  // namespace espalier
