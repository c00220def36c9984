// What cluster_ops.h describes. The kernel is given its ops as a list and goes through it, every block of threads with
// its share of each; between two ops all blocks meet. What an op may read before it meets the others, weights and old
// keys above all, it fetches before.
#include "device/cuda/cluster_ops.h"

#include <cstring>
#include <type_traits>
#include <utility>

#include "device/cuda/attention_team.h"
#include "device/cuda/few_rows.h"
#include "device/cuda/format_switch.h"
#include "device/cuda/kernel.h"
#include "device/cuda/quantised_ops.h"
#include "device/cuda/rotated_elements.h"

namespace espalier::cuda {
namespace {

// The head size and the type of keys and values that the kernel is compiled for.
constexpr int kDim = 64;
using KvElement = F16Element;
using Tile = StagedTile<KvElement, kDim>;

// One team of attention, and as many warps as linears of one tile want.
constexpr int kWarps = 12, kThreads = kWarps * kWarp;
static_assert(kWarps >= Tile::kWarps);

constexpr int kMostRows = 2 * kRowTile;
constexpr std::int64_t kMostColumns = 4096;         // of a row that every block norms for itself
constexpr std::int64_t kMostWeightBytes = 4 << 20;  // of a linear that a few multiprocessors can fetch
constexpr std::int64_t kMostTiles = 24;             // of a row's attention, likewise
constexpr std::size_t kFewestOps = 6;               // that are worth a cluster

// --- the list of ops -------------------------------------------------------------------------------------------------
enum class Kind : int { norm, linear, rotate, attention, swiglu };
struct alignas(16) Head {
  Kind kind;
  int bytes;  // to the next head
};
struct AttentionShare {
  AttentionCall call;
  AttentionLeft left;
};
#ifdef ESPALIER_CUDA_EMULATED
constexpr int kListBytes = 2 << 10;  // so that tests have lists that are cut
#else
constexpr int kListBytes = 31 << 10;  // a kernel's arguments may have a little more
#endif
struct alignas(16) OpList {
  int count;
  alignas(16) unsigned char bytes[kListBytes];
};

class ListBuilder {
 public:
  template <typename Call>
  bool has_room() const {
    return used_ + size_of<Call>() <= kListBytes;
  }
  template <typename Call>
  void add(Kind kind, const Call& call) {
    static_assert(std::is_trivially_copyable_v<Call> && alignof(Call) <= alignof(Head));
    const Head head{kind, size_of<Call>()};
    std::memcpy(list_.bytes + used_, &head, sizeof head);
    std::memcpy(list_.bytes + used_ + sizeof head, &call, sizeof call);
    used_ += head.bytes;
    ++list_.count;
  }
  const OpList& list() const { return list_; }
  void clear() { used_ = list_.count = 0; }

 private:
  template <typename Call>
  static constexpr int size_of() {
    return static_cast<int>(sizeof(Head) + (sizeof(Call) + sizeof(Head) - 1) / sizeof(Head) * sizeof(Head));
  }

  OpList list_ = {};
  int used_ = 0;
};

// --- the kernel ------------------------------------------------------------------------------------------------------
// How a block of threads has its share of a linear: of two tiles with half of its warps, since each has a barrier of
// its own for each tile.
template <DType tag, int column_count, int tile_count>
struct ClusterRows {
  using Call = BlockLinear;
  static constexpr bool kEndsKernel = false;
  static constexpr int kFirstBarrier = 1;
  __device__ static void begin() { let_copies_see_shared_memory(); }
  __device__ static void wait_for_rows() {
    wait_for_cluster();
    let_copies_see_memory();
  }

