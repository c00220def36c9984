// The flags of `espalier bench serve`, and what they mean together.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/output_file.h"
#include "bench/load/load_benchmark.h"
#include "cli/environment.h"

namespace CLI {
class App;
}

namespace espalier {

struct LoadFlags {
  std::string url = "http://127.0.0.1:8080";
  std::string against = {};  // "": nobody
  std::string key = {}, against_key = {};
  std::string speculation = {}, against_speculation = {};
  std::vector<int> users = {};
  std::vector<double> rates = {};
  std::string api = "chat";
  LoadPromptOptions prompts = {};
  LoadSettings settings = {};
  std::optional<std::uint64_t> seed = {};
  std::optional<std::int64_t> tokens = {}, requests = {};
  std::optional<int> rounds = {};
  double patience_seconds = 300;
  std::string json = {}, chart = {};  // files; "": none
  Existing existing = Existing::refuse;
};
void add_load_flags(CLI::App& app, LoadFlags& flags);

// Throws InputError where they contradict each other. Keys that no flag gives come from ESPALIER_API_KEY and
// ESPALIER_AGAINST_API_KEY; `any_seed` is what a load without --seed gets.
LoadPlan load_plan(const LoadFlags& flags, const Environment& environment, std::uint64_t any_seed);

}  // namespace espalier
