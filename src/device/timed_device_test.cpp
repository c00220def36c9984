#include "device/timed_device.h"

#include <gtest/gtest.h>

#include "device/conformance/remote_device.h"
#include "device/reference/reference_device.h"

namespace espalier {
namespace {

// A linear and a norm over one small row.
class TimedDeviceTest : public ::testing::Test {
 protected:
  TimedDeviceTest() {
    const std::vector<float> weight(64 * 64, 0.5f), ones(64, 1.0f);
    const WeightPart part{DType::f32, 64, 64, std::as_bytes(std::span(weight))};
    weight_ = device_->load_weight(std::span(&part, 1));
    for (Tensor* tensor : {&x_, &y_}) upload<float>(*device_, ones, *tensor);
    upload<float>(*device_, ones, norm_);
  }
  void multiply() {
    const Projection projection{weight_.get(), {}, y_};
    device_->linear(x_, std::span(&projection, 1));
  }
  void normalise() { device_->rms_norm(x_, norm_, 1e-5f, y_); }
  std::vector<float> result() {
    std::vector<float> values(64);
    download<float>(*device_, y_, values);
    return values;
  }

  std::unique_ptr<TimedDevice> device_ = std::make_unique<TimedDevice>(make_reference_device());
  std::unique_ptr<const Weight> weight_;
  Tensor x_ = device_->tensor(DType::f32, {1, 64}), y_ = device_->tensor(DType::f32, {1, 64});
  Tensor norm_ = device_->tensor(DType::f32, {64});
};

TEST_F(TimedDeviceTest, ComputesWhatTheInnerDeviceComputes) {
  multiply();
  EXPECT_EQ(result(), std::vector<float>(64, 32.0f));
  EXPECT_EQ(device_->name(), make_reference_device()->name());
}

TEST_F(TimedDeviceTest, TellsLinearsFromOtherOps) {
  device_->start();
  multiply();
  const OpSeconds linear = device_->stop();
  EXPECT_GT(linear.linear, 0);
  EXPECT_EQ(linear.attention, 0);
  device_->start();
  normalise();
  const OpSeconds norm = device_->stop();
  EXPECT_EQ(norm.linear + norm.attention, 0);
}

TEST_F(TimedDeviceTest, WaitsForADeviceWithMemoryOfItsOwn) {
  device_ = std::make_unique<TimedDevice>(make_remote_device(make_reference_device()));
  Tensor x = device_->tensor(DType::f32, {1, 64}), y = device_->tensor(DType::f32, {1, 64});
  const std::vector<float> ones(64, 1.0f);
  upload<float>(*device_, ones, x);
  const WeightPart part{DType::f32, 1, 64, std::as_bytes(std::span(ones))};
  const auto weight = device_->load_weight({&part, 1});
  const Projection projection{weight.get(), {}, y.view.columns(0, 1)};
  device_->start();
  device_->linear(x, {&projection, 1});
  EXPECT_GT(device_->stop().linear, 0);
  std::vector<float> sum(1);
  download<float>(*device_, y.view.columns(0, 1), sum);
  EXPECT_EQ(sum[0], 64.0f);
}

TEST_F(TimedDeviceTest, CountsOnlyBetweenStartAndStop) {
  multiply();
  device_->start();
  EXPECT_EQ(device_->stop().linear, 0);
  multiply();
  EXPECT_EQ(device_->stop().linear, 0);
}

}  // namespace
}  // namespace espalier
