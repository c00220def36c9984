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
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/float16.h"
#include "base/thread_pool.h"
#include "device/cpu/cpu_device.h"
#include "device/reference/reference_device.h"

namespace espalier {
namespace {

constexpr std::int64_t kBytesPerPass = 48 << 20;
constexpr int kPasses = 15;
constexpr std::int64_t kRowCounts[] = {1, 2, 4, 8, 16, 32, 64, 256};

struct Shape {
  std::int64_t inputs, outputs;
};

std::vector<float> random_values(std::int64_t count) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

// Random bytes are valid blocks of any format once every f16 in them is a small finite number.
std::vector<std::byte> random_weight(DType type, Shape shape) {
  std::mt19937 random(2);
  std::vector<std::byte> bytes(static_cast<std::size_t>(shape.outputs * row_bytes(type, shape.inputs)));
  if (type == DType::f32) {
    const auto values = random_values(shape.outputs * shape.inputs);
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
  }
  for (std::size_t i = 0; i + 1 < bytes.size(); i += 2) {
    const std::uint16_t half = f32_to_f16(static_cast<float>(random() % 1000) / 1000 - 0.5f);
    std::memcpy(bytes.data() + i, &half, sizeof half);
  }
  return bytes;
}

// Sums, over the calls of a pass, the best time each of them took in many passes.
class BestOfPasses {
 public:
  template <typename Call>
  void time(const Call& call) {
    if (next_ == best_.size()) best_.push_back(1e30);
    const auto start = std::chrono::steady_clock::now();
    call();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    best_[next_] = std::min(best_[next_], seconds);
    ++next_;
  }
  void end_pass() { next_ = 0; }
  double seconds() const { return std::accumulate(best_.begin(), best_.end(), 0.0); }

 private:
  std::vector<double> best_;
  std::size_t next_ = 0;
};

std::vector<float> run_once(Device& device, const WeightPart& part, std::int64_t rows) {
  const auto weight = device.load_weight(std::span(&part, 1));
  const Tensor x = device.tensor(DType::f32, {rows, part.inputs}), y = device.tensor(DType::f32, {rows, part.outputs});
  upload<float>(device, random_values(rows * part.inputs), x);
  const Projection projection{weight.get(), {}, y};
  device.linear(x, std::span(&projection, 1));
  std::vector<float> result(static_cast<std::size_t>(rows * part.outputs));
  download<float>(device, y, result);
  return result;
}

void check_against_reference(Device& device, DType type, Shape shape, const std::vector<std::byte>& bytes) {
  const std::int64_t outputs = std::min<std::int64_t>(shape.outputs, 40);
  const auto part_bytes = static_cast<std::size_t>(outputs * row_bytes(type, shape.inputs));
  const WeightPart part{type, outputs, shape.inputs, std::span(bytes).first(part_bytes)};
  const auto judge = make_reference_device();
  for (std::int64_t rows : {1, 9, 33}) {
    const auto expected = run_once(*judge, part, rows), got = run_once(device, part, rows);
    check(std::memcmp(expected.data(), got.data(), expected.size() * sizeof(float)) == 0,
          "{} {}x{}: the result differs from the reference", name(type), shape.inputs, shape.outputs);
  }
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
  Case(Device& device, DType type, Shape shape) : bytes(shape.outputs * row_bytes(type, shape.inputs)) {
    const auto file = random_weight(type, shape);
    check_against_reference(device, type, shape, file);
    const WeightPart part{type, shape.outputs, shape.inputs, file};
    for (std::int64_t i = 0; i < std::max<std::int64_t>(1, kBytesPerPass / bytes); ++i)
      weights.push_back(device.load_weight(std::span(&part, 1)));
  }
  std::int64_t bytes;
  std::vector<std::unique_ptr<const Weight>> weights;
};

void measure(Device& device, ThreadPool& pool, DType type, Shape shape) {
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

  std::unique_ptr<const Weight> load(DType type, Shape shape) {
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
  constexpr Shape kShape{576, 3072};
  const auto bytes = random_weight(DType::q4_1, kShape);
  const WeightPart part{DType::q4_1, kShape.outputs, kShape.inputs, bytes};
  const auto weight = device.load_weight(std::span(&part, 1));
  const Tensor x = device.tensor(DType::f32, {rows, kShape.inputs}),
               y = device.tensor(DType::f32, {rows, kShape.outputs});
  upload<float>(device, random_values(rows * kShape.inputs), x);
  const Projection projection{weight.get(), {}, y};
  BestOfPasses best;
  for (int pass = 0; pass < 200; ++pass, best.end_pass())
    best.time([&] { device.linear(x, std::span(&projection, 1)); });
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
  for (int i = 0; i < 200; ++i) {
    const auto start = std::chrono::steady_clock::now();
    linears.step([](const auto& call) { call(); });
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
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
  CpuOptions options;
  options.threads = argc > 2 ? std::atoi(argv[2]) : static_cast<int>(std::thread::hardware_concurrency());
  options.isa = argc > 1 ? parse_isa(argv[1]) : std::nullopt;
  const auto device = make_cpu_device(options);
  ThreadPool pool(options.threads);
  std::printf("isa %s, %d threads\n", std::string(name(options.isa.value_or(supported_isas().back()))).c_str(),
              options.threads);
  std::vector<DType> types;
  for (int i = 3; i < argc; ++i)
    if (const auto type = parse_dtype(argv[i])) types.push_back(*type);
  const bool all = types.empty();
  if (all) {
    measure_model(*device, pool);
    types = {DType::q4_1, DType::q4_0, DType::q8_0, DType::f16, DType::q4_k, DType::q5_k, DType::q6_k};
  }
  for (DType type : types) {
    const bool super_blocks = traits(type).block_elements == 256;
    const std::vector<Shape> shapes =
        super_blocks ? std::vector<Shape>{{4096, 4096}, {4096, 12800}}
                     : std::vector<Shape>{{576, 576}, {576, 192}, {576, 3072}, {1536, 576}, {576, 49152}};
    for (Shape shape : shapes) measure(*device, pool, type, shape);
  }
}
