#include "serve/answer_writer.h"

#include <utility>

namespace espalier {
namespace {

// About what a piece becomes as JSON.
std::size_t written_bytes(const AnswerPiece& piece) {
  std::size_t bytes = 256 + piece.text.size();
  for (const AnswerToken& token : piece.tokens)
    bytes += 16 + (token.logprobs ? 64 * (1 + token.logprobs->top.size()) : 0);
  for (const RoundRows& round : piece.rounds) bytes += 40 * round.tokens.size();
  return bytes;
}

}  // namespace

HttpResponse error_response(const ApiError& error, std::vector<HttpHeader> headers) {
  if (error.retry_after) headers.push_back({"Retry-After", std::to_string(*error.retry_after)});
  if (!error.allow.empty()) headers.push_back({"Allow", error.allow});
  return {.status = error.status, .headers = std::move(headers), .body = error_json(error)};
}

AnswerWriter::AnswerWriter(WorkerPool& pool, Metrics& metrics, AnswerSheet sheet, std::shared_ptr<HttpReply> reply,
                           std::size_t outbox_bytes)
    : pool_(pool),
      metrics_(metrics),
      outbox_bytes_(outbox_bytes),
      reply_(std::move(reply)),
      sheet_(std::move(sheet)),
      scored_(sheet_.prompts.size()),
      echoed_(sheet_.choices.size()),
      open_(sheet_.choices.size()) {
  if (sheet_.frame.form.stream)
    stream_.emplace(sheet_.frame, *sheet_.tokenizer);
  else
    answers_.resize(sheet_.choices.size());
}

AnswerWriter::~AnswerWriter() {
  if (!over_) reply_->abandon();
}

// --- from the engine thread -----------------------------------------------------------------------------------------

// One piece may be as long as it likes where nothing waits, as in HttpExchange.
bool AnswerWriter::push(Event event, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const bool fits = waiting_bytes_ == 0 || waiting_bytes_ + bytes <= outbox_bytes_;
  waiting_.push_back(std::move(event));
  waiting_bytes_ += bytes;
  if (!scheduled_) pool_.write([self = shared_from_this()] { self->write_waiting(); });
  scheduled_ = true;
  return fits;
}

void AnswerWriter::begun() {
  if (stream_) push(Begun{}, 0);
}

void AnswerWriter::prompt_scored(int choice, std::vector<Logprobs> logprobs) {
  push(Scored{choice, std::move(logprobs)}, 0);
}

bool AnswerWriter::piece(int choice, AnswerPiece piece, const ChoiceFigures& figures) {
  const std::size_t bytes = written_bytes(piece);
  return push(Piece{choice, std::move(piece), figures}, bytes);
}

void AnswerWriter::ended(int choice, EndedChoice ended) {
  push(Ended{choice, std::move(ended)}, 0);
}

void AnswerWriter::failed(const ApiError& error) {
  push(error, 0);
}

// --- on a worker thread ---------------------------------------------------------------------------------------------

void AnswerWriter::write_waiting() {
  while (true) {
    std::vector<Event> events;
    {
      const std::lock_guard lock(mutex_);
      events.swap(waiting_);
      waiting_bytes_ = 0;
      if (events.empty()) {
        scheduled_ = false;
        return;
      }
    }
    for (Event& event : events) write(event);
  }
}

// Whatever goes wrong in the writing is our fault; it is told as long as anything can be told.
void AnswerWriter::write(Event& event) {
  if (over_) return;
  try {
    std::visit([this](auto& known) { write_event(known); }, event);
  } catch (...) {
    try {
      write_event(api_error_of(std::current_exception(), sheet_.frame.id));
    } catch (...) {
      over_ = true;
      reply_->abandon();
    }
  }
}

std::vector<HttpHeader> AnswerWriter::headers() const {
  return {{"X-Request-Id", sheet_.frame.id}};
}

void AnswerWriter::open_stream() {
  if (streaming_) return;
  const std::string first = stream_->begin();
  reply_->begin_events(headers());
  streaming_ = true;
  if (!first.empty()) reply_->write(first);
}

void AnswerWriter::write_event(const Begun&) {
  open_stream();
}

void AnswerWriter::write_event(Scored& scored) {
  scored_.at(static_cast<std::size_t>(prompt_of(scored.choice))) = std::move(scored.logprobs);
  std::vector<Event> held;
  held.swap(held_);
  for (Event& event : held) write(event);  // those of other prompts are held again
}

int AnswerWriter::prompt_of(int choice) const {
  return sheet_.choices.at(static_cast<std::size_t>(choice)).prompt;
}

// Only the first choice of a prompt has its tokens scored. Another may be ahead of it, where that one has to give way.
bool AnswerWriter::waits_for_scores(int choice) const {
  const AnswerForm& form = sheet_.frame.form;
  return form.echo && form.logprobs && choice % form.n != 0 && !scored_.at(static_cast<std::size_t>(prompt_of(choice)));
}

// The prompt stands before the first piece of each choice that has it back.
AnswerPiece AnswerWriter::with_echo(int choice, AnswerPiece piece) {
  const auto index = static_cast<std::size_t>(choice);
  if (!sheet_.frame.form.echo || echoed_.at(index)) return piece;
  echoed_[index] = true;
  const PlannedPrompt& prompt = sheet_.prompts.at(static_cast<std::size_t>(sheet_.choices[index].prompt));
  const auto& scores = scored_.at(static_cast<std::size_t>(sheet_.choices[index].prompt));
  AnswerPiece echo = echo_piece(prompt, scores.value_or(std::vector<Logprobs>()), *sheet_.tokenizer);
  echo.append(std::move(piece));
  return echo;
}

void AnswerWriter::write_event(Piece& event) {
  if (waits_for_scores(event.choice)) return held_.push_back(std::move(event));
  open_stream();
  const std::string text = stream_->piece(event.choice, with_echo(event.choice, std::move(event.piece)), event.figures);
  if (!text.empty()) reply_->write(text);
}

ChoiceAnswer AnswerWriter::answer_of(Ended& event) {
  const PlannedChoice& choice = sheet_.choices.at(static_cast<std::size_t>(event.choice));
  const PlannedPrompt& prompt = sheet_.prompts.at(static_cast<std::size_t>(choice.prompt));
  EndedChoice& ended = event.ended;
  ChoiceAnswer answer{.piece = with_echo(event.choice, std::move(ended.rest)),
                      .end = ended.end,
                      .figures = ended.figures,
                      .seed = choice.text.generate.seed};
  if (sheet_.frame.form.receipt)
    answer.receipt = receipt_json(make_receipt(sheet_.receipts, choice.text, prompt.tokens, ended.result));
  return answer;
}

void AnswerWriter::write_event(Ended& event) {
  if (waits_for_scores(event.choice)) return held_.push_back(std::move(event));
  ChoiceAnswer answer = answer_of(event);
  over_ = --open_ == 0;
  if (stream_) {
    open_stream();
    std::string events = stream_->end(event.choice, std::move(answer));
    if (over_) events += stream_->done();
    reply_->write(events);
    if (over_) reply_->finish();
    return;
  }
  answers_.at(static_cast<std::size_t>(event.choice)) = std::move(answer);
  if (!over_) return;
  reply_->send({.headers = headers(), .body = response_json(sheet_.frame, answers_, *sheet_.tokenizer)});
}

void AnswerWriter::write_event(const ApiError& error) {
  over_ = true;
  metrics_.count_error(error.status);
  if (streaming_) {
    reply_->write(AnswerEvents::failure(error));
    reply_->finish();
  } else {
    reply_->send(error_response(error, headers()));
  }
}

}  // namespace espalier
