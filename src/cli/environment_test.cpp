#include "cli/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "format/testing/temporary_folder.h"

namespace espalier {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(UserCacheFolder, IsWhereTheUserWantsIt) {
  const auto folder = [](const std::map<std::string, std::string>& variables) {
    return user_cache_folder([&](const char* name) {
      const auto found = variables.find(name);
      return found == variables.end() ? std::nullopt : std::optional(found->second);
    });
  };
  EXPECT_EQ(folder({{"XDG_CACHE_HOME", "/x"}, {"HOME", "/h"}}), "/x/espalier");
  EXPECT_EQ(folder({{"XDG_CACHE_HOME", ""}, {"HOME", "/h"}}), "/h/.cache/espalier");
  EXPECT_EQ(folder({{"XDG_CACHE_HOME", "relative"}, {"HOME", "/h"}}), "/h/.cache/espalier");
  EXPECT_EQ(folder({{"HOME", ""}}), std::nullopt);
}

// heads/ of the current folder counts too, so the tests stand in one without.
class HeadFolders : public ::testing::Test {
 protected:
  HeadFolders() { fs::current_path(empty_.path()); }
  ~HeadFolders() override { fs::current_path(before_); }

 private:
  fs::path before_ = fs::current_path();
  TemporaryFolder empty_;
};

TEST_F(HeadFolders, AreTheUsersThenThoseBesideTheProgramEachOnce) {
  const TemporaryFolder folder;
  for (const char* name : {"own", "prefix/bin", "prefix/share/espalier/heads", "prefix/heads", "heads"})
    fs::create_directories(folder / name);
  const auto found = [&](const fs::path& own, const fs::path& program) {
    return head_folders([&](const char*) { return own.empty() ? std::nullopt : std::optional(own.string()); }, program);
  };
  const fs::path program = folder / "prefix/bin/espalier";
  EXPECT_THAT(found(folder / "own", program), ElementsAre(folder / "own", folder / "prefix/heads", folder / "heads",
                                                          folder / "prefix/share/espalier/heads"));
  EXPECT_THAT(found(folder / "heads", program),
              ElementsAre(folder / "heads", folder / "prefix/heads", folder / "prefix/share/espalier/heads"));
  EXPECT_THAT(found(folder / "missing", folder / "a/b/c"), IsEmpty());
  EXPECT_THAT(found("", folder / "own/espalier"), ElementsAre(folder / "heads"));
}

}  // namespace
}  // namespace espalier
