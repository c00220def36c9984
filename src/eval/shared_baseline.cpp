#include "eval/shared_baseline.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/untrusted_text.h"
#include "eval/run_folder.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

// What tokens and seconds depend on, speculation aside. The rest of the engine is not here: sweeps vary cache, reorder
// and attention over one baseline.
constexpr const char* kSameParts[] = {"/configuration/model",
                                      "/configuration/sampling",
                                      "/configuration/chat",
                                      "/configuration/engine/device",
                                      "/configuration/engine/isa",
                                      "/configuration/engine/kv",
                                      "/configuration/engine/weights",
                                      "/configuration/engine/activations",
                                      "/configuration/engine/context",
                                      "/configuration/parallel",
                                      "/commit",
                                      "/program",
                                      "/compiler"};
// How many answered beside each other.
constexpr const char* kWorld = "/world";
constexpr const char* kThreads = "/configuration/engine/threads";

Json part_of(const Json& manifest, const char* place) {
  const Json::json_pointer pointer(place);
  return manifest.contains(pointer) ? manifest.at(pointer) : Json();
}

void check_same_part(const std::filesystem::path& run, const Json& now, const Json& then, const char* place) {
  std::string name = place + 1;
  std::ranges::replace(name, '/', '.');
  if (const auto other = first_other_field(part_of(now, place), part_of(then, place), name))
    input_error("--baseline-run {}: {} as in that run", run.string(), *other);
}

void check_comparable(const std::filesystem::path& run, const Json& now, const Json& then, bool any_world) {
  for (const char* place : kSameParts) check_same_part(run, now, then, place);
  if (any_world && part_of(now, kWorld) != part_of(then, kWorld)) return;
  check_same_part(run, now, then, kWorld);
  check_same_part(run, now, then, kThreads);
}

void check_plain(const std::filesystem::path& run, const Json& then, std::span<const TurnRecord> turns) {
  const Json drafters = part_of(then, "/configuration/draft/drafters");
  const auto has_own = [](const TurnRecord& turn) { return turn.baseline || turn.error; };
  if (drafters == "none" || std::ranges::all_of(turns, has_own)) return;
  input_error("--baseline-run {}: it speculated (drafters {}), expected a run with --draft none or --baseline",
              run.string(), in_quotes(drafters.is_string() ? drafters.get<std::string>() : drafters.dump()));
}

}  // namespace

SharedBaseline::SharedBaseline(std::span<const TurnRecord> turns) {
  for (const TurnRecord& turn : turns) {
    if (turn.error) continue;
    Answer answer{turn.prompt, turn.baseline.value_or(BaselineTurn{turn.seconds, turn.tokens, turn.finish_reason})};
    answer.turn.retimed.reset();
    answers_.insert_or_assign({turn.set, turn.prompt_id, turn.turn}, std::move(answer));
  }
}

SharedBaseline::Found SharedBaseline::find(const TurnRecord& turn) const {
  const auto found = answers_.find({turn.set, turn.prompt_id, turn.turn});
  const auto refuse = [&](std::string_view problem) {
    input_error("the shared baseline: prompt {}, turn {}: {}", in_quotes(text_of(turn.prompt_id)), turn.turn, problem);
  };
  if (found == answers_.end()) refuse("not there, expected every turn of this run");
  const bool same_prompt = found->second.prompt == turn.prompt;
  if (turn.turn == 1 && !same_prompt)
    refuse("its prompt has other tokens, expected a run on the same model and template");
  return {found->second.turn, same_prompt};
}

SharedBaseline read_shared_baseline(const std::filesystem::path& run, const Json& manifest, bool any_world) {
  const std::vector<TurnRecord> turns = read_finished_turns(run);
  const Json then = read_manifest(run);
  check_arithmetic_of_run(run, then);
  check_plain(run, then, turns);
  check_comparable(run, manifest, then, any_world);
  return SharedBaseline(turns);
}

}  // namespace espalier
