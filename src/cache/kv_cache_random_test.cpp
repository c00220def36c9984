// Random operations on the cache and on a naive model of it, a map of vectors, with a device that fails now and then
// between any two of its calls. After every operation, and after every fault, the two say the same.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>

#include "base/error.h"
#include "cache/testing/cache_harness.h"
#include "device/conformance/random_values.h"

namespace espalier {
namespace {

using Values = std::vector<std::int64_t>;
using Path = std::vector<std::int32_t>;

// What an open branch should hold.
struct ModelBranch {
  Branch handle;
  Values written = {};       // its first rows
  bool interrupted = false;  // some rows have been moved by a commit that failed
};

class RandomRun {
 public:
  RandomRun(const CacheSetting& setting, std::uint64_t seed)
      : setting_(setting),
        blocks_(setting.device == CacheDevice::ascend ? 8 : 16),
        random_(seed),
        harness_(setting, blocks_,
                 seed % 3 == 0   ? DType::bf16
                 : seed % 3 == 1 ? DType::f16
                                 : DType::f32) {}

  void run(int operations) {
    for (int i = 0; i < operations && !testing::Test::HasFailure(); ++i) {
      SCOPED_TRACE(testing::Message() << "operation " << i);
      one_operation();
      expect_as_modelled();
    }
  }

  std::int64_t faults() const { return faults_; }
  const KvCounts& counts() const { return harness_.cache.counts(); }

 private:
  bool shared() const { return setting_.strategy == CacheStrategy::shared; }
  std::int64_t size() const { return harness_.block_size(); }
  std::int64_t blocks_for(std::int64_t positions) const { return (positions + size() - 1) / size(); }

  // --- the model ----------------------------------------------------------------------------------------------------

  const ModelBranch* open_branch(SequenceId id) const {
    const auto found = branches_.find(id);
    return found != branches_.end() && found->second.handle.open() ? &found->second : nullptr;
  }
  std::int64_t home_blocks() const {
    std::int64_t count = 0;
    for (const auto& [id, values] : sequences_) {
      const ModelBranch* const open = open_branch(id);
      count += blocks_for(static_cast<std::int64_t>(values.size()) + (open == nullptr ? 0 : open->handle.rows()));
    }
    return count;
  }
  std::int64_t free_blocks() const {
    std::int64_t copies = 0;
    for (const auto& [id, open] : branches_)
      if (!shared()) copies += blocks_for(open.handle.prefix() + open.handle.rows());
    const std::int64_t pool = blocks_ * (1 + (shared() ? 0 : 1) + (setting_.reorder == Reorder::full ? 1 : 0));
    return pool - home_blocks() - copies;
  }
  Values picked(SequenceId id, const Path& path) const {
    Values all = sequences_.at(id), result;
    const Values& rows = branches_.at(id).written;
    all.insert(all.end(), rows.begin(), rows.end());
    for (std::int32_t p : path) result.push_back(all[static_cast<std::size_t>(p)]);
    return result;
  }

  void expect_as_modelled() {
    KvCache& cache = harness_.cache;
    ASSERT_NO_THROW(cache.check_conservation());
    ASSERT_EQ(cache.free_positions(), (blocks_ - home_blocks()) * size());
    for (const auto& [id, values] : sequences_) {
      const auto length = static_cast<std::int64_t>(values.size());
      ASSERT_EQ(cache.length(id), length);
      ASSERT_EQ(harness_.read(id, 0, length), values);
      if (const ModelBranch* const open = open_branch(id)) expect_branch(*open, values);
    }
  }
  void expect_branch(const ModelBranch& open, Values expected) {
    if (!open.interrupted) expected.insert(expected.end(), open.written.begin(), open.written.end());
    ASSERT_EQ(harness_.read(open.handle.id(), 0, static_cast<std::int64_t>(expected.size())), expected);
  }

  // --- operations ---------------------------------------------------------------------------------------------------

  template <typename Map>
  auto any_of(Map& map) {
    return std::next(map.begin(), random_.below(static_cast<std::int64_t>(map.size())));
  }
  std::vector<SequenceId> idle_sequences() const {
    std::vector<SequenceId> ids;
    for (const auto& [id, values] : sequences_)
      if (!branches_.contains(id)) ids.push_back(id);
    return ids;
  }

