// One choice of a response: whole, or as what an event adds to it. Both are written by the same functions, so that the
// events of a stream, joined, are the object that would have come without one.
#pragma once

#include <string>

#include "serve/protocol/answer_object.h"

namespace espalier {

// Of a whole response.
std::string whole_choice_json(const AnswerFrame& frame, int index, const ChoiceAnswer& choice,
                              const Tokenizer& tokenizer);

// Of an event: the first of a chat's choice, a piece of text, and the last one, with whatever has no text.
std::string first_delta_json(int index);
std::string delta_json(const AnswerFrame& frame, int index, const AnswerPiece& piece, bool tells_prompt,
                       const Tokenizer& tokenizer);
std::string last_delta_json(const AnswerFrame& frame, int index, const ChoiceAnswer& rest, bool tells_prompt,
                            const Tokenizer& tokenizer);

}  // namespace espalier
