#include "serve/protocol/speculation_field.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>

namespace espalier {
namespace {

constexpr std::array<std::string_view, 3> kTreeNames = {"dynamic", "chain", "static"};
constexpr std::array<TreeShape, 3> kTreeShapes = {TreeShape::dynamic, TreeShape::chain, TreeShape::fixed};

// "auto", "none", or names joined with +.
void read_drafters(const BodyField& field, SpeculationField& speculation) {
  std::string_view names = field.text(1, 256);
  if (names == "auto") return;
  speculation.on = names != "none";
  while (speculation.on && !names.empty()) {
    const std::size_t plus = std::min(names.find('+'), names.size());
    speculation.drafters.emplace_back(names.substr(0, plus));
    names.remove_prefix(std::min(plus + 1, names.size()));
  }
}

void read_draft_nodes(const BodyField& field, SpeculationField& speculation) {
  if (field.is_string() && field.text() == "auto") return;
  if (!field.is_number()) field.refuse(fmt::format("\"auto\" or a whole number from 1 to {}", kMostSpeculatedNodes));
  speculation.nodes = static_cast<int>(field.integer(1, kMostSpeculatedNodes));
}

}  // namespace

SpeculationField read_speculation(const BodyField& field) {
  SpeculationField speculation;
  if (field.is_boolean()) {
    speculation.on = field.boolean();
    return speculation;
  }
  if (!field.is_object()) field.refuse("false or an object");
  if (const auto draft = field.find("draft")) read_drafters(*draft, speculation);
  if (const auto nodes = field.find("nodes")) read_draft_nodes(*nodes, speculation);
  if (const auto depth = field.find("depth"))
    speculation.depth = static_cast<int>(depth->integer(1, kMostSpeculatedLevels));
  if (const auto tree = field.find("tree")) speculation.tree = kTreeShapes[tree->one_of(kTreeNames)];
  return speculation;
}

SpeculationField read_longest_draft(const BodyField& field) {
  const std::int64_t longest = field.integer(0, std::numeric_limits<std::int64_t>::max());
  return {.on = longest > 0, .depth = static_cast<int>(std::min(longest, kMostSpeculatedLevels))};
}

}  // namespace espalier
