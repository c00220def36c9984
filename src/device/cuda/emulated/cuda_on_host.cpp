#include "device/cuda/emulated/cuda_on_host.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

// Leaves one stack for another: what a call must preserve is pushed, the old top is stored, the new one taken, and what
// was pushed there comes back. swapcontext would ask the kernel for the signal mask every time.
extern "C" void espalier_switch_stack(void** old_top, void* new_top);
#if defined(__aarch64__)
asm(R"(
.text
.globl espalier_switch_stack
.type espalier_switch_stack, %function
espalier_switch_stack:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
)");
#else
asm(R"(
.text
.globl espalier_switch_stack
.type espalier_switch_stack, @function
espalier_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
)");
#endif

namespace espalier::cuda_on_host {
namespace {

constexpr std::size_t kStackBytes = 128 << 10;
constexpr int kNamedBarriers = 16;

struct Barrier {
  int arrived = 0;
  std::uint64_t generation = 0;

  // Whether this arrival completes it.
  bool arrive(int expected) {
    if (++arrived < expected) return false;
    arrived = 0;
    ++generation;
    return true;
  }
};

struct Warp {
  Barrier barrier;
  int lanes = 0;
  alignas(16) std::byte slots[2][32 * 64];
};

// A copy to shared memory that has been asked for.
struct Copy {
  void* to;
  const void* from;
  std::size_t bytes;
  int group;
};

// Copies that are waited for together, time after time.
struct Arrival {
  Barrier times;             // that all have come
  std::size_t expected = 0;  // bytes; 0: nobody has said how many
  std::size_t come = 0;
  std::vector<Copy> copies;  // that have not been made

  void make(const Copy& copy) {
    std::memcpy(copy.to, copy.from, copy.bytes);
    come += copy.bytes;
    settle();
  }
  void settle() {
    if (expected == 0 || come < expected) return;
    if (come > expected) throw std::logic_error("cuda on the host: more bytes came than were expected");
    expected = come = 0;
    ++times.generation;
  }
};

// A lane's part of a quad's multiplication that has been asked for.
struct Multiplication {
  cuda_on_host::QuadMultiplication what;
  float weights[2][16];  // of outputs g and g + 8
  int column;            // of a tile, the first of the lane's two
  int group;

  // Sixteen fused multiply-adds for each sum, ascending.
  void make() const {
    const auto field = [&](int bit) { return static_cast<std::size_t>(what.rows >> bit & 0x3fffu) * 16; };
    const std::byte* const rows = dynamic_shared_memory() + field(0);
    const std::size_t to_other_inputs = field(16), to_next_tile = field(32);
    for (int i = 0; i < 2 * what.tiles; ++i) {
      const std::byte* const row = rows + static_cast<std::size_t>(i / 2) * to_next_tile + (column + i % 2) * 16;
      std::uint16_t elements[16];
      std::memcpy(elements, row, 16);
      std::memcpy(elements + 8, row + to_other_inputs, 16);
      float* const sums = what.sum + i / 2 * 4 + i % 2;
      for (int k = 0; k < 16; ++k) {
        const float x = what.widen(elements[k]);
        sums[0] = std::fmaf(weights[0][k], x, sums[0]);
        sums[2] = std::fmaf(weights[1][k], x, sums[2]);
      }
    }
  }
};

// A thread of a block, on a stack of its own.
struct Fibre {
  void* top = nullptr;  // of its stack, while it does not run
  std::unique_ptr<std::byte[]> stack = std::unique_ptr<std::byte[]>(new std::byte[kStackBytes]);
  uint3 index{};
  Warp* warp = nullptr;
  int parity = 0;
  bool done = false;
  const Barrier* waits_for = nullptr;
  std::uint64_t generation = 0;
  std::vector<Copy> copies;                     // that have not been made
  int copy_groups = 0;                          // that have ended
  std::vector<Multiplication> multiplications;  // that have not been made
  int multiplication_groups = 0;                // that have ended
  bool at_cluster = false;                      // it has arrived there, and not waited
  std::uint64_t cluster_generation = 0;         // then

