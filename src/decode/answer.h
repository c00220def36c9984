// The inside of the decoding loop: a lane, and an answer in the making. The loop (decoder.h) and its parts
// (round_trees.h, round_budget.h, teacher_steps.h) work on them; nobody outside sees one. One thread at a time.
#pragma once

#include <cstdint>
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

// What a conversation keeps between answers.
struct Lane {
  SequenceId sequence = 0;
  std::vector<std::int32_t> committed = {};  // the tokens whose K and V the cache holds
  DrafterSet drafters = {};

  std::int64_t length() const { return std::ssize(committed); }
  void tell(const CommittedRows& rows) {
    for (const auto& drafter : drafters) drafter->committed(rows);
  }
};

struct Answer {
  // All must outlive this.
  Answer(Lane& l, const GenerateRequest& r, const SecondsClock& c) : lane(l), request(r), clock(c) {}

  Lane& lane;
  const GenerateRequest& request;
  GenerateResult result = {};
  std::vector<std::int32_t> path = {};  // prompt and answer; the last token is the root of the next round
  std::optional<FinishReason> finish = {};
  Stopwatch clock;
  AnswerStage stage = AnswerStage::prefill;
  bool callers_failure = false;  // an exception comes from one of the caller's functions

  // Of the round.
  std::size_t round_path = 0;                 // tokens of the path when it began
  bool drafted = false;                       // the drafters were asked
  int room = 1;                               // the most rows of a drafted tree
  std::optional<Candidates> candidates = {};  // what the drafters said, where the rows are chosen
  std::optional<TokenTree> tree = {};
  TreeTensors tensors = {};
  std::optional<Branch> branch = {};
  std::int64_t first_row = 0;  // of the tree in its step
  KvTraffic kv = {};
  RoundTimes times = {};

  std::int64_t tokens_left() const { return request.options.max_tokens - std::ssize(result.tokens); }

  void begin_round();
  // The rows of its tree, and what draws need of them.
  DrawnRows drawn_rows() const;
  // The teacher's next token behind the path, from its logits. The caller is told, and `finish` says whether the answer
  // ends with it.
  std::int32_t draw(const LogitRow& logits, std::int64_t context);
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
