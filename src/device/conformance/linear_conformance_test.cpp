// linear on every device: each weight type, mixed stacks, several products of one input, with and without bias.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <tuple>

#include "device/activations.h"
#include "device/blocks.h"
#include "device/conformance/conformance.h"

namespace espalier {
namespace {

// A weight as the file would hold it.
struct HostWeight {
  struct Part {
    DType type;
    std::int64_t outputs;
    std::vector<std::byte> bytes;
  };
  std::int64_t inputs = 0;
  std::int64_t outputs = 0;
  std::vector<Part> parts = {};
  std::vector<float> bias = {};  // empty: none

  void stack(RandomValues& random, DType type, std::int64_t more_outputs) {
    parts.push_back({type, more_outputs, random.weight(type, more_outputs, inputs)});
    outputs += more_outputs;
  }
  std::unique_ptr<const Weight> load(Device& device) const {
    std::vector<WeightPart> views;
    for (const Part& part : parts) views.push_back({part.type, part.outputs, inputs, part.bytes});
    return device.load_weight(views);
  }
};

// One linear over all weights; the outputs of a row one after the other.
RowOp linear_of(const std::vector<float>& x, const std::vector<HostWeight>& weights) {
  return [&x, &weights](Device& device, const std::vector<std::int64_t>& rows, Placement placement) {
    const std::int64_t inputs = weights[0].inputs;
    const auto count = static_cast<std::int64_t>(rows.size());
    const PlacedTensor input = place(device, DType::f32, select_rows(x, rows, inputs), count, placement);
    std::vector<std::unique_ptr<const Weight>> loaded;
    std::vector<PlacedTensor> outputs, biases;
    std::vector<Projection> projections;
    for (const HostWeight& weight : weights) {
      loaded.push_back(weight.load(device));
      outputs.emplace_back(device, DType::f32, count, weight.outputs, placement);
      ConstView bias;
      if (!weight.bias.empty()) {
        biases.push_back(place(device, DType::f32, weight.bias, 1, {placement.offset_bytes, 0}));
        bias = biases.back().view().reshaped({weight.outputs});
      }
      projections.push_back({loaded.back().get(), bias, outputs.back().view()});
    }
    device.linear(input, projections);
    std::vector<std::vector<float>> results;
    for (const PlacedTensor& output : outputs) results.push_back(output.values<float>());
    std::vector<float> by_row;
    for (std::int64_t r = 0; r < count; ++r)
      for (std::size_t i = 0; i < weights.size(); ++i) {
        const auto width = weights[i].outputs;
        by_row.insert(by_row.end(), results[i].begin() + r * width, results[i].begin() + (r + 1) * width);
      }
    return by_row;
  };
}

// The type in which a device that has 16-bit products keeps a weight: one for all of its parts.
DType kept_type(const HostWeight& weight) {
  const auto any = [&](DType type) {
    return std::ranges::find(weight.parts, type, &HostWeight::Part::type) != weight.parts.end();
  };
  return any(DType::f32) ? DType::f32 : any(DType::bf16) ? DType::bf16 : DType::f16;
}

// One output of linear_of(): its row of x, its weights, widened, and its bias.
struct OneOutput {
  std::span<const float> x;
  std::span<const float> w;
  float bias = 0;
};

// bound(weight, part, output) of every output, in their order.
template <typename Bound>
RowBounds bounds_by_output(const std::vector<float>& x, const std::vector<HostWeight>& weights, const Bound& bound) {
  return [&x, &weights, bound](const std::vector<std::int64_t>& rows) {
    std::vector<double> bounds;
    const auto inputs = static_cast<std::size_t>(weights[0].inputs);
    std::vector<float> w(inputs);
    for (std::int64_t r : rows)
      for (const HostWeight& weight : weights) {
        const auto row = std::span(x).subspan(static_cast<std::size_t>(r) * inputs, inputs);
        std::size_t output = 0;
        for (const HostWeight::Part& part : weight.parts)
          for (std::int64_t n = 0; n < part.outputs; ++n, ++output) {
            const auto bytes = static_cast<std::size_t>(row_bytes(part.type, weight.inputs));
            widen_row(part.type, std::span(part.bytes).subspan(static_cast<std::size_t>(n) * bytes, bytes), w);
            bounds.push_back(bound(weight, part, OneOutput{row, w, weight.bias.empty() ? 0.0f : weight.bias[output]}));
          }
      }
    return bounds;
  };
}

RowBounds bounds_of(const std::vector<float>& x, const std::vector<HostWeight>& weights) {
  return bounds_by_output(x, weights, [](const HostWeight& weight, const HostWeight::Part& part, const OneOutput& of) {
    return linear_bound({.x = of.x, .w = of.w, .bias = of.bias, .kept = kept_type(weight), .stored = part.type});
  });
}

// Whether a device with matrix instructions uses them for a part.
bool has_matrix_order(const HostWeight::Part& part) {
  return part.type == DType::bf16 || part.type == DType::f16;
}

// On such a device: 0 for the parts that it computes as the reference device does.
RowBounds matrix_bounds_of(const std::vector<float>& x, const std::vector<HostWeight>& weights, int terms) {
  return bounds_by_output(x, weights, [terms](const HostWeight&, const HostWeight::Part& part, const OneOutput& of) {
    if (!has_matrix_order(part)) return 0.0;
    return matrix_bound({.x = of.x, .w = of.w, .bias = of.bias, .type = part.type, .terms = terms});
  });
}

// In the order in which row counts 1, 1, 2, 2, 3, 3, ... meet them.
constexpr std::int64_t kOutputs[] = {257, 1, 64, 16, 256, 5, 31, 97, 97, 64, 31};

std::vector<std::int64_t> input_sizes(DType type) {
  const std::int64_t block = traits(type).block_elements;
  if (block == 1) return {1, 5, 16, 31, 64, 97, 256, 257};
  if (block == 32) return {32, 64, 96, 224, 352};
  return {256, 512, 768};
}

class LinearConformance : public testing::TestWithParam<std::tuple<DeviceUnderTest, DType>> {
 protected:
  DType type() const { return std::get<1>(GetParam()); }
  void expect_conforming(const std::vector<float>& x, const std::vector<HostWeight>& weights, std::int64_t rows) {
    const bool matrices = test_.exact() && test_.tested().float_order() != kContractFloatOrder &&
                          std::ranges::any_of(weights, [](const HostWeight& weight) {
                            return std::ranges::any_of(weight.parts, has_matrix_order);
                          });
    if (!matrices) return test_.expect_conforming(linear_of(x, weights), rows, true, bounds_of(x, weights));
    const int terms = test_.tested().activations() == name(Activations::bf16) ? 1 : 2;
    test_.expect_own_order(linear_of(x, weights), rows, true, matrix_bounds_of(x, weights, terms));
  }
  DeviceTest test_{std::get<0>(GetParam())};
  RandomValues random_{23};
};

std::string name_of_case(const testing::TestParamInfo<std::tuple<DeviceUnderTest, DType>>& info) {
  return std::get<0>(info.param).name + "_" + std::string(name(std::get<1>(info.param)));
}

// Those that --activations makes a difference to.
constexpr DType kMatrixTypes[] = {DType::f16, DType::bf16};

INSTANTIATE_TEST_SUITE_P(Devices, LinearConformance,
                         testing::Combine(testing::ValuesIn(devices_under_test()), testing::ValuesIn(kLinearTypes)),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(OneTerm, LinearConformance,
                         testing::Combine(testing::ValuesIn(devices_with_one_term()), testing::ValuesIn(kMatrixTypes)),
                         name_of_case);

TEST_P(LinearConformance, EveryShape) {
  const std::vector<std::int64_t> inputs = input_sizes(type());
  std::size_t i = 0;
  for (std::int64_t rows : test_.row_counts())
    for (int repeat = 0; repeat < (rows > 16 ? 1 : 2); ++repeat, ++i) {
      HostWeight weight{.inputs = inputs[i % inputs.size()]};
      weight.stack(random_, type(), kOutputs[i % std::size(kOutputs)]);
      if (i % 2 == 1) weight.bias = random_.values(weight.outputs);
      SCOPED_TRACE(testing::Message() << weight.outputs << " outputs, " << weight.inputs << " inputs");
      expect_conforming(random_.values(rows * weight.inputs), {weight}, rows);
    }
}

TEST_P(LinearConformance, SeveralProductsOfOneInputAndMixedStacks) {
  const std::int64_t inputs = input_sizes(type()).back() < 256 ? 256 : 512;
  std::vector<HostWeight> weights(3, HostWeight{.inputs = inputs});
  weights[0].stack(random_, type(), 17);
  weights[0].stack(random_, DType::q8_0, 5);
  weights[0].stack(random_, DType::f16, 1);
  weights[1].stack(random_, DType::f32, 3);
  weights[1].stack(random_, type(), 33);
  weights[1].bias = random_.values(weights[1].outputs);
  weights[2].stack(random_, type(), 1);
  for (const std::int64_t wanted : {7, 20}) {
    const std::int64_t rows = test_.row_count(wanted);
    expect_conforming(random_.values(rows * inputs), weights, rows);
  }
}

TEST_P(LinearConformance, NanInfinityZeroAndTinyRows) {
  const std::int64_t inputs = input_sizes(type()).back();
  HostWeight weight{.inputs = inputs};
  weight.stack(random_, type(), 19);
  for (const std::int64_t wanted : {8, 24}) {  // by themselves, and scattered among others
    const std::int64_t rows = test_.row_count(wanted);
    std::vector<float> x = random_.values(rows * inputs);
    const auto row = [&](std::int64_t eighth) {
      return std::span(x).subspan(static_cast<std::size_t>(eighth * rows / 8 * inputs),
                                  static_cast<std::size_t>(inputs));
    };
    row(0)[0] = std::numeric_limits<float>::quiet_NaN();
    row(1).back() = std::numeric_limits<float>::infinity();
    for (float& v : row(2)) v = 0;
    for (float& v : row(3)) v *= 0x1p-120f;  // quantised to zero
    for (float& v : row(4)) v *= 0x1p-99f;   // just not
    for (float& v : row(5)) v *= 0x1p120f;
    for (float& v : row(6)) v = -0.0f;
    expect_conforming(x, {weight}, rows);
  }
}

// Devices with a kernel for every amount of work.
class ManyKernelsConformance : public LinearConformance {};

std::vector<DeviceUnderTest> devices_of_many_kernels() {
  std::vector<DeviceUnderTest> devices = devices_under_test();
  std::erase_if(devices, [](const DeviceUnderTest& device) { return device.name.find("cuda") == std::string::npos; });
  return devices;
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ManyKernelsConformance);
INSTANTIATE_TEST_SUITE_P(Devices, ManyKernelsConformance,
                         testing::Combine(testing::ValuesIn(devices_of_many_kernels()),
                                          testing::ValuesIn(kLinearTypes)),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(OneTerm, ManyKernelsConformance,
                         testing::Combine(testing::ValuesIn(devices_with_one_term()), testing::ValuesIn(kMatrixTypes)),
                         name_of_case);

TEST_P(ManyKernelsConformance, ManyRowsOfManyOutputs) {
  const bool emulated = std::get<0>(GetParam()).name.find("emulated") != std::string::npos;
  const std::vector<std::int64_t> inputs = input_sizes(type());
  HostWeight weight{.inputs = inputs.back() > 512 ? 512 : inputs.back()};
  weight.stack(random_, type(), emulated ? 245 : 4101);
  for (std::int64_t rows : {1, 12, 30, 60, 260})
    expect_conforming(random_.values(rows * weight.inputs), {weight}, rows);
}

// So many chunks that what kernels fetch ahead goes round, and on a card so many groups that a warp has one to itself.
TEST_P(ManyKernelsConformance, ManyInputs) {
  const bool emulated = std::get<0>(GetParam()).name.find("emulated") != std::string::npos;
  const std::int64_t beyond_a_chunk = traits(type()).block_elements == 256 ? 0 : 96;
  std::vector<HostWeight> weights;
  const auto add = [&](std::int64_t outputs, std::int64_t inputs) {
    weights.push_back({.inputs = inputs + beyond_a_chunk});
    weights.back().stack(random_, type(), outputs);
  };
  emulated ? add(40, 2560) : add(100, 10240);
  if (!emulated) add(17000, 1024);
  for (const HostWeight& weight : weights)
    for (std::int64_t rows : {1, 5, 12, weight.outputs > 1000 ? 150 : 40})
      expect_conforming(random_.values(rows * weight.inputs), {weight}, rows);
}

TEST_P(ManyKernelsConformance, ARowHasItsBitsAloneAndInAnyPlaceAmong2To256) {
  const bool emulated = std::get<0>(GetParam()).name.find("emulated") != std::string::npos;
  constexpr std::int64_t kPool = 256;
  HostWeight weight{.inputs = 768};
  weight.stack(random_, type(), emulated ? 24 : 1000);
  const std::vector<float> x = random_.values(kPool * weight.inputs);
  const std::vector<HostWeight> weights = {weight};
  const RowOp op = linear_of(x, weights);
  std::vector<float> alone;
  for (std::int64_t r = 0; r < kPool; ++r) {
    const std::vector<float> one = op(test_.tested(), {r}, {});
    alone.insert(alone.end(), one.begin(), one.end());
  }
  for (const std::int64_t count : {2, 3, 8, 9, 16, 17, 32, 33, 64, 65, 129, 256}) {
    SCOPED_TRACE(testing::Message() << count << " rows");
    const std::vector<std::int32_t> order = random_.permutation(kPool);
    const std::vector<std::int64_t> chosen(order.begin(), order.begin() + count);
    expect_same_bits(op(test_.tested(), chosen, {}), select_rows(alone, chosen, weight.outputs));
  }
}

}  // namespace
}  // namespace espalier
