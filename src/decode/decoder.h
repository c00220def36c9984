// The decoding loop: token ids in, token ids out. Each round verifies a tree of tokens in one step of the teacher,
// walks down while the teacher's own draw meets a child, and commits the path; plain decoding is the tree of one node.
// A Decoder serves one or several conversations, each in its own lane: a lane keeps the KV cache of what it has seen,
// and a prompt that starts with the same tokens is not computed again. One thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "cache/kv_cache.h"
#include "decode/budget.h"
#include "decode/decoder_choices.h"
#include "decode/decoder_options.h"
#include "decode/request.h"
#include "decode/round_budget.h"
#include "decode/round_trees.h"
#include "decode/teacher_steps.h"
#include "model/transformer.h"

namespace espalier {

struct Lane;    // what a conversation keeps between answers
struct Answer;  // an answer in the making

class Decoder {
 public:
  // The model must outlive the decoder.
  Decoder(const Transformer& model, const DecoderOptions& options, const Speculation& speculation = {});
  ~Decoder();
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  Device& device() const { return model_->device(); }
  std::int64_t context() const { return choices_.context; }
  const StepForm& form() const { return choices_.form; }     // as chosen for this device and budget
  const TreeOptions& tree() const { return choices_.tree; }  // likewise
  const KvCache& cache() const { return cache_; }
  SequenceId sequence(int lane = 0) const;
  const Budget* budget() const { return budget_.budget(); }  // null: fixed

  // prompt: 1 to context() tokens, each in [0, vocabulary); anything else is an InputError.
  GenerateResult generate(std::span<const std::int32_t> prompt, const GenerateOptions& options,
                          const GenerateEvents& events = {});
  GenerateResult generate(const GenerateRequest& request);
  // Several at once: request i in lane i, each with its own tree, one teacher step a round for all that fit one.
  std::vector<GenerateResult> generate(std::span<const GenerateRequest> requests);

  // The logits of every position of `tokens`, handed out row by row, computed `scored_rows` at a time; for perplexity
  // and comparisons.
  void score(std::span<const std::int32_t> tokens,
             const std::function<void(std::int64_t position, std::span<const float> logits)>& on_row);

 private:
  RoundBudget make_budget(const Speculation& speculation);
  RequestLimits limits() const { return {context(), model_->config().vocabulary}; }

  void rewind(Lane& lane, std::int64_t length);
  bool prefill(Answer& answer, std::span<const std::int32_t> tokens);  // false: cancelled
  void start(Answer& answer);

  // One round.
  void run_rounds(std::vector<Answer>& answers);
  void draft(std::span<Answer* const> answers);
  void verify(std::span<Answer* const> answers);
  void accept(Answer& answer, const StepOutput& output);
  void commit(Answer& answer, std::span<const Visit> visits, const StepOutput& output);
  void tell_round(Answer& answer, std::span<const Visit> visits);

  const Transformer* model_;
  SecondsClock clock_;
  DecoderChoices choices_;
  KvCache cache_;
  std::vector<Lane> lanes_;
  TeacherSteps teacher_;
  RoundTrees trees_;
  RoundBudget budget_;
};

}  // namespace espalier
