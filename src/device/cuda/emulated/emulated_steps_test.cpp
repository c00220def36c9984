// Which steps the CUDA device records, by how often it asks for their ops.
#include <gtest/gtest.h>

#include "device/cuda/emulated/emulated_cuda_device.h"

namespace espalier {
namespace {

class EmulatedStepsTest : public ::testing::Test {
 protected:
  EmulatedStepsTest() {
    upload<float>(*device_, std::vector{0.0f}, sum_);
    upload<float>(*device_, std::vector{1.0f}, one_);
  }

  // Whether the step asked for its ops. It always computes, however it does it.
  bool asks(std::int64_t key, std::int64_t rows = 1) {
    bool asked = false;
    device_->step(*steps_, {.rows = rows, .context = key}, [&] {
      asked = true;
      device_->add(sum_, one_);
    });
    std::vector<float> sum(1);
    download<float>(*device_, sum_, sum);
    EXPECT_EQ(sum[0], ++runs_) << "key " << key;
    return asked;
  }
  void record(std::int64_t key) {
    asks(key), asks(key);
    EXPECT_FALSE(asks(key)) << key;
  }

  std::unique_ptr<Device> device_ = make_emulated_cuda_device();
  Tensor sum_ = device_->tensor(DType::f32, {1, 1}), one_ = device_->tensor(DType::f32, {1, 1});
  std::unique_ptr<Recordings> steps_ = device_->make_recordings();
  float runs_ = 0;
};

TEST_F(EmulatedStepsTest, AStepIsRecordedWhenItsKeyComesAgain) {
  EXPECT_TRUE(asks(1));
  EXPECT_TRUE(asks(1));
  EXPECT_FALSE(asks(1));
  EXPECT_TRUE(asks(2));
}

TEST_F(EmulatedStepsTest, AStepOfMoreRowsThanTheDeviceWantsRecordedNeverIs) {
  const std::int64_t most = device_->recorded_rows().back();
  for (int again = 0; again < 3; ++again) EXPECT_TRUE(asks(1, most + 1));
  asks(1, most), asks(1, most);
  EXPECT_FALSE(asks(1, most));
}

TEST_F(EmulatedStepsTest, OneThatFindsNoMemoryRunsOpByOpUntilThereIsSome) {
  EmulatedFault fault;
  EXPECT_TRUE(asks(1));
  fault.leave_memory(0);
  for (int again = 0; again < 3; ++again) EXPECT_TRUE(asks(1));
  fault.leave_memory(1 << 20);
  EXPECT_TRUE(asks(1));
  EXPECT_FALSE(asks(1));
}

TEST_F(EmulatedStepsTest, TheOneThatDidNotRunForLongestIsForgotten) {
  record(0);
  record(1);
  for (std::int64_t key = 2; key < 300; ++key) {
    record(key);
    EXPECT_FALSE(asks(0)) << "behind key " << key;
  }
  EXPECT_TRUE(asks(1));
  EXPECT_FALSE(asks(299));
}

TEST_F(EmulatedStepsTest, KeysThatCameOnceForgetNoRecordedStep) {
  record(0);
  for (std::int64_t key = 1; key < 5000; ++key) EXPECT_TRUE(asks(key));
  EXPECT_FALSE(asks(0));
}

}  // namespace
}  // namespace espalier
