// The part of a batch that shares what was computed: through the prefix index, and among prompts that begin alike and
// come together (prompt_sharing.h).
#include <algorithm>

#include "base/error.h"
#include "decode/answer.h"
#include "decode/answer_failure.h"
#include "decode/batch.h"

namespace espalier {

// --- what others have computed ---------------------------------------------------------------------------------------

PrefixHit Batch::find(const Answer& answer) const {
  if (answer.reusable() == 0) return {};
  const auto tokens = std::span(answer.path).first(static_cast<std::size_t>(answer.target()));
  return index_.find(tokens, answer.reusable(), answer.request.salt);
}

// Goes on with what others have computed by now.
bool Batch::reuse(Answer& answer) {
  if (find(answer).length <= answer.length) return false;
  answer.settle();  // what its drafters know of its own text, they may not learn again
  const auto tokens = std::span(answer.path).first(static_cast<std::size_t>(answer.target()));
  const std::int64_t length = index_.extend(*answer.sequence, tokens, answer.reusable(), answer.request.salt);
  if (!answer.preempted) {
    answer.result.reused_tokens += length - answer.length;
    statistics_.prefix_hits += length - answer.length;
  }
  answer.tell_reused(length);
  // In blocks that others find already.
  answer.published = std::max(answer.published, length / cache_.block_size() * cache_.block_size());
  return true;
}

// What it would share on admission.
void Batch::look_up(const Answer& answer, SequenceState& waiting) const {
  const PrefixHit hit = find(answer);
  waiting.cached = hit.length;
  waiting.pinned =
      std::ranges::count_if(hit.blocks, [&](std::int32_t block) { return cache_.tables().references(block) == 0; });
}

// --- what others may find --------------------------------------------------------------------------------------------

// Blocks that are complete in all memories; with its tail all, as they are. An answer was admitted for one block
// besides those it holds. Whoever has computed more than one that others have computed too would keep theirs as well,
// so he publishes nothing behind them as long as he goes on.
void Batch::publish(Answer& answer, PrefixIndex::Tail tail, After after) {
  const bool goes_on = after == After::goes_on;
  if (!answer.request.cache || !answer.sequence || (goes_on && answer.keeps_to_itself)) return;
  const bool whole = tail == PrefixIndex::Tail::publish;
  const std::int64_t block = cache_.block_size();
  const std::int64_t ready = whole ? answer.length : answer.lacks_from() / block * block;
  if (!whole && ready <= answer.published) return;
  const auto tokens = answer.committed().first(static_cast<std::size_t>(ready));
  answer.keeps_to_itself = goes_on && index_.twins(*answer.sequence, tokens, answer.request.salt) > 1;
  if (answer.keeps_to_itself) return;
  index_.publish(*answer.sequence, tokens, answer.request.salt, tail);
  answer.published = ready;
}

// The text is complete: a device that fails now costs only what others might have reused.
void Batch::leave_to_others(Answer& answer) {
  try {
    answer.settle();
    publish(answer, PrefixIndex::Tail::publish, After::leaves);
  } catch (const DeviceError&) {
  }
}

// --- prompts that come together --------------------------------------------------------------------------------------

// Between two steps: whoever is waited for leaves what it has, and all go on with what has become findable. In the
// order of age, so that who waits finds it at once.
void Batch::share_prompts() {
  for (const auto& answer : answers_) {
    if (answer->phase != AnswerPhase::prompt || answer->failure || answer->finish) continue;
    guarded(*answer, teacher_, [&] {
      if (answer->length + 1 == answer->target() && awaited(*answer)) leave_prompt(*answer);
      reuse(*answer);
    });
  }
}

// Whether somebody younger has reason to wait for what is not findable yet of the prompt that it reads.
bool Batch::awaited(const Answer& answer) const {
  if (parallel_ == 1) return false;
  const PromptState own = prompt_state(answer);
  return std::ranges::any_of(answers_, [&](const auto& other) {
    if (other->id <= answer.id || other->phase == AnswerPhase::decoding || other->failure || other->finish)
      return false;
    PromptState prompt = prompt_state(*other);
    if (!other->running()) prompt.has = find(*other).length;
    return leader_of(prompt, std::span(&own, 1)) == own.id;
  });
}

// All but its last position, which everybody computes for himself: it goes on as those do that find it.
void Batch::leave_prompt(Answer& answer) {
  answer.settle();
  publish(answer, PrefixIndex::Tail::publish, After::goes_on);
  answer.tell_reused(answer.length);
}

// A draft model computes the text only when it guesses. Blocks that it lacks would have to be copied before it could,
// so they are not left to others before that.
PromptState Batch::prompt_state(const Answer& answer) const {
  return {.id = answer.id,
          .tokens = std::span(answer.path).first(static_cast<std::size_t>(answer.target())),
          .salt = answer.request.salt,
          .has = answer.length,
          .most = answer.reusable(),
          .findable = answer.published,
          .leads = answer.request.cache && !answer.keeps_to_itself &&
                   std::ranges::all_of(drafters_, &Drafter::follows_text)};
}

}  // namespace espalier
