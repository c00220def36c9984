// Fields that are known, would change the text and cannot be honoured: a 400 where they ask for something, so that no
// client takes an answer for what it is not. A value that asks for nothing (an empty list, a penalty of 0) passes.
#pragma once

#include <string_view>
#include <vector>

#include "serve/protocol/json_body.h"

namespace espalier {

// Throws ApiError naming the field.
void refuse_unsupported_fields(const BodyField& body);
std::vector<std::string_view> refusable_field_names();

}  // namespace espalier
