// The page that CMakeLists.txt joins out of chat.html and the style sheets and scripts of this folder.
#pragma once

#include <string_view>

namespace espalier {

extern const std::string_view kChatPage;

}  // namespace espalier
