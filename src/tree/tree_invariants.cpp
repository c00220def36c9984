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
    check_range("parent", t_.parent, t_.rows);
    check_range("depth", t_.depth, t_.levels);
    check_range("token", t_.token, limits_.vocabulary);
    check_range("position", t_.position, limits_.positions);
    check_range("ancestor", t_.ancestor, t_.rows);
    check_range("path", t_.path, t_.rows);
    check_root();
    check_validity();
    for (int row = t_.nodes; row < t_.rows; ++row) check_padding(row);
    for (int row = 1; row < t_.nodes; ++row) check_order(row);
    for (int row = 1; row < t_.nodes; ++row) check_depth(row);
    check_siblings();
    for (int row = 0; row < t_.nodes; ++row) check_position(row);
    for (int row = 0; row < t_.rows; ++row) check_ancestors(row);
    for (int row = 0; row < t_.rows; ++row) check_path(row);
  }

 private:
  template <typename... Args>
  void require(bool holds, TreeRule rule, int row, fmt::format_string<Args...> format, Args&&... args) const {
    if (!holds) [[unlikely]]
      throw TreeViolation(rule, row, fmt::format(format, std::forward<Args>(args)...), t_);
  }

  void check_shape() const {
    require(t_.rows >= 1 && t_.levels >= 1 && t_.nodes >= 1 && t_.nodes <= t_.rows && t_.prefix >= 0, TreeRule::shape,
            0, "{} nodes in {} rows, {} levels, prefix {}", t_.nodes, t_.rows, t_.levels, t_.prefix);
    const auto rows = static_cast<std::size_t>(t_.rows), levels = static_cast<std::size_t>(t_.levels);
    for (const Table* table : {&t_.token, &t_.parent, &t_.depth, &t_.position})
      require(table->size() == rows, TreeRule::shape, 0, "a table of {} entries, expected {}", table->size(), rows);
    require(t_.valid.size() == rows, TreeRule::shape, 0, "{} valid bits, expected {}", t_.valid.size(), rows);
    for (const Table* table : {&t_.ancestor, &t_.path})
      require(table->size() == rows * levels, TreeRule::shape, 0, "a table of {} entries, expected {} x {}",
              table->size(), rows, levels);
  }

  // Tables of one or of several entries a row alike: `row` is right for the former and for paths.
  void check_range(std::string_view table, const Table& entries, std::int32_t end) const {
    const auto wrong = std::find_if(entries.begin(), entries.end(), [end](auto i) { return i < 0 || i >= end; });
    if (wrong == entries.end()) return;
    const int at = static_cast<int>(wrong - entries.begin());
    const int row = &entries == &t_.ancestor ? at % t_.rows : &entries == &t_.path ? at / t_.levels : at;
    require(false, TreeRule::range, row, "{} {}, expected 0 to {}", table, *wrong, end - 1);
  }

  void check_root() const {
    require(t_.valid[0] == 1 && t_.parent[0] == 0 && t_.depth[0] == 0, TreeRule::root, 0,
            "valid {}, parent {}, depth {}, expected 1, 0, 0", t_.valid[0], t_.parent[0], t_.depth[0]);
  }

  void check_validity() const {
    for (int row = 0; row < t_.rows; ++row) {
      const int expected = row < t_.nodes ? 1 : 0;
      require(valid(row) == expected, TreeRule::validity, row, "valid {}, expected {} with {} nodes", valid(row),
              expected, t_.nodes);
    }
  }

  void check_padding(int row) const {
    require(parent(row) == 0 && depth(row) == 0 && position(row) == 0, TreeRule::padding, row,
            "parent {}, depth {}, position {}, expected 0, 0, 0", parent(row), depth(row), position(row));
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

  void check_ancestors(int row) const {
    int expected = row;
    for (int level = 0; level < t_.levels; ++level, expected = parent(expected)) {
      const int entry = t_.ancestor[index(level, t_.rows, row)];
      require(entry == expected, TreeRule::ancestor, row, "A[{}, {}] = {}, expected {}", level, row, entry, expected);
    }
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
  int valid(int row) const { return t_.valid[static_cast<std::size_t>(row)]; }

  const TreeTensors& t_;
  const TreeLimits limits_;
};

// What row `row` of the mask must be, by walking up the parent table: the window counts the steps.
void expect_mask_row(const TreeTensors& tensors, const MaskOptions& options, int row,
                     std::vector<std::uint8_t>& hidden) {
  std::fill(hidden.begin(), hidden.end(), std::uint8_t{1});
  std::int32_t steps = 0;  // from the row to the column at hand
  const auto show = [&](int column) {
    if (options.window == 0 || steps < options.window) hidden[static_cast<std::size_t>(column)] = 0;
  };
  show(tensors.prefix + row);
  if (row >= tensors.nodes) return;
  for (int above = row; above != 0;) {
    above = tensors.parent[static_cast<std::size_t>(above)];
    ++steps;
    show(tensors.prefix + above);
  }
  for (int position = tensors.prefix - 1; position >= options.begin; --position) {
    ++steps;
    show(position);
  }
}

template <typename Value>
std::string cell(const std::vector<Value>& table, int row) {
  const auto at = static_cast<std::size_t>(row);
  return at < table.size() ? fmt::format("{}", static_cast<int>(table[at])) : "?";
}

}  // namespace

