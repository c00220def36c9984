// A layer and a head as one step, on every device: the bits of everything it stores are those of the reference device's
// single ops (its own, where it adds float weights in an order of its own), when the step is new, when it is recorded
// and when it is replayed. A device may make one kernel of neighbouring ops; this holds it to the roundings of the
// separate ones.
#include <gtest/gtest.h>

#include <compare>
#include <functional>
#include <map>
#include <string>
#include <tuple>

#include "device/conformance/conformance.h"

namespace espalier {
namespace {

constexpr std::int64_t kHeads = 4, kKvHeads = 2, kInner = 512, kVocabulary = 97;
constexpr std::int64_t kBlockSize = 16, kBlocks = 20, kPositions = 300;

using Floats = std::vector<float>;

struct LayerShape {
  auto operator<=>(const LayerShape&) const = default;
  DType weights = DType::f32;
  DType kv = DType::f32;
  std::int64_t dim = 64;  // of a head
  std::int64_t rows = 1;
  std::int64_t hidden = 256;
};

// The same numbers for every device.
struct LayerValues {
  LayerValues(const LayerShape& shape, std::uint64_t seed) : shape(shape), random(seed) {
    const std::int64_t rows = shape.rows, dim = shape.dim, hidden = shape.hidden;
    x = random.values(rows * hidden);
    for (Floats* norm : {&first_norm, &second_norm}) *norm = random.values(hidden);
    cosine = random.values(kPositions * dim / 2);
    sine = random.values(kPositions * dim / 2);
    bias = random.values(kKvHeads * dim);
    const auto weight = [&](std::int64_t outputs, std::int64_t inputs) {
      return random.weight(shape.weights, outputs, inputs);
    };
    q = weight(kHeads * dim, hidden), k = weight(kKvHeads * dim, hidden), v = weight(kKvHeads * dim, hidden);
    o = weight(hidden, kHeads * dim), up = weight(2 * kInner, hidden), down = weight(hidden, kInner);
    square = weight(hidden, hidden);
    logits = weight(kVocabulary, hidden);
    for (std::vector<std::byte>* memory : {&keys, &stored_values})
      *memory = random.weight(shape.kv, kBlocks * kBlockSize, kKvHeads * dim);
  }
  LayerShape shape;
  RandomValues random;
  Floats x, first_norm, second_norm, cosine, sine, bias;
  std::vector<std::byte> q, k, v, o, up, down, square, logits, keys, stored_values;
};

class LayerOnDevice {
 public:
  LayerOnDevice(Device& device, const LayerValues& values)
      : device_(device),
        values_(values),
        rows_(values.shape.rows),
        dim_(values.shape.dim),
        hidden_(values.shape.hidden) {
    const auto load = [&](const std::vector<std::byte>& bytes, std::int64_t outputs, std::int64_t inputs) {
      const WeightPart part{values.shape.weights, outputs, inputs, bytes};
      return device.load_weight({&part, 1});
    };
    q_ = load(values.q, kHeads * dim_, hidden_);
    k_ = load(values.k, kKvHeads * dim_, hidden_);
    v_ = load(values.v, kKvHeads * dim_, hidden_);
    o_ = load(values.o, hidden_, kHeads * dim_);
    up_ = load(values.up, 2 * kInner, hidden_);
    down_ = load(values.down, hidden_, kInner);
    square_ = load(values.square, hidden_, hidden_);
    logits_ = load(values.logits, kVocabulary, hidden_);
    put("first norm", values.first_norm, {hidden_});
    put("second norm", values.second_norm, {hidden_});
    put("cosine", values.cosine, {kPositions, dim_ / 2});
    put("sine", values.sine, {kPositions, dim_ / 2});
    put("bias", values.bias, {kKvHeads * dim_});
    for (const auto& [name, width] : std::map<std::string, std::int64_t>{{"x", hidden_},
                                                                         {"normed", hidden_},
                                                                         {"q", kHeads * dim_},
                                                                         {"k", kKvHeads * dim_},
                                                                         {"v", kKvHeads * dim_},
                                                                         {"attended", kHeads * dim_},
                                                                         {"projected", hidden_},
                                                                         {"gate and up", 2 * kInner},
                                                                         {"gated", kInner},
                                                                         {"logits", kVocabulary},
                                                                         {"aside", 1},
                                                                         {"sums", 1}})
      put(name, Floats(static_cast<std::size_t>(rows_ * width)), {rows_, width});
    const auto memory = [&](const std::vector<std::byte>& bytes) {
      Tensor tensor = device.tensor(values.shape.kv, {kBlocks, kBlockSize, kKvHeads, dim_});
      device.upload(bytes, tensor);
      return tensor;
    };
    keys_ = memory(values.keys);
    stored_values_ = memory(values.stored_values);
    put_tables();
  }