  bool can_run() const { return !done && (waits_for == nullptr || waits_for->generation != generation); }
};

// A block that runs. State at namespace scope, against the rule: threadIdx and its like are that in CUDA.
struct RunningBlock {
  uint3 index{};
  void* scheduler = nullptr;                   // the top of the stack that the blocks were started from
  std::vector<std::unique_ptr<Fibre>> fibres;  // as many as the largest block had
  std::vector<Warp> warps;
  std::vector<Fibre*> order;
  std::size_t threads = 0;
  std::size_t left = 0;  // threads that have not ended
  Fibre* current = nullptr;
  Barrier barrier;
  Barrier named[kNamedBarriers];
  std::unordered_map<const void*, Arrival> arrivals;
  std::unique_ptr<std::max_align_t[]> shared;
  std::size_t shared_bytes = 0;
  const std::function<void()>* body = nullptr;
  std::exception_ptr failure;  // of a thread
};
std::vector<std::unique_ptr<RunningBlock>> blocks;  // as many as the largest cluster had
RunningBlock* block = nullptr;                      // the one of them that runs
Barrier cluster;
std::minstd_rand randomness{1};

void run_fibre() {
  try {
    (*block->body)();
    if (!block->current->multiplications.empty())
      throw std::logic_error("cuda on the host: nobody has waited for multiplications");
  } catch (...) {  // there is nobody below it on this stack
    block->failure = std::current_exception();
  }
  block->current->done = true;
  espalier_switch_stack(&block->current->top, block->scheduler);
  std::abort();  // nobody runs it again
}

// A stack from which the first switch goes to run_fibre. They begin at different distances from a page: else the tops
// of all would share a few lines of the caches.
void* fresh_stack(std::byte* stack, std::size_t fibre) {
  const auto end = reinterpret_cast<std::uintptr_t>(stack + kStackBytes - fibre % 16 * 256);
  const std::uintptr_t top = end / 64 * 64 - 256;
  auto* const saved = reinterpret_cast<void**>(top);
#if defined(__aarch64__)
  std::fill_n(saved, 20, nullptr);
  saved[11] = reinterpret_cast<void*>(&run_fibre);  // x30
#else
  std::fill_n(saved, 8, nullptr);
  saved[6] = reinterpret_cast<void*>(&run_fibre);  // behind six registers; then a call's return address, which is none
#endif
  return saved;
}

void wait(const Barrier& barrier, std::uint64_t generation) {
  Fibre& self = *block->current;
  self.waits_for = &barrier;
  self.generation = generation;
  espalier_switch_stack(&self.top, block->scheduler);
  self.waits_for = nullptr;
}

void meet(Barrier& barrier, int expected) {
  const std::uint64_t generation = barrier.generation;
  if (!barrier.arrive(expected)) wait(barrier, generation);
}

void prepare_fibre(std::size_t i) {
  while (block->fibres.size() <= i) block->fibres.push_back(std::make_unique<Fibre>());
  Fibre& fibre = *block->fibres[i];
  fibre.top = fresh_stack(fibre.stack.get(), i);
  const auto index = static_cast<unsigned>(i);
  fibre.index = {index % blockDim.x, index / blockDim.x, 0};
  fibre.warp = &block->warps[i / 32];
  ++fibre.warp->lanes;
  fibre.parity = 0;
  fibre.done = false;
  fibre.waits_for = nullptr;
  fibre.copies.clear();
  fibre.copy_groups = 0;
  fibre.multiplications.clear();
  fibre.multiplication_groups = 0;
  fibre.at_cluster = false;
}

// Whether there were any: asked for when others already waited for them.
bool make_copies_of_many() {
  bool any = false;
  for (auto& [address, arrival] : block->arrivals)
    for (const Copy& copy : std::exchange(arrival.copies, {})) {
      arrival.make(copy);
      any = true;
    }
  return any;
}

void choose_block(unsigned i) {
  block = blocks[i].get();
  blockIdx = block->index;
}

void begin_block(uint3 index, const Grid& grid, const std::function<void()>& body) {
  const std::size_t threads = std::size_t{grid.threads.x} * grid.threads.y, shared = grid.shared.wanted;
  block->index = index;
  block->body = &body;
  if (shared > block->shared_bytes) {
    block->shared.reset(new std::max_align_t[shared / sizeof(std::max_align_t) + 1]);
    block->shared_bytes = shared;
  }
  if (block->shared) std::memset(block->shared.get(), 0xff, shared);  // NaN
  block->threads = block->left = threads;
  block->warps.assign((threads + 31) / 32, Warp{});
  block->barrier = {};
  for (Barrier& barrier : block->named) barrier = {};
  block->arrivals.clear();
  block->order.clear();
  for (std::size_t i = 0; i < threads; ++i) prepare_fibre(i);
  for (std::size_t i = 0; i < threads; ++i) block->order.push_back(block->fibres[i].get());
  std::shuffle(block->order.begin(), block->order.end(), randomness);
}

// Every thread that can runs until it waits. Whether there was one.
bool run_threads() {
  bool moved = false;
  for (Fibre* fibre : block->order) {
    if (!fibre->can_run()) continue;
    block->current = fibre;
    threadIdx = fibre->index;
    espalier_switch_stack(&block->scheduler, fibre->top);
    moved = true;
    if (fibre->done) --block->left;
    if (block->failure) std::rethrow_exception(std::exchange(block->failure, nullptr));
  }
  return moved;
}

// Blocks [0, count), in turn.
void run_blocks(unsigned count) {
  const auto ended = [&] {
    return std::all_of(blocks.begin(), blocks.begin() + count, [](const auto& one) { return one->left == 0; });
  };
  while (!ended()) {
    bool moved = false;
    for (unsigned i = 0; i < count; ++i) {
      choose_block(i);
      while (run_threads()) moved = true;
    }
    for (unsigned i = 0; i < count && !moved; ++i) {
      choose_block(i);
      moved = make_copies_of_many();
    }
    if (!moved) throw std::logic_error("cuda on the host: threads wait for each other for ever");
  }
}

// Those of the current thread up to a group.
void make_multiplications(int last_group) {
  std::erase_if(block->current->multiplications, [&](const Multiplication& one) {
    if (one.group > last_group) return false;
    one.make();
    return true;
  });
}

}  // namespace

void run_grid(const Grid& grid, const std::function<void()>& thread) {
  const dim3 all = grid.blocks;
  if (grid.shared.wanted > grid.shared.most)
    throw std::logic_error("cuda on the host: " + std::to_string(grid.shared.wanted) +
                           " bytes of shared memory, a block has at most " + std::to_string(grid.shared.most));
  if (grid.cluster > 1 && grid.cluster != all.x * all.y * all.z)
    throw std::logic_error("cuda on the host: a cluster that is not the whole grid");
  gridDim = all;
  blockDim = grid.threads;
  while (blocks.size() < grid.cluster) blocks.push_back(std::make_unique<RunningBlock>());
  cluster = {};
  unsigned begun = 0;
  for (unsigned z = 0; z < all.z; ++z)
    for (unsigned y = 0; y < all.y; ++y)
      for (unsigned x = 0; x < all.x; ++x) {
        choose_block(begun);
        begin_block({x, y, z}, grid, thread);
        if (++begun < grid.cluster) continue;
        run_blocks(begun);
        begun = 0;
      }
}

std::byte* dynamic_shared_memory() {
  return reinterpret_cast<std::byte*>(block->shared.get());
}

void barrier_of_block() {
  meet(block->barrier, static_cast<int>(block->threads));
}

void named_barrier(int id, int threads, bool waits) {
  Barrier& barrier = block->named[id];
  if (waits)
    meet(barrier, threads);
  else
    barrier.arrive(threads);
}

void arrive_at_cluster() {
  Fibre& self = *block->current;
  if (std::exchange(self.at_cluster, true)) throw std::logic_error("cuda on the host: a thread arrives twice");
  self.cluster_generation = cluster.generation;
  cluster.arrive(static_cast<int>(gridDim.x * gridDim.y * gridDim.z * block->threads));
}

void wait_for_cluster() {
  Fibre& self = *block->current;
  if (!std::exchange(self.at_cluster, false))
    throw std::logic_error("cuda on the host: a thread that did not arrive waits");
  if (cluster.generation == self.cluster_generation) wait(cluster, self.cluster_generation);
}

const std::byte* exchange(const void* mine, std::size_t bytes) {
  Fibre& self = *block->current;
  Warp& warp = *self.warp;
  self.parity ^= 1;
  std::byte* const slots = warp.slots[self.parity];
  std::memcpy(slots + (self.index.x & 31u) * bytes, mine, bytes);
  meet(warp.barrier, warp.lanes);
  return slots;
}

void begin_copy(void* to, const void* from, std::size_t bytes) {
  Fibre& self = *block->current;
  if (randomness() / 2 % 2 == 0)
    std::memcpy(to, from, bytes);
  else
    self.copies.push_back({to, from, bytes, self.copy_groups});
}

void end_copy_group() {
  ++block->current->copy_groups;
}

void wait_for_copy_groups(int left) {
  Fibre& self = *block->current;
  std::erase_if(self.copies, [&](const Copy& copy) {
    if (copy.group >= self.copy_groups - left) return false;
    std::memcpy(copy.to, copy.from, copy.bytes);
    return true;
  });
}

void begin_multiplication(const QuadMultiplication& what, const LaneOfWeights* of_warp) {
  Fibre& self = *block->current;
  const int lane = static_cast<int>(self.index.x & 31u);
  Multiplication one{what, {}, lane % 4 * 2, self.multiplication_groups};
  for (int k = 0; k < 16; ++k)
    for (int upper = 0; upper < 2; ++upper) {
      const unsigned word = of_warp[lane / 4 * 4 + k % 8 / 2].words[k / 8 * 2 + upper];
      one.weights[upper][k] = what.widen(static_cast<std::uint16_t>(k % 2 == 0 ? word : word >> 16));
    }
  self.multiplications.push_back(one);
  if (randomness() / 2 % 2 == 0) make_multiplications(self.multiplication_groups);
}

void end_multiplication_group() {
  ++block->current->multiplication_groups;
}

void wait_for_multiplication_groups(int left) {
  make_multiplications(block->current->multiplication_groups - left - 1);
}

unsigned address_in_block(const void* shared) {
  return static_cast<unsigned>(static_cast<const std::byte*>(shared) - dynamic_shared_memory());
}

void begin_arrivals(const void* arrival) {
  block->arrivals[arrival] = {};
}

void end_arrivals(const void* arrival) {
  if (block->arrivals.extract(arrival).empty()) throw std::logic_error("cuda on the host: no arrivals here");
}

void expect_bytes(const void* arrival, int bytes) {
  Arrival& all = block->arrivals.at(arrival);
  if (all.expected != 0) throw std::logic_error("cuda on the host: bytes are expected twice");
  all.expected = static_cast<std::size_t>(bytes);
  all.settle();
}

void begin_copy_of_many(void* to, const void* from, std::size_t bytes, const void* arrival) {
  Arrival& all = block->arrivals.at(arrival);
  if (randomness() / 2 % 2 == 0)
    all.make({to, from, bytes, 0});
  else
    all.copies.push_back({to, from, bytes, 0});
}

void wait_for_bytes(const void* arrival, int parity) {
  Arrival& all = block->arrivals.at(arrival);
  while (static_cast<int>(all.times.generation % 2) == parity) {
    const std::vector<Copy> copies = std::exchange(all.copies, {});
    for (const Copy& copy : copies) all.make(copy);
    if (copies.empty()) wait(all.times, all.times.generation);
  }
}

}  // namespace espalier::cuda_on_host