std::string_view name(TreeRule rule) {
  switch (rule) {
    case TreeRule::shape: return "shape";
    case TreeRule::range: return "range";
    case TreeRule::root: return "root";
    case TreeRule::validity: return "validity";
    case TreeRule::padding: return "padding";
    case TreeRule::order: return "order";
    case TreeRule::depth: return "depth";
    case TreeRule::siblings: return "siblings";
    case TreeRule::position: return "position";
    case TreeRule::ancestor: return "ancestor";
    case TreeRule::path: return "path";
    case TreeRule::mask: return "mask";
    case TreeRule::tree: return "tree";
    case TreeRule::slot: return "slot";
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

void check_mask(const TreeTensors& tensors, const MaskOptions& options, std::span<const std::uint8_t> hidden) {
  const std::int64_t smallest = mask_columns(tensors.prefix, tensors.rows);
  const std::int64_t columns = options.columns == 0 ? smallest : options.columns;
  if (columns < smallest || columns % kMaskColumnStep != 0 ||
      hidden.size() != static_cast<std::size_t>(columns) * static_cast<std::size_t>(tensors.rows))
    throw TreeViolation(TreeRule::shape, 0,
                        fmt::format("a mask of {} bytes, expected {} x a multiple of {} from {} on", hidden.size(),
                                    tensors.rows, kMaskColumnStep, smallest),
                        tensors);
  if (options.begin < 0 || options.begin > tensors.prefix)
    throw TreeViolation(TreeRule::range, 0, fmt::format("begin {}, expected 0 to {}", options.begin, tensors.prefix),
                        tensors);
  if (options.window < 0)
    throw TreeViolation(TreeRule::range, 0, fmt::format("window {}, expected at least 0", options.window), tensors);
  std::vector<std::uint8_t> expected(static_cast<std::size_t>(columns));
  for (int row = 0; row < tensors.rows; ++row) {
    expect_mask_row(tensors, options, row, expected);
    const auto got = hidden.subspan(static_cast<std::size_t>(row) * expected.size(), expected.size());
    const auto [wrong, right] = std::mismatch(got.begin(), got.end(), expected.begin());
    if (wrong != got.end())
      throw TreeViolation(TreeRule::mask, row,
                          fmt::format("column {} is {}, expected {}", wrong - got.begin(), *wrong, *right), tensors);
  }
}

std::string render(const TreeTensors& tensors) {
  std::string text =
      fmt::format("{} nodes in {} rows, {} levels, prefix {}\n{:>5} {:>6} {:>5} {:>8} {:>8} {:>5}\n", tensors.nodes,
                  tensors.rows, tensors.levels, tensors.prefix, "row", "parent", "depth", "token", "position", "valid");
  for (int row = 0; row < std::min(tensors.rows, kMaxRenderedRows); ++row)
    text +=
        fmt::format("{:>5} {:>6} {:>5} {:>8} {:>8} {:>5}\n", row, cell(tensors.parent, row), cell(tensors.depth, row),
                    cell(tensors.token, row), cell(tensors.position, row), cell(tensors.valid, row));
  return text;
}

}  // namespace espalier
