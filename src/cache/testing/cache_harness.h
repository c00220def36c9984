// For tests of the cache: a cache on a device that can fail, whose slots hold numbers that tell them apart, in every
// layer and in K and V alike.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "cache/kv_cache.h"
#include "device/conformance/faulty_device.h"

namespace espalier {

enum class CacheDevice { plain, checked, ascend };

struct CacheSetting {
  CacheStrategy strategy = CacheStrategy::shared;
  Reorder reorder = Reorder::fast;
  CacheDevice device = CacheDevice::plain;

  std::string name() const;  // letters and underscores
};
inline std::ostream& operator<<(std::ostream& out, const CacheSetting& setting) {
  return out << setting.name();
}

// Both strategies x both reorders on these devices.
std::vector<CacheSetting> all_settings(std::initializer_list<CacheDevice> devices);

struct NameOfSetting {
  std::string operator()(const testing::TestParamInfo<CacheSetting>& info) const { return info.param.name(); }
};

class CacheHarness {
 public:
  // A pool for `blocks` blocks of 4 slots (128 on the Ascend profile). A second memory has one layer instead of two.
  CacheHarness(const CacheSetting& setting, std::int64_t blocks, DType type = DType::f16, std::size_t memories = 1);

  std::int64_t block_size() const { return cache.block_size(); }

  // Writes these values to the branch's positions from `position` on, as a step would.
  void write(const Branch& branch, std::int64_t position, std::span<const std::int64_t> values, std::size_t memory = 0);
  // The value of each position; fails the running test where layers, K and V disagree.
  std::vector<std::int64_t> read(SequenceId table, std::int64_t begin, std::int64_t end, std::size_t memory = 0) const;
  // The same of what is written of a block, whoever holds it.
  std::vector<std::int64_t> read_block(std::int32_t block, std::size_t memory = 0) const;
  // K and V of all layers, as stored.
  std::vector<std::byte> bytes(SequenceId table, std::int64_t begin, std::int64_t end, std::size_t memory = 0) const;

  // A sequence with these values committed.
  SequenceId sequence(std::span<const std::int64_t> values);
  // A branch behind it with all rows written.
  Branch branch(SequenceId sequence, std::span<const std::int64_t> values);

  std::unique_ptr<FaultyDevice> device;
  KvCache cache;

 private:
  void write_call(std::span<const std::int64_t> values, std::vector<std::int32_t> slots, std::size_t memory);
  std::vector<std::int32_t> slots_of(SequenceId table, std::int64_t begin, std::int64_t end) const;
  std::vector<std::byte> bytes_of(std::span<const std::int32_t> slots, std::size_t memory) const;
  std::vector<std::int64_t> values_of(std::span<const std::int32_t> slots, std::size_t memory) const;
};

// n values from `first` on.
std::vector<std::int64_t> counting(std::int64_t first, std::int64_t n);

}  // namespace espalier
