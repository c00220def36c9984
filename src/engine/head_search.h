// Which of the draft heads in some folders were trained for a model.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "model/head_catalogue.h"

namespace espalier {

// The heads whose recorded hash is that of the model, in the order of the folders. The model is read only if its size
// is that of some head's teacher. cache_folder: see model_hash.h.
std::vector<HeadCard> heads_trained_for(const std::filesystem::path& model,
                                        std::span<const std::filesystem::path> folders,
                                        const std::optional<std::filesystem::path>& cache_folder);

}  // namespace espalier
