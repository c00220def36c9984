// A tool for people: what a layer of few rows takes on a GPU inside a recorded step, for the shapes of SmolLM2-135M and
// of a 7B model, and what its small kernels take: pairs of ops that follow each other in a layer, hundreds of times.
// Weights are cold. Before anything is timed, the bits of a layer are compared with the reference device's.
// cuda_layers [small|large] [q4_1|q8_0] [ROWS] [clusters]
// ROWS: 0 for all; clusters: layers by one cluster of blocks of threads (cluster_ops.h)
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "device/cuda/cuda_device.h"
#include "device/reference/reference_device.h"

namespace espalier {
namespace {

struct Model {
  const char* name;
  std::int64_t hidden, heads, kv_heads, dim, inner, layers;
};
constexpr Model kSmall{"SmolLM2-135M", 576, 9, 3, 64, 1536, 30};
constexpr Model kLarge{"7B", 4096, 32, 8, 128, 12800, 8};
constexpr std::int64_t kBlockSize = 128;

class Numbers {
 public:
  std::uint32_t next() { return state_ = state_ * 1664525u + 1013904223u, state_ >> 8; }
  float real() { return static_cast<float>(next()) * 0x1p-23f - 1.0f; }
  std::vector<float> reals(std::int64_t n, float scale = 1) {
    std::vector<float> all(static_cast<std::size_t>(n));
    for (float& x : all) x = scale * real();
    return all;
  }
  // Of about the size that keeps rows as large as they were.
  std::vector<std::byte> weight(DType type, std::int64_t outputs, std::int64_t inputs) {
    std::vector<std::byte> all(static_cast<std::size_t>(outputs * row_bytes(type, inputs)));
    for (std::byte& byte : all) byte = static_cast<std::byte>(next() >> 7 & 0xffu);
    const std::size_t block = type == DType::q4_1 ? 20 : 34;
    for (std::size_t i = 0; i < all.size(); i += block) {
      const auto small = static_cast<std::uint16_t>(next() & 0xffu);
      put(all, i, static_cast<std::uint16_t>((type == DType::q4_1 ? 0x1c00u : 0x0c00u) + small));
      if (type == DType::q4_1) put(all, i + 2, static_cast<std::uint16_t>(0xa780u + small));
    }
    return all;
  }
  std::vector<std::byte> halves(std::int64_t n) {
    std::vector<std::byte> all(static_cast<std::size_t>(2 * n));
    for (std::size_t i = 0; i < all.size(); i += 2)
      put(all, i, static_cast<std::uint16_t>((next() & 0x87ffu) + 0x3000u));
    return all;
  }

 private:
  static void put(std::vector<std::byte>& to, std::size_t at, std::uint16_t value) {
    std::memcpy(to.data() + at, &value, 2);
  }
  std::uint32_t state_ = 1;
};

class LayersOnDevice {
 public:
  LayersOnDevice(Device& device, const Model& model, DType type, std::int64_t layers, std::int64_t rows,
                 std::int64_t context)
      : device_(device), m_(model), rows_(rows), layers_(static_cast<std::size_t>(layers)) {
    Numbers numbers;
    const std::int64_t width = m_.heads * m_.dim, kv_width = m_.kv_heads * m_.dim;
    const auto weights = [&](std::unique_ptr<const Weight> Layer::*member, std::int64_t outputs, std::int64_t inputs) {
      const std::vector<std::byte> bytes = numbers.weight(type, outputs, inputs);
      const WeightPart part{type, outputs, inputs, bytes};
      for (Layer& layer : layers_) layer.*member = device.load_weight({&part, 1});
    };
    weights(&Layer::q, width, m_.hidden);
    weights(&Layer::k, kv_width, m_.hidden);
    weights(&Layer::v, kv_width, m_.hidden);
    weights(&Layer::o, m_.hidden, width);
    weights(&Layer::up, 2 * m_.inner, m_.hidden);
    weights(&Layer::down, m_.hidden, m_.inner);
    weights(&Layer::few, 16, m_.hidden);
    weights(&Layer::few_of_inner, 16, m_.inner);
    x_values_ = numbers.reals(rows * m_.hidden);
    x_ = floats(x_values_, {rows, m_.hidden});
    normed_ = zeros({rows, m_.hidden}), projected_ = zeros({rows, m_.hidden});
    q_ = zeros({rows, m_.heads, m_.dim}), attended_ = zeros({rows, m_.heads, m_.dim});
    k_ = zeros({rows, m_.kv_heads, m_.dim}), v_ = zeros({rows, m_.kv_heads, m_.dim});
    up_ = floats(numbers.reals(rows * 2 * m_.inner), {rows, 2 * m_.inner}), gated_ = zeros({rows, m_.inner});
    few_ = zeros({rows, 16});
    norm_ = floats(numbers.reals(m_.hidden), {m_.hidden});
    const std::int64_t positions = context + rows;
    cosine_ = floats(numbers.reals(positions * m_.dim / 2), {positions, m_.dim / 2});
    sine_ = floats(numbers.reals(positions * m_.dim / 2), {positions, m_.dim / 2});
    const std::int64_t blocks = (context + rows + kBlockSize - 1) / kBlockSize;
    const std::vector<std::byte> keys = numbers.halves(blocks * kBlockSize * kv_width);
    for (Layer& layer : layers_)
      for (Tensor* memory : {&layer.keys, &layer.values}) {
        *memory = device.tensor(DType::f16, {blocks, kBlockSize, m_.kv_heads, m_.dim});
        device.upload(keys, *memory);
      }
    const auto behind = [=](std::int64_t r) { return context + r; };
    const auto zero = [](std::int64_t) { return std::int64_t{0}; };
    tables_.position = ints({rows}, behind), tables_.slot = ints({rows}, behind);
    tables_.sequence = ints({rows}, zero), tables_.begin = ints({rows}, zero);
    tables_.end = ints({rows}, [=](std::int64_t) { return context; });
    tables_.ancestor_count = ints({rows}, zero), tables_.ancestors = ints({rows, 1}, zero);
    tables_.blocks = ints({1, blocks}, [](std::int64_t i) { return i; });
  }

