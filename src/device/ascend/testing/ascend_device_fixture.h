// What the tests of the Ascend device share, beside its ops, which the conformance suite looks at: a fake of its API
// that must find no rule broken and nothing left when a test ends, and the smallest things that run on it.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/float16.h"
#include "device/ascend/ascend_device.h"
#include "device/conformance/fake_card.h"

namespace espalier {

class AscendDeviceTest : public testing::Test {
 protected:
  void TearDown() override { card_.expect_nothing_left(); }
  void fail(const std::function<void(AscendFakeOptions&)>& change) {
    AscendFakeOptions options = FakeCard::default_options();
    change(options);
    card_.reset(options);
  }
  // What opening it says.
  static std::string complaint(const ascend::Options& options = FakeCard::device_options()) {
    try {
      ascend::make_device(options);
    } catch (const DeviceError& error) {
      return error.what();
    }
    return "nothing";
  }
  static ascend::Options with_library(const std::string& library) {
    ascend::Options options = FakeCard::device_options();
    options.library.library = library;
    return options;
  }
  // Options of a device whose remarks are kept here.
  ascend::Options heard() {
    ascend::Options options = FakeCard::device_options();
    options.remark = [this](std::string_view line) { remarks_.emplace_back(line); };
    return options;
  }
  // All calls since the reset.
  static std::vector<std::string> calls(const FakeCard& card) {
    std::vector<std::string> names;
    for (std::uint64_t n = 1; n <= card.counters().calls; ++n) names.push_back(card.call(n));
    return names;
  }

  FakeCard card_;
  std::vector<std::string> remarks_;
};

// y = W x of two rows of ones on this device.
inline std::vector<float> product_with(Device& device, std::span<const WeightPart> parts) {
  const auto weight = device.load_weight(parts);
  const Tensor x = device.tensor(DType::f32, {2, weight->inputs()}),
               y = device.tensor(DType::f32, {2, weight->outputs()});
  upload<float>(device, std::vector<float>(static_cast<std::size_t>(2 * weight->inputs()), 1.0f), x);
  const Projection projection{weight.get(), {}, y};
  device.linear(x, {&projection, 1});
  std::vector<float> read(static_cast<std::size_t>(2 * weight->outputs()));
  download<float>(device, y, read);
  return read;
}

// The mean of two values, by attention over two keys that are equal; each of two rows sees keys of its own.
// columns: of the mask, for a table of one block    unseen: what values are that nobody sees
inline std::vector<float> attended(Device& device, std::int64_t columns = 128, float unseen = 7) {
  const Tensor q = device.tensor(DType::f32, {2, 1, 16}), out = device.tensor(DType::f32, {2, 1, 16});
  const Tensor k = device.tensor(DType::f16, {1, 128, 1, 16}), v = device.tensor(DType::f16, {1, 128, 1, 16});
  const Tensor blocks = device.tensor(DType::i32, {1, 1}), mask = device.tensor(DType::u8, {1, 1, 2, columns});
  std::vector<std::uint16_t> values(128 * 16, f32_to_f16(unseen));
  for (std::int64_t key = 0; key < 4; ++key)
    std::fill_n(values.begin() + key * 16, 16, f32_to_f16(key % 2 == 0 ? 1.0f : 3.0f));
  upload<std::uint16_t>(device, values, v);
  std::vector<std::uint8_t> hidden(static_cast<std::size_t>(2 * columns), 1);
  std::fill_n(hidden.begin(), 2, std::uint8_t{0});
  std::fill_n(hidden.begin() + columns + 2, 2, std::uint8_t{0});
  upload<std::uint8_t>(device, hidden, mask);
  const Tensor zeros = device.tensor(DType::i32, {2}), none = device.tensor(DType::i32, {2, 1});
  RowTables rows;
  rows.slot = rows.sequence = rows.begin = rows.end = rows.ancestor_count = zeros;
  rows.ancestors = none;
  rows.blocks = blocks;
  rows.mask = mask;
  device.attention(q, {k, v}, rows, 1.0f, out);
  std::vector<float> read(2 * 16);
  download<float>(device, out, read);
  return read;
}

}  // namespace espalier
