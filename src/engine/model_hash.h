// SHA-256 of a model as users have it, by which its heads are found (train/pipeline/teacher.py takes the same): of the
// one file, or of the list of its shards' hashes. Hashes are kept in the user's cache folder under path, size and time
// of the last change: a model is read as a whole once, not at every start. A split GGUF model is named by its first
// file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace espalier {

// Of all its weight files together; nothing: it cannot be told.
std::optional<std::int64_t> model_bytes(const std::filesystem::path& model);

// cache_folder: nothing: hashed anew each time. Nothing comes back where a file cannot be read.
std::optional<std::string> model_sha256(const std::filesystem::path& model,
                                        const std::optional<std::filesystem::path>& cache_folder);

// Of a file, or of all files of a folder with their names: a head with its configuration.
std::optional<std::string> folder_sha256(const std::filesystem::path& path,
                                         const std::optional<std::filesystem::path>& cache_folder);
// Of what makes texts into tokens: the GGUF file, or all files of a Hugging Face folder but the weights.
std::optional<std::string> text_sha256(const std::filesystem::path& model,
                                       const std::optional<std::filesystem::path>& cache_folder);

// Of the tokenizer's files of a Hugging Face folder, with their names; a GGUF model has it inside.
std::optional<std::string> tokenizer_sha256(const std::filesystem::path& model,
                                            const std::optional<std::filesystem::path>& cache_folder);
// Of config.json of a Hugging Face folder; empty: a GGUF model has it inside.
std::optional<std::string> configuration_sha256(const std::filesystem::path& model,
                                                const std::optional<std::filesystem::path>& cache_folder);

}  // namespace espalier
