// The prompts of an evaluation, from a file with one JSON object on each line. Believes nothing; every complaint names
// the line. A value.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "trace/prompt_id.h"

namespace espalier {

struct EvalPrompt {
  PromptId id = {};
  std::string set = {};                 // the name of its file, without folder and ending
  std::vector<std::string> turns = {};  // what the user says, at least once; none is empty
  std::size_t file = 0;                 // index into PromptSet::files
  std::int64_t line = 0;                // of that file, from 1
};

struct PromptFile {
  std::filesystem::path path = {};
  std::string sha256 = {};  // of the whole file
  std::string set = {};     // no two alike
};

// Prompts of one file or of several, one after another: a prompt's index is its record number.
struct PromptSet {
  std::vector<PromptFile> files = {};
  std::vector<EvalPrompt> prompts = {};

  std::int64_t turns() const;
  std::string place(const EvalPrompt& prompt) const;  // "path:line", for messages
};

// A line has an id in `id`, `question_id`, `prompt_id` or `task_id`, the first of them that is there, a text or an
// integer, no two alike; and `turns`, a list of texts, or else `prompt`, a single one. Whatever else it has is left
// alone, and so are blank lines. Throws InputError "path:line: ..." otherwise, and when there is no prompt at all.
PromptSet read_prompt_set(const std::filesystem::path& path);

// What the user says first in each of these prompts.
std::vector<std::string> first_turns(const std::filesystem::path& path);

// Those of the first, then those of the second, and so on. Throws InputError when two files give their sets one name.
PromptSet join(std::vector<PromptSet> sets);

// The prompts [skip, skip + limit) of the set, cut at its end. Throws InputError when none is left.
void keep_prompts(PromptSet& set, std::int64_t skip, std::int64_t limit);

}  // namespace espalier
