#include "base/temporary_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <memory>
#include <set>

#include "base/error.h"
#include "base/whole_file.h"

namespace espalier {
namespace {

namespace fs = std::filesystem;

class TemporaryFileTest : public testing::Test {
 protected:
  TemporaryFileTest() {
    std::string name = testing::TempDir() + "/espalier-XXXXXX";
    folder_ = ::mkdtemp(name.data());
  }
  ~TemporaryFileTest() override { fs::remove_all(folder_); }

  std::set<std::string> names() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_)) names.insert(entry.path().filename());
    return names;
  }

  // What a process leaves that is killed while it writes.
  template <typename Make>
  void leave(const Make& make) const {
    const pid_t child = ::fork();
    if (child == 0) {
      const auto made = make();
      ::kill(::getpid(), SIGKILL);
    }
    ::waitpid(child, nullptr, 0);
  }

  fs::path folder_;
};

TEST_F(TemporaryFileTest, NobodyCanGuessTheName) {
  const TemporaryFile first(folder_ / "a"), second(folder_ / "a");
  EXPECT_NE(first.path(), second.path());
  EXPECT_EQ(first.path().parent_path(), folder_);
}

TEST_F(TemporaryFileTest, GivenUpItLeavesNothingBehind) {
  {
    const TemporaryFile file(folder_ / "a");
    const TemporaryDirectory directory(folder_ / "b");
    std::ofstream(directory.path() / "c") << "x";
  }
  EXPECT_EQ(names(), std::set<std::string>{});
}

TEST_F(TemporaryFileTest, ALongNameIsNoProblem) {
  const std::string name(250, 'x');
  write_whole_file(folder_ / name, "text");
  EXPECT_EQ(names(), std::set{name});
}

TEST_F(TemporaryFileTest, WhatAKilledProcessLeftIsRemovedAndALivingOnesIsNot) {
  leave([&] { return std::make_unique<TemporaryFile>(folder_ / "a"); });
  leave([&] { return std::make_unique<TemporaryDirectory>(folder_ / "b"); });
  EXPECT_EQ(names().size(), 2u);
  TemporaryFile living(folder_ / "a");
  const TemporaryDirectory directory(folder_ / "b");
  std::ofstream(folder_ / "notes.tmp") << "of somebody else";
  remove_leftovers(folder_);
  EXPECT_EQ(names(), (std::set<std::string>{living.path().filename(), directory.path().filename(), "notes.tmp"}));
  living.replace(folder_ / "a");
  EXPECT_TRUE(fs::exists(folder_ / "a"));
}

TEST_F(TemporaryFileTest, ATakenNameIsNotTaken) {
  std::ofstream(folder_ / "a") << "old";
  TemporaryFile file(folder_ / "a");
  EXPECT_FALSE(file.take_free_name(folder_ / "a"));
  EXPECT_TRUE(file.take_free_name(folder_ / "b"));
  TemporaryDirectory directory(folder_ / "a");
  EXPECT_FALSE(directory.take_free_name(folder_ / "a"));
}

TEST_F(TemporaryFileTest, ADirectoryReplacesAnotherWithAllThatIsInIt) {
  fs::create_directory(folder_ / "a");
  std::ofstream(folder_ / "a" / "old") << "x";
  {
    TemporaryDirectory directory(folder_ / "a");
    std::ofstream(directory.path() / "new") << "y";
    directory.replace(folder_ / "a");
  }
  EXPECT_EQ(names(), std::set<std::string>{"a"});
  EXPECT_TRUE(fs::exists(folder_ / "a" / "new"));
  EXPECT_FALSE(fs::exists(folder_ / "a" / "old"));
}

TEST_F(TemporaryFileTest, APlantedLinkIsReplacedAndNotWrittenThrough) {
  std::ofstream(folder_ / "precious") << "kept";
  fs::create_symlink(folder_ / "precious", folder_ / "a");
  write_whole_file(folder_ / "a", "text");
  EXPECT_FALSE(fs::is_symlink(folder_ / "a"));
  std::string text;
  std::ifstream(folder_ / "precious") >> text;
  EXPECT_EQ(text, "kept");
}

}  // namespace
}  // namespace espalier
