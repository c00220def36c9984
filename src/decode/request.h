// What a batch is asked, what it answers, and what it tells on the way.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/kv_cache.h"
#include "decode/draft_tree.h"
#include "decode/priority.h"
#include "decode/round.h"
#include "decode/sampler.h"
#include "model/step_tables.h"

namespace espalier {

inline constexpr std::int64_t kMostLogprobs = 1000;

struct GenerateOptions {
  SamplingOptions sampling = {};
  std::uint64_t seed = 0;
  std::int64_t max_tokens = 256;
  std::vector<std::int32_t> stop_tokens = {};
  std::int64_t logprobs = -1;  // how many alternatives to report with each token; -1: no log-probabilities at all
  // Until so many tokens are answered no stop token can be drawn (draw.h): the first min_tokens never end the answer by
  // themselves. Limits do; more than max_tokens means all of them.
  std::int64_t min_tokens = 0;
  // Likewise for the tokens of the prompt, -1: none. Every position of the prompt is then computed for this request,
  // whatever others have left in the cache; what it computes is left there as usual.
  std::int64_t prompt_logprobs = -1;
};

struct GeneratedToken {
  std::int32_t token = 0;
  bool stops = false;  // one of the stop tokens: it ends the answer and is no part of its text
  bool last = false;   // there is room for no other: whoever has kept something back says it now
  std::optional<Logprobs> logprobs;
};

struct GenerateResult {
  std::vector<std::int32_t> tokens;  // the answer, the stop token included
  FinishReason finish_reason = FinishReason::token_limit;
  std::int64_t reused_tokens = 0;             // of the prompt, already in the cache
  double prefill_seconds = 0;                 // until the first token is known
  double decode_seconds = 0;                  // the rest
  std::vector<std::int64_t> accept_lengths;   // of every round: drafted tokens accepted
  std::vector<std::int64_t> judged_by_depth;  // rounds in which a guess at depth 1, 2, ... was judged
  RoundTimes times;                           // of all rounds together
  std::int64_t verified_rows = 0;             // of all trees, roots included
  std::int64_t plain_rounds = 0;              // rounds with the root alone
  std::int64_t undrafted_rounds = 0;          // of those, the ones without asking the drafters
  std::vector<Logprobs> prompt_logprobs;      // where asked for: of the prompt's tokens from the second on
  PredictionCounts prediction;

  std::int64_t rounds() const { return static_cast<std::int64_t>(accept_lengths.size()); }
  double accept_length() const;          // the mean; tau is one more
  std::int64_t drafted_tokens() const;   // rows of all trees without their roots
  std::int64_t accepted_tokens() const;  // of those
  // How many rounds accepted a guess at depth 1, 2, ...: as long as the deepest one that was accepted.
  std::vector<std::int64_t> accepted_by_depth() const;
};

enum class AnswerStage { prefill, draft, verify, accept, commit };
std::string_view name(AnswerStage stage);

// An answer at the moment in which an exception leaves it; whoever listens knows what std::current_exception() is. All
// of it is valid during the call only.
struct AnswerFailure {
  AnswerStage stage = AnswerStage::prefill;
  std::int64_t round = 0;  // of this answer, from 0; of no meaning in the prefill
  std::span<const std::int32_t> prompt;
  const GenerateOptions& options;
  std::span<const std::int32_t> answered;    // before the round; its last token is the root
  const TokenTree* tree = nullptr;           // of the round; null: there is none yet
  std::span<const std::int32_t> drawn = {};  // the teacher's choices so far, from the root on
  const HostTables* tables = nullptr;        // of the step that was made for it, other answers' rows included
  std::int64_t first_row = 0;                // of the tree in those
  const KvCache& cache;
  SequenceId table = 0;        // the open branch, or the sequence where there is none
  std::int64_t committed = 0;  // positions
  std::int64_t positions = 0;  // of the table, those of an open branch included
  const StepForm& form;
};
// Must not throw. The exception goes on.
using FailureObserver = std::function<void(const AnswerFailure&)>;

// An answer that is complete, or has come as far as it could. Valid during the call only.
struct AnswerEnd {
  const GenerateResult& result;
  std::exception_ptr failure = {};  // why there is no more of it; none: it is complete, or was cancelled
  const KvCache& cache;
  std::optional<SequenceId> sequence = {};  // with the text's committed positions; nothing where it had none
};
// Must not throw.
using EndObserver = std::function<void(const AnswerEnd&)>;

// What the caller hears while the batch goes on. All may be empty. What they throw ends the answer, and is no failure
// of it. None of them may call the batch, except to submit and to cancel.
struct GenerateEvents {
  std::function<bool(const GeneratedToken&)> on_token = {};  // false stops: the text is complete (a stop string)
  std::function<bool()> cancelled = {};                      // asked after every token and between steps
  std::function<void(std::int64_t done, std::int64_t total)> on_prefill = {};
  // GenerateResult::prompt_logprobs, once, before the first token.
  std::function<void(std::span<const Logprobs>)> on_prompt_logprobs = {};
  RoundObserver on_round = {};
  // A step has told the tokens it had for this answer: the first one, or those of a round.
  std::function<void()> on_step = {};
  FailureObserver on_failure = {};
  EndObserver on_end = {};  // the last that is heard of an answer
};

// What a request may have of the batch's speculation. None of it changes its text.
struct DraftCaps {
  bool drafts = true;
  int nodes = 0;                           // the most rows of a tree, 1 or more; 0: as many as the batch allows
  int depth = 0;                           // likewise, levels below the root
  std::vector<std::string> drafters = {};  // who may guess, by name, of those the batch has; empty: all
  // Nothing: as the batch grows trees. A chain of each drafter is possible in every batch; other shapes only where the
  // batch grows them anyway, for its drafters have room for nothing else.
  std::optional<TreeShape> tree = {};
};

struct GenerateRequest {
  std::span<const std::int32_t> prompt;
  GenerateOptions options = {};
  GenerateEvents events = {};
  // The beginning of the answer, where it is known: it is not drawn again, and its last token is the root of the first
  // round. Part of the result's tokens; nobody is told them.
  std::span<const std::int32_t> answered = {};
  DraftCaps draft = {};
  // Requests reuse what others with the same salt have computed. Without cache: nobody's, and nobody theirs.
  std::string salt = {};
  bool cache = true;
  int key = 0;  // whose it is: admission goes round robin over keys
  // What the answer may well say, behind the prompt: one more text in which the n-gram drafter looks for what comes
  // next. Changes the speed and never the answer.
  std::span<const std::int32_t> prediction = {};
  int priority = 0;  // kFirstPriority to kLastPriority: lower ones are admitted first (scheduler.h)
};

using RequestId = std::int64_t;

// What model and batch allow.
struct RequestLimits {
  std::int64_t context = 0;                // positions
  std::int64_t vocabulary = 0;             // ids lie below
  std::vector<std::string> drafters = {};  // names
  TreeShape tree = TreeShape::chain;       // that its trees have
};

// Whatever can be told without a model. Throws InputError naming the flag, what was expected and found.
void check_options(const GenerateOptions& options);

// Both throw InputError with what was expected and found. Tokens: 1 to `context`, all in the vocabulary.
void check_tokens(std::span<const std::int32_t> tokens, const RequestLimits& limits);
void check_request(const GenerateRequest& request, const RequestLimits& limits);

}  // namespace espalier
