// Listens to the rounds of an answer and keeps them in memory: no file, no system call. One turn after the other; one
// thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "decode/request.h"
#include "trace/traced_turn.h"

namespace espalier {

// What a recorder cannot hear.
struct TurnFacts {
  PromptId prompt_id = {};
  std::int64_t turn = 1;
  std::span<const std::int32_t> prompt = {};
  std::string_view set = {};  // of prompts; empty: it is of none
};

class TurnRecorder {
 public:
  // For GenerateEvents::on_round or TextEvents::on_round; the recorder must outlive its use.
  RoundObserver observer() {
    return [this](const Round& round) { observe(round); };
  }
  void observe(const Round& round);

  // The turn that the rounds since the last take() belong to; the recorder is empty again.
  TracedTurn take(const TurnFacts& facts, const GenerateOptions& options, const GenerateResult& result);
  // Forgets the rounds of a turn that came to nothing.
  void clear() { rounds_.clear(); }

 private:
  std::vector<TracedRound> rounds_;
};

}  // namespace espalier
