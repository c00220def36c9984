// What /set changes while a chat goes on: how answers are drawn and how long they get.
#pragma once

#include <string>
#include <string_view>

#include "session/session.h"

namespace espalier {

// "temperature 0.7". Throws InputError: a name that nobody knows, a value that is none; nothing has changed then.
void set_by_name(std::string_view name, std::string_view value, TextOptions& options);

// "temperature 0.2, top-k 0, ...": all that can be set here.
std::string shown_settings(const TextOptions& options);

}  // namespace espalier
