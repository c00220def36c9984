// The rounds of a turn as the page's script draws them: trees with draft probabilities, the teacher's choices and the
// accepted path. Small JSON with short keys (docs/report.md). A pure function.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "trace/traced_turn.h"

namespace espalier {

// How the ids of a run are shown.
struct TokenWords {
  // A token in double quotes, what cannot be shown as escapes; without a tokenizer: its number.
  std::function<std::string(std::int32_t)> word = [](std::int32_t token) { return std::to_string(token); };
  std::vector<std::string> drafters = {};  // their names, by source bit
};

nlohmann::ordered_json turn_data(const TracedTurn& turn, const TokenWords& words);

}  // namespace espalier
