// A device that fails between any two of its calls: nothing leaks, nothing is lost, and what failed can be done again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <stdexcept>

#include "base/error.h"
#include "cache/testing/cache_harness.h"

namespace espalier {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;
using Values = std::vector<std::int64_t>;
using Path = std::vector<std::int32_t>;

// Two sequences. One has an open branch and must survive whatever happens to the other.
class Story {
 public:
  explicit Story(const CacheSetting& setting)
      : prefix(setting.device == CacheDevice::ascend ? 150 : 6),
        rows(setting.device == CacheDevice::ascend ? 100 : 9),
        harness(setting, 24),
        bystander(harness.sequence(counting(500, 5))),
        other(harness.branch(bystander, counting(600, 4))),
        sequence(harness.sequence(counting(0, prefix))),
        free(harness.cache.free_positions()) {}

  // Whether `call` fails when the device fails at its n-th call.
  bool fails_at(std::int64_t n, const std::function<void()>& call) {
    harness.device->fail_at(n);
    try {
      call();
    } catch (const DeviceError&) {
      EXPECT_FALSE(harness.device->will_fail()) << "it failed for another reason";
      return true;
    }
    harness.device->never_fail();
    return false;
  }

  Branch open_branch() { return harness.branch(sequence, counting(1000, rows)); }

  void expect_nothing_committed() {
    harness.cache.check_conservation();
    EXPECT_EQ(harness.read(other.id(), 0, 9), (Values{500, 501, 502, 503, 504, 600, 601, 602, 603}));
    ASSERT_EQ(harness.cache.length(sequence), prefix);
    EXPECT_EQ(harness.read(sequence, 0, prefix), counting(0, prefix));
  }
  void expect_rows_unchanged(const Branch& branch) {
    EXPECT_EQ(harness.read(branch.id(), prefix, prefix + rows), counting(1000, rows));
  }
  void expect_committed(const Path& path) {
    harness.cache.check_conservation();
    Values expected = counting(0, prefix);
    for (std::int32_t p : path) expected.push_back(1000 + p - prefix);
    EXPECT_EQ(harness.read(sequence, 0, harness.cache.length(sequence)), expected);
    EXPECT_EQ(harness.read(bystander, 0, 5), counting(500, 5));
  }

