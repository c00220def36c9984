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
  std::int64_t reused_tokens = 0;            // of the prompt, already in the cache
  double prefill_seconds = 0;                // until the first token is known
  double decode_seconds = 0;                 // the rest
  std::vector<std::int64_t> accept_lengths;  // of every round: drafted tokens accepted
  RoundTimes times;                          // of all rounds together
  std::int64_t verified_rows = 0;            // of all trees, roots included
  std::int64_t plain_rounds = 0;             // rounds with the root alone
  std::int64_t undrafted_rounds = 0;         // of those, the ones without asking the drafters

  std::int64_t rounds() const { return static_cast<std::int64_t>(accept_lengths.size()); }
  double accept_length() const;  // the mean; tau is one more
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
  RoundObserver on_round = {};
  FailureObserver on_failure = {};
  EndObserver on_end = {};  // the last that is heard of an answer
};

// What a request may have of the batch's speculation. None of it changes its text.
struct DraftCaps {
  bool drafts = true;
  int nodes = 0;  // the most rows of a tree, 1 or more; 0: as many as the batch allows
  int depth = 0;  // likewise, levels below the root
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
};

using RequestId = std::int64_t;

// What model and batch allow.
struct RequestLimits {
  std::int64_t context = 0;     // positions
  std::int64_t vocabulary = 0;  // ids lie below
};

// Whatever can be told without a model. Throws InputError naming the flag, what was expected and found.
void check_options(const GenerateOptions& options);

// Both throw InputError with what was expected and found. Tokens: 1 to `context`, all in the vocabulary.
void check_tokens(std::span<const std::int32_t> tokens, const RequestLimits& limits);
void check_request(const GenerateRequest& request, const RequestLimits& limits);

}  // namespace espalier
