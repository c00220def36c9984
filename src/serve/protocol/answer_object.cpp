#include "serve/protocol/answer_object.h"

#include <vector>

#include "base/error.h"
#include "serve/protocol/choice_json.h"
#include "serve/protocol/json_writer.h"

namespace espalier {

std::string response_json(const AnswerFrame& frame, std::span<const ChoiceAnswer> choices, const Tokenizer& tokenizer) {
  check(std::ssize(choices) == frame.form.choices(), "a response of {} choices, got {}", frame.form.choices(),
        choices.size());
  JsonArray list;
  std::vector<ChoiceFigures> figures;
  for (const ChoiceAnswer& choice : choices) {
    list.raw(whole_choice_json(frame, static_cast<int>(figures.size()), choice, tokenizer));
    figures.push_back(choice.figures);
  }
  const ChoiceFigures total = total_figures(figures, frame.form.n);
  JsonObject object = framed_object(frame, /*whole=*/true);
  object.raw("choices", list.text()).raw("usage", usage_json(total, frame.form.prediction));
  object.integer("seed", static_cast<std::int64_t>(frame.seed)).raw("timings", timings_json(total));
  if (frame.form.metrics) object.raw("metrics", metrics_json(total));
  if (frame.form.token_ids && frame.form.api == Api::chat)
    object.raw("prompt_token_ids", json_integers(frame.prompts.at(0)));
  return object.text();
}

}  // namespace espalier