  // Everything that a step leaves.
  struct Left {
    std::map<std::string, Floats> floats;
    std::vector<std::byte> keys, values;
  };

  // One step from the first x. stranger_at: before which op comes one that does not belong there
  Left run(int stranger_at = -1) {
    stranger_at_ = stranger_at;
    upload<float>(device_, values_.x, at("x"));
    device_.step(*recordings_, {.rows = rows_, .form = stranger_at + 1}, [&] { layer(); });
    return what_is_left();
  }
  static constexpr int kOps = 8 + 5 + 6;  // of the layer and the head
  // The same, op by op.
  Left run_ops() {
    upload<float>(device_, values_.x, at("x"));
    layer();
    return what_is_left();
  }

 private:
  Left what_is_left() {
    Left left;
    for (const auto& [name, tensor] : floats_) {
      left.floats[name].resize(static_cast<std::size_t>(tensor.view.elements()));
      download<float>(device_, tensor, left.floats[name]);
    }
    left.keys.resize(values_.keys.size());
    left.values.resize(values_.keys.size());
    device_.download(keys_, left.keys);
    device_.download(stored_values_, left.values);
    return left;
  }
  View at(const std::string& name) const { return floats_.at(name).view; }
  void put(const std::string& name, const Floats& values, std::initializer_list<std::int64_t> shape) {
    Tensor& tensor = floats_[name] = device_.tensor(DType::f32, shape);
    upload<float>(device_, values, tensor);
  }

  // Row r writes slot r behind 140 positions that all see, on a block table that is not in order.
  void put_tables() {
    constexpr std::int32_t kContext = 140;
    const auto table = [&](const auto& entry, std::int64_t n, std::initializer_list<std::int64_t> shape) {
      std::vector<std::int32_t> values;
      for (std::int32_t r = 0; r < n; ++r) values.push_back(entry(r));
      tables_.push_back(device_.tensor(DType::i32, shape));
      upload<std::int32_t>(device_, values, tables_.back());
      return tables_.back().view;
    };
    const std::int64_t columns = kContext / kBlockSize + 1;
    row_tables_.position = table([](std::int32_t r) { return kContext + r; }, rows_, {rows_});
    row_tables_.slot = table([](std::int32_t r) { return 160 + r; }, rows_, {rows_});
    row_tables_.sequence = table([](std::int32_t) { return 0; }, rows_, {rows_});
    row_tables_.begin = table([](std::int32_t r) { return r % 3; }, rows_, {rows_});
    row_tables_.end = table([](std::int32_t) { return kContext; }, rows_, {rows_});
    row_tables_.ancestor_count = table([](std::int32_t r) { return r == 0 ? 0 : 1; }, rows_, {rows_});
    row_tables_.ancestors = table([](std::int32_t r) { return r == 0 ? 0 : 160 + r / 2; }, rows_, {rows_, 1});
    row_tables_.blocks =
        table([&](std::int32_t i) { return static_cast<std::int32_t>(columns) - 1 - i; }, columns, {1, columns});
  }