  struct Layer {
    std::unique_ptr<const Weight> q, k, v, o, up, down, few, few_of_inner;
    Tensor keys, values;
  };

  void norm() { device_.rms_norm(x_, norm_, 1e-5f, normed_); }
  void qkv(const Layer& layer) {
    const Projection all[] = {
        {layer.q.get(), {}, flat(q_)}, {layer.k.get(), {}, flat(k_)}, {layer.v.get(), {}, flat(v_)}};
    device_.linear(normed_, all);
  }
  void rotate(const Layer& layer) {
    device_.rope(q_, tables_.position, cosine_, sine_);
    device_.rope(k_, tables_.position, cosine_, sine_);
    device_.kv_write(k_, v_, tables_.slot, {layer.keys.view, layer.values.view});
  }
  void attend(const Layer& layer) {
    device_.attention(q_, {layer.keys.view, layer.values.view}, tables_, 0.125f, attended_);
  }
  void project(const Weight& weight, View x, View y) {
    const Projection one{&weight, {}, y};
    device_.linear(x, {&one, 1});
  }
  void o(const Layer& layer) {
    project(*layer.o, flat(attended_), projected_);
    device_.add(x_, projected_);
  }
  void up(const Layer& layer) { project(*layer.up, normed_, up_); }
  void swiglu() { device_.swiglu(up_, gated_); }
  void down(const Layer& layer) {
    project(*layer.down, gated_, projected_);
    device_.add(x_, projected_);
  }
  void few(const Layer& layer) { project(*layer.few, normed_, few_); }
  void few_of_gated(const Layer& layer) { project(*layer.few_of_inner, gated_, few_); }
  void whole(const Layer& layer) {
    norm(), qkv(layer), rotate(layer), attend(layer), o(layer), norm(), up(layer), swiglu(), down(layer);
  }

  // Microseconds for each layer of `times` times all layers, the least of some runs.
  double time(int times, const std::function<void(const Layer&)>& ops) {
    const auto recordings = device_.make_recordings();
    double least = 1e30;
    std::vector<std::byte> end(4);
    for (int run = 0; run < 9; ++run) {
      upload<float>(device_, x_values_, x_);
      device_.download(View(x_.data(), DType::f32, {1}), end);
      const auto begin = std::chrono::steady_clock::now();
      device_.step(*recordings, {.rows = rows_}, [&] {
        for (int t = 0; t < times; ++t)
          for (const Layer& layer : layers_) ops(layer);
      });
      device_.download(View(x_.data(), DType::f32, {1}), end);
      const double took = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
      if (run > 1) least = std::min(least, took);
    }
    return least / (times * static_cast<double>(layers_.size()));
  }

  // What a step of one layer leaves, twice recorded.
  std::vector<float> bits() {
    const auto recordings = device_.make_recordings();
    for (int run = 0; run < 3; ++run) {
      upload<float>(device_, x_values_, x_);
      device_.step(*recordings, {.rows = rows_}, [&] {
        for (const Layer& layer : layers_) whole(layer);
      });
    }
    std::vector<float> all;
    for (const View& view : {x_, normed_, q_, k_, v_, attended_, gated_}) {
      std::vector<float> some(static_cast<std::size_t>(view.elements()));
      download<float>(device_, view, some);
      all.insert(all.end(), some.begin(), some.end());
    }
    return all;
  }

 private:
  View flat(const View& view) const { return view.reshaped({rows_, view.elements() / rows_}); }
  View floats(const std::vector<float>& values, std::initializer_list<std::int64_t> shape) {
    memory_.push_back(device_.tensor(DType::f32, shape));
    upload<float>(device_, values, memory_.back());
    return memory_.back().view;
  }
  View zeros(std::initializer_list<std::int64_t> shape) {
    std::int64_t n = 1;
    for (const std::int64_t extent : shape) n *= extent;
    return floats(std::vector<float>(static_cast<std::size_t>(n)), shape);
  }
  template <typename Entry>
  View ints(std::initializer_list<std::int64_t> shape, Entry entry) {
    memory_.push_back(device_.tensor(DType::i32, shape));
    std::vector<std::int32_t> values;
    for (std::int64_t i = 0; i < memory_.back().view.elements(); ++i)
      values.push_back(static_cast<std::int32_t>(entry(i)));
    upload<std::int32_t>(device_, values, memory_.back());
    return memory_.back().view;
  }

