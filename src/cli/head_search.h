// Where draft heads lie, and which of them were trained for a model.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "cli/modes.h"
#include "model/head_catalogue.h"

namespace espalier {

// $ESPALIER_HEADS, heads/ in the working directory, and beside the program: ../heads, ../../heads,
// ../share/espalier/heads. Those that are not there are left out, and each is named once. program: its file.
std::vector<std::filesystem::path> head_folders(const Environment& environment, const std::filesystem::path& program);

// The heads whose recorded hash is that of the model, in the order of the folders. The model is read only if its size
// is that of some head's teacher. cache_folder: see model_hash.h.
std::vector<HeadCard> heads_trained_for(const std::filesystem::path& model,
                                        std::span<const std::filesystem::path> folders,
                                        const std::optional<std::filesystem::path>& cache_folder);

}  // namespace espalier
