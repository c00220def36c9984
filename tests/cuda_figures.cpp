// A tool for people: what the linears and the attention of a 7B-shaped layer take on a GPU, weights cold, as recorded
// steps; beside each the time of a plain read of the same bytes at 4.5 TB/s. cuda_figures [TYPE...] [ROWS...]; with
// numbers of rows, linears alone.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "device/cuda/cuda_device.h"

namespace espalier {
namespace {

constexpr std::int64_t kHidden = 4096, kInner = 12800, kKvWidth = 1024;
constexpr int kLayers = 24;  // so many that no cache holds them, and that the wait at the end hardly counts
constexpr int kRepeats = 9;
constexpr double kBytesPerMicrosecond = 4.5e6;

using Clock = std::chrono::steady_clock;

std::vector<std::byte> random_bytes(std::size_t count) {
  std::vector<std::byte> bytes(count);
  std::uint32_t state = 1;
  for (std::byte& byte : bytes) {
    state = state * 1664525u + 1013904223u;
    byte = static_cast<std::byte>(state >> 24 & 0x3fu);  // no exponent of a scale is all ones
  }
  return bytes;
}

std::unique_ptr<const Weight> weight_of(Device& device, DType type, std::int64_t outputs, std::int64_t inputs,
                                        std::span<const std::byte> bytes) {
  const WeightPart part{type, outputs, inputs,
                        bytes.first(static_cast<std::size_t>(outputs * row_bytes(type, inputs)))};
  return device.load_weight({&part, 1});
}

struct Layer {
  std::unique_ptr<const Weight> qkv, o, up, down, floor;  // floor: so few outputs that only launches count
  Layer(Device& device, DType type, std::span<const std::byte> bytes)
      : qkv(weight_of(device, type, kHidden + 2 * kKvWidth, kHidden, bytes)),
        o(weight_of(device, type, kHidden, kHidden, bytes)),
        up(weight_of(device, type, 2 * kInner, kHidden, bytes)),
        down(weight_of(device, type, kHidden, kInner, bytes)),
        floor(weight_of(device, type, 16, 256, bytes)) {}
};

// The median time of one run of `ops`, in microseconds.
double median_time(Device& device, const std::function<void()>& ops, ConstView result) {
  const auto recordings = device.make_recordings();
  std::vector<double> times;
  std::vector<std::byte> end(static_cast<std::size_t>(result.rows(0, 1).bytes_spanned()));
  for (int i = 0; i < kRepeats + 3; ++i) {
    const auto begin = Clock::now();
    device.step(*recordings, {}, ops);
    device.download(result.rows(0, 1), end);
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
  }
  times.erase(times.begin(), times.begin() + 3);
  std::ranges::nth_element(times, times.begin() + kRepeats / 2);
  return times[kRepeats / 2];
}

void show_linears(Device& device, DType type, const std::vector<std::int64_t>& row_counts) {
  std::vector<Layer> layers;
  const std::vector<std::byte> bytes = random_bytes(static_cast<std::size_t>(2 * kInner * row_bytes(type, kHidden)));
  for (int i = 0; i < kLayers; ++i) layers.emplace_back(device, type, bytes);
  const std::int64_t weights = (kHidden + 2 * kKvWidth) * kHidden + kHidden * kHidden + 3 * kInner * kHidden;
  fmt::print("{}: a plain read takes {:.1f} us a layer\n", name(type),
             static_cast<double>(row_bytes(type, weights)) / kBytesPerMicrosecond);
  for (const std::int64_t rows : row_counts) {
    const Tensor x = device.tensor(DType::f32, {rows, kInner}), y = device.tensor(DType::f32, {rows, 2 * kInner});
    upload<float>(device, std::vector<float>(static_cast<std::size_t>(rows * kInner), 0.5f), x);
    const auto project = [&](const Weight& weight) {
      const Projection projection{&weight, {}, View(y.view.data(), DType::f32, {rows, weight.outputs()})};
      device.linear(ConstView(x.view.data(), DType::f32, {rows, weight.inputs()}), {&projection, 1});
    };
    std::string line = fmt::format("  {:>4} rows:", rows);
    double sum = 0;
    for (const auto& [what, weight] : {std::pair{"qkv", &Layer::qkv},
                                       {"o", &Layer::o},
                                       {"up", &Layer::up},
                                       {"down", &Layer::down},
                                       {"floor", &Layer::floor}}) {
      const auto all_layers = [&, member = weight] {
        for (const Layer& layer : layers) project(*(layer.*member));
      };
      const double time = median_time(device, all_layers, y);
      line += fmt::format(" {} {:.1f}", what, time / kLayers);
      if (weight != &Layer::floor) sum += time / kLayers;
    }
    fmt::print("{}, together {:.1f} us\n", line, sum);
  }
}

void show_attention(Device& device) {
  constexpr std::int64_t kHeads = 32, kKvHeads = 8, kDim = 128, kBlockSize = 128;
  for (const std::int64_t context : {128, 1024, 4096, 8192})
    for (const std::int64_t rows : {1, 16, 64}) {
      const std::int64_t blocks = context / kBlockSize + 1;
      const Tensor q = device.tensor(DType::f32, {rows, kHeads, kDim}),
                   out = device.tensor(DType::f32, {rows, kHeads, kDim});
      const Tensor k = device.tensor(DType::f16, {blocks, kBlockSize, kKvHeads, kDim});
      const Tensor v = device.tensor(DType::f16, {blocks, kBlockSize, kKvHeads, kDim});
      const std::vector<std::byte> zeros(static_cast<std::size_t>(k.view.bytes_spanned()));
      device.upload(zeros, k);
      device.upload(zeros, v);
      upload<float>(device, std::vector<float>(static_cast<std::size_t>(q.view.elements()), 0.5f), q);
      std::vector<Tensor> tables;
      const auto table = [&](auto entry, std::int64_t n, std::initializer_list<std::int64_t> shape) {
        std::vector<std::int32_t> values;
        for (std::int64_t i = 0; i < n; ++i) values.push_back(static_cast<std::int32_t>(entry(i)));
        tables.push_back(device.tensor(DType::i32, shape));
        upload<std::int32_t>(device, values, tables.back());
        return tables.back().view;
      };
      const auto zero = [](std::int64_t) { return 0; };
      RowTables t;
      t.slot = table([&](std::int64_t r) { return context + r; }, rows, {rows});
      t.sequence = table(zero, rows, {rows});
      t.begin = table(zero, rows, {rows});
      t.end = table([&](std::int64_t) { return context; }, rows, {rows});
      t.ancestor_count = table(zero, rows, {rows});
      t.ancestors = table(zero, rows, {rows, 1});
      t.blocks = table([](std::int64_t i) { return i; }, blocks, {1, blocks});
      constexpr int kCalls = 16;
      const double time = median_time(
          device,
          [&] {
            for (int i = 0; i < kCalls; ++i) device.attention(q, {k.view, v.view}, t, 0.088f, out);
          },
          out);
      fmt::print("attention, {:>4} positions, {:>2} rows: {:.1f} us\n", context, rows, time / kCalls);
    }
}

}  // namespace
}  // namespace espalier

int main(int argc, char** argv) {
  try {
    const auto device = espalier::cuda::make_device();
    std::vector<std::string> types;
    std::vector<std::int64_t> rows;
    for (const std::string& word : std::vector<std::string>(argv + 1, argv + argc))
      if (espalier::parse_dtype(word))
        types.push_back(word);
      else
        rows.push_back(std::stoll(word));
    if (types.empty()) types = {"q4_1", "q8_0", "q4_k"};
    for (const std::string& type : types)
      espalier::show_linears(*device, *espalier::parse_dtype(type),
                             rows.empty() ? std::vector<std::int64_t>{1, 2, 8, 16, 32, 64, 256, 512} : rows);
    if (rows.empty()) espalier::show_attention(*device);
  } catch (const std::exception& error) {
    fmt::print(stderr, "cuda_figures: {}\n", error.what());
    return 1;
  }
}
