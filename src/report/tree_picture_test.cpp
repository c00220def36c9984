#include "report/tree_picture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <sstream>

#include "base/random.h"
#include "text/token_text.h"
#include "tree/testing/random_tree.h"

namespace espalier {
namespace {

using testing::HasSubstr;
using testing::Not;

const std::vector<std::string> kDrafters = {"eagle3", "ngram"};
const std::vector<std::string> kWords = {"root", " <cat>", " sat\n", " on", "\xe2\x80", " mat"};

std::string word(std::int32_t token) {
  return kWords[static_cast<std::size_t>(token) % kWords.size()];
}

// root - " <cat>" (both drafters) - " sat\n"; root - " on" - "\xe2\x80", which is impossible.
TokenTree example() {
  TokenTree tree(0);
  tree.append(0, {1, std::log(0.5), 3});
  tree.append(0, {3, std::log(0.25), 2});
  tree.append(1, {2, std::log(0.125), 1});
  tree.append(2, {4, -std::numeric_limits<double>::infinity(), 2});
  return tree;
}

TreePicture example_picture() {
  const TokenTree tree = example();
  const std::vector<Visit> visits = {{0, 1}, {1, 2}, {3, 5}};
  TreePicture picture = picture_of(
      {.number = 7, .prefix = 4, .tree = tree, .visits = visits, .finish = {}, .times = {}}, word, kDrafters);
  picture.before = "\"once upon\"";
  return picture;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(TreePicture, KnowsProbabilitiesSourcesAndTheTeachersChoices) {
  const TreePicture picture = example_picture();
  EXPECT_EQ(picture.title, "round 7: 5 rows, 2 of 4 drafted tokens accepted");
  EXPECT_DOUBLE_EQ(picture.nodes[3].own, 0.25);
  EXPECT_DOUBLE_EQ(picture.nodes[3].path, 0.125);
  EXPECT_EQ(picture.nodes[1].sources, "eagle3+ngram");
  EXPECT_EQ(picture.nodes[4].own, 0);
  EXPECT_EQ(picture.nodes[1].choice, "\" sat\\n\"");
  EXPECT_EQ(picture.nodes[2].choice, "");
  EXPECT_EQ(picture.last_accepted(), 3);
  EXPECT_EQ(picture.accepted(), 2);
}

TEST(TreePicture, OnATerminalEveryNodeHasALineAndTheAcceptedOnesAMark) {
  EXPECT_EQ(render_tree_text(example_picture(), {.width = 80}),
            R"(round 7: 5 rows, 2 of 4 drafted tokens accepted
behind "once upon"

  token             draft  path   drafter       teacher
* "root"                                        " <cat>"
* ├─ " <cat>"       0.500  0.500  eagle3+ngram  " sat\n"
* │  └─ " sat\n"    0.250  0.125  eagle3        " mat"
  └─ " on"          0.250  0.250  ngram
     └─ "\xe2\x80"  0.000  0.000  ngram

* accepted; then the teacher wrote " mat", the root of the next round
)");
}

TEST(TreePicture, ColourIsAddedOnlyWhenAskedFor) {
  EXPECT_THAT(render_tree_text(example_picture(), {.width = 80}), Not(HasSubstr("\x1b")));
  EXPECT_THAT(render_tree_text(example_picture(), {.width = 80, .colour = true}), HasSubstr("\x1b[1;32m\" <cat>\""));
}

TEST(TreePicture, ALineNeverExceedsTheScreen) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const TokenTree tree = random_tree(seed, 1 + static_cast<int>(mix64(seed) % 256));
    const std::vector<Visit> visits = {{0, 5}};
    const TreePicture picture = picture_of(
        {.number = 0, .prefix = 0, .tree = tree, .visits = visits, .finish = {}, .times = {}}, word, kDrafters);
    for (const int width : {20, 33, 80, 200}) {
      const auto lines = lines_of(render_tree_text(picture, {.width = width}));
      EXPECT_GE(static_cast<int>(lines.size()), tree.size());
      for (const std::string& line : lines) EXPECT_LE(display_width(line), width) << "seed " << seed << ": " << line;
    }
  }
}

TEST(TreePicture, TheImageHasABoxForEveryNodeAndEscapesItsText) {
  const std::string svg = render_tree_svg(example_picture());
  EXPECT_THAT(svg, testing::StartsWith("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns"));
  EXPECT_THAT(svg, testing::EndsWith("</svg>\n"));
  EXPECT_THAT(svg, HasSubstr("&quot; &lt;cat&gt;&quot;"));
  EXPECT_THAT(svg, HasSubstr("\\xe2\\x80"));
  EXPECT_THAT(svg, Not(HasSubstr("<cat>")));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  std::size_t boxes = 0;
  for (std::size_t at = svg.find("class=\"token\""); at != std::string::npos; at = svg.find("class=\"token\"", at + 1))
    ++boxes;
  EXPECT_EQ(boxes, 6u);  // five nodes and the teacher's own token
}

TEST(TreePicture, ARoundWithoutAGuessIsARootAndWhatTheTeacherMadeOfIt) {
  const TokenTree tree(0);
  const std::vector<Visit> visits = {{0, 5}};
  const TreePicture picture = picture_of(
      {.number = 0, .prefix = 3, .tree = tree, .visits = visits, .finish = FinishReason::stop_token, .times = {}}, word,
      kDrafters);
  EXPECT_EQ(picture.title, "round 0: 1 row, 0 of 0 drafted tokens accepted");
  EXPECT_THAT(render_tree_text(picture, {}), HasSubstr("the teacher wrote \" mat\", and the answer ended"));
  EXPECT_THAT(render_tree_svg(picture), HasSubstr("the end"));
}

}  // namespace
}  // namespace espalier
