// The end of an answer whose tokens were drawn in another way than by a batch: for each of them, whether the answer
// goes on behind it, by the very code that a batch ends its answers with (answer.h). The tokens themselves draw_token()
// gives (draw.h). One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "decode/request.h"
#include "decode/step_times.h"

namespace espalier {

struct Answer;

class AnswerReplay {
 public:
  // Of this request, in a batch of so many positions a sequence. Its events hear of every token as they would there.
  // Its tokens are copied.
  AnswerReplay(const GenerateRequest& request, std::int64_t context);
  ~AnswerReplay();
  AnswerReplay(const AnswerReplay&) = delete;
  AnswerReplay& operator=(const AnswerReplay&) = delete;

  // Why the answer has ended; nothing: there is a next token.
  std::optional<FinishReason> finish() const;
  // It is this one.   REQUIRES: !finish()
  void take(std::int32_t token);

 private:
  std::int64_t context_;
  SecondsClock clock_;
  std::unique_ptr<Answer> answer_;
};

}  // namespace espalier
