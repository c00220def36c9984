// Random operations on the cache and on a naive model of it, a map of vectors, with a device that fails now and then
// between any two of its calls. After every operation, and after every fault, the two say the same, of two memories:
// one that writes whatever is committed, and one that lags behind and leaves gaps, as a draft head does.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <stdexcept>
#include <string>

#include "base/error.h"
#include "base/testing/sanitized.h"
#include "cache/testing/cache_harness.h"
#include "device/conformance/random_values.h"

namespace espalier {
namespace {

using Values = std::vector<std::int64_t>;
using Path = std::vector<std::int32_t>;

constexpr std::int64_t kNothing = -1;  // not written

// What a sequence, or a block, should hold.
struct Held {
  Values first = {};
  Values second = {};  // kNothing where that memory has gaps

  std::int64_t length() const { return std::ssize(first); }
  void cut(std::int64_t length) {
    first.resize(static_cast<std::size_t>(length));
    second.resize(static_cast<std::size_t>(length));
  }
};

// What an open branch should hold.
struct ModelBranch {
  Branch handle;
  std::int64_t from = 0;     // what its steps may write
  Values written = {};       // its first rows
  Values second = {};        // of places `from` on
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
                                 : DType::f32,
                 2) {}

  void run(int operations) {
    for (int i = 0; i < operations && !testing::Test::HasFailure(); ++i) {
      SCOPED_TRACE(testing::Message() << "operation " << i);
      one_operation();
      expect_as_modelled();
    }
  }

  std::int64_t faults() const { return faults_; }
  std::int64_t shared_blocks() const { return shared_; }
  const KvCounts& counts() const { return harness_.cache.counts(); }

 private:
  bool shared() const { return setting_.strategy == CacheStrategy::shared; }
  std::int64_t size() const { return harness_.block_size(); }
  const BlockTables& tables() const { return harness_.cache.tables(); }
  std::int64_t blocks_for(std::int64_t positions) const { return (positions + size() - 1) / size(); }

  // --- the model ----------------------------------------------------------------------------------------------------

  const ModelBranch* open_branch(SequenceId id) const {
    const auto found = branches_.find(id);
    return found != branches_.end() && found->second.handle.open() ? &found->second : nullptr;
  }
  // Blocks of sequences and of where branches will land, and those that are kept for whoever comes.
  std::int64_t home_blocks() const {
    std::set<std::int32_t> used;
    for (const auto& [block, held] : published_) used.insert(block);
    for (const auto& [id, held] : sequences_) {
      for (std::int32_t block : tables().blocks(id)) used.insert(block);
      if (const ModelBranch* const open = open_branch(id))
        for (std::int32_t block : tables().branch(open->handle.id()).home) used.insert(block);
    }
    return std::ssize(used);
  }
  std::int64_t free_blocks() const {
    std::int64_t copies = 0;
    for (const auto& [id, open] : branches_) {
      const auto& branch = tables().branch(open.handle.id());
      for (std::size_t i = 0; i < branch.home.size(); ++i) copies += branch.table[i] != branch.home[i] ? 1 : 0;
    }
    const std::int64_t pool = blocks_ * (1 + (shared() ? 0 : 1) + (setting_.reorder == Reorder::full ? 1 : 0));
    return pool - home_blocks() - copies;
  }