  static constexpr DType type = tag;
  static constexpr int columns = column_count, tiles = tile_count;
  static constexpr int kWarps = tiles == 1 ? 12 : 6, relay = tiles == 1 ? 4 : 3;
  static constexpr bool small = false;
  static constexpr int kMostBytes = 180 << 10;
  static constexpr int kTileBytes = LaneShare<columns>::kTileBytes;
  static constexpr int kPieceBytes = piece_bytes(type);
  static constexpr int kSlotBytes = kPieceBytes + tiles * kTileBytes;
  static constexpr int kFit = kMostBytes / (kWarps * kSlotBytes), kSlots = kFit < 4 ? kFit : 4;
  static constexpr int kBytes = kWarps * kSlots * (kSlotBytes + static_cast<int>(sizeof(std::uint64_t)));
  static_assert(kSlots >= 2);

  __device__ static const std::uint8_t* piece_of(const BlockLinear& call, int group, int chunk) {
    return call.piece_of(type, group, chunk);
  }
};

__device__ int blocks() {
  return static_cast<int>(gridDim.x);
}
__device__ int own_block() {
  return static_cast<int>(blockIdx.x);
}
__device__ int own_warp() {
  return static_cast<int>(threadIdx.x) / kWarp;
}

// Each op waits once for what was done before it.
template <typename Shape>
__device__ void run(const BlockLinear& call) {
  if (own_warp() < Shape::kWarps)
    compute_in_turn<Shape>(call, own_warp(), static_cast<int>(threadIdx.x) % kWarp);
  else
    wait_for_cluster();
}

// Where rows are fewer than blocks, several blocks share one.
__device__ void run(const NormQuantised& call) {
  const int rows = static_cast<int>(call.y.rows), shares = blocks() / rows < 1 ? 1 : blocks() / rows;
  const int own = own_block() % rows, share = own_block() / rows;
  if (share >= shares) return wait_for_cluster();
#pragma unroll 1
  for (int r = own; r < rows; r += blocks()) {
    const NormShare of_row(call, r, share, shares);
    if (r == own)
      wait_for_cluster();
    else
      __syncthreads();
    of_row.compute();
  }
}

// Blocks and items lie in a row; each goes to a warp of another block of threads than the one before it.
__device__ int first_unit() {
  return own_block() + blocks() * own_warp();
}

__device__ void run(const SwigluQuantised& call) {
  wait_for_cluster();
  const int row_blocks = static_cast<int>(call.quantised.blocks), units = static_cast<int>(call.y.rows) * row_blocks;
  for (int unit = first_unit(); unit < units; unit += blocks() * kWarps)
    swiglu_block(call, unit / row_blocks, unit % row_blocks);
}

__device__ void run(const RotateAndWrite& call) {
  const auto items = static_cast<int>(rotated_items(call)), all = items * static_cast<int>(call.rows);
  const int first = first_unit() * kWarp + static_cast<int>(threadIdx.x) % kWarp, step = blocks() * kThreads;
  const int there = first < all ? first : 0;
  RotatedElements<KvElement> elements(call, there / items, there % items);
  wait_for_cluster();
#pragma unroll 1
  for (int item = first; item < all; item += step) {
    if (item != first) elements = {call, item / items, item % items};
    elements.compute(call);
  }
}

// A unit is a tile of a row for a share of heads. The team of a block goes from unit to unit.
__device__ void run(const AttentionShare& op) {
  const AttentionCall& call = op.call;
  const AttentionLeft& left = op.left;
  const int shares = static_cast<int>(call.kv_heads) * shares_of(call, left.heads_at_once);
  const int units = static_cast<int>(call.rows) * shares * left.most_tiles;
  if (own_warp() >= Tile::kWarps || own_block() >= units) return wait_for_cluster();
#pragma unroll 1
  for (int unit = own_block(); unit < units; unit += blocks()) {
    const int of_row = unit / left.most_tiles;
    Team<KvElement, kDim> team(call, left, {unit % left.most_tiles, of_row % shares, of_row / shares, 0});
    if (unit != own_block()) team.meet();
    team.prepare();
    if (unit == own_block()) wait_for_cluster();
    if (!team.works()) continue;
    team.compute();
    if (team.tiles() <= 1) {
      team.meet();
      team.finish_here();
    } else {
      team.leave_tile();
      if (team.arrives_last(left.arrived + of_row, team.tiles())) team.finish_all();
    }
  }
}

template <typename Shape>
__device__ void run(Kind kind, const unsigned char* call) {
  switch (kind) {
    case Kind::norm: return run(*reinterpret_cast<const NormQuantised*>(call));
    case Kind::linear: return run<Shape>(*reinterpret_cast<const BlockLinear*>(call));
    case Kind::rotate: return run(*reinterpret_cast<const RotateAndWrite*>(call));
    case Kind::attention: return run(*reinterpret_cast<const AttentionShare*>(call));
    case Kind::swiglu: return run(*reinterpret_cast<const SwigluQuantised*>(call));
  }
}

template <typename Shape>
__global__ void __launch_bounds__(kThreads, 1) cluster_kernel(const __grid_constant__ OpList list) {
  if constexpr (kHasClusters) {
    wait_for_earlier_kernels();
    arrive_at_cluster();
    const unsigned char* at = list.bytes;
#pragma unroll 1
    for (int i = 0; i < list.count; ++i) {
      const Head head = *reinterpret_cast<const Head*>(at);
      run<Shape>(head.kind, at + sizeof(Head));
      at += head.bytes;
      arrive_at_cluster();
    }
    wait_for_cluster();
  } else {
    __trap();
  }
}

template <typename Shape>
constexpr std::size_t shared_bytes() {
  return Shape::kBytes < Tile::kBytes ? Tile::kBytes : Shape::kBytes;
}

// --- the host's part -------------------------------------------------------------------------------------------------
template <typename Shape>
class ClusterLaunches {
 public:
  explicit ClusterLaunches(Queue queue) : queue_(queue) {}

