// Answers without speculation that an earlier run left, for runs that differ only in how they speculate: each turn is
// compared with them token by token, and nothing is answered twice. Immutable, safe to share between threads.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "eval/turn_record.h"

namespace espalier {

class SharedBaseline {
 public:
  // The baselines of the turns or, of those that have none, the turns themselves: a run without drafters has nothing
  // else.
  explicit SharedBaseline(std::span<const TurnRecord> turns);

  // The answer to the same prompt, its history included. Throws InputError when there is none, or when it answered
  // another prompt, although this is a first turn: then the runs had other templates, system texts or models. After a
  // turn that differed, later prompts do too.
  BaselineTurn find(const TurnRecord& turn) const;

 private:
  struct Answer {
    std::vector<std::int32_t> prompt;
    BaselineTurn turn;
  };
  std::map<std::tuple<std::string, PromptId, std::int64_t>, Answer> answers_;
};

}  // namespace espalier
