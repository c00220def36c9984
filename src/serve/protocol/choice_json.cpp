#include "serve/protocol/choice_json.h"

#include <algorithm>

#include "serve/protocol/json_writer.h"
#include "serve/protocol/logprobs_json.h"

namespace espalier {
namespace {

std::string rounds_json(const std::vector<RoundRows>& rounds, const Tokenizer& tokenizer) {
  JsonArray list;
  for (const RoundRows& round : rounds) {
    JsonArray texts, scores, accepted;
    for (const TokenId token : round.tokens) texts.string(tokenizer.bytes(token, /*first=*/false));
    for (const double score : round.scores) scores.raw(json_logprob(score));
    for (const bool taken : round.accepted) accepted.raw(taken ? "true" : "false");
    JsonObject object;
    object.raw("parent", json_integers(round.parents)).raw("token", json_integers(round.tokens));
    object.raw("text", texts.text()).raw("score", scores.text()).raw("accepted", accepted.text());
    list.raw(object.integer("drawn", round.drawn).text());
  }
  return list.text();
}

std::string answer_ids_json(const std::vector<AnswerToken>& tokens) {
  JsonArray ids;
  for (const AnswerToken& token : tokens)
    if (!token.of_prompt) ids.integer(token.id);
  return ids.text();
}

bool has_logprobs(const AnswerFrame& frame, const AnswerPiece& piece) {
  if (frame.form.api == Api::text) return !piece.tokens.empty();
  return std::ranges::any_of(piece.tokens, [](const AnswerToken& token) { return !token.stops; });
}

// An event without tokens has none; a whole answer without tokens has an empty list of them.
std::string choice_logprobs(const AnswerFrame& frame, const AnswerPiece& piece, bool whole,
                            const Tokenizer& tokenizer) {
  if (!frame.form.logprobs || (!whole && !has_logprobs(frame, piece))) return "null";
  return frame.form.api == Api::chat ? chat_logprobs_json(piece.tokens, tokenizer)
                                     : text_logprobs_json(piece.tokens, tokenizer);
}

std::string stop_reason_json(const ChoiceEnd& end) {
  if (end.stop_string) return json_string(*end.stop_string);
  return end.stop_token ? std::to_string(*end.stop_token) : "null";
}

// What belongs to the tokens of a piece.
void add_extras(const AnswerFrame& frame, const AnswerPiece& piece, const Tokenizer& tokenizer, JsonObject& choice) {
  if (frame.form.token_ids) choice.raw("token_ids", answer_ids_json(piece.tokens));
  if (frame.form.rounds) choice.raw("rounds", rounds_json(piece.rounds, tokenizer));
}

// A chat has one prompt, and tells it outside of its choices (vLLM).
void add_prompt(const AnswerFrame& frame, int index, JsonObject& choice) {
  if (frame.form.token_ids && frame.form.api == Api::text)
    choice.raw("prompt_token_ids", json_integers(frame.prompts.at(static_cast<std::size_t>(index / frame.form.n))));
}

void add_end(const AnswerFrame& frame, const ChoiceAnswer& answer, JsonObject& choice) {
  choice.string("finish_reason", finish_reason(answer.end)).raw("stop_reason", stop_reason_json(answer.end));
  // Bits of the seed as they would be sent.
  if (frame.form.n > 1) choice.integer("seed", static_cast<std::int64_t>(answer.seed));
  if (!answer.receipt.empty()) choice.raw("receipt", answer.receipt);
}

JsonObject begin_delta(Api api, int index, std::string_view text) {
  JsonObject choice;
  choice.integer("index", index);
  if (api == Api::text) return choice.string("text", text);
  JsonObject delta;
  if (!text.empty()) delta.string("content", text);
  return choice.raw("delta", delta.text());
}

}  // namespace

std::string whole_choice_json(const AnswerFrame& frame, int index, const ChoiceAnswer& answer,
                              const Tokenizer& tokenizer) {
  JsonObject choice;
  choice.integer("index", index);
  if (frame.form.api == Api::text)
    choice.string("text", answer.piece.text);
  else
    choice.raw("message", JsonObject().string("role", "assistant").string("content", answer.piece.text).text());
  choice.raw("logprobs", choice_logprobs(frame, answer.piece, /*whole=*/true, tokenizer));
  add_end(frame, answer, choice);
  add_prompt(frame, index, choice);
  add_extras(frame, answer.piece, tokenizer, choice);
  return choice.text();
}

std::string first_delta_json(int index) {
  JsonObject choice;
  choice.integer("index", index);
  choice.raw("delta", JsonObject().string("role", "assistant").null("content").text());
  return choice.null("logprobs").null("finish_reason").text();
}

std::string delta_json(const AnswerFrame& frame, int index, const AnswerPiece& piece, bool tells_prompt,
                       const Tokenizer& tokenizer) {
  JsonObject choice = begin_delta(frame.form.api, index, piece.text);
  choice.raw("logprobs", choice_logprobs(frame, piece, /*whole=*/false, tokenizer)).null("finish_reason");
  if (tells_prompt) add_prompt(frame, index, choice);
  add_extras(frame, piece, tokenizer, choice);
  return choice.text();
}

std::string last_delta_json(const AnswerFrame& frame, int index, const ChoiceAnswer& rest, bool tells_prompt,
                            const Tokenizer& tokenizer) {
  JsonObject choice = begin_delta(frame.form.api, index, rest.piece.text);
  choice.raw("logprobs", choice_logprobs(frame, rest.piece, /*whole=*/false, tokenizer));
  add_end(frame, rest, choice);
  if (tells_prompt) add_prompt(frame, index, choice);
  add_extras(frame, rest.piece, tokenizer, choice);
  return choice.text();
}

}  // namespace espalier
