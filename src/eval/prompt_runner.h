// Answers the turns of one prompt, one after another: with speculation and, where that is wanted, without it just
// before, on decoders that know nothing yet. What drafters and budgets learn thus starts afresh with each prompt and
// carries over to its later turns. In company the decoders are those of all, and so is what they learn; only keys and
// values of other prompts are not found. One thread at a time.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "eval/company.h"
#include "eval/shared_baseline.h"
#include "eval/turn_record.h"
#include "session/session.h"
#include "trace/failure_dumper.h"
#include "trace/turn_recorder.h"

namespace espalier {

// Everything that the prompts of a run share.
struct EvalSetup {
  const Transformer& model;
  const ModelText& text;
  DecoderOptions decoder = {};
  Speculation speculation = {};  // none: plain decoding
  TextOptions options = {};
  ChatContext chat = {};
  std::string system = {};
  bool raw = false;                        // the prompt as it is, without template and history
  bool baseline = false;                   // every turn without speculation too
  const SharedBaseline* shared = nullptr;  // instead: what an earlier run answered
  bool traced = false;                     // rounds are kept for a trace
  const FailureDumper* dumper = nullptr;   // an answer that fails leaves a dump; null: none
  Company* company = nullptr;              // the runner is one of its conversations; null: decoders of its own
  // Who wants to hear prompt and answer before the drafters are asked; the turn is answered without speculation first.
  std::function<void(const std::vector<TokenId>& prompt, const std::vector<TokenId>& answer)> learn = {};

  bool compares() const { return baseline || shared != nullptr; }
};

struct TurnRequest {
  std::string user = {};
  std::vector<TokenId> prompt = {};  // its ids, history included; empty: they are made now
  bool retimed = false;              // with a shared baseline: answered and timed without speculation too
  std::function<bool()> cancelled = {};
};

class PromptRunner {
 public:
  // The setup must outlive this. `record` and `set`: as the turns are to say (turn_record.h).
  PromptRunner(const EvalSetup& setup, PromptId id, std::string set = {}, std::int64_t record = 0);

  // The next turn. The model's own answer, that with speculation, joins the history of both. Nothing when it was
  // cancelled. A turn that cannot be answered, because the conversation no longer fits the context for one, says why in
  // its `error`, and every later one that an earlier turn failed. Throws InputError when a shared baseline does not
  // have the turn, or no longer gives its tokens.
  std::optional<TurnRecord> next(const TurnRequest& request);

  // The rounds of the last turn, where the setup wants a trace or a comparison: what a trace or a dump is made of.
  const std::optional<TracedTurn>& traced() const { return traced_; }

  // Wall time of answers without speculation; those of a company are in its own (company.h).
  double plain_seconds() const { return plain_seconds_; }

 private:
  Batch& plain_decoder();
  TextResult answer(Session& session, const TurnRequest& request, TextEvents events);
  std::optional<TextResult> answer_plainly(const TurnRequest& request);
  BaselineTurn baseline_of(const TurnRecord& record, const TurnRequest& request,
                           const std::optional<TextResult>& plain) const;
  std::optional<double> margin_of(const TurnRecord& record);
  double margin_behind(const std::vector<TokenId>& text, TokenId plain, TokenId drafted);
  TurnRecord failed_turn(const TurnRequest& request, std::string reason);

  const EvalSetup* setup_;
  PromptId id_;
  std::string set_;
  std::int64_t record_;
  std::int64_t turns_ = 0;
  bool failed_ = false;  // there is no history to go on with
  std::optional<FailureDumper> dumper_;
  std::optional<Batch> plain_;  // made when the first turn is answered without speculation
  std::optional<Batch> own_;    // nothing: that of the company
  Session session_;
  TurnRecorder recorder_;
  double plain_seconds_ = 0;
  std::optional<TracedTurn> traced_;
};

// Runs the first tokens of a prompt for nobody, so that the first turn that counts finds weights in memory and step
// times measured. Throws InputError when it cannot be answered.
void warm_up(const EvalSetup& setup, const EvalPrompt& prompt, const std::function<bool()>& cancelled = {});

}  // namespace espalier
