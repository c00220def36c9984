// The one way tokens are made: a batch of answers that requests join and leave at any step. A step of the batch admits
// by free blocks, drafts for everybody who decodes, and runs the teacher once, over a tree of each of them and over
// rows of prompts; then it walks each tree while the teacher's own draw meets a child, commits the path and tells who
// asked. Plain decoding is the tree of one node. An answer depends on its request alone: not on its company, nor on
// what others have computed before, which is found again by the prefix index.
//
// A failure in one answer ends that answer, a failed step ends the answers in it; the batch goes on. Policy is
// scheduler.h. One thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cache/kv_cache.h"
#include "decode/batch_statistics.h"
#include "decode/budget.h"
#include "decode/decoder_choices.h"
#include "decode/decoder_options.h"
#include "decode/prefix_index.h"
#include "decode/prompt_sharing.h"
#include "decode/request.h"
#include "decode/resident_rounds.h"
#include "decode/round_budget.h"
#include "decode/round_trees.h"
#include "decode/scheduler.h"
#include "decode/teacher_steps.h"
#include "model/transformer.h"

namespace espalier {

struct Answer;  // an answer in the making

class Batch {
 public:
  // The model must outlive the batch.
  Batch(const Transformer& model, const DecoderOptions& options, const Speculation& speculation = {});
  ~Batch();
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  Device& device() const { return model_->device(); }
  std::int64_t context() const { return choices_.context; }
  const StepForm& form() const { return choices_.form; }     // as chosen for this device and budget
  const TreeOptions& tree() const { return choices_.tree; }  // likewise
  bool resident() const { return resident_ != nullptr; }     // rounds stay on the device where they can
  const KvCache& cache() const { return cache_; }
  const PrefixIndex& index() const { return index_; }
  const Budget* budget() const { return budget_.budget(); }  // null: fixed
  // By which prompt rows are bounded; null: by their number alone.
  const StepTimes* step_times() const { return budget_.step_times(); }

  // The request joins, and is answered by steps from now on; its tokens are copied. prompt: 1 to context() tokens, each
  // in [0, vocabulary); anything else, and whatever the cache can never hold, is an InputError.
  RequestId submit(const GenerateRequest& request);
  // Its answer ends with the next step as it is, whether it runs or waits. Nothing happens where there is none any
  // more.
  void cancel(RequestId id);
  // False: there is nothing left to do.
  bool step();
  std::int64_t waiting() const;
  std::int64_t running() const;
  std::vector<std::string> drafters() const;  // names, by source bit

  // For whoever watches, between steps.
  BatchStatistics statistics() const;
  PoolCounts pool_counts() const;
  std::vector<RunningAnswer> running_answers() const;  // by id
  // Throws std::logic_error unless every block is accounted for (cache/kv_cache.h), the index knows all that are
  // published, and every answer has the positions it believes to have. For whoever has seen a step fail; takes a look
  // at every block.
  void check_conservation() const;

  // Steps until these are answered. Those that joined otherwise go on meanwhile. Throws what the first of them that
  // failed did.
  GenerateResult generate(std::span<const std::int32_t> prompt, const GenerateOptions& options,
                          const GenerateEvents& events = {});
  GenerateResult generate(const GenerateRequest& request);
  std::vector<GenerateResult> generate(std::span<const GenerateRequest> requests);

  // The logits of every position of `tokens`, handed out row by row, computed `scored_rows` at a time; for perplexity
  // and comparisons.
  void score(std::span<const std::int32_t> tokens,
             const std::function<void(std::int64_t position, std::span<const float> logits)>& on_row);
  // Likewise of those from `first` on, where the others are only prefilled, handed out step by step: a row for each
  // position from `position` on, valid during the call.
  using ScoredRows = std::function<void(std::int64_t position, std::span<const std::span<const float>> rows)>;
  void score_behind(std::int64_t first, std::span<const std::int32_t> tokens, const ScoredRows& on_rows);

  // Nothing that was computed for earlier requests is found any more.
  void forget() { index_.clear(); }

 private:
  RoundBudget make_budget(const Speculation& speculation);
  SourceSet networks() const;
  RequestLimits request_limits() const { return {context(), model_->config().vocabulary, drafters(), tree().shape}; }
  SourceSet drafters_for(const DraftCaps& caps) const;
  std::int64_t pool_blocks() const { return cache_.tables().blocks_for(choices_.cache_positions); }
  PoolState pool() const;
  SchedulerLimits scheduler_limits() const;
  int rows_wanted(const GenerateRequest& request) const;
  Answer& answer(RequestId id);
  void abandon(RequestId first, RequestId end);