  void add(const ClusterOp& op) {
    std::visit([this](const auto& one) { this->add(one); }, op);
  }
  void end() {
    if (list_.list().count == 0) return;
    cuda::launch(queue_, "layers", cluster_kernel<Shape>,
                 {{static_cast<unsigned>(queue_.cluster), 1, 1},
                  kThreads,
                  shared_bytes<Shape>(),
                  static_cast<unsigned>(queue_.cluster)},
                 list_.list());
    list_.clear();
  }

 private:
  void add(const NormOp& op) { append(Kind::norm, norm_call(op)); }
  void add(const SwigluOp& op) { append(Kind::swiglu, swiglu_call(op)); }
  void add(const RotateOp& op) { append(Kind::rotate, op.call); }
  void add(const LinearOp& op) { append(Kind::linear, block_linear(op.parts, op.count, op.quantised)); }
  void add(const AttentionOp& op) {
    AttentionLeft left = attention_left(queue_, op.call, op.scratch, op.forms);
    left.heads_at_once = heads_at_once(queue_.cluster / kAttentionBlocks, op.call);
    append(Kind::attention, AttentionShare{op.call, left});
  }
  template <typename Call>
  void append(Kind kind, const Call& call) {
    if (!list_.template has_room<Call>()) end();
    list_.add(kind, call);
  }

