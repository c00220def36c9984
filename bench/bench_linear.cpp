// How fast are the linears, where a step spends its time? Every weight type, one and eight rows.
// Every case is computed once by the reference device with one thread and compared bit for bit before it is timed.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <string>
#include <thread>

#include "bench_case.h"
#include "device/device.h"
#include "device/reference/reference_device.h"

namespace espalier {
namespace {

constexpr WeightShape kShape = {.inputs = 1536, .outputs = 1536};  // like the widest linears of the default model

void linear(benchmark::State& state, int threads) {
  const auto type = static_cast<DType>(state.range(0));
  const std::int64_t rows = state.range(1);
  const auto judge = make_reference_device(1);
  const auto device = make_reference_device(threads);
  const auto bytes = random_weight(type, kShape);
  const WeightPart part{type, kShape.outputs, kShape.inputs, bytes};
  const LinearCase expected(*judge, part, rows), tested(*device, part, rows);
  if (!same_bits(expected.answer(), tested.answer())) {
    state.SkipWithError("the result differs from the reference");
    return;
  }
  for (auto _ : state) tested.run();
  state.SetLabel(std::string(name(type)) + ", " + std::to_string(rows) + " rows, " + std::to_string(threads) +
                 " threads");
  state.counters["GMAC/s"] = benchmark::Counter(static_cast<double>(kShape.inputs * kShape.outputs * rows) * 1e-9,
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
