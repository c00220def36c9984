#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "report/tree_picture.h"
#include "text/token_text.h"

namespace espalier {
namespace {

// Sizes in pixels.
constexpr double kCharacter = 8.43;  // of a 14 pixel monospaced font
constexpr double kPadding = 12;      // left and right of a token in its box
constexpr double kBoxHeight = 42;
constexpr double kRowPitch = 56;
constexpr double kLevelGap = 52;
constexpr double kMargin = 28;
constexpr double kTop = 100;
constexpr double kWallPadding = 24;
constexpr double kLegend = 92;
constexpr double kNarrowestPicture = 780;
constexpr int kWidestBoxToken = 26;  // characters of a box
constexpr int kWidestBefore = 64;    // of the text before the root

constexpr std::string_view kSourceColours[] = {"#4a6fa5", "#9a5b9a", "#b0793a", "#4f8a8b", "#8a5a44", "#6b7f3a"};

constexpr std::string_view kStyle = R"(  <style type="text/css">
    rect.page { fill: #ffffff; }
    rect.wall { fill: #f7f3ee; }
    path.joints { stroke: #ece4da; fill: none; }
    rect.guess { fill: #ffffff; stroke: #b5aca1; stroke-dasharray: 4 3; }
    rect.taken { fill: #d9efd9; stroke: #2f8043; stroke-width: 2; }
    rect.bonus { fill: #ffe9c7; stroke: #c17d11; stroke-width: 2; }
    path.branch { stroke: #a89d90; fill: none; }
    path.path { stroke: #2f8043; stroke-width: 4; fill: none; }
    path.next { stroke: #c17d11; stroke-width: 3; stroke-dasharray: 2 5; stroke-linecap: round; fill: none; }
    circle.source { stroke: #ffffff; stroke-width: 1.5; }
    text { font-family: "DejaVu Sans", Verdana, Arial, sans-serif; fill: #5c5c5c; font-size: 13px; }
    text.title { font-size: 19px; fill: #2b2b2b; }
    text.token, text.before { font-family: "DejaVu Sans Mono", Menlo, Consolas, monospace; font-size: 14px; }
    text.token { fill: #2b2b2b; text-anchor: middle; }
    text.faint { fill: #7a736a; }
    text.figures { font-size: 10.5px; text-anchor: middle; fill: #7a736a; }
  </style>
)";

std::string escape_xml(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&': escaped += "&amp;"; break;
      case '<': escaped += "&lt;"; break;
      case '>': escaped += "&gt;"; break;
      case '"': escaped += "&quot;"; break;
      default: escaped += c;
    }
  }
  return escaped;
}

struct Place {
  double x = 0, y = 0;  // left edge, middle
  double width = 0;
};

std::string box_text(std::string_view token) {
  return cut_to_width(token, kWidestBoxToken);
}

double box_width(std::string_view token) {
  return std::max(78.0, display_width(box_text(token)) * kCharacter + 2 * kPadding);
}

// Where everything stands: a column for each level, a row for each leaf, parents in the middle of their children. The
// teacher's own token behind the accepted path is one more leaf, the last child of the last accepted node.
class Layout {
 public:
  explicit Layout(const TreePicture& picture) : picture_(picture), last_(picture.last_accepted()) {
    places_.resize(picture.nodes.size());
    place_columns();
    place_below(0);
  }

  const Place& node(int index) const { return places_[static_cast<std::size_t>(index)]; }
  const Place& bonus() const { return bonus_; }
  double right() const { return right_; }
  double bottom() const { return next_row_ - kRowPitch + kBoxHeight / 2; }

 private:
  const TreePicture::Node& drawn(int index) const { return picture_.nodes[static_cast<std::size_t>(index)]; }

  void place_columns() {
    std::map<int, double> widest;  // by depth
    for (const auto& node : picture_.nodes) widest[node.depth] = std::max(widest[node.depth], box_width(node.token));
    const int bonus_depth = drawn(last_).depth + 1;
    bonus_.width = box_width(drawn(last_).choice);
    widest[bonus_depth] = std::max(widest[bonus_depth], bonus_.width);
    std::map<int, double> left;
    double x = kMargin + kWallPadding;
    for (const auto& [depth, width] : widest) {
      left[depth] = x;
      x += width + kLevelGap;
    }
    right_ = x - kLevelGap;
    for (std::size_t i = 0; i < places_.size(); ++i) {
      const int depth = picture_.nodes[i].depth;
      places_[i] = {left[depth], 0, widest[depth]};
    }
    bonus_.x = left[bonus_depth];
    bonus_.width = widest[bonus_depth];
  }

  double place_below(int index) {
    const auto& node = drawn(index);
    std::vector<double> rows;
    for (int i = 0; i < node.children; ++i) rows.push_back(place_below(node.first_child + i));
    if (index == last_) rows.push_back(bonus_.y = take_row());
    double& y = places_[static_cast<std::size_t>(index)].y;
    return y = rows.empty() ? take_row() : (rows.front() + rows.back()) / 2;
  }

  double take_row() {
    const double row = next_row_;
    next_row_ += kRowPitch;
    return row;
  }

  const TreePicture& picture_;
  int last_;
  std::vector<Place> places_;
  Place bonus_;
  double right_ = 0;
  double next_row_ = kTop + kWallPadding + kBoxHeight / 2;
};

// A branch from the right edge of one box to the left edge of another.
std::string curve(const Place& from, const Place& to) {
  const double begin = from.x + from.width, middle = (begin + to.x) / 2;
  return fmt::format("M{:.1f} {:.1f}C{:.1f} {:.1f} {:.1f} {:.1f} {:.1f} {:.1f}", begin, from.y, middle, from.y, middle,
                     to.y, to.x, to.y);
}

std::string box(const Place& at, std::string_view kind, std::string_view token, std::string_view figures) {
  const double middle = at.x + at.width / 2;
  return fmt::format(
      "  <rect class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.0f}\" rx=\"7\"/>"
      "<text class=\"token\" xml:space=\"preserve\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>"
      "<text class=\"figures\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n",
      kind, at.x, at.y - kBoxHeight / 2, at.width, kBoxHeight, middle, at.y - 1, escape_xml(box_text(token)), middle,
      at.y + 14, escape_xml(figures));
}

// The drafters of the round, each with a colour of its own.
using SourceColours = std::map<std::string, std::string_view, std::less<>>;

std::vector<std::string> split_sources(std::string_view sources) {
  std::vector<std::string> names;
  while (!sources.empty()) {
    const std::size_t end = std::min(sources.find('+'), sources.size());
    names.emplace_back(sources.substr(0, end));
    sources.remove_prefix(std::min(end + 1, sources.size()));
  }
  return names;
}

SourceColours source_colours(const TreePicture& picture) {
  SourceColours colours;
  for (const auto& node : picture.nodes)
    for (const std::string& name : split_sources(node.sources))
      colours.emplace(name, kSourceColours[colours.size() % std::size(kSourceColours)]);
  return colours;
}

std::string source_dots(const Place& at, const TreePicture::Node& node, const SourceColours& colours) {
  std::string dots;
  double x = at.x + at.width - 14;
  for (const std::string& name : split_sources(node.sources)) {
    dots += fmt::format("  <circle class=\"source\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"5\" fill=\"{}\"/>\n", x,
                        at.y - kBoxHeight / 2, colours.find(name)->second);
    x -= 12;
  }
  return dots;
}

std::string branches(const TreePicture& picture, const Layout& layout) {
  std::string guesses, taken;
  for (std::size_t i = 1; i < picture.nodes.size(); ++i) {
    const auto& node = picture.nodes[i];
    const std::string path = curve(layout.node(node.parent), layout.node(static_cast<int>(i)));
    if (node.accepted) {
      taken += fmt::format("  <path class=\"path\" d=\"{}\"/>\n", path);
    } else {
      // The surer the drafter was of the whole path, the stronger the branch.
      guesses += fmt::format("  <path class=\"branch\" stroke-width=\"{:.1f}\" stroke-opacity=\"{:.2f}\" d=\"{}\"/>\n",
                             1.2 + 2.8 * node.path, 0.55 + 0.45 * node.path, path);
    }
  }
  return guesses +
         fmt::format("  <path class=\"next\" d=\"{}\"/>\n",
                     curve(layout.node(picture.last_accepted()), layout.bonus())) +
         taken;
}

std::string boxes(const TreePicture& picture, const Layout& layout, const SourceColours& colours) {
  std::string all;
  for (std::size_t i = 0; i < picture.nodes.size(); ++i) {
    const auto& node = picture.nodes[i];
    const Place& at = layout.node(static_cast<int>(i));
    const std::string figures = i == 0 ? "root" : fmt::format("{:.3f} \u00b7 {:.3f}", node.own, node.path);
    all += box(at, node.accepted ? "taken" : "guess", node.token, figures) + source_dots(at, node, colours);
  }
  const auto& last = picture.nodes[static_cast<std::size_t>(picture.last_accepted())];
  return all + box(layout.bonus(), "bonus", last.choice, picture.finished ? "the end" : "next root");
}

std::string legend(const SourceColours& colours, double top) {
  struct Entry {
    std::string_view kind, text;
  };
  constexpr Entry kEntries[] = {{"taken", "accepted: the teacher chose it too"},
                                {"guess", "drafted, not accepted"},
                                {"bonus", "the teacher's own next token"}};
  std::string drawn;
  double x = kMargin;
  for (const Entry& entry : kEntries) {
    drawn += fmt::format(
        "  <rect class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"26\" height=\"16\" rx=\"4\"/>"
        "<text x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n",
        entry.kind, x, top, x + 34, top + 13, escape_xml(entry.text));
    x += 34 + 7.6 * static_cast<double>(entry.text.size()) + 26;
  }
  const double y = top + 40;
  drawn += fmt::format(
      "  <text x=\"{:.1f}\" y=\"{:.1f}\">a \u00b7 b: probability behind its parent \u00b7 of the whole path, "
      "says</text>\n",
      kMargin, y);
  x = kMargin + 424;
  for (const auto& [name, colour] : colours) {
    drawn += fmt::format(
        "  <circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4.5\" fill=\"{}\"/><text x=\"{:.1f}\" y=\"{:.1f}\">"
        "{}</text>\n",
        x, y - 4.5, colour, x + 11, y, escape_xml(name));
    x += 11 + 8.2 * static_cast<double>(name.size()) + 22;
  }
  return drawn;
}

}  // namespace

std::string render_tree_svg(const TreePicture& picture) {
  const Layout layout(picture);
  const SourceColours colours = source_colours(picture);
  const double wall_right = std::max(layout.right() + kWallPadding, kNarrowestPicture - kMargin);
  const double wall_bottom = layout.bottom() + kWallPadding;
  const double width = wall_right + kMargin, height = wall_bottom + kLegend;
  std::string svg = fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
      "<svg xmlns=\"http://www.w3.org/2000/svg\" version=\"1.1\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
      "viewBox=\"0 0 {0:.0f} {1:.0f}\">\n  <title>{2}</title>\n",
      width, height, escape_xml(picture.title));
  svg += kStyle;
  svg += fmt::format(
      "  <defs><pattern id=\"bricks\" x=\"{}\" y=\"{}\" width=\"56\" height=\"60\" patternUnits=\"userSpaceOnUse\">"
      "<path class=\"joints\" d=\"M0 0H56 M0 30H56 M0 0V30 M28 30V60\"/></pattern></defs>\n"
      "  <rect class=\"page\" width=\"{:.0f}\" height=\"{:.0f}\" rx=\"10\"/>\n",
      kMargin, kTop, width, height);
  for (const std::string_view fill : {"class=\"wall\"", "fill=\"url(#bricks)\""})
    svg += fmt::format("  <rect {} x=\"{}\" y=\"{}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"5\"/>\n", fill, kMargin,
                       kTop, wall_right - kMargin, wall_bottom - kTop);
  svg += fmt::format("  <text class=\"title\" x=\"{}\" y=\"46\">{}</text>\n", kMargin, escape_xml(picture.title));
  svg += fmt::format("  <text class=\"before faint\" xml:space=\"preserve\" x=\"{}\" y=\"76\">{}</text>\n", kMargin,
                     escape_xml(cut_front_to_width(picture.before, kWidestBefore)));
  svg += branches(picture, layout) + boxes(picture, layout, colours) + legend(colours, wall_bottom + 24);
  return svg + "</svg>\n";
}

}  // namespace espalier