  void attend() {
    const KvViews kv{keys_, stored_values_};
    op([this] { device_.rms_norm(at("x"), at("first norm"), 1e-5f, at("normed")); });
    op([this] {
      const Projection qkv[] = {{q_.get(), {}, at("q")}, {k_.get(), at("bias"), at("k")}, {v_.get(), {}, at("v")}};
      device_.linear(at("normed"), qkv);
    });
    op([this] { device_.rope(heads("q", kHeads), row_tables_.position, at("cosine"), at("sine")); });
    op([this] { device_.rope(heads("k", kKvHeads), row_tables_.position, at("cosine"), at("sine")); });
    op([=, this] { device_.kv_write(heads("k", kKvHeads), heads("v", kKvHeads), row_tables_.slot, kv); });
    op([=, this] { device_.attention(heads("q", kHeads), kv, row_tables_, 0.125f, heads("attended", kHeads)); });
    project("attended", *o_, "projected");
    op([this] { device_.add(at("x"), at("projected")); });
  }
  void feed_forward() {
    op([this] { device_.rms_norm(at("x"), at("second norm"), 1e-5f, at("normed")); });
    project("normed", *up_, "gate and up");
    op([this] { device_.swiglu(at("gate and up"), at("gated")); });
    project("gated", *down_, "projected");
    op([this] { device_.add(at("x"), at("projected")); });
  }
  void layer() {
    ops_done_ = 0;
    attend();
    feed_forward();
    op([this] { device_.rms_norm(at("x"), at("first norm"), 1e-5f, at("normed")); });
    project("normed", *logits_, "logits");
    op([this] { device_.log_sum_exp(at("logits"), 1.0f, at("sums").reshaped({rows_})); });
    // What a linear reads by way of a norm, it adds to.
    op([this] { device_.rms_norm(at("x"), at("second norm"), 1e-5f, at("normed")); });
    project("normed", *square_, "projected");
    op([this] { device_.add(at("x"), at("projected")); });
    EXPECT_EQ(ops_done_, kOps);
  }
  void project(const char* x, const Weight& weight, const char* y) {
    op([=, &weight, this] {
      const Projection projection{&weight, {}, at(y)};
      device_.linear(at(x), {&projection, 1});
    });
  }
  // Behind an op that has nothing to do with the layer, where that is asked for.
  void op(const std::function<void()>& call) {
    if (ops_done_++ == stranger_at_) device_.silu(at("aside"));
    call();
  }
  View heads(const char* name, std::int64_t n) const { return at(name).reshaped({rows_, n, dim_}); }

