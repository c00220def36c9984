// How fast are the linears, where a step spends its time? Every weight type, one and eight rows.
// Every case is computed once by the reference device with one thread and compared bit for bit before it is timed.

#include <benchmark/benchmark.h>

#include <cstring>
#include <random>
#include <thread>

#include "base/float16.h"
#include "device/device.h"
#include "device/reference/reference_device.h"

namespace espalier {
namespace {

constexpr std::int64_t kInputs = 1536, kOutputs = 1536;  // like the widest linears of the default model

std::vector<float> random_values(std::int64_t count) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

// Random bytes are valid blocks of any format once the f16 scales are small finite numbers.
std::vector<std::byte> random_weight(DType type) {
  std::mt19937 random(2);
  std::vector<std::byte> bytes(static_cast<std::size_t>(kOutputs * row_bytes(type, kInputs)));
  if (type == DType::f32) {
    const auto values = random_values(kOutputs * kInputs);
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
  }
  for (std::size_t i = 0; i + 1 < bytes.size(); i += 2) {
    const std::uint16_t half = f32_to_f16(static_cast<float>(random() % 1000) / 1000 - 0.5f);
    std::memcpy(bytes.data() + i, &half, sizeof half);
  }
  return bytes;
}

std::vector<float> run_linear(Device& device, const Weight& weight, ConstView x, View y) {
  const Projection projection{&weight, {}, y};
  device.linear(x, std::span(&projection, 1));
  std::vector<float> result(static_cast<std::size_t>(y.elements()));
  download<float>(device, y, result);
  return result;
}

struct LinearCase {
  explicit LinearCase(Device& device, DType type, std::int64_t rows)
      : x(device.tensor(DType::f32, {rows, kInputs})), y(device.tensor(DType::f32, {rows, kOutputs})) {
    const auto bytes = random_weight(type);
    const WeightPart part{type, kOutputs, kInputs, bytes};
    weight = device.load_weight(std::span(&part, 1));
    upload<float>(device, random_values(rows * kInputs), x);
  }
  Tensor x, y;
  std::unique_ptr<const Weight> weight;
};

void linear(benchmark::State& state, int threads) {
  const auto type = static_cast<DType>(state.range(0));
  const std::int64_t rows = state.range(1);
  const auto judge = make_reference_device(1);
  const auto device = make_reference_device(threads);
  const LinearCase expected(*judge, type, rows), tested(*device, type, rows);
  const auto right = run_linear(*judge, *expected.weight, expected.x, expected.y);
  const auto got = run_linear(*device, *tested.weight, tested.x, tested.y);
  if (std::memcmp(right.data(), got.data(), right.size() * sizeof(float)) != 0) {
    state.SkipWithError("the result differs from the reference");
    return;
  }
  const Projection projection{tested.weight.get(), {}, tested.y};
  for (auto _ : state) device->linear(tested.x, std::span(&projection, 1));
  state.SetLabel(std::string(name(type)) + ", " + std::to_string(rows) + " rows, " + std::to_string(threads) +
                 " threads");
  state.counters["GMAC/s"] = benchmark::Counter(static_cast<double>(kInputs * kOutputs * rows) * 1e-9,
                                                benchmark::Counter::kIsIterationInvariantRate);
}

void register_linears(int threads) {
  for (DType type : kLinearTypes)
    for (std::int64_t rows : {1, 8})
      benchmark::RegisterBenchmark("linear", linear, threads)
          ->Args({static_cast<std::int64_t>(type), rows})
          ->Unit(benchmark::kMillisecond)
          ->UseRealTime();
}

}  // namespace
}  // namespace espalier

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  espalier::register_linears(static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
  benchmark::RunSpecifiedBenchmarks();
}
