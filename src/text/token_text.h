// Text of a model on a person's screen: whatever bytes a token has, it stays on its line and in its column.
#pragma once

#include <string>
#include <string_view>

namespace espalier {

// In double quotes. Control characters, invisible ones, those that turn the direction of writing, and bytes that are no
// whole character are written as escapes: \n, \x1b, \u202e.
std::string quoted_token(std::string_view bytes);

// The columns a terminal needs for this text: none for combining marks, two for wide characters.
int display_width(std::string_view text);
// Cut to so many columns, the last of them an ellipsis. Never inside a character.
std::string cut_to_width(std::string_view text, int width);
// The same from the other side: what stands last is kept.
std::string cut_front_to_width(std::string_view text, int width);
// Cut where it is too long, filled with spaces where it is too short.
std::string fit_to_width(std::string_view text, int width);

}  // namespace espalier
