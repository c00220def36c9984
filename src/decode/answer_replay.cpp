#include "decode/answer_replay.h"

#include "base/error.h"
#include "decode/answer.h"

namespace espalier {

AnswerReplay::AnswerReplay(const GenerateRequest& request, std::int64_t context)
    : context_(context),
      clock_([] { return 0.0; }),  // nobody asks how long it takes
      answer_(std::make_unique<Answer>(-1, request, clock_)) {
  if (answer_->tokens_left() <= 0) answer_->finish = FinishReason::token_limit;  // as a batch does behind the prompt
}

AnswerReplay::~AnswerReplay() = default;

std::optional<FinishReason> AnswerReplay::finish() const {
  return answer_->finish;
}

void AnswerReplay::take(std::int32_t token) {
  check(!answer_->finish, "replay: the answer has ended");
  answer_->take({.token = token, .logprobs = {}}, context_);
}

}  // namespace espalier
