// Text that came out of a file: whether it is UTF-8 at all, and how to put it into a one-line message.
#pragma once

#include <string>
#include <string_view>

namespace espalier {

// Well-formed UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF.
bool is_utf8(std::string_view text);

// The text in double quotes, safe to print: control characters and bytes that are not UTF-8 as \xNN, cut with "..."
// after 96 bytes. A file can thus neither break the line nor drown it.
std::string in_quotes(std::string_view text);

}  // namespace espalier