  const std::int64_t prefix;
  const std::int64_t rows;  // enough for several calls where the device has buckets
  CacheHarness harness;
  SequenceId bystander;
  Branch other;
  SequenceId sequence;
  std::int64_t free;
};

struct Commit {
  std::string_view name;
  Path path;
  std::function<void(Branch&)> make;
};

std::vector<Commit> commits(const Story& story) {
  Path whole;
  for (std::int64_t i = 0; i < story.rows; ++i) whole.push_back(static_cast<std::int32_t>(story.prefix + i));
  Path scattered;  // most rows move, and onto sources of others
  for (std::int64_t i = 0; i < story.rows; i += i < story.rows / 2 ? 2 : 1)
    scattered.push_back(static_cast<std::int32_t>(story.prefix + i));
  Path turned(scattered.rbegin(), scattered.rend());
  const auto by_path = [](const Path& path) { return [path](Branch& branch) { branch.commit_path(path); }; };
  return {{"by length", whole, [n = story.rows](Branch& branch) { branch.commit_length(n); }},
          {"by a path in order", scattered, by_path(scattered)},
          {"by a path turned round", turned, by_path(turned)}};
}

class KvCacheFaults : public testing::TestWithParam<CacheSetting> {
 protected:
  bool moves_in_place() const {
    return GetParam().strategy == CacheStrategy::shared && GetParam().reorder == Reorder::fast;
  }
};

INSTANTIATE_TEST_SUITE_P(
    Settings, KvCacheFaults,
    testing::ValuesIn(all_settings({CacheDevice::plain, CacheDevice::checked, CacheDevice::ascend})), NameOfSetting());

TEST_P(KvCacheFaults, ABranchThatCannotBeOpenedChangesNothingAndCanBeTriedAgain) {
  for (std::int64_t n = 1;; ++n) {
    SCOPED_TRACE(testing::Message() << "fault at call " << n);
    Story story(GetParam());
    std::optional<Branch> branch;
    const bool failed = story.fails_at(n, [&] { branch = story.harness.cache.begin(story.sequence, story.rows); });
    story.expect_nothing_committed();
    if (!failed) {
      const bool ascend = GetParam().device == CacheDevice::ascend;
      EXPECT_EQ(n - 1, GetParam().strategy == CacheStrategy::shared ? 0 : ascend ? 1 + 3 : 1 + 1);
      return;
    }
    EXPECT_EQ(story.harness.cache.free_positions(), story.free);
    EXPECT_EQ(story.harness.cache.counts().bytes_branched,
              story.other.prefix() * story.harness.cache.memory().slot_bytes());
    story.open_branch().commit_length(story.rows);
    story.expect_committed(commits(story)[0].path);
  }
}

TEST_P(KvCacheFaults, ACommitThatFailsCommitsNothingAndCanBeMadeAgain) {
  for (std::size_t kind = 0; kind < 3; ++kind)
    for (std::int64_t n = 1;; ++n) {
      Story story(GetParam());
      const Commit commit = commits(story)[kind];
      SCOPED_TRACE(testing::Message() << commit.name << ", fault at call " << n);
      Branch branch = story.open_branch();
      const std::int64_t copies = story.harness.device->kv_copies();
      const KvCounts before = story.harness.cache.counts();
      if (!story.fails_at(n, [&] { commit.make(branch); })) {
        story.expect_committed(commit.path);
        break;
      }
      ASSERT_TRUE(branch.open());
      story.expect_nothing_committed();
      const bool some_moved = moves_in_place() && kind == 1 && story.harness.device->kv_copies() > copies;
      if (!some_moved) story.expect_rows_unchanged(branch);
      EXPECT_EQ(story.harness.cache.counts().commits, before.commits);
      EXPECT_EQ(story.harness.cache.counts().bytes_committed, before.bytes_committed);
      commit.make(branch);
      story.expect_committed(commit.path);
      EXPECT_FALSE(branch.open());
    }
}

TEST_P(KvCacheFaults, ACommitThatFailsCanBeRolledBack) {
  for (std::size_t kind = 0; kind < 3; ++kind)
    for (std::int64_t n = 1;; ++n) {
      Story story(GetParam());
      const Commit commit = commits(story)[kind];
      SCOPED_TRACE(testing::Message() << commit.name << ", fault at call " << n);
      {
        Branch branch = story.open_branch();
        if (!story.fails_at(n, [&] { commit.make(branch); })) break;
      }
      story.expect_nothing_committed();
      EXPECT_EQ(story.harness.cache.free_positions(), story.free);
      Branch again = story.open_branch();
      commit.make(again);
      story.expect_committed(commit.path);
    }
}

TEST_P(KvCacheFaults, AfterAnInterruptedMoveInPlaceOnlyTheSamePathOrARollbackIsTaken) {
  Story story(GetParam());
  const std::vector<Commit> all = commits(story);
  Branch branch = story.open_branch();
  // Elsewhere the rows are whole, and any commit may follow. So they are where one call moves all layers.
  if (!moves_in_place() || GetParam().device != CacheDevice::ascend) {
    ASSERT_TRUE(story.fails_at(2, [&] { all[moves_in_place() ? 1 : 2].make(branch); }));
    all[0].make(branch);
    story.expect_committed(all[0].path);
    return;
  }
  ASSERT_TRUE(story.fails_at(3, [&] { all[1].make(branch); })) << "the list is there, one call is done";
  const Path shorter(all[1].path.begin(), all[1].path.end() - 1);
  for (const Path& other : {all[2].path, Path(), shorter})
    EXPECT_THAT([&] { branch.commit_path(other); },
                ThrowsMessage<std::logic_error>(HasSubstr("take the same path again or roll back")));
  EXPECT_THROW(branch.commit_length(1), std::logic_error);
  story.harness.branch(story.harness.cache.create(), counting(700, 3)).commit_length(3);  // others go on meanwhile
  all[1].make(branch);
  story.expect_committed(all[1].path);
}

TEST_P(KvCacheFaults, ACacheThatCannotBeMadeLeaksNothing) {
  const auto made_on = [&](std::int64_t n) {
    CacheHarness harness(GetParam(), 1);
    harness.device->fail_at(n);
    try {
      const KvCache cache(*harness.device, harness.cache.memory().shape(), 100, harness.cache.options());
    } catch (const DeviceError&) {
      return false;
    }
    return true;
  };
  std::int64_t n = 1;
  while (!made_on(n)) ++n;
  EXPECT_EQ(n - 1, 1 + 2 * 2) << "the lists, and K and V of two layers";
}

}  // namespace
}  // namespace espalier