  Queue queue_;
  ListBuilder list_;
};

// Calls body with the Shape of linears of this type and so many rows.
template <typename Body>
void with_shape(DType type, std::int64_t rows, const Body& body) {
  const auto with_rows = [&](auto format) {
    if (rows == 1)
      body(static_cast<ClusterRows<format(), 1, 1>*>(nullptr));
    else if (rows <= kRowTile)
      body(static_cast<ClusterRows<format(), 2, 1>*>(nullptr));
    else
      body(static_cast<ClusterRows<format(), 2, 2>*>(nullptr));
  };
  type == DType::q4_1 ? with_rows(FormatConstant<DType::q4_1>{}) : with_rows(FormatConstant<DType::q8_0>{});
}

bool is_known(DType type) {
  return type == DType::q4_1 || type == DType::q8_0;
}

// --- what a cluster can do -------------------------------------------------------------------------------------------
struct Wanted {
  std::int64_t rows;
  DType type = DType::f32;  // of weights; f32: none
  bool known = true;
};

Wanted wanted(const NormOp& op) {
  return {op.y.rows, DType::f32, op.y.columns <= kMostColumns};
}
Wanted wanted(const SwigluOp& op) {
  return {op.y.rows};
}
Wanted wanted(const RotateOp& op) {
  return {op.call.rows, DType::f32, op.type == DType::f16};
}
Wanted wanted(const AttentionOp& op) {
  const bool known = op.call.kv_type == DType::f16 && op.call.dim == kDim && is_aligned(op.call) &&
                     op.forms.terms == nullptr && most_tiles(op.call) <= kMostTiles;
  return {op.call.rows, DType::f32, known};
}
Wanted wanted(const LinearOp& op) {
  std::int64_t bytes = 0;
  for (int i = 0; i < op.count; ++i) bytes += packed_bytes(op.parts[i].type, op.parts[i].outputs, op.parts[i].inputs);
  const LinearPart& first = op.parts[0];
  return {first.y.rows, first.type, is_known(first.type) && bytes <= kMostWeightBytes};
}

void launch_alone(Queue queue, const NormOp& op) {
  rms_norm_quantised(queue, op);
}
void launch_alone(Queue queue, const SwigluOp& op) {
  swiglu_quantised(queue, op);
}
void launch_alone(Queue queue, const RotateOp& op) {
  rotate_and_write(queue, op.type, op.call);
}
void launch_alone(Queue queue, const AttentionOp& op) {
  attention(queue, op.call, op.scratch, op.forms);
}
void launch_alone(Queue queue, const LinearOp& op) {
  linear_blocks(queue, op.parts, op.count, op.quantised);
}

}  // namespace

bool HeldOps::hold(Queue queue, const ClusterOp& op) {
  const Wanted wants = std::visit([](const auto& one) { return wanted(one); }, op);
  const bool known = wants.known && wants.rows <= kMostRows;
  const bool fits =
      ops_.empty() || (wants.rows == rows_ && (wants.type == DType::f32 || type_ == DType::f32 || wants.type == type_));
  if (!known || !fits) launch(queue);
  if (!known) return false;
  if (ops_.empty()) rows_ = wants.rows, type_ = DType::f32;
  if (wants.type != DType::f32) type_ = wants.type;
  ops_.push_back(op);
  return true;
}

void HeldOps::launch(Queue queue) {
  queue.held = nullptr;
  const std::vector<ClusterOp> ops = std::exchange(ops_, {});
  if (ops.size() < kFewestOps || type_ == DType::f32) {
    for (const ClusterOp& op : ops) std::visit([&](const auto& one) { launch_alone(queue, one); }, op);
    return;
  }
  with_shape(type_, rows_, [&](auto* shape) {
    ClusterLaunches<std::remove_pointer_t<decltype(shape)>> launches(queue);
    for (const ClusterOp& op : ops) launches.add(op);
    launches.end();
  });
}

void launch_held(Queue queue) {
  queue.held->launch(queue);
}

#ifdef ESPALIER_CUDA_EMULATED
int cluster_blocks() {
  return 4;  // more would take longer, and show no more
}
#else
int cluster_blocks() {
  using Shape = ClusterRows<DType::q8_0, 2, 2>;
  constexpr auto kernel = cluster_kernel<Shape>;
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1), "clusters");
  allow_shared_bytes("clusters", kernel, shared_bytes<Shape>());
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = kClusterBlocks, cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(kClusterBlocks);
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = shared_bytes<Shape>();
  config.attrs = &cluster;
  config.numAttrs = 1;
  int clusters = 0;
  check_cuda(cudaOccupancyMaxActiveClusters(&clusters, kernel, &config), "clusters");
  return clusters > 0 ? kClusterBlocks : 0;
}
#endif

}  // namespace espalier::cuda
