// Where `espalier bench serve` gets its texts from: prompt sets of data/eval, or a file that the user names.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "bench/load/load_prompts.h"
#include "engine/places.h"

namespace espalier {

// What users ask in a file, at least one text, none empty. Throws InputError where it cannot be read.
using QuestionReader = std::function<std::vector<std::string>(const std::filesystem::path& file)>;

// kind: as LoadPromptOptions has it; a file is one that `read` reads. Throws InputError where there is no such file.
LoadTexts read_load_texts(const std::string& kind, const Places& places, const QuestionReader& read);

}  // namespace espalier
