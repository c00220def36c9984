// The decoding loop: token ids in, token ids out. Each round verifies a tree of tokens in one step of the teacher,
// walks down while the teacher's own draw meets a child, and commits the path; plain decoding is the tree of one node.
// A Decoder serves one conversation: it keeps the KV cache of what it has seen, and a prompt that starts with the same
// tokens is not computed again. One thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "cache/kv_cache.h"
#include "decode/sampler.h"
#include "model/transformer.h"

namespace espalier {

struct DecoderOptions {
  std::int64_t context = 0;  // positions; 0: what the model was made for
  DType kv_type = DType::f16;
  std::int64_t prefill_rows = 32;  // rows of one prefill step: between two of them a request can be cancelled
};

struct GenerateOptions {
  SamplingOptions sampling = {};
  std::uint64_t seed = 0;
  std::int64_t max_tokens = 256;
  std::vector<std::int32_t> stop_tokens = {};
  std::int64_t logprobs = -1;  // how many alternatives to report with each token; -1: no log-probabilities at all
};

enum class FinishReason { stop_token, stopped, token_limit, context_limit, cancelled };
std::string_view name(FinishReason reason);  // "stop", "stop", "length", "context", "cancelled"

struct GeneratedToken {
  std::int32_t token = 0;
  bool stops = false;  // one of the stop tokens: it ends the answer and is no part of its text
  std::optional<Logprobs> logprobs;
};

struct GenerateResult {
  std::vector<std::int32_t> tokens;  // the answer, the stop token included
  FinishReason finish_reason = FinishReason::token_limit;
  std::int64_t reused_tokens = 0;  // of the prompt, already in the cache
  double prefill_seconds = 0;      // until the first token is known
  double decode_seconds = 0;       // the rest
};

// What the caller hears while the loop runs. All may be empty.
struct GenerateEvents {
  std::function<bool(const GeneratedToken&)> on_token;  // false stops: the text is complete (a stop string)
  std::function<bool()> cancelled;                      // asked between steps
  std::function<void(std::int64_t done, std::int64_t total)> on_prefill;
};

class Decoder {
 public:
  // The model must outlive the decoder.
  Decoder(const Transformer& model, const DecoderOptions& options);
  ~Decoder();
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  std::int64_t context() const { return context_; }
  const KvCache& cache() const { return cache_; }
  SequenceId sequence() const { return sequence_; }

  // prompt: 1 to context() tokens, each in [0, vocabulary); anything else is an InputError.
  GenerateResult generate(std::span<const std::int32_t> prompt, const GenerateOptions& options,
                          const GenerateEvents& events = {});

  // The logits of every position of `tokens`, handed out row by row; for perplexity and comparisons.
  void score(std::span<const std::int32_t> tokens,
             const std::function<void(std::int64_t position, std::span<const float> logits)>& on_row);

 private:
  enum class Wanted { last, all };  // logits of the last token, or of every one

  void check_tokens(std::span<const std::int32_t> tokens) const;
  void check_request(std::span<const std::int32_t> prompt, const GenerateOptions& options) const;
  void rewind(std::int64_t length);
  Row row_at(std::int64_t position, std::int32_t token) const;
  // Computes positions [begin, end) of the tokens, right behind the committed ones, and commits them.
  void step_over(std::span<const std::int32_t> tokens, std::int64_t begin, std::int64_t end, Wanted wanted);
  // Computes what is not committed yet. False when cancelled.
  bool prefill(std::span<const std::int32_t> tokens, const GenerateEvents& events);
  GeneratedToken draw(const TokenPath& path, const GenerateOptions& options) const;
  std::optional<FinishReason> end_of_answer(const GeneratedToken& drawn, std::size_t answer, std::size_t path,
                                            const GenerateOptions& options, const GenerateEvents& events) const;

  const Transformer* model_;
  std::int64_t context_;
  std::int64_t prefill_rows_;
  KvCache cache_;
  Workspace workspace_;
  SequenceId sequence_;
  std::vector<std::int32_t> committed_;  // the tokens whose K and V the cache holds
  std::vector<float> logits_;            // of the rows that wanted them in the last step
};

}  // namespace espalier
