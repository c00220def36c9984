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

// Whether somebody who reads text sees it: no control or format character, no end of a line or paragraph, no
// noncharacter, nothing that is ignorable by default, but for selectors of how the character before them looks. What a
// terminal or an XML reader would act upon instead of showing it is none.
bool is_visible(char32_t code_point);

// The columns a terminal gives it: none for marks on another character, format characters and what is ignorable by
// default, two for East Asian wide and full-width characters and for emoji, else one.
int terminal_columns(char32_t code_point);

// Normalisation form C. Requires valid UTF-8.
std::string nfc(std::string_view text);

}  // namespace espalier
