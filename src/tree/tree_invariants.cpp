#include "tree/tree_invariants.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace espalier {
namespace {

using Table = std::vector<std::int32_t>;

constexpr std::int32_t kMaxRenderedRows = 4096;  // a broken row count must not become a message of gigabytes

// The rules one by one, in an order in which each may rely on those before it.
class TensorChecker {
 public:
  TensorChecker(const TreeTensors& tensors, const TreeLimits& limits) : t_(tensors), limits_(limits) {}

  void check_all() const {
    check_shape();
    check_range("parent", t_.parent, t_.nodes);
    check_range("depth", t_.depth, t_.levels);
    check_range("token", t_.token, limits_.vocabulary);
    check_range("position", t_.position, limits_.positions);
    check_range("path", t_.path, t_.nodes);
    check_root();
    for (int row = 1; row < t_.nodes; ++row) check_order(row);
    for (int row = 1; row < t_.nodes; ++row) check_depth(row);
    check_siblings();
    for (int row = 0; row < t_.nodes; ++row) check_position(row);
    for (int row = 0; row < t_.nodes; ++row) check_path(row);
  }

 private:
  template <typename... Args>
  void require(bool holds, TreeRule rule, int row, fmt::format_string<Args...> format, Args&&... args) const {
    if (!holds) [[unlikely]]
      throw TreeViolation(rule, row, fmt::format(format, std::forward<Args>(args)...), t_);
  }

  void check_shape() const {
    require(t_.nodes >= 1 && t_.levels >= 1 && t_.prefix >= 0, TreeRule::shape, 0, "{} nodes, {} levels, prefix {}",
            t_.nodes, t_.levels, t_.prefix);
    const auto nodes = static_cast<std::size_t>(t_.nodes), levels = static_cast<std::size_t>(t_.levels);
    for (const Table* table : {&t_.token, &t_.parent, &t_.depth, &t_.position})
      require(table->size() == nodes, TreeRule::shape, 0, "a table of {} entries, expected {}", table->size(), nodes);
    require(t_.path.size() == nodes * levels, TreeRule::shape, 0, "a table of {} entries, expected {} x {}",
            t_.path.size(), nodes, levels);
  }

  void check_range(std::string_view table, const Table& entries, std::int32_t end) const {
    const auto wrong = std::find_if(entries.begin(), entries.end(), [end](auto i) { return i < 0 || i >= end; });
    if (wrong == entries.end()) return;
    const int at = static_cast<int>(wrong - entries.begin());
    const int row = &entries == &t_.path ? at / t_.levels : at;
    require(false, TreeRule::range, row, "{} {}, expected 0 to {}", table, *wrong, end - 1);
  }

  void check_root() const {
    require(t_.parent[0] == 0 && t_.depth[0] == 0, TreeRule::root, 0, "parent {}, depth {}, expected 0, 0",
            t_.parent[0], t_.depth[0]);
  }

  void check_order(int row) const {
    const int earliest = row == 1 ? 0 : parent(row - 1);
    require(parent(row) < row && parent(row) >= earliest, TreeRule::order, row, "parent {}, expected {} to {}",
            parent(row), earliest, row - 1);
  }

  void check_depth(int row) const {
    require(depth(row) == depth(parent(row)) + 1, TreeRule::depth, row, "depth {} below row {} of depth {}", depth(row),
            parent(row), depth(parent(row)));
    int above = row, steps = 0;
    for (; above != 0; above = parent(above)) ++steps;
    require(depth(row) == steps, TreeRule::depth, row, "depth {}, but the root is {} steps away", depth(row), steps);
  }

  // In breadth-first order the children of a node stand side by side.
  void check_siblings() const {
    for (int row = 2; row < t_.nodes; ++row)
      for (int other = row - 1; other >= 1 && parent(other) == parent(row); --other)
        require(token(other) != token(row), TreeRule::siblings, row, "token {} as in row {}, below the same parent {}",
                token(row), other, parent(row));
  }

