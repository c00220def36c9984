#include "engine/cache_file.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "format/testing/temporary_folder.h"

namespace espalier {
namespace {

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
