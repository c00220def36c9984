// A cache with blocks of 4 slots and two memories, in which every position holds a number that depends on all tokens up
// to it, and its index. A text is a string, a token a character of it. For tests.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/random.h"
#include "cache/testing/cache_harness.h"
#include "decode/prefix_index.h"

namespace espalier {

class IndexedCache {
 public:
  static constexpr std::int64_t kNoLimit = 1000;

  explicit IndexedCache(std::int64_t blocks, CacheStrategy strategy = CacheStrategy::shared)
      : harness_({.strategy = strategy, .device = CacheDevice::checked}, blocks, DType::f16, 2),
        index(harness_.cache) {}

  KvCache& cache() { return harness_.cache; }
  FaultyDevice& device() { return *harness_.device; }
  const BlockTables& tables() { return cache().tables(); }
  std::int64_t length(SequenceId sequence) { return cache().length(sequence); }
  std::int64_t free_blocks() { return cache().free_positions() / cache().block_size(); }
  std::int32_t block(SequenceId sequence, std::size_t i) { return cache().blocks(sequence)[i]; }

  static std::vector<std::int32_t> ids(const std::string& text) { return {text.begin(), text.end()}; }

  // The sequence computes what it lacks of the text; false when blocks are short.
  bool try_compute(SequenceId sequence, const std::string& text) {
    const std::int64_t begin = length(sequence), rows = std::ssize(text) - begin;
    if (rows == 0) return true;
    std::optional<Branch> branch = cache().begin(sequence, rows);
    if (!branch) return false;
    const auto numbers = numbers_of(text, begin);
    for (const std::size_t memory : {0, 1}) harness_.write(*branch, begin, numbers, memory);
    KeptRows kept{.to = begin};
    for (std::int64_t p = begin; p < std::ssize(text); ++p) kept.from.push_back(static_cast<std::int32_t>(p));
    branch->keep(cache().memory(1), kept);
    branch->commit_length(rows);
    return true;
  }
  void compute(SequenceId sequence, const std::string& text) {
    check(try_compute(sequence, text), "no room for '{}'", text);
  }
  SequenceId computed(const std::string& text) {
    const SequenceId sequence = cache().create();
    compute(sequence, text);
    return sequence;
  }

  void publish(SequenceId sequence, const std::string& text, PrefixIndex::Tail tail = PrefixIndex::Tail::keep,
               const std::string& salt = "") {
    index.publish(sequence, ids(text), salt, tail);
  }
  // Computed, published and released.
  void leave(const std::string& text, PrefixIndex::Tail tail = PrefixIndex::Tail::keep, const std::string& salt = "") {
    const SequenceId sequence = computed(text);
    publish(sequence, text, tail, salt);
    cache().release(sequence);
  }

  std::int64_t extend(SequenceId sequence, const std::string& text, std::int64_t most = kNoLimit,
                      const std::string& salt = "") {
    const std::int64_t after = index.extend(sequence, ids(text), most, salt);
    EXPECT_EQ(after, length(sequence));
    expect_holds(sequence, text);
    return after;
  }
  SequenceId extended(const std::string& text) {
    const SequenceId sequence = cache().create();
    extend(sequence, text);
    return sequence;
  }
  std::int64_t found(const std::string& text, std::int64_t most = kNoLimit, const std::string& salt = "") {
    return index.find(ids(text), most, salt).length;
  }

  void expect_holds(SequenceId sequence, const std::string& text) {
    const auto numbers = numbers_of(text.substr(0, static_cast<std::size_t>(length(sequence))), 0);
    for (const std::size_t memory : {0, 1})
      EXPECT_EQ(harness_.read(sequence, 0, length(sequence), memory), numbers) << "memory " << memory << ", " << text;
  }

 private:
  CacheHarness harness_;

  static std::vector<std::int64_t> numbers_of(const std::string& text, std::int64_t begin) {
    std::vector<std::int64_t> numbers;
    std::uint64_t state = 1;
    for (const char token : text) {
      state = mix64(state * 31 + static_cast<std::uint64_t>(token));
      numbers.push_back(static_cast<std::int64_t>(state >> 43));  // 21 bits fit a slot
    }
    return {numbers.begin() + begin, numbers.end()};
  }

 public:
  PrefixIndex index;  // behind the cache it needs
};

}  // namespace espalier
