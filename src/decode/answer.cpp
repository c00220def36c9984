#include "decode/answer.h"

#include <algorithm>

#include "decode/draw.h"

namespace espalier {

Answer::Answer(RequestId number, const GenerateRequest& asked, const SecondsClock& c)
    : id(number),
      prompt(asked.prompt.begin(), asked.prompt.end()),
      answered(asked.answered.begin(), asked.answered.end()),
      prediction(asked.prediction.begin(), asked.prediction.end()),
      request(asked),
      path(prompt),
      clock(c),
      round_path(prompt.size() + answered.size()) {
  request.prompt = prompt;
  request.answered = answered;
  request.prediction = prediction;
  path.insert(path.end(), answered.begin(), answered.end());
  result.tokens = answered;
}

std::int64_t Answer::reusable() const {
  if (!request.cache) return 0;
  return scored() < to_score() ? scored() : target() - 1;
}

// At rest nobody wants anything computed again.
void Answer::hear(bool listening) {
  if (listening == hearing) return;
  hearing = listening;
  if (!listening) return;
  heard_from = length;
  for (std::size_t i = 0; i < drafts.size(); ++i) {
    if (!drafts[i] || (every_text >> i & 1) != 0) continue;
    drafts[i]->rest(true);
    drafts[i]->reused(committed());
  }
}

bool Answer::tapped() const {
  for (std::size_t i = 0; i < drafts.size(); ++i)
    if ((tapping >> i & 1) != 0 && hears(i)) return true;
  return false;
}

std::int64_t Answer::lacks_from() const {
  std::int64_t first = length;
  for (std::size_t i = 0; i < drafts.size(); ++i)
    if (hears(i)) first = std::min(first, drafts[i]->lacks_from());
  return first;
}

void Answer::tell(const CommittedRows& rows) {
  for (std::size_t i = 0; i < drafts.size(); ++i)
    if (hears(i)) drafts[i]->committed(rows);
}

void Answer::rest(bool resting) {
  for (std::size_t i = 0; i < drafts.size(); ++i)
    if (drafts[i]) drafts[i]->rest(resting || !guesses(i));
}

void Answer::settle() {
  for (std::size_t i = 0; i < drafts.size(); ++i)
    if (hears(i)) drafts[i]->settle();
}

void Answer::tell_reused(std::int64_t positions) {
  length = positions;
  again = false;
  for (std::size_t i = 0; i < drafts.size(); ++i)
    if (hears(i)) again = drafts[i]->reused(committed()) || again;
  again = again && length > 0;
}

void Answer::begin_round() {
  stage = AnswerStage::draft;
  round_path = path.size();
  drafted = resident = false;
  asked = 0;
  passed_over.reset();
  times = {};
}

DrawnRows Answer::drawn_rows() const {
  DrawnRows rows = drawn_row(first_row);
  rows.count = tree->size();
  return rows;
}

DrawnRows Answer::drawn_row(std::int64_t row) const {
  return {.begin = row, .count = 1, .largest_decides = largest_decides(request.options, std::ssize(result.tokens))};
}

std::int32_t Answer::draw(const LogitRow& logits, std::int64_t context) {
  const GenerateOptions& options = request.options;
  GeneratedToken next;
  next.token = logits.all.empty() ? sample_largest(logits.largest, logits.best)
                                  : draw_token(logits.all, options, TokenPath{path, request.prompt.size()});
  if (options.logprobs >= 0) next.logprobs = logprobs(logits.all, next.token, options.logprobs);
  take(std::move(next), context);
  return path.back();
}

void Answer::take(GeneratedToken next, std::int64_t context) {
  const std::vector<std::int32_t>& stops = request.options.stop_tokens;
  next.stops = std::ranges::find(stops, next.token) != stops.end();
  path.push_back(next.token);
  result.tokens.push_back(next.token);
  const std::optional<FinishReason> limit = limit_reached(context);
  next.last = limit.has_value();
  finish = end_after(next, limit);
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

void Answer::score(const LogitRow& logits) {
  const std::int32_t next = prompt[static_cast<std::size_t>(scored()) + 1];
  result.prompt_logprobs.push_back(logprobs(logits.all, next, request.options.prompt_logprobs));
}

void Answer::count_round(std::span<const Visit> visits) {
  result.accept_lengths.push_back(static_cast<std::int64_t>(visits.size()) - 1);
  count_levels(judged_levels(*tree, visits, finish.has_value()), result.judged_by_depth);
  result.verified_rows += tree->size();
  result.plain_rounds += tree->size() == 1 ? 1 : 0;
  result.undrafted_rounds += drafted ? 0 : 1;
  result.times += times;
}

}  // namespace espalier
