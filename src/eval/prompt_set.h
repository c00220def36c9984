// The prompts of an evaluation, from a file with one JSON object on each line. Believes nothing; every complaint names
// the line. A value.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <variant>
#include <vector>

namespace espalier {

// As the file spells it: MT-bench counts, HumanEval names.
using PromptId = std::variant<std::int64_t, std::string>;
std::string text_of(const PromptId& id);

struct EvalPrompt {
  PromptId id = {};
  std::vector<std::string> turns = {};  // what the user says, at least once; none is empty
  std::int64_t line = 0;                // of the file, from 1
};

struct PromptSet {
  std::filesystem::path path = {};
  std::string sha256 = {};  // of the whole file
  std::vector<EvalPrompt> prompts = {};

  std::int64_t turns() const;
};

// A line has an id in `id`, `question_id`, `prompt_id` or `task_id`, the first of them that is there, a text or an
// integer, no two alike; and `turns`, a list of texts, or else `prompt`, a single one. Whatever else it has is left
// alone, and so are blank lines. Throws InputError "path:line: ..." otherwise, and when there is no prompt at all.
PromptSet read_prompt_set(const std::filesystem::path& path);

// The prompts [skip, skip + limit) of the set, cut at its end. Throws InputError when none is left.
void keep_prompts(PromptSet& set, std::int64_t skip, std::int64_t limit);

}  // namespace espalier
