#include "bench/load/load_texts.h"

#include "base/error.h"
#include "eval/prompt_set.h"

namespace espalier {
namespace {

std::vector<std::string> first_turns(const std::filesystem::path& path) {
  std::vector<std::string> texts;
  for (const EvalPrompt& prompt : read_prompt_set(path).prompts) texts.push_back(prompt.turns.front());
  return texts;
}

std::vector<std::string> read_ours(const Places& places, const std::vector<std::string>& names) {
  std::vector<std::string> texts;
  for (const std::string& name : names) {
    const auto path = places.find("data/eval/" + name);
    if (!path) input_error("data/eval/{}: not found; --prompts FILE names other prompts", name);
    for (std::string& text : first_turns(*path)) texts.push_back(std::move(text));
  }
  return texts;
}

std::vector<std::string> read_questions(const std::string& kind, const Places& places) {
  if (kind == "short" || kind == "long") return read_ours(places, {"mt_bench.jsonl", "outside.jsonl"});
  return first_turns(kind);
}

}  // namespace

LoadTexts read_load_texts(const std::string& kind, const Places& places) {
  return {.questions = read_questions(kind, places), .readings = read_ours(places, {"rewrite.jsonl"})};
}

}  // namespace espalier
