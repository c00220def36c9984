// The page at `/`: a chat in one file of HTML, which loads nothing and talks to the API it came from like any other
// client. Constant bytes, safe to use from any thread.
#pragma once

#include <string>
#include <string_view>

namespace espalier {

// UTF-8, to be served as text/html; charset=utf-8 with chat_page_policy().
std::string_view chat_page();

// The value of its Content-Security-Policy header: nothing may be loaded, run or styled but the one script and the one
// style sheet in it, which are named by their SHA-256, and only the server itself may be asked.
std::string chat_page_policy();

// What lies between <name> and </name> in a page that has exactly one of them.
std::string_view only_element(std::string_view page, std::string_view name);

}  // namespace espalier
