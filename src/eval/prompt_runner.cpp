#include "eval/prompt_runner.h"

#include <algorithm>

#include "base/error.h"
#include "base/untrusted_text.h"
#include "decode/step_times.h"

namespace espalier {
namespace {

constexpr std::int64_t kWarmUpTokens = 8;

TurnSeconds seconds_of_turn(const GenerateResult& generated) {
  return {generated.prefill_seconds, generated.decode_seconds};
}

bool was_cancelled(const TextResult& result) {
  return result.generated.finish_reason == FinishReason::cancelled;
}

// Of a conversation in company; nothing for those that are alone.
GenerateCall call_of(Company* company) {
  if (company == nullptr) return {};
  return [company, salt = company->next_salt()](Batch& decoder, const GenerateRequest& request) {
    GenerateRequest salted = request;
    salted.salt = salt;
    return company->generate(decoder, salted);
  };
}

Batch& decoder_of(std::optional<Batch>& own, const EvalSetup& setup) {
  if (setup.company != nullptr) return setup.company->decoder();
  return own.emplace(setup.model, setup.decoder, setup.speculation);
}

}  // namespace

PromptRunner::PromptRunner(const EvalSetup& setup, PromptId id, std::string set, std::int64_t record)
    : setup_(&setup),
      id_(std::move(id)),
      set_(std::move(set)),
      record_(record),
      session_(setup.text, decoder_of(own_, setup), setup.chat, call_of(setup.company)) {
  if (setup.dumper != nullptr) dumper_ = *setup.dumper;
  session_.reset(setup.system);
}

Batch& PromptRunner::plain_decoder() {
  if (setup_->company != nullptr) return setup_->company->plain();
  return plain_ ? *plain_ : plain_.emplace(setup_->model, setup_->decoder);
}

TextResult PromptRunner::answer(Session& session, const TurnRequest& request, TextEvents events) {
  events.cancelled = request.cancelled;
  const auto speak = [&](const FailureObserver& on_failure) {
    events.on_failure = on_failure;
    const TextOptions& options = setup_->options;
    if (setup_->raw)
      return request.prompt.empty() ? session.complete(request.user, options, events)
                                    : session.complete(request.prompt, options, events);
    return request.prompt.empty() ? session.ask(request.user, options, events)
                                  : session.ask(request.user, request.prompt, options, events);
  };
  return dumper_ ? dumper_->guard(id_, turns_, speak) : speak({});
}

// On the same history, so that a turn is not compared with an answer to another question.
std::optional<TextResult> PromptRunner::answer_plainly(const TurnRequest& request) {
  if (!setup_->baseline && !setup_->learn && !request.retimed) return std::nullopt;
  Session session = session_.on(plain_decoder());
  const double begin = steady_seconds();
  TextResult result = answer(session, request, {});
  plain_seconds_ += steady_seconds() - begin;
  if (setup_->learn) setup_->learn(result.prompt, result.generated.tokens);
  return result;
}

// After a turn that differed, the shared run was asked something else: then there is nothing to hold it to, nor to
// time.
BaselineTurn PromptRunner::baseline_of(const TurnRecord& record, const TurnRequest& request,
                                       const std::optional<TextResult>& plain) const {
  if (setup_->shared == nullptr)
    return {seconds_of_turn(plain->generated), plain->generated.tokens,
            std::string(name(plain->generated.finish_reason))};
  auto [shared, same_prompt] = setup_->shared->find(record);
  if (!plain || !same_prompt) return shared;
  if (plain->generated.tokens != shared.tokens)
    input_error(
        "the shared baseline: prompt {}, turn {}: other tokens than plain decoding gives now, expected the same",
        in_quotes(text_of(id_)), turns_);
  if (request.retimed) shared.retimed = seconds_of_turn(plain->generated);
  return shared;
}

// In company the batches may be in the middle of other answers, so that a decoder of its own tells.
double PromptRunner::margin_behind(const std::vector<TokenId>& text, TokenId plain, TokenId drafted) {
  std::optional<Batch> alone;
  if (setup_->company != nullptr) {
    DecoderOptions options = setup_->decoder;
    options.parallel = 1;
    alone.emplace(setup_->model, options);
  }
  double margin = 0;
  (alone ? *alone : plain_decoder())
      .score_behind(std::ssize(text) - 1, text, [&](std::int64_t, std::span<const std::span<const float>> rows) {
        const std::span<const float> logits = rows.back();
        margin = double{logits[static_cast<std::size_t>(plain)]} - logits[static_cast<std::size_t>(drafted)];
      });
  return margin;
}

// Only where a difference need not be a mistake.
std::optional<double> PromptRunner::margin_of(const TurnRecord& record) {
  const auto at = record.first_difference();
  if (!at || setup_->model.device().row_independent()) return std::nullopt;
  const auto place = static_cast<std::size_t>(*at);
  const std::vector<std::int32_t>&plain = record.baseline->tokens, &drafted = record.tokens;
  if (place >= std::min(plain.size(), drafted.size())) return std::nullopt;
  std::vector<std::int32_t> text = record.prompt;
  text.insert(text.end(), plain.begin(), plain.begin() + *at);
  return margin_behind(text, plain[place], drafted[place]);
}

TurnRecord PromptRunner::failed_turn(const TurnRequest& request, std::string reason) {
  failed_ = true;
  return {.record = record_,
          .set = set_,
          .prompt_id = id_,
          .turn = turns_,
          .user = request.user,
          .finish_reason = "error",
          .error = std::move(reason)};
}

std::optional<TurnRecord> PromptRunner::next(const TurnRequest& request) {
  ++turns_;
  traced_.reset();
  recorder_.clear();
  if (failed_) return failed_turn(request, "an earlier turn failed");
  const bool keeps_rounds = setup_->traced || setup_->compares();
  TurnRecord record{.record = record_, .set = set_, .prompt_id = id_, .turn = turns_, .user = request.user};
  std::optional<TextResult> plain;
  TextResult result;
  try {
    plain = answer_plainly(request);
    if (plain && was_cancelled(*plain)) return std::nullopt;
    result = answer(session_, request, {.on_round = keeps_rounds ? recorder_.observer() : RoundObserver()});
  } catch (const InputError& error) {
    return failed_turn(request, error.what());
  }
  if (was_cancelled(result)) return std::nullopt;
  if (keeps_rounds)
    traced_ = recorder_.take({id_, turns_, result.prompt, set_}, setup_->options.generate, result.generated);
  record.prompt = std::move(result.prompt);
  record.tokens = std::move(result.generated.tokens);
  record.text = std::move(result.text);
  record.finish_reason = name(result.generated.finish_reason);
  record.reached = std::move(result.generated.judged_by_depth);
  record.accept_lengths = std::move(result.generated.accept_lengths);
  record.seconds = seconds_of_turn(result.generated);
  record.stages = result.generated.times;
  if (setup_->compares()) {
    record.baseline = baseline_of(record, request, plain);
    record.baseline->margin = margin_of(record);
  }
  return record;
}

void warm_up(const EvalSetup& setup, const EvalPrompt& prompt, const std::function<bool()>& cancelled) {
  EvalSetup brief = setup;
  brief.options.generate.max_tokens = std::min(kWarmUpTokens, setup.options.generate.max_tokens);
  brief.shared = nullptr;
  brief.baseline = setup.compares();
  brief.traced = false;
  const auto turn = PromptRunner(brief, prompt.id).next({.user = prompt.turns[0], .cancelled = cancelled});
  if (turn && turn->error) throw InputError(*turn->error);
}

}  // namespace espalier
