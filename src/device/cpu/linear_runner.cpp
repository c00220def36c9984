#include "device/cpu/linear_runner.h"

#include <algorithm>

#include "base/error.h"
#include "device/host_views.h"

namespace espalier::cpu {
namespace {

constexpr std::int64_t kMostRows = 256;             // at a time: their tiles stay in the second-level cache
constexpr std::int64_t kBlocksPerThread = 64;       // quantised in the time of a barrier
constexpr std::int64_t kFloatsPerThread = 4096;     // interleaved, likewise
constexpr std::int64_t kUnitsPerChunk = 4;          // at least: kernels read four panels side by side
constexpr std::int64_t kBytesPerChunk = 16 * 1024;  // of weights times tiles of rows

}  // namespace

LinearRunner::LinearRunner(const Kernels& kernels, ThreadPool& pool, ReadAhead& read_ahead)
    : kernels_(kernels),
      pool_(pool),
      scratch_(static_cast<std::size_t>(pool.threads())),
      read_ahead_(read_ahead),
      starts_(static_cast<std::size_t>(pool.threads())) {}

void LinearRunner::run(ConstView x, std::span<const Projection> projections) {
  for (std::int64_t first = 0; first < x.dim(0); first += kMostRows)
    run_rows(x.rows(first, std::min(kMostRows, x.dim(0) - first)), projections, first);
}

void LinearRunner::run_rows(ConstView x, std::span<const Projection> projections, std::int64_t first_row) {
  block_tiles_ = nullptr;
  float_tiles_ = nullptr;
  jobs_.clear();
  for (const Projection& projection : projections)
    for (const PackedPart& part : static_cast<const PackedWeight&>(*projection.weight).parts())
      add_job(part, projection, x, first_row);
  run_jobs(x.dim(0), x.dim(1));
}

// Split over blocks, not over rows: the rows of a tile share cache lines.
const void* LinearRunner::quantised(ConstView x) {
  if (block_tiles_ != nullptr) return block_tiles_;
  const std::int64_t rows = x.dim(0), blocks = x.dim(1) / kBlock;
  auto* const tiles = block_memory_.of<BlockActivations<1>>(rows * blocks);
  pool_.run(
      blocks,
      [&](std::int64_t begin, std::int64_t end) {
        kernels_.quantise(floats(x), x.row_stride(), rows, blocks, begin, end, tiles);
      },
      std::max<std::int64_t>(1, kBlocksPerThread / rows));
  return block_tiles_ = tiles;
}

const void* LinearRunner::interleaved(ConstView x) {
  if (float_tiles_ != nullptr) return float_tiles_;
  const std::int64_t rows = x.dim(0), inputs = x.dim(1);
  auto* const tiles = float_memory_.of<float>(rows * inputs);
  pool_.run(
      inputs,
      [&](std::int64_t begin, std::int64_t end) {
        kernels_.interleave(floats(x), x.row_stride(), rows, inputs, begin, end, tiles);
      },
      std::max<std::int64_t>(1, kFloatsPerThread / rows));
  return float_tiles_ = tiles;
}

void LinearRunner::add_job(const PackedPart& part, const Projection& projection, ConstView x, std::int64_t first_row) {
  Job job;
  job.kernel = kernel_for(part.type);
  job.call.panels = reinterpret_cast<const std::uint8_t*>(part.memory.get());
  job.call.panel_bytes = part.panel_bytes;
  job.call.inputs = x.dim(1);
  job.call.outputs = part.outputs;
  job.call.tiles = is_float(part.type) ? interleaved(x) : quantised(x);
  job.call.rows = x.dim(0);
  if (!projection.bias.empty()) job.call.bias = floats(projection.bias) + part.first_output;
  job.call.y_stride = projection.y.row_stride();
  job.call.y = reinterpret_cast<float*>(projection.y.data()) + first_row * job.call.y_stride + part.first_output;
  job.panels = part.panels;
  job.unit_panels = is_float(part.type) ? 4 : 1;
  job.units = (part.panels + job.unit_panels - 1) / job.unit_panels;
  jobs_.push_back(job);
}

void LinearRunner::run_jobs(std::int64_t rows, std::int64_t inputs) {
  std::int64_t units = 0, unit_bytes = 0;
  for (const Job& job : jobs_) {
    units += job.units;
    unit_bytes = std::max(unit_bytes, job.call.panel_bytes * job.unit_panels);
  }
  announce(units);
  const std::int64_t tiles = (rows + kernels_.tile_rows - 1) / kernels_.tile_rows;
  const auto scratch_bytes = static_cast<std::size_t>(expanded_panel_bytes(inputs));
  pool_.run(
      units,
      [&](std::int64_t begin, std::int64_t end, int thread) {
        std::byte* const scratch = scratch_[static_cast<std::size_t>(thread)].at_least(scratch_bytes);
        const std::int64_t share_end = units * (thread + 1) / pool_.threads();
        run_units(begin, end, std::max(end, share_end), reinterpret_cast<std::uint8_t*>(scratch));
      },
      std::max(kUnitsPerChunk, kBytesPerChunk / (unit_bytes * tiles)));
}

// Tells where each thread starts to read, so that next time it can do so a little earlier.
void LinearRunner::announce(std::int64_t units) {
  for (int thread = 0; thread < pool_.threads(); ++thread) {
    std::int64_t unit = units * thread / pool_.threads();
    for (const Job& job : jobs_) {
      if (unit < job.units) {
        const std::int64_t panel = unit * job.unit_panels;
        starts_[static_cast<std::size_t>(thread)] = {job.call.panels + panel * job.call.panel_bytes,
                                                     job.call.panel_bytes};
        break;
      }
      unit -= job.units;
    }
  }
  read_ahead_.begin(jobs_.front().call.panels, starts_);
}

// Units are counted over all jobs. The thread expects to go on up to `fetch_end`.
void LinearRunner::run_units(std::int64_t begin, std::int64_t end, std::int64_t fetch_end,
                             std::uint8_t* scratch) const {
  for (const Job& job : jobs_) {
    if (begin < job.units && end > 0) {
      LinearCall call = job.call;
      call.scratch = scratch;
      call.fetch_end = std::min(fetch_end, job.units) * job.unit_panels;
      job.kernel(call, std::max<std::int64_t>(begin, 0) * job.unit_panels,
                 std::min(std::min(end, job.units) * job.unit_panels, job.panels));
    }
    begin -= job.units;
    end -= job.units;
    fetch_end -= job.units;
  }
}

LinearKernel LinearRunner::kernel_for(DType type) const {
  switch (type) {
    case DType::f32: return kernels_.linear_f32;
    case DType::f16: return kernels_.linear_f16;
    case DType::bf16: return kernels_.linear_bf16;
    case DType::q4_0: return kernels_.linear_q4_0;
    case DType::q4_1: return kernels_.linear_q4_1;
    case DType::q5_0: return kernels_.linear_q5_0;
    case DType::q5_1: return kernels_.linear_q5_1;
    case DType::q8_0: return kernels_.linear_q8_0;
    case DType::q4_k: return kernels_.linear_q4_k;
    case DType::q5_k: return kernels_.linear_q5_k;
    case DType::q6_k: return kernels_.linear_q6_k;
    default: throw std::logic_error(fmt::format("linear: no kernel for {}", name(type)));
  }
}

}  // namespace espalier::cpu
