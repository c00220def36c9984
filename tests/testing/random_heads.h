// Draft heads with random weights for any teacher, written as files and read by the engine's own loaders.
#pragma once

#include <cstdint>
#include <filesystem>

#include "model/config.h"

namespace espalier::testing {

// An EAGLE-3 head in the layout of SafeAILab whose draft vocabulary is a part of the teacher's.
void write_random_eagle3(const std::filesystem::path& folder, const ModelConfig& teacher, std::uint32_t seed);
// Medusa heads that share the teacher's output matrix (layout B).
void write_random_medusa(const std::filesystem::path& folder, const ModelConfig& teacher, std::uint32_t seed);

}  // namespace espalier::testing
