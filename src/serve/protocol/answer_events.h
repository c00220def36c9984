// A response as server-sent events: begin(), then pieces of the choices in any order, one end() for each choice, then
// done(). Each call returns text to be sent as it is, empty where there is nothing to send. A piece without text waits
// for the next event of its choice, so that `content` is never empty. One thread at a time.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "serve/protocol/answer_object.h"
#include "serve/protocol/api_error.h"

namespace espalier {

class AnswerEvents {
 public:
  // The tokenizer must outlive this.
  AnswerEvents(AnswerFrame frame, const Tokenizer& tokenizer);

  // The first delta of each choice of a chat.
  std::string begin();
  // figures: of the choice so far, for timings and usage in every event.
  std::string piece(int choice, AnswerPiece piece, const ChoiceFigures& figures);
  // What is left of a choice, and its end. The last of all choices tells timings and metrics.
  std::string end(int choice, ChoiceAnswer rest);
  // The event of usage where it is wanted, and [DONE].
  std::string done() const;

  bool ended() const { return open_ == 0; }

  // Something went wrong behind the headers: {"error": ...} and [DONE].
  static std::string failure(const ApiError& error);
  // A comment, so that a silent connection is not taken for a dead one.
  static std::string_view keep_alive() { return ":\n\n"; }

 private:
  struct Choice {
    AnswerPiece held = {};  // tokens and rounds without text
    ChoiceFigures figures = {};
    bool told_prompt = false;  // the tokens of its prompt, where they are wanted
    bool ended = false;
  };

  ChoiceFigures total() const;
  std::string event(int choice, std::string_view choice_json, bool last);

  AnswerFrame frame_;
  const Tokenizer* tokenizer_;
  std::vector<Choice> choices_;
  int open_;  // how many have not ended
};

}  // namespace espalier
