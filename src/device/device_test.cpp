// What the public methods of a device refuse before any kernel runs.
#include "device/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "device/checked/checked_device.h"
#include "device/conformance/random_values.h"
#include "device/passing_device.h"
#include "device/reference/reference_device.h"

namespace espalier {
namespace {

class DeviceContract : public testing::Test {
 protected:
  Tensor floats(std::initializer_list<std::int64_t> shape) { return device_->tensor(DType::f32, shape); }
  Tensor ints(std::initializer_list<std::int64_t> shape) { return device_->tensor(DType::i32, shape); }
  template <typename Call>
  static void expect_refused(const Call& call, const char* text) {
    EXPECT_THAT(call, testing::ThrowsMessage<std::logic_error>(testing::HasSubstr(text)));
  }
  std::unique_ptr<const Weight> weight(std::int64_t outputs, std::int64_t inputs) {
    const std::vector<std::byte> bytes = RandomValues(1).weight(DType::f32, outputs, inputs);
    const WeightPart part{DType::f32, outputs, inputs, bytes};
    return device_->load_weight({&part, 1});
  }

  std::unique_ptr<Device> device_ = make_reference_device();
};

TEST_F(DeviceContract, MemoryGoesThereAndBack) {
  const Tensor x = floats({2, 3});
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  upload<float>(*device_, values, x);
  std::vector<float> back(6);
  download<float>(*device_, x, back);
  EXPECT_EQ(back, values);
  expect_refused([&] { device_->allocate(0); }, "allocate: 0 bytes");
  expect_refused([&] { upload<float>(*device_, std::vector<float>(5), x); }, "upload: 20 bytes into f32 [2, 3]");
  expect_refused([&] { download<float>(*device_, x.view.columns(0, 2), back); }, "download: f32 [2, 2] row stride 3");
}

TEST_F(DeviceContract, EveryPartOfADownloadFitsItsPlace) {
  const Tensor x = floats({2, 3});
  upload<float>(*device_, std::vector<float>{1, 2, 3, 4, 5, 6}, x);
  std::vector<float> one(3), two(6);
  const auto parts = [&](ConstView first, ConstView second) {
    return [&, first, second] {
      device_->download(std::vector{part_of_download(first, std::span(one)), part_of_download(second, std::span(two))});
    };
  };
  parts(x.view.rows(1, 1), x)();
  EXPECT_EQ(one, (std::vector<float>{4, 5, 6}));
  EXPECT_EQ(two, (std::vector<float>{1, 2, 3, 4, 5, 6}));
  expect_refused([&] { device_->download(std::span<const Download>()); }, "download: no parts");
  expect_refused(parts(x.view.rows(1, 1), x.view.rows(0, 1)), "download: f32 [1, 3] into 24 bytes");
  expect_refused(parts(x.view.columns(0, 2), x), "download: f32 [2, 2] row stride 3");
}

TEST_F(DeviceContract, OnlyDenseViewsAreLent) {
  const Tensor x = floats({2, 3});
  upload<float>(*device_, std::vector<float>{1, 2, 3, 4, 5, 6}, x);
  const std::span<const std::byte> lent = device_->lend(x.view.rows(1, 1));
  ASSERT_EQ(lent.size(), 3 * sizeof(float));
  EXPECT_EQ(reinterpret_cast<const float*>(lent.data())[2], 6.0f);
  expect_refused([&] { device_->lend(x.view.columns(0, 2)); }, "lend: f32 [2, 2] row stride 3");
  expect_refused([&] { device_->lend(x.view.rows(0, 0)); }, "lend: f32 [0, 3]");
}

TEST_F(DeviceContract, WeightsAreWholeRowsOfOneWidth) {
  const std::vector<std::byte> bytes(64);
  const WeightPart good{DType::f32, 2, 8, bytes}, short_part{DType::f32, 3, 8, bytes}, other{DType::f32, 4, 4, bytes};
  const WeightPart integers{DType::i32, 2, 8, bytes}, torn{DType::q8_0, 1, 8, bytes};
  EXPECT_EQ(device_->load_weight(std::vector{good, good})->outputs(), 4);
  expect_refused([&] { device_->load_weight({}); }, "load_weight: no parts");
  expect_refused([&] { device_->load_weight({&short_part, 1}); }, "load_weight: 64 bytes, expected 96");
  expect_refused(
      [&] {
        device_->load_weight(std::vector{good, other});
      },
      "load_weight: part [4, 4], expected [>= 1, 8]");
  expect_refused([&] { device_->load_weight({&integers, 1}); }, "load_weight: type i32");
  expect_refused([&] { device_->load_weight({&torn, 1}); }, "not a whole number of q8_0 blocks");
}

TEST_F(DeviceContract, ShapesAndTypesAreCheckedByName) {
  const Tensor x = floats({2, 8}), w = floats({8}), narrow = floats({2, 7}), index = ints({2});
  const auto square = weight(8, 8);
  expect_refused([&] { device_->rms_norm(x, w, 1e-5f, narrow); }, "rms_norm: y is f32 [2, 7], expected f32 [2, 8]");
  expect_refused([&] { device_->embed(*square, index, narrow); }, "embed: y is");
  expect_refused([&] { device_->add(x, index); }, "add: y is i32 [2]");
  expect_refused([&] { device_->swiglu(x, x); }, "swiglu: x is");
  expect_refused([&] { device_->rope(floats({2, 1, 7}), index, w, w); }, "rope: head size 7 is odd");
  expect_refused([&] { device_->rope(floats({2, 1, 8}), index, floats({9, 4}), floats({8, 4})); }, "rope: sine is");
  expect_refused([&] { device_->gather_rows(x, ints({3}), x); }, "gather_rows: y is");
  expect_refused([&] { device_->argmax(x, ints({3})); }, "argmax: id is");
  expect_refused([&] { device_->top_k(x, floats({2, 9}), ints({2, 9})); }, "top_k: k 9 of 8 columns");
  expect_refused([&] { device_->silu(index); }, "silu: x is i32 [2], expected f32 [-1, -1]");
  expect_refused([&] { device_->log_sum_exp(x, 1.0f, floats({3})); }, "log_sum_exp: y is f32 [3], expected f32 [2]");
  expect_refused([&] { device_->log_sum_exp(index, 1.0f, floats({2})); }, "log_sum_exp: x is i32 [2]");
  for (const float scale : {0.0f, -1.0f, std::numeric_limits<float>::quiet_NaN()})
    expect_refused([&] { device_->log_sum_exp(x, scale, floats({2})); }, "expected more than 0");
  expect_refused([&] { device_->linear(x, {}); }, "linear: no projections");
  const Projection wrong_rows{square.get(), {}, floats({3, 8}).view}, no_weight{nullptr, {}, x};
  expect_refused([&] { device_->linear(x, {&wrong_rows, 1}); }, "linear: y is");
  expect_refused([&] { device_->linear(x, {&no_weight, 1}); }, "linear: weight with 0 inputs");
}

TEST_F(DeviceContract, StridedOperandsAreRefusedWhereTheContractWantsDenseOnes) {
  const Tensor wide = floats({2, 16}), x = floats({2, 8}), w = floats({8});
  expect_refused([&] { device_->rms_norm(wide.view.columns(0, 8), w, 1e-5f, x); },
                 "rms_norm: x is f32 [2, 8] row stride");
  expect_refused([&] { device_->add(x, wide.view.columns(0, 8)); }, "expected a dense view");
  expect_refused([&] { device_->silu(wide.view.columns(0, 8)); }, "silu: x is f32 [2, 8] row stride 16");
}

TEST_F(DeviceContract, AttentionOperandsFitTogether) {
  const Tensor q = floats({2, 4, 8}), three_heads = floats({2, 3, 8}), table = ints({2, 1}), column = ints({2});
  const Tensor kv_memory = device_->tensor(DType::f16, {3, 16, 2, 8}),
               other = device_->tensor(DType::f16, {2, 16, 2, 8});
  const KvViews kv{kv_memory, kv_memory};
  RowTables rows;
  rows.slot = rows.sequence = rows.begin = rows.end = rows.ancestor_count = column;
  rows.ancestors = rows.blocks = table;
  const auto attend = [&](const Tensor& query, const KvViews& memory, const RowTables& tables, const Tensor& out) {
    return [&, memory, tables] { device_->attention(query, memory, tables, 1.0f, out); };
  };
  expect_refused(attend(q, {kv_memory, other}, rows, q), "attention: kv.v is");
  expect_refused(attend(three_heads, kv, rows, three_heads), "attention: 3 query heads over 2 kv heads");
  expect_refused(attend(q, {table, table}, rows, q), "attention: KV memory of type i32");
  RowTables short_table = rows;
  short_table.begin = column.view.rows(0, 1);
  expect_refused(attend(q, kv, short_table, q), "attention: rows.begin is i32 [1], expected i32 [2]");
  expect_refused([&] { device_->attention_eager(q, kv, rows, 1.0f, q); }, "attention_eager: rows.mask is empty");
  expect_refused([&] { device_->kv_write(q, three_heads, column, kv); }, "kv_write: v is");
}

TEST_F(DeviceContract, KvCopyOperandsFitTogether) {
  const Tensor memory = device_->tensor(DType::f16, {3, 16, 2, 8}),
               shorter = device_->tensor(DType::f16, {2, 16, 2, 8});
  const Tensor other_type = device_->tensor(DType::bf16, {3, 16, 2, 8}), flat = floats({48, 16}), two = ints({2});
  const auto copy = [&](const KvViews& kv, const Tensor& from, const Tensor& to) {
    return [&, kv] { device_->kv_copy({&kv, 1}, from, to); };
  };
  expect_refused(copy({memory, memory}, two, ints({3})), "kv_copy: to is i32 [3], expected i32 [2]");
  expect_refused(copy({memory, memory}, floats({2}), two), "kv_copy: from is f32 [2], expected i32 [-1]");
  expect_refused(copy({memory, shorter}, two, two), "kv_copy: kv.v is f16 [2, 16, 2, 8], expected f16 [3, 16, 2, 8]");
  expect_refused(copy({memory, other_type}, two, two), "kv_copy: kv.v is bf16");
  expect_refused(copy({flat, flat}, two, two), "kv_copy: kv.k is f32 [48, 16]");
  expect_refused(copy({two, two}, two, two), "kv_copy: KV memory of type i32");
}

TEST_F(DeviceContract, KvCopyTakesLayersOfOneShapeAndType) {
  const Tensor memory = device_->tensor(DType::f16, {3, 16, 2, 8}), two = ints({2});
  const Tensor shorter = device_->tensor(DType::f16, {2, 16, 2, 8}),
               other_type = device_->tensor(DType::bf16, {3, 16, 2, 8});
  const auto copy = [&](const std::vector<KvViews>& layers) {
    return [&, layers] { device_->kv_copy(layers, two, two); };
  };
  expect_refused(copy({}), "kv_copy: no layers");
  expect_refused(copy({{memory, memory}, {shorter, shorter}}),
                 "kv_copy: kv.k is f16 [2, 16, 2, 8], expected f16 [3, 16, 2, 8]");
  expect_refused(copy({{memory, memory}, {memory, shorter}}), "kv_copy: kv.v is f16 [2, 16, 2, 8]");
  expect_refused(copy({{memory, memory}, {other_type, other_type}}), "kv_copy: kv.k is bf16");
}

class DeclaringDevice final : public PassingDevice {
 public:
  using PassingDevice::PassingDevice;
  std::span<const std::int64_t> row_buckets() const override { return kBuckets; }
  MemoryLayout memory_layout() const override { return {.alignment = 32, .slack = 8}; }
  std::string_view float_order() const override { return "tiles"; }
  std::string_view activations() const override { return "bf16"; }

