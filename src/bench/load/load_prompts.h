// What users ask: texts that are handed in, chosen by seed and number, each unlike any other from its first words on,
// so that no prompt is found in a server's cache unless it is meant to be. Immutable.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace espalier {

struct LoadPrompt {
  std::string shared = {};  // what all have in common, before the rest; may be empty
  std::string text = {};
};

struct LoadPromptOptions {
  std::string kind = "short";  // short, long (about 4,000 characters), or the file that the questions are from
  bool shared_prefix = false;  // about 4,000 characters that all prompts share
  std::uint64_t seed = 0;
};

// What prompts are made of; at least one of each, none empty.
struct LoadTexts {
  std::vector<std::string> questions = {};
  std::vector<std::string> readings = {};  // what long prompts and shared prefixes consist of
};

class LoadPrompts {
 public:
  LoadPrompts(LoadPromptOptions options, LoadTexts texts);

  // server: who is asked, the first or the second. Both get the same but for the first words, so that neither finds
  // what the other was asked where they are one.
  LoadPrompt prompt(std::uint64_t number, std::size_t server = 0) const;
  // Of about so many characters, whatever the kind.
  LoadPrompt long_prompt(std::uint64_t number, std::size_t characters, std::size_t server = 0) const;

 private:
  std::string opening(std::uint64_t number, std::size_t server) const;
  const std::string& question(std::uint64_t number) const;
  std::string reading(std::uint64_t number, std::size_t characters) const;

  LoadPromptOptions options_;
  LoadTexts texts_;
  std::string shared_;
};

}  // namespace espalier
