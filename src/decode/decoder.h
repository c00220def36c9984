// The decoding loop: token ids in, token ids out. Each round verifies a tree of tokens in one step of the teacher,
// walks down while the teacher's own draw meets a child, and commits the path; plain decoding is the tree of one node.
// A Decoder serves one or several conversations, each in its own lane: a lane keeps the KV cache of what it has seen,
// and a prompt that starts with the same tokens is not computed again. One thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "cache/kv_cache.h"
#include "decode/budget.h"
#include "decode/draft_tree.h"
#include "decode/drafter.h"
#include "decode/request.h"
#include "decode/step_times.h"
#include "model/transformer.h"

namespace espalier {

enum class MaskChoice { automatic, dense, list };

struct DecoderOptions {
  std::int64_t context = 0;  // positions of each lane; 0: what the model was made for
  DType kv_type = DType::f16;
  std::int64_t prefill_rows = 64;  // rows of one prefill step: between two of them a request can be cancelled
  int lanes = 1;                   // conversations at once
  AttentionOp attention = AttentionOp::fused;
  MaskChoice mask = MaskChoice::automatic;
  KvOptions kv = {};
  bool invariants = false;  // check tables, masks and slots of every tree before its launch
};

// Rows chosen round by round (budget.h): TreeOptions::nodes is then the most a tree gets.
struct ChosenBudget {
  std::optional<StepTimes> times = {};  // of this model, machine and form, from an earlier run; none: measured at once
  std::function<void(const StepTimes&)> on_measured = {};  // for later runs
  SecondsClock clock = steady_seconds;
};

// The tree of a round, from somebody who knows it already. `tokens`: prompt and answer; the last one is the root, and
// the tree's root token.
using TreeSource = std::function<TokenTree(std::span<const std::int32_t> tokens)>;

// Who guesses, and in which shape. Every lane gets drafters of its own; none: plain decoding.
struct Speculation {
  TreeOptions tree = {};
  std::function<DrafterSet()> drafters = {};
  std::optional<ChosenBudget> budget = {};  // nothing: every tree as large as the options say
  // In place of drafters: whole trees, verified as they are. They have at most `tree.nodes` rows, all inside context
  // and vocabulary.
  TreeSource trees = {};
};

class Decoder {
 public:
  // The model must outlive the decoder.
  Decoder(const Transformer& model, const DecoderOptions& options, const Speculation& speculation = {});
  ~Decoder();
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  Device& device() const { return model_->device(); }
  std::int64_t context() const { return context_; }
  const StepForm& form() const { return form_; }     // as chosen for this device and budget
  const TreeOptions& tree() const { return tree_; }  // likewise
  const KvCache& cache() const { return cache_; }
  SequenceId sequence(int lane = 0) const;
  const Budget* budget() const { return budget_ ? &*budget_ : nullptr; }  // null: fixed

  // prompt: 1 to context() tokens, each in [0, vocabulary); anything else is an InputError.
  GenerateResult generate(std::span<const std::int32_t> prompt, const GenerateOptions& options,
                          const GenerateEvents& events = {});
  GenerateResult generate(const GenerateRequest& request);
  // Several at once: request i in lane i, each with its own tree, one teacher step a round for all that fit one.
  std::vector<GenerateResult> generate(std::span<const GenerateRequest> requests);

  // The logits of every position of `tokens`, handed out row by row; for perplexity and comparisons.
  void score(std::span<const std::int32_t> tokens,
             const std::function<void(std::int64_t position, std::span<const float> logits)>& on_row);

 private:
  struct Lane;    // what a conversation keeps between answers
  struct Answer;  // an answer in the making

  std::int64_t context_of_all(int lanes) const;
  void prepare_budget(const ChosenBudget& chosen, const DecoderOptions& options);
  void check_tokens(std::span<const std::int32_t> tokens) const;
  void check_request(const GenerateRequest& request) const;
  void rewind(Lane& lane, std::int64_t length);
  Branch begin(const Lane& lane, std::int64_t rows);
  void read_logits(ConstView logits, std::int64_t row);

  // Computes the tokens behind the committed ones up to `end`, and commits them.
  StepOutput step_over(Lane& lane, std::span<const std::int32_t> tokens, std::int64_t end, bool every_logit);
  bool prefill(Answer& answer, std::span<const std::int32_t> tokens);  // false: cancelled
  void start(Answer& answer);
  std::int32_t draw(Answer& answer);
  std::optional<FinishReason> end_of_answer(Answer& answer, const GeneratedToken& drawn) const;

  // One round.
  void run_rounds(std::vector<Answer>& answers);
  void draft(std::span<Answer* const> answers);
  void take_known_tree(Answer& answer);
  void grow(Answer& answer, bool ask);
  void cut(std::span<Answer* const> answers);
  void settle(std::span<Answer* const> answers);
  void append_rows(Answer& answer, std::vector<Row>& rows);
  StepOutput launch(std::span<Answer* const> answers);
  void verify(std::span<Answer* const> answers);
  void check_trees(const HostTables& tables, std::span<Answer* const> answers) const;
  void accept(Answer& answer, const StepOutput& output);
  void tell_round(Answer& answer, std::span<const Visit> visits);
  void commit(Answer& answer, std::span<const Visit> visits, const StepOutput& output);

  // Does something for these answers; if that fails, those who listen are told.
  template <typename Function>
  auto observed(std::span<Answer* const> answers, const Function& function);
  template <typename Function>
  auto observed(Answer& answer, const Function& function);
  void tell_failure(const Answer& answer) const;

  const Transformer* model_;
  std::int64_t context_;
  std::int64_t prefill_rows_;
  TreeOptions tree_;
  StepForm form_;
  bool invariants_;
  KvCache cache_;
  std::vector<Lane> lanes_;
  std::vector<std::int64_t> taps_;  // what the drafters want of the teacher
  std::optional<Workspace> workspace_;
  std::vector<float> logits_;  // of the node that is being looked at
  SecondsClock clock_;
  std::optional<Budget> budget_;
  std::int64_t step_rows_ = 0;        // of the step that is being looked at
  std::optional<HostTables> tables_;  // likewise; nothing before they are made
  TreeSource trees_;                  // empty: the drafters'
};

}  // namespace espalier
