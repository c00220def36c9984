// One round of the loop as a picture: in a terminal, or as an SVG image. Pure functions of what is drawn.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "decode/round.h"

namespace espalier {

struct TreePicture {
  // In breadth-first order, the root first.
  struct Node {
    int parent = 0;
    int depth = 0;
    int first_child = 0;  // children are first_child, first_child + 1, ...
    int children = 0;
    std::string token = {};    // quoted
    double own = 1;            // what the drafter gives this token behind its parent
    double path = 1;           // what it gives the whole path below the root
    std::string sources = {};  // "eagle3+ngram"; nothing at the root, which is certain
    bool accepted = false;
    std::string choice = {};  // the teacher's token behind an accepted node, quoted
  };

  std::string title = {};
  std::string before = {};  // the end of the text before the root, on one line
  std::vector<Node> nodes = {};
  bool finished = false;  // the answer ended in this round

  // The last accepted node, and the teacher's token behind it, which no child carried: the root of the next round.
  int last_accepted() const;
  int accepted() const;  // drafted tokens
};

// text_of: the bytes of a token. drafters: their names, by source bit.
TreePicture picture_of(const Round& round, const std::function<std::string(std::int32_t)>& text_of,
                       std::span<const std::string> drafters);

struct TerminalStyle {
  int width = 80;
  bool colour = false;
};
// Lines of at most `width` columns. The accepted path is marked with *, and with colour where there is some.
std::string render_tree_text(const TreePicture& picture, const TerminalStyle& style);

// A self-contained SVG 1.1 document.
std::string render_tree_svg(const TreePicture& picture);

}  // namespace espalier
