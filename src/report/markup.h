// Text of others (prompts, answers, file names) inside HTML, SVG, Markdown and scripts. Whatever bytes it has, it stays
// text: bytes that are no UTF-8 and characters that no XML reader takes become U+FFFD. Pure functions.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace espalier {

// As it is, without what is no text.
std::string clean_text(std::string_view text);

// For elements and for attributes in double quotes, of HTML and of XML.
std::string markup_text(std::string_view text);

// For a line or a table's cell of Markdown: one line, in which nothing is a sign.
std::string markdown_text(std::string_view text);

// JSON that can stand inside <script>: ASCII, and no character that could end the element or begin a comment in it.
std::string script_json(const nlohmann::ordered_json& value);

// A part of an id, of a file's name and of a link: a-z, 0-9 and single hyphens, at least one of them, not too long.
std::string slug(std::string_view text);

}  // namespace espalier
