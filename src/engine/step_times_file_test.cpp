#include "engine/step_times_file.h"

#include <gtest/gtest.h>

#include <fstream>

#include "format/testing/temporary_folder.h"

namespace espalier {
namespace {

const StepTimes kTimes{.rows = {1, 2, 8}, .contexts = {64, 768}, .seconds = {1, 1.1, 2, 1.5, 1.7, 3}};

StepTimesKey key() {
  return {.way = {{"model", "abc"}, {"threads", "2"}}, .machine = {{"cpu", "fast"}, {"build", "1"}}};
}

void write(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

TEST(StepTimesFile, GivesBackWhatWasSaved) {
  const TemporaryFolder folder;
  const StepTimesFile file(folder.path() / "deep" / "er", key());
  EXPECT_FALSE(file.load().has_value());
  EXPECT_TRUE(file.save(kTimes));
  EXPECT_EQ(file.load(), kTimes);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(file.path().parent_path()), {}), 1)
      << "nothing is left of the writing";
}

TEST(StepTimesFile, IsReplacedWhenTheMachineOrTheBuildIsAnother) {
  const TemporaryFolder folder;
  ASSERT_TRUE(StepTimesFile(folder.path(), key()).save(kTimes));
  for (const char* field : {"cpu", "build"}) {
    StepTimesKey other = key();
    other.machine[field] = "other";
    const StepTimesFile file(folder.path(), other);
    EXPECT_EQ(file.path(), StepTimesFile(folder.path(), key()).path());
    EXPECT_FALSE(file.load().has_value()) << field;
  }
}

TEST(StepTimesFile, IsAnotherOneForAnotherModelOrNumberOfThreads) {
  const TemporaryFolder folder;
  StepTimesKey other = key();
  other.way["threads"] = "4";
  ASSERT_TRUE(StepTimesFile(folder.path(), key()).save(kTimes));
  EXPECT_FALSE(StepTimesFile(folder.path(), other).load().has_value());
  ASSERT_TRUE(StepTimesFile(folder.path(), other).save(kTimes));
  EXPECT_TRUE(StepTimesFile(folder.path(), key()).load().has_value()) << "both live side by side";
}

TEST(StepTimesFile, ThatIsDamagedIsAsGoodAsNone) {
  const TemporaryFolder folder;
  const StepTimesFile file(folder.path(), key());
  ASSERT_TRUE(file.save(kTimes));
  std::string text;
  {
    std::ifstream in(file.path());
    text.assign(std::istreambuf_iterator<char>(in), {});
  }
  for (std::size_t cut = 0; cut + 2 < text.size(); cut += 7) {
    write(file.path(), text.substr(0, cut));
    EXPECT_FALSE(file.load().has_value()) << "cut at " << cut;
  }
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string damaged = text;
    damaged.replace(damaged.find(from), from.size(), to);
    return damaged;
  };
  for (const std::string& damaged :
       {replaced("1.1", "-1.1"), replaced("1.1", "\"x\""), replaced("1.1", "1.1, 4"), replaced("768", "3"),
        replaced("\"rows\"", "\"cows\""), std::string(3 << 20, '['), std::string("\xff\xfe\0x", 4)}) {
    write(file.path(), damaged);
    EXPECT_FALSE(file.load().has_value()) << damaged.substr(0, 300);
  }
  EXPECT_TRUE(file.save(kTimes)) << "and is replaced";
  EXPECT_EQ(file.load(), kTimes);
}

TEST(StepTimesFile, ThatCannotBeWrittenIsNoError) {
  const TemporaryFolder folder;
  write(folder.path() / "file", "");
  EXPECT_FALSE(StepTimesFile(folder.path() / "file" / "below", key()).save(kTimes));
}

}  // namespace
}  // namespace espalier