  void one_operation() {
    const std::vector<SequenceId> idle = idle_sequences();
    const std::int64_t kind = random_.below(12);
    if (sequences_.size() < 2 || (kind == 0 && sequences_.size() < 4)) {
      sequences_.emplace(harness_.cache.create(), Values());
    } else if (kind <= 3 && !idle.empty()) {
      begin(idle[static_cast<std::size_t>(random_.below(static_cast<std::int64_t>(idle.size())))]);
    } else if (kind == 4 && !idle.empty()) {
      shorten(idle[0]);
    } else if (kind == 5 && !branches_.empty()) {
      misuse(any_of(branches_)->first);
    } else if (!branches_.empty()) {
      use_branch(any_of(branches_)->first);
    }
  }

  // Runs it with a fault at its n-th device call for every n, until it succeeds or the pool is short (then false).
  // Only sometimes without faults, so that the calls in a row are not always the same.
  bool run_with_faults(const std::function<void()>& operation, const std::function<void()>& after_fault = {}) {
    FaultyDevice& device = *harness_.device;
    for (std::int64_t n = random_.one_in(3) ? 1000 : 1;; ++n) {
      device.fail_at(n);
      try {
        operation();
        device.never_fail();
        return true;
      } catch (const DeviceError&) {
        if (device.will_fail()) {
          device.never_fail();
          return false;
        }
      }
      ++faults_;
      if (after_fault) after_fault();
      expect_as_modelled();
    }
  }

  void begin(SequenceId id) {
    const auto length = static_cast<std::int64_t>(sequences_.at(id).size());
    const std::int64_t longest = random_.one_in(8) ? blocks_ * size() : 2 * size() + 3;
    const std::int64_t rows = random_.between(1, longest);
    const bool fits = home_blocks() - blocks_for(length) + blocks_for(length + rows) <= blocks_;
    std::optional<Branch> opened;
    run_with_faults([&] { opened = harness_.cache.begin(id, rows); });
    ASSERT_EQ(opened.has_value(), fits) << rows << " rows";
    if (opened) branches_.emplace(id, ModelBranch{std::move(*opened)});
  }

  void shorten(SequenceId id) {
    Values& values = sequences_.at(id);
    if (random_.one_in(3)) {
      harness_.cache.release(id);
      sequences_.erase(id);
    } else {
      values.resize(static_cast<std::size_t>(random_.between(0, static_cast<std::int64_t>(values.size()))));
      harness_.cache.truncate(id, static_cast<std::int64_t>(values.size()));
    }
  }

  void misuse(SequenceId id) {
    ModelBranch& open = branches_.at(id);
    const auto end = static_cast<std::int32_t>(open.handle.prefix() + open.handle.rows());
    EXPECT_THROW(open.handle.commit_path(Path{end}), std::logic_error);
    EXPECT_THROW(open.handle.commit_path(Path{0, 0}), std::logic_error);
    EXPECT_THROW(open.handle.commit_length(open.handle.rows() + 1), std::logic_error);
    EXPECT_THROW(harness_.cache.truncate(id, 0), std::logic_error);
    EXPECT_THROW(harness_.cache.release(id), std::logic_error);
    EXPECT_THROW((void)harness_.cache.begin(id, 1), std::logic_error);
  }

  void use_branch(SequenceId id) {
    ModelBranch& open = branches_.at(id);
    const std::int64_t kind = open.written.empty() ? random_.below(4) : random_.below(12);
    if (kind <= 2) {
      write_more(open);
    } else if (kind <= 4) {
      drop(id);
    } else if (kind <= 6) {
      commit_length(id);
    } else {
      commit_path(id);
    }
  }

  void write_more(ModelBranch& open) {
    const auto done = static_cast<std::int64_t>(open.written.size());
    if (done == open.handle.rows()) return;
    const Values values = counting(next_value_, random_.between(1, open.handle.rows() - done));
    next_value_ = (next_value_ + static_cast<std::int64_t>(values.size())) % (1 << 20);
    harness_.write(open.handle, open.handle.prefix() + done, values);
    open.written.insert(open.written.end(), values.begin(), values.end());
  }

