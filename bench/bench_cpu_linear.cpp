// How close are the CPU device's linears to the machine? One row against a plain read of the same bytes, many rows in
// multiply-adds per second, for the shapes of SmolLM2-135M and a few larger ones.
//
//   bench_cpu_linear [isa] [threads] [type ...]
//
// Each case is first compared bit for bit with the reference device. The time of a pass is the sum of the best time of
// each of its calls over many passes: the machine may be shared, and noise only ever adds. A pass goes through copies
// of the weight that together exceed the second-level caches, as the layers of a model do.

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/thread_pool.h"
#include "bench_case.h"
#include "cpu_bench.h"
#include "device/cpu/cpu_device.h"
#include "device/reference/reference_device.h"

namespace espalier {
namespace {

constexpr std::int64_t kBytesPerPass = 48 << 20;
constexpr std::int64_t kRowCounts[] = {1, 2, 4, 8, 16, 32, 64, 256};

void check_against_reference(Device& device, DType type, WeightShape shape, const std::vector<std::byte>& bytes) {
  const std::int64_t outputs = std::min<std::int64_t>(shape.outputs, 40);
  const auto part_bytes = static_cast<std::size_t>(outputs * row_bytes(type, shape.inputs));
  const WeightPart part{type, outputs, shape.inputs, std::span(bytes).first(part_bytes)};
  const auto judge = make_reference_device();
  for (std::int64_t rows : {1, 9, 33})
    check(same_bits(LinearCase(*judge, part, rows).answer(), LinearCase(device, part, rows).answer()),
          "{} {}x{}: the result differs from the reference", name(type), shape.inputs, shape.outputs);
}

// Seconds to read `bytes` once in `pieces` loops, all threads together.
double read_seconds(Device& device, ThreadPool& pool, std::int64_t bytes, std::int64_t pieces) {
  const auto buffer = device.allocate(static_cast<std::size_t>(bytes));
  std::memset(buffer->data(), 1, buffer->size());
  std::vector<std::uint64_t> sums(static_cast<std::size_t>(pool.threads()) * 16);
  BestOfPasses best;
  for (int pass = 0; pass < kPasses; ++pass, best.end_pass())
    for (std::int64_t piece = 0; piece < pieces; ++piece) {
      const auto* const words = reinterpret_cast<const std::uint64_t*>(buffer->data() + bytes / pieces * piece);
      const auto read = [&](std::int64_t begin, std::int64_t end, int thread) {
        std::uint64_t lane[8] = {};
        for (std::int64_t i = begin; i < end; ++i) {
          __builtin_prefetch(words + i * 8 + 512);
          for (int j = 0; j < 8; ++j) lane[j] += words[i * 8 + j];
        }
        for (std::uint64_t sum : lane) sums[static_cast<std::size_t>(thread) * 16] += sum;
      };
      best.time([&] { pool.run(bytes / pieces / 64, read, 256); });
    }
  return best.seconds();
}

struct Case {
  Case(Device& device, DType type, WeightShape shape) : bytes(shape.outputs * row_bytes(type, shape.inputs)) {
    const auto file = random_weight(type, shape);
    check_against_reference(device, type, shape, file);
    const WeightPart part{type, shape.outputs, shape.inputs, file};
    for (std::int64_t i = 0; i < std::max<std::int64_t>(1, kBytesPerPass / bytes); ++i)
      weights.push_back(device.load_weight(std::span(&part, 1)));
  }
  std::int64_t bytes;
  std::vector<std::unique_ptr<const Weight>> weights;
};

void measure(Device& device, ThreadPool& pool, DType type, WeightShape shape) {
  const Case c(device, type, shape);
  const auto copies = static_cast<std::int64_t>(c.weights.size());
  std::printf("%-5s %5ldx%-6ld", std::string(name(type)).c_str(), static_cast<long>(shape.inputs),
              static_cast<long>(shape.outputs));
  for (std::int64_t rows : kRowCounts) {
    const Tensor x = device.tensor(DType::f32, {rows, shape.inputs});
    const Tensor y = device.tensor(DType::f32, {rows, shape.outputs});
    upload<float>(device, random_values(rows * shape.inputs), x);
    const std::int64_t count = std::max<std::int64_t>(1, copies / rows);
    BestOfPasses best;
    for (int pass = 0; pass < kPasses; ++pass, best.end_pass())
      for (std::int64_t i = 0; i < count; ++i) {
        const Projection projection{c.weights[static_cast<std::size_t>(i)].get(), {}, y};
        best.time([&] { device.linear(x, std::span(&projection, 1)); });
      }
    if (rows == 1) {
      const double plain = read_seconds(device, pool, c.bytes * copies, copies);
      const double gigabytes = 1e-9 * static_cast<double>(c.bytes * copies);
      std::printf("  1 row %5.1f GB/s of %5.1f read (%3.0f %%), GMAC/s:", gigabytes / best.seconds(), gigabytes / plain,
                  100 * plain / best.seconds());
      continue;
    }
    std::printf(" %ld: %.0f", static_cast<long>(rows),
                1e-9 * static_cast<double>(count * shape.inputs * shape.outputs * rows) / best.seconds());
    std::fflush(stdout);
  }
  std::printf("\n");
}

// All linears of one step of SmolLM2-135M in its default file: layers in q4_1, the last product in q8_0.
class ModelLinears {
 public:
  static constexpr std::int64_t kLayerWeights = 30 * (2 * 576 * 576 + 2 * 576 * 192 + 3 * 576 * 1536);
  static constexpr std::int64_t kLastWeights = std::int64_t{576} * 49152;
  static constexpr std::int64_t kWeights = kLayerWeights + kLastWeights;
  static constexpr std::int64_t kBytes = kLayerWeights / 32 * 20 + kLastWeights / 32 * 34;

