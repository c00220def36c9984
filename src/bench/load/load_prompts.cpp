#include "bench/load/load_prompts.h"

#include "base/error.h"
#include "base/random.h"
#include "eval/prompt_set.h"

namespace espalier {
namespace {

constexpr std::size_t kLongCharacters = 4000;  // some thousand tokens
constexpr std::string_view kTask = "\n\nWhat is the text above about? Answer at length.";

// The first turn of each.
std::vector<std::string> read_texts(const std::filesystem::path& path) {
  std::vector<std::string> texts;
  for (const EvalPrompt& prompt : read_prompt_set(path).prompts) texts.push_back(prompt.turns.front());
  return texts;
}

std::vector<std::string> read_ours(const Places& places, const std::vector<std::string>& names) {
  std::vector<std::string> texts;
  for (const std::string& name : names) {
    const auto path = places.find("data/eval/" + name);
    if (!path) input_error("data/eval/{}: not found; --prompts FILE names other prompts", name);
    for (std::string& text : read_texts(*path)) texts.push_back(std::move(text));
  }
  return texts;
}

std::vector<std::string> questions_of(const LoadPromptOptions& options, const Places& places) {
  if (options.kind == "short" || options.kind == "long") return read_ours(places, {"mt_bench.jsonl", "outside.jsonl"});
  return read_texts(options.kind);
}

}  // namespace

LoadPrompts::LoadPrompts(const LoadPromptOptions& options, const Places& places)
    : LoadPrompts(options, questions_of(options, places), read_ours(places, {"rewrite.jsonl"})) {}

LoadPrompts::LoadPrompts(LoadPromptOptions options, std::vector<std::string> questions, std::vector<std::string> texts)
    : options_(std::move(options)), questions_(std::move(questions)), texts_(std::move(texts)) {
  check(!questions_.empty() && !texts_.empty(), "prompts without texts");
  if (options_.shared_prefix) shared_ = opening(0, 0) + reading(0, kLongCharacters);
}

// Numbers say which run and which request it is. Everything behind a first difference is another prompt for a cache.
std::string LoadPrompts::opening(std::uint64_t number, std::size_t server) const {
  return fmt::format("No. {}-{}-{}: ", server + 1, options_.seed, number);
}

const std::string& LoadPrompts::question(std::uint64_t number) const {
  const double drawn = uniform(options_.seed, number);
  return questions_[static_cast<std::size_t>(drawn * static_cast<double>(questions_.size()))];
}

// Texts one after another, from a place that depends on the number; the last is cut, never inside a character.
std::string LoadPrompts::reading(std::uint64_t number, std::size_t characters) const {
  auto next = static_cast<std::size_t>(uniform(options_.seed, number) * static_cast<double>(texts_.size()));
  std::string text;
  while (text.size() < characters) text += texts_[next++ % texts_.size()] + "\n\n";
  const auto inside = [&] { return (static_cast<unsigned char>(text[characters]) & 0xC0) == 0x80; };
  while (characters > 0 && inside()) --characters;
  return text.substr(0, characters);
}

LoadPrompt LoadPrompts::prompt(std::uint64_t number, std::size_t server) const {
  if (options_.kind == "long") return long_prompt(number, kLongCharacters, server);
  return {shared_, opening(number, server) + question(number)};
}

LoadPrompt LoadPrompts::long_prompt(std::uint64_t number, std::size_t characters, std::size_t server) const {
  return {shared_, opening(number, server) + reading(number, characters) + std::string(kTask)};
}

}  // namespace espalier
