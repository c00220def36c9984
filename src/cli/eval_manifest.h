// The manifest of an evaluation: which run this is, on which build, model and machine (docs/eval.md).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/drafting.h"
#include "cli/options.h"
#include "eval/launcher.h"
#include "eval/prompt_set.h"

namespace espalier {

// What `eval run` was asked for.
struct EvalFlags {
  std::vector<std::string> data = {};
  std::string out = {};
  std::int64_t skip = 0;
  std::optional<std::int64_t> limit = {};
  bool baseline = false;            // each turn without speculation too, just before
  std::string baseline_run = {};    // instead: the directory of a run without speculation
  std::int64_t baseline_turns = 0;  // of that, so many turns are timed once more, from the first on
  bool raw = false;
  bool resume = false;
  bool trace = false;
  double rank_timeout = 600;  // seconds without a sign of life
  ChatFlags chat = {};
  EngineOptions engine = {};
  SamplingFlags sampling = {};
  SpeculationFlags speculation = {};
};

// Of a run that begins now. `configuration` has everything that a resumed run must have in common with it.
struct ManifestParts {
  const EvalFlags& flags;
  const PromptSet& data;
  const Engine& engine;
  const Drafting& drafting;
  const RankPlace& place;
  const std::string& date;  // what chat templates are told
};
nlohmann::ordered_json new_manifest(const ManifestParts& parts);

void note_resumed(nlohmann::ordered_json& manifest, const RankPlace& place, int threads);
// `ranks`: what each of them said of itself.
void note_end(nlohmann::ordered_json& manifest, nlohmann::ordered_json ranks);

// What a rank says of itself besides its process: when it began or ended, under which load.
nlohmann::ordered_json rank_start(int threads);
nlohmann::ordered_json rank_end();

// Which program this is, by the hash of its file; null where the commit says it.
nlohmann::ordered_json program_json(const Engine& engine);

// Who made the ids of prompts: tokenizer and template, by the hash of their files, and the program.
std::string text_identity(const Engine& engine);

}  // namespace espalier