  explicit ModelLinears(Device& device) : device_(device), last_(load(DType::q8_0, {576, 49152})) {
    for (int i = 0; i < 30; ++i)
      layers_.push_back({load(DType::q4_1, {576, 576}), load(DType::q4_1, {576, 192}), load(DType::q4_1, {576, 192}),
                         load(DType::q4_1, {576, 576}), load(DType::q4_1, {576, 3072}),
                         load(DType::q4_1, {1536, 576})});
  }

  void set_rows(std::int64_t rows) {
    const auto input = [&](std::int64_t width) {
      Tensor x = device_.tensor(DType::f32, {rows, width});
      upload<float>(device_, random_values(rows * width), x);
      return x;
    };
    const auto output = [&](std::int64_t width) { return device_.tensor(DType::f32, {rows, width}); };
    x_ = input(576), wide_ = input(1536);
    q_ = output(576), k_ = output(192), v_ = output(192), up_ = output(3072), logits_ = output(49152);
  }

  // Each linear inside a call of `timed`.
  template <typename Timed>
  void step(const Timed& timed) {
    const auto one = [&](ConstView from, const Weight& weight, View to) {
      const Projection projection{&weight, {}, to};
      timed([&] { device_.linear(from, std::span(&projection, 1)); });
    };
    for (const Layer& layer : layers_) {
      const Projection qkv[] = {{layer.q.get(), {}, q_}, {layer.k.get(), {}, k_}, {layer.v.get(), {}, v_}};
      timed([&] { device_.linear(x_, qkv); });
      one(x_, *layer.o, q_);
      one(x_, *layer.gate_up, up_);
      one(wide_, *layer.down, q_);
    }
    one(x_, *last_, logits_);
  }

 private:
  struct Layer {
    std::unique_ptr<const Weight> q, k, v, o, gate_up, down;
  };

  std::unique_ptr<const Weight> load(DType type, WeightShape shape) {
    const auto bytes = random_weight(type, shape);
    const WeightPart part{type, shape.outputs, shape.inputs, bytes};
    return device_.load_weight(std::span(&part, 1));
  }

