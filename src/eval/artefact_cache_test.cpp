#include "eval/artefact_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "base/error.h"
#include "base/mapped_file.h"
#include "base/testing/sanitized.h"
#include "eval/process_life.h"
#include "format/testing/temporary_folder.h"

namespace espalier {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

constexpr int kKills = kSanitized ? 40 : 300;

class ArtefactCacheTest : public ::testing::Test {
 protected:
  std::string get(std::string_view description) const {
    return ArtefactCache(path_).get("kind", description, [&] { return build(description); });
  }
  // A builder that tells everybody that it was called.
  std::string build(std::string_view description) const {
    std::ofstream(folder_ / "builds", std::ios::app) << "x";
    return content(description);
  }
  static std::string content(std::string_view description) { return "made of " + std::string(description); }
  std::size_t builds() const {
    return std::filesystem::exists(folder_ / "builds") ? read_text_file(folder_ / "builds").size() : 0;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) names.push_back(entry.path().filename());
    return names;
  }
  std::filesystem::path only_file() const { return path_ / names().at(0); }
  // In a child that does nothing else and ends without a word.
  template <typename Function>
  static pid_t start(const Function& function) {
    const pid_t child = ::fork();
    if (child != 0) return child;
    bool good = false;
    try {
      good = function();
    } catch (...) {
    }
    ::_exit(good ? 0 : 1);
  }
  static int wait_for(pid_t child) {
    int status = 0;
    ::waitpid(child, &status, 0);
    return status;
  }

  TemporaryFolder folder_;
  std::filesystem::path path_ = folder_ / "cache";
};

TEST_F(ArtefactCacheTest, IsMadeOnceAndReadEverAfter) {
  EXPECT_EQ(get("a"), content("a"));
  EXPECT_EQ(get("a"), content("a"));
  EXPECT_EQ(builds(), 1u);
  EXPECT_EQ(get("b"), content("b"));
  EXPECT_EQ(builds(), 2u);
  EXPECT_EQ(names().size(), 2u) << "locks and temporary files are gone";
}

TEST_F(ArtefactCacheTest, ADamagedOneIsMadeAgain) {
  get("a");
  std::ofstream(only_file(), std::ios::app) << "!";
  EXPECT_EQ(get("a"), content("a"));
  EXPECT_EQ(builds(), 2u);
  EXPECT_EQ(get("a"), content("a"));
  EXPECT_EQ(builds(), 2u);
}

TEST_F(ArtefactCacheTest, WithoutAFolderOrWithOneThatCannotBeEverythingIsMadeAnew) {
  EXPECT_EQ(ArtefactCache(std::nullopt).get("kind", "a", [&] { return build("a"); }), content("a"));
  folder_.write("file", "");
  EXPECT_EQ(ArtefactCache(folder_ / "file/cache").get("kind", "a", [&] { return build("a"); }), content("a"));
  EXPECT_EQ(builds(), 2u);
}

TEST_F(ArtefactCacheTest, WhatABuilderThrowsGoesOnAndTheNextOneMayTry) {
  const ArtefactCache cache(path_);
  EXPECT_THROW(cache.get("kind", "a", []() -> std::string { throw InputError("no"); }), InputError);
  EXPECT_EQ(get("a"), content("a"));
}

TEST_F(ArtefactCacheTest, OneOfManyProcessesBuildsAndTheOthersWait) {
  std::vector<pid_t> children;
  for (int i = 0; i < 8; ++i)
    children.push_back(start([&] {
      const ArtefactCache cache(path_);
      const auto slowly = [&] {
        std::this_thread::sleep_for(100ms);
        return build("a");
      };
      return cache.get("kind", "a", slowly) == content("a");
    }));
  for (pid_t child : children) EXPECT_EQ(wait_for(child), 0);
  EXPECT_EQ(builds(), 1u);
}

TEST_F(ArtefactCacheTest, ALockOfAProcessThatIsGoneIsTakenOver) {
  std::filesystem::create_directories(path_);
  get("a");
  const std::filesystem::path artefact = only_file(), lock = artefact.string() + ".lock";
  const pid_t child = start([&] {
    std::ofstream(lock) << this_process().dump();
    return true;
  });
  wait_for(child);
  std::filesystem::remove(artefact);
  EXPECT_EQ(get("a"), content("a"));
  EXPECT_FALSE(std::filesystem::exists(lock));
}

TEST_F(ArtefactCacheTest, ALockThatIsTooOldIsTakenOverWhoeverOwnsIt) {
  get("a");
  const std::filesystem::path artefact = only_file(), lock = artefact.string() + ".lock";
  std::filesystem::remove(artefact);
  std::ofstream(lock) << R"({"host": "elsewhere", "pid": 1, "started": "1"})";
  const ArtefactCache patient(path_), hasty(path_, 0.05);
  EXPECT_EQ(hasty.get("kind", "a", [&] { return build("a"); }), content("a"));
  std::filesystem::remove(artefact);
  std::ofstream(lock) << R"({"host": "elsewhere", "pid": 1, "started": "1"})";
  const pid_t child = start([&] { return patient.get("kind", "a", [&] { return build("a"); }) == content("a"); });
  std::this_thread::sleep_for(100ms);
  EXPECT_EQ(builds(), 2u) << "it waits for a host it knows nothing of";
  std::filesystem::remove(lock);
  EXPECT_EQ(wait_for(child), 0);
}

// Killed anywhere, alone or among others, a process leaves a cache that the next one can use.
TEST_F(ArtefactCacheTest, KillingBuildersAtRandomPointsNeverSpoilsTheCache) {
  std::mt19937 random(7);
  for (int kill = 0; kill < kKills; ++kill) {
    const std::string description = "artefact " + std::to_string(kill / 4);
    const auto builder = [&] {
      return ArtefactCache(path_).get("kind", description, [&] {
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 400));
        return content(description) + std::string(random() % 2 * 100000, '.');
      });
    };
    std::vector<pid_t> children;
    for (int i = 0; i < 2; ++i) {
      random.discard(1);
      children.push_back(start([&] { return builder().starts_with(content(description)); }));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
    for (pid_t child : children) ::kill(child, SIGKILL);
    for (pid_t child : children) wait_for(child);
    const auto start = std::chrono::steady_clock::now();
    ASSERT_THAT(builder(), HasSubstr(content(description))) << "seed 7, kill " << kill;
    ASSERT_LT(std::chrono::steady_clock::now() - start, 5s) << "seed 7, kill " << kill;
    ASSERT_THAT(builder(), HasSubstr(content(description)));
  }
}

}  // namespace
}  // namespace espalier
