// What is in a model: its file, its network, its tensors and its text, as a JSON object for people and programs.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>

#include "format/tensor_info.h"

namespace espalier {

// path: a GGUF file or a Hugging Face folder; source: its tensors. Without a tokenizer a model can still be looked at:
// "text" says what is wrong with it then. Throws InputError where there is no configuration.
nlohmann::ordered_json describe_model(const std::filesystem::path& path, const TensorSource& source);

}  // namespace espalier
