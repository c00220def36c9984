#include "engine/named_trees.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "format/testing/complaint.h"
#include "format/testing/temporary_folder.h"

namespace espalier {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

// Files of the current folder count too, so the tests stand in one of their own.
class NamedTrees : public ::testing::Test {
 protected:
  NamedTrees() {
    for (const char* root : {"first", "second"}) fs::create_directories(folder_ / root / "data/trees");
    fs::current_path(folder_.path());
  }
  ~NamedTrees() override { fs::current_path(before_); }

  fs::path add(const std::string& root, const std::string& name) const {
    return folder_.write(root + "/data/trees/" + name, "[[0]]");
  }
  std::string refusal(const std::string& text, const Places& places) const {
    return complaint([&] { find_tree(text, places); });
  }

  fs::path before_ = fs::current_path();
  TemporaryFolder folder_;
  const Places places_ = {.roots = {folder_ / "missing", folder_ / "first", folder_ / "second"}};
};

TEST_F(NamedTrees, AreTheListsBelowAllRootsTheFirstRootFirst) {
  EXPECT_THAT(named_trees(places_), IsEmpty());
  const fs::path oak = add("second", "oak.json"), elm = add("second", "elm.json"), first = add("first", "elm.json");
  add("first", "README.md");
  fs::create_directory(folder_ / "first/data/trees/hedge.json");
  EXPECT_THAT(named_trees(places_), ElementsAre(Pair("elm", first), Pair("oak", oak)));
  EXPECT_EQ(find_tree("oak", places_), oak);
  EXPECT_EQ(find_tree("elm", places_), first);
}

TEST_F(NamedTrees, APathBeatsAName) {
  const fs::path oak = add("first", "oak.json");
  fs::create_directory(folder_ / "oak");
  EXPECT_EQ(find_tree("oak", places_), oak) << "a folder is no list";
  fs::remove(folder_ / "oak");
  folder_.write("oak", "[[0]]");
  EXPECT_EQ(find_tree("oak", places_), "oak");
  EXPECT_EQ(find_tree("oak.json", places_), "oak.json") << "what reads it tells that it is not there";
  EXPECT_EQ(find_tree("./elm", places_), "./elm");
}

TEST_F(NamedTrees, AnUnknownNameIsRefusedWithTheNamesThereAre) {
  EXPECT_EQ(refusal("ash", {}),
            "--tree static:ash: no such file, and trees have no names here: give --tree static:FILE");
  EXPECT_EQ(refusal("ash", {.roots = {"a", "b/../c"}}),
            "--tree static:ash: no such file, and data/trees is in none of a, c");
  add("first", "oak.json");
  add("second", "elm.json");
  EXPECT_EQ(refusal("ash", places_), "--tree static:ash: no such file or name, expected one of elm, oak");
}

TEST_F(NamedTrees, TheTableHasALineForEachTreeThatCanBeRead) {
  struct Remarks : Listener {
    void remark(std::string_view line) override { lines.emplace_back(line); }
    std::vector<std::string> lines;
  } remarks;
  folder_.write("first/data/trees/oak.json", "[[0], [1], [0, 0]]");
  folder_.write("second/data/trees/broken.json", "[[");
  EXPECT_EQ(named_trees_text(places_, remarks),
            "name                      rows  leaves  nodes per depth\n"
            "oak                          4       2  2/1\n");
  ASSERT_EQ(remarks.lines.size(), 1u);
  EXPECT_THAT(remarks.lines[0], ::testing::HasSubstr("broken.json"));
}

}  // namespace
}  // namespace espalier