  void expect_as_modelled() {
    KvCache& cache = harness_.cache;
    ASSERT_NO_THROW(cache.check_conservation());
    ASSERT_EQ(cache.free_positions(), (blocks_ - home_blocks()) * size());
    for (const auto& [id, held] : sequences_) {
      ASSERT_EQ(cache.length(id), held.length());
      ASSERT_EQ(harness_.read(id, 0, held.length()), held.first);
      expect_second(id, held);
      if (const ModelBranch* const open = open_branch(id)) expect_branch(*open, held);
    }
    for (const auto& [block, held] : published_) expect_published(block, held);
  }
  // The longest run that ends with the last position, and nothing more.
  void expect_second(SequenceId id, const Held& held) {
    std::int64_t from = held.length();
    while (from > 0 && held.second[static_cast<std::size_t>(from - 1)] != kNothing) --from;
    ASSERT_EQ(harness_.cache.memory(1).written_from(tables().blocks(id), held.length()), from);
    const Values expected(held.second.begin() + from, held.second.end());
    ASSERT_EQ(harness_.read(id, from, held.length(), 1), expected);
  }
  void expect_branch(const ModelBranch& open, const Held& held) {
    Values expected = held.first;
    if (!open.interrupted) expected.insert(expected.end(), open.written.begin(), open.written.end());
    ASSERT_EQ(harness_.read(open.handle.id(), 0, std::ssize(expected)), expected);
    if (open.interrupted) return;
    ASSERT_EQ(harness_.read(open.handle.id(), open.from, open.from + std::ssize(open.second), 1), open.second);
  }
  void expect_published(std::int32_t block, const Held& held) {
    ASSERT_TRUE(tables().published(block));
    ASSERT_EQ(harness_.read_block(block), held.first);
    ASSERT_EQ(harness_.cache.memory(1).written(block), written_range(held.second));
    Values expected = held.second;
    std::erase(expected, kNothing);
    ASSERT_EQ(harness_.read_block(block, 1), expected);
  }
  static SlotRange written_range(const Values& values) {
    SlotRange range;
    for (std::int64_t i = 0; i < std::ssize(values); ++i) {
      if (values[static_cast<std::size_t>(i)] == kNothing) continue;
      if (range.empty()) range.begin = i;
      range.end = i + 1;
    }
    return range;
  }

  // --- operations ---------------------------------------------------------------------------------------------------

  template <typename Map>
  auto any_of(Map& map) {
    return std::next(map.begin(), random_.below(static_cast<std::int64_t>(map.size())));
  }
  std::vector<SequenceId> idle_sequences() const {
    std::vector<SequenceId> ids;
    for (const auto& [id, held] : sequences_)
      if (!branches_.contains(id)) ids.push_back(id);
    return ids;
  }

