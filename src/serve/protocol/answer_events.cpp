#include "serve/protocol/answer_events.h"

#include <utility>

#include "base/error.h"
#include "serve/protocol/choice_json.h"
#include "serve/protocol/json_writer.h"

namespace espalier {
namespace {

constexpr std::string_view kDone = "data: [DONE]\n\n";

std::string event_line(std::string_view json) {
  std::string line = "data: ";
  line += json;
  return line += "\n\n";
}

}  // namespace

AnswerEvents::AnswerEvents(AnswerFrame frame, const Tokenizer& tokenizer)
    : frame_(std::move(frame)),
      tokenizer_(&tokenizer),
      choices_(static_cast<std::size_t>(frame_.form.choices())),
      open_(frame_.form.choices()) {
  check(std::ssize(frame_.prompts) == frame_.form.prompts, "events of {} prompts, got {}", frame_.form.prompts,
        frame_.prompts.size());
  for (std::size_t i = 0; i < choices_.size(); ++i)
    choices_[i].figures.prompt_tokens = std::ssize(frame_.prompts[i / static_cast<std::size_t>(frame_.form.n)]);
}

ChoiceFigures AnswerEvents::total() const {
  std::vector<ChoiceFigures> figures;
  for (const Choice& choice : choices_) figures.push_back(choice.figures);
  return total_figures(figures, frame_.form.n);
}

// last: of all choices.
std::string AnswerEvents::event(int choice, std::string_view choice_json, bool last) {
  const AnswerForm& form = frame_.form;
  JsonObject object = framed_object(frame_, /*whole=*/false);
  object.raw("choices", JsonArray().raw(choice_json).text());
  if (form.include_usage) object.raw("usage", form.continuous_usage ? usage_json(total(), form.prediction) : "null");
  bool& told = choices_[static_cast<std::size_t>(choice)].told_prompt;
  if (form.token_ids && form.api == Api::chat && choice == 0 && !told)
    object.raw("prompt_token_ids", json_integers(frame_.prompts.at(0)));
  told = true;
  if (last) object.integer("seed", static_cast<std::int64_t>(frame_.seed));
  if (last || form.timings_per_token) object.raw("timings", timings_json(total()));
  if (last && form.metrics) object.raw("metrics", metrics_json(total()));
  return event_line(object.text());
}

std::string AnswerEvents::begin() {
  std::string events;
  if (frame_.form.api == Api::text) return events;
  for (int i = 0; i < frame_.form.choices(); ++i) events += event(i, first_delta_json(i), /*last=*/false);
  return events;
}

std::string AnswerEvents::piece(int index, AnswerPiece piece, const ChoiceFigures& figures) {
  Choice& choice = choices_.at(static_cast<std::size_t>(index));
  check(!choice.ended, "a piece of choice {}, which has ended", index);
  choice.figures = figures;
  choice.held.append(std::move(piece));
  if (choice.held.text.empty()) return {};
  const AnswerPiece sent = std::exchange(choice.held, {});
  return event(index, delta_json(frame_, index, sent, !choice.told_prompt, *tokenizer_), /*last=*/false);
}

std::string AnswerEvents::end(int index, ChoiceAnswer rest) {
  std::string events = piece(index, std::move(rest.piece), rest.figures);
  Choice& choice = choices_.at(static_cast<std::size_t>(index));
  choice.ended = true;
  --open_;
  rest.piece = std::exchange(choice.held, {});
  return events + event(index, last_delta_json(frame_, index, rest, !choice.told_prompt, *tokenizer_), open_ == 0);
}

std::string AnswerEvents::done() const {
  check(open_ == 0, "a stream is done with {} choices open", open_);
  if (!frame_.form.include_usage) return std::string(kDone);
  JsonObject object = framed_object(frame_, /*whole=*/false);
  object.raw("choices", "[]").raw("usage", usage_json(total(), frame_.form.prediction));
  return event_line(object.text()) + std::string(kDone);
}

std::string AnswerEvents::failure(const ApiError& error) {
  return event_line(error_json(error)) + std::string(kDone);
}

}  // namespace espalier
