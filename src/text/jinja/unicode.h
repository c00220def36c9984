// Characters as Python's str sees them: what the template interpreter needs to agree with jinja2 on strip(), upper()
// and the quoting of strings inside lists. All functions expect valid UTF-8. Unicode version: that of the ICU the
// program runs with, as for tokenizers; Python's depends on its release, and the two differ in new characters and a
// handful of others.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace espalier::jinja {

struct Character {
  char32_t code = 0;
  std::size_t bytes = 1;
};

// The character that starts at `offset`. Requires offset < text.size().
Character character_at(std::string_view text, std::size_t offset);
// The character that ends before `offset`. Requires offset > 0.
Character character_before(std::string_view text, std::size_t offset);
std::size_t count_characters(std::string_view text);

bool is_space(char32_t code);
bool is_printable(char32_t code);
bool is_decimal(char32_t code);  // a digit, of any script

// Full case mappings: one character may become several. Lower case of a capital sigma depends on its surroundings, so
// the text and the offset of the character are given.
std::string upper(char32_t code);
std::string title(char32_t code);
std::string lower(std::string_view text, std::size_t offset);
bool is_cased(char32_t code);

}  // namespace espalier::jinja
