#include "base/temporary_file.h"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/whole_file.h"

namespace espalier {
namespace {

namespace fs = std::filesystem;

// From here on this process sees file systems that rename, but neither exchange two names nor spare a taken one, as
// there are some: renameat2 with flags is refused. False: the system allows no filter.
bool forget_renames_with_flags() {
  sock_filter rules[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                         BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_renameat2, 0, 3),             // or allow
                         BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[4])),  // little-endian
                         BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0),                         // no flags: allow
                         BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
                         BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program{.len = static_cast<unsigned short>(std::size(rules)), .filter = rules};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

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

  // What happens where the file system can only rename. Nothing: no such system can be had here.
  template <typename Work>
  std::optional<bool> on_a_plain_file_system(const Work& work) const {
    constexpr int kFine = 0, kCannot = 77;
    const pid_t child = ::fork();
    if (child == 0) ::_exit(!forget_renames_with_flags() ? kCannot : work() ? kFine : 1);
    int status = 0;
    ::waitpid(child, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == kCannot) return std::nullopt;
    return WIFEXITED(status) && WEXITSTATUS(status) == kFine;
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

TEST_F(TemporaryFileTest, WhereNamesCannotBeExchangedTheOldDirectoryStepsAside) {
  fs::create_directory(folder_ / "a");
  std::ofstream(folder_ / "a" / "old") << "x";
  const auto done = on_a_plain_file_system([&] {
    TemporaryDirectory directory(folder_ / "a");
    std::ofstream(directory.path() / "new") << "y";
    directory.replace(folder_ / "a");
    return !fs::exists(folder_ / "a" / "old") && fs::exists(directory.path() / "old");
  });
  if (!done) GTEST_SKIP() << "no system calls can be refused here";
  EXPECT_TRUE(*done);
  EXPECT_TRUE(fs::exists(folder_ / "a" / "new"));
  EXPECT_EQ(names(), std::set<std::string>{"a"}) << "the old one leaves with the process";
}

TEST_F(TemporaryFileTest, WhereATakenNameIsNotSparedItIsLookedForFirst) {
  std::ofstream(folder_ / "a") << "old";
  const auto done = on_a_plain_file_system([&] {
    TemporaryFile file(folder_ / "a");
    return !file.take_free_name(folder_ / "a") && file.take_free_name(folder_ / "b");
  });
  if (!done) GTEST_SKIP() << "no system calls can be refused here";
  EXPECT_TRUE(*done);
  EXPECT_EQ(names(), (std::set<std::string>{"a", "b"}));
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
