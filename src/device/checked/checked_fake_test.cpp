// The checked device's Ascend profile, around the Ascend device on its fake, which multiplies hidden keys by 0, and
// around one that does not: poison is finite.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "device/checked/checked_device.h"
#include "device/conformance/attention_scenario.h"
#include "device/conformance/bounds.h"
#include "device/conformance/fake_card.h"
#include "device/passing_device.h"
#include "device/reference/reference_device.h"

namespace espalier {
namespace {

// Lets row 0 see the last column of its mask, a key that nobody wrote.
class LeakyDevice : public PassingDevice {
 public:
  explicit LeakyDevice(std::unique_ptr<Device> inner) : PassingDevice(*inner), owned_(std::move(inner)) {}

 private:
  void do_attention(ConstView q, const KvViews& kv, const RowTables& rows, float scale, View out) override {
    std::vector<std::uint8_t> mask(static_cast<std::size_t>(rows.mask.elements()));
    espalier::download<std::uint8_t>(inner(), rows.mask, mask);
    mask[static_cast<std::size_t>(rows.mask.dim(3)) - 1] = 0;
    const Tensor leaking = inner().tensor(DType::u8, {1, 1, rows.mask.dim(2), rows.mask.dim(3)});
    espalier::upload<std::uint8_t>(inner(), mask, leaking);
    RowTables others = rows;
    others.mask = leaking;
    inner().attention(q, kv, others, scale, out);
  }
  std::unique_ptr<Device> owned_;
};

class CheckedFake : public testing::Test {
 protected:
  void TearDown() override { fake_.expect_nothing_left(); }
  // Of a tree behind a prefix, so that the last keys of the last block are nobody's.
  std::vector<float> attended(std::unique_ptr<Device> device) const {
    const auto checked = make_checked_device(std::move(device), {.profile = CheckedProfile::ascend});
    return run_attention(*checked, scenario_, DType::f16, AttentionForm::mask, 1);
  }

  // A leak into row 0: finite, far from what is expected, and in no other row.
  void expect_wrong_first_row(const std::vector<float>& leaking) const {
    const std::vector<double> bounds = attention_bounds(scenario_, DType::f16, 0.25f);
    double furthest = 0;
    for (std::size_t i = 0; i < 32; ++i) {  // both heads of row 0
      EXPECT_TRUE(std::isfinite(leaking[i]));
      furthest = std::max(furthest, std::fabs(double{leaking[i]} - expected_[i]) / bounds[i]);
    }
    EXPECT_GT(furthest, 10);
    for (std::size_t i = 32; i < leaking.size(); ++i) EXPECT_LE(std::fabs(leaking[i] - expected_[i]), bounds[i]);
  }

  FakeCard fake_;
  AttentionScenario scenario_{{.rows = 16,
                               .sequences = 1,
                               .shortest_prefix = 140,
                               .longest_prefix = 150,
                               .block_size = 128,
                               .kv_heads = 1,
                               .group = 2,
                               .dim = 16},
                              5};
  std::vector<float> expected_ =
      run_attention(*make_reference_device(), scenario_, DType::f16, AttentionForm::lists, 1);
};

TEST_F(CheckedFake, ChecksEveryCallOfTheAscendDeviceAndItsPoisonEntersNoResult) {
  expect_within(attended(fake_.open_anew()), expected_, attention_bounds(scenario_, DType::f16, 0.25f));
}

TEST_F(CheckedFake, AKeyThatLeaksShowsAsAWrongNumberAndNotAsNan) {
  expect_wrong_first_row(attended(std::make_unique<LeakyDevice>(fake_.open_anew())));
}

TEST_F(CheckedFake, TheProfilesPoisonIsFiniteAroundADeviceThatMultipliesNoHiddenKeysToo) {
  expect_wrong_first_row(attended(std::make_unique<LeakyDevice>(make_reference_device())));
}

}  // namespace
}  // namespace espalier
