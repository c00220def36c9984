// A layer and a head as one step, on every device: the bits of everything it stores are those of the reference device's
// single ops, when the step is new, when it is recorded and when it is replayed. A device may make one kernel of
// neighbouring ops; this holds it to the roundings of the separate ones.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <tuple>

#include "device/conformance/conformance.h"

namespace espalier {
namespace {

constexpr std::int64_t kHidden = 256, kHeads = 4, kKvHeads = 2, kDim = 64, kInner = 512, kVocabulary = 97;
constexpr std::int64_t kBlockSize = 16, kBlocks = 20, kPositions = 300;

using Floats = std::vector<float>;

// The same numbers for every device.
struct LayerValues {
  LayerValues(DType type, std::int64_t rows, std::uint64_t seed) : type(type), rows(rows), random(seed) {
    x = random.values(rows * kHidden);
    for (Floats* norm : {&first_norm, &second_norm}) *norm = random.values(kHidden);
    cosine = random.values(kPositions * kDim / 2);
    sine = random.values(kPositions * kDim / 2);
    bias = random.values(kKvHeads * kDim);
    const auto weight = [&](std::int64_t outputs, std::int64_t inputs) { return random.weight(type, outputs, inputs); };
    q = weight(kHeads * kDim, kHidden), k = weight(kKvHeads * kDim, kHidden), v = weight(kKvHeads * kDim, kHidden);
    o = weight(kHidden, kHeads * kDim), up = weight(2 * kInner, kHidden), down = weight(kHidden, kInner);
    logits = weight(kVocabulary, kHidden);
  }
  DType type;
  std::int64_t rows;
  RandomValues random;
  Floats x, first_norm, second_norm, cosine, sine, bias;
  std::vector<std::byte> q, k, v, o, up, down, logits;
};

class LayerOnDevice {
 public:
  LayerOnDevice(Device& device, const LayerValues& values) : device_(device), values_(values), rows_(values.rows) {
    const auto load = [&](const std::vector<std::byte>& bytes, std::int64_t outputs, std::int64_t inputs) {
      const WeightPart part{values.type, outputs, inputs, bytes};
      return device.load_weight({&part, 1});
    };
    q_ = load(values.q, kHeads * kDim, kHidden);
    k_ = load(values.k, kKvHeads * kDim, kHidden);
    v_ = load(values.v, kKvHeads * kDim, kHidden);
    o_ = load(values.o, kHidden, kHeads * kDim);
    up_ = load(values.up, 2 * kInner, kHidden);
    down_ = load(values.down, kHidden, kInner);
    logits_ = load(values.logits, kVocabulary, kHidden);
    put("first norm", values.first_norm, {kHidden});
    put("second norm", values.second_norm, {kHidden});
    put("cosine", values.cosine, {kPositions, kDim / 2});
    put("sine", values.sine, {kPositions, kDim / 2});
    put("bias", values.bias, {kKvHeads * kDim});
    for (const auto& [name, width] : std::map<std::string, std::int64_t>{{"x", kHidden},
                                                                         {"normed", kHidden},
                                                                         {"q", kHeads * kDim},
                                                                         {"k", kKvHeads * kDim},
                                                                         {"v", kKvHeads * kDim},
                                                                         {"attended", kHeads * kDim},
                                                                         {"projected", kHidden},
                                                                         {"gate and up", 2 * kInner},
                                                                         {"gated", kInner},
                                                                         {"logits", kVocabulary},
                                                                         {"sums", 1}})
      put(name, Floats(static_cast<std::size_t>(rows_ * width)), {rows_, width});
    for (const char* name : {"keys", "values"})
      put(name, Floats(static_cast<std::size_t>(kBlocks * kBlockSize * kKvHeads * kDim), 0.25f),
          {kBlocks, kBlockSize, kKvHeads, kDim});
    put_tables();
  }

  // One step from the first x; everything it left.
  std::map<std::string, Floats> run() {
    upload<float>(device_, values_.x, at("x"));
    device_.step(*recordings_, {.rows = rows_}, [&] { layer(); });
    std::map<std::string, Floats> left;
    for (const auto& [name, tensor] : floats_) {
      left[name].resize(static_cast<std::size_t>(tensor.view.elements()));
      download<float>(device_, tensor, left[name]);
    }
    return left;
  }

 private:
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

  void layer() {
    const auto heads = [&](const char* name, std::int64_t n) { return at(name).reshaped({rows_, n, kDim}); };
    const KvViews kv{at("keys"), at("values")};
    device_.rms_norm(at("x"), at("first norm"), 1e-5f, at("normed"));
    const Projection qkv[] = {{q_.get(), {}, at("q")}, {k_.get(), at("bias"), at("k")}, {v_.get(), {}, at("v")}};
    device_.linear(at("normed"), qkv);
    device_.rope(heads("q", kHeads), row_tables_.position, at("cosine"), at("sine"));
    device_.rope(heads("k", kKvHeads), row_tables_.position, at("cosine"), at("sine"));
    device_.kv_write(heads("k", kKvHeads), heads("v", kKvHeads), row_tables_.slot, kv);
    device_.attention(heads("q", kHeads), kv, row_tables_, 0.125f, heads("attended", kHeads));
    project(at("attended"), *o_, at("projected"));
    device_.add(at("x"), at("projected"));
    device_.rms_norm(at("x"), at("second norm"), 1e-5f, at("normed"));
    project(at("normed"), *up_, at("gate and up"));
    device_.swiglu(at("gate and up"), at("gated"));
    project(at("gated"), *down_, at("projected"));
    device_.add(at("x"), at("projected"));
    device_.rms_norm(at("x"), at("first norm"), 1e-5f, at("normed"));
    project(at("normed"), *logits_, at("logits"));
    device_.log_sum_exp(at("logits"), 1.0f, at("sums").reshaped({rows_}));
  }
  void project(ConstView x, const Weight& weight, View y) {
    const Projection projection{&weight, {}, y};
    device_.linear(x, {&projection, 1});
  }

  Device& device_;
  const LayerValues& values_;
  std::int64_t rows_;
  std::unique_ptr<const Weight> q_, k_, v_, o_, up_, down_, logits_;
  std::map<std::string, Tensor> floats_;
  std::vector<Tensor> tables_;
  RowTables row_tables_;
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
                                          testing::Values(DType::q4_1, DType::q8_0, DType::q6_k, DType::f16)),
                         [](const testing::TestParamInfo<std::tuple<DeviceUnderTest, DType>>& info) {
                           return std::get<0>(info.param).name + "_" + std::string(name(std::get<1>(info.param)));
                         });

TEST_P(StepConformance, ALayerHasTheBitsOfItsOpsHoweverOftenItIsRepeated) {
  for (std::int64_t rows : {1, 9, 19}) {
    const LayerValues values(std::get<1>(GetParam()), rows, 41);
    LayerOnDevice judged(test_.judge(), values), layer(test_.tested(), values);
    const std::map<std::string, Floats> expected = judged.run();
    for (int repeat = 0; repeat < 3; ++repeat) {
      const std::map<std::string, Floats> left = layer.run();
      for (const auto& [name, floats] : expected) {
        SCOPED_TRACE(testing::Message() << name << ", " << rows << " rows, repeat " << repeat);
        expect_same_bits(left.at(name), floats);
      }
    }
  }
}

}  // namespace
}  // namespace espalier
