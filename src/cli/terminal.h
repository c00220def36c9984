// What the screen is like: its width, and whether it wants colour.
#pragma once

#include <string>

namespace espalier {

// "always", "never" or "auto": on a terminal, unless NO_COLOR is set (no-color.org).
bool wants_colour(const std::string& choice, bool is_terminal, bool no_color);
// The columns of standard output: of the terminal, else $COLUMNS, else 100.
int screen_width();
bool stdout_wants_colour(const std::string& choice);

}  // namespace espalier