  // Before a step.
  void ask_whether_cancelled();
  void share_prompts();
  bool awaited(const Answer& answer) const;
  void leave_prompt(Answer& answer);
  BatchPlan plan() const;
  std::vector<double> step_seconds() const;
  void learn_lateness(double seconds);
  SequenceState state(const Answer& answer) const;
  std::int64_t copies(const Answer& answer, std::int64_t from) const;
  std::int64_t written_from(const Answer& answer) const;
  void look_up(const Answer& answer, SequenceState& waiting) const;
  PromptState prompt_state(const Answer& answer) const;
  void preempt(Answer& answer);
  void admit(Answer& answer);
  DraftCompany draft_company(std::span<const PromptPart> prompts) const;
  void open_drafts(Answer& answer);
  bool reuse(Answer& answer);
  PrefixHit find(const Answer& answer) const;
  std::optional<Branch> begin(const Answer& answer, std::int64_t rows, std::int64_t written_from);

  // One step.
  std::vector<PromptPart> open_prompts(const BatchPlan& plan);
  bool open_prompt(PromptPart& part, std::int64_t rows);
  std::vector<Answer*> open_trees(const BatchPlan& plan);
  void open_tree(Answer& answer, std::int64_t rows);
  void begin_rounds(std::span<Answer* const> answers, std::span<const PromptPart> prompts);
  void draft(std::span<Answer* const> answers);
  void run_steps(std::span<Answer* const> answers, std::span<PromptPart> prompts);
  void run_teacher(std::span<Answer* const> answers, std::span<PromptPart> prompts);
  void accept(Answer& answer, const StepOutput& output);
  void tell_all_told(std::span<Answer* const> answers);
  // What the teacher's step left of a tree's rows.
  struct RoundFeatures {
    ConstView taps, hidden;
    std::int64_t first_tap = 0, first_row = 0;
    std::span<const std::int32_t> drafted = {};  // as DraftVerdict has it
    bool lasting = false;  // a round that stayed on the device: the path is in place, and they stay until the next
  };
  void commit(Answer& answer, std::span<const Visit> visits, const RoundFeatures& features);
  void tell_drafters(Answer& answer, std::int64_t prefix, std::span<const Visit> visits, const RoundFeatures& features);
  void tell_round(Answer& answer, std::span<const Visit> visits);
  Round round(const Answer& answer, std::span<const Visit> visits) const;
  void score_prompt(const PromptPart& part);
  void commit_prompt(const PromptPart& part, const StepOutput& output);
  void begin_answer(const PromptPart& part);

  // One step that stays on the device.
  std::unique_ptr<ResidentRounds> make_resident(const DecoderOptions& options);
  std::optional<std::size_t> find_resident_drafter() const;
  bool fits_device(const Answer& answer) const;
  bool has_room_to_draft(const Answer& answer) const;
  bool may_stay_on_device(std::span<Answer* const> answers, std::span<const PromptPart> prompts) const;
  bool host_promises_more(std::span<Answer* const> answers);
  void run_resident(std::span<Answer* const> answers);
  void observe_host(std::span<Answer* const> answers, double seconds);
  std::vector<ResidentVerdict> launch(std::span<Answer* const> answers);
  void accept_resident(Answer& answer, const ResidentVerdict& verdict, std::int64_t number);

  // After it.
  enum class After { goes_on, leaves };
  void publish(Answer& answer, PrefixIndex::Tail tail, After after);
  void leave_to_others(Answer& answer);
  void release(Answer& answer);
  void end_answers();
  void end(Answer& answer);

  const Transformer* model_;
  SecondsClock clock_;
  double stall_seconds_;
  int parallel_;
  DecoderChoices choices_;
  KvCache cache_;
  PrefixIndex index_;
  DrafterSet drafters_;
  TeacherSteps teacher_;
  RoundTrees trees_;
  RoundBudget budget_;
  std::size_t resident_drafter_ = 0;              // who drafts in rounds that stay on the device
  std::unique_ptr<ResidentRounds> resident_;      // null: rounds are driven from the host
  ResidentChoice resident_shape_;                 // of the last of them
  std::vector<std::unique_ptr<Answer>> answers_;  // in the order of their ids
  RequestId next_id_ = 0;
  LastKeys last_keys_;
  double lateness_ = 0;  // seconds that steps with answers take longer than their rows should
  BatchStatistics statistics_;
};

}  // namespace espalier
