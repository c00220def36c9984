#include "device/conformance/recording_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <stdexcept>
#include <vector>

#include "device/reference/reference_device.h"

namespace espalier {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class RecordingDeviceTest : public ::testing::Test {
 protected:
  explicit RecordingDeviceTest(Replay replay = Replay::blind)
      : device_(make_recording_device(make_reference_device(), replay)), recordings_(device_->make_recordings()) {}

  Tensor floats(const std::vector<float>& values) {
    Tensor tensor = device_->tensor(DType::f32, {1, static_cast<std::int64_t>(values.size())});
    upload<float>(*device_, values, tensor);
    return tensor;
  }
  Tensor integers(const std::vector<std::int32_t>& values) {
    Tensor tensor = device_->tensor(DType::i32, {static_cast<std::int64_t>(values.size())});
    upload<std::int32_t>(*device_, values, tensor);
    return tensor;
  }
  std::vector<float> read(const ConstView& view) {
    std::vector<float> values(static_cast<std::size_t>(view.elements()));
    download<float>(*device_, view, values);
    return values;
  }
  std::unique_ptr<const Weight> weight(const std::vector<float>& row) {
    const WeightPart part{DType::f32, 1, static_cast<std::int64_t>(row.size()), std::as_bytes(std::span(row))};
    return device_->load_weight(std::span(&part, 1));
  }
  void step(const std::function<void()>& ops, const StepKey& key = {.rows = 1}) {
    device_->step(*recordings_, key, ops);
  }
  void expect_refused(const std::function<void()>& ops, const char* why, const StepKey& key = {.rows = 1}) {
    EXPECT_THAT([&] { step(ops, key); }, ThrowsMessage<std::logic_error>(HasSubstr(why)));
  }
  void expect_counts(std::int64_t recorded, std::int64_t replayed) {
    EXPECT_EQ(device_->counts().recorded, recorded);
    EXPECT_EQ(device_->counts().replayed, replayed);
  }

