// Any run of calls of a prefix index, beside a list of what was published.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "decode/prefix_index.h"
#include "decode/testing/indexed_cache.h"
#include "device/conformance/random_values.h"

namespace espalier {
namespace {

// Random texts over two letters, so that many begin alike, beside a list of what was published.
class RandomTexts {
 public:
  RandomTexts(std::uint64_t seed, std::int64_t blocks, CacheStrategy strategy)
      : random_(seed), held_(blocks, strategy), blocks_(blocks) {}

  void run(int operations) {
    for (int i = 0; i < operations && !testing::Test::HasFailure(); ++i) {
      SCOPED_TRACE(testing::Message() << "operation " << i);
      one_operation();
    }
    EXPECT_TRUE(evictions() == 0 || short_of_blocks()) << "what is found would not be compared";
    release_everything();
  }

  std::int64_t evictions() const { return held_.index.counts().evictions; }
  std::int64_t reused() const { return held_.index.counts().positions_reused; }

 private:
  struct Running {
    SequenceId id = 0;
    std::string text = {};  // all of it, computed or not
    std::string salt = {};
  };

  bool short_of_blocks() const { return blocks_ < 100; }

  void one_operation() {
    if (running_.empty() || random_.one_in(4)) return start();
    const auto chosen = static_cast<std::size_t>(random_.below(std::ssize(running_)));
    if (running_.size() > 5) return finish(chosen);
    Running& run = running_[chosen];
    switch (random_.below(8)) {
      case 0: return finish(chosen);
      case 1: return fork(run);
      case 2: return cut(run);
      case 3: return publish(run, PrefixIndex::Tail::keep);
      case 4: return evict();
      case 5: return extend(run);
      default: return compute(run);
    }
  }

  std::string random_text(std::int64_t size) {
    std::string text;
    for (std::int64_t i = 0; i < size; ++i) text.push_back(random_.one_in(4) ? 'b' : 'a');
    return text;
  }

  void start() {
    running_.push_back({held_.cache().create(), random_text(random_.between(1, 20)), random_.one_in(4) ? "salt" : ""});
    extend(running_.back());
  }

  // Nothing but a hit changes the sequence, and as long as nothing was evicted it is all that was ever published.
  void extend(Running& run) {
    const std::int64_t before = held_.length(run.id);
    const std::int64_t most = random_.one_in(3) ? random_.between(0, std::ssize(run.text)) : IndexedCache::kNoLimit;
    const bool room = held_.free_blocks() > 0;
    const std::int64_t after = held_.extend(run.id, run.text, most, run.salt);
    const std::int64_t offered = std::max(before, std::min(most, longest_published(run)));
    EXPECT_LE(after, offered);
    if (room && evictions() == 0) {
      EXPECT_EQ(after, offered) << run.text;
    }
  }

  std::int64_t longest_published(const Running& run) {
    std::int64_t longest = 0;
    for (const std::string& text : published_[run.salt])
      longest = std::max(longest, std::ranges::mismatch(text, run.text).in1 - text.begin());
    return longest;
  }

  void compute(Running& run) {
    const std::int64_t length = held_.length(run.id);
    if (length == std::ssize(run.text)) run.text += random_text(3);
    const std::int64_t until = random_.one_in(2) ? random_.between(length, std::ssize(run.text)) : std::ssize(run.text);
    held_.try_compute(run.id, run.text.substr(0, static_cast<std::size_t>(until)));
    held_.expect_holds(run.id, run.text);
  }

  void publish(Running& run, PrefixIndex::Tail tail) {
    std::string text = run.text.substr(0, static_cast<std::size_t>(random_.between(0, held_.length(run.id))));
    held_.publish(run.id, text, tail, run.salt);
    if (tail == PrefixIndex::Tail::keep) text.resize(text.size() / 4 * 4);
    published_[run.salt].push_back(text);
  }

  void fork(const Running& run) {
    const std::int64_t length = random_.between(0, held_.length(run.id));
    Running other{held_.cache().fork(run.id, length), run.text.substr(0, static_cast<std::size_t>(length)), run.salt};
    other.text += random_text(5);
    running_.push_back(other);
  }

  void cut(Running& run) {
    const std::int64_t length = random_.between(0, held_.length(run.id));
    held_.cache().truncate(run.id, length);
    run.text = run.text.substr(0, static_cast<std::size_t>(length)) + random_text(5);
  }

  void evict() {
    if (!short_of_blocks()) return;
    const std::int64_t expected = held_.index.evictable(), most = random_.between(0, blocks_);
    EXPECT_EQ(held_.index.evict(most), std::min(expected, most));
    EXPECT_EQ(held_.index.evictable(), expected - std::min(expected, most));
  }

  void finish(std::size_t chosen) {
    const Running run = running_[chosen];
    if (!random_.one_in(3)) publish(running_[chosen], PrefixIndex::Tail::publish);
    held_.cache().release(run.id);
    running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(chosen));
  }

  void release_everything() {
    for (const Running& run : running_) {
      held_.expect_holds(run.id, run.text);
      held_.cache().release(run.id);
    }
    EXPECT_EQ(held_.index.evictable(), held_.index.size());
    held_.index.clear();
    EXPECT_EQ(held_.index.size(), 0);
    EXPECT_EQ(held_.free_blocks(), blocks_);
  }

  RandomValues random_;
  IndexedCache held_;
  std::int64_t blocks_;
  std::vector<Running> running_;
  std::map<std::string, std::vector<std::string>> published_;  // by salt
};

TEST(PrefixIndexRandom, FindsAllThatWasEverPublishedWhileThereIsRoom) {
  std::int64_t reused = 0;
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    RandomTexts texts(seed, 400, seed % 2 == 0 ? CacheStrategy::shared : CacheStrategy::replicate);
    texts.run(300);
    reused += texts.reused();
  }
  EXPECT_GT(reused, 300) << "the runs are about hits";
}

TEST(PrefixIndexRandom, GivesTheRightBytesAndAllBlocksBackWhereBlocksAreShort) {
  std::int64_t reused = 0, evictions = 0;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    RandomTexts texts(seed, 16, seed % 2 == 0 ? CacheStrategy::shared : CacheStrategy::replicate);
    texts.run(400);
    reused += texts.reused();
    evictions += texts.evictions();
  }
  EXPECT_GT(reused, 300) << "the runs are about hits";
  EXPECT_GT(evictions, 100) << "and about room for them";
}

}  // namespace
}  // namespace espalier
