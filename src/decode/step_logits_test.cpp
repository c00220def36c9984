#include "decode/step_logits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <stdexcept>

#include "base/error.h"
#include "decode/sampler.h"
#include "device/checked/checked_device.h"
#include "device/conformance/counting_device.h"
#include "device/conformance/remote_device.h"
#include "device/cpu/cpu_device.h"
#include "device/reference/reference_device.h"

namespace espalier {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// Devices that lend, and devices that do not.
struct LogitDevice {
  std::string name;
  bool lends = true;
  std::function<std::unique_ptr<Device>()> make;
};
std::vector<LogitDevice> logit_devices() {
  return {{"reference", true, [] { return make_reference_device(); }},
          {"cpu", true, [] { return make_cpu_device(); }},
          {"checked", true, [] { return make_checked_device(make_cpu_device()); }},
          {"remote_cpu", false, [] { return make_remote_device(make_cpu_device()); }},
          {"checked_remote", false, [] { return make_checked_device(make_remote_device(make_reference_device())); }},
          {"ascend", false,
           [] { return make_checked_device(make_reference_device(), {.profile = CheckedProfile::ascend}); }}};
}

// A step of eleven rows with everything that a row can be.
class StepLogitsTest : public ::testing::TestWithParam<LogitDevice> {
 protected:
  static constexpr std::int64_t kRows = 11, kWidth = 24;
  static constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  static constexpr float kInf = std::numeric_limits<float>::infinity();

  StepLogitsTest() {
    const std::int64_t padded = rows_of_step(device_, kRows);
    values_.assign(static_cast<std::size_t>(padded * kWidth), -1.0f);
    const auto set = [&](std::int64_t row, std::int64_t id, float value) {
      values_[static_cast<std::size_t>(row * kWidth + id)] = value;
    };
    for (std::int64_t row = 0; row < kRows; ++row) set(row, (row * 7) % kWidth, static_cast<float>(row));
    for (std::int64_t id : {9, 4, 17}) set(1, id, 5.0f);  // equals
    set(2, 20, 0.0f), set(2, 3, -0.0f), set(2, 14, -2.0f);
    set(3, 2, kNan);
    for (std::int64_t id = 0; id < kWidth; ++id) set(4, id, id % 2 ? kNan : -kInf);
    set(5, 11, kInf);
    for (std::int64_t id = 0; id < kWidth; ++id) set(6, id, -kInf);
    set(6, 23, -3e38f);
    logits_ = device_.tensor(DType::f32, {padded, kWidth});
    upload<float>(device_, values_, logits_);
    output_.logits = logits_.view.rows(0, kRows);
    output_.padded_logits = logits_.view;
  }

  std::span<const float> expected(std::int64_t row) const {
    return std::span(values_).subspan(static_cast<std::size_t>(row * kWidth), static_cast<std::size_t>(kWidth));
  }
  // What a greedy draw makes of a row, or why it refuses.
  static std::string drawn(const LogitRow& row) {
    try {
      return std::to_string(row.all.empty() ? sample_largest(row.largest, row.best) : sample(row.all, {}, {}, 0.5));
    } catch (const InputError& error) {
      return error.what();
    }
  }
  std::int64_t synchronisations() const { return device_.counts().synchronisations; }