  void check_position(int row) const {
    require(position(row) == t_.prefix + depth(row), TreeRule::position, row, "position {}, expected {} + {}",
            position(row), t_.prefix, depth(row));
  }

  void check_path(int row) const {
    int expected = row;
    for (int level = t_.levels - 1; level >= 0; --level) {
      if (level < depth(row)) expected = parent(expected);
      const int entry = t_.path[index(row, t_.levels, level)];
      require(entry == expected, TreeRule::path, row, "path[{}, {}] = {}, expected {}", row, level, entry, expected);
    }
  }

  static std::size_t index(int major, std::int32_t minor_count, int minor) {
    return static_cast<std::size_t>(major) * static_cast<std::size_t>(minor_count) + static_cast<std::size_t>(minor);
  }

  int token(int row) const { return t_.token[static_cast<std::size_t>(row)]; }
  int parent(int row) const { return t_.parent[static_cast<std::size_t>(row)]; }
  int depth(int row) const { return t_.depth[static_cast<std::size_t>(row)]; }
  int position(int row) const { return t_.position[static_cast<std::size_t>(row)]; }

  const TreeTensors& t_;
  const TreeLimits limits_;
};

std::string cell(const Table& table, int row) {
  const auto at = static_cast<std::size_t>(row);
  return at < table.size() ? fmt::format("{}", table[at]) : "?";
}

}  // namespace

std::string_view name(TreeRule rule) {
  switch (rule) {
    case TreeRule::shape: return "shape";
    case TreeRule::range: return "range";
    case TreeRule::root: return "root";
    case TreeRule::order: return "order";
    case TreeRule::depth: return "depth";
    case TreeRule::siblings: return "siblings";
    case TreeRule::position: return "position";
    case TreeRule::path: return "path";
    case TreeRule::mask: return "mask";
    case TreeRule::tree: return "tree";
    case TreeRule::slot: return "slot";
    case TreeRule::padding: return "padding";
  }
  return "?";
}

TreeViolation::TreeViolation(TreeRule rule, int row, std::string_view what, const TreeTensors& tensors)
    : std::logic_error(
          fmt::format("tree rule \"{}\" broken in row {}: {}\n{}", name(rule), row, what, render(tensors))),
      rule_(rule),
      row_(row) {}

void check_tensors(const TreeTensors& tensors, const TreeLimits& limits) {
  TensorChecker(tensors, limits).check_all();
}

void check_tensors_match(const TreeTensors& tensors, const TokenTree& tree) {
  if (tensors.nodes != tree.size())
    throw TreeViolation(TreeRule::tree, 0, fmt::format("{} nodes, expected {}", tensors.nodes, tree.size()), tensors);
  for (int row = 0; row < tree.size(); ++row) {
    const std::int32_t token = tensors.token[static_cast<std::size_t>(row)];
    const std::int32_t parent = tensors.parent[static_cast<std::size_t>(row)];
    if (token != tree[row].token || parent != tree[row].parent)
      throw TreeViolation(TreeRule::tree, row,
                          fmt::format("token {} below {}, expected token {} below {}", token, parent, tree[row].token,
                                      tree[row].parent),
                          tensors);
  }
}

std::string render(const TreeTensors& tensors) {
  std::string text = fmt::format("{} nodes, {} levels, prefix {}\n{:>5} {:>6} {:>5} {:>8} {:>8}\n", tensors.nodes,
                                 tensors.levels, tensors.prefix, "row", "parent", "depth", "token", "position");
  for (int row = 0; row < std::min(tensors.nodes, kMaxRenderedRows); ++row)
    text += fmt::format("{:>5} {:>6} {:>5} {:>8} {:>8}\n", row, cell(tensors.parent, row), cell(tensors.depth, row),
                        cell(tensors.token, row), cell(tensors.position, row));
  return text;
}

}  // namespace espalier