  std::unique_ptr<RecordingDevice> device_;
  std::unique_ptr<Recordings> recordings_;
};

class ComparingDeviceTest : public RecordingDeviceTest {
 protected:
  ComparingDeviceTest() : RecordingDeviceTest(Replay::compared) {}
};

TEST_F(RecordingDeviceTest, ReplaysWhatIsInTheBuffersNowAndCallsNobody) {
  const Tensor x = floats({1, 2}), y = floats({10, 20});
  int calls = 0;
  const auto ops = [&] {
    ++calls;
    device_->add(x, y);
  };
  step(ops);
  EXPECT_EQ(read(x), (std::vector<float>{11, 22}));
  upload<float>(*device_, std::vector<float>{5, 6}, y);
  step(ops);
  EXPECT_EQ(read(x), (std::vector<float>{16, 28}));
  EXPECT_EQ(calls, 1);
  expect_counts(1, 1);
}

TEST_F(RecordingDeviceTest, AnotherKeyIsAnotherRecording) {
  const Tensor x = floats({1}), y = floats({10});
  step([&] { device_->add(x, y); }, {.rows = 1});
  step([&] { device_->silu(y); }, {.rows = 1, .form = 1});
  step([] { FAIL() << "known"; }, {.rows = 1});
  EXPECT_EQ(read(x)[0], 11 + read(y)[0]);
  expect_counts(2, 1);
}

TEST_F(RecordingDeviceTest, WorkspacesKnowNothingOfEachOthersSteps) {
  const Tensor x = floats({1}), y = floats({10});
  const auto others = device_->make_recordings();
  step([&] { device_->add(x, y); });
  device_->step(*others, {.rows = 1}, [&] { device_->add(y, x); });
  EXPECT_EQ(read(x)[0], 11);
  EXPECT_EQ(read(y)[0], 21);
  expect_counts(2, 0);
}

TEST_F(RecordingDeviceTest, ListsAreCopiedIntoTheRecording) {
  const Tensor x = floats({1, 2}), y = floats({0}), bias = floats({100});
  const auto matrix = weight({3, 4});
  std::optional<std::vector<Projection>> projections;
  projections.emplace(1, Projection{matrix.get(), bias.view.reshaped({1}), y});
  step([&] { device_->linear(x, *projections); });
  projections.reset();
  upload<float>(*device_, std::vector<float>{2, 1}, x);
  step([] {});
  EXPECT_EQ(read(y)[0], 110);
}

TEST_F(RecordingDeviceTest, ReplaysOpsThatNoModelRecordsToday) {
  const Tensor x = floats({3, 7, 5}), value = floats({0, 0}), sum = floats({0});
  const Tensor best = integers({0}), ids = device_->tensor(DType::i32, {1, 2});
  const Tensor k = device_->tensor(DType::f32, {1, 2, 1, 1}), v = device_->tensor(DType::f32, {1, 2, 1, 1});
  const Tensor from = integers({0}), to = integers({1});
  for (const Tensor* memory : {&k, &v}) upload<float>(*device_, std::vector<float>{4, 9}, *memory);
  step([&] {
    device_->argmax(x, best);
    device_->top_k(x, value, ids);
    device_->log_sum_exp(x, 1, sum.view.reshaped({1}));
    device_->kv_copy(std::vector<KvViews>{{k, v}}, from, to);
  });
  upload<float>(*device_, std::vector<float>{8, 7, 9}, x);
  upload<float>(*device_, std::vector<float>{6, 9}, v);
  step([] {});
  std::vector<std::int32_t> id(1);
  download<std::int32_t>(*device_, best, id);
  EXPECT_EQ(id[0], 2);
  EXPECT_EQ(read(value), (std::vector<float>{9, 8}));
  EXPECT_GT(read(sum)[0], 9);
  EXPECT_EQ(read(k), (std::vector<float>{4, 4}));
  EXPECT_EQ(read(v), (std::vector<float>{6, 6}));
}

TEST_F(RecordingDeviceTest, RefusesMemoryThatIsGoneAlsoWhereOtherMemoryLiesThereNow) {
  const Tensor x = floats({1, 2});
  std::optional<Tensor> y = floats({3, 4});
  step([&] { device_->add(x, *y); });
  y.reset();
  expect_refused([] {}, "f32 [1, 2] lies in memory that is gone");
  y = floats({3, 4});  // likely at the same address
  expect_refused([] {}, "f32 [1, 2] lies in memory that is gone");
  EXPECT_EQ(read(x), (std::vector<float>{4, 6})) << "refused, and not computed";
}

TEST_F(RecordingDeviceTest, RefusesAWeightThatIsGone) {
  const Tensor x = floats({1, 2}), y = floats({0});
  auto matrix = weight({3, 4});
  step([&] {
    const Projection projection{matrix.get(), {}, y};
    device_->linear(x, std::span(&projection, 1));
  });
  matrix.reset();
  expect_refused([] {}, "a weight that is gone");
}

TEST_F(RecordingDeviceTest, RefusesHostMemoryAsAnOperandOfAStep) {
  const Tensor x = floats({1, 2});
  std::vector<float> host = {3, 4};
  const ConstView y(reinterpret_cast<const std::byte*>(host.data()), DType::f32, {1, 2});
  expect_refused([&] { device_->add(x, y); }, "is no memory of this device");
  step([&] { device_->silu(x); });
  expect_counts(1, 0);
}

TEST_F(RecordingDeviceTest, NothingComesFromOrGoesToTheHostInsideAStep) {
  const Tensor x = floats({1, 2});
  expect_refused([&] { read(x); }, "download inside a step");
  expect_refused([&] { device_->lend(x); }, "lend inside a step");
  expect_refused([&] { upload<float>(*device_, std::vector<float>{1, 2}, x); }, "upload inside a step");
  expect_refused([&] { device_->allocate(4); }, "allocate inside a step");
  expect_refused([&] { weight({1}); }, "load_weight inside a step");
  expect_refused([&] { device_->discard(x); }, "discard inside a step");
  expect_refused([&] { step([&] { device_->allocate(4); }); }, "allocate inside a step");
  expect_refused([&] { device_->make_recordings(); }, "make_recordings inside a step");
  EXPECT_EQ(read(x), (std::vector<float>{1, 2})) << "a step that failed is over";
}

TEST_F(RecordingDeviceTest, AStepWhoseOpsThrowIsNotRecorded) {
  const Tensor x = floats({1}), y = floats({10});
  EXPECT_THROW(step([&] {
                 device_->add(x, y);
                 throw std::runtime_error("no");
               }),
               std::runtime_error);
  EXPECT_EQ(read(x)[0], 1);
  step([&] { device_->add(x, y); });
  EXPECT_EQ(read(x)[0], 11);
  expect_counts(1, 0);
}

TEST_F(RecordingDeviceTest, RefusesRecordingsOfAnotherDevice) {
  Recordings none;
  EXPECT_THROW(device_->step(none, {}, [] {}), std::logic_error);
  const auto other = make_recording_device(make_reference_device(), Replay::blind);
  EXPECT_THROW(device_->step(*other->make_recordings(), {}, [] {}), std::logic_error);
}

TEST_F(ComparingDeviceTest, ReplaysOnceWhatIsCalledAgain) {
  const Tensor x = floats({1}), y = floats({10});
  for (int i = 0; i < 3; ++i) step([&] { device_->add(x, y); });
  EXPECT_EQ(read(x)[0], 31);
  expect_counts(1, 2);
}

TEST_F(ComparingDeviceTest, RefusesAnOpThatWasNotRecordedAndOneThatIsMissing) {
  const Tensor x = floats({1}), y = floats({10});
  step([&] { device_->add(x, y); });
  expect_refused(
      [&] {
        device_->add(x, y);
        device_->silu(x);
      },
      "silu f32 [1, 1]: was not recorded");
  expect_refused([] {}, "add f32 [1, 1] f32 [1, 1]: was recorded, and is missing now");
  EXPECT_EQ(read(x)[0], 11) << "refused, and not computed";
}

TEST_F(ComparingDeviceTest, RefusesAnotherViewAnotherNumberAnotherWeightAnotherOp) {
  const Tensor x = floats({1, 2, 3}), y = floats({10, 20, 30}), z = floats({0}), w = floats({1, 1, 1});
  const auto matrix = weight({1, 2, 3}), other = weight({1, 2, 3});
  const auto ops = [&](const Tensor& added, float eps, const std::unique_ptr<const Weight>& product) {
    return [&, eps] {
      device_->add(x, added);
      device_->rms_norm(x, w.view.reshaped({3}), eps, y);
      const Projection projection{product.get(), {}, z};
      device_->linear(y, std::span(&projection, 1));
    };
  };
  step(ops(w, 1, matrix));
  step(ops(w, 1, matrix));
  expect_refused(ops(y, 1, matrix), "add f32 [1, 3] f32 [1, 3]: recorded was add f32 [1, 3] f32 [1, 3], or the same");
  expect_refused(ops(w, 2, matrix), "f32 [1, 3] 2: recorded was rms_norm f32 [1, 3] f32 [3] f32 [1, 3] 1");
  expect_refused(ops(w, 1, other), "linear f32 [1, 3] - f32 [1, 1]: recorded was linear");
  expect_refused([&] { device_->silu(x); }, "silu f32 [1, 3]: recorded was add");
}

TEST_F(ComparingDeviceTest, NothingIsReadFromTheHostDuringAReplay) {
  const Tensor x = floats({1});
  step([&] { device_->silu(x); });
  expect_refused([&] { upload<float>(*device_, std::vector<float>{2}, x); }, "upload inside a step");
  expect_refused([&] { device_->lend(x); }, "lend inside a step");
}

}  // namespace
}  // namespace espalier
