#include "serve/testing/heard_answer.h"

#include <utility>

namespace espalier {

void HeardAnswer::begun() {
  if (on_begun) on_begun();
  change([&] {
    begun_ = true;
    ++begun_count_;
  });
}

void HeardAnswer::prompt_scored(int choice, std::vector<Logprobs> logprobs) {
  if (on_scored) on_scored();
  change([&] { scores_[choice] = std::move(logprobs); });
}

bool HeardAnswer::piece(int choice, AnswerPiece piece, const ChoiceFigures&) {
  if (on_piece) on_piece(pieces() + 1);
  change([&] {
    ++pieces_;
    texts_[choice] += piece.text;
  });
  return takes_pieces;
}

void HeardAnswer::ended(int choice, EndedChoice ended) {
  if (on_ended) on_ended();
  change([&] {
    texts_[choice] += ended.rest.text;
    ends_[choice] = std::move(ended);
    --open_;
  });
}

void HeardAnswer::failed(const ApiError& error) {
  change([&] { failure_ = error; });
}

}  // namespace espalier
