// The manifest of an evaluation: which run this is, on which build, model and machine (docs/eval.md).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/answering.h"
#include "engine/drafting.h"
#include "engine/engine.h"
#include "eval/launcher.h"
#include "eval/prompt_set.h"

namespace espalier {

// What a process answered, in all.
struct ShareSpeed {
  std::int64_t tokens = 0;  // with speculation
  double seconds = 0;       // of wall time, answers without speculation and warming up left out
};

// What an evaluation is asked for.
struct EvalRequest {
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
  bool receipts = false;      // of every answer (engine/receipt.h)
  int parallel = 1;           // conversations at once, in one batch
  double rank_timeout = 600;  // seconds without a sign of life
  ChatSettings chat = {};
  EngineOptions engine = {};
  TextOptions text = {};
  DraftOptions drafting = {};
  std::vector<std::pair<std::string, std::string>> variables = {};  // of the environment, to be recorded
};

// Of a run that begins now. `configuration` has everything that a resumed run must have in common with it.
struct ManifestParts {
  const EvalRequest& request;
  const PromptSet& data;
  const OpenEngine& engine;
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
nlohmann::ordered_json rank_end(const ShareSpeed& speed);

// Of the processes that finished the run, by what each of `ranks` says of itself: all tokens over the wall time of the
// one that took longest. Nothing where none of them answered anything.
std::optional<double> tokens_per_second_in_all(const nlohmann::ordered_json& ranks);

// What this process was started with, the program's name first.
std::vector<std::string> command_line();

// Which program this is, by the hash of its file; null where the commit says it.
nlohmann::ordered_json program_json(const OpenEngine& engine);

// Who made the ids of prompts: tokenizer and template, by the hash of their files, and the program.
std::string text_identity(const OpenEngine& engine);

}  // namespace espalier
