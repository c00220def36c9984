// What the CUDA device adds to the ops of rounds: their place among ops that wait for each other, and its own limit.
#include <gtest/gtest.h>

#include "device/cuda/emulated/emulated_cuda_device.h"
#include "device/round_ops.h"

namespace espalier {
namespace {

class EmulatedRoundsTest : public ::testing::Test {
 protected:
  View ints(std::initializer_list<std::int64_t> shape) { return make(DType::i32, shape); }
  View make(DType type, std::initializer_list<std::int64_t> shape) {
    return memory_.emplace_back(device_->tensor(type, shape)).view;
  }
  NodeTables nodes(std::int64_t count) {
    return {.token = ints({1, count}),
            .parent = ints({1, count}),
            .depth = ints({1, count}),
            .score = make(DType::f64, {1, count}),
            .row = ints({1, count})};
  }

  std::unique_ptr<Device> device_ = make_emulated_cuda_device();
  std::vector<Tensor> memory_;
};

TEST_F(EmulatedRoundsTest, AnOpSeesWhatTheOneBeforeItInAStepMakes) {
  const View x = make(DType::f32, {1, 4}), w = make(DType::f32, {4}), y = make(DType::f32, {1, 4});
  const GuessTables guesses{.token = ints({1, 2}), .log_probability = make(DType::f64, {1, 2}), .count = ints({1})};
  upload<float>(*device_, std::vector{1.0f, 2.0f, 4.0f, 3.0f}, x);
  upload<float>(*device_, std::vector(4, 1.0f), w);
  upload<float>(*device_, std::vector(4, 0.0f), y);
  device_->step(*device_->make_recordings(), {}, [&] {
    device_->rms_norm(x, w, 1e-5f, y);
    device_->round_ops()->run(RankGuesses{.logits = y, .vocabulary = 4, .guesses = guesses});
  });
  std::vector<std::int32_t> tokens(2);
  download<std::int32_t>(*device_, guesses.token, tokens);
  EXPECT_EQ(tokens, (std::vector<std::int32_t>{2, 3}));
}

TEST_F(EmulatedRoundsTest, ATreeThatDoesNotFitIntoABlockIsRefused) {
  const View rows = ints({1});
  const ChooseRows fits{
      .nodes = nodes(4096), .rows = rows, .tree = nodes(3), .drafted = ints({1, 3}), .size = ints({1})};
  for (const View& table : {fits.nodes.token, fits.nodes.parent, fits.nodes.depth, fits.nodes.row})
    upload<std::int32_t>(*device_, std::vector<std::int32_t>(4096), table);
  upload<double>(*device_, std::vector<double>(4096), fits.nodes.score);
  upload<std::int32_t>(*device_, std::vector<std::int32_t>{3}, rows);
  device_->round_ops()->run(fits);
  std::vector<std::int32_t> size(1);
  download<std::int32_t>(*device_, fits.size, size);
  EXPECT_EQ(size[0], 1) << "the root alone";
  ChooseRows large = fits;
  large.nodes = nodes(4097);
  EXPECT_THROW(device_->round_ops()->run(large), std::logic_error);
}

}  // namespace
}  // namespace espalier
