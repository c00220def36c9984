#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "report/tree_picture.h"
#include "text/token_text.h"

namespace espalier {
namespace {

constexpr std::string_view kGreen = "\x1b[1;32m";
constexpr std::string_view kFaint = "\x1b[2m";
constexpr std::string_view kPlain = "\x1b[0m";

constexpr int kMark = 2;            // "* " before an accepted node
constexpr int kNarrowestTree = 24;  // columns the tree itself gets before other columns are left out
constexpr int kWidestChoice = 28;   // of the teacher's column

// What stands right of the tree, in the order in which it is shown.
struct Column {
  std::string title = {};
  int width = 0;
  int worth = 0;  // the least worthy goes first where the screen is narrow
  std::function<std::string(const TreePicture::Node&, bool root)> text = {};
};

int widest(const TreePicture& picture, std::string TreePicture::Node::*text, std::string_view title) {
  int width = display_width(title);
  for (const auto& node : picture.nodes) width = std::max(width, display_width(node.*text));
  return width;
}

std::vector<Column> all_columns(const TreePicture& picture) {
  using Node = TreePicture::Node;
  return {
      {"draft", 5, 3, [](const Node& node, bool root) { return root ? "" : fmt::format("{:.3f}", node.own); }},
      {"path", 5, 2, [](const Node& node, bool root) { return root ? "" : fmt::format("{:.3f}", node.path); }},
      {"drafter", widest(picture, &Node::sources, "drafter"), 0, [](const Node& node, bool) { return node.sources; }},
      {"teacher", std::min(kWidestChoice, widest(picture, &Node::choice, "teacher")), 1,
       [](const Node& node, bool) { return node.choice; }}};
}

int width_of(const std::vector<Column>& columns) {
  int width = 0;
  for (const Column& column : columns) width += 2 + column.width;
  return width;
}

std::vector<Column> columns_that_fit(const TreePicture& picture, int width) {
  std::vector<Column> columns = all_columns(picture);
  while (!columns.empty() && kMark + kNarrowestTree + width_of(columns) > width)
    columns.erase(std::ranges::min_element(columns, {}, &Column::worth));
  return columns;
}

// A line of the drawing: the branches that lead to a node, and the node.
struct Line {
  int node = 0;
  std::string branches = {};
};

// How far a level is moved to the right: less where a deep tree meets a narrow screen.
int indentation(const TreePicture& picture, int width) {
  const int depth = picture.nodes.back().depth;
  for (int step = 3; step > 1; --step)
    if (depth * step <= width / 2) return step;
  return 1;
}

std::string branch(std::string_view corner, int step) {
  constexpr std::array<std::string_view, 2> kArm = {"\u2500", " "};  // "─ "
  std::string drawn(corner);
  for (int i = 1; i < step; ++i) drawn += kArm[i == step - 1 ? 1 : 0];
  return drawn;
}

std::string stem(bool goes_on, int step) {
  return (goes_on ? "\u2502" : " ") + std::string(static_cast<std::size_t>(step - 1), ' ');  // "│  "
}

// Depth first, so that what belongs together stands together. `before`: the stems left of this node's children.
void draw_below(const TreePicture& picture, int node, const std::string& before, int step, std::vector<Line>& lines) {
  const TreePicture::Node& parent = picture.nodes[static_cast<std::size_t>(node)];
  for (int i = 0; i < parent.children; ++i) {
    const int child = parent.first_child + i;
    const bool last = i + 1 == parent.children;
    lines.push_back({child, before + branch(last ? "\u2514" : "\u251C", step)});  // "└", "├"
    draw_below(picture, child, before + stem(!last, step), step, lines);
  }
}

std::vector<Line> draw_lines(const TreePicture& picture, int width) {
  std::vector<Line> lines = {{0, ""}};
  draw_below(picture, 0, "", indentation(picture, width), lines);
  return lines;
}

class Screen {
 public:
  explicit Screen(const TerminalStyle& style) : style_(style) {}

  void add(std::string_view text, std::string_view colour = {}) {
    const bool coloured = style_.colour && !colour.empty() && !text.empty();
    line_ += coloured ? fmt::format("{}{}{}", colour, text, kPlain) : std::string(text);
  }
  void end_line() {
    const std::size_t end = line_.find_last_not_of(' ');
    text_ += line_.substr(0, end == std::string::npos ? 0 : end + 1) + "\n";
    line_.clear();
  }
  void line(std::string_view text, std::string_view colour = {}) {
    add(cut_to_width(text, style_.width), colour);
    end_line();
  }
  std::string take() { return std::move(text_); }

 private:
  TerminalStyle style_;
  std::string text_;
  std::string line_;
};

// A picture on a screen: the tree in its column, the figures in theirs.
class TreeScreen {
 public:
  TreeScreen(const TreePicture& picture, const TerminalStyle& style)
      : picture_(picture),
        width_(style.width),
        screen_(style),
        lines_(draw_lines(picture, style.width)),
        columns_(columns_that_fit(picture, style.width)),
        tree_width_(std::max(1, std::min(natural_width(), style.width - kMark - width_of(columns_)))) {}

  std::string show() {
    screen_.line(picture_.title);
    if (!picture_.before.empty()) screen_.line("behind " + cut_front_to_width(picture_.before, width_ - 7), kFaint);
    screen_.line("");
    show_titles();
    for (const Line& line : lines_) show_node(line);
    screen_.line("");
    screen_.line(fmt::format("* accepted; then the teacher wrote {}, {}", last_accepted().choice,
                             picture_.finished ? "and the answer ended" : "the root of the next round"),
                 kFaint);
    return screen_.take();
  }

 private:
  const TreePicture::Node& drawn(int node) const { return picture_.nodes[static_cast<std::size_t>(node)]; }
  const TreePicture::Node& last_accepted() const { return drawn(picture_.last_accepted()); }

  int natural_width() const {
    int width = display_width("token");
    for (const Line& line : lines_)
      width = std::max(width, display_width(line.branches) + display_width(drawn(line.node).token));
    return width;
  }

  void show_titles() {
    screen_.add("  " + fit_to_width("token", tree_width_), kFaint);
    for (const Column& column : columns_) screen_.add("  " + fit_to_width(column.title, column.width), kFaint);
    screen_.end_line();
  }

  void show_node(const Line& line) {
    const TreePicture::Node& node = drawn(line.node);
    const std::string_view colour = node.accepted ? kGreen : std::string_view();
    screen_.add(node.accepted ? "* " : "  ", colour);
    const int branches = std::min(tree_width_, display_width(line.branches));
    screen_.add(cut_to_width(line.branches, branches), kFaint);
    screen_.add(fit_to_width(node.token, tree_width_ - branches), colour);
    for (const Column& column : columns_)
      screen_.add("  " + fit_to_width(column.text(node, line.node == 0), column.width),
                  node.accepted ? std::string_view() : kFaint);
    screen_.end_line();
  }

  const TreePicture& picture_;
  int width_;
  Screen screen_;
  std::vector<Line> lines_;
  std::vector<Column> columns_;
  int tree_width_;
};

}  // namespace

std::string render_tree_text(const TreePicture& picture, const TerminalStyle& style) {
  return TreeScreen(picture, style).show();
}

}  // namespace espalier
