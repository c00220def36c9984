// What a client is told, for tests.
#pragma once

#include <stdexcept>

#include "serve/protocol/api_error.h"

namespace espalier {

// The ApiError that a call throws; one of status 0 where it throws none.
template <typename Call>
ApiError refusal(Call call) {
  try {
    call();
  } catch (const ApiError& error) {
    return error;
  }
  return ApiError(0, ErrorType::server, "no error");
}

}  // namespace espalier
