#include "device/cuda/memory.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace espalier::cuda {
namespace {

constexpr std::size_t kPinnedBytes = 32 << 20;
constexpr std::size_t kPieceBytes = 8 << 20;  // of a large upload: one is filled while others are on their way
constexpr std::size_t kAlignment = 256;
constexpr std::size_t kSmallestScratch = 1 << 20;

}  // namespace

std::optional<Memory> Memory::if_there_is(std::size_t bytes) {
  void* data = nullptr;
  const cudaError_t result = cudaMalloc(&data, bytes);
  if (result == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // the next call is not to find it again
    return std::nullopt;
  }
  check_cuda(result, "cudaMalloc");
  Memory memory;
  memory.data_ = static_cast<std::byte*>(data);
  memory.size_ = bytes;
  return memory;
}

Memory::Memory(std::size_t bytes, std::string_view what) {
  std::optional<Memory> memory = if_there_is(bytes);
  if (!memory) {
    std::size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    device_error("CUDA: no memory for {} ({:.1f} MiB): {:.1f} of {:.1f} MiB are free", what,
                 static_cast<double>(bytes) / (1 << 20), static_cast<double>(free) / (1 << 20),
                 static_cast<double>(total) / (1 << 20));
  }
  *this = std::move(*memory);
}

Memory::~Memory() {
  if (data_ != nullptr) cudaFree(data_);
}

Memory::Memory(Memory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Memory& Memory::operator=(Memory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

std::byte* Scratch::at_least(std::size_t bytes) {
  if (all_.empty() || all_.back().size() < bytes) {
    const std::size_t before = all_.empty() ? kSmallestScratch / 2 : all_.back().size();
    std::optional<Memory> plenty = Memory::if_there_is(std::max(bytes, 2 * before));
    all_.push_back(plenty ? std::move(*plenty) : Memory(bytes, "what kernels pass on to each other"));
    check_cuda(cudaMemset(all_.back().data(), 0, all_.back().size()), "cudaMemset");
    check_cuda(cudaDeviceSynchronize(), "cudaMemset");
  }
  return all_.back().data();
}

Staging::Staging(cudaStream_t stream) : stream_(stream) {
  void* memory = nullptr;
  check_cuda(cudaMallocHost(&memory, kPinnedBytes), "cudaMallocHost");
  pinned_ = static_cast<std::byte*>(memory);
}

Staging::~Staging() {
  cudaFreeHost(pinned_);
}

// Where `bytes` lie in the pinned memory; waits for all that is under way where it has to begin anew.
std::size_t Staging::reserve(std::size_t bytes) {
  const std::size_t begin = (used_ + kAlignment - 1) / kAlignment * kAlignment;
  if (begin + bytes <= kPinnedBytes) {
    used_ = begin + bytes;
    return begin;
  }
  finish();
  used_ = bytes;
  return 0;
}

void Staging::upload(std::span<const std::byte> from, std::byte* to) {
  while (!from.empty()) {
    const std::size_t piece = std::min(from.size(), kPieceBytes);
    const std::size_t offset = reserve(piece);
    std::memcpy(pinned_ + offset, from.data(), piece);
    check_cuda(cudaMemcpyAsync(to, pinned_ + offset, piece, cudaMemcpyHostToDevice, stream_), "copying to the device");
    from = from.subspan(piece);
    to += piece;
  }
}

void Staging::download(const std::byte* from, std::span<std::byte> to) {
  while (!to.empty()) {
    const std::size_t piece = std::min(to.size(), kPieceBytes);
    const std::size_t offset = reserve(piece);
    const cudaError_t begun = cudaMemcpyAsync(pinned_ + offset, from, piece, cudaMemcpyDeviceToHost, stream_);
    if (begun != cudaSuccess) waiting_.clear();  // nobody waits for them now
    check_cuda(begun, "copying from the device");
    waiting_.push_back({offset, to.first(piece)});
    to = to.subspan(piece);
    from += piece;
  }
}

// What fails is not waited for again: its destination may be gone by then.
void Staging::finish() {
  const std::vector<Waiting> waiting = std::exchange(waiting_, {});
  used_ = 0;
  check_cuda(cudaStreamSynchronize(stream_), "waiting for the device");
  for (const auto& [offset, to] : waiting) std::memcpy(to.data(), pinned_ + offset, to.size());
}

}  // namespace espalier::cuda
