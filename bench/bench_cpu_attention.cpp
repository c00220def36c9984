// How fast is the CPU device's attention? All layers of a step of SmolLM2-135M: trees of a few rows behind contexts of
// several lengths, in time, in multiply-adds per second and in bytes of K and V per second, beside what the machine can
// do of each: multiply-adds in registers, a plain read of the same bytes.
//
//   bench_cpu_attention [isa] [threads]
//
// A small case is first compared bit for bit with the reference device. Times are sums of the best time of each call
// over many passes: the machine may be shared, and noise only ever adds. Every layer has K and V of its own, as in a
// model.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "bench_case.h"
#include "cpu_bench.h"
#include "device/cpu/cpu_device.h"
#include "device/reference/reference_device.h"
#include "machine_limits.h"

namespace espalier {
namespace {

constexpr std::int64_t kLayers = 30, kKvHeads = 3, kHeads = 9, kDim = 64, kBlockSize = 128;
constexpr std::int64_t kPoolBlocks = 64;  // as a run allots them: memory of this size comes in large pages

Tensor integers(Device& device, const std::vector<std::int32_t>& values, std::vector<std::int64_t> shape) {
  Tensor tensor =
      shape.size() == 1 ? device.tensor(DType::i32, {shape[0]}) : device.tensor(DType::i32, {shape[0], shape[1]});
  upload<std::int32_t>(device, values, tensor);
  return tensor;
}

// A tree in which node k hangs below node (k - 1) / 2, in the slots behind the context.
class TreeStep {
 public:
  TreeStep(Device& device, std::int64_t rows, std::int64_t context, std::int64_t layers)
      : device_(device), rows_(rows), context_(context) {
    const std::int64_t blocks = std::max(kPoolBlocks, (context + rows + kBlockSize - 1) / kBlockSize);
    fill_tables(blocks);
    q_ = device.tensor(DType::f32, {rows, kHeads, kDim});
    out_ = device.tensor(DType::f32, {rows, kHeads, kDim});
    upload<float>(device, random_values(rows * kHeads * kDim, 1), q_);
    for (std::int64_t layer = 0; layer < layers; ++layer) add_layer(blocks);
  }

  // Each layer inside a call of `timed`.
  template <typename Timed>
  void run(const Timed& timed) {
    const auto scale = static_cast<float>(1 / std::sqrt(static_cast<double>(kDim)));
    for (std::size_t layer = 0; layer < k_.size(); ++layer)
      timed([&] { device_.attention(q_, {k_[layer], v_[layer]}, tables_, scale, out_); });
  }

  // K and V of the context of each layer inside a call of `timed`.
  template <typename Timed>
  void read(ThreadPool& pool, const Timed& timed) {
    const std::int64_t bytes = context_ * kKvHeads * kDim * 2;
    for (std::size_t layer = 0; layer < k_.size(); ++layer)
      timed([&] {
        read_plainly(k_[layer].view.data(), bytes, pool);
        read_plainly(v_[layer].view.data(), bytes, pool);
      });
  }

  std::vector<float> output() {
    std::vector<float> values(static_cast<std::size_t>(rows_ * kHeads * kDim));
    download<float>(device_, out_, values);
    return values;
  }

 private:
  void fill_tables(std::int64_t blocks) {
    const auto at = [this](std::int64_t row) { return static_cast<std::int32_t>(context_ + row); };
    constexpr std::int64_t kMostAncestors = 16;
    std::vector<std::int32_t> slot, zero, end, count, block,
        ancestors(static_cast<std::size_t>(rows_ * kMostAncestors));
    for (std::int64_t r = 0; r < rows_; ++r) {
      std::vector<std::int32_t> path;
      for (std::int64_t node = r; node > 0;) path.insert(path.begin(), at(node = (node - 1) / 2));
      std::ranges::copy(path, ancestors.begin() + r * kMostAncestors);
      slot.push_back(at(r)), zero.push_back(0), end.push_back(at(0));
      count.push_back(static_cast<std::int32_t>(path.size()));
    }
    for (std::int64_t b = 0; b < blocks; ++b) block.push_back(static_cast<std::int32_t>(b));
    const auto keep = [this](Tensor tensor) { return ConstView(kept_.emplace_back(std::move(tensor))); };
    tables_.slot = keep(integers(device_, slot, {rows_}));
    tables_.token = tables_.position = tables_.sequence = tables_.begin = keep(integers(device_, zero, {rows_}));
    tables_.end = keep(integers(device_, end, {rows_}));
    tables_.ancestor_count = keep(integers(device_, count, {rows_}));
    tables_.ancestors = keep(integers(device_, ancestors, {rows_, kMostAncestors}));
    tables_.blocks = keep(integers(device_, block, {1, blocks}));
  }

