#include "tree/choice_tree.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/mapped_file.h"

namespace espalier {
namespace {

using Json = nlohmann::json;
using Path = ChoiceTree::Path;

constexpr std::size_t kMaxFileBytes = std::size_t{1} << 20;

bool by_length_then_ranks(const Path& left, const Path& right) {
  return left.size() != right.size() ? left.size() < right.size() : left < right;
}

Path parent_of(const Path& path) {
  return Path(path.begin(), path.end() - 1);
}

std::string text(const Path& path) {
  return fmt::format("[{}]", fmt::join(path, ", "));
}

void check_path(const Path& path, const ChoiceTree::Limits& limits, std::string_view where) {
  if (path.empty()) input_error("{}: an empty choice, expected at least one rank: the root is not listed", where);
  if (path.size() > static_cast<std::size_t>(limits.depth))
    input_error("{}: a choice of length {}, expected at most {}", where, path.size(), limits.depth);
  for (int rank : path)
    if (rank < 0 || rank >= limits.ranks)
      input_error("{}: choice {}: rank {}, expected 0 to {}", where, text(path), rank, limits.ranks - 1);
}

void check_choices(const std::vector<Path>& choices, const ChoiceTree::Limits& limits, std::string_view where) {
  if (choices.size() >= static_cast<std::size_t>(kMaxTreeRows))
    input_error("{}: {} choices, expected at most {}", where, choices.size(), kMaxTreeRows - 1);
  for (const Path& path : choices) check_path(path, limits, where);
  const std::set<Path> known(choices.begin(), choices.end());
  for (const Path& path : choices)
    if (path.size() > 1 && !known.contains(parent_of(path)))
      input_error("{}: choice {} without its parent {}", where, text(path), text(parent_of(path)));
  if (known.size() == choices.size()) return;
  std::set<Path> seen;
  for (const Path& path : choices)
    if (!seen.insert(path).second) input_error("{}: choice {} stands there twice", where, text(path));
}

// Whether the list can be cut anywhere: no child stands before its parent.
bool parents_come_first(const std::vector<Path>& choices) {
  std::set<Path> seen = {Path()};
  for (const Path& path : choices) {
    if (!seen.contains(parent_of(path))) return false;
    seen.insert(path);
  }
  return true;
}

// How many times less a path is worth than certainty, by the rule for lists without an order.
double assumed_cost(const Path& path) {
  double cost = 1;
  for (int rank : path) cost *= 2.0 * (rank + 1);
  return cost;
}

void sort_by_importance(std::vector<Path>& choices) {
  const bool sorted = std::is_sorted(choices.begin(), choices.end(), by_length_then_ranks);
  if (!sorted && parents_come_first(choices)) return;
  std::sort(choices.begin(), choices.end(), by_length_then_ranks);
  std::stable_sort(choices.begin(), choices.end(),
                   [](const Path& left, const Path& right) { return assumed_cost(left) < assumed_cost(right); });
}

int rank_from(const Json& value, std::size_t choice, std::string_view where) {
  if (!value.is_number_integer())
    input_error("{}: choice number {}: expected whole numbers, got {}", where, choice, value.type_name());
  // Through int64 a number above its range turns negative: refused as well.
  const auto number = value.get<std::int64_t>();
  if (number < 0 || number > kMaxTreeRows)
    input_error("{}: choice number {}: rank {}, expected a small whole number", where, choice, value.dump());
  return static_cast<int>(number);
}

Json parse_array(std::string_view json, std::string_view where) {
  Json list;
  try {
    list = Json::parse(json);
  } catch (const Json::parse_error& error) {
    input_error("{}: not JSON, at byte {}", where, error.byte);
  }
  if (!list.is_array()) input_error("{}: expected an array of choices, got {}", where, list.type_name());
  return list;
}

}  // namespace

ChoiceTree::ChoiceTree(std::vector<Path> choices, const Limits& limits, std::string_view where)
    : ChoiceTree([&] {
        check_choices(choices, limits, where);
        sort_by_importance(choices);
        return std::move(choices);
      }()) {}

ChoiceTree::ChoiceTree(std::vector<Path> choices) : important_(std::move(choices)), rows_(1) {
  std::vector<Path> sorted = important_;
  std::sort(sorted.begin(), sorted.end(), by_length_then_ranks);
  rows_.reserve(sorted.size() + 1);
  for (Path& path : sorted) {
    const auto parent =
        std::lower_bound(rows_.begin(), rows_.end(), parent_of(path),
                         [](const Row& row, const Path& wanted) { return by_length_then_ranks(row.path, wanted); });
    if (parent->children++ == 0) parent->first_child = size();
    ranks_ = std::max(ranks_, path.back() + 1);
    const int parent_row = static_cast<int>(parent - rows_.begin());
    rows_.push_back({.path = std::move(path), .parent = parent_row});
  }
}

ChoiceTree ChoiceTree::parse(std::string_view json, const Limits& limits, std::string_view where) {
  std::vector<Path> choices;
  for (const Json& entry : parse_array(json, where)) {
    const std::size_t number = choices.size();
    if (!entry.is_array())
      input_error("{}: choice number {}: expected an array of ranks, got {}", where, number, entry.type_name());
    Path& path = choices.emplace_back();
    for (const Json& rank : entry) path.push_back(rank_from(rank, number, where));
  }
  return ChoiceTree(std::move(choices), limits, where);
}

ChoiceTree ChoiceTree::read(const std::filesystem::path& file, const Limits& limits) {
  return parse(read_text_file(file, kMaxFileBytes), limits, file.string());
}

int ChoiceTree::widest_level() const {
  std::vector<int> parents(static_cast<std::size_t>(depth()) + 1);
  for (const Row& row : rows_)
    if (row.children > 0) ++parents[row.path.size()];
  return std::max(1, *std::max_element(parents.begin(), parents.end()));
}

std::vector<int> ChoiceTree::level_sizes() const {
  std::vector<int> sizes(static_cast<std::size_t>(depth()));
  for (const Path& path : important_) ++sizes[path.size() - 1];
  return sizes;
}

int ChoiceTree::leaves() const {
  return static_cast<int>(
      std::count_if(rows_.begin() + 1, rows_.end(), [](const Row& row) { return row.children == 0; }));
}

ChoiceTree ChoiceTree::best(int rows) const {
  check(rows >= 1, "best {} rows of a static tree, expected at least the root", rows);
  const std::size_t kept = std::min(important_.size(), static_cast<std::size_t>(rows) - 1);
  return ChoiceTree({important_.begin(), important_.begin() + static_cast<std::ptrdiff_t>(kept)});
}

ChoiceTree ChoiceTree::cut(int depth) const {
  check(depth >= 0, "static tree cut at depth {}, expected at least 0", depth);
  std::vector<Path> kept;
  std::copy_if(important_.begin(), important_.end(), std::back_inserter(kept),
               [depth](const Path& path) { return path.size() <= static_cast<std::size_t>(depth); });
  return ChoiceTree(std::move(kept));
}

ChoiceTree ChoiceTree::narrow(int ranks) const {
  check(ranks >= 1, "static tree narrowed to {} ranks, expected at least 1", ranks);
  std::vector<Path> kept;
  std::copy_if(important_.begin(), important_.end(), std::back_inserter(kept),
               [ranks](const Path& path) { return *std::max_element(path.begin(), path.end()) < ranks; });
  return ChoiceTree(std::move(kept));
}

}  // namespace espalier
