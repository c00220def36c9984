#include "eval/prompt_runner.h"

#include <algorithm>

namespace espalier {
namespace {

constexpr std::int64_t kWarmUpTokens = 8;

// Counts the guesses that the teacher judged, by depth.
void count_reached(const Round& round, std::vector<std::int64_t>& reached) {
  const bool rejected = !round.finish && round.tree[round.visits.back().node].children > 0;
  const auto depth = static_cast<std::size_t>(round.accepted() + (rejected ? 1 : 0));
  reached.resize(std::max(reached.size(), depth));
  for (std::size_t i = 0; i < depth; ++i) ++reached[i];
}

TurnSeconds seconds_of_turn(const GenerateResult& generated) {
  return {generated.prefill_seconds, generated.decode_seconds};
}

bool was_cancelled(const TextResult& result) {
  return result.generated.finish_reason == FinishReason::cancelled;
}

}  // namespace

PromptRunner::PromptRunner(const EvalSetup& setup, PromptId id)
    : setup_(&setup),
      id_(std::move(id)),
      decoder_(setup.model, setup.decoder, setup.speculation),
      session_(setup.text, decoder_, setup.chat) {
  if (setup.baseline || setup.learn) plain_.emplace(setup.model, setup.decoder);
  session_.reset(setup.system);
}

TextResult PromptRunner::answer(Session& session, const std::string& user, const TextEvents& events) const {
  return setup_->raw ? session.complete(user, setup_->options, events) : session.ask(user, setup_->options, events);
}

// On the same history, so that a turn is not compared with an answer to another question.
std::optional<TextResult> PromptRunner::answer_plainly(const std::string& user,
                                                       const std::function<bool()>& cancelled) {
  if (!plain_) return std::nullopt;
  Session session = session_.on(*plain_);
  TextResult result = answer(session, user, {.cancelled = cancelled});
  if (setup_->learn) setup_->learn(result.prompt, result.generated.tokens);
  return result;
}

std::optional<TurnRecord> PromptRunner::next(const std::string& user, const std::function<bool()>& cancelled) {
  const std::optional<TextResult> plain = answer_plainly(user, cancelled);
  if (plain && was_cancelled(*plain)) return std::nullopt;
  TurnRecord record{.prompt_id = id_, .turn = ++turns_};
  TextResult result =
      answer(session_, user,
             {.cancelled = cancelled, .on_round = [&](const Round& round) { count_reached(round, record.reached); }});
  if (was_cancelled(result)) return std::nullopt;
  record.prompt = std::move(result.prompt);
  record.tokens = std::move(result.generated.tokens);
  record.text = std::move(result.text);
  record.finish_reason = name(result.generated.finish_reason);
  record.accept_lengths = std::move(result.generated.accept_lengths);
  record.seconds = seconds_of_turn(result.generated);
  record.stages = result.generated.times;
  if (setup_->baseline)
    record.baseline = {seconds_of_turn(plain->generated), plain->generated.tokens,
                       std::string(name(plain->generated.finish_reason))};
  return record;
}

void warm_up(const EvalSetup& setup, const EvalPrompt& prompt, const std::function<bool()>& cancelled) {
  EvalSetup brief = setup;
  brief.options.generate.max_tokens = std::min(kWarmUpTokens, setup.options.generate.max_tokens);
  PromptRunner(brief, prompt.id).next(prompt.turns[0], cancelled);
}

}  // namespace espalier
