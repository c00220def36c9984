#include "base/output_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "base/error.h"
#include "base/mapped_file.h"
#include "base/text_stream.h"

namespace espalier {
namespace {

namespace fs = std::filesystem;

class OutputFileTest : public testing::Test {
 protected:
  OutputFileTest() {
    std::string name = testing::TempDir() + "/espalier-XXXXXX";
    folder_ = ::mkdtemp(name.data());
  }
  ~OutputFileTest() override { fs::remove_all(folder_); }

  fs::path existing(const std::string& name) const {
    std::ofstream(folder_ / name) << "old";
    return folder_ / name;
  }
  std::string content(const std::string& name) const { return read_text_file(folder_ / name); }
  long count() const { return std::distance(fs::directory_iterator(folder_), {}); }

  static void refused(const fs::path& path, Existing existing, const std::string& words) {
    for (const bool early : {true, false}) {
      try {
        if (early)
          check_output(path, existing);
        else
          OutputFile(path, existing);
        ADD_FAILURE() << path << " was taken";
      } catch (const InputError& error) {
        EXPECT_THAT(error.what(), testing::HasSubstr(words));
      }
    }
  }

  fs::path folder_;
};

TEST_F(OutputFileTest, AFileThatExistsNeedsAWordToBeReplaced) {
  const fs::path path = existing("a");
  refused(path, Existing::refuse, "a: the file exists, expected a new name or --force");
  EXPECT_EQ(content("a"), "old");
  write_output(path, Existing::replace, "new");
  EXPECT_EQ(content("a"), "new");
  EXPECT_EQ(count(), 1);
}

TEST_F(OutputFileTest, OneThatAppearedMeanwhileIsNotReplacedEither) {
  OutputFile file(folder_ / "a", Existing::refuse);
  file.write("new");
  existing("a");
  EXPECT_THROW(file.finish(), InputError);
  EXPECT_EQ(content("a"), "old");
}

TEST_F(OutputFileTest, NothingIsThereBeforeItIsFinished) {
  {
    OutputFile file(folder_ / "a", Existing::refuse);
    file.write("half");
    EXPECT_FALSE(fs::exists(folder_ / "a"));
  }
  EXPECT_EQ(count(), 0);
}

TEST_F(OutputFileTest, AReadOnlyFileIsNotReplacedAndTheModeOfAnotherIsKept) {
  const fs::path path = existing("a");
  ::chmod(path.c_str(), 0444);
  refused(path, Existing::replace, "a: is read-only");
  ::chmod(path.c_str(), 0600);
  write_output(path, Existing::replace, "new");
  EXPECT_EQ(fs::status(path).permissions(), fs::perms(0600));
}

TEST_F(OutputFileTest, ALinkIsFollowedAndItsTargetJudged) {
  existing("target");
  fs::create_symlink("target", folder_ / "link");
  refused(folder_ / "link", Existing::refuse, "the file exists");
  write_output(folder_ / "link", Existing::replace, "new");
  EXPECT_TRUE(fs::is_symlink(folder_ / "link"));
  EXPECT_EQ(content("target"), "new");
}

TEST_F(OutputFileTest, ALinkToNothingMakesWhatItNames) {
  fs::create_directory(folder_ / "sub");
  fs::create_symlink("sub/new", folder_ / "link");
  write_output(folder_ / "link", Existing::refuse, "text");
  EXPECT_TRUE(fs::is_symlink(folder_ / "link"));
  EXPECT_EQ(content("sub/new"), "text");
  fs::create_symlink("loop", folder_ / "loop");
  refused(folder_ / "loop", Existing::replace, "Too many levels of symbolic links");
}

TEST_F(OutputFileTest, ADeviceStaysADevice) {
  write_output("/dev/null", Existing::refuse, "text");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  fs::create_symlink("/dev/null", folder_ / "link");
  write_output(folder_ / "link", Existing::refuse, "text");
  EXPECT_TRUE(fs::is_symlink(folder_ / "link"));
  EXPECT_THROW(write_output("/dev/full", Existing::refuse, "text"), DeviceError);
}

TEST_F(OutputFileTest, AFifoIsWrittenTo) {
  const fs::path path = folder_ / "fifo";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  std::string heard;
  std::jthread reader([&] { heard = read_text_stream(path); });
  write_output(path, Existing::refuse, "text");
  reader.join();
  EXPECT_EQ(heard, "text");
  EXPECT_TRUE(fs::is_fifo(path));
}

TEST_F(OutputFileTest, WhatCannotBeAFileIsRefusedBeforeTheWorkBegins) {
  refused(folder_, Existing::replace, "expected a file or a name for a new one");
  refused(folder_ / "no" / "a", Existing::refuse, "no such directory as");
  existing("a");
  refused(folder_ / "a" / "b", Existing::refuse, "is no directory");
}

}  // namespace
}  // namespace espalier
