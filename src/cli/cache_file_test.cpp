#include "cli/cache_file.h"

#include <gtest/gtest.h>

#include <map>

#include "format/testing/temporary_folder.h"

namespace espalier {
namespace {

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

TEST(CacheFile, IsReadAsItWasWrittenAndAnythingElseIsNone) {
  const TemporaryFolder folder;
  const nlohmann::ordered_json object = {{"b", 1}, {"a", {1.5, "x"}}};
  EXPECT_FALSE(read_cache_file(folder / "file").has_value());
  EXPECT_TRUE(write_cache_file(folder.path() / "deep" / "file", object));
  EXPECT_EQ(read_cache_file(folder.path() / "deep" / "file"), object);
  folder.write("file", "{");
  EXPECT_FALSE(read_cache_file(folder / "file").has_value());
  EXPECT_FALSE(read_cache_file(folder.path()).has_value()) << "a folder";
  EXPECT_FALSE(write_cache_file(folder.path() / "file" / "below", object));
}

}  // namespace
}  // namespace espalier
