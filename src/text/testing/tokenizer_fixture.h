// Test data of train/fixtures/make_tokenizers.py: strings, vocabularies, and what the reference implementations make of
// them. For tests only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/testing/sanitized.h"
#include "text/tokenizer.h"

namespace espalier {

std::filesystem::path tokenizer_folder(std::string_view name);  // of tests/data/tokenizers
std::vector<std::string> tokenizer_strings();

// Sanitizers look at code, not at ids: there tests take every seventh string.
inline constexpr std::size_t kStringStep = kSanitized ? 7 : 1;

// The strings whose ids differ from those stored in `name`, described; empty when all agree, with control tokens
// recognised and without. At most ten are described.
std::string differences_to(std::string_view name, const Tokenizer& tokenizer);

// FNV-1a over the ids as little-endian 32-bit integers.
std::uint64_t hash_ids(const std::vector<TokenId>& ids);

}  // namespace espalier
