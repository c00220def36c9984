#include "bench/load/load_prompts.h"

#include "base/error.h"
#include "base/random.h"

namespace espalier {
namespace {

constexpr std::size_t kLongCharacters = 4000;  // some thousand tokens
constexpr std::string_view kTask = "\n\nWhat is the text above about? Answer at length.";

}  // namespace

LoadPrompts::LoadPrompts(LoadPromptOptions options, LoadTexts texts)
    : options_(std::move(options)), texts_(std::move(texts)) {
  check(!texts_.questions.empty() && !texts_.readings.empty(), "prompts without texts");
  if (options_.shared_prefix) shared_ = opening(0, 0) + reading(0, kLongCharacters);
}

// Numbers say which run and which request it is. Everything behind a first difference is another prompt for a cache.
std::string LoadPrompts::opening(std::uint64_t number, std::size_t server) const {
  return fmt::format("No. {}-{}-{}: ", server + 1, options_.seed, number);
}

const std::string& LoadPrompts::question(std::uint64_t number) const {
  const double drawn = uniform(options_.seed, number);
  return texts_.questions[static_cast<std::size_t>(drawn * static_cast<double>(texts_.questions.size()))];
}

// Texts one after another, from a place that depends on the number; the last is cut, never inside a character.
std::string LoadPrompts::reading(std::uint64_t number, std::size_t characters) const {
  const std::vector<std::string>& readings = texts_.readings;
  auto next = static_cast<std::size_t>(uniform(options_.seed, number) * static_cast<double>(readings.size()));
  std::string text;
  while (text.size() < characters) text += readings[next++ % readings.size()] + "\n\n";
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