  void add_layer(std::int64_t blocks) {
    const auto seed = static_cast<unsigned>(k_.size());
    k_.push_back(device_.tensor(DType::f16, {blocks, kBlockSize, kKvHeads, kDim}));
    v_.push_back(device_.tensor(DType::f16, {blocks, kBlockSize, kKvHeads, kDim}));
    const std::int64_t slots = context_ + rows_;
    std::vector<std::int32_t> slot(static_cast<std::size_t>(slots));
    std::iota(slot.begin(), slot.end(), 0);
    const Tensor where = integers(device_, slot, {slots});
    const Tensor k = device_.tensor(DType::f32, {slots, kKvHeads, kDim});
    const Tensor v = device_.tensor(DType::f32, {slots, kKvHeads, kDim});
    upload<float>(device_, random_values(slots * kKvHeads * kDim, 2 + seed), k);
    upload<float>(device_, random_values(slots * kKvHeads * kDim, 1000 + seed), v);
    device_.kv_write(k, v, where, {k_.back(), v_.back()});
  }

  Device& device_;
  std::int64_t rows_, context_;
  std::vector<Tensor> kept_;
  RowTables tables_;
  Tensor q_, out_;
  std::vector<Tensor> k_, v_;
};

void check_against_reference(Device& device) {
  const auto judge = make_reference_device();
  for (std::int64_t rows : {1, 5, 16, 40}) {
    TreeStep expected(*judge, rows, 200, 1), got(device, rows, 200, 1);
    expected.run([](const auto& call) { call(); });
    got.run([](const auto& call) { call(); });
    check(same_bits(expected.output(), got.output()), "{} rows: not the reference's bits", rows);
  }
}

struct Limits {
  ThreadPool& pool;
  double multiply_adds;  // per second
};

void measure(Device& device, const Limits& limits, std::int64_t context) {
  double one_row = 0;
  for (std::int64_t rows : {1, 4, 8, 16, 32, 64}) {
    TreeStep step(device, rows, context, kLayers);
    BestOfPasses best;
    for (int pass = 0; pass < kPasses; ++pass, best.end_pass()) step.run([&](const auto& call) { best.time(call); });
    BestOfPasses plain;
    for (int pass = 0; pass < kPasses; ++pass, plain.end_pass())
      step.read(limits.pool, [&](const auto& call) { plain.time(call); });
    const double seconds = best.seconds();
    if (rows == 1) one_row = seconds;
    const auto multiply_adds = static_cast<double>(2 * kLayers * rows * kHeads * context * kDim);
    const auto bytes = static_cast<double>(2 * kLayers * context * kKvHeads * kDim * 2);
    std::printf(
        "context %5ld, %2ld rows: %7.3f ms, %5.2f of one row, %4.0f GMAC/s (%2.0f %% of %.0f), %5.1f GB/s of K and V "
        "(%2.0f %% of a plain read's %.1f)\n",
        static_cast<long>(context), static_cast<long>(rows), 1e3 * seconds, seconds / one_row,
        1e-9 * multiply_adds / seconds, 100 * multiply_adds / seconds / limits.multiply_adds,
        1e-9 * limits.multiply_adds, 1e-9 * bytes / seconds, 100 * plain.seconds() / seconds,
        1e-9 * bytes / plain.seconds());
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace espalier

int main(int argc, char** argv) {
  using namespace espalier;
  const CpuUnderTest cpu(argc, argv);
  check_against_reference(cpu.device());
  std::printf("%s, SmolLM2-135M: %ld layers, %ld heads of %ld, %ld of K and V in f16\n", cpu.describe().c_str(),
              static_cast<long>(kLayers), static_cast<long>(kHeads), static_cast<long>(kDim),
              static_cast<long>(kKvHeads));
  ThreadPool pool(cpu.threads());
  const Limits limits{pool, multiply_adds_per_second(cpu.device().isa(), pool)};
  for (std::int64_t context : {128, 512, 1024, 4096}) measure(cpu.device(), limits, context);
}
