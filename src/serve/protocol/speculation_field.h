// What a request says of guessing ahead: the field `speculation`, and llama.cpp's `speculative.n_max`. Changes the
// speed and never the text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "decode/draft_tree.h"
#include "serve/protocol/json_body.h"

namespace espalier {

inline constexpr std::int64_t kMostSpeculatedNodes = 64;
inline constexpr std::int64_t kMostSpeculatedLevels = 16;

struct SpeculationField {
  bool on = true;
  std::vector<std::string> drafters = {};  // by name; none: the server's choice
  int nodes = 0;                           // 0: the server's choice
  int depth = 0;                           // likewise
  std::optional<TreeShape> tree = {};

  bool operator==(const SpeculationField&) const = default;
};

// false, true, or an object; throws ApiError.
SpeculationField read_speculation(const BodyField& field);
// The longest draft: 0 is none, and more than a tree is deep is as deep as it is.
SpeculationField read_longest_draft(const BodyField& field);

}  // namespace espalier
