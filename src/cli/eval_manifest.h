// The manifest of an evaluation: which run this is, on which build, model and machine.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "cli/drafting.h"
#include "cli/options.h"
#include "eval/prompt_set.h"

namespace espalier {

// What `eval run` was asked for.
struct EvalFlags {
  std::string data = {};
  std::string out = {};
  std::int64_t skip = 0;
  std::optional<std::int64_t> limit = {};
  bool baseline = false;
  bool raw = false;
  bool resume = false;
  ChatFlags chat = {};
  EngineOptions engine = {};
  SamplingFlags sampling = {};
  SpeculationFlags speculation = {};
};

// Of a run that begins now. `configuration` has everything that a resumed run must have in common with it.
nlohmann::ordered_json new_manifest(const EvalFlags& flags, const PromptSet& data, const Engine& engine,
                                    const Drafting& drafting, const std::string& date);

void note_resumed(nlohmann::ordered_json& manifest);
void note_end(nlohmann::ordered_json& manifest);

}  // namespace espalier
