#include "serve/live_request.h"

#include <utility>

namespace espalier {

struct LiveRequest::Choice {
  Choice(LiveRequest& owner, const PlannedChoice& planned, const ModelText& text)
      : plan(&planned),
        prompt(&owner.request_.plan.prompts.at(static_cast<std::size_t>(planned.prompt))),
        pieces(owner.request_.plan.form.echo ? count_characters(prompt->echo) : 0),
        stream(text, prompt->tokens, planned.text, events(owner)) {
    figures.prompt_tokens = std::ssize(prompt->tokens);
  }

  TextEvents events(LiveRequest& owner) {
    TextEvents events;
    events.on_part = [&owner, this](const TextPart& part) { owner.hear_part(*this, part); };
    events.on_prefill = [&owner, this](std::int64_t, std::int64_t total) { owner.hear_prefill(*this, total); };
    const AnswerForm& form = owner.request_.plan.form;
    if (form.rounds || form.timings_per_token)
      events.on_round = [&owner, this](const Round& round) { owner.hear_round(*this, round); };
    events.on_failure = [&owner](const AnswerFailure& failure) {
      if (owner.parts_.on_failure) owner.parts_.on_failure(failure, owner.request_.id);
    };
    return events;
  }

  const PlannedChoice* plan;
  const PlannedPrompt* prompt;
  ChoicePieces pieces;
  TextStream stream;
  RequestId id = -1;
  bool ended = false;
  bool finishing = false;          // what it says now belongs to its end
  ChoiceFigures figures = {};      // so far
  std::int64_t untold_tokens = 0;  // drawn since it was last told of
  std::optional<Time> admitted = {}, first_token = {}, last_told = {};
};

LiveRequest::LiveRequest(ServiceRequest request, const LiveRequestParts& parts)
    : request_(std::move(request)), parts_(parts) {
  for (const PlannedChoice& planned : request_.plan.choices)
    choices_.push_back(std::make_unique<Choice>(*this, planned, parts_.text));
  untold_ = choices_.size();
}

void LiveRequest::join() {
  for (const auto& choice : choices_) submit(*choice);
}

LiveRequest::~LiveRequest() = default;

void LiveRequest::submit(Choice& choice) {
  const RequestPlan& plan = request_.plan;
  GenerateRequest asked = choice.stream.request();
  asked.draft = plan.draft;
  asked.salt = request_.salt;
  asked.cache = plan.cache;
  asked.key = request_.key;
  asked.prediction = plan.prediction;
  asked.priority = plan.priority;
  asked.events.on_token = [this, &choice, heard = std::move(asked.events.on_token)](const GeneratedToken& token) {
    hear_token(choice);
    return heard(token);
  };
  asked.events.on_prompt_logprobs = [this, &choice](std::span<const Logprobs> logprobs) {
    if (!silent_) request_.listener->prompt_scored(choice.plan->index, {logprobs.begin(), logprobs.end()});
  };
  asked.events.on_end = [this, &choice](const AnswerEnd& end) { hear_end(choice, end); };
  choice.id = parts_.batch.submit(asked);
  ++open_;
}

bool LiveRequest::has(RequestId answer) const {
  for (const auto& choice : choices_)
    if (choice->id == answer && !choice->ended) return true;
  return false;
}

bool LiveRequest::timed() const {
  return !parts_.batch.device().is_stand_in();
}

double LiveRequest::seconds_between(Time from, Time to) const {
  return timed() ? std::chrono::duration<double>(to - from).count() : 0;
}

double LiveRequest::since_arrival(Time time) const {
  return seconds_between(request_.arrived, time);
}

// First when the batch takes it, then for every part of the prompt; what is not to be read was found in the cache.
void LiveRequest::hear_prefill(Choice& choice, std::int64_t total) {
  choice.figures.cached_tokens = choice.figures.prompt_tokens - total;
  if (choice.admitted) return;
  const Time now = ServiceClock::now();
  choice.admitted = now;
  choice.figures.queue_seconds = since_arrival(now);
  if (admitted_) return;
  admitted_ = now;
  if (timed()) parts_.metrics.observe_queue(choice.figures.queue_seconds);
  if (parts_.on_admitted) parts_.on_admitted();
  begin();
}

void LiveRequest::begin() {
  if (!std::exchange(begun_, true) && !silent_) request_.listener->begun();
}

void LiveRequest::hear_token(Choice& choice) {
  ++choice.untold_tokens;
  ++choice.figures.completion_tokens;
  if (choice.first_token) return;
  const Time now = ServiceClock::now();
  choice.first_token = now;
  choice.figures.first_token_seconds = since_arrival(now);
  choice.figures.prompt_seconds = seconds_between(choice.admitted.value_or(now), now);
  if (!std::exchange(first_token_, true) && timed())
    parts_.metrics.observe_first_token(choice.figures.first_token_seconds);
}

void LiveRequest::hear_round(Choice& choice, const Round& round) {
  if (request_.plan.form.rounds) choice.pieces.add(round);
  const std::int64_t drafted = round.tree.size() - 1, accepted = std::ssize(round.visits) - 1;
  if (drafted == 0) return;
  ++choice.figures.rounds;
  choice.figures.drafted += drafted;
  choice.figures.accepted += accepted;
}

// The gap between two things that a client hears, shared by the tokens of the second.
void LiveRequest::observe_gap(Choice& choice) {
  const Time now = ServiceClock::now();
  if (choice.last_told && choice.untold_tokens > 0 && timed())
    parts_.metrics.observe_tokens(seconds_between(*choice.last_told, now), choice.untold_tokens);
  choice.last_told = now;
  choice.untold_tokens = 0;
  if (choice.first_token) choice.figures.decode_seconds = seconds_between(*choice.first_token, now);
}

void LiveRequest::hear_part(Choice& choice, const TextPart& part) {
  choice.pieces.add(part);
  observe_gap(choice);
  if (silent_ || choice.finishing || !request_.plan.form.stream) return;
  if (!request_.listener->piece(choice.plan->index, choice.pieces.take(), choice.figures))
    fail(unavailable("the answer is not taken as fast as it is written"));
}

// The batch is in the middle of a step: nothing may leave this.
void LiveRequest::hear_end(Choice& choice, const AnswerEnd& end) noexcept {
  choice.ended = true;
  --open_;
  faulty_ = faulty_ || end.failure;
  try {
    end_choice(choice, end);
  } catch (...) {
    try {
      fail(server_fault(request_.id));
    } catch (...) {  // no memory to tell it with; whoever writes the answer sees that nobody tells him more
      silent_ = true;
    }
  }
}

void LiveRequest::end_choice(Choice& choice, const AnswerEnd& end) {
  if (silent_) return;
  if (end.failure || end.result.finish_reason == FinishReason::cancelled) return fail(server_fault(request_.id));
  choice.finishing = true;
  choice.stream.finish();
  observe_gap(choice);
  TextResult text = choice.stream.take(end.result);
  EndedChoice ended{.rest = choice.pieces.take(),
                    .end = end_of(text, choice.plan->text),
                    .figures = figures(choice, end.result),
                    .result = std::move(text.generated)};
  parts_.metrics.observe_choice(finish_reason(ended.end), ended.figures.prompt_tokens, ended.figures.completion_tokens);
  begin();
  const bool last = untold_ == 1;
  if (last && timed()) parts_.metrics.observe_request(since_arrival(ServiceClock::now()));
  request_.listener->ended(choice.plan->index, std::move(ended));
  --untold_;
  complete_ = silent_ = last;
}

// The batch counts a choice's time from when it joined; clients are told apart what it waited.
ChoiceFigures LiveRequest::figures(const Choice& choice, const GenerateResult& result) const {
  ChoiceFigures figures = figures_of(result, choice.figures.prompt_tokens);
  const Time now = ServiceClock::now();
  figures.queue_seconds = choice.figures.queue_seconds;
  figures.first_token_seconds = choice.first_token ? choice.figures.first_token_seconds : since_arrival(now);
  figures.prompt_seconds =
      choice.first_token ? choice.figures.prompt_seconds : seconds_between(choice.admitted.value_or(now), now);
  figures.decode_seconds = choice.figures.decode_seconds;
  return figures;
}

void LiveRequest::cancel() {
  silent_ = true;
  for (const auto& choice : choices_)
    if (!choice->ended) parts_.batch.cancel(choice->id);
}

void LiveRequest::fail(const ApiError& error) {
  const bool told = silent_;
  cancel();
  if (!told) request_.listener->failed(error);
}

}  // namespace espalier
