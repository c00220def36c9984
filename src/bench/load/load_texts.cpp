#include "bench/load/load_texts.h"

#include "base/error.h"

namespace espalier {
namespace {

std::vector<std::string> read_ours(const Places& places, const std::vector<std::string>& names,
                                   const QuestionReader& read) {
  std::vector<std::string> texts;
  for (const std::string& name : names) {
    const auto path = places.find("data/eval/" + name);
    if (!path) input_error("data/eval/{}: not found; --prompts FILE names other prompts", name);
    for (std::string& text : read(*path)) texts.push_back(std::move(text));
  }
  return texts;
}

}  // namespace

LoadTexts read_load_texts(const std::string& kind, const Places& places, const QuestionReader& read) {
  const bool ours = kind == "short" || kind == "long";
  return {.questions = ours ? read_ours(places, {"mt_bench.jsonl", "outside.jsonl"}, read) : read(kind),
          .readings = read_ours(places, {"rewrite.jsonl"}, read)};
}

}  // namespace espalier
