// The description of the server's API, OpenAPI 3.1, written by hand in openapi.json beside this header (CMakeLists.txt
// compiles it in) and held to the code by openapi_test.cpp.
#pragma once

#include <string_view>

namespace espalier {

extern const std::string_view kOpenApi;

}  // namespace espalier
