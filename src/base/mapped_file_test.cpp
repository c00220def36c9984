#include "base/mapped_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <vector>

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

TEST_F(MappedFileTest, AFifoIsRefusedBeforeItBlocks) {
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / fmt::format("fifo-{}", ::getpid());
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_THROW(MappedFile{path}, InputError);
  EXPECT_THROW(read_text_file(path), InputError);
  std::filesystem::remove(path);
}

TEST_F(MappedFileTest, AnEmptyFileIsAnEmptySpan) {
  EXPECT_TRUE(MappedFile(write("")).bytes().empty());
}

// Resident memory of this process that is backed by files, in kB.
long resident_file_kilobytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (word == "RssFile:") {
      long kilobytes = 0;
      status >> kilobytes;
      return kilobytes;
    }
  return 0;
}

TEST_F(MappedFileTest, ReleasedPagesLeaveMemoryAndStayReadable) {
  constexpr std::size_t kBytes = std::size_t{8} << 20;
  const MappedFile file(write(std::string(kBytes, 'x')));
  const auto sum = [&] {
    std::size_t count = 0;
    for (const std::byte b : file.bytes()) count += b == std::byte{'x'};
    return count;
  };
  EXPECT_EQ(sum(), kBytes);
  const long before = resident_file_kilobytes();
  file.release(file.bytes().subspan(1));
  EXPECT_LT(resident_file_kilobytes(), before - 7 * 1024);
  EXPECT_EQ(sum(), kBytes);
}

TEST_F(MappedFileTest, PagesOfOtherMemoryAreLeftAlone) {
  const MappedFile file(write("hello"));
  const std::vector<std::byte> own(std::size_t{1} << 20, std::byte{7});
  file.release(own);
  EXPECT_EQ(own[own.size() / 2], std::byte{7});
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