  Device& device_;
  Model m_;
  std::int64_t rows_;
  std::vector<Layer> layers_;
  std::vector<Tensor> memory_;
  std::vector<float> x_values_;
  View x_, normed_, projected_, q_, k_, v_, attended_, up_, gated_, few_, norm_, cosine_, sine_;
  RowTables tables_;
};

void check(Device& device, const Model& model, DType type) {
  const auto reference = make_reference_device(16);
  for (const auto& [rows, context, layers] :
       std::vector<std::array<std::int64_t, 3>>{{1, 128, model.layers}, {3, 300, 2}, {9, 40, 2}}) {
    const std::vector<float> mine = LayersOnDevice(device, model, type, layers, rows, context).bits(),
                             right = LayersOnDevice(*reference, model, type, layers, rows, context).bits();
    std::size_t differ = 0, finite = 0;
    for (std::size_t i = 0; i < mine.size(); ++i) {
      differ += std::memcmp(&mine[i], &right[i], 4) != 0 ? 1 : 0;
      finite += right[i] - right[i] == 0 ? 1 : 0;
    }
    fmt::print("{} {}: {} rows behind {}: {} of {} numbers differ ({} finite)\n", model.name, name(type), rows, context,
               differ, mine.size(), finite);
  }
}

// only_rows: 0 for all
void show(Device& device, const Model& model, DType type, std::int64_t only_rows) {
  check(device, model, type);
  const int times = static_cast<int>(120 / model.layers);
  for (const auto& [rows, context] : std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 100},
                                                                                        {1, 128},
                                                                                        {1, 512},
                                                                                        {1, 1024},
                                                                                        {1, 4096},
                                                                                        {1, 8192},
                                                                                        {2, 128},
                                                                                        {8, 128},
                                                                                        {16, 128},
                                                                                        {16, 512},
                                                                                        {64, 128}}) {
    if (only_rows != 0 && rows != only_rows) continue;
    LayersOnDevice all(device, model, type, model.layers, rows, context);
    using Layer = LayersOnDevice::Layer;
    const auto layer = [&](const Layer& l) { all.whole(l); };
    const auto once_more = [&](const Layer& l) {
      all.norm(), all.qkv(l), all.rotate(l), all.attend(l), all.attend(l), all.o(l), all.norm(), all.up(l),
          all.swiglu(), all.down(l);
    };
    const double whole = all.time(times, layer);
    fmt::print("{:>12} {} rows {:>2} behind {:>4}: layer {:6.2f}, one more attention {:6.2f}", model.name, name(type),
               rows, context, whole, all.time(times, once_more) - whole);
    fmt::print(", rotate+attention {:6.2f}", all.time(times, [&](const Layer& l) { all.rotate(l), all.attend(l); }));
    if (context == 128) {
      fmt::print(", rotate {:.2f}", all.time(times, [&](const Layer& l) { all.rotate(l); }));
      fmt::print(", norm+few {:.2f}", all.time(times, [&](const Layer& l) { all.norm(), all.few(l); }));
      fmt::print(", swiglu+few {:.2f}", all.time(times, [&](const Layer& l) { all.swiglu(), all.few_of_gated(l); }));
      fmt::print(", qkv {:.2f}", all.time(times, [&](const Layer& l) { all.qkv(l), all.few(l); }));
      fmt::print(", norm+qkv {:.2f}", all.time(times, [&](const Layer& l) { all.norm(), all.qkv(l); }));
      fmt::print(", attention+o {:.2f}", all.time(times, [&](const Layer& l) { all.attend(l), all.o(l); }));
      fmt::print(", o+norm+up {:.2f}", all.time(times, [&](const Layer& l) { all.o(l), all.norm(), all.up(l); }));
      fmt::print(", norm+up {:.2f}", all.time(times, [&](const Layer& l) { all.norm(), all.up(l); }));
      fmt::print(", swiglu+down {:.2f}", all.time(times, [&](const Layer& l) { all.swiglu(), all.down(l); }));
    }
    fmt::print("\n");
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace espalier

int main(int argc, char** argv) {
  try {
    const auto device = espalier::cuda::make_device({.clusters = argc > 4 && std::string(argv[4]) == "clusters"});
    const std::string which = argc > 1 ? argv[1] : "small";
    const std::string type = argc > 2 ? argv[2] : "q4_1";
    espalier::show(*device, which == "large" ? espalier::kLarge : espalier::kSmall, *espalier::parse_dtype(type),
                   argc > 3 ? std::stoll(argv[3]) : 0);
  } catch (const std::exception& error) {
    fmt::print(stderr, "cuda_layers: {}\n", error.what());
    return 1;
  }
}
