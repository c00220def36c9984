// The first turns of prompts as token ids, templated and tokenised once for all processes and runs (artefact_cache.h).
#pragma once

#include <string>
#include <vector>

#include "eval/artefact_cache.h"
#include "eval/prompt_set.h"
#include "session/session.h"

namespace espalier {

struct PromptTexts {
  const ModelText& text;
  const ChatContext& chat;
  std::string system = {};
  bool raw = false;
  std::string identity = {};  // of program, tokenizer and template; empty: nothing is kept
};

// By record. A prompt that cannot be made into ids has none: whoever asks for the turn is told why.
std::vector<std::vector<TokenId>> prepare_prompts(const PromptSet& data, const PromptTexts& texts,
                                                  const ArtefactCache& cache);

}  // namespace espalier
