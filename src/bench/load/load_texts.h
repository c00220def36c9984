// Where `espalier bench serve` gets its texts from: prompt sets of data/eval, or a file that the user names.
#pragma once

#include "bench/load/load_prompts.h"
#include "engine/places.h"

namespace espalier {

// kind: as LoadPromptOptions has it; a file is one that read_prompt_set() reads. Throws InputError where there is no
// such file.
LoadTexts read_load_texts(const std::string& kind, const Places& places);

}  // namespace espalier