  Device& device_;
  std::vector<Layer> layers_;
  std::unique_ptr<const Weight> last_;
  Tensor x_, wide_, q_, k_, v_, up_, logits_;
};

// Multiply-adds per second of the same kernels on one weight that stays in the second-level caches: what the arithmetic
// allows, with the epilogue of every block.
double resident_rate(Device& device, std::int64_t rows) {
  constexpr WeightShape kShape{576, 3072};
  const auto bytes = random_weight(DType::q4_1, kShape);
  const WeightPart part{DType::q4_1, kShape.outputs, kShape.inputs, bytes};
  const LinearCase resident(device, part, rows);
  BestOfPasses best;
  for (int pass = 0; pass < 200; ++pass, best.end_pass()) best.time([&] { resident.run(); });
  return static_cast<double>(kShape.inputs * kShape.outputs * rows) / best.seconds();
}

void measure_rows(Device& device, ModelLinears& linears) {
  double one_row = 0;
  for (std::int64_t rows : kRowCounts) {
    linears.set_rows(rows);
    BestOfPasses best;
    for (int pass = 0; pass < (rows > 64 ? 5 : 2 * kPasses); ++pass, best.end_pass())
      linears.step([&](const auto& call) { best.time(call); });
    const double seconds = best.seconds();
    if (rows == 1) one_row = seconds;
    const double rate = static_cast<double>(ModelLinears::kWeights * rows) / seconds,
                 resident = resident_rate(device, rows);
    std::printf(
        "linears of a SmolLM2-135M step, %3ld rows: %7.2f ms, %.2f of one row, %4.0f GMAC/s, %.0f %% of %.0f with "
        "a resident weight\n",
        static_cast<long>(rows), 1e3 * seconds, seconds / one_row, 1e-9 * rate, 100 * rate / resident, 1e-9 * resident);
    std::fflush(stdout);
  }
}

double median_step_seconds(ModelLinears& linears) {
  std::vector<double> seconds;
  for (int i = 0; i < 200; ++i) seconds.push_back(seconds_of([&] { linears.step([](const auto& call) { call(); }); }));
  std::ranges::nth_element(seconds, seconds.begin() + 100);
  return seconds[100];
}

// What another program costs that wants a core for itself. With c cores and t threads a fair share is c / (t + 1) of
// what there was.
void measure_beside_neighbour(ModelLinears& linears, int threads) {
  linears.set_rows(1);
  const double alone = median_step_seconds(linears);
  std::atomic<bool> stop = false;
  std::thread neighbour([&] {
    while (!stop.load(std::memory_order_relaxed)) {
    }
  });
  const double beside = median_step_seconds(linears);
  stop = true;
  neighbour.join();
  std::printf("one row, %d threads, a busy neighbour on %u cores: median %.2f ms alone, %.2f ms beside it, %.2fx\n",
              threads, std::thread::hardware_concurrency(), 1e3 * alone, 1e3 * beside, beside / alone);
}

void measure_model(Device& device, ThreadPool& pool) {
  for (std::int64_t loops : {1, 121}) {
    const double plain = read_seconds(device, pool, ModelLinears::kBytes, loops);
    std::printf("plain read of %.1f MB in %3ld loops: %.2f ms, %.1f GB/s\n", 1e-6 * ModelLinears::kBytes,
                static_cast<long>(loops), 1e3 * plain, 1e-9 * static_cast<double>(ModelLinears::kBytes) / plain);
  }
  ModelLinears linears(device);
  measure_rows(device, linears);
  measure_beside_neighbour(linears, pool.threads());
}

}  // namespace
}  // namespace espalier

int main(int argc, char** argv) {
  using namespace espalier;
  const CpuUnderTest cpu(argc, argv);
  ThreadPool pool(cpu.threads());
  std::printf("%s\n", cpu.describe().c_str());
  std::vector<DType> types;
  for (int i = 3; i < argc; ++i)
    if (const auto type = parse_dtype(argv[i])) types.push_back(*type);
  const bool all = types.empty();
  if (all) {
    measure_model(cpu.device(), pool);
    types = {DType::q4_1, DType::q4_0, DType::q8_0, DType::f16, DType::q4_k, DType::q5_k, DType::q6_k};
  }
  for (DType type : types) {
    const bool super_blocks = traits(type).block_elements == 256;
    const std::vector<WeightShape> shapes =
        super_blocks ? std::vector<WeightShape>{{4096, 4096}, {4096, 12800}}
                     : std::vector<WeightShape>{{576, 576}, {576, 192}, {576, 3072}, {1536, 576}, {576, 49152}};
    for (WeightShape shape : shapes) measure(cpu.device(), pool, type, shape);
  }
}
