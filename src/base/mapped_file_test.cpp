#include "base/mapped_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"

namespace espalier {
namespace {

class MappedFileTest : public testing::Test {
 protected:
  std::filesystem::path write(const std::string& text) {
    const auto path =
        std::filesystem::path(testing::TempDir()) / testing::UnitTest::GetInstance()->current_test_info()->name();
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
};

TEST_F(MappedFileTest, ShowsTheBytesOfTheFile) {
  const MappedFile file(write("hello"));
  EXPECT_EQ(file.bytes().size(), 5u);
  EXPECT_EQ(static_cast<char>(file.bytes()[4]), 'o');
}

TEST_F(MappedFileTest, AnEmptyFileIsAnEmptySpan) {
  EXPECT_TRUE(MappedFile(write("")).bytes().empty());
}

TEST_F(MappedFileTest, AMissingFileIsOneClearLine) {
  try {
    MappedFile("no/such/file");
    FAIL();
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(), "no/such/file: cannot open: No such file or directory");
  }
}

TEST_F(MappedFileTest, AFolderIsRefused) {
  EXPECT_THROW(MappedFile("."), InputError);
}

TEST_F(MappedFileTest, TextLargerThanTheLimitIsRefused) {
  const auto path = write("hello");
  EXPECT_EQ(read_text_file(path), "hello");
  EXPECT_THROW(read_text_file(path, 4), InputError);
}

}  // namespace
}  // namespace espalier
