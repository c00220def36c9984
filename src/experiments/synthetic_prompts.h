// Prompts of wanted lengths, put together from the texts of a data set: for experiments that ask how speed depends on
// the length of a prompt, of a chat's history, or of the text that all prompts begin with. Pure functions: the same
// texts give the same prompts.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "experiments/suite_file.h"

namespace espalier {

using TokenCounter = std::function<std::int64_t(std::string_view)>;

// As many whole words of the texts, from `first` on and round again, as have at most `tokens` tokens. Empty when not
// even one word fits. Requires texts with words.
std::string text_of_length(std::span<const std::string> texts, std::size_t first, std::int64_t tokens,
                           const TokenCounter& count);

struct SyntheticPrompts {
  std::string jsonl = {};       // a data set as `eval run` reads it
  std::string system = {};      // of all of them; empty: none
  std::int64_t turns_each = 1;  // of which the last counts
};

// prompt: one user turn of `length` tokens, a question and the text it is about.
// history: `length` turns before the one that counts, each a text of the set, answered by the model itself.
// prefix: a system message of `length` tokens before a text of the set.
SyntheticPrompts synthetic_prompts(Growth growth, std::int64_t length, std::int64_t prompts,
                                   std::span<const std::string> texts, const TokenCounter& count);

}  // namespace espalier
