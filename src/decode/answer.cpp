#include "decode/answer.h"

#include <algorithm>

#include "base/random.h"

namespace espalier {

Answer::Answer(RequestId number, const GenerateRequest& asked, const SecondsClock& c)
    : id(number),
      prompt(asked.prompt.begin(), asked.prompt.end()),
      answered(asked.answered.begin(), asked.answered.end()),
      request(asked),
      path(prompt),
      clock(c),
      round_path(prompt.size() + answered.size()) {
  request.prompt = prompt;
  request.answered = answered;
  path.insert(path.end(), answered.begin(), answered.end());
  result.tokens = answered;
}

std::int64_t Answer::lacks_from() const {
  std::int64_t first = length;
  for (const auto& draft : drafts) first = std::min(first, draft->lacks_from());
  return first;
}

void Answer::tell(const CommittedRows& rows) {
  for (const auto& draft : drafts) draft->committed(rows);
}

void Answer::rest(bool resting) {
  for (const auto& draft : drafts) draft->rest(resting);
}

void Answer::tell_reused(std::int64_t positions) {
  length = positions;
  again = false;
  for (const auto& draft : drafts) again = draft->reused(committed()) || again;
  again = again && length > 0;
}

void Answer::begin_round() {
  stage = AnswerStage::draft;
  round_path = path.size();
  drafted = false;
  times = {};
}

DrawnRows Answer::drawn_rows() const {
  DrawnRows rows = drawn_row(first_row);
  rows.count = tree->size();
  return rows;
}

DrawnRows Answer::drawn_row(std::int64_t row) const {
  const GenerateOptions& options = request.options;
  return {.begin = row, .count = 1, .largest_decides = largest_decides(options.sampling) && options.logprobs < 0};
}

std::int32_t Answer::draw(const LogitRow& logits, std::int64_t context) {
  const GenerateOptions& options = request.options;
  GeneratedToken next;
  next.token = logits.all.empty() ? sample_largest(logits.largest, logits.best)
                                  : sample(logits.all, options.sampling, TokenPath{path, request.prompt.size()},
                                           uniform(options.seed, path.size()));
  next.stops = std::ranges::find(options.stop_tokens, next.token) != options.stop_tokens.end();
  if (options.logprobs >= 0) next.logprobs = logprobs(logits.all, next.token, options.logprobs);
  path.push_back(next.token);
  result.tokens.push_back(next.token);
  const std::optional<FinishReason> limit = limit_reached(context);
  next.last = limit.has_value();
  finish = end_after(next, limit);
  return next.token;
}

std::optional<FinishReason> Answer::limit_reached(std::int64_t context) const {
  if (tokens_left() <= 0) return FinishReason::token_limit;
  // To go on, the drawn token needs the last position of the path.
  if (std::ssize(path) > context) return FinishReason::context_limit;
  return std::nullopt;
}

// Why the answer ends with the token that was just drawn, if it does.
std::optional<FinishReason> Answer::end_after(const GeneratedToken& drawn, std::optional<FinishReason> limit) {
  const GenerateEvents& events = request.events;
  const bool goes_on = !events.on_token || ask(events.on_token, drawn);
  if (drawn.stops) return FinishReason::stop_token;
  if (!goes_on) return FinishReason::stopped;
  if (limit) return limit;
  if (events.cancelled && ask(events.cancelled)) return FinishReason::cancelled;
  return std::nullopt;
}

void Answer::count_round(std::span<const Visit> visits) {
  result.accept_lengths.push_back(static_cast<std::int64_t>(visits.size()) - 1);
  result.verified_rows += tree->size();
  result.plain_rounds += tree->size() == 1 ? 1 : 0;
  result.undrafted_rounds += drafted ? 0 : 1;
  result.times += times;
}

}  // namespace espalier
