// An answer in figures: for --json, for -v, and for comparisons.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "engine/engine.h"
#include "session/session.h"

namespace espalier {

// Without the first token, which the prompt's own step gives. 0 where there is nothing to measure.
double tokens_per_second(const GenerateResult& result);

// Who drafted, on which decoder.
struct RunFacts {
  const OpenEngine& engine;
  const Batch& decoder;
  std::string draft;  // "eagle3+ngram", "none"
  std::uint64_t seed = 0;
  bool logprobs = false;          // log-probabilities were asked for
  std::string draft_reason = {};  // why these drafters
};

// One object: what generate --json prints. Times are null where the device only stands in for another.
nlohmann::ordered_json answer_json(const TextResult& result, const RunFacts& facts);
// A token of its own may be half a character: such bytes are shown as U+FFFD.
std::string json_text(const nlohmann::ordered_json& object);

// "96 tokens at 17.1 per second, finished by length"; with drafts also rounds and accept_L. Without times where the
// device only stands in for another.
std::string answer_line(const GenerateResult& result, const std::string& draft, const Device& device);

}  // namespace espalier