 private:
  static constexpr std::int64_t kBuckets[] = {1, 8, 16};
};

TEST_F(DeviceContract, WhoeverStandsBeforeADeviceSaysItsOrderOfFloatSums) {
  EXPECT_EQ(device_->float_order(), "ascending");
  EXPECT_EQ(device_->activations(), "f32");
  const auto declaring = std::make_unique<DeclaringDevice>(*device_);
  const PassingDevice passing(static_cast<Device&>(*declaring));  // no copy of it
  EXPECT_EQ(passing.float_order(), "tiles");
  EXPECT_EQ(passing.activations(), "bf16");
  const auto checked = make_checked_device(std::make_unique<DeclaringDevice>(*device_), {});
  EXPECT_EQ(checked->float_order(), "tiles");
  EXPECT_EQ(checked->activations(), "bf16");
}

TEST_F(DeviceContract, RowsArePaddedToWhatTheDeviceDeclares) {
  EXPECT_EQ(bucket_for(*device_, 7), 7) << "any number of rows";
  EXPECT_EQ(largest_step(*device_, 100), 100);
  const DeclaringDevice declaring(*device_);
  EXPECT_EQ(bucket_for(declaring, 0), 0);
  EXPECT_EQ(bucket_for(declaring, 1), 1);
  EXPECT_EQ(bucket_for(declaring, 2), 8);
  EXPECT_EQ(bucket_for(declaring, 16), 16);
  expect_refused([&] { bucket_for(declaring, 17); }, "a step of 17 rows: the largest bucket is 16");
  EXPECT_EQ(largest_step(declaring, 5), 5);
  EXPECT_EQ(largest_step(declaring, 100), 16);
}

class RecordingSomeRows final : public PassingDevice {
 public:
  using PassingDevice::PassingDevice;
  std::span<const std::int64_t> recorded_rows() const override { return kRows; }

