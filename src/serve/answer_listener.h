// What the engine thread tells of one request, as plain values. Calls come from that thread, one at a time, and must
// return at once: whoever listens hands them on. The last is failed(), or ended() of the last choice; a request that
// was cancelled hears nothing more.
#pragma once

#include <vector>

#include "serve/protocol/answer_figures.h"
#include "serve/protocol/answer_piece.h"
#include "serve/protocol/api_error.h"

namespace espalier {

struct EndedChoice {
  AnswerPiece rest = {};  // of a stream what was not told before, else all of it
  ChoiceEnd end = {};
  ChoiceFigures figures = {};
  GenerateResult result = {};
};

class AnswerListener {
 public:
  virtual ~AnswerListener() = default;

  // The batch has taken it, or it has waited so long that a client wants a sign of life.
  virtual void begun() = 0;
  // The prompt of a choice has been read that was to be scored: of its tokens from the second on.
  virtual void prompt_scored(int choice, std::vector<Logprobs> logprobs) = 0;
  // Streams only. False: more waits for the client than may, and the request ends.
  virtual bool piece(int choice, AnswerPiece piece, const ChoiceFigures& figures) = 0;
  virtual void ended(int choice, EndedChoice ended) = 0;
  virtual void failed(const ApiError& error) = 0;
};

}  // namespace espalier
