// The inside of a batch: an answer in the making. The batch (batch.h) and its parts (round_trees.h, round_budget.h,
// teacher_steps.h) work on it; nobody outside sees one. One thread at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "cache/kv_cache.h"
#include "decode/drafter.h"
#include "decode/request.h"
#include "decode/round.h"
#include "decode/step_logits.h"
#include "decode/stopwatch.h"
#include "tree/candidates.h"
#include "tree/token_tree.h"
#include "tree/tree_tensors.h"

namespace espalier {

enum class AnswerPhase { waiting, prompt, decoding };

struct Answer {
  // The clock must outlive this.
  Answer(RequestId number, const GenerateRequest& asked, const SecondsClock& c);
  Answer(const Answer&) = delete;  // the request points to its tokens
  Answer& operator=(const Answer&) = delete;

  RequestId id;
  std::vector<std::int32_t> prompt, answered, prediction;
  GenerateRequest request;  // of these tokens
  SourceSet drafters = 0;   // who may guess
  AnswerPhase phase = AnswerPhase::waiting;
  bool cancelled = false;
  bool preempted = false;    // it has been running, and its positions are not yet all computed again
  bool prompt_read = false;  // all of it, at least once
  std::exception_ptr failure = {};

  // While it runs.
  std::optional<SequenceId> sequence = {};
  std::int64_t length = 0;       // committed positions: the first tokens of the path
  std::int64_t published = 0;    // of those, in blocks that others may find
  bool keeps_to_itself = false;  // others have computed the same: it publishes nothing before it ends
  bool again = false;            // the last of them is computed once more
  std::vector<std::unique_ptr<DraftSequence>> drafts = {};  // by drafter; null: it hears nothing of this sequence
  SourceSet every_text = 0;                                 // of them, those that hear it in any case
  SourceSet tapping = 0;                                    // likewise, those that want the teacher's taps
  bool hearing = true;                                      // all of them hear what is committed:
  std::int64_t heard_from = 0;                              // from this position on
  std::int64_t drafted_at = 0;                              // committed positions when they were asked last

  GenerateResult result = {};
  std::vector<std::int32_t> path = {};  // prompt and answer; the last token is the root of the next round
  std::optional<FinishReason> finish = {};
  Stopwatch clock;
  AnswerStage stage = AnswerStage::prefill;
  bool callers_failure = false;  // an exception comes from one of the caller's functions

  // Of the round.
  std::size_t round_path = 0;                  // tokens of the path when it began
  bool drafts_fit = false;                     // its branch has room for what drafters need
  bool asks = false;                           // the drafters are worth asking
  bool drafted = false;                        // they were asked:
  SourceSet asked = 0;                         // these of them
  bool resident = false;                       // it stays on the device
  int room = 1;                                // the most rows of a drafted tree
  int levels = 0;                              // likewise, levels
  double draft_seconds = 0;                    // what drafting took, of all answers together
  std::optional<Candidates> candidates = {};   // what the drafters said, where the rows are chosen
  std::optional<Candidates> passed_over = {};  // likewise, in place of whom others drafted
  std::optional<TokenTree> tree = {};
  TreeTensors tensors = {};
  std::optional<Branch> branch = {};
  std::int64_t first_row = 0;  // of the tree in its step
  std::int64_t first_tap = 0;  // likewise, among the rows that want taps
  KvTraffic kv = {};
  RoundTimes times = {};

  bool running() const { return phase != AnswerPhase::waiting; }
  // The positions to compute before rounds can begin: all of the path, or, where its last token is the root, all
  // before.
  std::int64_t target() const { return std::ssize(path) - (result.tokens.empty() ? 0 : 1); }
  std::span<const std::int32_t> committed() const { return std::span(path).first(static_cast<std::size_t>(length)); }
  std::int64_t tokens_left() const { return request.options.max_tokens - std::ssize(result.tokens); }
  // Positions whose log-probabilities have been kept; all but the last of the prompt, where somebody wants them.
  std::int64_t scored() const { return std::ssize(result.prompt_logprobs); }
  std::int64_t to_score() const { return request.options.prompt_logprobs < 0 ? 0 : std::ssize(prompt) - 1; }
  // The positions that may be taken from others: not the last, whose logits are what the first draw needs and whose
  // features are what drafters do, and none that is still to be scored.
  std::int64_t reusable() const;
  bool guesses(std::size_t drafter) const { return (drafters >> drafter & 1) != 0; }

  bool may_draft() const { return request.draft.drafts; }

  // From now on its drafters hear what is committed, or do not. What they missed they learn as if others had computed
  // it.
  void hear(bool listening);
  bool hears(std::size_t drafter) const { return drafts[drafter] && (hearing || (every_text >> drafter & 1) != 0); }
  bool tapped() const;  // one of those that hear wants the teacher's taps
  // Its drafters can be asked, and what they say is what they say of a text that they know.
  bool is_ready() const { return hearing && (heard_from == 0 || length > heard_from); }
  bool has_heard_enough() const { return heard_from == 0 || length >= heard_from + kEnoughHeard; }
  // Rows of the next first pass of its drafters, about.
  std::int64_t first_rows() const { return std::clamp<std::int64_t>(length - drafted_at, 1, kEnoughHeard); }
  static constexpr std::int64_t kEnoughHeard = 32;
  // Of the memories of those that hear: the first place that one of them lacks.
  std::int64_t lacks_from() const;
  void tell(const CommittedRows& rows);
  // Between its rounds its drafters need not be ready. Those that it does not want never are.
  void rest(bool resting);
  // It is about to go on in blocks of others, or to leave its own to them.
  void settle();
  // The sequence holds so many positions now, which somebody else has computed.
  void tell_reused(std::int64_t positions);

  void begin_round();
  // The rows of its tree, and what draws need of them.
  DrawnRows drawn_rows() const;
  // Likewise, of a row of its prompt.
  DrawnRows drawn_row(std::int64_t row) const;
  // The teacher's next token behind the path, from its logits. The caller is told, and `finish` says whether the answer
  // ends with it.
  std::int32_t draw(const LogitRow& logits, std::int64_t context);
  // The same with a token that was drawn already.
  void take(GeneratedToken next, std::int64_t context);
  // Keeps the log-probability of the token behind the next position of the prompt, from the logits of that position.
  void score(const LogitRow& logits);
  // Adds the round that ends to the result.
  void count_round(std::span<const Visit> visits);

  // Calls a function of the caller's.
  template <typename Function, typename... Args>
  auto ask(const Function& function, Args&&... args) {
    try {
      return function(std::forward<Args>(args)...);
    } catch (...) {
      callers_failure = true;
      throw;
    }
  }

 private:
  std::optional<FinishReason> limit_reached(std::int64_t context) const;
  std::optional<FinishReason> end_after(const GeneratedToken& drawn, std::optional<FinishReason> limit);
};

}  // namespace espalier
