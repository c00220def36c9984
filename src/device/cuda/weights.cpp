#include "device/cuda/weights.h"

#include "device/cuda/kernels.h"

namespace espalier::cuda {
namespace {

std::int64_t count_outputs(std::span<const WeightPart> parts) {
  std::int64_t sum = 0;
  for (const WeightPart& part : parts) sum += part.outputs;
  return sum;
}

}  // namespace

CudaWeight::CudaWeight(std::span<const WeightPart> parts, Staging& staging, cudaStream_t stream)
    : Weight(count_outputs(parts), parts[0].inputs) {
  std::int64_t first = 0;
  for (const WeightPart& part : parts) {
    DevicePart packed{part.type, first, part.outputs,
                      Memory(static_cast<std::size_t>(packed_bytes(part.type, part.outputs, part.inputs)), "weights")};
    const Memory as_stored(part.bytes.size(), "weights on their way");
    staging.upload(part.bytes, as_stored.data());
    pack_weight({stream}, part.type, as_stored.data(), part.outputs, part.inputs, packed.memory.data());
    check_cuda(cudaStreamSynchronize(stream), "packing weights");  // what they came in goes now
    first += part.outputs;
    parts_.push_back(std::move(packed));
  }
}

}  // namespace espalier::cuda
