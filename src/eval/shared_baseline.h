// Answers without speculation that an earlier run left, for runs that differ only in how they speculate: each turn is
// compared with them token by token, and nothing is answered twice. Immutable, safe to share between threads.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "eval/turn_record.h"

namespace espalier {

class SharedBaseline {
 public:
  // The baselines of the turns or, of those that have none, the turns themselves: a run without drafters has nothing
  // else. Turns that failed are not there.
  explicit SharedBaseline(std::span<const TurnRecord> turns);

  // The answer to the same turn of the same prompt. Throws InputError when there is none, or when it answered another
  // prompt, although this is a first turn: then the runs had other templates, system texts or models. After a turn that
  // differed, later prompts do too.
  struct Found {
    BaselineTurn turn = {};
    bool same_prompt = false;  // its history included
  };
  Found find(const TurnRecord& turn) const;

 private:
  struct Answer {
    std::vector<std::int32_t> prompt;
    BaselineTurn turn;
  };
  std::map<std::tuple<std::string, PromptId, std::int64_t>, Answer> answers_;
};

// Of a finished run, for the run that `manifest` tells of. Throws InputError "--baseline-run DIR: ..." unless both can
// be compared: that run had no drafters, or a baseline of its own for every turn, and model, draws, chat, build,
// device, precision, context, threads, conversations at once and number of ranks are the same. `any_world`: ranks may
// be more or fewer, with other threads each.
SharedBaseline read_shared_baseline(const std::filesystem::path& run, const nlohmann::ordered_json& manifest,
                                    bool any_world = false);

}  // namespace espalier
