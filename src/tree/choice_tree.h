// A tree whose shape is fixed before the round: Medusa's choice lists.
//
// A choice is a path of ranks: [0, 2] is the third best guess of the second head below the best guess of the first. A
// list names every node below the root by its path. Row 0 is the root; the other rows are the paths sorted by (length,
// lexicographic), which is breadth-first order.
//
// Trees to cut from know which nodes matter most. A list grown best first, as Medusa's are, stands in that order. A
// list that is already sorted, or names a child before its parent, says nothing about it: then a guess of rank r counts
// as 1 / (r + 1) as good as the best one, each level as half as good as the one above, and ties go to the earlier row.
//
// Immutable; read it once, grow it every round (static_growth.h).
#pragma once

#include <cstddef>
#include <filesystem>
#include <string_view>
#include <vector>

namespace espalier {

inline constexpr int kMaxTreeRows = 4096;

class ChoiceTree {
 public:
  using Path = std::vector<int>;

  // What a list may use; anything else is refused. What drafters cannot fill of a list can be cut later.
  struct Limits {
    int ranks = kMaxTreeRows;  // every rank lies in [0, ranks)
    int depth = kMaxTreeRows;
  };

  // Throws InputError, one line that begins with `where`: an empty path, a rank out of range, a path that is too long,
  // given twice or without its parent. The order is free.
  ChoiceTree(std::vector<Path> choices, const Limits& limits, std::string_view where);
  // A JSON array of arrays of whole numbers.
  static ChoiceTree parse(std::string_view json, const Limits& limits, std::string_view where);
  static ChoiceTree read(const std::filesystem::path& file, const Limits& limits);

  // How many rows, the root included.
  int size() const { return static_cast<int>(rows_.size()); }
  int depth() const { return static_cast<int>(rows_.back().path.size()); }
  // The ranks from below the root to a row; empty for the root.
  const Path& path(int row) const { return rows_[static_cast<std::size_t>(row)].path; }
  int parent(int row) const { return rows_[static_cast<std::size_t>(row)].parent; }
  // The children of a row are first_child, first_child + 1, ..., by ascending rank.
  int first_child(int row) const { return rows_[static_cast<std::size_t>(row)].first_child; }
  int children(int row) const { return rows_[static_cast<std::size_t>(row)].children; }
  // One more than the highest rank in use: how many guesses of a head the tree has a place for.
  int ranks() const { return ranks_; }
  // The most rows of one level that have children: how many nodes a draft pass expands at once; 1 for the root alone.
  int widest_level() const;
  // Rows of each level below the root.
  std::vector<int> level_sizes() const;
  // Guesses without children.
  int leaves() const;

  // The same tree with only its `rows` most important rows, root included.
  ChoiceTree best(int rows) const;
  // The same tree without what lies deeper than `depth`: there are only so many heads.
  ChoiceTree cut(int depth) const;
  // The same tree without guesses of rank `ranks` and above, and what lies below them: a head gives only so many.
  ChoiceTree narrow(int ranks) const;

 private:
  struct Row {
    Path path = {};
    int parent = 0;
    int first_child = 0;
    int children = 0;
  };

  // `choices` are valid and stand in order of importance.
  explicit ChoiceTree(std::vector<Path> choices);

  std::vector<Path> important_;  // every path below the root, the most important first
  std::vector<Row> rows_;
  int ranks_ = 0;
};

}  // namespace espalier
