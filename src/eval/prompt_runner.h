// Answers the turns of one prompt, one after another: with speculation and, where that is wanted, without it just
// before, on decoders that know nothing yet. What drafters and budgets learn thus starts afresh with each prompt and
// carries over to its later turns. One thread at a time.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "eval/turn_record.h"
#include "session/session.h"

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
  bool raw = false;       // the prompt as it is, without template and history
  bool baseline = false;  // every turn without speculation too
  // Who wants to hear prompt and answer before the drafters are asked; the turn is answered without speculation first.
  std::function<void(const std::vector<TokenId>& prompt, const std::vector<TokenId>& answer)> learn = {};
};

class PromptRunner {
 public:
  // The setup must outlive this.
  PromptRunner(const EvalSetup& setup, PromptId id);

  // The next turn. The model's own answer, that with speculation, joins the history of both. Nothing when it was
  // cancelled. Throws InputError when the conversation no longer fits the context.
  std::optional<TurnRecord> next(const std::string& user, const std::function<bool()>& cancelled = {});

 private:
  TextResult answer(Session& session, const std::string& user, const TextEvents& events) const;
  std::optional<TextResult> answer_plainly(const std::string& user, const std::function<bool()>& cancelled);

  const EvalSetup* setup_;
  PromptId id_;
  std::int64_t turns_ = 0;
  std::optional<Decoder> plain_;  // where somebody wants to hear the answer without speculation
  Decoder decoder_;
  Session session_;
};

// Runs the first tokens of a prompt for nobody, so that the first turn that counts finds weights in memory and step
// times measured.
void warm_up(const EvalSetup& setup, const EvalPrompt& prompt, const std::function<bool()>& cancelled = {});

}  // namespace espalier
