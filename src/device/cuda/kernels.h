// The ops of device.h as launches on a stream: plain addresses in device memory, shapes already checked. One .cu file
// for each family of ops.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "device/cuda/api.h"

namespace espalier::cuda {

class HeldOps;

// Where ops go. programmatic: a kernel may begin before the one ahead of it has ended, and waits for it itself where
// it first needs it (early_launch.h).
struct Queue {
  cudaStream_t stream = nullptr;
  bool programmatic = false;
  bool small_blocks = false;  // what has_large_blocks denies (early_launch.h)
  int processors = 132;       // of the GPU: how many blocks of threads can be at work at once is a multiple of it
  int terms = 2;              // as the sum of how many numbers of two bytes a linear of such weights takes x
  int quads_from_rows = 0;    // from so many rows on such a linear is multiplied by quads (quad_multiply.h); 0: never
  int cluster = 0;            // blocks of threads that can be at work at once and meet; 0: none
  HeldOps* held = nullptr;    // ops that wait to be one kernel (cluster_ops.h); null: every op is its own
};
// What is held comes before whatever is launched next.
void launch_held(Queue queue);

// A matrix of floats; stride: elements from one row to the next.
struct Rows {
  float* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t stride = 0;
};
struct ConstRows {
  const float* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t stride = 0;
};

// --- weights.cu ------------------------------------------------------------------------------------------------------
std::int64_t packed_bytes(DType type, std::int64_t outputs, std::int64_t inputs);
void pack_weight(Queue queue, DType type, const std::byte* as_stored, std::int64_t outputs, std::int64_t inputs,
                 std::byte* packed);
// The rows of `token` that lie in this part: outputs [first, first + outputs).
struct EmbedPart {
  DType type = DType::f32;
  const std::byte* packed = nullptr;
  std::int64_t first = 0;
  std::int64_t outputs = 0;
};
void embed(Queue queue, const EmbedPart& part, const std::int32_t* token, Rows y);

// --- quantise.cu -----------------------------------------------------------------------------------------------------
// Rows in tiles of 8, and a tile in chunks of 8 blocks, pair by pair: the integers of both blocks as matrix fragments,
// then d and d * sum of the rows, for each block. Of a tile or a chunk that is not full, nobody needs the rest. One row
// alone: in chunks too, first the integers of all pairs, then d and d * sum of each block.
inline constexpr int kRowTile = 8;
inline constexpr int kTilePairBytes = 640;
inline constexpr int kTileChunkBytes = 4 * kTilePairBytes;
inline constexpr int kOneRowChunkBytes = 320;
std::int64_t quantised_bytes(std::int64_t rows, std::int64_t inputs);
void quantise_rows(Queue queue, ConstRows x, std::byte* quantised);
// Ops and the quantising of what they make, in one kernel; y is dense, and its rows are whole blocks.
struct SwigluOp {
  const float* x = nullptr;
  Rows y;
  std::byte* quantised = nullptr;
};
void swiglu_quantised(Queue queue, const SwigluOp& op);
struct NormOp {
  const float *x = nullptr, *w = nullptr;
  float eps = 0;
  Rows y;
  std::byte* quantised = nullptr;
};
void rms_norm_quantised(Queue queue, const NormOp& op);

// --- float_terms.cu --------------------------------------------------------------------------------------------------
// The rows of a linear of bf16 or f16 weights as sums of that type (float_fragments.h).
std::int64_t term_bytes(Queue queue, std::int64_t rows, std::int64_t inputs);
void split_rows(Queue queue, DType type, ConstRows x, std::byte* terms);
// Ops and the splitting, for bf16, of what they make, in one kernel; y is dense.
void swiglu_split(Queue queue, const float* x, Rows y, std::byte* terms);
void rms_norm_split(Queue queue, const float* x, const float* w, float eps, Rows y, std::byte* terms);

// --- linear_blocks.cu, linear_floats.cu, linear_f32.cu ---------------------------------------------------------------
struct LinearPart {
  DType type = DType::f32;
  const std::byte* packed = nullptr;
  std::int64_t outputs = 0;
  std::int64_t inputs = 0;
  const float* bias = nullptr;  // of the first output of this part; null: none
  Rows y;                       // from the column of that output
  float* added_to = nullptr;    // not null: dense rows as wide as added_stride, to which y is added as well (not f32)
  std::int64_t added_stride = 0;
};
// At most kMostParts, all of one type, with the same rows and inputs: one launch.
inline constexpr int kMostParts = 4;
void linear_blocks(Queue queue, const LinearPart* parts, int count, const std::byte* quantised);
// Weights of two bytes. Scratch memory: sums, uninitialised, and counts, zeros before a call and after it.
struct FloatScratchBytes {
  std::int64_t sums = 0, counts = 0;
};
struct FloatScratch {
  std::byte *sums = nullptr, *counts = nullptr;
};
FloatScratchBytes float_scratch_bytes(Queue queue, const LinearPart* parts, int count);
void linear_floats(Queue queue, const LinearPart* parts, int count, std::byte* terms, const FloatScratch& scratch);
bool matrices_are_emulated();  // no card's order of sums
bool code_has_quads();         // the kernels' code for the card that was chosen (quad_multiply.h)
// In the contract's own order.
void linear_f32(Queue queue, const LinearPart& part, ConstRows x);

// --- rows.cu ---------------------------------------------------------------------------------------------------------
// The compute capability, 90 for 9.0, that the code of the kernels was written for: what __CUDA_ARCH__ was, a tenth.
int compiled_for();
void rms_norm(Queue queue, const float* x, const float* w, float eps, std::int64_t rows, std::int64_t dim, float* y);
struct RopeShape {
  std::int64_t rows, heads, half;
};
void rope(Queue queue, float* x, const std::int32_t* position, const float* cosine, const float* sine, RopeShape shape);
void swiglu(Queue queue, const float* x, Rows y);
void silu(Queue queue, float* x, std::int64_t elements);
void add(Queue queue, float* x, const float* y, std::int64_t elements);
void gather_rows(Queue queue, ConstRows x, const std::int32_t* index, Rows y);

// --- kv.cu -----------------------------------------------------------------------------------------------------------
void kv_write(Queue queue, DType type, const float* from, const std::int32_t* slot, std::int64_t rows,
              std::int64_t width, std::byte* memory);
// Rotates q and k and writes k and v, in one kernel.
struct RotateAndWrite {
  float *q = nullptr, *k = nullptr;
  const float* v = nullptr;
  const std::int32_t *position = nullptr, *slot = nullptr;
  const float *cosine = nullptr, *sine = nullptr;
  std::int64_t rows = 0, heads = 0, kv_heads = 0, half = 0;
  std::byte *kv_k = nullptr, *kv_v = nullptr;
};
void rotate_and_write(Queue queue, DType type, const RotateAndWrite& call);
// The keys or the values of some layers, all of one shape.
inline constexpr int kMostMemories = 128;
struct SlotMemories {
  std::byte* first[kMostMemories];  // slot 0
  int count = 0;
};
// copies [memory][n] = slots `from` of every memory, and back: slots `to`. bytes of a slot: an even number
void gather_slots(Queue queue, const SlotMemories& memories, const std::int32_t* from, std::int64_t n,
                  std::int64_t slot_bytes, std::byte* copies);
void scatter_slots(Queue queue, const std::byte* copies, const std::int32_t* to, std::int64_t n,
                   std::int64_t slot_bytes, const SlotMemories& memories);

// --- attention.cu ----------------------------------------------------------------------------------------------------
struct AttentionTables {
  const std::int32_t *slot, *sequence, *begin, *end, *ancestor_count, *ancestors, *blocks;
  const std::uint8_t* mask;           // null: by the lists
  std::int64_t ancestor_columns = 0;  // of `ancestors`
  std::int64_t block_columns = 0;     // of `blocks`
  std::int64_t mask_columns = 0;
};
struct AttentionCall {
  const float* q = nullptr;
  const std::byte *k = nullptr, *v = nullptr;
  DType kv_type = DType::f16;
  float* out = nullptr;
  AttentionTables tables;
  std::int64_t rows = 0, heads = 0, kv_heads = 0, dim = 0, block_size = 0;
  float scale = 1;
  // Not null: of keys and values, the two kernels ahead write these slots, `fresh_count` of them, and no others. (No
  // two layers share keys and values.)
  const std::int32_t* fresh = nullptr;
  std::int64_t fresh_count = 0;
};
// Scratch memory: tiles for each row, uninitialised, and counts, zeros before a call and after it.
std::int64_t attention_tile_bytes(const AttentionCall& call);  // for one row
std::int64_t attention_count_bytes(const AttentionCall& call);
struct AttentionScratch {
  std::byte *tiles = nullptr, *counts = nullptr;
};
// What attention makes of `out` besides; null: nothing.
struct AttentionForms {
  std::byte* quantised = nullptr;  // dim is then a multiple of 32
  std::byte* terms = nullptr;      // of bf16; heads * dim is then a multiple of 128
};
void attention(Queue queue, const AttentionCall& call, const AttentionScratch& scratch, const AttentionForms& forms);

// --- choices.cu ------------------------------------------------------------------------------------------------------
// What kernels over a vocabulary pass on to each other, and the blocks of one kernel: [rows, ...] each.
inline constexpr int kShare = 2048;  // columns that a block of threads ranks
struct VocabularyScratch {
  std::uint64_t* best = nullptr;    // [shares, kept] keys (vocabulary.h): of each share, best first, then 0
  std::uint64_t* ranked = nullptr;  // [ranks] keys: of the row, as `best`
  double* sums = nullptr;           // [256] of lanes
  std::int32_t* sizes = nullptr;    // how many could be ranked
  std::int32_t* arrived = nullptr;  // blocks that have; zeros before a call and after it
  int shares = 0, kept = 0, ranks = 0;
};
// How many best are wanted, of each share and, where they are passed on, of the row.
struct VocabularyRanks {
  std::int64_t of_share = 1, of_row = 0;
};
std::int64_t vocabulary_bytes(ConstRows x, VocabularyRanks wanted);
std::int64_t vocabulary_count_bytes(ConstRows x);
VocabularyScratch vocabulary_scratch(ConstRows x, VocabularyRanks wanted, std::byte* memory, std::byte* counts);

// Ranks the shares of rows: leaves `best`.
void rank_shares(Queue queue, ConstRows x, const VocabularyScratch& scratch);
void argmax(Queue queue, ConstRows x, const VocabularyScratch& scratch, std::int32_t* id);
void top_k(Queue queue, ConstRows x, std::int64_t k, const VocabularyScratch& scratch, float* value, std::int32_t* id);
void log_sum_exp(Queue queue, ConstRows x, float scale, const VocabularyScratch& scratch, float* y);

}  // namespace espalier::cuda