 private:
  static constexpr std::int64_t kRows[] = {1, 2, 8, 16};
};

TEST_F(DeviceContract, StepsArePaddedToTheRowsOfWhichTheDeviceWantsRecordings) {
  EXPECT_EQ(rows_of_step(*device_, 7), 7) << "any number of rows";
  EXPECT_EQ(most_padding(*device_), 0);
  const RecordingSomeRows recording(*device_);
  EXPECT_EQ(rows_of_step(recording, 0), 0);
  EXPECT_EQ(rows_of_step(recording, 2), 2);
  EXPECT_EQ(rows_of_step(recording, 3), 8);
  EXPECT_EQ(rows_of_step(recording, 16), 16);
  EXPECT_EQ(rows_of_step(recording, 17), 17) << "nothing is recorded there";
  EXPECT_EQ(most_padding(recording), 7);
  EXPECT_EQ(bucket_for(recording, 3), 3) << "what is no step has as many rows as it has";
  const DeclaringDevice declaring(*device_);
  EXPECT_EQ(rows_of_step(declaring, 2), 8);
  EXPECT_EQ(most_padding(declaring), 16);
  expect_refused([&] { rows_of_step(declaring, 17); }, "a step of 17 rows: the largest bucket is 16");
}

TEST_F(DeviceContract, TensorsOfOneBufferLieAsFarApartAsTheDeviceDeclares) {
  EXPECT_EQ(row_elements(*device_, 16), 16) << "64 bytes";
  EXPECT_EQ(row_elements(*device_, 17), 32);
  EXPECT_EQ(part_elements(*device_, 16), 16);
  const DeclaringDevice declaring(*device_);
  EXPECT_EQ(row_elements(declaring, 8), 8);
  EXPECT_EQ(row_elements(declaring, 9), 16);
  EXPECT_EQ(part_elements(declaring, 6), 8);
  EXPECT_EQ(part_elements(declaring, 7), 16) << "the slack begins another 32 bytes";
}

TEST_F(DeviceContract, AStepRunsItsOps) {
  int runs = 0;
  const auto recordings = device_->make_recordings();
  device_->step(*recordings, {.rows = 1}, [&] { ++runs; });
  device_->step(*recordings, {.rows = 1}, [&] { ++runs; });
  EXPECT_EQ(runs, 2);
}

TEST_F(DeviceContract, AStepInsideOfAStepIsPartOfIt) {
  int runs = 0;
  const auto outer = device_->make_recordings(), inner = device_->make_recordings();
  device_->step(*outer, {.rows = 1}, [&] {
    device_->step(*inner, {.rows = 2}, [&] { ++runs; });
    device_->step(*inner, {.rows = 2}, [&] { ++runs; });
  });
  EXPECT_EQ(runs, 2);
  EXPECT_THROW(device_->step(*outer, {.rows = 1}, [] { throw std::runtime_error("in the middle"); }),
               std::runtime_error);
  device_->step(*outer, {.rows = 1}, [&] { ++runs; });
  EXPECT_EQ(runs, 3);
}

}  // namespace
}  // namespace espalier