  Device& device_;
  const LayerValues& values_;
  std::int64_t rows_, dim_, hidden_;
  std::unique_ptr<const Weight> q_, k_, v_, o_, up_, down_, square_, logits_;
  std::map<std::string, Tensor> floats_;
  Tensor keys_, stored_values_;
  std::vector<Tensor> tables_;
  RowTables row_tables_;
  int ops_done_ = 0, stranger_at_ = -1;
  std::unique_ptr<Recordings> recordings_ = device_.make_recordings();
};

class StepConformance : public testing::TestWithParam<std::tuple<DeviceUnderTest, DType>> {
 protected:
  DeviceTest test_{std::get<0>(GetParam())};
};

// Devices that look at their callers' rules have tests of their own, and so have those with other bits
// (tests/ascend_test.cpp).
std::vector<DeviceUnderTest> devices_that_compute() {
  std::vector<DeviceUnderTest> devices;
  for (const DeviceUnderTest& device : devices_under_test())
    if (device.exact && device.name.find("checked") == std::string::npos) devices.push_back(device);
  return devices;
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(StepConformance);
INSTANTIATE_TEST_SUITE_P(Devices, StepConformance,
                         testing::Combine(testing::ValuesIn(devices_that_compute()),
                                          testing::Values(DType::q4_1, DType::q8_0, DType::q6_k, DType::f16,
                                                          DType::bf16)),
                         [](const testing::TestParamInfo<std::tuple<DeviceUnderTest, DType>>& info) {
                           return std::get<0>(info.param).name + "_" + std::string(name(std::get<1>(info.param)));
                         });

void expect_same(const LayerOnDevice::Left& left, const LayerOnDevice::Left& expected) {
  for (const auto& [name, floats] : expected.floats) {
    SCOPED_TRACE(name);
    expect_same_bits(left.floats.at(name), floats);
  }
  EXPECT_EQ(left.keys, expected.keys);
  EXPECT_EQ(left.values, expected.values);
}

constexpr std::uint64_t kSeed = 41;

// Drawing weights takes longer than most devices take over a layer: the same serve all of them.
const LayerValues& values_of(const LayerShape& shape) {
  static std::map<LayerShape, LayerValues> drawn;
  return drawn.try_emplace(shape, shape, kSeed).first->second;
}

// What single ops leave, on the reference device, or on the test's own where its float weights add in another order.
// The reference device is slow: what it has computed is kept for the devices that follow.
LayerOnDevice::Left expected_of(DeviceTest& test, const LayerValues& values) {
  const LayerShape& shape = values.shape;
  if (!is_block_quantised(shape.weights) && test.tested().float_order() != kContractFloatOrder)
    return LayerOnDevice(test.tested(), values).run_ops();
  static std::map<LayerShape, LayerOnDevice::Left> known;
  const auto [left, is_new] = known.try_emplace(shape);
  if (is_new) left->second = LayerOnDevice(test.judge(), values).run_ops();
  return left->second;
}

void expect_bits_of_ops(DeviceTest& test, const LayerShape& shape) {
  const LayerValues& values = values_of(shape);
  const LayerOnDevice::Left expected = expected_of(test, values);
  LayerOnDevice layer(test.tested(), values);
  for (int repeat = 0; repeat < 3; ++repeat) {
    SCOPED_TRACE(testing::Message() << shape.rows << " rows of " << shape.hidden << ", heads of " << shape.dim
                                    << ", repeat " << repeat);
    expect_same(layer.run(), expected);
  }
}

TEST_P(StepConformance, ALayerHasTheBitsOfItsOpsHoweverOftenItIsRepeated) {
  for (std::int64_t rows : {1, 3, 8, 9, 19})
    expect_bits_of_ops(test_, {.weights = std::get<1>(GetParam()), .rows = rows});
}

// Short rows may be made by whoever reads them, long ones rather not.
TEST_P(StepConformance, SoItHasWithLongRows) {
  for (const auto& [rows, hidden] : {std::pair{1, 1280}, {7, 768}})
    expect_bits_of_ops(test_, {.weights = std::get<1>(GetParam()), .rows = rows, .hidden = hidden});
}

// What a device reads keys and values by may depend on their type and on the size of a head.
TEST_P(StepConformance, SoItHasWithKeysAndValuesOfHalfTheBytes) {
  for (std::int64_t dim : {64, 128})
    expect_bits_of_ops(test_, {.weights = std::get<1>(GetParam()), .kv = DType::f16, .dim = dim, .rows = 5});
}

// Whatever waits for the next op has to be content with another.
TEST_P(StepConformance, SoItHasWhereverAnotherOpComesBetween) {
  if (std::get<1>(GetParam()) != DType::q4_1) GTEST_SKIP() << "which ops wait does not depend on the type of weights";
  const LayerValues& values = values_of({.weights = DType::q4_1, .rows = 2});
  const LayerOnDevice::Left expected = expected_of(test_, values);
  LayerOnDevice layer(test_.tested(), values);
  for (int at = 0; at < LayerOnDevice::kOps; ++at) {
    SCOPED_TRACE(testing::Message() << "before op " << at);
    expect_same(layer.run(at), expected);
  }
}

// Where whole layers are one kernel: of few rows, one kernel's tile of them and two.
class ClusterConformance : public StepConformance {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ClusterConformance);
INSTANTIATE_TEST_SUITE_P(Devices, ClusterConformance,
                         testing::Combine(testing::ValuesIn(devices_with_clusters()),
                                          testing::Values(DType::q4_1, DType::q8_0)),
                         [](const testing::TestParamInfo<std::tuple<DeviceUnderTest, DType>>& info) {
                           return std::get<0>(info.param).name + "_" + std::string(name(std::get<1>(info.param)));
                         });

TEST_P(ClusterConformance, ALayerHasTheBitsOfItsOps) {
  for (const auto& [rows, hidden] : {std::pair{1, 256}, {1, 608}, {2, 256}, {8, 288}, {9, 256}, {16, 768}, {17, 256}})
    expect_bits_of_ops(
        test_, {.weights = std::get<1>(GetParam()), .kv = DType::f16, .dim = 64, .rows = rows, .hidden = hidden});
}

TEST_P(ClusterConformance, SoItHasWhereverAnotherOpComesBetween) {
  const LayerShape shape{.weights = std::get<1>(GetParam()), .kv = DType::f16, .dim = 64, .rows = 3};
  const LayerValues& values = values_of(shape);
  const LayerOnDevice::Left expected = expected_of(test_, values);
  LayerOnDevice layer(test_.tested(), values);
  for (int at = 0; at < LayerOnDevice::kOps; ++at) {
    SCOPED_TRACE(testing::Message() << "before op " << at);
    expect_same(layer.run(at), expected);
  }
}

}  // namespace
}  // namespace espalier
