// The CUDA device's host code when the GPU has no more memory, or is gone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "device/cuda/emulated/emulated_cuda_device.h"

namespace espalier {
namespace {

using ::testing::HasSubstr;

std::string failure_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const DeviceError& error) {
    return error.what();
  }
  return "no error";
}

class EmulatedFaultTest : public ::testing::Test {
 protected:
  std::unique_ptr<Device> device_ = make_emulated_cuda_device();
  EmulatedFault fault_;
};

TEST_F(EmulatedFaultTest, MemoryThatIsFreeIsTold) {
  fault_.leave_memory(3 << 20);
  EXPECT_EQ(device_->free_memory(), 3 << 20);
  const auto buffer = device_->allocate(1 << 20);
  EXPECT_EQ(device_->free_memory(), 2 << 20);
}

TEST_F(EmulatedFaultTest, MemoryThatRunsOutIsToldInNumbersAndTheDeviceGoesOn) {
  fault_.leave_memory(3 << 20);
  EXPECT_EQ(failure_of([&] { device_->allocate(4 << 20); }),
            "CUDA: no memory for a buffer (4.0 MiB): 3.0 of 1024.0 MiB are free");
  const Tensor tensor = device_->tensor(DType::i32, {4});
  const std::vector<std::int32_t> values = {1, 2, 3, 4};
  upload<std::int32_t>(*device_, values, tensor);
  std::vector<std::int32_t> back(4);
  download<std::int32_t>(*device_, tensor, back);
  EXPECT_EQ(back, values);
}

TEST_F(EmulatedFaultTest, WeightsThatDoNotFitAreTold) {
  const std::vector<std::byte> bytes(64 * 64 * 4);
  const WeightPart part{DType::f32, 64, 64, bytes};
  fault_.leave_memory(1 << 10);
  EXPECT_THAT(failure_of([&] { device_->load_weight({&part, 1}); }), HasSubstr("CUDA: no memory for weights"));
}

TEST_F(EmulatedFaultTest, KernelsTakeNoMoreMemoryThanTheyNeedWhereThereIsLittle) {
  const std::vector<std::byte> bytes(32 * 34);
  const WeightPart part{DType::q8_0, 32, 32, bytes};
  const auto weight = device_->load_weight({&part, 1});
  const Tensor x = device_->tensor(DType::f32, {1, 32}), y = device_->tensor(DType::f32, {1, 32});
  upload<float>(*device_, std::vector(32, 1.0f), x);
  const Projection projection{weight.get(), {}, y};
  fault_.leave_memory(100);
  EXPECT_THAT(failure_of([&] { device_->linear(x, {&projection, 1}); }), HasSubstr("CUDA: no memory for what kernels"));
  fault_.leave_memory(10'000);
  device_->linear(x, {&projection, 1});
  std::vector<float> sums(32, 1.0f);
  download<float>(*device_, y, sums);
  EXPECT_EQ(sums, std::vector(32, 0.0f)) << "all weights are zeros";
}

TEST_F(EmulatedFaultTest, ADeviceThatIsLostFailsEveryCallAndCanBeGivenBack) {
  const Tensor tensor = device_->tensor(DType::i32, {4});
  std::vector<std::int32_t> values(4);
  fault_.lose_device();
  for (int again = 0; again < 2; ++again) {
    EXPECT_THAT(failure_of([&] { upload<std::int32_t>(*device_, values, tensor); }), HasSubstr("unknown error"));
    EXPECT_THAT(failure_of([&] { download<std::int32_t>(*device_, tensor, values); }), HasSubstr("unknown error"));
    EXPECT_THAT(failure_of([&] { device_->allocate(1); }), HasSubstr("unknown error"));
    EXPECT_THAT(failure_of([&] { (void)device_->free_memory(); }), HasSubstr("unknown error"));
  }
  device_.reset();
}

}  // namespace
}  // namespace espalier
