// The few facts about characters that the tokenizers ask for. Unicode version: that of the ICU the program runs with.
#pragma once

#include <string>
#include <string_view>

namespace espalier {

// The property White_Space: what \s means in the published patterns.
bool is_white_space(char32_t code_point);

// Alphabetic, marks, decimal digits, connector punctuation, join controls: \w of Unicode Technical Standard 18.
bool is_word_character(char32_t code_point);

// Whether canonical composition never looks across the place before this character.
bool starts_composition(char32_t code_point);

// Normalisation form C. Requires valid UTF-8.
std::string nfc(std::string_view text);

}  // namespace espalier
