// Draft heads with random weights for any teacher, written as files and read by the engine's own loaders.
#pragma once

#include <cstdint>
#include <filesystem>

#include "model/config.h"

namespace espalier::testing {

// An EAGLE-3 head in the layout of SafeAILab whose draft vocabulary is a part of the teacher's.
void write_random_eagle3(const std::filesystem::path& folder, const ModelConfig& teacher, std::uint32_t seed);
// An EAGLE-2 head in the layout of SafeAILab with a bias behind fc and, with an odd seed, biases of q, k and v.
void write_random_eagle2(const std::filesystem::path& folder, const ModelConfig& teacher, std::uint32_t seed);
// An EAGLE-2 head whose output is its feature: fc picks it, attention and MLP are zero.
void write_echoing_eagle2(const std::filesystem::path& folder, const ModelConfig& teacher);
// Medusa heads that share the teacher's output matrix (layout B).
void write_random_medusa(const std::filesystem::path& folder, const ModelConfig& teacher, std::uint32_t seed);

}  // namespace espalier::testing