  void drop(SequenceId id) {
    if (random_.one_in(2)) branches_.at(id).handle.rollback();
    branches_.erase(id);
  }

  void commit_length(SequenceId id) {
    ModelBranch& open = branches_.at(id);
    const std::int64_t n = random_.between(0, static_cast<std::int64_t>(open.written.size()));
    run_with_faults([&] { open.handle.commit_length(n); });
    Values& values = sequences_.at(id);
    values.insert(values.end(), open.written.begin(), open.written.begin() + n);
    branches_.erase(id);
  }

  // Some of the written rows behind the prefix, or any list at all.
  Path random_path(const ModelBranch& open, bool in_order) {
    const std::int64_t prefix = open.handle.prefix(), end = prefix + static_cast<std::int64_t>(open.written.size());
    const std::int64_t one_in = random_.between(2, 5);
    Path path;
    for (std::int64_t p = 0; p < end; ++p)
      if ((in_order && p < prefix) || !random_.one_in(one_in)) path.push_back(static_cast<std::int32_t>(p));
    if (in_order) return path;
    Path shuffled;
    for (std::int32_t i : random_.permutation(static_cast<std::int64_t>(path.size())))
      shuffled.push_back(path[static_cast<std::size_t>(i)]);
    return shuffled;
  }

  static bool keeps(const Path& path, std::int64_t prefix) {
    const Path all = path_behind(prefix, {});
    return path.size() >= all.size() && std::equal(all.begin(), all.end(), path.begin());
  }

  void commit_path(SequenceId id) {
    ModelBranch& open = branches_.at(id);
    const Path path = random_path(open, !random_.one_in(3));
    const bool in_order = std::ranges::is_sorted(path) && keeps(path, open.handle.prefix());
    const bool needs_fresh = !in_order || setting_.reorder == Reorder::full;
    const std::int64_t free = free_blocks();
    const bool gives_up = random_.one_in(4);  // rolls back once rows have moved
    const std::int64_t copies = harness_.device->kv_copies();
    const auto after_fault = [&] {
      open.interrupted = shared() && !needs_fresh && harness_.device->kv_copies() > copies;
      if (open.interrupted && gives_up) open.handle.rollback();
    };
    const bool committed = run_with_faults(
        [&] {
          if (open.handle.open()) open.handle.commit_path(path);
        },
        after_fault);
    EXPECT_EQ(committed, !needs_fresh || blocks_for(static_cast<std::int64_t>(path.size())) <= free);
    if (committed && !(open.interrupted && gives_up)) sequences_.at(id) = picked(id, path);
    EXPECT_EQ(open.handle.open(), !committed);
    branches_.erase(id);
  }

  CacheSetting setting_;
  std::int64_t blocks_;
  RandomValues random_;
  CacheHarness harness_;
  std::map<SequenceId, Values> sequences_;
  std::map<SequenceId, ModelBranch> branches_;  // by sequence
  std::int64_t next_value_ = 0;
  std::int64_t faults_ = 0;
};

class KvCacheRandom : public testing::TestWithParam<CacheSetting> {};

INSTANTIATE_TEST_SUITE_P(
    Settings, KvCacheRandom,
    testing::ValuesIn(all_settings({CacheDevice::plain, CacheDevice::checked, CacheDevice::ascend})), NameOfSetting());

TEST_P(KvCacheRandom, AnyRunOfOperationsEqualsAMapOfVectorsWhateverFails) {
  const bool plain = GetParam().device == CacheDevice::plain, ascend = GetParam().device == CacheDevice::ascend;
  const int operations = plain ? 800 : ascend ? 120 : 300;
  std::int64_t faults = 0, commits = 0;
  for (const std::uint64_t seed : {1, 2, 3}) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    RandomRun run(GetParam(), seed);
    run.run(operations);
    if (HasFailure()) return;
    faults += run.faults();
    commits += run.counts().commits;
  }
  RecordProperty("commits", std::to_string(commits));
  RecordProperty("faults", std::to_string(faults));
  EXPECT_GT(commits, operations / 4);
  EXPECT_GT(faults, operations / 4);
}

}  // namespace
}  // namespace espalier
