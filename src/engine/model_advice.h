// How a model wants to be used, where that is known: the sampling that its authors recommend, and for the default model
// what stands in front of a conversation when nobody says (docs/first-answers.md). Applications that talk ask for it;
// measurements do not, so that their figures stay comparable.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "decode/sampler.h"
#include "engine/answering.h"

namespace espalier {

// A choice of sampling that may leave things open.
struct SamplingWish {
  std::optional<float> temperature = {};
  std::optional<std::int64_t> top_k = {};
  std::optional<float> top_p = {};
  std::optional<float> min_p = {};
  std::optional<float> repeat_penalty = {};

  bool operator==(const SamplingWish&) const = default;
};

struct SamplingAdvice {
  SamplingWish sampling = {};
  std::string source = {};  // "generation_config.json", "general.sampling.*", "the model card"; empty: nothing is known
};

// What the authors of a GGUF file or a Hugging Face folder recommend, by its files, else by what is known of its hash.
// cache: see model_hash.h. Throws InputError where a file recommends what cannot be.
SamplingAdvice recommended_sampling(const std::filesystem::path& model,
                                    const std::optional<std::filesystem::path>& cache);

// Takes what is recommended for everything that was not given. Sampling that was given no temperature, of a model whose
// authors recommend none, stays greedy.
void take_recommended(const SamplingWish& recommended, const SamplingWish& given, SamplingOptions& sampling);

// The settings of a conversation where nobody said with which system message it begins: for the default model without
// one, because it answers better than behind that of its template (docs/first-answers.md); for any other as its
// template has it. A choice is told to the engine's listener.
ChatSettings with_chosen_system(ChatSettings settings, const OpenEngine& engine);

// A seed that nobody has asked for: a conversation need not be the same every time.
std::uint64_t fresh_seed();

}  // namespace espalier