  void one_operation() {
    const std::vector<SequenceId> idle = idle_sequences();
    const std::int64_t kind = random_.below(18);
    const auto any_idle = [&] { return idle[static_cast<std::size_t>(random_.below(std::ssize(idle)))]; };
    if (sequences_.size() < 2 || (kind == 0 && sequences_.size() < 5)) {
      sequences_.emplace(harness_.cache.create(), Held());
    } else if (kind <= 3 && !idle.empty()) {
      begin(any_idle());
    } else if (kind == 4 && !idle.empty()) {
      shorten(any_idle());
    } else if (kind == 5 && !branches_.empty()) {
      misuse(any_of(branches_)->first);
    } else if (kind == 6 && !idle.empty() && sequences_.size() < 5) {
      fork(any_idle());
    } else if (kind <= 8 && !idle.empty()) {
      publish(any_idle());
    } else if (kind == 9 && !idle.empty() && !published_.empty()) {
      go_on_with_published(any_idle());
    } else if (kind == 10 && !published_.empty()) {
      evict();
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
    const std::int64_t length = sequences_.at(id).length();
    const std::int64_t longest = random_.one_in(8) ? blocks_ * size() : 2 * size() + 3;
    const std::int64_t rows = random_.between(1, longest);
    const std::int64_t from = random_.one_in(3) ? length : random_.between(first_missing(sequences_.at(id)), length);
    std::int64_t more = blocks_for(length + rows) - blocks_for(length);
    for (std::int64_t i = from / size(); i < blocks_for(length); ++i)
      more += tables().writable(tables().blocks(id)[static_cast<std::size_t>(i)]) ? 0 : 1;
    const bool fits = home_blocks() + more <= blocks_;
    std::optional<Branch> opened;
    run_with_faults([&] { opened = harness_.cache.begin(id, rows, from); });
    ASSERT_EQ(opened.has_value(), fits) << rows << " rows";
    if (opened) branches_.emplace(id, ModelBranch{.handle = std::move(*opened), .from = from});
  }

  // What the second memory lacks at the end.
  static std::int64_t first_missing(const Held& held) {
    std::int64_t from = held.length();
    while (from > 0 && held.second[static_cast<std::size_t>(from - 1)] == kNothing) --from;
    return from;
  }

  void shorten(SequenceId id) {
    Held& held = sequences_.at(id);
    if (random_.one_in(3)) {
      harness_.cache.release(id);
      sequences_.erase(id);
    } else {
      held.cut(random_.between(0, held.length()));
      harness_.cache.truncate(id, held.length());
    }
  }

  void fork(SequenceId id) {
    Held held = sequences_.at(id);
    held.cut(random_.between(0, held.length()));
    sequences_.emplace(harness_.cache.fork(id, held.length()), held);
  }

  // One of its full blocks.
  void publish(SequenceId id) {
    const Held& held = sequences_.at(id);
    const std::int64_t whole = held.length() / size();
    if (whole == 0) return;
    const std::int64_t index = random_.below(whole);
    const std::int32_t block = tables().blocks(id)[static_cast<std::size_t>(index)];
    if (published_.contains(block)) {
      EXPECT_THROW(harness_.cache.publish(block), std::logic_error);
      return;
    }
    harness_.cache.publish(block);
    const auto part = [&](const Values& values) {
      return Values(values.begin() + index * size(), values.begin() + (index + 1) * size());
    };
    published_[block] = {part(held.first), known_run(part(held.second), block)};
  }
  // A block keeps one run of a memory: the last.
  Values known_run(Values values, std::int32_t block) const {
    const SlotRange range = harness_.cache.memory(1).written(block);
    for (std::int64_t i = 0; i < std::ssize(values); ++i)
      if (i < range.begin || i >= range.end) values[static_cast<std::size_t>(i)] = kNothing;
    return values;
  }

  // A sequence is extended by a published block, or by the beginning of one in a block of its own.
  void go_on_with_published(SequenceId id) {
    Held& held = sequences_.at(id);
    const auto found = any_of(published_);
    const std::int32_t block = found->first;
    const Held& content = found->second;
    if (held.length() % size() != 0) {
      EXPECT_THROW(harness_.cache.share(id, std::span(&block, 1)), std::logic_error);
      held.cut(held.length() / size() * size());
      harness_.cache.truncate(id, held.length());
    }
    if (held.length() + size() > blocks_ * size()) return;
    std::int64_t slots = size();
    if (random_.one_in(2)) {
      harness_.cache.share(id, std::span(&block, 1));
      ++shared_;
    } else {
      slots = random_.between(1, size());
      const bool fits = home_blocks() < blocks_;
      bool copied = false;
      run_with_faults([&] { copied = harness_.cache.append_copy(id, block, slots); });
      ASSERT_EQ(copied, fits);
      if (!copied) return;
    }
    held.first.insert(held.first.end(), content.first.begin(), content.first.begin() + slots);
    held.second.insert(held.second.end(), content.second.begin(), content.second.begin() + slots);
  }

  void evict() {
    const std::int32_t block = any_of(published_)->first;
    if (tables().references(block) > 0) {
      EXPECT_THROW(harness_.cache.evict(block), std::logic_error);
      return;
    }
    harness_.cache.evict(block);
    published_.erase(block);
  }

  void misuse(SequenceId id) {
    ModelBranch& open = branches_.at(id);
    const auto end = static_cast<std::int32_t>(open.handle.prefix() + open.handle.rows());
    EXPECT_THROW(open.handle.commit_path(Path{end}), std::logic_error);
    EXPECT_THROW(open.handle.commit_path(Path{end - 1, end - 1}), std::logic_error);
    EXPECT_THROW(open.handle.commit_path(Path{static_cast<std::int32_t>(open.handle.prefix()) - 1}), std::logic_error);
    EXPECT_THROW(open.handle.commit_length(open.handle.rows() + 1), std::logic_error);
    EXPECT_THROW(open.handle.keep(harness_.cache.memory(1), {.to = open.handle.prefix() + 1}), std::logic_error);
    EXPECT_THROW(open.handle.keep(harness_.cache.memory(0), {.to = open.handle.prefix()}), std::logic_error);
    EXPECT_THROW(harness_.cache.truncate(id, 0), std::logic_error);
    EXPECT_THROW(harness_.cache.release(id), std::logic_error);
    EXPECT_THROW(harness_.cache.fork(id, 0), std::logic_error);
    EXPECT_THROW((void)harness_.cache.begin(id, 1), std::logic_error);
  }

  void use_branch(SequenceId id) {
    ModelBranch& open = branches_.at(id);
    const std::int64_t kind = open.written.empty() ? random_.below(4) : random_.below(13);
    if (kind <= 2) {
      write_more(open);
    } else if (kind <= 4) {
      drop(id);
    } else if (kind <= 6) {
      commit(id, true, false);
    } else if (kind <= 8) {
      write_second(open);
    } else {
      commit(id, false, random_.one_in(3));
    }
  }

  Values next_values(std::int64_t count) {
    const Values values = counting(next_value_, count);
    next_value_ = (next_value_ + count) % (1 << 20);
    return values;
  }
  void write_more(ModelBranch& open) {
    const std::int64_t done = std::ssize(open.written);
    if (done == open.handle.rows()) return;
    const Values values = next_values(random_.between(1, open.handle.rows() - done));
    harness_.write(open.handle, open.handle.prefix() + done, values);
    open.written.insert(open.written.end(), values.begin(), values.end());
  }
  // The places that were missing, and some of the branch's own.
  void write_second(ModelBranch& open) {
    const std::int64_t first = open.from + std::ssize(open.second);
    const std::int64_t room = open.handle.prefix() + std::ssize(open.written) - first;
    if (room <= 0) return;
    const Values values = next_values(random_.between(1, room));
    harness_.write(open.handle, first, values, 1);
    open.second.insert(open.second.end(), values.begin(), values.end());
  }

  void drop(SequenceId id) {
    if (random_.one_in(2)) branches_.at(id).handle.rollback();
    branches_.erase(id);
  }

  // Some of the written rows, or the first of them; turned round: in any order.
  Path random_path(const ModelBranch& open, bool by_length, bool turned) {
    const std::int64_t one_in = random_.between(2, 5);
    const std::int64_t end = by_length ? random_.between(0, std::ssize(open.written)) : std::ssize(open.written);
    Path path;
    for (std::int64_t i = 0; i < end; ++i)
      if (by_length || !random_.one_in(one_in)) path.push_back(static_cast<std::int32_t>(open.handle.prefix() + i));
    if (!turned) return path;
    Path shuffled;
    for (std::int32_t i : random_.permutation(std::ssize(path))) shuffled.push_back(path[static_cast<std::size_t>(i)]);
    return shuffled;
  }

  // What the second memory keeps: the missing places it wrote, then rows of the branch in ascending order.
  KeptRows random_kept(const ModelBranch& open, std::int64_t length) {
    KeptRows kept{.to = open.from};
    const std::int64_t written_end = open.from + std::ssize(open.second);
    for (std::int64_t place = open.from; place < written_end && kept.end() < length; ++place) {
      if (place >= open.handle.prefix() && random_.one_in(3)) continue;
      kept.from.push_back(static_cast<std::int32_t>(place));
    }
    if (kept.end() < open.handle.prefix()) return {.to = open.handle.prefix()};  // it stays behind altogether
    return kept;
  }

  void commit(SequenceId id, bool by_length, bool turned) {
    ModelBranch& open = branches_.at(id);
    const std::int64_t prefix = open.handle.prefix();
    const Path path = random_path(open, by_length, turned);
    const std::int64_t length = prefix + std::ssize(path);
    const KeptRows kept = random_kept(open, length);
    open.handle.keep(harness_.cache.memory(1), kept);
    const bool gathers = !by_length && (!std::ranges::is_sorted(path) || setting_.reorder == Reorder::full);
    const std::int64_t free = free_blocks();
    std::int64_t needed = 0;
    const auto& home = tables().branch(open.handle.id()).home;
    for (std::int64_t i = 0; gathers && i < blocks_for(length); ++i)
      needed += tables().writable(home[static_cast<std::size_t>(i)]) ? 1 : 0;
    const bool gives_up = random_.one_in(4);  // rolls back once rows have moved
    const std::int64_t copies = harness_.device->kv_copies();
    const auto after_fault = [&] {
      open.interrupted = shared() && !gathers && harness_.device->kv_copies() > copies;
      if (open.interrupted && gives_up) open.handle.rollback();
    };
    const bool committed = run_with_faults(
        [&] {
          if (!open.handle.open()) return;
          if (by_length)
            open.handle.commit_length(std::ssize(path));
          else
            open.handle.commit_path(path);
        },
        after_fault);
    EXPECT_EQ(committed, needed <= free);
    if (committed && !(open.interrupted && gives_up)) keep(sequences_.at(id), open, path, kept);
    EXPECT_EQ(open.handle.open(), !committed);
    branches_.erase(id);
  }

  void keep(Held& held, const ModelBranch& open, const Path& path, const KeptRows& kept) const {
    const std::int64_t prefix = held.length();
    for (std::int32_t p : path) held.first.push_back(open.written[static_cast<std::size_t>(p - prefix)]);
    held.second.resize(held.first.size(), kNothing);
    if (kept.from.empty()) return;
    std::fill(held.second.begin() + kept.to, held.second.end(), kNothing);
    for (std::size_t j = 0; j < kept.from.size(); ++j)
      held.second[static_cast<std::size_t>(kept.to) + j] =
          open.second[static_cast<std::size_t>(kept.from[j] - open.from)];
    // A gap in front of what is kept makes the block forget what was before it.
    const auto gap = kept.to > 0 && held.second[static_cast<std::size_t>(kept.to - 1)] == kNothing;
    if (gap) std::fill(held.second.begin() + kept.to / size() * size(), held.second.begin() + kept.to, kNothing);
  }

  CacheSetting setting_;
  std::int64_t blocks_;
  RandomValues random_;
  CacheHarness harness_;
  std::map<SequenceId, Held> sequences_;
  std::map<SequenceId, ModelBranch> branches_;  // by sequence
  std::map<std::int32_t, Held> published_;      // by block
  std::int64_t next_value_ = 0;
  std::int64_t faults_ = 0;
  std::int64_t shared_ = 0;
};

class KvCacheRandom : public testing::TestWithParam<CacheSetting> {};

INSTANTIATE_TEST_SUITE_P(
    Settings, KvCacheRandom,
    testing::ValuesIn(all_settings({CacheDevice::plain, CacheDevice::checked, CacheDevice::ascend})), NameOfSetting());

TEST_P(KvCacheRandom, AnyRunOfOperationsEqualsAMapOfVectorsWhateverFails) {
  const bool plain = GetParam().device == CacheDevice::plain, ascend = GetParam().device == CacheDevice::ascend;
  const int operations = ascend ? 150 : (plain ? 1200 : 400) / (kSanitized ? 2 : 1);
  std::int64_t faults = 0, commits = 0, shared = 0;
  for (const std::uint64_t seed : {1, 2, 3}) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    RandomRun run(GetParam(), seed);
    run.run(operations);
    if (HasFailure()) return;
    faults += run.faults();
    commits += run.counts().commits;
    shared += run.shared_blocks();
  }
  RecordProperty("commits", std::to_string(commits));
  RecordProperty("faults", std::to_string(faults));
  EXPECT_GT(commits, operations / 6);
  EXPECT_GT(faults, operations / 8) << "a move has two calls that can fail, the upload of its lists and the copy";
  EXPECT_GT(shared, ascend ? 0 : operations / 100);
}

}  // namespace
}  // namespace espalier
