// What is in a model: its file, its network, its tensors and its text, as a JSON object for people and programs.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "format/tensor_info.h"

namespace espalier {

// path: a GGUF file or a Hugging Face folder; source: its tensors. Without a tokenizer a model can still be looked at:
// "text" says what is wrong with it then. Throws InputError where there is no configuration.
nlohmann::ordered_json describe_model(const std::filesystem::path& path, const TensorSource& source);

// A line for each tensor: name, type, shape.
std::string tensors_text(const TensorSource& source);

// An object of facts for people: "key: value" lines, nested objects indented.
std::string facts_text(const nlohmann::ordered_json& facts);

}  // namespace espalier
