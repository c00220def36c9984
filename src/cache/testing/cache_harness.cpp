#include "cache/testing/cache_harness.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/error.h"
#include "base/float16.h"
#include "device/checked/checked_device.h"
#include "device/reference/reference_device.h"

namespace espalier {
namespace {

constexpr std::int64_t kHeads = 2, kHeadSize = 4, kWidth = kHeads * kHeadSize;

std::unique_ptr<FaultyDevice> make_device(CacheDevice kind) {
  if (kind == CacheDevice::plain) return std::make_unique<FaultyDevice>(make_reference_device());
  const auto profile = kind == CacheDevice::ascend ? CheckedProfile::ascend : CheckedProfile::plain;
  return std::make_unique<FaultyDevice>(make_checked_device(make_reference_device(), {.profile = profile}));
}

KvShape shape_for(CacheDevice device, DType type) {
  return {.layers = 2,
          .kv_heads = kHeads,
          .head_size = kHeadSize,
          .type = type,
          .block_size = device == CacheDevice::ascend ? 128 : 4};
}

// A slot of one layer: the value in digits that every KV type holds exactly, where it belongs, and a check sum.
void encode(std::int64_t value, std::int64_t layer, bool is_v, float* out) {
  const std::int64_t digits[] = {value & 127, value >> 7 & 127, value >> 14 & 127, layer, is_v ? 1 : 0};
  for (std::int64_t digit : digits) *out++ = static_cast<float>(digit);
  *out++ = static_cast<float>((value * 7 + layer * 3 + (is_v ? 1 : 0)) % 101);
  *out++ = -1.0f;
  *out = 0.5f;
}

std::int64_t decode(const float* in, std::int64_t layer, bool is_v) {
  const std::int64_t value = static_cast<std::int64_t>(in[0]) + (static_cast<std::int64_t>(in[1]) << 7) +
                             (static_cast<std::int64_t>(in[2]) << 14);
  float expected[kWidth];
  encode(value, layer, is_v, expected);
  return std::equal(in, in + kWidth, expected) ? value : -1;
}

float widened(const std::byte* element, DType type) {
  if (type == DType::f32) {
    float value;
    std::memcpy(&value, element, sizeof value);
    return value;
  }
  std::uint16_t half;
  std::memcpy(&half, element, sizeof half);
  return type == DType::f16 ? f16_to_f32(half) : bf16_to_f32(half);
}

}  // namespace

std::string CacheSetting::name() const {
  const char* const devices[] = {"plain", "checked", "ascend"};
  return std::string(strategy == CacheStrategy::shared ? "shared" : "replicate") +
         (reorder == Reorder::fast ? "_fast_" : "_full_") + devices[static_cast<int>(device)];
}

std::vector<CacheSetting> all_settings(std::initializer_list<CacheDevice> devices) {
  std::vector<CacheSetting> settings;
  for (CacheDevice device : devices)
    for (CacheStrategy strategy : {CacheStrategy::shared, CacheStrategy::replicate})
      for (Reorder reorder : {Reorder::fast, Reorder::full}) settings.push_back({strategy, reorder, device});
  return settings;
}

CacheHarness::CacheHarness(const CacheSetting& setting, std::int64_t blocks, DType type, std::size_t memories)
    : device(make_device(setting.device)),
      cache(*device, shape_for(setting.device, type), blocks * shape_for(setting.device, type).block_size,
            {.strategy = setting.strategy, .reorder = setting.reorder, .check = true}) {
  KvShape other = shape_for(setting.device, type);
  other.layers = 1;
  for (std::size_t i = 1; i < memories; ++i) cache.add_memory(other);
}

void CacheHarness::write(const Branch& branch, std::int64_t position, std::span<const std::int64_t> values,
                         std::size_t memory) {
  constexpr std::size_t kLongest = 64;
  for (std::size_t begin = 0; begin < values.size(); begin += kLongest) {
    const std::span<const std::int64_t> part = values.subspan(begin, std::min(kLongest, values.size() - begin));
    std::vector<std::int32_t> slots;
    for (std::size_t i = begin; i < begin + part.size(); ++i)
      slots.push_back(cache.slot(branch.id(), position + static_cast<std::int64_t>(i)));
    write_call(part, slots, memory);
  }
}

void CacheHarness::write_call(std::span<const std::int64_t> values, std::vector<std::int32_t> slots,
                              std::size_t memory) {
  const std::int64_t rows = bucket_for(*device, std::ssize(values));
  for (std::int64_t i = 0; static_cast<std::int64_t>(slots.size()) < rows; ++i)
    slots.push_back(cache.tables().padding_slot(i));
  const Tensor k = device->tensor(DType::f32, {rows, kHeads, kHeadSize});
  const Tensor v = device->tensor(DType::f32, {rows, kHeads, kHeadSize});
  const Tensor slot = device->tensor(DType::i32, {rows});
  upload<std::int32_t>(*device, slots, slot);
  const KvMemory& written = cache.memory(memory);
  for (std::int64_t layer = 0; layer < written.shape().layers; ++layer) {
    for (const bool is_v : {false, true}) {
      std::vector<float> elements(static_cast<std::size_t>(rows * kWidth));
      for (std::size_t i = 0; i < values.size(); ++i)
        encode(values[i], layer, is_v, elements.data() + static_cast<std::int64_t>(i) * kWidth);
      upload<float>(*device, elements, is_v ? v : k);
    }
    device->kv_write(k, v, slot, written.layer(layer));
  }
}

std::vector<std::byte> CacheHarness::bytes_of(std::span<const std::int32_t> slots, std::size_t memory) const {
  std::vector<std::byte> all;
  const KvMemory& read = cache.memory(memory);
  for (std::int64_t layer = 0; layer < read.shape().layers; ++layer)
    for (const View& views : {read.layer(layer).k, read.layer(layer).v}) {
      const View rows = views.reshaped({views.dim(0) * views.dim(1), views.dim(2), views.dim(3)});
      for (std::size_t i = 0; i < slots.size();) {  // runs of neighbours at once
        std::size_t count = 1;
        while (i + count < slots.size() && slots[i + count] == slots[i] + static_cast<std::int32_t>(count)) ++count;
        const View run = rows.rows(slots[i], static_cast<std::int64_t>(count));
        all.resize(all.size() + static_cast<std::size_t>(run.bytes_spanned()));
        device->download(run, std::span(all).last(static_cast<std::size_t>(run.bytes_spanned())));
        i += count;
      }
    }
  return all;
}

std::vector<std::int64_t> CacheHarness::values_of(std::span<const std::int32_t> slots, std::size_t memory) const {
  const std::vector<std::byte> stored = bytes_of(slots, memory);
  const KvShape& shape = cache.memory(memory).shape();
  const std::byte* element = stored.data();
  std::vector<std::int64_t> values;
  for (std::int64_t layer = 0; layer < shape.layers; ++layer)
    for (const bool is_v : {false, true})
      for (std::size_t i = 0; i < slots.size(); ++i) {
        float slot[kWidth];
        for (float& x : slot) {
          x = widened(element, shape.type);
          element += traits(shape.type).block_bytes;
        }
        const std::int64_t value = decode(slot, layer, is_v);
        if (values.size() <= i) values.push_back(value);
        EXPECT_EQ(value, values[i]) << (is_v ? "V" : "K") << " of layer " << layer << ", slot " << slots[i];
      }
  return values;
}

std::vector<std::byte> CacheHarness::bytes(SequenceId table, std::int64_t begin, std::int64_t end,
                                           std::size_t memory) const {
  return bytes_of(slots_of(table, begin, end), memory);
}

std::vector<std::int64_t> CacheHarness::read(SequenceId table, std::int64_t begin, std::int64_t end,
                                             std::size_t memory) const {
  return values_of(slots_of(table, begin, end), memory);
}

std::vector<std::int64_t> CacheHarness::read_block(std::int32_t block, std::size_t memory) const {
  const SlotRange range = cache.memory(memory).written(block);
  std::vector<std::int32_t> slots;
  for (std::int64_t i = range.begin; i < range.end; ++i)
    slots.push_back(static_cast<std::int32_t>(block * block_size() + i));
  return values_of(slots, memory);
}

std::vector<std::int32_t> CacheHarness::slots_of(SequenceId table, std::int64_t begin, std::int64_t end) const {
  std::vector<std::int32_t> slots;
  for (std::int64_t p = begin; p < end; ++p) slots.push_back(cache.slot(table, p));
  return slots;
}

SequenceId CacheHarness::sequence(std::span<const std::int64_t> values) {
  const SequenceId id = cache.create();
  if (!values.empty()) branch(id, values).commit_length(static_cast<std::int64_t>(values.size()));
  return id;
}

Branch CacheHarness::branch(SequenceId sequence, std::span<const std::int64_t> values) {
  std::optional<Branch> opened = cache.begin(sequence, static_cast<std::int64_t>(values.size()));
  check(opened.has_value(), "no room for {} rows behind sequence {}", values.size(), sequence);
  write(*opened, opened->prefix(), values);
  return std::move(*opened);
}

std::vector<std::int64_t> counting(std::int64_t first, std::int64_t n) {
  std::vector<std::int64_t> values(static_cast<std::size_t>(n));
  std::iota(values.begin(), values.end(), first);
  return values;
}

}  // namespace espalier