  CountingDevice device_{GetParam().make()};
  std::vector<float> values_;
  Tensor logits_;
  StepOutput output_;
  StepLogits step_{device_, kRows};
};

INSTANTIATE_TEST_SUITE_P(Devices, StepLogitsTest, ::testing::ValuesIn(logit_devices()),
                         [](const auto& info) { return info.param.name; });

TEST_P(StepLogitsTest, WhereTheLargestDecidesEveryRowDrawsOrRefusesAsFromAllItsLogits) {
  step_.begin(output_, {{.count = kRows, .largest_decides = true}});
  for (std::int64_t row : {10, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9})
    EXPECT_EQ(drawn(step_.row(row)), drawn({.all = expected(row)})) << "row " << row;
  EXPECT_EQ(drawn(step_.row(1)), "4") << "the lowest id among equals";
  EXPECT_EQ(drawn(step_.row(2)), "3") << "minus zero is zero";
  EXPECT_THAT(drawn(step_.row(4)), HasSubstr("no finite number"));
  EXPECT_THAT(drawn(step_.row(5)), HasSubstr("plus infinity"));
  EXPECT_EQ(drawn(step_.row(6)), "23");
}

TEST_P(StepLogitsTest, AllLogitsComeBitForBit) {
  step_.begin(output_, {{.count = kRows}});
  for (std::int64_t row : {7, 0, 10, 5}) {
    const LogitRow read = step_.row(row);
    ASSERT_EQ(read.all.size(), static_cast<std::size_t>(kWidth));
    EXPECT_TRUE(std::ranges::equal(read.all, expected(row))) << "row " << row;
  }
}

TEST_P(StepLogitsTest, AStepIsReadWithOneSynchronisationWhenItsFirstRowIsLookedAt) {
  for (const bool largest : {true, false}) {
    const std::int64_t before = synchronisations();
    step_.begin(output_, {{.count = kRows, .largest_decides = largest}});
    EXPECT_EQ(synchronisations(), before) << "the step is on its way";
    for (std::int64_t row = 0; row < kRows; ++row) step_.row(row);
    EXPECT_EQ(synchronisations(), before + 1);
  }
}

TEST_P(StepLogitsTest, RowsOfAllKindsInOneStepStillComeTogether) {
  step_.begin(output_, {{.count = 3, .largest_decides = true}, {.begin = 3, .count = 5}, {8, 3, true}});
  for (std::int64_t row = 0; row < kRows; ++row) EXPECT_EQ(drawn(step_.row(row)), drawn({.all = expected(row)}));
  for (std::int64_t row = 3; row < 8; ++row) EXPECT_FALSE(step_.row(row).all.empty());
  EXPECT_EQ(synchronisations(), 1);
}

TEST_P(StepLogitsTest, ADeviceInHostMemoryCopiesNothingAndTheOthersReadTheLargestAlone) {
  const std::int64_t ops = device_.counts().ops;
  step_.begin(output_, {{.count = kRows, .largest_decides = true}});
  const LogitRow row = step_.row(7);
  if (GetParam().lends) {
    EXPECT_EQ(static_cast<const void*>(row.all.data()), logits_.view.rows(7, 1).data());
    EXPECT_EQ(device_.counts().ops, ops) << "rows that nobody visits are not looked at";
  } else {
    EXPECT_TRUE(row.all.empty());
    EXPECT_EQ(device_.counts().ops, ops + 1);
  }
}

TEST_P(StepLogitsTest, WhereEveryRowIsVisitedTheLargestIsFoundByEveryDevice) {
  const std::int64_t ops = device_.counts().ops;
  std::vector<DrawnRows> roots;
  for (std::int64_t row = 0; row < kRows; ++row) roots.push_back({row, 1, true});
  step_.begin(output_, roots);
  for (std::int64_t row = 0; row < kRows; ++row) {
    EXPECT_TRUE(step_.row(row).all.empty());
    EXPECT_EQ(drawn(step_.row(row)), drawn({.all = expected(row)})) << "row " << row;
  }
  EXPECT_EQ(device_.counts().ops, ops + 1);
  EXPECT_EQ(synchronisations(), 1);
  roots[3].largest_decides = false;
  step_.begin(output_, roots);
  EXPECT_FALSE(step_.row(3).all.empty()) << "unless somebody draws from all logits";
}

TEST_P(StepLogitsTest, TheNextStepIsReadAnew) {
  step_.begin(output_, {{.count = kRows, .largest_decides = true}});
  EXPECT_EQ(drawn(step_.row(7)), "1");
  values_[static_cast<std::size_t>(7 * kWidth + 12)] = 100.0f;
  upload<float>(device_, values_, logits_);
  step_.begin(output_, {{.count = kRows, .largest_decides = true}});
  EXPECT_EQ(drawn(step_.row(7)), "12");
}

TEST_P(StepLogitsTest, ARowThatNobodyAskedForIsRefused) {
  step_.begin(output_, {{.count = 4}});
  EXPECT_THAT([&] { step_.row(4); }, ThrowsMessage<std::logic_error>(HasSubstr("logits of row 4")));
}

}  // namespace
}  // namespace espalier
